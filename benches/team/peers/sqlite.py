"""The jobs of a child process of `scripts/bench --peers`, for a SQLite table in WAL mode.

The argument is the job in JSON, as for the other child processes: see child_process.rs. Where syncs are not asked for,
commits are not synced (synchronous=NORMAL), as with `fsync = never`. A table has no events: the owner polls.
"""

import json
import select
import sqlite3
import sys
import time

((job, options),) = json.loads(sys.argv[2]).items()
TABLE = options["way"]["Peer"]["Sqlite"]
INSERT = "INSERT INTO mail (text) VALUES (?)"

# The interval at which the owner polls, and the pause before a message that wakes it, in seconds.
POLL, PAUSE = 0.001, 0.003
# The time limit of an owner for a message that should arrive, in seconds.
PATIENCE = 20
# The most messages that one read takes.
BATCH = 500


def connect():
    base = sqlite3.connect(TABLE["file"], timeout=60, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=" + ("FULL" if TABLE["is_synced"] else "NORMAL"))
    base.execute("CREATE TABLE IF NOT EXISTS mail (id INTEGER PRIMARY KEY, text TEXT)")
    return base


def say(value):
    print(json.dumps(value), flush=True)


def padded(words):
    return words.ljust(200)


def take(base):
    """Removes the oldest messages and returns their texts."""
    rows = base.execute("SELECT id, text FROM mail ORDER BY id LIMIT ?", (BATCH,)).fetchall()
    if rows:
        base.execute("DELETE FROM mail WHERE id <= ?", (rows[-1][0],))
    return [text for _, text in rows]


def is_readable(limit):
    return bool(select.select([sys.stdin], [], [], limit)[0])


def write(base):
    number, seconds, sent, longest = options["number"], options["seconds"], 0, 0.0
    sys.stdin.readline()
    start = before = time.monotonic()
    while before - start < seconds:
        base.execute(INSERT, (padded(f"{number} {sent}"),))
        now = time.monotonic()
        before, longest, sent = now, max(longest, now - before), sent + 1
    say({"sent": sent, "longest_ms": longest * 1e3})


def own(base):
    total, out_of_order, following, due, progress = 0, 0, {}, None, time.monotonic()
    while (due is None or total < due) and time.monotonic() - progress < PATIENCE:
        texts = take(base)
        for text in texts:
            writer, sent = map(int, text.split()[:2])
            if sent == following.get(writer, 0):
                following[writer] = sent + 1
            else:
                out_of_order += 1
        total += len(texts)
        if texts:
            progress = time.monotonic()
        # A look without a pause would hold the lock too often.
        pause = 0 if len(texts) == BATCH else POLL
        if due is not None:
            time.sleep(pause)
        elif is_readable(pause):
            due, progress = int(sys.stdin.readline() or 0), time.monotonic()
    say({"total": total, "out_of_order": out_of_order})


def wake(base):
    while not is_readable(POLL):
        for text in take(base):
            say((time.time() - float(text)) * 1e3)


def notify(base):
    while sys.stdin.readline():
        time.sleep(PAUSE)
        base.execute(INSERT, (padded(f"{time.time():.7f}"),))


def measure(base):
    took = []
    sys.stdin.readline()
    for number in range(options["times"]):
        text = padded(f"0 {number}")
        start = time.perf_counter()
        base.execute(INSERT, (text,))
        took.append((time.perf_counter() - start) * 1e6)
    say(took)


def fill(base):
    base.execute("BEGIN")
    base.executemany(INSERT, ((padded("0 0"),) for _ in range(options["count"])))
    base.execute("COMMIT")


base = connect()
if job == "Fill":
    fill(base)
say("ready")
if job != "Fill":
    {"Write": write, "Own": own, "Wake": wake, "Notify": notify, "Time": measure}[job](base)
