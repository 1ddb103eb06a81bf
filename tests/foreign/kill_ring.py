"""A token goes round a ring of members, one of ours and some of other vendors, while their processes are killed."""

import collections
import os
import random
import signal
import time
from pathlib import Path

from fake_models import order, passing
from team import Team, expect, program

MODEL = "anthropic/m"
AGENTS = ["claude", "codex", "opencode", "gemini"]
KILL_EVERY_S = 3
# Each kill of this number is one of the lead, which ends the whole team; the others are random.
LEAD_EVERY = 20
# The hand-overs that there must be, if there is no time for all.
FEWEST = 20
# The seconds without progress after which the ring has failed.
STALLED_S = 300
# The seconds between two looks of the user, and those for which the user waits for a member to start.
LOOK_EVERY_S, STARTING_S = 5, 30


class KillRing:
    """The ring while it runs."""

    def __init__(self, team, models, install, circuits, seed):
        self.team, self.models, self.install = team, models, str(install)
        self.last, self.handed = circuits * len(models), 0
        self.random = random.Random(seed)
        self.kills, self.starts, self.leads = collections.Counter(), 0, 0
        self.asked_at, self.repeated, self.begin = {}, set(), time.monotonic()
        self.log = open(install / "kill-ring.log", "w")

    def note(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} {text}", file=self.log, flush=True)

    def holder(self, number):
        """Returns the member that has the token of this number, and the one that has sent it."""
        names = [*self.models]
        to = "lead" if number > self.last else names[(number - 1) % len(names)]
        return to, names[(number - 2) % len(names)]

    def received(self, number):
        """Returns the messages with this token that are in the transcript of its holder."""
        lines = self.team.transcript(self.holder(number)[0])
        messages = [line["message"] for line in lines if line["kind"] == "mail"]
        return [it for it in messages if it.get("content", "").split(" ")[0] == f"TOKEN-{number}"]

    def pid(self, name):
        """Returns the pid of the living process of a member, or `None`."""
        try:
            pid = self.team.pid(name)
        except (OSError, ValueError):
            return None
        return pid if pid in self.team.processes() else None

    def victims(self):
        """Returns the living processes of the members: pid -> kind."""
        found = {}
        for own in filter(None, map(self.pid, self.models)):
            below = self.team.children(own)[1:]
            found |= {own: "teammate", **{pid: self.kind(pid) for pid in below}}
        return found

    def kind(self, pid):
        try:
            if b"__guard" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return "guard"
        except OSError:
            pass  # It has ended.
        return "agent" if program(pid).startswith(self.install) else "command"

    def kill_one(self):
        victims, lead = self.victims(), self.pid("lead")
        if (self.kills.total() + 1) % LEAD_EVERY == 0 and lead:
            victims = {lead: "lead"}
        if not victims:
            return
        pid = self.random.choice(sorted(victims))
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return
        self.kills[victims[pid]] += 1
        self.note(f"kill {self.kills.total()}: {victims[pid]} {pid}")

    def start_again(self):
        """Does what a user does: resumes a lead that has ended, and lets it start the members that have failed."""
        process, _ = self.team.leads[-1]
        if process.poll() is not None:
            self.leads += 1
            self.note("resume")
            self.team.lead("--resume", model=MODEL)
            return
        now = time.monotonic()
        for name, model in self.models.items():
            is_failed = self.team.member(name).get("status") in (None, "failed")
            if is_failed and now - self.asked_at.get(name, self.begin) > STARTING_S:
                self.asked_at[name] = now
                self.starts += 1
                self.note(f"start {name}")
                self.team.command("send", "lead", order([["spawn", spawn(name, model)]]), code=None)

    def repeat(self, number):
        """Does what a user does whose order has failed, since the agent has answered with an error: gives it again."""
        name, known = self.holder(number)[0], self.received(number)
        lines = self.team.transcript(name)
        begin = max((at for at, line in enumerate(lines) if line.get("message") in known), default=len(lines))
        ends = [line for line in lines[begin:] if line["kind"] == "turn_end"]
        if ends and ends[-1]["outcome"] == "failed" and ends[-1]["at"] not in self.repeated:
            self.repeated.add(ends[-1]["at"])
            self.note(f"repeat {number} to {name}")
            self.team.command("send", name, known[0]["content"], code=None)

    def run(self, minutes):
        """Lets the token go round, for this time at most."""
        number, progress, next_kill, next_look = 2, time.monotonic(), time.monotonic() + KILL_EVERY_S, 0
        while number <= self.last + 1:
            now = time.monotonic()
            if now - self.begin > minutes * 60:
                break
            if self.received(number):
                self.note(f"token {number}")
                number, progress, self.handed = number + 1, now, number - 1
                continue
            late = f"the token {number} did not come to {self.holder(number)[0]}, {self.told()}"
            expect(now - progress < STALLED_S, late)
            if now >= next_kill:
                next_kill = now + KILL_EVERY_S
                self.kill_one()
            if now >= next_look:
                next_look = now + LOOK_EVERY_S
                self.start_again()
                self.repeat(number - 1)
            time.sleep(0.2)

    def told(self):
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kills.most_common())
        return f"{self.kills.total()} kills ({kinds})"


