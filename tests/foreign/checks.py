"""The checks of an agent of another vendor as a member. Each returns a remark for the table, or raises Failed."""

import os
import signal
import time
from pathlib import Path

import agents
from fake_models import IN_TOKENS, OUT_TOKENS, order
from team import Failed, Team, expect, program

# Claude Code refuses a long `sleep` as such. The command ends at once if the file `fast` is there.
SLOW = ["run", "sh slow.sh"]
SLOW_FILE = "[ -e fast ] && exit 0\nsleep 600 &\nsleep 601\n"
# The seconds until a question is refused, in the check of that.
DEADLINE_S = 5
FREE = '[permissions]\nallow = ["bash(sleep:*)", "bash(sh slow.sh)"]\n'


class Run:
    """One agent under test."""

    def __init__(self, name, install, fakes, rounds, recorder=None):
        self.name, self.install, self.fakes, self.rounds = name, install, fakes, rounds
        self.recorder = recorder
        self.count = 0

    def team(self, more="", recorder=None):
        self.count += 1
        base = self.install / "homes" / f"{self.name}-{self.count}"
        team = Team(base, self.install, self.fakes, [self.name], more, recorder)
        (team.work / "slow.sh").write_text(SLOW_FILE)
        return team


def report(team, count=1, within=60, approve=None, may_fail=False):
    """Waits for the result of that number, and returns it."""
    team.wait(f"result {count}", lambda: len(team.results()) >= count, within, approve, may_fail)
    return team.results()[count - 1]


def turn(run):
    """A command and a file wait for `team approve`, a message is sent from inside, the result is mailed."""
    with run.team(recorder=run.recorder) as team:
        run.recorded = team.home
        told = [["run", "printf hello > made.txt"], ["write", str(team.work / "written.txt"), "hi"],
                ["send", "lead", "MARK-inside"]]
        begin = len(run.fakes.requests(run.name))
        team.spawn(run.name, order(told))
        asked = {}
        end = report(team, approve=asked)
        expect(end == "done", f"the result is {end!r}")
        files = [(team.work / name).read_text().strip() for name in ("made.txt", "written.txt")]
        expect(files == ["hello", "hi"], f"the files have {files}")
        expect(any("MARK-inside" in it["content"] for it in team.mail()), "the message from inside did not come")
        tools = [it["tool"] for it in asked.values()]
        expect(tools in (["bash", "write_file"], ["bash", "bash"]), f"asked about {tools}")
        results = [line for line in team.transcript() if line["kind"] == "tool_result"]
        failed = [line["content"][:80] for line in results if line["is_error"]]
        expect(not failed, f"failed calls in the transcript: {failed}")
        time.sleep(0.5)
        run.usage = (team.member().get("usage", {}), run.fakes.requests(run.name)[begin:])
        team.command("stop", "alice")
    return f"{len(asked)} questions"


def tokens(run):
    """The reported tokens of that turn are those of the fake."""
    usage, requests = getattr(run, "usage", (None, []))
    expect(usage is not None, "no turn")
    # A call for a title or the memory has no order, or none of the team's tools.
    calls = sum(line["order"] for line in requests)
    told = (usage.get("input_tokens"), usage.get("output_tokens"))
    expected = (calls * IN_TOKENS, calls * OUT_TOKENS)
    expect(told == expected, f"told {told}, the fake counts {expected} in {calls} calls")
    return f"{calls} calls in the turn, {len(requests) - calls} others not counted"


def strict(run):
    """The endpoint would have refused no request."""
    bad = [line["bad"][0] for line in run.fakes.requests(run.name) if line["bad"]]
    expect(not bad, f"{len(bad)} refused: {bad[:1]}")
    return f"{len(run.fakes.requests(run.name))} requests"


