#!/usr/bin/env python3
"""Fakes of four model endpoints for the agents of other vendors: the Messages API, Chat Completions, the Responses API
and generateContent. One program behind all four decides what the model says.

usage: fake_models.py LOG     (prints its port; LOG gets one line for each request of a model)

The first part of a path names the agent: http://127.0.0.1:PORT/claude. The model obeys the newest order in the
conversation, `do:BASE64;` with a JSON list of steps (see Decision), one call at a time, and ends with `done` and every
MARK-word that it has seen. It hands each token on once, as far as the conversation says, and tries again where a send has
failed. A conversation that the real endpoint would refuse is refused, and counted in the log.
"""

import base64
import http.server
import json
import re
import sys
import threading
import time

IN_TOKENS, OUT_TOKENS = 100, 10
SHELLS = ["Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell"]
WRITERS = ["Write", "write", "write_file", "create", "apply_patch"]
# Some agents hide the tools of servers behind these, and call them through `tool_call`.
SEARCHES = ["ToolSearch", "tool_search"]
TEAM_TOOL = "mcp__team__"
TEAM_TOOLS = ["send_message", "check_inbox", "list_teammates", "spawn_teammate"]
# What the tool says of a message that is stored; the tries of a send that fails, and the seconds before the next one.
SENT, TRIES, THINKING_S = "Sent to ", 8, 3


def order(steps):
    """Returns the order to take these steps."""
    return "do:" + base64.urlsafe_b64encode(json.dumps(steps).encode()).decode() + ";"


def heard(text):
    """Returns the newest order in a text, and the number of the newest token that it says was handed on.

    A text may be the past that the team tells an agent without history, with the agent's calls and their results.
    """
    orders, held, passed = None, 0, 0
    for line in text.splitlines():
        if line.startswith("you called "):
            continue
        if found := re.findall(r"(?:TOKEN-(\d+) )?do:([A-Za-z0-9_=-]+);", line):
            held, orders = int(found[-1][0] or 0), json.loads(base64.urlsafe_b64decode(found[-1][1]))
        if line.startswith(f"its result: {SENT}") and held:
            passed = held + 1
        passed = max([passed, *map(int, re.findall(r"passed TOKEN-(\d+)", line))])
    return orders, passed


def passing(number, last, names):
    """Returns the send that hands the token of this number on: to the next name, or after the last one to the lead."""
    if number == last:
        return ["send", "lead", f"TOKEN-{number + 1}"]
    steps = [["run", "sleep 1"], ["pass", number + 1, last, names]]
    return ["send", names[number % len(names)], f"TOKEN-{number + 1} {order(steps)}"]


class Conversation:
    """A request in the same terms for all endpoints."""

    def __init__(self):
        self.items = []      # ("text", role, text), ("call", id, name, arguments), ("result", id, text)
        self.tools = {}      # the names by which tools are called -> (name, namespace, definition)
        self.bad = []        # the violations

    def text(self, role, text):
        self.items.append(("text", role, text if isinstance(text, str) else json.dumps(text)))

    def call(self, call, name, arguments):
        self.items.append(("call", call, name, arguments if isinstance(arguments, str) else json.dumps(arguments)))

    def result(self, call, output):
        self.items.append(("result", call, output if isinstance(output, str) else json.dumps(output)))

    def check(self):
        """Every call has one result, before the model speaks again."""
        is_open, seen = [], set()
        for kind, first, *rest in self.items:
            if kind == "call":
                if first in seen:
                    self.bad.append(f"the call {first} is told twice")
                seen.add(first)
                is_open.append(first)
            elif kind == "result":
                if first not in is_open:
                    self.bad.append(f"a result of {first}, which is no open call")
                else:
                    is_open.remove(first)
            elif first == "assistant" and is_open:
                self.bad.append(f"the model speaks before the result of {is_open[0]}")
        if is_open:
            self.bad.append(f"no result of {is_open[0]}")
        if not self.items:
            self.bad.append("an empty conversation")


