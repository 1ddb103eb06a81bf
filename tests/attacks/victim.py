#!/usr/bin/env python3
"""The victim of the attacks: a process outside of the team, and the files, sockets and programs of its user.

    victim.py OUTSIDE WORKSPACE TEAM PROGRAM ARGUMENT

Makes a home in OUTSIDE/home, and a repository in WORKSPACE. Writes WORKSPACE/world.json for attacks.py, prints `ready`,
and records each signal and all bytes that reach it, one line each, in WORKSPACE/received. ARGUMENT is a secret. At the end
of its standard input it ends everything that it has started.
"""

import contextlib
import ctypes
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import tty

sys.dont_write_bytecode = True

# ruff: noqa: E402
import kernel

SIGNALS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGIO, signal.SIGRTMIN + 3]

# Each secret has another text, so that an attack proves which one it has read.
SECRETS = {
    name: f"canary-{name}-{os.urandom(6).hex()}"
    for name in ("file", "memory", "shm", "key", "ssh", "aws", "clone")
}

KEY_LIFE_S = 900
KEYCTL_UNLINK, KEYCTL_SET_TIMEOUT, USER_KEYRING = 9, 15, -4
IPC_RMID, IPC_CREAT = 0, 0o1000


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def found(name):
    return shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")


class Victim:
    def __init__(self, outside, workspace):
        self.outside = outside
        self.home = os.path.join(outside, "home")
        # A command can read it even within walls, or it could not tell an effect from none.
        record = os.path.join(workspace, "received")
        self.record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.readers = {}
        self.children = []
        self.ends = []
        self.world = {"pid": os.getpid(), "record": record}
        self.world["secrets"] = SECRETS

    def note(self, what, data):
        os.write(self.record, f"{what} {ascii(data)}\n".encode())

    def make_home(self):
        """Makes the files of a user, all of them for this test."""
        at = lambda name: os.path.join(self.home, name)
        write(at(".bashrc"), "# the user's own\n")
        write(at("notes.txt"), "the user's notes\n")
        write(at(".ssh/id_canary"), SECRETS["ssh"] + "\n", 0o600)
        write(at(".ssh/authorized_keys"), "# the user's own\n", 0o600)
        write(at(".aws/credentials"), SECRETS["aws"] + "\n", 0o600)
        write(at(".cargo/registry/src/index/crate-1.0.0/lib.rs"), "pub fn fine() {}\n")
        write(at(".gitconfig"), "[user]\n\tname = A User\n\temail = user@example.org\n")
        os.makedirs(at("bin"), exist_ok=True)
        write(os.path.join(self.outside, "cwd/note"), SECRETS["file"] + "\n")
        os.chdir(os.path.join(self.outside, "cwd"))

    def make_repositories(self, workspace):
        """Makes the repository of the workspace, and one of another user."""
        self.world["repository"] = found("git") is not None
        if not self.world["repository"]:
            return
        other = os.path.join(self.outside, "clone")
        write(os.path.join(other, "secret.txt"), SECRETS["clone"] + "\n")
        write(os.path.join(workspace, "tracked.txt"), "tracked\n")
        for folder, name in ((other, "secret.txt"), (workspace, "tracked.txt")):
            for words in (["init", "-q"], ["add", name], ["commit", "-q", "-m", "first"]):
                self.must("git", "-C", folder, *words)
        blob = self.must("git", "-C", other, "rev-parse", "HEAD:secret.txt")
        self.world["clone"] = {"path": other, "blob": blob.strip()}

    def must(self, *words, **options):
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, **options
        )
        return ran.stdout

    def open_memory(self):
        """Publishes a secret in memory, one in a shared segment, one in a key, and one in a file without a name."""
        self.buffer = ctypes.create_string_buffer(SECRETS["memory"].encode())
        self.world["address"] = ctypes.addressof(self.buffer)
        path = os.path.join(self.outside, "unlinked")
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(self.file, SECRETS["file"].encode())
        os.unlink(path)
        self.world["fd"] = self.file
        with contextlib.suppress(OSError):
            self.open_shm()
        with contextlib.suppress(OSError):
            self.open_key()

    def open_shm(self):
        secret = SECRETS["shm"].encode()
        segment = kernel.call("shmget", 0, 4096, 0o600 | IPC_CREAT)
        kernel.LIBC.shmat.restype = ctypes.c_void_p
        address = kernel.LIBC.shmat(ctypes.c_int(segment), None, 0)
        ctypes.memmove(address, secret, len(secret))
        # It exists as long as this process has it attached, and can be attached by its id until then.
        kernel.call("shmctl", segment, IPC_RMID, None)
        self.world["shm"] = segment

    def open_key(self):
        secret, name = SECRETS["key"].encode(), f"team-attacks-{os.getpid()}"
        key = kernel.call(
            "add_key", ctypes.c_char_p(b"user"), ctypes.c_char_p(name.encode()),
            ctypes.c_char_p(secret), len(secret), USER_KEYRING,
        )
        kernel.call("keyctl", KEYCTL_SET_TIMEOUT, key, KEY_LIFE_S)
        self.ends.append(lambda: kernel.call("keyctl", KEYCTL_UNLINK, key, USER_KEYRING))
        self.world["key"] = name

    def listen(self, name, family, kind, address):
        listener = socket.socket(family, kind)
        listener.bind(address)
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
            self.readers[listener] = lambda: self.accept(name, listener)
        else:
            self.readers[listener] = lambda: self.note(name, listener.recv(65536))
        return listener

    def accept(self, name, listener):
        with contextlib.suppress(BlockingIOError):
            peer, _ = listener.accept()
            peer.setblocking(False)
            self.readers[peer] = lambda: self.read_peer(name, peer)

    def read_peer(self, name, peer):
        data = b""
        with contextlib.suppress(OSError):
            data = peer.recv(65536)
        if data:
            self.note(name, data)
        else:
            del self.readers[peer]
            peer.close()

    def open_sockets(self):
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        at = lambda name: os.path.join(self.outside, name)
        tcp = self.listen("tcp", socket.AF_INET, stream, ("127.0.0.1", 0))
        udp = self.listen("udp", socket.AF_INET, datagram, ("127.0.0.1", 0))
        self.listen("unix", socket.AF_UNIX, stream, at("stream"))
        self.listen("dgram", socket.AF_UNIX, datagram, at("datagram"))
        abstract = f"team-attacks-{os.getpid()}"
        self.listen("abstract", socket.AF_UNIX, stream, f"\0{abstract}")
        self.world |= {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        self.world |= {"unix": at("stream"), "dgram": at("datagram"), "abstract": abstract}
        _, terminal = self.terminal = pty.openpty()
        tty.setraw(terminal)
        self.readers[terminal] = lambda: self.note("tty", os.read(terminal, 4096))
        self.world["tty"] = os.ttyname(terminal)

    def start(self, *words, **options):
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
        )
        self.children.append(child)

    def wait_for(self, path):
        """Waits until a program listens at this path. Returns whether it does."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
                caller.connect(path)
                return True
            time.sleep(0.005)
        return False

    def start_programs(self):
        """Starts the programs of a user that listen on sockets, as far as they are installed."""
        at = lambda name: os.path.join(self.outside, name)
        daemon = os.path.join(self.home, "bin/daemon")
        shutil.copy(found("sleep"), daemon)
        self.start(daemon, "1000000")
        if found("ssh-agent") and found("ssh-add") and found("ssh-keygen"):
            self.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "canary", "-f", at("key"))
            self.start("ssh-agent", "-D", "-a", at("ssh"))
            if self.wait_for(at("ssh")):
                self.must("ssh-add", "-q", at("key"), env={**os.environ, "SSH_AUTH_SOCK": at("ssh")})
                self.world["ssh_agent"] = at("ssh")
        if found("dbus-daemon"):
            address = f"--address=unix:path={at('bus')}"
            self.start("dbus-daemon", "--session", "--nofork", "--nopidfile", address)
            if self.wait_for(at("bus")):
                self.world["bus"] = at("bus")
        if found("gpg-agent") and found("gpgconf"):
            os.makedirs(at("gnupg"), 0o700)
            self.start("gpg-agent", "--homedir", at("gnupg"), "--daemon")
            self.ends.append(lambda: self.must("gpgconf", "--homedir", at("gnupg"), "--kill", "all"))
            place = self.must("gpgconf", "--homedir", at("gnupg"), "--list-dirs", "agent-socket").strip()
            if self.wait_for(place):
                self.world["gpg_agent"] = place
        if found("tmux"):
            tmux = ["tmux", "-S", at("tmux"), "-f", "/dev/null"]
            # It starts commands by the shell of the user, which an account of a service does not have.
            self.must(*tmux, "new-session", "-d", "sh", env={**os.environ, "SHELL": "/bin/sh"})
            self.ends.append(lambda: self.must(*tmux, "kill-server"))
            self.world["tmux"] = at("tmux")

    def serve(self):
        """Serves until the end of the standard input."""
        while True:
            ready, _, _ = select.select([sys.stdin, *self.readers], [], [])
            if sys.stdin in ready:
                return
            for one in ready:
                if one in self.readers:
                    self.readers[one]()

    def end(self):
        for end in self.ends:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                end()
        for child in self.children:
            child.kill()
            child.wait()


def main(outside, workspace, team, program, _secret):
    victim = Victim(outside, workspace)
    for number in SIGNALS:
        signal.signal(number, lambda number, _: victim.note("signal", int(number)))
    os.symlink(workspace, os.path.join(outside, "link"))
    try:
        victim.make_home()
        victim.make_repositories(workspace)
        victim.open_memory()
        victim.open_sockets()
        victim.start_programs()
        victim.must(program, "init", "--dir", os.path.join(workspace, "other-team"))
        world = {"workspace": workspace, "team": team, "program": program}
        world |= {"outside": outside, "home": victim.home, "victim": victim.world}
        write(os.path.join(workspace, "world.json"), json.dumps(world, indent=1))
        print("ready", flush=True)
        victim.serve()
    finally:
        victim.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