def terminal(run):
    """A `y` typed at the terminal of the lead answers a question: the file is written, the result is mailed."""
    with run.team() as team:
        team.spawn(run.name, order([["write", str(team.work / "written.txt"), "hi"]]))
        answered, seen = set(), 0

        def answer():
            nonlocal seen
            for it in team.questions():
                if it.get("waiting") and it["request_id"] not in answered and "answer>" in team.shown()[seen:]:
                    answered.add(it["request_id"])
                    seen = len(team.shown())
                    team.type("y")
            return team.results()

        end = team.wait("the result", answer)
        expect(end == ["done"], f"the results are {end}")
        expect((team.work / "written.txt").read_text().strip() == "hi", "the file is not written")
        expect(answered, "no question")
    return f"{len(answered)} answered"


def deadline(run):
    """A question that a lead without a person does not answer is refused after `permissions.timeout`."""
    more = FREE.replace("[permissions]", f"[permissions]\ntimeout = {DEADLINE_S}")
    with run.team(more) as team:
        (team.work / "slow.sh").write_text("touch begun\nsleep 3\n")
        steps = [SLOW, ["write", str(team.work / "written.txt"), "hi"]]
        lead = team.lead("-p", "begin", spawns=[("alice", run.name, order(steps))])
        # A lead that reacts refuses at once, since it has nobody to ask.
        team.wait("the command", (team.work / "begun").exists)
        lead.send_signal(signal.SIGSTOP)
        decided = lambda: [line for line in team.transcript() if line["kind"] == "decision"]
        team.wait("the refusal", decided, 30)
        lead.send_signal(signal.SIGCONT)
        asked = next(line for line in team.transcript() if line["kind"] == "request")
        seconds = decided()[0]["at"] - asked["at"]
        expect(DEADLINE_S - 0.5 <= seconds <= DEADLINE_S + 2, f"refused after {seconds:.1f} s")
        team.wait("the turn is over", team.turns)
        expect(not (team.work / "written.txt").exists(), "the file is written")
        told = [line["content"] for line in team.transcript() if line["kind"] == "tool_result"]
        expect(any("no answer within" in text for text in told), f"the results are {told}")
    return f"after {seconds:.1f} s of {DEADLINE_S}"


def deny(run):
    """`deny = ["bash(rm:*)"]` refuses without a question; the lead still gets a report."""
    with run.team('[permissions]\ndeny = ["bash(rm:*)"]\n') as team:
        (team.work / "kept.txt").write_text("x")
        team.spawn(run.name, order([["run", "rm kept.txt"]]))
        end = report(team)
        expect((team.work / "kept.txt").exists(), "the file is gone")
        asked = [line for line in team.transcript() if line["kind"] == "request"]
        expect(not asked, f"asked: {asked[:1]}")
        told = [line["content"] for line in team.transcript() if line["kind"] == "tool_result"]
        expect(any("denied by the rule" in text for text in told), f"the results are {told}")
    return f"told {end[:40]!r}"


def always(run):
    """`team approve --always` is a rule of the team, and changes no file of the agent's own."""
    with run.team() as team:
        before = {path for path in agents.OWN_RULES if (team.home / path).exists()}
        team.spawn(run.name, order([["run", "touch one"]]))
        team.wait("the question", lambda: [it for it in team.questions() if it.get("waiting")])
        team.approve({}, "--always")
        report(team)
        team.command("send", "alice", order([["run", "touch one"], ["run", "touch one"]]))
        report(team, 2)
        asked = [line for line in team.transcript() if line["kind"] == "request"]
        expect(len(asked) == 1, f"{len(asked)} questions")
        own = [path for path in agents.OWN_RULES if (team.home / path).exists() and path not in before]
        expect(not own, f"the agent wrote {own}")
    return "asked once in three"


