#!/usr/bin/env python3
"""A second implementation of docs/format.md, written from that page alone.

It shares no code with the program, relies on that page only, and needs only the standard library. The tests in
tests/it/mail/second_implementation.rs let it exchange mail with the program, kill it, and let either take over from
the other. A behaviour that the page does not define is a defect of the page.

    team_format.py TEAM send TO FROM          sends each line of stdin as a message; prints each durable message's id
    team_format.py TEAM member NAME [POINT]   runs as that member until it is asked to stop; SIGKILLs itself at POINT
    team_format.py TEAM drain NAME [POINT]    drains the member's inbox once; SIGKILLs itself at POINT
    team_format.py TEAM unread NAME           prints the ids of the unread mail
    team_format.py TEAM alive NAME            prints `alive` or `free`
    team_format.py TEAM count NAME TIMES      adds 1 to the member's field `x_count`, this many times
    team_format.py TEAM claim OWNER           claims all claimable tasks, one after the other; prints their ids
    team_format.py TEAM remind OWNER IN TEXT  sets a timer that is due in IN seconds; prints its id
"""

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
import stat
import sys
import time

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
CLAIM = re.compile(r"(?P<name>.+)\.(?P<gen>[0-9]{12}-[0-9a-f]{8})(?P<taken>\.taken)?")
LINE_LIMIT = 2 * 1024 * 1024
LOCK_LIMIT = 20.0
INBOX_LOCK_LIMIT = 2.0
PROBE_LIMIT = 1.0
NEEDS_CONTENT = ("message", "broadcast")


class Failure(Exception):
    """An error that is reported to the user without a traceback."""


def kill_self_at(point, wanted):
    """Kills this process if this is the wanted failpoint."""
    if point == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def flock(fd, limit):
    """Waits at most `limit` seconds for an exclusive lock. Returns whether the lock was acquired."""
    end = time.monotonic() + limit
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)


