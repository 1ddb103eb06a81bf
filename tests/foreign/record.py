#!/usr/bin/env python3
"""Runs an agent between two pipes, and records both directions: usage: record.py FILE PROGRAM [ARGUMENT]..."""

import json
import subprocess
import sys
import threading

lock = threading.Lock()
log = open(sys.argv[1], "a")


def copy(source, target, direction):
    for line in iter(source.readline, b""):
        with lock:
            log.write(json.dumps([direction, line.decode(errors="replace").rstrip("\n")]) + "\n")
            log.flush()
        try:
            target.write(line)
            target.flush()
        except OSError:
            break
    target.close()


agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
threading.Thread(target=copy, args=(sys.stdin.buffer, agent.stdin, ">"), daemon=True).start()
copy(agent.stdout, sys.stdout.buffer, "<")
sys.exit(agent.wait())
