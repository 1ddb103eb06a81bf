"""The official SDK talks to the tests' fake server; tests/it/provider/sdk.rs programs the replies by model name."""

import sys

import anthropic

client = anthropic.Anthropic(api_key="sdk-key", base_url=sys.argv[1], max_retries=2)
TOOL = {
    "name": "bash",
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


def ask(model, **more):
    messages = more.pop("messages", [{"role": "user", "content": "hi"}])
    return dict(model=model, max_tokens=100, messages=messages, **more)


def create():
    message = client.messages.create(**ask("text"))
    assert message.content[0].text == "hello from the fake", message
    assert (message.stop_reason, message.role, message.type) == ("end_turn", "assistant", "message")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7), message.usage


def stream_with_tools():
    with client.messages.stream(**ask("tools", tools=[TOOL])) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "I look around.", text
    thinking, said, call = message.content
    assert (thinking.thinking, thinking.signature) == ("hm, ünïcode", "c2ln"), thinking
    assert said.text == text
    assert (call.id, call.name, call.input) == ("call-1", "bash", {"command": "ls 🦀"}), call
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == 7, message.usage
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a.txt"}]},
    ]
    final = client.messages.create(**ask("tools", tools=[TOOL], messages=history))
    assert final.content[0].text == "there is a.txt", final


def crlf_and_single_bytes():
    with client.messages.stream(**ask("bytes")) as stream:
        assert stream.get_final_text() == "byte by byte ✓"


def retried():
    assert client.messages.create(**ask("limited")).content[0].text == "after the limit"


def errors():
    for model, kind in [
        ("error-400", anthropic.BadRequestError),
        ("error-401", anthropic.AuthenticationError),
        ("error-403", anthropic.PermissionDeniedError),
        ("error-404", anthropic.NotFoundError),
        ("error-429", anthropic.RateLimitError),
        ("error-529", anthropic.InternalServerError),
    ]:
        try:
            client.with_options(max_retries=0).messages.create(**ask(model))
        except kind as error:
            assert str(error.status_code) == model[-3:], error
            assert error.body["error"]["message"] == "as asked", error.body
            assert error.body["request_id"].startswith("req_fake_"), error.body
        else:
            raise AssertionError(f"{model} raised nothing")


def error_after_200():
    try:
        with client.messages.stream(**ask("late-error")) as stream:
            stream.get_final_message()
    except anthropic.APIStatusError as error:
        assert "overloaded_error" in str(error), error
    else:
        raise AssertionError("an error event raised nothing")


def cut():
    try:
        with client.messages.stream(**ask("cut")) as stream:
            stream.get_final_message()
    except Exception as error:
        assert type(error).__module__.split(".")[0].startswith(("httpx", "httpcore", "anthropic")), repr(error)
    else:
        raise AssertionError("a cut stream raised nothing")


def refused():
    try:
        client.messages.create(**ask("text", extra_body={"temperature": 1.0}))
    except anthropic.BadRequestError as error:
        assert "temperature" in str(error), error
    else:
        raise AssertionError("a sampling parameter was taken")


for check in [create, stream_with_tools, crlf_and_single_bytes, retried, errors, error_after_200, cut, refused]:
    check()
    print("ok:", check.__name__)
