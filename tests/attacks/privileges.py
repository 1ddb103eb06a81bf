"""Attacks on the kernel and its settings: more rights, other namespaces, mounts, devices."""

import ctypes
import fcntl
import os
import signal
import stat
import struct
import subprocess

import kernel
from base import Skip, attack, eventually, must, must_come, program, read, removed_later, state_of
from files import append

TOPIC = "privileges"

SETUID_PROGRAMS = ["su", "mount", "umount", "passwd", "chsh", "chfn", "newgrp", "gpasswd", "sudo"]


def effective_user(pid):
    try:
        status = read(f"/proc/{pid}/status").decode()
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("Uid:")), None)
    return int(line.split()[2]) if line else None


@attack(TOPIC)
def setuid_program(_world):
    """Starts a program of root, which runs as root until it has printed its help: into a pipe that is full."""
    if os.geteuid() == 0:
        raise Skip("this user is root")
    found = (path for name in SETUID_PROGRAMS if (path := which(name)) and is_setuid(path))
    path = next(found, None)
    if path is None:
        raise Skip("no setuid program")
    ours, theirs = os.pipe()
    fill(theirs)
    child = subprocess.Popen([path, "--help"], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    try:
        is_over = lambda: child.poll() is not None
        eventually(lambda: effective_user(child.pid) == 0 or is_over() or state_of(child.pid) == "S")
        must(effective_user(child.pid) == 0, "not-root")
    finally:
        os.close(ours)
        os.close(theirs)
        child.wait()


def which(name):
    try:
        return program(name)
    except Skip:
        return None


def is_setuid(path):
    found = os.stat(path)
    return found.st_uid == 0 and found.st_mode & stat.S_ISUID and os.access(path, os.X_OK)


def fill(pipe):
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(pipe, b"x" * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(pipe, fcntl.F_SETFL, 0)


@attack(TOPIC)
def userns_nested(_world):
    kernel.call("unshare", kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    # Where a profile refuses the rights in it, this fails.
    kernel.mount("none", "/", None, 0x44000)
    kernel.mount("attack", "/tmp", "tmpfs", 0)
    must(os.listdir("/tmp") == [])


@attack(TOPIC)
def userns_clone3(_world):
    size, flags = 88, kernel.CLONE_NEWUSER
    args = ctypes.create_string_buffer(struct.pack("11Q", flags, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0, 0, 0, 0), size)
    before = os.readlink("/proc/self/ns/user")
    child = kernel.call("clone3", args, size)
    if child == 0:
        os._exit(0 if os.readlink("/proc/self/ns/user") != before else 1)
    must(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)


@attack(TOPIC)
def umount_team(world):
    kernel.umount(world.team)


def flags_of_root():
    """Returns the flags of the mount of `/` but for the one that makes it read-only."""
    known = os.statvfs("/").f_flag
    return known & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


@attack(TOPIC)
def remount_rw(_world):
    """Makes `/` writable, with the flags that it has: where it is writable, nothing changes."""
    kernel.mount(None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | flags_of_root())
    must(not os.statvfs("/").f_flag & os.ST_RDONLY)


@attack(TOPIC)
def bind_mount_over(world):
    above, below = world.in_workspace("above"), world.in_workspace("below")
    with removed_later(above), removed_later(below):
        os.mkdir(above)
        os.mkdir(below)
        with open(os.path.join(above, "seen"), "w"):
            pass
        kernel.mount(above, below, None, kernel.MS_BIND)
        try:
            must(os.listdir(below) == ["seen"])
        finally:
            kernel.umount(below, 2)


@attack(TOPIC)
def new_mount_api(world):
    above, below = world.in_workspace("above"), world.in_workspace("below")
    empty_path, clone = 4, 1
    with removed_later(above), removed_later(below):
        os.mkdir(above)
        os.mkdir(below)
        with open(os.path.join(above, "seen"), "w"):
            pass
        tree = kernel.call("open_tree", -100, ctypes.c_char_p(above.encode()), clone)
        nothing = ctypes.c_char_p(b"")
        kernel.call("move_mount", tree, nothing, -100, ctypes.c_char_p(below.encode()), empty_path)
        try:
            must(os.listdir(below) == ["seen"])
        finally:
            kernel.umount(below, 2)


@attack(TOPIC)
def chroot_out(world):
    os.chroot(world.workspace)
    must(os.path.exists("/world.json"))


@attack(TOPIC)
def mknod_device(world):
    path = world.in_workspace("null")
    with removed_later(path):
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        must(read(path) == b"")


@attack(TOPIC)
def core_pattern(_world):
    """Writes the setting anew, with what is in it, since it is the machine's. With another program in it, the next crash
    would run that program as root."""
    path = "/proc/sys/kernel/core_pattern"
    before = read(path)
    fd = os.open(path, os.O_WRONLY)
    try:
        must(os.write(fd, before) == len(before))
    finally:
        os.close(fd)
    must(read(path) == before)


@attack(TOPIC)
def bpf_prog(_world):
    # r0 = 0; exit
    code = ctypes.create_string_buffer(bytes.fromhex("b700000000000000" "9500000000000000"))
    licence = ctypes.create_string_buffer(b"GPL")
    socket_filter, load = 1, 5
    given = struct.pack("IIQQ", socket_filter, 2, ctypes.addressof(code), ctypes.addressof(licence))
    attributes = ctypes.create_string_buffer(given, 128)
    fd = kernel.call("bpf", load, attributes, 48)
    must("bpf-prog" in os.readlink(f"/proc/self/fd/{fd}"))


@attack(TOPIC)
def perf_event(world):
    software, cpu_clock, size = 1, 0, 112
    exclude_kernel = 1 << 5
    head = struct.pack("IIQQQQQ", software, size, cpu_clock, 0, 0, 0, exclude_kernel)
    attributes = ctypes.create_string_buffer(head, size)
    fd = kernel.call("perf_event_open", attributes, world.pid, -1, -1, 0)
    must(len(os.read(fd, 8)) == 8)


@attack(TOPIC)
def userfaultfd(_world):
    fd = kernel.call("userfaultfd", os.O_CLOEXEC)
    must("userfaultfd" in os.readlink(f"/proc/self/fd/{fd}"))


@attack(TOPIC)
def exhaust_landlock_layers(world):
    """Restricts itself until the kernel allows no further restriction, then forges mail."""
    set_no_new_privs, limit = 38, 64
    kernel.checked(kernel.LIBC.prctl(set_no_new_privs, 1, 0, 0, 0))
    # It restricts making block devices, which no attack needs.
    rules = ctypes.create_string_buffer(struct.pack("Q", 1 << 11))
    for layer in range(limit):
        try:
            fd = kernel.call("landlock_create_ruleset", rules, 8, 0)
        except OSError as why:
            raise Skip("no Landlock") from why
        try:
            kernel.call("landlock_restrict_self", fd, 0)
        except OSError:
            must(layer > 0, "not-one-layer")
            break
        finally:
            os.close(fd)
    append(world, world.member("bob"))


# The names in the workspace that are swapped: a folder of `sandbox.write`, a protected one, and one of git.
SWAPPED = ["swapped", ".vscode", "folder/inner"]


@attack(TOPIC)
def swap_folder_while_walls_are_built(world):
    """Bob runs commands all the time, and so has walls built. Meanwhile this swaps folders of the workspace for links to
    the user's home. Each command of bob tries to read and to write through them: see swap_probe.sh."""
    over, home = world.in_workspace("probes-over"), world.home
    places = [world.in_workspace(name) for name in SWAPPED]
    for place in places:
        os.makedirs(place, exist_ok=True)
        os.symlink(home, place + ".link")
    with open(world.in_workspace("swap-begins"), "w"):
        pass
    must_come(lambda: swap_all(places) or os.path.exists(over), "no-probes", 100)
    must(b"swapped-in" in read(world.in_home("notes.txt")) or os.path.exists(world.in_workspace("taken-key")))


def swap_all(places):
    """Puts the link in the place of each folder, or the folder in that of the link, in one step."""
    exchange, here, rounds = 2, -100, 20
    for place in places * rounds:
        names = [ctypes.c_char_p(name.encode()) for name in (place, place + ".link")]
        kernel.checked(kernel.LIBC.renameat2(here, names[0], here, names[1], exchange))


@attack(TOPIC)
def x32_socket(_world):
    if kernel.MACHINE != "x86_64":
        raise Skip("only x86_64 has x32")
    fd = kernel.call(0x40000000 | 41, 1, 1, 0)
    must(stat.S_ISSOCK(os.fstat(fd).st_mode))
