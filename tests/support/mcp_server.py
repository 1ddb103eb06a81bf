"""An MCP server that does what its tools are told: for the tests of the client.

It speaks the versions of the protocol with a handshake, over standard input and output, and needs nothing but Python.
Arguments: NAME=VALUE pairs.
  tools=FILE        a JSON list of further tools; read at each tools/list
  start=WORD        garbage (text before the first message), exit, silent, error, long (a line of 20 MB), modern
  http=FILE         serves HTTP instead; see Endpoint
  end=WORD          ignore (the end of its input does not end it), child (it leaves a child behind)
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import time

OPTIONS = dict(argument.split("=", 1) for argument in sys.argv[1:])
START, END = OPTIONS.get("start"), OPTIONS.get("end")
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name, description, schema=TEXT, **annotations):
    entry = {"name": name, "description": description, "inputSchema": schema}
    if annotations:
        entry["annotations"] = annotations
    return entry


TOOLS = [
    tool("echo", "Returns its text."),
    tool("look", "Returns its text, and changes nothing.", readOnlyHint=True),
    tool("env", "Returns the value of a variable."),
    tool("folder", "Returns its folder."),
    tool("write", "Writes a file of this name."),
    tool("big", "Returns so many characters."),
    tool("image", "Returns an image."),
    tool("fail", "Fails with its text."),
    tool("refuse", "Refuses the call."),
    tool("slow", "Answers after so many seconds."),
    tool("progress", "Answers after so many quarters of a second, with progress in between."),
    tool("die", "Ends in the call."),
    tool("garbage", "Writes text between its messages, then answers."),
    tool("long", "Writes a line of 20 MB."),
    tool("forged", "Answers calls that were not made, then this one."),
    tool("flood", "Writes so many notifications, then answers."),
    tool("unknown", "Returns its text, and a block of a kind that nobody knows."),
    tool("odd", "Returns something that is no result."),
    tool("pid", "Returns its process id."),
]


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def result(number, value):
    say({"jsonrpc": "2.0", "id": number, "result": value})


def error(number, code, message):
    say({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def call(number, params):
    name, given = params["name"], (params.get("arguments") or {}).get("text", "")
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "env":
        return text(os.environ.get(given, "(not set)"))
    if name == "folder":
        return text(os.getcwd())
    if name == "write":
        with open(given, "w") as file:
            file.write("by the server\n")
        return text("wrote " + given)
    if name == "big":
        return text("x" * int(given))
    if name == "image":
        return {"content": [{"type": "image", "data": "A" * 16000, "mimeType": "image/png"}]}
    if name == "fail":
        return {"content": text(given)["content"], "isError": True}
    if name == "refuse":
        return error(number, -32602, "that is not how it works")
    if name == "slow":
        time.sleep(float(given))
    if name == "progress":
        for step in range(int(given)):
            time.sleep(0.25)
            progress = {"progressToken": token, "progress": step}
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
    if name == "die":
        print("fatal: the disk is on fire", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "garbage":
        sys.stdout.write("not json\n\n{\"half\": \n\x1b[31m\xff{}\n[]\n")
    if name == "long":
        sys.stdout.write("{" + "x" * 20_000_000 + "\n")
        sys.stdout.flush()
        time.sleep(30)
    if name == "forged":
        for forged in (number + 7, "x", None):
            result(forged, text("forged"))
    if name == "flood":
        for _ in range(int(given)):
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}})
    if name == "unknown":
        return {"content": [{"type": "hologram", "data": "x"}] + text(given)["content"]}
    if name == "odd":
        return {"content": "answer: " + given}
    if name == "pid":
        return text(str(os.getpid()))
    return text("answer: " + given)


def tools():
    more = []
    if "tools" in OPTIONS:
        with open(OPTIONS["tools"]) as file:
            more = json.load(file)
    return TOOLS + more if OPTIONS.get("only") is None else more


def answer_to(message):
    """Returns the result of a request; None if it is answered already, or not at all."""
    number, method = message.get("id"), message.get("method")
    if START == "silent" or number is None:
        return None
    about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "scripted", "version": "1"}}
    if method == "initialize":
        if START == "error":
            return error(number, -32000, "no licence")
        if START == "modern":
            return error(number, -32022, "there is no handshake")
        return dict(about, protocolVersion=message["params"]["protocolVersion"])
    if method == "server/discover" and START == "modern":
        return dict(about, supportedVersions=["2026-07-28"], **MODERN)
    if method == "tools/list":
        return dict({"tools": tools()}, **(MODERN if START == "modern" else {}))
    if method == "tools/call":
        return call(number, message["params"])
    return error(number, -32601, "unknown method " + str(method))


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        answer = answer_to(message)
        if answer is not None:
            result(message["id"], answer)


class Endpoint(http.server.BaseHTTPRequestHandler):
    """The same over HTTP: option http=FILE gets the port; auth=TOKEN is asked for; sse=yes answers with events."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "auth" in OPTIONS and self.headers.get("Authorization") != "Bearer " + OPTIONS["auth"]:
            return self.reply(401, WWW_Authenticate="Bearer")
        message = json.loads(body)
        is_first = message.get("method") == "initialize"
        if not is_first and self.headers.get("Mcp-Session-Id") != "session-1":
            return self.reply(404)
        answer = answer_to(message)
        if answer is None:
            return self.reply(202)
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        session = {"Mcp_Session_Id": "session-1"} if is_first else {}
        if "sse" in OPTIONS:
            text = "event: message\ndata: " + text + "\n\n"
            return self.reply(200, text.encode(), Content_Type="text/event-stream", **session)
        return self.reply(200, text.encode(), Content_Type="application/json", **session)


if "http" in OPTIONS:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    with open(OPTIONS["http"] + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(OPTIONS["http"] + ".new", OPTIONS["http"])
    server.serve_forever()
print("the scripted server has started", file=sys.stderr, flush=True)
if START == "exit":
    print("usage: server [--port PORT]")
    print("error: no port", file=sys.stderr)
    sys.exit(2)
if START == "garbage":
    print("Welcome!\nloading …", flush=True)
if START == "long":
    print("x" * 20_000_000, flush=True)
if END == "child":
    subprocess.Popen(["sleep", "600"])
if END == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
serve()
if END == "ignore":
    time.sleep(600)