class Decision:
    """The next words or the next call. The steps: ["run", COMMAND], ["write", PATH, TEXT], ["send", NAME, TEXT],
    ["wait"] for mail, ["team"] for the list of members, ["spawn", ARGUMENTS], ["pass", NUMBER, LAST, NAMES] (see
    passing)."""

    def __init__(self, told, number):
        self.id = f"call_{number}"
        self.name = self.namespace = self.arguments = None
        self.is_turn = any(self.find(told, names) for names in [SHELLS, ["send_message"]])
        self.text, self.has_order, self.pause_s = "Title", False, 0
        if self.is_turn:
            self.decide(told)

    @staticmethod
    def find(told, names):
        for name in names:
            for known, (own, namespace, definition) in told.tools.items():
                is_own = known == name or (name in TEAM_TOOLS and known.endswith(name))
                if is_own:
                    return own, namespace, definition
        return None

    def decide(self, told):
        orders, done, failed, calls, marks, passed = [], 0, 0, {}, [], 0
        for kind, first, *rest in told.items:
            if kind == "call":
                calls[first] = rest
                continue
            name, arguments = calls.get(first, ("", ""))
            text, token = rest[-1], re.search(r"TOKEN-(\d+)", arguments)
            if kind == "result" and token and SENT not in text:
                failed += 1
            elif kind == "result" and name not in SEARCHES:
                passed = max(passed, int(token[1]) if token else 0)
                done += 1
            found, handed_on = heard(text)
            if found and first != "assistant":
                orders, done, failed = found, 0, 0
            marks += [mark for mark in re.findall(r"MARK-[a-z0-9]+", text) if mark not in marks]
            passed = max(passed, handed_on)
        self.has_searched = any(name in SEARCHES for name, _ in calls.values())
        asides = ["SUGGESTION MODE", "Managed memory"]
        self.has_order = bool(orders) and not any(aside in str(told.items[-1]) for aside in asides)
        is_old = any(step[0] == "pass" and step[1] < passed for step in orders)
        if done < len(orders) and not is_old and failed < TRIES:
            step = orders[done]
            self.take(told, passing(*step[1:]) if step[0] == "pass" else step)
            self.pause_s = THINKING_S if failed else 0
        else:
            self.text = " ".join(["done", *([f"passed TOKEN-{passed}"] if passed else []), *marks])

    def take(self, told, step):
        kind, *values = step
        served = {"send": "send_message", "wait": "check_inbox", "team": "list_teammates",
                  "spawn": "spawn_teammate"}.get(kind)
        tool = self.find(told, {"run": SHELLS, "write": WRITERS}.get(kind, [served]))
        if tool is None and self.find(told, SEARCHES):
            kind = "deferred" if self.has_searched and self.find(told, ["tool_call"]) else "search"
            tool = self.find(told, ["tool_call"] if kind == "deferred" else SEARCHES)
        if tool is None and kind == "write":
            tool, kind = self.find(told, SHELLS), "run"
            values = [f"printf %s '{values[1]}' > {values[0]}"]
        if tool is None:
            self.text = f"done: there is no tool for {kind}"
            return
        self.name, self.namespace, definition = tool
        known = json.dumps(definition)
        has = lambda key: f'"{key}"' in known
        if kind == "run":
            self.arguments = {"cmd" if has("cmd") else "command": values[0]}
            for key, value in [("description", "a step of the order"), ("is_background", False)]:
                if has(key):
                    self.arguments[key] = value
            if has("sandbox_permissions"):
                self.arguments |= {"sandbox_permissions": "require_escalated", "justification": "the order"}
            if has("yield_time_ms"):
                self.arguments["yield_time_ms"] = 30000
        elif kind == "write":
            path, text = values
            if self.name == "apply_patch":
                self.arguments = f"*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\n"
                return
            keys = [key for key in ["file_path", "filePath", "path"] if has(key)]
            texts = [key for key in ["content", "file_text"] if has(key)]
            self.arguments = {keys[0]: path, texts[0]: text}
        elif kind == "search":
            self.arguments = {"query": f"select:{TEAM_TOOL}{served}"}
        else:
            arguments = {"send_message": lambda: {"to": values[0], "content": values[1]},
                         "check_inbox": lambda: {"wait_seconds": 45}, "list_teammates": dict,
                         "spawn_teammate": lambda: values[0]}[served]()
            self.arguments = {"name": TEAM_TOOL + served, "arguments": arguments} if kind == "deferred" else arguments