def spawn(name, model):
    return {"name": name, "role": "worker", "prompt": "go on", **({"model": model} if model else {})}


def kill_ring(names, install, fakes, circuits, minutes, seed):
    """A token goes round; each 3 s a random process of the team is killed. Each message is in one transcript once."""
    chosen = [name for name in AGENTS if name in names]
    models = {"ours": None, **{name: f"acp/{name}" for name in chosen}}
    more = f'[anthropic]\nbase_url = "{fakes.url}/ours"\n[permissions]\nallow = ["bash(sleep:*)"]\n'
    more = "max_teammates = 100\n" + more
    with Team(install / "homes/kill-ring", install, fakes, chosen, more) as team:
        team.env["ANTHROPIC_API_KEY"] = "dummy"
        ring = KillRing(team, models, install, circuits, seed)
        spawns = [["spawn", spawn(name, model)] for name, model in models.items()]
        team.lead("--new", order(spawns), model=MODEL)
        # On a busy machine a member may not be ready in time.
        ready = lambda: all(team.turns(name) for name in models) or ring.start_again()
        team.wait("all are idle", ready, 180)
        ring.starts = 0
        team.command("send", "ours", passing(0, ring.last, [*models])[2])
        ring.begin = time.monotonic()
        ring.run(minutes)
        return judge(ring, chosen, seed, time.monotonic() - ring.begin)


def judge(ring, chosen, seed, seconds):
    """Looks at the transcripts after the last token has come."""
    told = f"{ring.handed} of {ring.last} hand-overs in {seconds / 60:.0f} min"
    expect(ring.handed >= min(FEWEST, ring.last), f"{told}; {ring.told()}")
    team = ring.team
    time.sleep(5)
    again = {}
    for number in range(2, ring.handed + 2):
        sender = ring.holder(number)[1]
        more = sum(it["from"] == sender for it in ring.received(number)) - 1
        expect(more >= 0, f"the token {number} is not from {sender}")
        if more:
            again[sender] = again.get(sender, 0) + more
    expect("ours" not in again, f"ours has sent {again.get('ours')} messages again")
    for name in ["lead", *ring.models]:
        ids = [line["message"].get("id") for line in team.transcript(name) if line["kind"] == "mail"]
        twice = [one for one, count in collections.Counter(ids).items() if count > 1]
        expect(not twice, f"{name} has these messages twice: {twice[:3]}")
    team.command("stop", "--all", code=None)
    _, left = team.gone_within(set(team.processes()), 40)
    expect(not left, f"left: {list(left.values())[:3]}")
    repeated = ", ".join(f"{count} by {name}" for name, count in again.items())
    return (f"ours -> {' -> '.join(chosen)}; {told}; {ring.told()}; {ring.starts} members started again by the lead, "
            f"{ring.leads} leads resumed, {len(ring.repeated)} orders given again after an error of the agent; "
            f"none lost, none twice under one id; "
            f"sent again by a model after a kill: {repeated or 'none'}; seed {seed}")
