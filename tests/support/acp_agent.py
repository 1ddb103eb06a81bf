#!/usr/bin/env python3
"""A scripted agent that speaks the Agent Client Protocol over its standard input and output.

usage: acp_agent.py SCRIPT LOG [ARGUMENT]...

SCRIPT is a JSON object: `prompts` is a list with the steps of each prompt, in the order of all its processes; the other
keys change the agent (see Agent). LOG gets the further arguments of each process, and each
message that was received, a line each.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request

script_path, log_path = sys.argv[1:3]
with open(script_path) as file:
    SCRIPT = json.load(file)
incoming = queue.Queue()
lock = threading.Lock()


def log(entry):
    with lock, open(log_path, "a") as file:
        file.write(json.dumps(entry) + "\n")


def logged(method):
    if not os.path.exists(log_path):
        return 0
    with open(log_path) as file:
        return sum(json.loads(line).get("method") == method for line in file)


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    for line in sys.stdin:
        message = json.loads(line)
        log(message)
        incoming.put(message)
    incoming.put(None)


class Over(Exception):
    """The prompt is over, with this reason."""


class Error(Exception):
    """The prompt is answered by this error."""


class Agent:
    def __init__(self):
        self.last_id = 0
        self.session = "session-1"
        self.is_cancelled = False
        self.waiting = []
        self.servers = []

    def receive(self, timeout=None):
        try:
            message = incoming.get(timeout=timeout)
        except queue.Empty:
            return {}
        if message is None:
            if SCRIPT.get("ignores_eof"):
                time.sleep(1000)
            sys.exit(0)
        if message.get("method") == "session/cancel":
            self.is_cancelled = True
            return {}
        return message

    def update(self, **update):
        say({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def text(self, text, message_id=None):
        more = {"messageId": message_id} if message_id else {}
        content = {"type": "text", "text": text}
        self.update(sessionUpdate="agent_message_chunk", content=content, **more)

    def ask(self, call):
        self.last_id += 1
        options = [{"optionId": kind, "name": kind, "kind": kind}
                   for kind in ["allow_always", "allow_once", "reject_once", "reject_always"]]
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        say({"id": f"ask-{self.last_id}", "method": "session/request_permission", "params": params})
        return f"ask-{self.last_id}"

    def answer(self, ask):
        for message in self.waiting:
            if message.get("id") == ask:
                self.waiting.remove(message)
                return message["result"]["outcome"].get("optionId", "cancelled")
        while True:
            message = self.receive()
            if message.get("id") == ask:
                return message["result"]["outcome"].get("optionId", "cancelled")
            if message:
                self.waiting.append(message)

    def call(self, call, answer, command=None):
        """Runs a call about which was asked."""
        if answer != "allow_once":
            if SCRIPT.get("ends_at_refusal"):
                raise Over("cancelled" if answer == "cancelled" else "end_turn")
            self.text(f"{call['toolCallId']} was not allowed. ")
            return
        output = ""
        if command:
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
            output = done.stdout
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        self.update(sessionUpdate="tool_call_update", toolCallId=call["toolCallId"],
                    status="completed", content=content)

    def tool(self, name, arguments):
        """Calls a tool of the team, and logs its result."""
        server, = self.servers
        self.last_id += 1
        call = {"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call",
                "params": {"name": name, "arguments": arguments}}
        headers = {header["name"]: header["value"] for header in server["headers"]}
        headers |= {"Content-Type": "application/json",
                    "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(server["url"], json.dumps(call).encode(), headers)
        with urllib.request.urlopen(request) as response:
            log({"tool": name, "result": json.load(response)})

    def step(self, step):
        (kind, value), = step.items()
        if kind == "say":
            self.text(value)
        elif kind == "message":
            self.text(value[1], value[0])
        elif kind == "update":
            self.update(**value)
        elif kind == "command":
            call = {"toolCallId": f"call-{value[:20]}", "title": value, "kind": "execute",
                    "status": "pending", "rawInput": {"command": value}}
            self.update(sessionUpdate="tool_call", **call)
            self.call(call, self.answer(self.ask(call)), value)
        elif kind == "call":
            self.call(value, self.answer(self.ask(value)))
        elif kind == "calls":
            asks = [self.ask(call) for call in value]
            for call, ask in reversed(list(zip(value, asks))):
                self.call(call, self.answer(ask))
        elif kind == "ask_and_go":
            self.ask(value)
        elif kind == "raw":
            sys.stdout.write(value)
            sys.stdout.flush()
        elif kind == "flood":
            for _ in range(value):
                content = {"type": "text", "text": "x" * 1000}
                self.update(sessionUpdate="agent_thought_chunk", content=content)
        elif kind == "long":
            self.update(sessionUpdate="available_commands_update", filler="x" * value)
        elif kind == "request":
            say({"id": "request", "method": value, "params": {}})
        elif kind == "tool":
            self.tool(*value)
        elif kind == "drain":
            say({"id": "drain", "method": "craft/drainMidTurnQueue", "params": {}})
            while self.receive().get("id") != "drain":
                pass
        elif kind == "wait_steer":
            message = {}
            while message.get("method") != "_session/steering":
                message = self.receive()
            say({"id": message["id"], "result": {"outcome": value}})
        elif kind == "run":
            subprocess.Popen(["sh", "-c", value], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        elif kind == "wait_cancel":
            while not self.is_cancelled:
                self.receive(0.05)
        elif kind == "wait_file":
            while not os.path.exists(value):
                time.sleep(0.02)
        elif kind == "hang":
            time.sleep(1000)
        elif kind == "die":
            sys.stderr.write("the agent says good-bye\n")
            sys.stderr.flush()
            os._exit(value)
        elif kind == "end":
            raise Over(value)
        elif kind == "error":
            raise Error(value)
        else:
            raise ValueError(kind)

    def prompt(self, message, number):
        self.is_cancelled = False
        steps = SCRIPT["prompts"]
        reason = "end_turn"
        try:
            for step in steps[number] if number < len(steps) else [{"say": "nothing to do"}]:
                self.step(step)
                if self.is_cancelled and not SCRIPT.get("ignores_cancel"):
                    raise Over("cancelled")
        except Over as over:
            reason = str(over)
        except Error as error:
            say({"id": message["id"], "error": {"code": -32603, "message": str(error)}})
            return
        result = {"stopReason": reason}
        if "usage" in SCRIPT:
            result["usage"] = SCRIPT["usage"]
        say({"id": message["id"], "result": result})

    def run(self):
        prompts = logged("session/prompt")
        log({"method": "started", "params": {"arguments": sys.argv[3:]}})
        while True:
            message = self.waiting.pop(0) if self.waiting else self.receive()
            method, params = message.get("method"), message.get("params")
            if method in SCRIPT.get("dies_at", []):
                os._exit(3)
            if method == "initialize":
                capabilities = {"sessionCapabilities": {key: {} for key in SCRIPT.get("session", [])},
                                "loadSession": SCRIPT.get("loads", False),
                                "mcpCapabilities": {"http": True}}
                result = {"protocolVersion": SCRIPT.get("version", 1),
                          "agentInfo": {"name": "scripted", "version": "0.1"},
                          "agentCapabilities": capabilities,
                          "_meta": {"steering": {"supported": SCRIPT.get("steers", False)}}}
            elif method in ("session/new", "session/resume", "session/load"):
                if "error" in SCRIPT:
                    say({"id": message["id"], "error": SCRIPT["error"]})
                    continue
                self.servers = params["mcpServers"]
                self.session = params.get("sessionId", f"session-{logged('session/new')}")
                if method == "session/load":
                    self.text("this was said before")
                modes = [{"id": mode, "name": mode} for mode in SCRIPT.get("modes", [])]
                result = {"sessionId": self.session}
                if modes:
                    result["modes"] = {"currentModeId": modes[0]["id"], "availableModes": modes}
            elif method == "session/prompt":
                self.prompt(message, prompts)
                prompts += 1
                continue
            else:
                result = {}
            if "id" in message and method:
                say({"id": message["id"], "result": result})


threading.Thread(target=read, daemon=True).start()
Agent().run()
