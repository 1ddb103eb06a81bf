"""The agents of other vendors as clients of `team mcp`: each is installed by `team mcp install` and run with a prompt."""

import json
import os
import signal
import subprocess
import time

import agents
from fake_models import order
from team import TEAM, Failed, Fakes, Team

# The program and its arguments without a person. Gemini CLI and Copilot CLI start servers in trusted folders only.
HEADLESS = {
    "claude": ["claude", "--mcp-config", ".mcp.json", "--allowedTools", "mcp__team", "-p"],
    "codex": ["codex", "exec", "--skip-git-repo-check"],
    "opencode": ["opencode", "run"],
    "gemini": ["gemini", "--approval-mode", "yolo", "-p"],
    "copilot": ["copilot", "--trust-folder", "--allow-tool=team", "-p"],
}
ENVIRONMENT = {"gemini": {"GEMINI_CLI_TRUST_WORKSPACE": "true"}}
TOOLS = ["send_message", "broadcast", "check_inbox", "list_teammates", "create_task", "list_tasks", "get_task",
         "claim_task", "update_task", "complete_task"]
BEGIN, END = "<!-- clients -->", "<!-- end of the clients -->"


class Client:
    """A run of an agent with one order, in the workspace of a team."""

    def __init__(self, team, name, install, steps):
        self.team, self.name = team, name
        self.out = open(team.home / "client.out", "w+")
        command, env = agents.settings(name, team.fakes.url)
        words = [*HEADLESS[name], order(steps)]
        if name == "claude":
            words[0] = str(install / "node_modules/@anthropic-ai/claude-agent-sdk-linux-x64/claude")
        env = {**team.env, **env, **ENVIRONMENT.get(name, {})}
        self.process = subprocess.Popen(words, cwd=team.work, env=env, stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def told(self):
        self.out.flush()
        return (self.team.home / "client.out").read_text()

    def until(self, what, condition, within=300):
        end = time.monotonic() + within
        while not (found := condition()):
            if time.monotonic() > end:
                raise Failed(f"not in {within} s: {what}; it says {self.told()[-300:]!r}")
            if self.process.poll() is not None and not (found := condition()):
                raise Failed(f"it ended with {self.process.returncode} before: {what}; it says {self.told()[-300:]!r}")
            time.sleep(0.05)
        return found

    def messages(self, text):
        return [it for it in self.team.mail("lead", self.name) if text in it["content"]]


def name_of_next(team, model):
    """Returns the name that a further client of this program gets."""
    client = {"name": model.removeprefix("mcp/"), "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    shake = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    with subprocess.Popen([TEAM, "mcp"], cwd=team.work, env=team.env, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as server:
        server.stdin.write(shake + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
    return answer["result"]["instructions"].split("you are ")[1].split(",")[0]


def check(name, install, fakes):
    """Returns a remark, or raises Failed."""
    with Team(install / "homes" / f"client-{name}", install, fakes, [name]) as team:
        del team.env["TEAM_MODE"]
        team.lead()
        team.wait("the lead", (team.folder / "run/lead.lock").exists)
        team.command("mcp", "install", name, "--write")
        first = Client(team, name, install, [["send", "lead", "MARK-first"], ["wait"], ["team"]])
        first.until("a message to the lead", lambda: first.messages("MARK-first"))
        team.command("send", name, "MARK-mail")
        first.until("the end", lambda: first.process.poll() is not None)
        if first.process.returncode or "MARK-mail" not in first.told():
            raise Failed(f"exit {first.process.returncode}, and it says {first.told()[-300:]!r}")
        model = team.member(name)["model"]
        team.wait("the end frees the name", lambda: name_of_next(team, model) == name)
        # It is killed while it waits for mail.
        second = Client(team, name, install, [["send", "lead", "MARK-second"], ["wait"]])
        second.until("a second message", lambda: second.messages("MARK-second"))
        begin = time.monotonic()
        os.killpg(second.process.pid, signal.SIGKILL)
        second.process.wait()
        team.wait("a kill frees the name", lambda: name_of_next(team, model) == name)
        freed = time.monotonic() - begin
        sent = [len(it.messages(mark)) for it, mark in [(first, "MARK-first"), (second, "MARK-second")]]
        if sent != [1, 1]:
            raise Failed(f"messages that were sent: {sent}")
        requests = fakes.requests(name)
        bad = [why for line in requests for why in line["bad"]]
        if bad:
            raise Failed(f"the fake has refused {bad}")
        listed = max(sum(tool.endswith(known) for known in TOOLS for tool in line["tools"]) for line in requests)
        calls = [line["call"] for line in requests if line["call"] and line["call"].endswith(("message", "inbox", "mates"))]
        return f"{model}: {listed} tools listed, {len(calls)} calls, its name is free {freed:.1f} s after a kill"


def run(names, install, page=None):
    """Checks these agents, and puts the table into the page. Returns whether all pass."""
    rows, is_fine = [], True
    for name in [name for name in HEADLESS if name in names]:
        fakes = Fakes(install / f"fake-client-{name}.log")
        try:
            mark, remark = "ok", check(name, install, fakes)
        except (Failed, OSError, ValueError, LookupError, subprocess.SubprocessError) as why:
            mark, remark, is_fine = "**failed**", f"{type(why).__name__}: {why}", False
        fakes.end()
        remark = " ".join(str(remark).split()).replace(str(install), "FOLDER")
        print(f"{name:9} {'client':9} {mark:10} {remark}", flush=True)
        rows.append(f"| {name} | {agents.PACKAGES[name].rsplit('@', 1)[1]} | {mark} | {remark[:220]} |")
    if page:
        before, rest = page.read_text().split(BEGIN, 1)
        table = ["| agent | version | client | result |", "|---|---|---|---|", *rows]
        page.write_text("\n".join([before + BEGIN, *table, ""]) + END + rest.split(END, 1)[1])
    return is_fine
