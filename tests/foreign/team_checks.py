"""The checks of a team of several agents of other vendors. Each returns a remark for the table, or raises Failed."""

import threading
import time

from fake_models import order
from kill_ring import kill_ring
from team import Team, expect, program


class Whole:
    """All agents under test, as members of one team."""

    def __init__(self, names, install, fakes, options):
        self.names, self.install, self.fakes, self.options = names, install, fakes, options
        self.members = [f"m{number}" for number, _ in enumerate(names, 1)]

    def team(self, title, more=""):
        return Team(self.install / "homes" / title, self.install, self.fakes, self.names, more)

    def start(self, team):
        """Starts a lead and all members, and waits until they have nothing to do."""
        team.lead(spawns=[(name, agent, "wait") for name, agent in zip(self.members, self.names)])
        team.wait("all are idle", lambda: all(team.turns(name) for name in self.members), 180, {})


def ring(whole):
    """Members on different agents pass a word around by `send_message`, each once."""
    members = whole.members
    with whole.team("ring") as team:
        text = order([["send", "lead", "MARK-round"]])
        for name in reversed(members[1:]):
            text = order([["send", name, text]])
        whole.start(team)
        team.command("send", members[0], text)
        last = lambda: [it for it in team.mail("lead", members[-1]) if it.get("content") == "MARK-round"]
        asked = {}
        team.wait("the word is back", last, 120, asked)
        time.sleep(1)
        for name, sender in zip(members[1:], members):
            told = [line for line in team.transcript(name) if line["kind"] == "mail" and line["message"].get("from") == sender]
            expect(len(told) == 1, f"{name} has {len(told)} messages of {sender}")
        expect(len(last()) == 1, "the word came twice")
        questions = [it["tool"] for it in asked.values()]
    return " -> ".join(whole.names) + (f"; asked about {questions}" if questions else "; no question")


class Awake:
    """Counts the members that have an agent, again and again."""

    def __init__(self, team, members, install):
        self.team, self.members, self.install = team, members, str(install)
        self.most, self.is_over = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def has(self, name):
        """Whether the member has a process of its agent."""
        try:
            pids = self.team.children(self.team.pid(name))
        except (OSError, ValueError):
            return False  # It is being started.
        return any(program(pid).startswith(self.install) for pid in pids)

    def count(self):
        return sum(map(self.has, self.members))

    def watch(self):
        while not self.is_over.wait(0.1):
            self.most = max(self.most, self.count())

    def end(self):
        self.is_over.set()
        self.thread.join()
        return self.most


def awake(whole):
    """With `agents.max_awake = 2` never more than two agents have a process; asleep none; mail wakes each within 5 s."""
    most, waking, calling = 2, {}, {}
    with whole.team("awake", f"[agents]\nmax_awake = {most}\nsleep_after = 5\n") as team:
        watch = Awake(team, whole.members, whole.install)
        whole.start(team)
        team.wait("all are asleep", lambda: watch.count() == 0, 30)
        for name, agent in zip(whole.members, whole.names):
            known, calls = len(team.turns(name)), len(whole.fakes.requests(agent))
            begin = time.monotonic()
            team.command("send", name, order([["send", "lead", "MARK-awake"]]))
            team.wait(f"the process of {agent}", lambda: watch.has(name), 30)
            waking[agent] = time.monotonic() - begin
            team.wait(f"the call of {agent}", lambda: len(whole.fakes.requests(agent)) > calls, 30)
            calling[agent] = time.monotonic() - begin
            team.wait(f"the turn of {agent}", lambda: len(team.turns(name)) > known, 60)
        found = watch.end()
    expect(found <= most, f"{found} agents at once")
    told = ", ".join(f"{agent} {waking[agent]:.1f} s, {calling[agent]:.1f} s" for agent in whole.names)
    # The time to the first call of the model is the agent's own, and that of the machine.
    expect(max(waking.values()) < 5, f"from the mail to the process, and to the call of the model: {told}")
    return (f"at most {found} of {len(whole.names)} at once, none when all slept; from the mail to the process, and to "
            f"the call of the model: {told}")


def kills(whole):
    options = whole.options
    return kill_ring(whole.names, whole.install, whole.fakes, options.circuits, options.minutes, options.seed)


CHECKS = {"ring": ring, "awake": awake, "kill-ring": kills}
