"""Attacks on processes outside of the command: the victim, the agent above, the supervisor between."""

import ctypes
import fcntl
import os
import resource
import signal
import struct
import termios

import kernel
from base import Refused, Skip, attack, must, must_come, must_read, parent_of, read, run, state_of, stopped, token

TOPIC = "processes"

PTRACE_ATTACH, PTRACE_DETACH, PTRACE_PEEKDATA = 16, 17, 2


def must_signal(world, number, send):
    """Sends a signal, and waits until the victim has recorded it."""
    line = f"signal {int(number)}"
    before = world.received().count(line)
    send()
    must_come(lambda: world.received().count(line) > before)


@attack(TOPIC)
def kill_victim(world):
    must_signal(world, signal.SIGUSR1, lambda: os.kill(world.pid, signal.SIGUSR1))


@attack(TOPIC)
def tgkill_victim(world):
    send = lambda: kernel.call("tgkill", world.pid, world.pid, int(signal.SIGUSR2))
    must_signal(world, signal.SIGUSR2, send)


@attack(TOPIC)
def pidfd_signal_victim(world):
    fd = kernel.call("pidfd_open", world.pid, 0)
    send = lambda: kernel.call("pidfd_send_signal", fd, int(signal.SIGHUP), None, 0)
    must_signal(world, signal.SIGHUP, send)


@attack(TOPIC)
def sigqueue_victim(world):
    number, queued = signal.SIGRTMIN + 3, -1
    info = ctypes.create_string_buffer(
        struct.pack("iiiiiiq", number, 0, queued, 0, os.getpid(), os.getuid(), 0), 128
    )
    send = lambda: kernel.call("rt_sigqueueinfo", world.pid, int(number), info)
    must_signal(world, number, send)


@attack(TOPIC)
def fowner_sigio_victim(world):
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETOWN, world.pid)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    must_signal(world, signal.SIGIO, lambda: os.write(theirs, b"x"))


def ancestors():
    pid = os.getpid()
    while pid > 1:
        pid = parent_of(pid)
        yield pid


def supervisor_and_agent():
    """Returns the supervisor of this command and the agent that runs it."""
    above = list(ancestors())
    for at, pid in enumerate(above[:-1]):
        if read(f"/proc/{pid}/comm").strip() == b"teammate-guard":
            return pid, above[at + 1]
    raise Refused("not-seen")


def must_stop(pid):
    with stopped([pid]) as done:
        if not done:
            os.kill(pid, 0)
        must(state_of(pid) in "Tt")


@attack(TOPIC)
def kill_parent(_world):
    must_stop(supervisor_and_agent()[1])


@attack(TOPIC)
def stop_supervisor(_world):
    must_stop(supervisor_and_agent()[0])


@attack(TOPIC)
def ptrace_attach(world):
    kernel.call("ptrace", PTRACE_ATTACH, world.pid, 0, 0)
    os.waitpid(world.pid, 0x40000000)
    try:
        # The call itself stores the word, unlike its wrapper in the C library.
        word = ctypes.create_string_buffer(8)
        kernel.call("ptrace", PTRACE_PEEKDATA, world.pid, world.victim["address"], word)
        must(world.victim["secrets"]["memory"].startswith(word.raw.decode()), "not-the-content")
    finally:
        kernel.call("ptrace", PTRACE_DETACH, world.pid, 0, 0)


@attack(TOPIC)
def process_vm_read(world):
    secret = world.victim["secrets"]["memory"].encode()
    mine = ctypes.create_string_buffer(len(secret))
    local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(mine), len(secret)))
    remote = ctypes.create_string_buffer(struct.pack("QQ", world.victim["address"], len(secret)))
    kernel.call("process_vm_readv", world.pid, local, 1, remote, 1, 0)
    must(mine.raw == secret, "not-the-content")


@attack(TOPIC)
def proc_mem(world):
    secret = world.victim["secrets"]["memory"].encode()
    with open(f"/proc/{world.pid}/mem", "rb", buffering=0) as memory:
        memory.seek(world.victim["address"])
        must(memory.read(len(secret)) == secret, "not-the-content")


@attack(TOPIC)
def proc_environ(world):
    must_read(f"/proc/{world.pid}/environ", "canary-environment")


@attack(TOPIC)
def see_cmdline_of_others(world):
    must_read(f"/proc/{world.pid}/cmdline", "canary-argument")


@attack(TOPIC)
def proc_fd_of_victim(world):
    must_read(f"/proc/{world.pid}/fd/{world.victim['fd']}", world.victim["secrets"]["file"])


@attack(TOPIC)
def proc_root_of_victim(world):
    place = os.path.join(world.outside, "cwd/note")
    must_read(f"/proc/{world.pid}/root{place}", world.victim["secrets"]["file"])


@attack(TOPIC)
def proc_cwd_of_victim(world):
    must_read(f"/proc/{world.pid}/cwd/note", world.victim["secrets"]["file"])


@attack(TOPIC)
def pidfd_getfd(world):
    pidfd = kernel.call("pidfd_open", world.pid, 0)
    fd = kernel.call("pidfd_getfd", pidfd, world.victim["fd"], 0)
    secret = world.victim["secrets"]["file"].encode()
    must(os.pread(fd, len(secret), 0) == secret, "not-the-content")


