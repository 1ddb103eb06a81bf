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
import struct
import subprocess
import sys
import time
import tty

sys.dont_write_bytecode = True

# ruff: noqa: E402
import base
import kernel

SIGNALS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGIO, signal.SIGRTMIN + 3]

# Each secret has another text, so that an attack proves which one it has read.
SECRETS = {
    name: f"canary-{name}-{os.urandom(6).hex()}"
    for name in ("file", "memory", "shm", "key", "ssh", "aws", "clone")
}

KEY_LIFE_S = 900

# A user that no machine has: between those of people and those of containers. Each test has one of its own.
THROW_AWAY_USER = 61200 + os.getpid() % 3000
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
        # The answers of the programs for which the victim stands, by name: to the first bytes of each caller.
        self.answers = {
            "systemd": b"DATA\r\nOK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n",
            "docker": b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            "display": b"\1\0\x0b\0\0\0\0\0",
        }
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
            with contextlib.suppress(OSError):
                peer.sendall(self.answers.get(name, b""))
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
        os.makedirs(at("systemd"))
        self.listen("systemd", socket.AF_UNIX, stream, at("systemd/private"))
        self.listen("docker", socket.AF_UNIX, stream, at("docker.sock"))
        self.listen("display", socket.AF_UNIX, stream, at("X0"))
        self.world |= {"docker": at("docker.sock"), "display": at("X0")}
        self.world |= {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        self.world |= {"unix": at("stream"), "dgram": at("datagram"), "abstract": abstract}
        _, terminal = self.terminal = pty.openpty()
        tty.setraw(terminal)
        self.readers[terminal] = lambda: self.note("tty", os.read(terminal, 4096))
        self.world["tty"] = os.ttyname(terminal)

    def open_queues(self):
        """Opens a message queue that it reads, and one for an attempt to remove it."""
        for name in ("queue", "spare_queue"):
            queue = f"team-attacks-{name}-{os.getpid()}"
            as_text = ctypes.c_char_p(queue.encode())
            # The flags, the number of messages, their size, and what the kernel fills in.
            attributes = ctypes.create_string_buffer(struct.pack("8q", 0, 4, 256, 0, 0, 0, 0, 0))
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NONBLOCK
            fd = kernel.call("mq_open", as_text, flags, 0o600, attributes)
            self.ends.append(lambda as_text=as_text: kernel.call("mq_unlink", as_text))
            self.readers[fd] = lambda fd=fd: self.note("queue", self.message(fd))
            self.world[name] = queue

    def message(self, queue):
        text = ctypes.create_string_buffer(256)
        size = kernel.call("mq_timedreceive", queue, text, len(text), None, None)
        return text.raw[:size]

    def open_spools(self):
        """Stands for the daemons of cron and at: runs the commands of each file that comes into their spools."""
        spool = os.path.join(self.outside, "spool")
        watch = base.watcher()
        written = 8
        for name in ("cron", "at"):
            folder = os.path.join(spool, name)
            os.makedirs(folder)
            kernel.checked(kernel.LIBC.inotify_add_watch(watch, folder.encode(), written))
        self.readers[watch] = lambda: self.run_jobs(watch, spool)

    def run_jobs(self, watch, spool):
        os.read(watch, 4096)
        for folder in ("cron", "at"):
            for name in os.listdir(os.path.join(spool, folder)):
                path = os.path.join(spool, folder, name)
                with open(path) as file:
                    lines = file.read().splitlines()
                if not lines:
                    # It is being written: the event of its end is still to come.
                    continue
                os.unlink(path)
                # Five words of a line of cron are its time.
                jobs = [line.split(None, 5)[5] for line in lines] if folder == "cron" else lines[1:]
                for job in jobs:
                    self.note("job", self.must("sh", "-c", job))

    def make_preload(self):
        """Copies a library for LD_PRELOAD, and makes sure that programs load it, and that shells obey BASH_ENV."""
        path = os.path.join(self.outside, "preload.so")
        ctypes.CDLL("libm.so.6")
        with open("/proc/self/maps") as maps:
            library = next(line.split()[-1] for line in maps if "/libm" in line)
        shutil.copy(library, path)
        maps = self.must("cat", "/proc/self/maps", env={**os.environ, "LD_PRELOAD": path})
        assert path in maps, "the library is not loaded"
        trap = os.path.join(self.outside, "each-shell")
        ran = subprocess.run(["bash", "-c", "true"], env={**os.environ, "BASH_ENV": trap}, check=False)
        assert ran.returncode == 99, "the shell does not obey BASH_ENV"
        self.world["preload"] = path

    def start_slow(self):
        """Starts a process of low priority: as root, of a user that has no other one."""
        uid = os.getuid()
        self.world["may_change_user"] = uid == 0
        options = {"user": THROW_AWAY_USER, "group": THROW_AWAY_USER, "extra_groups": []} if uid == 0 else {}
        low = 5

        def prepare():
            # Only a privileged process may give it a higher priority again, which an attack on the group does.
            os.setpgid(0, 0)
            os.nice(low)

        self.start("sleep", "1000000", preexec_fn=prepare, cwd="/", **options)
        self.world["slow"] = {"pid": self.children[-1].pid, "user": options.get("user", uid)}

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
        with contextlib.suppress(OSError):
            victim.open_queues()
        victim.open_spools()
        victim.make_preload()
        victim.start_slow()
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
