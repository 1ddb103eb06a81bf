#!/usr/bin/env python3
"""Plays the part of an agent from a record of its messages (tests/it/golden/acp): usage: acp_replay.py RECORD.

Each message of the client must come as it is recorded: the method of a call, the whole answer to a question. Else the
program exits, and says which one was expected.
"""

import json
import os
import sys


def fail(why):
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    os._exit(4)


with open(sys.argv[1]) as file:
    record = [json.loads(line.replace("WORKSPACE", os.getcwd())) for line in file]
for direction, message in record:
    if direction == "<":
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
        continue
    line = sys.stdin.readline()
    if not line:
        fail(f"the input ended before {message}")
    came = json.loads(line)
    parts = ("method", "id") if "method" in message else ("id", "result")
    for part in parts:
        if came.get(part) != message.get(part):
            fail(f"expected {message}, but this came: {line[:300]}")
sys.stdin.read()