def plain(content):
    """Returns the text of a content that is a text or a list of parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))


def read_messages(body, agent):
    told = Conversation()
    for tool in body.get("tools", []):
        told.tools[tool["name"]] = (tool["name"], None, tool)
    if not body.get("max_tokens"):
        told.bad.append("max_tokens is missing")
    for message in body.get("messages", []):
        role, content = message["role"], message["content"]
        # The adapter of Claude Code may send further instructions as messages of the system.
        if role not in ("user", "assistant") and not (role == "system" and agent == "claude"):
            told.bad.append(f"the role {role}")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            told.bad.append("an empty message")
        texts_before_result = False
        for block in blocks:
            if block["type"] == "text":
                if not block["text"]:
                    told.bad.append("an empty text")
                texts_before_result = True
                told.text(role, block["text"])
            elif block["type"] == "tool_use":
                told.call(block["id"], block["name"], block["input"])
            elif block["type"] == "tool_result":
                if texts_before_result:
                    told.bad.append("a text before a result")
                told.result(block["tool_use_id"], plain(block.get("content")))
    return told


def read_chat(body, _agent):
    told = Conversation()
    for tool in body.get("tools", []):
        told.tools[tool["function"]["name"]] = (tool["function"]["name"], None, tool["function"])
    for message in body.get("messages", []):
        if message["role"] == "tool":
            told.result(message["tool_call_id"], plain(message["content"]))
            continue
        if message["role"] not in ("system", "developer", "user", "assistant"):
            told.bad.append(f"the role {message['role']}")
        if plain(message.get("content")):
            told.text(message["role"], plain(message["content"]))
        for call in message.get("tool_calls") or []:
            told.call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
    return told


def read_responses(body, _agent):
    told = Conversation()
    for tool in body.get("tools", []):
        if tool["type"] == "namespace":
            for inner in tool["tools"]:
                told.tools[inner["name"]] = (inner["name"], tool["name"], inner)
        elif "name" in tool:
            told.tools[tool["name"]] = (tool["name"], None, tool)
    for item in body.get("input", []):
        kind = item.get("type", "message")
        if kind == "message":
            told.text(item["role"], plain(item["content"]))
        elif kind in ("function_call", "custom_tool_call"):
            told.call(item["call_id"], item["name"], item.get("arguments") or item.get("input") or "")
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = item["output"]
            told.result(item["call_id"], output if isinstance(output, str) else plain(output))
        elif kind not in ("reasoning", "additional_tools"):
            told.bad.append(f"the item {kind}")
    return told


def read_gemini(body, _agent):
    told = Conversation()
    for group in body.get("tools", []):
        for tool in group.get("functionDeclarations", []):
            told.tools[tool["name"]] = (tool["name"], None, tool)
    count, is_open = 0, []
    for content in body.get("contents", []):
        role = {"model": "assistant"}.get(content.get("role"), "user")
        for part in content["parts"]:
            if "functionCall" in part:
                count += 1
                is_open.append((f"{part['functionCall']['name']}-{count}", part["functionCall"]["name"]))
                told.call(*is_open[-1], part["functionCall"].get("args", {}))
            elif "functionResponse" in part:
                name = part["functionResponse"]["name"]
                found = [call for call in is_open if call[1] == name] or [(name, name)]
                if found[0] in is_open:
                    is_open.remove(found[0])
                told.result(found[0][0], part["functionResponse"]["response"])
            elif part.get("text"):
                told.text(role, part["text"])
    return told


def example(schema):
    """Returns a value that fits a JSON schema."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "")).lower()
    if kind == "object":
        wanted = schema.get("required", schema.get("properties", {}))
        return {key: example(schema.get("properties", {}).get(key, {})) for key in wanted}
    return {"array": [], "number": 1, "integer": 1, "boolean": False}.get(kind, "x")


def events(pairs):
    return "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in pairs)


def write_messages(body, said):
    block = {"type": "text", "text": said.text}
    if said.name:
        block = {"type": "tool_use", "id": said.id, "name": said.name, "input": said.arguments}
    reason = "tool_use" if said.name else "end_turn"
    usage = {"input_tokens": IN_TOKENS, "output_tokens": OUT_TOKENS,
             "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message = {"id": f"msg_{said.id}", "type": "message", "role": "assistant", "model": body.get("model", "m"),
               "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        return "application/json", json.dumps(message)
    if said.name:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
    else:
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": said.text}
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    return "text/event-stream", events([
        ("message_start", {"message": start}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None},
                           "usage": {"output_tokens": OUT_TOKENS}}),
        ("message_stop", {})])


