"""Writes stamped blocks over NBD until the connection is lost, or checks them against what was acknowledged.

ledger.py load|check URI LEDGER SEED: the ledger says of each block which write was acknowledged last, and which was
sent last. A block holds its number and the number of the write, over and over.
"""

import json
import os
import random
import struct
import sys

import nbd

BLOCK_BYTES = 8192
BLOCKS = 2048
DEPTH = 32

mode, uri, path, seed = sys.argv[1:]
ledger = {}
if os.path.exists(path):
    with open(path) as file:
        ledger = {int(block): entry for block, entry in json.load(file).items()}


def content(block, number):
    return bytearray(struct.pack("<QQ", block, number) * (BLOCK_BYTES // 16))


def load(h):
    dice = random.Random(int(seed))
    number = max((sent for _, sent in ledger.values()), default=0)
    pending, acknowledged = {}, 0
    try:
        while True:
            while len(pending) < DEPTH:
                block = dice.randrange(BLOCKS)
                if block in pending:
                    continue
                number += 1
                entry = ledger.setdefault(block, [0, 0])
                data = nbd.Buffer.from_bytearray(content(block, number))
                entry[1] = number
                pending[block] = (h.aio_pwrite(data, block * BLOCK_BYTES), number, data)
            h.poll(-1)
            for block, (cookie, sent, _) in list(pending.items()):
                if h.aio_command_completed(cookie):
                    ledger[block][0] = sent
                    del pending[block]
                    acknowledged += 1
    except nbd.Error as error:
        print(f"the connection was lost: {error}", file=sys.stderr)
    return acknowledged


def check(h):
    for block, entry in ledger.items():
        found = bytes(h.pread(BLOCK_BYTES, block * BLOCK_BYTES))
        stamp = struct.unpack("<QQ", found[:16])
        if found == bytes(BLOCK_BYTES):
            stamp = (block, 0)
        elif found != bytes(content(*stamp)):
            sys.exit(f"block {block} holds parts of several writes, the first {stamp}")
        if stamp[0] != block or stamp[1] not in entry:
            sys.exit(f"block {block} holds {stamp}; write {entry[0]} was acknowledged, {entry[1]} sent")
        # What was read once must stay.
        entry[0] = entry[1] = stamp[1]
    return len(ledger)


handle = nbd.NBD()
handle.connect_uri(uri)
print({"load": load, "check": check}[mode](handle))
with open(path, "w") as file:
    json.dump(ledger, file)
