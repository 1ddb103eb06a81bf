"""The official SDK talks to the tests' fake server; tests/it/provider/sdk.rs programs the replies by model name."""

import json
import sys

import openai

client = openai.OpenAI(api_key="sdk-key", base_url=sys.argv[1] + "/v1", max_retries=2)
TOOL = {
    "type": "function",
    "name": "bash",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}
STATELESS = dict(store=False, include=["reasoning.encrypted_content"])


def create():
    response = client.responses.create(model="text", input="hi", instructions="Be kind.", store=False)
    assert response.output_text == "hello from the fake", response
    assert (response.status, response.object, response.error) == ("completed", "response", None)
    type(response).model_validate(response.model_dump())
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18), usage
    assert usage.output_tokens_details.reasoning_tokens == 0, usage


def stream():
    events = list(client.responses.create(model="text", input="hi", store=False, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert [event.sequence_number for event in events] == list(range(len(events)))
    # Each event has a type of its own in the SDK, with the fields that it must have.
    for event in events:
        type(event).model_validate(event.model_dump())
        assert type(event).__name__ != "BaseModel", event
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text == "hello from the fake", said


def look(**more):
    with client.responses.stream(model="tools", tools=[TOOL], **STATELESS, **more) as stream:
        kinds = [event.type for event in stream]
        return kinds, stream.get_final_response()


def round_trip(first):
    reasoning, said, call = first.output
    assert (reasoning.type, reasoning.summary[0].text) == ("reasoning", "hm, ünïcode"), reasoning
    assert reasoning.encrypted_content, reasoning
    assert (said.content[0].text, said.phase) == ("I look around.", "commentary"), said
    assert (call.type, call.call_id, call.name) == ("function_call", "call-1", "bash"), call
    assert json.loads(call.arguments) == {"command": "ls 🦀"}, call
    history = [{"role": "user", "content": "hi"}]
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"})
    final = client.responses.create(model="tools", input=history, tools=[TOOL], **STATELESS)
    assert final.output_text == "there is a.txt", final


def stream_with_tools():
    kinds, first = look(input="hi")
    for kind in [
        "response.reasoning_summary_text.delta",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]:
        assert kind in kinds, (kind, kinds)
    round_trip(first)


def plain_with_tools():
    round_trip(client.responses.create(model="tools", input="hi", tools=[TOOL], **STATELESS))


def reasoning_is_encrypted_only_if_it_is_asked_for():
    response = client.responses.create(model="tools", input="hi", tools=[TOOL], store=False)
    assert response.output[0].encrypted_content is None, response.output[0]


def crlf_and_single_bytes():
    events = client.responses.create(model="bytes", input="hi", store=False, stream=True)
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == "byte by byte ✓", said


def incomplete():
    for stream in [False, True]:
        response = client.responses.create(model="short", input="hi", store=False, stream=stream)
        if stream:
            response = list(response)[-1]
            assert response.type == "response.incomplete", response
            response = response.response
        assert response.status == "incomplete", response
        assert response.incomplete_details.reason == "max_output_tokens", response


def refusal():
    response = client.responses.create(model="refusal", input="hi", store=False)
    part = response.output[0].content[0]
    assert (part.type, part.refusal) == ("refusal", "No."), response


def retried():
    response = client.responses.create(model="limited", input="hi", store=False)
    assert response.output_text == "after the limit", response


def errors():
    for model, kind in [
        ("error-400", openai.BadRequestError),
        ("error-401", openai.AuthenticationError),
        ("error-403", openai.PermissionDeniedError),
        ("error-404", openai.NotFoundError),
        ("error-429", openai.RateLimitError),
        ("error-500", openai.InternalServerError),
    ]:
        try:
            client.with_options(max_retries=0).responses.create(model=model, input="hi", store=False)
        except kind as error:
            assert str(error.status_code) == model[-3:], error
            assert (error.body["message"], error.code) == ("as asked", "some_error"), error.body
        else:
            raise AssertionError(f"{model} raised nothing")


def errors_after_200():
    [error] = [
        event
        for event in client.responses.create(model="late-error", input="hi", store=False, stream=True)
        if event.type == "error"
    ]
    assert (error.code, error.message) == ("server_error", "in mid-stream"), error
    *_, last = client.responses.create(model="failed", input="hi", store=False, stream=True)
    assert (last.type, last.response.status) == ("response.failed", "failed"), last
    assert last.response.error.code == "server_error", last
    whole = client.responses.create(model="failed", input="hi", store=False)
    assert (whole.status, whole.error.code) == ("failed", "server_error"), whole


def cut():
    try:
        list(client.responses.create(model="cut", input="hi", store=False, stream=True))
    except Exception as error:
        assert type(error).__module__.split(".")[0].startswith(("httpx", "httpcore", "openai")), repr(error)
    else:
        raise AssertionError("a cut stream raised nothing")


def refused():
    call = {"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"}
    for more, word in [
        (dict(input="hi", extra_body={"max_tokens": 5}), "max_tokens"),
        (dict(input=[{"role": "user", "content": "hi"}, call]), "No tool output found"),
    ]:
        try:
            client.responses.create(model="text", store=False, **more)
        except openai.BadRequestError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{word}: it was taken")


for check in [
    create,
    stream,
    stream_with_tools,
    plain_with_tools,
    reasoning_is_encrypted_only_if_it_is_asked_for,
    crlf_and_single_bytes,
    incomplete,
    refusal,
    retried,
    errors,
    errors_after_200,
    cut,
    refused,
]:
    check()
    print("ok:", check.__name__)
