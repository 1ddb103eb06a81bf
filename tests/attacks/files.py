"""Attacks on the mail and the state of the team by paths: the annex's rows on `.team`."""

import contextlib
import ctypes
import json
import mmap
import os
import struct

import kernel
from base import (
    attack,
    must,
    must_come,
    must_lock,
    must_read,
    read,
    removed_later,
    restored,
    stopped,
    token,
    watcher,
)

TOPIC = "team_folder"


def forged(text):
    """Returns a line of mail that claims to come from the lead. It is too late a type to be acted on."""
    return json.dumps({"type": "x_attack", "from": "lead", "content": text}) + "\n"


def members(world):
    """Returns the processes of the team that are not above this one."""
    pids = []
    for name in ("lead", "alice", "bob"):
        with contextlib.suppress(OSError, ValueError):
            pids.append(json.loads(read(os.path.join(world.team, f"run/{name}.lock")))["pid"])
    return pids


def arrived(world, name, text):
    """Whether mail is where its owner gets it: in the inbox, in a claim, or in the transcript."""
    folder = os.path.join(world.team, "inbox/.claim")
    places = [world.member(name), world.member(name, "transcript")]
    with contextlib.suppress(OSError):
        places += [os.path.join(folder, claim) for claim in os.listdir(folder)]
    for place in places:
        with contextlib.suppress(OSError):
            if text.encode() in read(place):
                return True
    return False


def append(world, path, name="bob"):
    """Appends a forged line by this path, and waits until its victim has it."""
    text = token()
    with open(path, "a") as inbox:
        inbox.write(forged(text))
    must_come(lambda: arrived(world, name, text))


@attack(TOPIC)
def forge_mail_append(world):
    append(world, world.member("bob"))


@attack(TOPIC)
def forge_mail_new_inbox(world):
    path = world.member("zoe")
    with removed_later(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, forged("to nobody").encode())
        os.close(fd)
        must(b"to nobody" in read(path))


@attack(TOPIC)
def truncate_inbox(world):
    # The inbox of a name that has no process: a truncated one of a live member would be lost mail.
    path = world.member("user")
    with open(path, "a") as inbox:
        inbox.write(forged("lost"))
    os.truncate(path, 0)
    must(os.path.getsize(path) == 0)


@attack(TOPIC)
def delete_inbox_dir(world):
    folder, away = os.path.join(world.team, "inbox"), os.path.join(world.team, "run/.inbox-away")
    with stopped(members(world)):
        os.rename(folder, away)
        try:
            must(not os.path.exists(folder))
        finally:
            os.rename(away, folder)


@attack(TOPIC)
def change_roster(world):
    path = os.path.join(world.team, "config.json")
    with stopped(members(world)):
        # It is opened for writing first: a command that cannot read it tries to write all the same.
        fd = os.open(path, os.O_WRONLY)
        before = read(path)
        try:
            os.write(fd, before.replace(b'"worker"', b'"keyman"'))
            os.close(fd)
            must(b'"keyman"' in read(path))
        finally:
            with open(path, "r+b") as roster:
                roster.write(before)


@attack(TOPIC)
def replace_roster_by_rename(world):
    path, away = os.path.join(world.team, "config.json"), world.in_workspace("config.away")
    fresh = world.in_workspace("config.fresh")
    with stopped(members(world)), removed_later(fresh):
        # A command that cannot read the roster tries with one of its own.
        known = b'{"members":[{"name":"mallory","role":"keyman"}]}'
        with contextlib.suppress(OSError):
            known = read(path).replace(b'"worker"', b'"keyman"')
        with open(fresh, "wb") as file:
            file.write(known)
        os.rename(path, away)
        try:
            os.rename(fresh, path)
            must(b'"keyman"' in read(path))
        finally:
            os.rename(away, path)


@attack(TOPIC)
def move_team_folder(world):
    away = world.in_workspace("team.away")
    with stopped(members(world)):
        os.rename(world.team, away)
        try:
            must(os.path.exists(os.path.join(away, "config.json")) and not os.path.exists(world.team))
        finally:
            os.rename(away, world.team)


@attack(TOPIC)
def cover_team_by_new_one(world):
    away = world.in_workspace("team.away")
    with stopped(members(world)):
        os.rename(world.team, away)
        try:
            os.makedirs(os.path.join(world.team, "inbox"))
            with open(world.member("bob"), "w") as inbox:
                inbox.write(forged("of another team"))
            must(b"of another team" in read(world.member("bob")))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(world.member("bob"))
                os.rmdir(os.path.join(world.team, "inbox"))
                os.rmdir(world.team)
            os.rename(away, world.team)


@attack(TOPIC)
def read_transcript_of_bob(world):
    must(b"secret-of-bob" in read(world.member("bob", "transcript")), "not-the-content")


@attack(TOPIC)
def read_incarnations(world):
    roster = json.loads(read(os.path.join(world.team, "config.json")))
    must(all(member["incarnation"] for member in roster["members"]))


@attack(TOPIC)
def hardlink_inbox_into_ws(world):
    link = world.in_workspace("inbox.hard")
    with removed_later(link):
        os.link(world.member("user"), link)
        append(world, link, "user")


@attack(TOPIC)
def symlink_inbox_from_ws(world):
    link = world.in_workspace("inbox.soft")
    with removed_later(link):
        os.symlink(world.member("bob"), link)
        append(world, link)


@attack(TOPIC)
def proc_self_root_path(world):
    append(world, "/proc/self/root" + world.member("bob"))