@contextlib.contextmanager
def locked(path):
    """Holds a side lock. A missing file is created; it is never removed, renamed or written to."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not flock(fd, LOCK_LIMIT):
            raise Failure(f"{path}: another process has held the lock for {LOCK_LIMIT} seconds")
        yield fd
    finally:
        os.close(fd)


def replace(path, text):
    """Replaces a file durably: writes a temporary file, syncs it, and renames it."""
    temporary = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def sync_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def append(path, lines, torn=None):
    """Appends records to a file that only this process writes, and syncs it. Seals a torn last line first.

    `torn` is called after a part of the text was written.
    """
    if not lines:
        return
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not ends_with_newline(fd):
        text = b"\n" + text
    if torn:
        os.write(fd, text[:-20])
        torn()
    os.write(fd, text)
    os.fsync(fd)
    os.close(fd)


def ends_with_newline(fd):
    size = os.fstat(fd).st_size
    return size == 0 or os.pread(fd, 1, size - 1) == b"\n"


def records(path):
    """Yields the JSON objects of a file of lines. Skips lines that are not JSON objects."""
    try:
        with open(path, "rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if isinstance(record, dict):
                        yield record
    except FileNotFoundError:
        return


class Team:
    def __init__(self, root):
        self.root = root

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def checked(self, name):
        if not NAME.fullmatch(name):
            raise Failure(f"{name!r} is not a valid name")
        return name

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, to, message):
        """Appends one message durably, as the section `Sending` specifies."""
        self.checked(to)
        line = json.dumps(message, ensure_ascii=False).encode()
        if key := self.mailbox_key(to):
            line = sealed(line, key)
        line += b"\n"
        if len(line) > LINE_LIMIT:
            raise Failure("the line is too long")
        with locked(self.path("inbox", ".lock", to)):
            if why := self.refusal(to):
                raise Failure(f"{to} {why}")
            inbox = os.open(self.path("inbox", f"{to}.jsonl"),
                            os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            info = os.fstat(inbox)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                raise Failure(f"the inbox of {to} is not a regular file of this user")
            if info.st_nlink == 2:
                self.drop_half_claim(info)
            flock(inbox, INBOX_LOCK_LIMIT)
            before = os.fstat(inbox).st_size
            seal = b"" if ends_with_newline(inbox) else b"\n"
            os.write(inbox, seal + line)
            after = os.fstat(inbox).st_size
            start = after - len(line)
            if start > before and os.pread(inbox, 1, start - 1) != b"\n":
                os.write(inbox, b"\n" + line)
            fcntl.flock(inbox, fcntl.LOCK_UN)
        os.fsync(inbox)
        os.close(inbox)
        sync_folder(self.path("inbox"))

    def mailbox_key(self, name):
        """Returns the key that seals mail to this name; None if it has none."""
        try:
            with open(self.path("run", ".state", f"{name}.key"), encoding="utf-8") as file:
                return bytes.fromhex(json.loads(file.readline())["key"])
        except FileNotFoundError:
            return None

    def refusal(self, to):
        """Returns the reason why `to` accepts no mail, or None. The caller holds the side lock."""
        if to in ("lead", "user"):
            return None
        status = next((one["status"] for one in self.roster()["members"] if one["name"] == to), None)
        if status is None:
            return "is not on the roster"
        if status in ("stopping", "shutdown", "failed"):
            return f"is {status}"
        if self.alive(to) or (status == "starting" and self.alive("lead")):
            return None
        return "is dead"

    def drop_half_claim(self, inbox):
        """Removes the second name of the inbox, left by an owner that was killed between link and rename."""
        for entry in os.scandir(self.path("inbox", ".claim")):
            if entry.inode() == inbox.st_ino:
                os.unlink(entry.path)

    # -- life locks ------------------------------------------------------------------------------------------------

    def alive(self, name):
        """Returns whether a process holds the life lock of this name."""
        try:
            fd = os.open(self.path("run", f"{name}.lock"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    # -- the roster ------------------------------------------------------------------------------------------------

    def roster(self):
        try:
            with open(self.path("config.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {"version": 1, "team_name": "default", "created_at": time.time(), "lead": None, "members": []}

    def change_roster(self, change):
        with locked(self.path("run", ".state", "config.lock")):
            path, roster = self.path("config.json"), self.roster()
            if roster["version"] > 1:
                raise Failure("the roster has a newer version")
            change(roster)
            replace(path, json.dumps(roster, ensure_ascii=False, indent=2) + "\n")

    def count(self, name, times):
        def add_one(roster):
            for member in roster["members"]:
                if member["name"] == name:
                    member["x_count"] = member.get("x_count", 0) + 1
        for _ in range(times):
            self.change_roster(add_one)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def claim_task(self, owner):
        """Claims one task that is pending, has no owner, and is not blocked. Returns its id, or None."""
        with locked(self.path("tasks", ".lock", "list")) as lock:
            tasks = {}
            for entry in os.scandir(self.path("tasks")):
                if re.fullmatch(r"[1-9][0-9]*\.json", entry.name):
                    with open(entry.path, encoding="utf-8") as file:
                        tasks[entry.name[:-5]] = json.load(file)
            for number, task in sorted(tasks.items(), key=lambda one: int(one[0])):
                blockers = [tasks[str(other)] for other in task.get("blocked_by", [])]
                is_blocked = any(blocker.get("status") != "completed" for blocker in blockers)
                if task.get("status", "pending") != "pending" or task.get("owner") or is_blocked:
                    continue
                now = time.time()
                task.update(status="in_progress", owner=owner, updated_at=now)
                task.setdefault("history", []).append(
                    {"at": now, "by": owner, "what": "claimed", "owner": owner, "note": None})
                replace(self.path("tasks", f"{number}.json"), json.dumps(task, ensure_ascii=False) + "\n")
                os.fchmod(lock, 0o600)
                return number
        return None


    # -- timers ----------------------------------------------------------------------------------------------------

    def remind(self, owner, seconds, text):
        """Sets a timer of a member. Returns its id."""
        path = self.path("timers", f"{self.checked(owner)}.json")
        with locked(self.path("timers", ".lock", owner)) as lock:
            timers = {"version": 1, "timers": []}
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                timers = json.load(file)
            if timers.get("version", 1) > 1:
                raise Failure(f"{path}: a newer version has written it")
            timers["last"] = timers.get("last", 0) + 1
            identity, now = f"{owner}-{timers['last']}", time.time()
            timers["timers"].append({"id": identity, "text": text, "by": "user", "due": now + seconds,
                                     "created_at": now})
            replace(path, json.dumps(timers, ensure_ascii=False) + "\n")
            os.fchmod(lock, 0o600)
            return identity


class Owner:
    """The owner of a name: holds its life lock and drains its mail."""

    def __init__(self, team, name, point=None):
        self.team, self.name, self.point = team, team.checked(name), point
        self.incarnation = secrets.token_hex(4)
        self.life_lock = self.take_life_lock()
        self.keys = self.renew_key()
        self.transcript = team.path("transcript", f"{name}.jsonl")
        self.seen, self.recorded, self.counter = {}, {}, 0
        for record in records(self.transcript):
            if record.get("kind") == "mail":
                gen, message = record["gen"], record["message"]
                self.recorded[gen] = max(self.recorded.get(gen, -1), record["offset"])
                self.counter = max(self.counter, int(gen[:12]))
                self.seen[message["id"]] = message
        self.dead = {(line["gen"], line["offset"]) for line in records(self.dead_letters())}
        for entry in self.claims():
            self.counter = max(self.counter, int(entry["gen"][:12]))

    def dead_letters(self):
        return self.team.path("dead", f"{self.name}.jsonl")

    # -- membership ------------------------------------------------------------------------------------------------

    def take_life_lock(self):
        path = self.team.path("run", f"{self.name}.lock")
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if not flock(fd, PROBE_LIMIT):
                raise Failure(f"{self.name} is alive")
            if os.fstat(fd).st_nlink > 0:
                break
            os.close(fd)
        with open("/proc/self/stat", encoding="utf-8") as file:
            start_time = int(file.read().rsplit(")", 1)[1].split()[19])
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot_id = file.read().strip()
        record = {"pid": os.getpid(), "start_time": start_time, "boot_id": boot_id, "incarnation": self.incarnation,
                 "protocol": 1, "marker": f"conformance-{self.incarnation}", "started_at": time.time(),
                 "started_by": "hand"}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(record).encode() + b"\n", 0)
        return fd

    def renew_key(self):
        """Replaces the mailbox key. Returns the new one, and the one before, which has sealed mail that waits."""
        before, new = self.team.mailbox_key(self.name), secrets.token_bytes(32)
        replace(self.team.path("run", ".state", f"{self.name}.key"), json.dumps({"key": new.hex()}) + "\n")
        return [new, before] if before else [new]

    def verified(self, line, message):
        """Returns whether the line is for this member and sealed with its key."""
        return message.get("to") == self.name and any(is_sealed(line, key) for key in self.keys)

    def join(self):
        """Adds this member to the roster, as one started manually. Keeps the fields of an earlier incarnation."""
        now = time.time()

        def entry(roster):
            mine = next((one for one in roster["members"] if one["name"] == self.name), None)
            if mine is None:
                mine = {"name": self.name, "joined_at": now, "restarts": 0, "color": "blue",
                        "usage": {"turns": 0, "input_tokens": 0, "output_tokens": 0}}
                roster["members"].append(mine)
            mine.update(role="a second implementation", status="idle", activity=None, since=now, pid=os.getpid(),
                        incarnation=self.incarnation, model="none", mode="default", cwd=os.getcwd(),
                        last_exit=None, started_by="hand")
        self.team.change_roster(entry)
        self.ensure_inbox()

    def ensure_inbox(self):
        path = self.team.path("inbox", f"{self.name}.jsonl")
        with locked(self.team.path("inbox", ".lock", self.name)):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def leave(self):
        def mark_stopped(roster):
            for member in roster["members"]:
                if member["name"] == self.name and member["incarnation"] == self.incarnation:
                    member.update(status="shutdown", activity=None, since=time.time(), pid=None,
                                  last_exit={"code": 0, "signal": None, "cause": "stopped", "at": time.time()})
        self.team.change_roster(mark_stopped)

    # -- receiving -------------------------------------------------------------------------------------------------

    def claims(self):
        found = []
        for entry in os.scandir(self.team.path("inbox", ".claim")):
            match = CLAIM.fullmatch(entry.name)
            if match and match["name"] == self.name:
                found.append({"path": entry.path, "gen": match["gen"], "taken": bool(match["taken"])})
        return sorted(found, key=lambda claim: claim["gen"])

    def drain(self):
        """Reads the claims of earlier incarnations, then the inbox. Returns the messages, oldest first."""
        mail = []
        self.claim_inbox()
        for claim in self.claims():
            mail += self.ingest(claim, final=False)
        return mail

    def settle(self):
        """Marks the claims after their mail was handled. Removes the marked claims that have no writer."""
        mail = []
        for claim in self.claims():
            if not claim["taken"]:
                os.rename(claim["path"], claim["path"] + ".taken")
                kill_self_at(self.point, "marked")
                continue
            if time.time() - os.stat(claim["path"]).st_ctime > 1.0 and not open_for_writing(claim["path"]):
                mail += self.ingest(claim, final=True)
                os.unlink(claim["path"])
        return mail

    def claim_inbox(self):
        inbox = self.team.path("inbox", f"{self.name}.jsonl")
        folder = self.team.path("inbox", ".claim")
        with locked(self.team.path("inbox", ".lock", self.name)):
            info = os.lstat(inbox)
            if info.st_nlink == 2:
                self.team.drop_half_claim(info)
            if info.st_size == 0:
                return
            fresh = os.path.join(folder, f"{self.name}.new")
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self.counter += 1
            gen = f"{self.counter:012}-{secrets.token_hex(4)}"
            os.link(inbox, os.path.join(folder, f"{self.name}.{gen}"))
            kill_self_at(self.point, "linked")
            os.rename(fresh, inbox)
            kill_self_at(self.point, "renamed")
            sync_folder(folder)
            sync_folder(os.path.dirname(inbox))

    def ingest(self, claim, final):
        """Reads the lines of a claim after the recorded offset. `final`: the claim has no writer any more."""
        with open(claim["path"], "rb") as file:
            data = file.read()
        gen, mail, dead, end = claim["gen"], [], [], 0
        recorded = self.recorded.get(gen, -1)
        for line in data.split(b"\n"):
            start, end = end, end + len(line) + 1
            line = line.removeprefix(b"\xef\xbb\xbf").strip()
            if start <= recorded or (gen, start) in self.dead or not line:
                continue
            is_whole = end <= len(data)
            try:
                message = self.parse_line(line, f"raw-{gen}-{start}")
                known = self.seen.get(message["id"])
                if known is not None and (known.get("from"), known.get("content")) != (
                        message.get("from"), message.get("content")):
                    raise ValueError("its id is the id of another message")
            except (ValueError, RecursionError) as reason:
                if is_whole or final:
                    dead.append({"gen": gen, "offset": start, "reason": str(reason), "at": time.time(), **raw(line)})
                    self.dead.add((gen, start))
                continue
            if known is None:
                self.seen[message["id"]] = message
                self.recorded[gen] = start
                entry = {"kind": "mail", "at": time.time(), "gen": gen, "offset": start, "message": message}
                if not self.verified(line, message):
                    entry["verified"] = False
                mail.append(entry)
        self.record(mail, dead)
        return [{"verified": True, **line} for line in mail]

    def record(self, mail, dead):
        """Records dead letters, then the transcript. The mail counts as received only after both are durable."""
        append(self.dead_letters(), dead)
        if dead:
            kill_self_at(self.point, "dead_recorded")
        if mail and self.point == "torn":
            append(self.transcript, mail, torn=lambda: kill_self_at(self.point, "torn"))
        append(self.transcript, mail)
        if mail:
            kill_self_at(self.point, "recorded")

    def parse_line(self, line, raw_id):
        if len(line) >= LINE_LIMIT:
            raise ValueError("the line is too long")
        message = json.loads(line.decode())
        if not isinstance(message, dict):
            raise ValueError("not a JSON object")
        kind = message.get("type", "message")
        if kind in NEEDS_CONTENT and message.get("content", message.get("text")) is None:
            raise ValueError("it has no content")
        message["id"] = str(message.get("id", raw_id))
        return message


def sealed(line, key):
    """Returns the line with its seal as the last field."""
    seal = hmac.new(key, line, hashlib.sha256).hexdigest()
    return line[:-1] + b',"seal":"' + seal.encode() + b'"}'


def is_sealed(line, key):
    unsealed = re.sub(rb',"seal":"[0-9a-f]{64}"}$', b"}", line)
    return unsealed != line and hmac.compare_digest(sealed(unsealed, key), line)


def raw(line):
    try:
        return {"raw": line.decode()}
    except UnicodeDecodeError:
        return {"raw_hex": line.hex()}


def open_for_writing(path):
    """Returns whether a process has the file open for writing. The kernel refuses a read lease in that case."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return False
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return True
    finally:
        os.close(fd)


