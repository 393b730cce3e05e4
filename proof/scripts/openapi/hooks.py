"""Keys of requests are random in life: the same one with another request is refused, as it should be."""

import itertools
import re

import schemathesis

numbers = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[!-~]{1,240}", key):
        case.headers["Idempotency-Key"] = f"{key}-{next(numbers)}"
