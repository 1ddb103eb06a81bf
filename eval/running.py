"""Runs a task of eval/tasks with `team lead -p` in a workspace of its own, and judges what is there afterwards."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TASKS = ROOT / "eval/tasks"
# What a prompt says in addition in a run as a team.
AS_A_TEAM = ("Work as a team: spawn three teammates, give each of them a part of the work, wait for their reports, and "
             "check the result yourself.")
# The same for an agent of another vendor, which spawns nobody.
WITH_OTHERS = ("Work as a team: your teammates bob and carol wait for messages from you. Give each of them a part of the "
               "work by send_message, do a part yourself, and check the result when they have reported.")
WAITS = "You are a part of a team. alice will send you a part of the work. Until then there is nothing to do: say so."
# Variables of the caller that would change a run.
NOT_PASSED = {"HOME", "TEAM_DIR", "TEAM_MODEL", "TEAM_MODE", "TEAM_RUN", "TEAM_OUTBOX", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
              "XDG_DATA_HOME", "XDG_CACHE_HOME"}
# The variables of the caller that a scripted run gets: those of tests.
PASSED = {"TMPDIR", "TEAM_SHORTEST_DEADLINE_MS", "TEAM_PASS_ENVIRONMENT", "LLVM_PROFILE_FILE"}
# The time after --timeout in which a lead must have ended, and the longest time of a check, in seconds.
GRACE, CHECK_LIMIT = 40, 180
# Processes that end by themselves may need this time after their lead, in seconds.
END_LIMIT = 10


class Unusable(Exception):
    """The options or the machine do not allow a run, for this reason."""


@dataclass
class Job:
    """One run: a task, and what works at it."""

    task: str
    mode: str
    model: str = ""
    agent: str = ""
    script: Path | None = None
    number: int = 1
    seed: int = 1
    expected: bool | None = None

    @property
    def name(self):
        return f"acp/{self.agent}" if self.agent else self.script.stem if self.script else self.model or "untouched"


@dataclass
class Runner:
    """The options that all runs share."""

    program: Path
    limit: int
    work: Path | None = None
    settings: str = ""
    own_home: bool = False
    keep: bool = False
    more: list = field(default_factory=list)
    clean: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, job):
        """Does one run. Returns its result, or None if it was interrupted."""
        if self.stop.is_set():
            return None
        base = Path(tempfile.mkdtemp(prefix="team-eval-", dir=self.work))
        try:
            return self.run_in(base, job)
        finally:
            if self.keep:
                print(f"kept: {base} ({job.task}, {job.name}, {job.mode})", flush=True)
            else:
                remove(base)

    def run_in(self, base, job):
        here, home, processes = base / "work", base / "home", Processes(base)
        for folder in (here, home):
            folder.mkdir()
        make_workspace(here, job)
        told, seconds = {}, 0.0
        if job.model or job.agent or job.script:
            begin = time.monotonic()
            told = self.lead(base, here, home, job)
            seconds = time.monotonic() - begin
        left = processes.end()
        if self.stop.is_set():
            return None
        passed, why = judge(base, job, processes, self.stop)
        if self.stop.is_set():
            return None
        usage = told.get("usage", {})
        result = {"task": job.task, "name": job.name, "mode": job.mode, "number": job.number, "seed": job.seed,
                  "passed": passed, "why": why, "exit_code": told.get("exit_code"), "outcome": told.get("outcome"),
                  "error": told.get("error"), "seconds": round(seconds, 3), **transcripts(here, job),
                  "turns": told.get("turns", 0), "members": len(told.get("members", [])),
                  "input_tokens": usage.get("input_tokens", 0), "output_tokens": usage.get("output_tokens", 0),
                  "cache_read_tokens": usage.get("cache_read_tokens", 0), "cost": usage.get("cost"), "left": left}
        if job.expected is not None:
            result["expected"] = job.expected
        return result

    def lead(self, base, here, home, job):
        """Runs the lead until it has ended. Returns the object that it printed."""
        self.write_settings(home)
        prompt = (TASKS / job.task / "task.md").read_text().strip()
        if job.agent:
            model = f"script:{lead_of_agent(base, prompt, job)}"
            prompt = "Give the order to your teammate."
        else:
            model = f"script:{job.script}" if job.script else job.model
            prompt += f"\n\n{AS_A_TEAM}" if job.mode == "team" else ""
        words = [self.program, "-C", here, "--dir", here / ".team", "lead", "-p", prompt, "--model", model,
                 "--mode", "bypass", "--output", "json", "--timeout", str(self.limit), *self.more]
        with open(base / "out", "wb") as out, open(base / "err", "wb") as err:
            lead = subprocess.Popen(words, cwd=here, env=self.environment(base, home), stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=err, start_new_session=True)
            self.wait(lead)
        lines = (base / "out").read_text(errors="replace").splitlines()
        try:
            told = json.loads(lines[-1])
        except (IndexError, ValueError):
            messages = (base / "err").read_text(errors="replace").strip()
            told = {"error": messages[-300:] or "the lead printed no result"}
        return {**told, "exit_code": lead.returncode}

    def wait(self, lead):
        """Waits for the end of a lead. Ends it if it is late, or if the evaluation is interrupted."""
        end = time.monotonic() + self.limit + GRACE
        while not self.stop.is_set() and time.monotonic() < end:
            try:
                lead.wait(0.1)
                return
            except subprocess.TimeoutExpired:
                pass
        lead.send_signal(signal.SIGTERM)
        try:
            lead.wait(GRACE)
        except subprocess.TimeoutExpired:
            lead.kill()
            lead.wait()

    def environment(self, base, home):
        if self.clean:
            own = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "TEAM_LOCAL_PORTS": "none"}
            own |= {key: value for key, value in os.environ.items() if key in PASSED}
        else:
            dropped = {key for key in NOT_PASSED if not self.own_home or key.startswith("TEAM_")}
            own = {key: value for key, value in os.environ.items() if key not in dropped}
        # By this variable the processes of a run are found.
        return own | {"EVAL_RUN": str(base)} | ({} if self.own_home else {"HOME": str(home)})

    def write_settings(self, home):
        """Writes the settings of a run: those of the caller, and a wall before the checks."""
        if self.own_home:
            return
        text = self.settings
        if "sandbox" not in tomllib.loads(text):
            text += f"\n[sandbox]\nhide = [{json.dumps(str(TASKS.parent))}]\n"
        folder = home / ".config/team"
        folder.mkdir(parents=True)
        (folder / "settings.toml").write_text(text)


def make_workspace(here, job):
    """Makes the workspace of a task: its files, a git repository, and a first commit."""
    task = TASKS / job.task
    if (task / "files").is_dir():
        shutil.copytree(task / "files", here, dirs_exist_ok=True)
    if (task / "setup").exists():
        env = os.environ | {"EVAL_SEED": str(job.seed), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([task / "setup", here], env=env, stdin=subprocess.DEVNULL, check=True)
    git = ["git", "-C", here]
    is_new = not (here / ".git").exists()
    if is_new:
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    with open(here / ".git/config", "a") as config:
        config.write("[user]\n\tname = Ann\n\temail = ann@example.org\n[gc]\n\tauto = 0\n")
    # A change of the team's own files is none of the work.
    with open(here / ".git/info/exclude", "a") as exclude:
        exclude.write(".team/\n")
    if is_new:
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--no-verify", "-m", "Begin"], check=True)


def lead_of_agent(base, prompt, job):
    """Writes the script of a lead that only gives the task to agents of another vendor. Returns its path."""
    orders = {"alice": prompt if job.mode == "alone" else f"{prompt}\n\n{WITH_OTHERS}"}
    if job.mode == "team":
        # alice is the last one, so that the others are there when she writes to them.
        orders = {"bob": WAITS, "carol": WAITS, **orders}
    calls = [{"name": "spawn_teammate",
              "input": {"name": name, "role": "worker", "prompt": order, "model": f"acp/{job.agent}"}}
             for name, order in orders.items()]
    script = base / "lead.jsonl"
    script.write_text("".join(json.dumps(it) + "\n" for it in [{"tools": calls}, *[{"text": "Noted."}] * 50]))
    return script


def transcripts(here, job):
    """Counts the replies of models in the transcripts of a team, and finds the first tool call that failed."""
    calls, failed = 0, ""
    for file in sorted((here / ".team/transcript").rglob("*.jsonl")):
        for line in file.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            # The lead of an agent of another vendor is no part of what is measured.
            is_measured = not job.agent or file.stem != "lead"
            calls += is_measured and entry["kind"] in ("assistant", "compacted")
            if entry["kind"] == "tool_result" and entry.get("is_error"):
                failed = failed or f"{file.stem}: {' '.join(str(entry.get('content')).split())[:200]}"
    return {"calls": calls, "tool_error": failed}


def judge(base, job, processes, stop):
    """Runs the check of a task on its workspace. Returns whether it has passed, and the reason if not."""
    here = base / "work"
    words = [TASKS / job.task / "check", here]
    env = os.environ | {"EVAL_RUN": str(base), "EVAL_MODE": job.mode, "EVAL_SEED": str(job.seed),
                        "PYTHONDONTWRITEBYTECODE": "1"}
    with open(base / "check-out", "w+", errors="replace") as out, open(base / "check-err", "w+", errors="replace") as err:
        check = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        end = time.monotonic() + CHECK_LIMIT
        while check.poll() is None and not stop.is_set() and time.monotonic() < end:
            try:
                check.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        is_late = check.poll() is None
        # What the code of the workspace has started ends with the check.
        processes.kill_all()
        check.wait()
        out.seek(0)
        err.seek(0)
        out, err = out.read(), err.read()
    if is_late:
        return False, f"the check has not ended within {CHECK_LIMIT} s"
    if check.returncode == 0:
        return True, ""
    last = (err.strip().splitlines() or [f"exit code {check.returncode}"])[-1]
    return False, (out.strip() or f"the check itself failed: {last}").replace(f"{here}/", "")


def content(path):
    """Returns the bytes of a file of /proc; none if the process has ended, or forbids to look."""
    try:
        return os.fsencode(os.readlink(path)) if path.endswith("/cwd") else Path(path).read_bytes()
    except OSError:
        return b""


class Processes:
    """The processes that a run has started, directly or not: they are known by its folder."""

    def __init__(self, base):
        self.base = os.fsencode(base)
        self.own = {b"EVAL_RUN=" + self.base, b"HOME=" + self.base + b"/home"}
        self.begin = time.clock_gettime(time.CLOCK_BOOTTIME)

    def living(self):
        """Returns the processes that run: pid -> command line."""
        found = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and self.is_own(entry.path):
                line = content(f"{entry.path}/cmdline").replace(b"\0", b" ")
                found[int(entry.name)] = line.decode(errors="replace").strip()[:200]
        return found

    def is_own(self, path):
        stat = content(f"{path}/stat").rsplit(b")", 1)[-1].split()
        if len(stat) < 20 or stat[0] == b"Z":
            return False
        if self.own & set(content(f"{path}/environ").split(b"\0")):
            return True
        # An agent that holds a key shows its command line alone. The shell of a person who looks into the folder is older.
        is_newer = int(stat[19]) / os.sysconf("SC_CLK_TCK") >= self.begin - 0.1
        return is_newer and (content(f"{path}/cwd").startswith(self.base) or self.base in content(f"{path}/cmdline"))

    def end(self):
        """Waits for the end of all, and kills those that stay. Returns the command lines of these."""
        end = time.monotonic() + END_LIMIT
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.05)
        self.kill_all()
        return sorted(left.values())

    def kill_all(self):
        """Kills all until there are none, or until one has not died in time."""
        end = time.monotonic() + END_LIMIT
        while (left := self.living()) and time.monotonic() < end:
            for pid in left:
                self.kill(pid)
            time.sleep(0.02)

    def kill(self, pid):
        """Kills one, and no other process that has got its number since."""
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if self.is_own(f"/proc/{pid}"):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            pass
        finally:
            os.close(handle)


def remove(base):
    """Removes the folder of a run, also folders in it that may not be written."""
    for folder, names, _ in os.walk(base):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(base, ignore_errors=True)