def run_member(team, name, point):
    me = Owner(team, name, point)
    me.join()
    append(me.transcript, [{"kind": "session", "at": time.time(), "incarnation": me.incarnation, "pid": os.getpid(),
                            "model": "none"}])
    print("ready", flush=True)
    late = []
    while True:
        for entry in me.drain() + late:
            message = entry["message"]
            if entry["verified"] and is_shutdown_request(me, message):
                answer = {"type": "shutdown_response", "from": name, "to": message["from"], "content": "",
                          "timestamp": time.time(), "id": f"{name}:{secrets.token_hex(8)}",
                          "request_id": message["request_id"], "incarnation": me.incarnation, "approve": True}
                team.send(message["from"], answer)
                me.drain()
                me.leave()
                me.settle()
                return
        late = me.settle()
        time.sleep(0.01)


def is_shutdown_request(me, message):
    return (message.get("type") == "shutdown_request" and message.get("from") in ("lead", "user")
            and message.get("incarnation") == me.incarnation and "request_id" in message)


def main(arguments):
    team, verb, rest = Team(arguments[0]), arguments[1], arguments[2:]
    if verb == "send":
        to, sender = rest
        for line in sys.stdin:
            identity = f"{sender}:{secrets.token_hex(8)}"
            team.send(to, {"type": "message", "from": sender, "to": to, "content": line.rstrip("\n"),
                           "timestamp": time.time(), "id": identity})
            print(identity, flush=True)
    elif verb == "member":
        run_member(team, rest[0], rest[1] if len(rest) > 1 else None)
    elif verb == "drain":
        me = Owner(team, rest[0], rest[1] if len(rest) > 1 else None)
        for entry in me.drain() + me.settle():
            print(entry["message"]["id"], flush=True)
    elif verb == "unread":
        for identity in unread(team, rest[0]):
            print(identity)
    elif verb == "alive":
        print("alive" if team.alive(rest[0]) else "free")
    elif verb == "count":
        team.count(rest[0], int(rest[1]))
    elif verb == "claim":
        while (number := team.claim_task(rest[0])) is not None:
            print(number, flush=True)
    elif verb == "remind":
        print(team.remind(rest[0], float(rest[1]), rest[2]))
    else:
        raise Failure(f"{verb}: no such command")


def unread(team, name):
    """Returns the ids of the unread mail: in the inbox, and in claims after the recorded offset."""
    recorded, seen = {}, set()
    for record in records(team.path("transcript", f"{name}.jsonl")):
        if record.get("kind") == "mail":
            recorded[record["gen"]] = max(recorded.get(record["gen"], -1), record["offset"])
            seen.add(record["message"]["id"])
    claims = []
    for entry in os.scandir(team.path("inbox", ".claim")):
        match = CLAIM.fullmatch(entry.name)
        if match and match["name"] == name and not match["taken"]:
            claims.append((match["gen"], entry.path))
    ids = []
    for gen, path in sorted(claims) + [("inbox", team.path("inbox", f"{name}.jsonl"))]:
        offset = 0
        # The owner may have marked the claim meanwhile: it then has another name.
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            for line in file:
                start, offset = offset, offset + len(line)
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    if isinstance(message, dict) and start > recorded.get(gen, -1):
                        identity = str(message.get("id", f"raw-{gen}-{start}"))
                        if identity not in seen:
                            seen.add(identity)
                            ids.append(identity)
    return ids


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        print(f"team_format.py: {failure}", file=sys.stderr)
        sys.exit(1)