@attack(TOPIC)
def proc_cwd_dotdot(world):
    sub = world.in_workspace("a-folder")
    with removed_later(sub):
        os.mkdir(sub)
        os.chdir(sub)
        way = os.path.relpath(world.team, sub)
        try:
            append(world, f"/proc/self/cwd/{way}/inbox/bob.jsonl")
        finally:
            os.chdir(world.workspace)


@attack(TOPIC)
def opath_reopened(world):
    fd = os.open(world.member("bob"), os.O_PATH)
    append(world, f"/proc/self/fd/{fd}")


@attack(TOPIC)
def symlinked_workspace(world):
    way = os.path.relpath(world.team, world.workspace)
    append(world, os.path.join(world.outside, "link", way, "inbox/bob.jsonl"))


@attack(TOPIC)
def case_folded_name(world):
    name = os.path.basename(world.team).upper()
    append(world, os.path.join(os.path.dirname(world.team), name, "inbox/bob.jsonl"))


@attack(TOPIC)
def other_team_folder(world):
    path = world.in_workspace("other-team/settings.toml")
    with restored(path):
        with open(path, "a") as settings:
            settings.write("# changed\n")
        must_read(path, "# changed")


@attack(TOPIC)
def chmod_team_away(world):
    path = os.path.join(world.team, "dead")
    mode = os.stat(path).st_mode & 0o7777
    with stopped(members(world)):
        os.chmod(path, 0)
        try:
            must(os.stat(path).st_mode & 0o7777 == 0)
        finally:
            os.chmod(path, mode)


@attack(TOPIC)
def utime_inbox(world):
    path = world.member("user")
    os.utime(path, (1, 1))
    must(os.stat(path).st_mtime == 1)


@attack(TOPIC)
def xattr_inbox(world):
    path = world.member("user")
    os.setxattr(path, "user.attack", b"1")
    try:
        must(os.getxattr(path, "user.attack") == b"1")
    finally:
        os.removexattr(path, "user.attack")


@attack(TOPIC)
def flock_side_lock(world):
    must_lock(os.path.join(world.team, "inbox/.lock/user"), "r")


@attack(TOPIC)
def flock_life_lock(world):
    path = os.path.join(world.team, "run/zoe.lock")
    with removed_later(path):
        must_lock(path, "w")


@attack(TOPIC)
def inotify_watch_inbox(world):
    watch = watcher()
    path = world.member("user")
    in_attrib = 4
    kernel.checked(kernel.LIBC.inotify_add_watch(watch, path.encode(), in_attrib))
    os.utime(path)
    must(len(os.read(watch, 4096)) > 0)


@attack(TOPIC)
def stat_inbox_size(world):
    must(os.stat(world.member("bob", "transcript")).st_size > 0)


@attack(TOPIC)
def list_team_folder(world):
    must("config.json" in os.listdir(world.team))


@attack(TOPIC)
def open_by_handle(world):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128), 136)
    mount_id, at = ctypes.c_int(), ctypes.c_char_p(world.member("bob", "transcript").encode())
    kernel.call("name_to_handle_at", -100, at, handle, ctypes.byref(mount_id), 0)
    place = os.open(world.workspace, os.O_RDONLY)
    fd = kernel.call("open_by_handle_at", place, handle, os.O_RDONLY)
    must(b"secret-of-bob" in os.read(fd, 1 << 20), "not-the-content")


class Ring:
    """An io_uring with one entry in each queue's use at a time."""

    ENTER_GETEVENTS, OP_OPENAT, OP_WRITE = 1, 18, 23

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = kernel.call("io_uring_setup", 4, params)
        sq_off = struct.unpack_from("8I", params, 40)
        cq_off = struct.unpack_from("8I", params, 80)
        entries = struct.unpack_from("2I", params, 0)
        shared = dict(flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.sq = mmap.mmap(self.fd, sq_off[6] + entries[0] * 4, offset=0, **shared)
        self.cq = mmap.mmap(self.fd, cq_off[5] + entries[1] * 16, offset=0x8000000, **shared)
        self.sqes = mmap.mmap(self.fd, entries[0] * 64, offset=0x10000000, **shared)
        self.sq_tail, self.sq_array = sq_off[1], sq_off[6]
        self.cq_head, self.cq_cqes = cq_off[0], cq_off[5]
        self.cq_mask = struct.unpack_from("I", self.cq, cq_off[2])[0]

    def submit(self, op, fd, address, length, flags, offset=0):
        """Submits one operation, waits for it, and returns its result."""
        struct.pack_into("BBHiQQII", self.sqes, 0, op, 0, 0, fd, offset, address, length, flags)
        tail = struct.unpack_from("I", self.sq, self.sq_tail)[0]
        struct.pack_into("I", self.sq, self.sq_array + (tail & 3) * 4, 0)
        struct.pack_into("I", self.sq, self.sq_tail, tail + 1)
        kernel.call("io_uring_enter", self.fd, 1, 1, self.ENTER_GETEVENTS, None, 0)
        head = struct.unpack_from("I", self.cq, self.cq_head)[0]
        at = self.cq_cqes + (head & self.cq_mask) * 16
        result = struct.unpack_from("i", self.cq, at + 8)[0]
        struct.pack_into("I", self.cq, self.cq_head, head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result


@attack(TOPIC)
def io_uring_write(world):
    text = token()
    line = ctypes.create_string_buffer(forged(text).encode())
    path = ctypes.create_string_buffer(world.member("bob").encode())
    ring = Ring()
    flags = os.O_WRONLY | os.O_APPEND
    fd = ring.submit(Ring.OP_OPENAT, -100, ctypes.addressof(path), 0, flags)
    ring.submit(Ring.OP_WRITE, fd, ctypes.addressof(line), len(line) - 1, 0)
    must_come(lambda: arrived(world, "bob", text))
