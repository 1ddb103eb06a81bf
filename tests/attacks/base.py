"""The registry of the attacks, their outcomes, and the steps that several of them share."""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time

import kernel

# The longest wait for an effect, in seconds. Only an attempt without effect waits that long.
EFFECT_LIMIT = 20.0

ATTACKS = {}


class Refused(Exception):
    """The attempt had no effect, for a reason that is no error number."""


class Skip(Exception):
    """The attempt cannot be made on this machine."""


class World:
    """The files and processes of the test: see victim.py, which makes most of them."""

    # The name of the attempt that this process makes.
    attempt = "none"

    def __init__(self, path):
        with open(path) as file:
            self.given = json.load(file)
        self.workspace = self.given["workspace"]
        self.team = self.given["team"]
        self.home = self.given["home"]
        self.outside = self.given["outside"]
        self.victim = self.given["victim"]
        self.pid = self.victim["pid"]

    def member(self, name, inside="inbox"):
        return os.path.join(self.team, inside, f"{name}.jsonl")

    def in_home(self, name):
        return os.path.join(self.home, name)

    def in_workspace(self, name):
        return os.path.join(self.workspace, name)

    def known(self):
        """Returns what the test tells an attacker of the team, since a command behind walls cannot read it: the members
        with their modes, incarnations and process ids, an open question, an order, and the mailbox keys."""
        with open(self.in_workspace("known.json")) as file:
            return json.load(file)

    def received(self):
        """Returns the lines that the victim has recorded: signals and bytes."""
        with open(self.victim["record"]) as file:
            return file.read().splitlines()


def attack(topic):
    """Registers a function as the attack of its name. Its return means that it got out."""

    def register(run):
        assert run.__name__ not in ATTACKS, run.__name__
        ATTACKS[run.__name__] = (topic, run)
        return run

    return register


def token():
    """Returns a text that names the attempt of this process: the test looks for it at the victims."""
    return f"{World.attempt}-token-{secrets.token_hex(8)}"


def unique():
    return secrets.token_hex(8)


def eventually(is_so, limit=EFFECT_LIMIT):
    """Waits until a condition holds. Returns whether it did."""
    end = time.monotonic() + limit
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def must(is_so, why="no-effect"):
    if not is_so:
        raise Refused(why)


def must_come(is_so, why="no-effect", limit=EFFECT_LIMIT):
    must(eventually(is_so, limit), why)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def or_known(look, known):
    """Looks something up, or takes what the test has told if this process may not look."""
    try:
        return look()
    except OSError:
        return known()


def must_read(path, content):
    """Reads a file that must contain this text."""
    must(content.encode() in read(path), "not-the-content")


@contextlib.contextmanager
def removed_later(path):
    """Removes a file, a link or a folder afterwards."""
    try:
        yield path
    finally:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


@contextlib.contextmanager
def restored(path):
    """Writes the content and the mode of a file back afterwards, into the same file."""
    content, mode = read(path), os.stat(path).st_mode & 0o7777
    try:
        yield content
    finally:
        os.chmod(path, mode)
        with open(path, "r+b") as file:
            file.truncate(0)
            file.write(content)


def program(name):
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise Skip(f"no {name}")
    return found


def run(words, **options):
    """Runs a program without input to its end."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **options}
    return subprocess.run(words, timeout=60, check=False, **options)


def must_run(words, **options):
    """Runs a program that must succeed. Its refusal is named by the error number in its message, if there is one."""
    ran = run(words, **options)
    if ran.returncode != 0:
        known = (number for number in errno.errorcode if os.strerror(number) in ran.stderr)
        number = next(known, None)
        raise Refused(errno.errorcode[number] if number else f"exit-{ran.returncode}")
    return ran.stdout


def watcher():
    """Returns an inotify instance. Waits for one, since all processes of a user share them: 128, if the machine says
    nothing else, and large teams that run at the same time may hold all of them."""
    made = []

    def is_made():
        try:
            made.append(kernel.checked(kernel.LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)))
        except OSError as why:
            if why.errno != errno.EMFILE:
                raise
        return made

    if not eventually(is_made, limit=100.0):
        raise Skip("no inotify instance is free")
    return made[0]


def must_lock(path, mode):
    """Takes a flock that another descriptor must then be refused."""
    with open(path, mode) as mine, open(path) as other:
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        raise Refused("not-locked")


def state_of(pid):
    """Returns the state letter of a process, and `X` if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


@contextlib.contextmanager
def stopped(pids):
    """Stops processes meanwhile. One that cannot be stopped goes on."""
    done = []
    try:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                done.append(pid)
        for pid in done:
            eventually(lambda pid=pid: state_of(pid) in "TtX")
        yield done
    finally:
        for pid in done:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