def mail(run):
    """Mail in a turn is told, and cancels nothing."""
    with run.team(FREE) as team:
        (team.work / "slow.sh").write_text("sleep 4\necho x > slept.txt\n")
        before = len([line for line in run.fakes.requests(run.name) if line["order"]])
        team.spawn(run.name, order([SLOW, ["send", "lead", "half"], ["run", "sleep 1"]]))
        running = lambda: [line for line in team.processes().values() if line.startswith("sleep 4")]
        asked = {}
        team.wait("the command", running, approve=asked)
        team.command("send", "alice", "MARK-between")
        text = report(team, approve=asked)
        expect((team.work / "slept.txt").exists(), "the command was cut off")
        outcomes = [line["outcome"] for line in team.turns()]
        expect(outcomes[0] == "done", f"the turn was {outcomes[0]}")
        if "MARK-between" in text:
            # The second call of the model is the first one after the command.
            calls = [line for line in run.fakes.requests(run.name) if line["order"]][before:]
            number = next(n for n, line in enumerate(calls, 1) if "MARK-between" in str(line["items"]))
            return f"with call {number} of the turn"
        text = report(team, 2, approve=asked)
        expect("MARK-between" in text, f"not told: {text!r}")
    return "with the next prompt"


def stop(run):
    """`team stop` in a running command: nothing of the member is left within 10 s."""
    with run.team(FREE) as team:
        lead = team.spawn(run.name, order([SLOW]))
        asked = {}
        team.wait("the command", lambda: sleeps(team), approve=asked)
        pids = team.children(team.pid("alice"))
        begin = time.monotonic()
        team.command("stop", "alice")
        _, left = team.gone_within(set(pids) | set(sleeps(team)), 10 - (time.monotonic() - begin))
        seconds = time.monotonic() - begin
        expect(not left and seconds < 10, f"after {seconds:.0f} s: {list(left.values())[:3]} left")
        expect(lead.poll() is None, "the lead has ended")
    return f"{seconds:.1f} s"


def interrupt(run):
    """`team interrupt` in a running command ends it; the next order is carried out."""
    with run.team(FREE) as team:
        team.spawn(run.name, order([SLOW]))
        team.wait("the command", lambda: sleeps(team), approve={})
        old = set(sleeps(team))
        team.command("interrupt", "alice")
        seconds, left = team.gone_within(old, 10)
        team.wait("the turn is over", team.turns)
        (team.work / "fast").touch()
        team.command("send", "alice", order([["run", "sleep 0"]]))
        team.wait("the next turn is over", lambda: len(team.turns()) > 1)
        text = team.turns()[1]["report"]["text"]
        expect(not left, f"left: {list(left.values())[:2]}")
        expect(text.startswith("done"), f"the next turn: {text[:150]!r}")
    return f"{seconds:.1f} s"


def sleeps(team):
    found = team.processes()
    both = [pid for pid, line in found.items() if line in ("sleep 600", "sleep 601")]
    return both if len(both) >= 2 else []


def is_guard(pid):
    return b"__guard" in Path(f"/proc/{pid}/cmdline").read_bytes()


def parts(team, install):
    """Returns the processes of a member in a command: the pids to kill, and those that must go with them."""
    member = team.pid("alice")
    below = team.children(member)[1:]
    guard = next(pid for pid in below if is_guard(pid))
    of_guard = team.children(guard)[1:]
    agent = [pid for pid in of_guard if program(pid).startswith(str(install))]
    # Helpers that the agent needs for a moment have no command below them.
    agent = [pid for pid in agent if set(sleeps(team)) & set(team.children(pid))] or agent
    return {"lead": team.pid("lead"), "teammate": member, "guard": guard, "adapter": agent[0],
            "agent": agent[-1]}, [*below, *sleeps(team)]


