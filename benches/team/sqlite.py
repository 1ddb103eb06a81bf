"""Many processes insert into one SQLite table in WAL mode while one takes rows out: prints messages per second.

Arguments: the database, the number of writers, the seconds they write. Commits are not synced
(synchronous=NORMAL), as `fsync = never` is not.
"""

import os
import sqlite3
import sys
import time

path, writers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
TEXT = "x" * 200


def connect():
    base = sqlite3.connect(path, timeout=30, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=NORMAL")
    return base


def write(start, report):
    base, sent = connect(), 0
    start.read(1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        base.execute("INSERT INTO mail (text) VALUES (?)", (TEXT,))
        sent += 1
    os.write(report, b"%d\n" % sent)
    os._exit(0)


os.remove(path) if os.path.exists(path) else None
base = connect()
base.execute("CREATE TABLE mail (id INTEGER PRIMARY KEY, text TEXT)")
start_read, start_write = os.pipe()
report_read, report_write = os.pipe()
base.close()
for _ in range(writers):
    if os.fork() == 0:
        os.close(start_write)
        write(os.fdopen(start_read, "rb", buffering=0), report_write)
os.close(report_write)
base = connect()
begun = time.monotonic()
os.write(start_write, b"." * writers)
os.set_blocking(report_read, False)
taken, last, reports, is_over = 0, 0, b"", False
while not is_over or taken < sum(map(int, reports.split())):
    rows = base.execute("SELECT id, text FROM mail WHERE id > ? ORDER BY id", (last,)).fetchall()
    if rows:
        last = rows[-1][0]
        taken += len(rows)
    else:
        time.sleep(0.001)
    try:
        piece = os.read(report_read, 65536)
        reports += piece
        is_over = not piece
    except BlockingIOError:
        pass
print(taken / (time.monotonic() - begun))