@attack(TOPIC)
def setns_of_victim(world):
    place = os.open(f"/proc/{world.pid}/ns/mnt", os.O_RDONLY)
    kernel.call("setns", place, kernel.CLONE_NEWNS)
    same = os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{world.pid}/ns/mnt")
    must(same)


@attack(TOPIC)
def prlimit_victim(world):
    kind = resource.RLIMIT_NOFILE
    soft, hard = resource.prlimit(world.pid, kind)
    resource.prlimit(world.pid, kind, (soft - 1, hard))
    try:
        must(resource.prlimit(world.pid, kind) == (soft - 1, hard))
    finally:
        resource.prlimit(world.pid, kind, (soft, hard))


@attack(TOPIC)
def setpriority_victim(world):
    before = os.getpriority(os.PRIO_PROCESS, world.pid)
    os.setpriority(os.PRIO_PROCESS, world.pid, before + 1)
    must(os.getpriority(os.PRIO_PROCESS, world.pid) == before + 1)


@attack(TOPIC)
def setpriority_group(world):
    group = os.getpgid(world.pid)
    must(group == world.pid, "not-a-group-of-its-own")
    before = os.getpriority(os.PRIO_PROCESS, world.pid)
    os.setpriority(os.PRIO_PGRP, group, before + 1)
    must(os.getpriority(os.PRIO_PROCESS, world.pid) == before + 1)


@attack(TOPIC)
def setpriority_whole_user(world):
    """Sets the priority of all processes of a user: root does it to a user that has one process of this test. Any other
    user does it to itself, and asks for the normal priority: a process of the victim has a lower one, which stays."""
    slow = world.victim["slow"]
    wanted = 7 if world.victim["may_change_user"] else 0
    os.setpriority(os.PRIO_USER, slow["user"], wanted)
    must(os.getpriority(os.PRIO_PROCESS, slow["pid"]) == wanted)


@attack(TOPIC)
def scheduler_of_victim(world):
    """Makes the victim one that is run when nothing else wants to run; batch is its way back."""
    before = os.sched_getscheduler(world.pid)
    os.sched_setscheduler(world.pid, os.SCHED_BATCH, os.sched_param(0))
    try:
        must(os.sched_getscheduler(world.pid) == os.SCHED_BATCH)
    finally:
        os.sched_setscheduler(world.pid, before, os.sched_param(0))


@attack(TOPIC)
def scheduler_attributes_of_victim(world):
    """The same by the later call, which takes its values in memory."""
    size = 48
    before = ctypes.create_string_buffer(struct.pack("II", size, 0), size)
    kernel.call("sched_getattr", world.pid, before, size, 0)
    # The policy is the second word.
    changed = ctypes.create_string_buffer(before.raw[:4] + struct.pack("I", os.SCHED_BATCH) + before.raw[8:], size)
    kernel.call("sched_setattr", world.pid, changed, 0)
    try:
        must(os.sched_getscheduler(world.pid) == os.SCHED_BATCH)
    finally:
        kernel.call("sched_setattr", world.pid, before, 0)


IOPRIO_PROCESS, IOPRIO_GROUP, IOPRIO_IDLE = 1, 2, 3 << 13


def must_change_io_priority(world, which):
    """Lets the victim read and write files only when nobody else does."""
    before = kernel.call("ioprio_get", IOPRIO_PROCESS, world.pid)
    kernel.call("ioprio_set", which, world.pid, IOPRIO_IDLE)
    try:
        must(kernel.call("ioprio_get", IOPRIO_PROCESS, world.pid) == IOPRIO_IDLE)
    finally:
        kernel.call("ioprio_set", which, world.pid, before)


@attack(TOPIC)
def io_priority_of_victim(world):
    must_change_io_priority(world, IOPRIO_PROCESS)


@attack(TOPIC)
def io_priority_of_group(world):
    must(os.getpgid(world.pid) == world.pid, "not-a-group-of-its-own")
    must_change_io_priority(world, IOPRIO_GROUP)


@attack(TOPIC)
def affinity_victim(world):
    before = os.sched_getaffinity(world.pid)
    os.sched_setaffinity(world.pid, {min(before)})
    try:
        must(os.sched_getaffinity(world.pid) == {min(before)})
    finally:
        os.sched_setaffinity(world.pid, before)


@attack(TOPIC)
def oom_score_of_victim(world):
    path = f"/proc/{world.pid}/oom_score_adj"
    before = int(read(path))
    with open(path, "w") as score:
        score.write(str(min(before + 1, 1000)))
    try:
        must(int(read(path)) == min(before + 1, 1000))
    finally:
        with open(path, "w") as score:
            score.write(str(before))


