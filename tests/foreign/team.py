"""A team in a folder of its own, with agents of other vendors as members, seen from outside."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import agents

ROOT = Path(__file__).resolve().parents[2]
TEAM = ROOT / "target/debug/team"


class Failed(Exception):
    """A check has failed, for this reason."""


def expect(fine, why):
    if not fine:
        raise Failed(why)


def program(pid):
    """Returns the path of the program of a process; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


class Fakes:
    """The fakes of the model endpoints."""

    def __init__(self, log):
        self.log = log
        log.unlink(missing_ok=True)
        program = ["python3", str(Path(__file__).with_name("fake_models.py")), str(log)]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def requests(self, agent):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in map(json.loads, lines) if line["agent"] == agent]

    def end(self):
        self.process.kill()
        self.process.wait()


class Team:
    def __init__(self, base, install, fakes, names, more="", recorder=None):
        shutil.rmtree(base, ignore_errors=True)
        self.home, self.work = base, base / "work"
        self.work.mkdir(parents=True)
        self.fakes, self.folder = fakes, self.work / ".team"
        agents.write_settings(self.home, names, fakes.url, more, recorder)
        bins = [install / "node_modules/.bin", TEAM.parent, "/usr/local/bin", "/usr/bin", "/bin"]
        self.env = {"PATH": ":".join(map(str, bins)), "HOME": str(self.home), "LANG": "C.UTF-8",
                    "TERM": "xterm-256color", "TEAM_MODE": "default", "TEAM_LOCAL_PORTS": "none"}
        self.leads = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, terminal in self.leads:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(terminal)
        self.kill_all()

    def command(self, *words, code=0):
        done = subprocess.run([TEAM, *words], cwd=self.work, env=self.env, capture_output=True, text=True, timeout=120,
                              check=False)
        if code is not None and done.returncode != code:
            raise Failed(f"team {words[0]}: {(done.stderr or done.stdout).strip()[:300]}")
        return done.stdout

    def lead(self, *words, spawns=(), model=None):
        """Starts a lead in a terminal. Without a model its first turn spawns these: (name, agent, first order)."""
        calls = [{"name": "spawn_teammate",
                  "input": {"name": name, "role": "worker", "prompt": prompt, "model": f"acp/{agent}"}}
                 for name, agent, prompt in spawns]
        lines = ([{"tools": calls}] if calls else []) + [{"text": "noted"}] * 40
        script = self.home / "script.jsonl"
        if not script.exists():
            script.write_text("\n".join(map(json.dumps, lines)))
        ours, theirs = pty.openpty()
        words = [*words] or ["--new", "begin"]
        process = subprocess.Popen([TEAM, "lead", "--model", model or f"script:{script}", *words], cwd=self.work, env=self.env,
                                   stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        screen = self.screen = []

        def drain():
            try:
                while data := os.read(ours, 65536):
                    screen.append(data)
            except OSError:
                pass

        threading.Thread(target=drain, daemon=True).start()
        self.leads.append((process, ours))
        return process

    def type(self, text):
        """Types at the terminal of the newest lead, with Enter."""
        os.write(self.leads[-1][1], text.encode() + b"\r")

    def shown(self):
        """Returns what the newest lead has written to its terminal, as plain text."""
        text = b"".join(self.screen).decode(errors="replace")
        return re.sub(r"\x1b(\[[0-9;?>=]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text)

    def spawn(self, agent, prompt, name="alice"):
        return self.lead(spawns=[(name, agent, prompt)])

    def lines(self, inside):
        """Returns the lines of a file of the team."""
        try:
            text = (self.folder / inside).read_text()
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
        return found

    def transcript(self, name="alice"):
        return self.lines(f"transcript/{name}.jsonl")

    def turns(self, name="alice"):
        return [line for line in self.transcript(name) if line["kind"] == "turn_end"]

    def mail(self, to="lead", sender="alice"):
        """Returns the texts that a member was sent."""
        messages = [line["message"] for line in self.transcript(to) if line["kind"] == "mail"]
        messages += self.lines(f"inbox/{to}.jsonl")
        return [it for it in messages if it.get("from") == sender]

    def results(self, name="alice"):
        return [it.get("content", "") for it in self.mail("lead", name) if it.get("type") == "result"]

    def member(self, name="alice"):
        try:
            roster = json.loads((self.folder / "config.json").read_text())
        except (OSError, ValueError):
            return {}
        return next((it for it in roster["members"] if it["name"] == name), {})

    def questions(self):
        told = self.command("requests", "--json", code=None)
        return json.loads(told)["requests"] if told else []

    def wait(self, what, condition, within=60, approve=None, may_fail=False):
        """Waits for a condition; answers the questions of members meanwhile by `team approve`."""
        end = time.monotonic() + within
        while True:
            if found := condition():
                return found
            if approve is not None:
                self.approve(approve)
            member = self.member()
            if member.get("status") == "failed" and not may_fail:
                raise Failed(f"{what}: alice has failed: {self.why()}")
            if time.monotonic() > end:
                raise Failed(f"not in {within} s: {what} ({self.why()})")
            time.sleep(0.1)

    def why(self):
        member = self.member()
        last = [line for line in self.transcript() if line["kind"] in ("turn_end", "tool_result", "request")][-1:]
        told = self.results()[-1:] or [it.get("content", "") for it in self.mail()][-1:]
        return f"status {member.get('status')}, last {json.dumps(last)[:200]}, told {json.dumps(told)[:300]}"

    def approve(self, answered, *more):
        for it in self.questions():
            if it.get("waiting") and it["request_id"] not in answered:
                answered[it["request_id"]] = it
                self.command("approve", it["request_id"], *more, code=None)

    def processes(self):
        """Returns the processes that this team or one of its agents has started: pid -> command line."""
        found, mark = {}, str(self.home).encode()
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                environ = Path(entry.path, "environ").read_bytes()
                line = Path(entry.path, "cmdline").read_bytes()
                state = Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[0]
                cwd = os.readlink(f"{entry.path}/cwd").encode()
            except OSError:
                continue
            if state != "Z" and (b"HOME=" + mark in environ or cwd.startswith(mark) or mark in line):
                found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
        found.pop(os.getpid(), None)
        return found

    def pid(self, name):
        return json.loads((self.folder / f"run/{name}.lock").read_text())["pid"]

    def children(self, pid):
        """Returns the living processes below one, the process itself first."""
        parents = {}
        for entry in self.processes():
            try:
                parents[entry] = int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
        found = [pid]
        for it in found:
            found += [child for child, parent in parents.items() if parent == it and child not in found]
        return found

    def kill_all(self):
        for _ in range(50):
            left = self.processes()
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.05)

    def gone_within(self, pids, limit):
        """Waits until none of these processes is left; returns the seconds, and those that are left after the limit."""
        begin = time.monotonic()
        while True:
            left = {pid: line for pid, line in self.processes().items() if pid in pids}
            now = time.monotonic() - begin
            if not left or now > limit:
                return now, left
            time.sleep(0.05)