def kill(run):
    """`kill -9` of one process in a running command: within 5 s nothing of the member is left (after the lead: 35 s)."""
    victims, slowest, bad, count, late = ["adapter", "agent", "guard", "teammate", "lead"], {}, [], 0, 0
    while count < run.rounds:
        victim = victims[count % len(victims)]
        with run.team(FREE) as team:
            team.spawn(run.name, order([SLOW]))
            try:
                team.wait("the command", lambda: sleeps(team), approve={})
            except Failed:
                # On a busy machine the agent may not be ready in time.
                if (late := late + 1) > run.rounds // 10:
                    raise
                continue
            pids, old = parts(team, run.install)
            if victim == "agent" and pids["agent"] == pids["adapter"]:
                victims.remove("agent")
                continue
            try:
                os.kill(pids[victim], signal.SIGKILL)
            except ProcessLookupError:
                continue  # It was a process that the agent needs for a moment only.
            count += 1
            seconds, left = team.gone_within(set(old), 35 if victim == "lead" else 5)
            slowest[victim] = max(slowest.get(victim, 0), seconds)
            if left:
                bad.append(f"kill {count}, of the {victim}: {[line[:60] for line in left.values()]} after {seconds:.0f} s")
    expect(not bad, f"{len(bad)} of {count}: {'; '.join(bad)}")
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slowest.items())
    return f"{count} kills; slowest: {told}" + (f"; {late} starts failed before a kill" if late else "")


def resume(run):
    """`kill -9` of everything in a command, `team lead --resume`: the agent goes on and knows what was before."""
    with run.team(FREE) as team:
        team.spawn(run.name, "MARK-past " + order([["run", "sleep 0"]]))
        report(team, approve={})
        team.command("send", "alice", order([SLOW]))
        team.wait("the command", lambda: sleeps(team), approve={})
        old = next(line["foreign"]["session_id"] for line in team.transcript() if line.get("foreign"))
        pids = [team.pid("lead"), *team.children(team.pid("alice"))]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        _, left = team.gone_within(set(pids), 5)
        expect(not left, f"left after the kill: {list(left.values())[:3]}")
        team.kill_all()
        known = len(team.results())
        # The order that was cut off is told again.
        (team.work / "fast").touch()
        team.lead("--resume")
        text = report(team, known + 1, approve={}, may_fail=True)
        expect("MARK-past" in text, f"the history is lost: {text!r}")
        sessions = [line["foreign"]["session_id"] for line in team.transcript() if line.get("foreign")]
        is_same = len(set(sessions)) == 1 and sessions[0] == old
    return "its session" if is_same else "our digest"


def minutes(run):
    """A budget of a minute ends the member in the middle of a command."""
    with run.team("[budget.member]\nminutes = 1\n" + FREE) as team:
        begin = time.monotonic()
        # Codex looks after a command for 30 s at a time.
        team.spawn(run.name, order([SLOW] * 3))
        team.wait("the command", lambda: sleeps(team), approve={})
        pids = {*team.children(team.pid("alice")), *sleeps(team)}
        ended = lambda: (team.member().get("last_exit") or {}).get("cause")
        cause = team.wait("the end of the member", ended, 90, may_fail=True)
        expect(cause == "budget", f"the cause is {cause}")
        seconds, left = team.gone_within(pids, 10)
        expect(not left, f"left: {list(left.values())[:3]}")
        seconds = time.monotonic() - begin
        expect(60 <= seconds <= 75, f"after {seconds:.0f} s")
    return f"after {seconds:.0f} s"


def budget(run):
    """A budget of turns ends the member."""
    with run.team('[budget.member]\nturns = 1\n[permissions]\nallow = ["bash(sleep:*)"]\n') as team:
        team.spawn(run.name, order([["run", "sleep 0"]]))
        report(team)
        pids = team.children(team.pid("alice"))
        team.command("send", "alice", order([["run", "sleep 0"]]), code=None)
        end = time.monotonic() + 30
        while team.member().get("status") not in ("shutdown", "failed") and time.monotonic() < end:
            time.sleep(0.1)
        cause = (team.member().get("last_exit") or {}).get("cause")
        expect(cause == "budget", f"status {team.member().get('status')}, cause {cause}")
        _, left = team.gone_within(set(pids), 10)
        expect(not left, f"left: {list(left.values())[:3]}")
    return ""


CHECKS = {"turn": turn, "tokens": tokens, "terminal": terminal, "deadline": deadline, "deny": deny, "always": always,
          "mail": mail, "interrupt": interrupt, "stop": stop, "kill": kill, "resume": resume, "budget": budget,
          "minutes": minutes, "strict": strict}
