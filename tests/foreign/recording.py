"""Cuts the record of an agent's messages down to the part that a test replays (tests/support/acp_replay.py)."""

import json

# Reports that hold texts of the vendor or of the prompt, or nothing that is used here.
LEFT_OUT = ["available_commands_update", "config_option_update", "session_info_update", "agent_thought_chunk"]
# The parts of an answer or a report that are kept.
KEPT = {"protocolVersion", "agentInfo", "agentCapabilities", "sessionId", "modes", "configOptions", "stopReason", "usage",
        "_meta"}
LONGEST = 400


def short(value):
    """Returns a value without long texts."""
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items() if key not in ("description", "authMethods")}
    if isinstance(value, list):
        return [short(inner) for inner in value]
    return value[:LONGEST] if isinstance(value, str) else value


def cut(direction, message):
    """Returns a message as it is kept; `None` to leave it out."""
    if direction == ">":
        # The method of a call, or the whole answer to one of the agent.
        return {key: message[key] for key in ("method", "id", "result", "error") if key in message}
    params = message.get("params")
    if message.get("method") == "session/update" and params["update"]["sessionUpdate"] in LEFT_OUT:
        return None
    if "method" in message and not message["method"].startswith(("session/", "craft/", "fs/")):
        return None
    if isinstance(message.get("result"), dict):
        result = {key: value for key, value in message["result"].items() if key in KEPT}
        if "configOptions" in result:
            result["configOptions"] = [it for it in result["configOptions"] if it.get("category") == "mode"]
        if "sessionId" in result or "protocolVersion" in result:
            result.pop("_meta", None) if "sessionId" in result else None
        message = {**message, "result": result}
    return short(message)


def trim(raw, target, home):
    """Writes the record of one session with normal names."""
    lines, session = [], None
    for line in raw.read_text().splitlines():
        direction, text = json.loads(line)
        try:
            message = json.loads(text)
        except ValueError:
            continue
        result = message.get("result")
        if direction == "<" and session is None and isinstance(result, dict):
            session = result.get("sessionId")
        kept = cut(direction, message)
        if kept is not None:
            text = json.dumps([direction, kept])
            text = text.replace(session, "session-1") if session else text
            text = text.replace(f"{home}/work", "WORKSPACE").replace(str(home)[1:] + "/work", "WORKSPACE")
            lines.append(text.replace(str(home), "HOME"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
