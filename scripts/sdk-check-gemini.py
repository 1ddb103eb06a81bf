"""Google's official SDK talks to the tests' fake server; tests/it/provider/sdk.rs programs the replies by model name."""

import sys

from google import genai
from google.genai import errors, types

client = genai.Client(
    api_key="sdk-key",
    http_options=types.HttpOptions(base_url=sys.argv[1], api_version="v1beta"),
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(name=name, description="Runs a command.", parameters_json_schema=SCHEMA)
            for name in ["bash", "idle"]
        ]
    )
]
CONFIG = types.GenerateContentConfig(
    system_instruction="You are alice.",
    max_output_tokens=9000,
    tools=TOOLS,
    tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="AUTO")),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    thinking_config=types.ThinkingConfig(thinking_level="LOW", include_thoughts=True),
)


def create(model, contents="hi", config=None):
    return client.models.generate_content(model=model, contents=contents, config=config)


def stream(model, contents="hi", config=None):
    return list(client.models.generate_content_stream(model=model, contents=contents, config=config))


def plain():
    answer = create("gemini-3-text")
    assert answer.text == "hello from the fake", answer
    candidate = answer.candidates[0]
    assert candidate.finish_reason == types.FinishReason.STOP, candidate
    assert candidate.content.role == "model", candidate
    assert candidate.content.parts[-1].thought_signature, candidate
    usage = answer.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count) == (11, 7, 18), usage
    assert answer.model_version == "gemini-3-text", answer


def checked_calls(parts):
    text = "".join(part.text for part in parts if part.text and not part.thought)
    thoughts = "".join(part.text for part in parts if part.text and part.thought)
    assert (text, thoughts) == ("I look around.", "hm, ünïcode"), parts
    first, second = [part for part in parts if part.function_call]
    assert (first.function_call.id, first.function_call.name) == ("call-1", "bash"), first
    assert first.function_call.args == {"command": "ls 🦀"}, first
    assert (second.function_call.id, second.function_call.name) == ("call-2", "idle"), second
    assert first.thought_signature and not second.thought_signature, "only the first call is signed"


def round_trip(parts, asked):
    checked_calls(parts)
    responses = [
        types.Part(function_response=types.FunctionResponse(id=part.function_call.id, name=part.function_call.name,
                                                            response={"output": "a.txt"}))
        for part in parts if part.function_call
    ]
    history = [
        types.Content(role="user", parts=[types.Part(text="hi")]),
        types.Content(role="model", parts=parts),
        types.Content(role="user", parts=responses),
    ]
    assert asked("gemini-3-tools", history, CONFIG) == "there is a.txt"
    # The fake notices that a signature is missing.
    for part in parts:
        part.thought_signature = None
    try:
        asked("gemini-3-tools", history, CONFIG)
    except errors.ClientError as error:
        assert error.code == 400 and "thought_signature" in error.message, error
    else:
        raise AssertionError("a call without its signature was taken")


def calls_in_one_body():
    answer = create("gemini-3-tools", config=CONFIG)
    assert len(answer.function_calls) == 2, answer
    round_trip(answer.candidates[0].content.parts, lambda *asked: create(*asked).text)


def calls_in_a_stream():
    chunks = stream("gemini-3-tools", config=CONFIG)
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or [] if part.text != ""]
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP, chunks[-1]
    assert len(chunks) > 5, "the stream has one chunk for each piece"
    said = lambda *asked: "".join(chunk.text or "" for chunk in stream(*asked))
    round_trip(parts, said)


def a_chat():
    chat = client.chats.create(model="gemini-3-chat", config=CONFIG)
    assert chat.send_message("hi").text == "hello from the fake"
    assert chat.send_message("more").text == "turn 1"


def crlf_and_single_bytes():
    assert "".join(chunk.text or "" for chunk in stream("gemini-3-bytes")) == "byte by byte ✓"


def api_errors():
    for model, kind, status in [
        ("error-400", errors.ClientError, "INVALID_ARGUMENT"),
        ("error-403", errors.ClientError, "PERMISSION_DENIED"),
        ("error-404", errors.ClientError, "NOT_FOUND"),
        ("error-429", errors.ClientError, "RESOURCE_EXHAUSTED"),
        ("error-500", errors.ServerError, "INTERNAL"),
        ("error-503", errors.ServerError, "UNAVAILABLE"),
    ]:
        for asked in [create, stream]:
            try:
                asked(model)
            except kind as error:
                assert (error.code, error.status, error.message) == (int(model[-3:]), status, "as asked"), error
                assert error.details["error"]["details"][0]["retryDelay"] == "0.5s", error.details
            else:
                raise AssertionError(f"{model} raised nothing")


def error_after_200():
    try:
        stream("gemini-3-late-error")
    except errors.ServerError as error:
        assert (error.code, error.status) == (503, "UNAVAILABLE"), error
    else:
        raise AssertionError("an error in mid-stream raised nothing")


def cut():
    try:
        stream("gemini-3-cut")
    except Exception as error:
        assert type(error).__module__.split(".")[0].startswith(("httpx", "httpcore", "google")), repr(error)
    else:
        raise AssertionError("a cut stream raised nothing")


def blocked():
    answer = create("gemini-3-blocked")
    assert answer.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT, answer
    assert not answer.candidates, answer
    halted = create("gemini-3-safety")
    assert halted.candidates[0].finish_reason == types.FinishReason.SAFETY, halted


def listed():
    models = {model.name: model.supported_actions for model in client.models.list()}
    assert "generateContent" in models["models/gemini-3-fake"], models


def refused():
    config = types.GenerateContentConfig(http_options=types.HttpOptions(extra_body={"novelty": 1}))
    try:
        create("gemini-3-text", config=config)
    except errors.ClientError as error:
        assert error.code == 400 and "novelty" in error.message, error
    else:
        raise AssertionError("an unknown field was taken")


for check in [plain, calls_in_one_body, calls_in_a_stream, a_chat, crlf_and_single_bytes, api_errors,
              error_after_200, cut, blocked, listed, refused]:
    check()
    print("ok:", check.__name__)