def write_chat(body, said):
    message = {"role": "assistant", "content": said.text if not said.name else None}
    if said.name:
        function = {"name": said.name, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"index": 0, "id": said.id, "type": "function", "function": function}]
    reason = "tool_calls" if said.name else "stop"
    usage = {"prompt_tokens": IN_TOKENS, "completion_tokens": OUT_TOKENS, "total_tokens": IN_TOKENS + OUT_TOKENS}
    head = {"id": f"chat-{said.id}", "created": 1, "model": body.get("model", "m")}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return "application/json", json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    head["object"] = "chat.completion.chunk"
    chunks = [{**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
              {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
              {**head, "choices": [], "usage": usage}]
    return "text/event-stream", "".join(f"data: {json.dumps(it)}\n\n" for it in chunks) + "data: [DONE]\n\n"


def write_responses(_body, said):
    if not said.name:
        content = [{"type": "output_text", "text": said.text}]
        item = {"type": "message", "role": "assistant", "id": f"m-{said.id}", "content": content}
    elif isinstance(said.arguments, str):
        item = {"type": "custom_tool_call", "id": f"f-{said.id}", "call_id": said.id, "name": said.name,
                "input": said.arguments}
    else:
        item = {"type": "function_call", "id": f"f-{said.id}", "call_id": said.id, "name": said.name,
                "arguments": json.dumps(said.arguments)}
        if said.namespace:
            item["namespace"] = said.namespace
    usage = {"input_tokens": IN_TOKENS, "input_tokens_details": None, "output_tokens": OUT_TOKENS,
             "output_tokens_details": None, "total_tokens": IN_TOKENS + OUT_TOKENS}
    return "text/event-stream", events([
        ("response.created", {"response": {"id": f"r-{said.id}"}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {"id": f"r-{said.id}", "usage": usage}})])


def write_gemini(body, said):
    part = {"text": said.text}
    config = body.get("generationConfig", {})
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    if schema and not said.name:
        part = {"text": json.dumps(example(schema))}
    if said.name:
        part = {"functionCall": {"name": said.name, "args": said.arguments}}
    usage = {"promptTokenCount": IN_TOKENS, "candidatesTokenCount": OUT_TOKENS,
             "totalTokenCount": IN_TOKENS + OUT_TOKENS}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": usage}
    return "application/json", json.dumps(answer)


def dialect(path):
    """Returns the reader and the writer of the endpoint of a path."""
    if path.endswith("/messages"):
        return read_messages, write_messages
    if path.endswith("/chat/completions"):
        return read_chat, write_chat
    if path.endswith("/responses"):
        return read_responses, write_responses
    if path.endswith(("generateContent", "streamGenerateContent")):
        return read_gemini, write_gemini
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_file, lock, count = None, threading.Lock(), 0

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # The agent has been killed.

    def answer(self, code, kind, text):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            if self.command != "HEAD":
                self.wfile.write(data)
        except OSError:
            pass  # The agent has been killed.

    def do_GET(self):
        self.answer(200, "application/json", '{"object":"list","models":[],"data":[]}')

    do_HEAD = do_GET

    def do_POST(self):
        path = self.path.split("?")[0]
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.endswith(("count_tokens", "countTokens")):
            return self.answer(200, "application/json", '{"input_tokens":10,"totalTokens":10}')
        found = dialect(path)
        if found is None:
            return self.answer(404, "application/json", "{}")
        read, write = found
        body, agent = json.loads(data), path.split("/")[1]
        told = read(body, agent)
        told.check()
        with self.lock:
            Handler.count += 1
            said = Decision(told, Handler.count)
            line = {"agent": agent, "order": said.has_order, "bad": told.bad, "call": said.name,
                    "arguments": said.arguments, "text": said.text if not said.name else None,
                    "tools": sorted(told.tools), "items": told.items[-4:]}
            self.log_file.write(json.dumps(line) + "\n")
            self.log_file.flush()
        time.sleep(said.pause_s)
        if told.bad:
            error = {"type": "invalid_request_error", "message": told.bad[0]}
            return self.answer(400, "application/json", json.dumps({"type": "error", "error": error}))
        kind, text = write(body, said)
        if path.endswith("streamGenerateContent"):
            kind, text = "text/event-stream", f"data: {text}\n\n"
        return self.answer(200, kind, text)


def main():
    Handler.log_file = open(sys.argv[1], "a")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