@attack(TOPIC)
def leave_cgroup(world):
    place = next((line for line in read("/proc/self/cgroup").decode().splitlines() if line.startswith("0::")), None)
    if place is None:
        raise Skip("no control groups of version 2")
    mounts = [line.split() for line in read("/proc/self/mountinfo").decode().splitlines()]
    roots = [words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"]
    if not roots:
        raise Skip("no control groups of version 2")
    theirs = read(f"/proc/{world.pid}/cgroup").decode().split("0::")[1].split("\n")[0]
    if place == f"0::{theirs}":
        raise Skip("the command has no control group of its own")
    with open(roots[0] + theirs + "/cgroup.procs", "w") as processes:
        processes.write(str(os.getpid()))
    must(f"0::{theirs}\n" in read("/proc/self/cgroup").decode())


@attack(TOPIC)
def tiocsti(world):
    text = token()
    fd = os.open(world.victim["tty"], os.O_RDWR | os.O_NOCTTY)
    for byte in text.encode():
        fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
    # The victim reads the bytes one by one.
    typed = lambda: "".join(line[6:-1] for line in world.received() if line.startswith("tty b'"))
    must_come(lambda: text in typed())


@attack(TOPIC)
def ioctl_on_device(world):
    fd = os.open(world.victim["tty"], os.O_RDWR | os.O_NOCTTY)
    before = fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
    wanted = struct.pack("4H", 7, 70, 0, 0)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, wanted)
    try:
        must(fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)) == wanted)
    finally:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, before)


@attack(TOPIC)
def raw_disk(_world):
    """Reads the begin of a disk of this machine, past all rights of its files. It writes nothing to it."""
    names = sorted(os.listdir("/sys/class/block"))
    numbers = [read(f"/sys/class/block/{name}/dev").decode() for name in names]
    must(numbers, "no-disk")
    problems = []
    for name, number in zip(names, numbers):
        try:
            disk = os.open(f"/dev/{name}", os.O_RDONLY)
        except OSError as problem:
            problems.append(problem)
            continue
        try:
            # Virtual disks that nothing stands behind have no byte.
            if os.read(disk, 512):
                must(os.fstat(disk).st_rdev == os.makedev(*map(int, number.split(":"))), "another-device")
                return
        finally:
            os.close(disk)
    must(problems, "empty-disks")
    raise problems[0]


@attack(TOPIC)
def keyring(world):
    name = world.victim.get("key")
    if name is None:
        raise Skip("the victim has no key: the machine refuses keyrings")
    search, read_key, user_keyring = 10, 11, -4
    as_text = lambda text: ctypes.c_char_p(text.encode())
    key = kernel.call("keyctl", search, user_keyring, as_text("user"), as_text(name), 0)
    said = ctypes.create_string_buffer(200)
    size = kernel.call("keyctl", read_key, key, said, len(said))
    must(said.raw[:size].decode() == world.victim["secrets"]["key"], "not-the-content")


@attack(TOPIC)
def sysv_shm(world):
    segment = world.victim.get("shm")
    if segment is None:
        raise Skip("the victim has no shared segment")
    kernel.LIBC.shmat.restype = ctypes.c_void_p
    read_only = 0o10000
    address = kernel.LIBC.shmat(ctypes.c_int(segment), None, read_only)
    if address == ctypes.c_void_p(-1).value:
        kernel.checked(-1)
    must(ctypes.string_at(address).decode() == world.victim["secrets"]["shm"], "not-the-content")


def queue_of(world, name):
    queue = world.victim.get(name)
    if queue is None:
        raise Skip("the victim has no message queue")
    return ctypes.c_char_p(queue.encode())


@attack(TOPIC)
def posix_queue(world):
    """Sends a message to a queue of the victim."""
    queue = kernel.call("mq_open", queue_of(world, "queue"), os.O_WRONLY, 0, None)
    text = token()
    kernel.call("mq_timedsend", queue, ctypes.c_char_p(text.encode()), len(text), 0, None)
    must_come(lambda: any(line.startswith("queue ") and text in line for line in world.received()))


@attack(TOPIC)
def posix_queue_unlinked(world):
    """Takes the name from a queue of the victim, so that nobody can open it any more."""
    name = queue_of(world, "spare_queue")
    kernel.call("mq_unlink", name)
    try:
        kernel.call("mq_open", name, os.O_WRONLY, 0, None)
    except FileNotFoundError:
        return
    raise Refused("still-there")


@attack(TOPIC)
def inherited_fds(world):
    """Looks for a descriptor beside input and outputs that the command got from its agent."""
    must(set(world.inherited) - {"0", "1", "2"}, "none")


@attack(TOPIC)
def inherited_bash_env(_world):
    """The test starts the team with BASH_ENV, which would run a file in each shell of the agents."""
    must("BASH_ENV" in os.environ, "absent")


@attack(TOPIC)
def inherited_preload(world):
    """The test starts the team with LD_PRELOAD, which would load a library into each program of the agents."""
    library = world.victim["preload"]
    must("LD_PRELOAD" in os.environ or library.encode() in read("/proc/self/maps"), "absent")


@attack(TOPIC)
def memfd_program(_world):
    source = read("/bin/echo")
    fd = os.memfd_create("attack")
    os.write(fd, source)
    ran = run([f"/proc/self/fd/{fd}", "ran"], pass_fds=[fd])
    must(ran.stdout == "ran\n")
