#!/bin/bash
# The OpenAPI document tried on an array that serves it: schemathesis makes requests from the document, valid and invalid,
# and holds the answers against it. A failure that proof/scripts/openapi/explained.json does not explain fails this.
#
# proof/scripts/openapi.sh [OPTION OF st run]...      --baseline-update adds what fails to the list; write a reason to each entry
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
quoin=$(realpath "$target/debug/quoin")
work=$(mktemp --directory "${TMPDIR:-/tmp}/quoin-openapi.XXXXXX")
array=
finish() {
    if [ -n "$array" ]; then
        kill "$array" 2> /dev/null || true
        wait "$array" 2> /dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

# Made once for each list of packages.
venv=$(realpath -m "$target/openapi-$(sha256sum proof/scripts/openapi/requirements.txt | cut -c1-12)")
if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement proof/scripts/openapi/requirements.txt
    touch "$venv/complete"
fi

python3 - <<'PYTHON'
import json
with open("proof/scripts/openapi/explained.json") as file:
    for entry in json.load(file)["entries"]:
        if not entry.get("reason"):
            raise SystemExit(f"proof/scripts/openapi/explained.json: entry {entry['id']} of {entry['operation']} has no reason")
PYTHON

export QUOIN_DATA=$work/data
"$quoin" init --drives 1 --drive-size 2G > /dev/null
QUOIN_LOG=warn "$quoin" serve --iscsi 127.0.0.1:0 --api 127.0.0.1:0 --nbd 127.0.0.1:0 2> "$work/log" &
array=$!
for _ in $(seq 300); do
    "$quoin" status 2> /dev/null | grep -q '^ready  *yes' && break
    sleep 0.2
done
# What the examples of the document are about.
"$quoin" volume create v1 --size 64M > /dev/null
"$quoin" volume create v2 --size 64M > /dev/null
"$quoin" snapshot create v1 v1.before-upgrade > /dev/null
"$quoin" host create h1 --initiator iqn.2026-11.test:h1 > /dev/null
"$quoin" group create db1 --volume v2 > /dev/null

api=$(cat "$QUOIN_DATA/run/api")
status=0
(
    cd "$work"
    QUOIN_TOKEN=$(cat "$QUOIN_DATA/token")
    export QUOIN_TOKEN SCHEMATHESIS_HOOKS=$OLDPWD/proof/scripts/openapi/hooks.py
    "$venv/bin/st" --config-file "$OLDPWD/proof/scripts/openapi/schemathesis.toml" run "$OLDPWD/docs/openapi.json" \
        --url "http://$api" \
        --phases examples,coverage,fuzzing,stateful --max-examples 15 --workers 1 --request-timeout 30 \
        --warnings off --baseline "$OLDPWD/proof/scripts/openapi/explained.json" "$@"
) || status=$?
kill -0 "$array" || { echo "the array ended:"; cat "$work/log"; exit 1; }
if grep -E "ERROR|panicked" "$work/log"; then
    echo "the array logged errors" >&2
    exit 1
fi
exit "$status"
