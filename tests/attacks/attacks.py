#!/usr/bin/env python3
"""Attacks that a command of an agent can try: each is made for real, and undone.

    attacks.py WORLD                 makes all attempts
    attacks.py WORLD --topic TOPIC   makes those of a topic
    attacks.py WORLD NAME...         makes these
    attacks.py --list                prints the topics and names

WORLD is the file that victim.py writes: it names the victims, which a test has made for this purpose. No attempt touches
anything else, and the network ones use only loopback. Each is made in a process of its own, and prints one line:

    NAME out             it had its effect, which was seen where the victim is
    NAME refused WHY     it had none; WHY is the error number, or a word
    NAME skip WHY        it cannot be made on this machine

expected.toml says which outcome each must have.
"""

import errno
import os
import select
import signal
import sys
import time

sys.dont_write_bytecode = True
# The descriptors that the program got from its parent: an attack asks whether one leads out.
INHERITED = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]

# ruff: noqa: E402
import base
import files
import git
import home
import network
import privileges
import processes
import services
import team

# The time limit of an attempt, in seconds.
LIMIT = 120.0

MODULES = [files, home, git, team, processes, privileges, network, services]


def attempt(name, run, world):
    """Makes an attempt in this process, and returns its outcome."""
    base.World.attempt = name
    try:
        run(world)
    except base.Skip as why:
        return f"skip {why}"
    except base.Refused as why:
        return f"refused {why}"
    except TimeoutError:
        return "refused TIMEOUT"
    except OSError as why:
        return f"refused {errno.errorcode.get(why.errno, why.errno)}"
    return "out"


def in_child(name, run, world):
    """Makes an attempt in a child, and returns its outcome. Kills whatever the attempt leaves."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(ours)
        try:
            outcome = attempt(name, run, world)
        except BaseException as why:
            outcome = f"broken {type(why).__name__}: {why}"
        os.write(theirs, outcome.replace("\n", " ").encode())
        os._exit(0)
    os.close(theirs)
    outcome = receive(ours, time.monotonic() + LIMIT)
    os.close(ours)
    for end in (lambda: os.killpg(child, signal.SIGKILL), lambda: os.kill(child, signal.SIGKILL)):
        try:
            end()
        except OSError:
            pass
    _, status = os.waitpid(child, 0)
    if outcome == "":
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return f"refused {signal.Signals(by).name}" if by else "broken without an outcome"
    return outcome


def receive(pipe, until):
    """Reads the outcome. It is `refused TIMEOUT` at the limit, and empty if the child was killed."""
    ready, _, _ = select.select([pipe], [], [], max(0, until - time.monotonic()))
    # The outcome is one write below the size of a pipe's buffer, so it comes whole.
    return os.read(pipe, 4096).decode() if ready else "refused TIMEOUT"


def main(args):
    if args == ["--list"]:
        for name, (topic, _) in base.ATTACKS.items():
            print(topic, name)
        return 0
    if not args:
        print(__doc__, file=sys.stderr)
        return 2
    world, names = base.World(args[0]), args[1:]
    world.inherited = INHERITED
    if names[:1] == ["--topic"]:
        names = [name for name, (topic, _) in base.ATTACKS.items() if topic in names[1:]]
    for name in names or list(base.ATTACKS):
        _, run = base.ATTACKS.get(name, (None, None))
        outcome = in_child(name, run, world) if run else "broken unknown"
        print(name, outcome, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
