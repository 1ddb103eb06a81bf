//! The client of the Gemini API against the fake endpoint: requests, signatures, replies, retries, and every fault.

use crate::support::fake::{self, Fake, Reply};
use agent_team::llm::retry::RetryPolicy;
use agent_team::llm::{
    Api, CallLimits, Client, ClientConfig, ConfigError, Credentials, Delta, ModelError, Provider,
    Secret,
};
use agent_team::wire::chat::{
    Block, ChatMessage, Reply as Answer, Request, Role, StopReason, Thinking, ToolDefinition,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

const CANARY: &str = "canary-key-0123456789";

/// A model that signs its calls, and one that does not.
const SIGNING: &str = "gemini-3-fake";
const PLAIN: &str = "gemini-2.5-fake";

/// A check of an error's kind.
type Fits = fn(&ModelError) -> bool;

/// A retry policy without waits.
const AT_ONCE: RetryPolicy = RetryPolicy {
    tries: 10,
    within: Duration::from_secs(600),
    first: Duration::ZERO,
    longest: Duration::ZERO,
    longest_overloaded: Duration::ZERO,
};

fn config(fake: &Fake, model: &str) -> ClientConfig {
    let key = Credentials::ApiKey(Secret::new(CANARY).unwrap());
    let config = ClientConfig::new(Api::Gemini, &fake.base_url(), key, model);
    ClientConfig { retry: AT_ONCE, ..config }
}

fn client(fake: &Fake, model: &str) -> Client {
    Client::new(config(fake, model)).unwrap()
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input }
}

fn result(id: &str, content: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error }
}

fn request() -> Request {
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let tool = |name: &str| ToolDefinition {
        name: name.into(),
        description: "Runs a command.".into(),
        input_schema: schema.clone(),
    };
    Request {
        system: "You are alice.".into(),
        messages: vec![ChatMessage { role: Role::User, blocks: vec![text("hi")] }],
        tools: vec![tool("bash"), tool("idle")],
        max_tokens: 16_384,
        thinking: Thinking::default(),
    }
}

fn push(request: &mut Request, role: Role, blocks: Vec<Block>) {
    request.messages.push(ChatMessage { role, blocks });
}

/// A reply with thoughts, text and two calls.
fn rich() -> Reply {
    Reply::message()
        .block(json!({"type": "thinking", "thinking": "hm, ünïcode"}))
        .block(json!({"type": "text", "text": "I list the files 🦀."}))
        .tool("call-1", "bash", &json!({"command": "ls"}))
        .tool("call-2", "idle", &json!({}))
}

/// The blocks of that reply to the request with this number, from the model that signs.
fn rich_blocks(number: usize) -> Vec<Block> {
    let signature = format!("c2ln{number:04}+/04");
    vec![
        text("I list the files 🦀."),
        Block::Opaque {
            value: json!({"type": "gemini", "model": SIGNING, "signature": signature}),
        },
        call("call-1", "bash", json!({"command": "ls"})),
        call("call-2", "idle", json!({})),
    ]
}

async fn ask(client: &Client, request: &Request) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let mut deltas = Vec::new();
    let result = client.turn(request, &mut |delta| deltas.push(delta)).await;
    (result, deltas)
}

fn retries(deltas: &[Delta]) -> usize {
    deltas.iter().filter(|delta| matches!(delta, Delta::Retry { .. })).count()
}

/// The shown text, without the text of discarded attempts; thoughts in brackets.
fn shown(deltas: &[Delta]) -> String {
    deltas.iter().fold(String::new(), |shown, delta| match delta {
        Delta::Text(text) => shown + text,
        Delta::Thought(thought) => format!("{shown}[{thought}]"),
        Delta::ToolInput { .. } => shown,
        Delta::Retry { .. } | Delta::Silent { .. } => String::new(),
    })
}

/// Returns the parts of one content of a request.
fn parts(view: &fake::RequestView, content: usize) -> &Value {
    &view.body["contents"][content]["parts"]
}

#[tokio::test]
async fn a_reply_with_every_part_is_read_completely() {
    for reply in [
        rich(),
        rich().plain(),
        rich().crlf(),
        rich().pieces(1),
        rich().pings(3, Duration::ZERO),
        rich().crlf().pieces(1).until_close(),
    ] {
        let fake = Fake::queue([reply]);
        let (answer, deltas) = ask(&client(&fake, SIGNING), &request()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.blocks, rich_blocks(0));
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (11, 7));
        let told = shown(&deltas).replace("][", "");
        assert_eq!(told, "[hm, ünïcode]I list the files 🦀.");
        assert_eq!((answer.model.as_str(), retries(&deltas)), (SIGNING, 0));
        let seen = fake.requests().remove(0);
        let target = format!("/v1beta/models/{SIGNING}:streamGenerateContent?alt=sse");
        assert_eq!(
            (seen.target.as_str(), seen.system().as_str()),
            (target.as_str(), "You are alice.")
        );
        assert_eq!(seen.headers["x-goog-api-key"], CANARY);
        assert!(!seen.headers.contains_key("authorization"));
        assert_eq!(seen.body["generationConfig"]["maxOutputTokens"], 16_384);
    }
}

/// Each signature goes back, unchanged, with the part that it came with; mail follows the responses.
#[tokio::test]
async fn a_conversation_goes_on_with_responses_and_unchanged_signatures() {
    let signed = json!({"type": "text", "text": "Half ä", "signature": "dGV4dCtzaWc/"});
    let thought = json!({"type": "thinking", "thinking": "so", "signature": "dGhvdWdodA=="});
    let second = Reply::message().block(thought).block(signed).tool("", "bash", &json!({"a": {}}));
    let fake =
        Fake::queue([rich(), second.tool("", "bash", &json!({"b": 1})), Reply::text("done")]);
    let client = client(&fake, SIGNING);
    let mut request = request();
    let first = ask(&client, &request).await.0.unwrap();
    push(&mut request, Role::Assistant, first.blocks);
    let mail = text("<inbox>[]</inbox>");
    let answers = vec![result("call-2", "no", true), result("call-1", "a.txt", false), mail];
    push(&mut request, Role::User, answers);
    let second = ask(&client, &request).await.0.unwrap();
    let ids: Vec<&str> = second.blocks.iter().filter_map(id_of).collect();
    assert_eq!(ids, ["call_0", "call_1"], "calls without an id get one");
    push(&mut request, Role::Assistant, second.blocks);
    push(&mut request, Role::User, vec![result("call_0", "", false), result("call_1", "2", false)]);
    let third = ask(&client, &request).await.0.unwrap();
    assert_eq!((third.text().as_str(), third.stop_reason), ("done", StopReason::EndTurn));
    push(&mut request, Role::Assistant, third.blocks);
    push(&mut request, Role::User, vec![text("once more")]);
    let _queue_is_empty = ask(&client, &request).await;

    let seen = fake.requests();
    assert_eq!(seen.len(), 4, "no request was refused or repeated");
    let last = &seen[3];
    let roles: Vec<&Value> =
        last.body["contents"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["user", "model", "user", "user", "model", "user", "model", "user"]);
    let args = json!({"command": "ls"});
    assert_eq!(
        *parts(last, 1),
        json!([{"text": "I list the files 🦀."},
            {"functionCall": {"id": "call-1", "name": "bash", "args": args}, "thoughtSignature": "c2ln0000+/04"},
            {"functionCall": {"id": "call-2", "name": "idle", "args": {}}}])
    );
    assert_eq!(
        *parts(last, 2),
        json!([{"functionResponse": {"id": "call-1", "name": "bash", "response": {"output": "a.txt"}}},
            {"functionResponse": {"id": "call-2", "name": "idle", "response": {"error": "no"}}}])
    );
    assert_eq!(*parts(last, 3), json!([{"text": "<inbox>[]</inbox>"}]));
    assert_eq!(
        *parts(last, 4),
        json!([{"text": "so", "thought": true, "thoughtSignature": "dGhvdWdodA=="},
            {"text": "Half ä", "thoughtSignature": "dGV4dCtzaWc/"},
            {"functionCall": {"name": "bash", "args": {"a": {}}}, "thoughtSignature": "c2ln0001+/04"},
            {"functionCall": {"name": "bash", "args": {"b": 1}}}])
    );
    assert_eq!(
        parts(last, 5)[0],
        json!({"functionResponse": {"name": "bash", "response": {"output": ""}}})
    );
    assert_eq!(
        *parts(last, 6),
        json!([{"text": "done"}, {"text": "", "thoughtSignature": "c2ln0002+/01"}])
    );
}

fn id_of(block: &Block) -> Option<&str> {
    if let Block::ToolUse { id, .. } = block { Some(id) } else { None }
}

/// The calls of the open turn are of another model, and the thinking of the Messages API is in it.
#[tokio::test]
async fn a_turn_that_another_model_began_is_continued() {
    for model in [SIGNING, PLAIN] {
        let fake = Fake::queue([Reply::text("done")]);
        let mut request = request();
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
        let calls =
            [call("toolu_1", "bash", json!({})), call("toolu_2", "no such tool", json!({}))];
        push(
            &mut request,
            Role::Assistant,
            [vec![Block::Opaque { value: thinking }], calls.to_vec()].concat(),
        );
        push(
            &mut request,
            Role::User,
            vec![result("toolu_1", "x", false), result("toolu_2", "y", true)],
        );
        assert_eq!(ask(&client(&fake, model), &request).await.0.unwrap().text(), "done");
        let seen = fake.requests().remove(0);
        let sent = parts(&seen, 1);
        let dummy =
            if model == SIGNING { json!("skip_thought_signature_validator") } else { Value::Null };
        assert_eq!((sent.as_array().unwrap().len(), &sent[0]["thoughtSignature"]), (2, &dummy));
        assert_eq!(
            sent[1],
            json!({"functionCall": {"id": "toolu_2", "name": "no_such_tool", "args": {}}})
        );
    }
}

/// A key of another project cannot read the signatures of the conversation. It goes on without them, and later ones
/// are kept.
#[tokio::test]
async fn signatures_that_the_endpoint_refuses_are_left_out() {
    let first = Fake::queue([rich()]);
    let mut request = request();
    let reply = ask(&client(&first, SIGNING), &request).await.0.unwrap();
    push(&mut request, Role::Assistant, reply.blocks);
    push(
        &mut request,
        Role::User,
        vec![result("call-1", "x", false), result("call-2", "y", false)],
    );

    let more = Reply::message().tool("call-3", "bash", &json!({}));
    let other = Fake::queue([more, Reply::text("done")]);
    let client = client(&other, SIGNING);
    let (reply, deltas) = ask(&client, &request).await;
    assert_eq!((other.take_stale(), retries(&deltas)), (1, 0));
    push(&mut request, Role::Assistant, reply.unwrap().blocks);
    push(&mut request, Role::User, vec![result("call-3", "z", false)]);
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");
    let seen = other.requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(parts(&seen[1], 1)[1]["thoughtSignature"], "skip_thought_signature_validator");
    assert_eq!(parts(&seen[1], 3)[0]["thoughtSignature"], "c2ln0000+/01");

    // An endpoint that refuses any signature is not asked without end.
    let message = "Function call is missing a thought_signature in functionCall parts.";
    let never = Fake::start(move |_| Reply::error(400, "INVALID_ARGUMENT", message));
    let request = self::request();
    let error = ask(&self::client(&never, SIGNING), &request).await.0.unwrap_err();
    assert!(matches!(&error, ModelError::Rejected(_)), "{error}");
    assert_eq!(never.requests().len(), 2);
}

/// The client discards a partial reply if the connection closes, and repeats the request. Each tool call exists
/// once.
#[tokio::test]
async fn a_cut_stream_is_requested_again() {
    cut_streams(47).await;
}

#[tokio::test]
#[ignore = "long: scripts/check --all runs it"]
async fn a_stream_cut_at_any_byte_is_requested_again() {
    cut_streams(1).await;
}

/// Cuts a stream after 1, 1 + `step`, 1 + 2 * `step`, … bytes.
async fn cut_streams(step: usize) {
    for reply in [rich(), rich().until_close()] {
        let length = reply.stream_bytes(fake::Api::Gemini, SIGNING).len();
        let whole = reply.clone();
        let fake = Fake::start(move |view| {
            // The answers to even requests are cut, those to odd ones are complete.
            let (cut, odd) = (view.number / 2 * step + 1, view.number % 2);
            if odd == 1 { whole.clone() } else { whole.clone().cut_after(cut) }
        });
        let client = client(&fake, SIGNING);
        let request = request();
        for (at, cut) in (1..length).step_by(step).enumerate() {
            let (answer, deltas) = ask(&client, &request).await;
            let blocks = rich_blocks(2 * at + 1);
            assert_eq!(answer.unwrap().blocks, blocks, "cut after {cut} bytes");
            assert_eq!(retries(&deltas), 1, "cut after {cut} bytes");
        }
        let seen = fake.requests();
        assert_eq!(seen.len(), 2 * (length - 1).div_ceil(step));
        assert!(seen.iter().all(|view| view.body == seen[0].body));
    }
}

fn rpc(kind: &str, fields: &Value) -> Value {
    let mut detail = json!({"@type": format!("type.googleapis.com/google.rpc.{kind}")});
    detail.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    detail
}

fn retry_info(delay: &str) -> Value {
    rpc("RetryInfo", &json!({"retryDelay": delay}))
}

#[tokio::test]
async fn errors_have_their_kind() {
    let unavailable = |error: &ModelError| matches!(error, ModelError::Unavailable(_));
    let credentials = |error: &ModelError| matches!(error, ModelError::Credentials(_));
    let full = |error: &ModelError| matches!(error, ModelError::ContextFull(_));
    let capped = |error: &ModelError| matches!(error, ModelError::SpendCap(_));
    let rejected = |error: &ModelError| matches!(error, ModelError::Rejected(_));
    let gone = |error: &ModelError| matches!(error, ModelError::NoModel(_));
    let bad_key = Reply::error(400, "INVALID_ARGUMENT", "API key not valid.")
        .detail(rpc("ErrorInfo", &json!({"reason": "API_KEY_INVALID"})));
    let quota = |id: &str| {
        let violations = json!([{"quotaMetric": "m", "quotaId": id}]);
        Reply::error(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan.",
        )
        .detail(rpc("QuotaFailure", &json!({"violations": violations})))
        .detail(retry_info("0s"))
    };
    let long =
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).";
    let table: [(Reply, Fits, usize); 12] = [
        (bad_key, credentials, 1),
        (Reply::error(403, "PERMISSION_DENIED", "x"), credentials, 1),
        (quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), capped, 1),
        (quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"), unavailable, 10),
        (Reply::error(400, "INVALID_ARGUMENT", long), full, 1),
        (Reply::error(400, "INVALID_ARGUMENT", "Unknown name"), rejected, 1),
        (Reply::error(400, "FAILED_PRECONDITION", "User location is not supported"), rejected, 1),
        (Reply::error(404, "NOT_FOUND", "models/x is not found"), gone, 1),
        (
            Reply::error(429, "RESOURCE_EXHAUSTED", "x").detail(retry_info("3600s")),
            |error| matches!(error, ModelError::Unavailable(why) if why.contains("wait for 3600 s")),
            1,
        ),
        (Reply::error(429, "RESOURCE_EXHAUSTED", "x"), unavailable, 10),
        (Reply::error(503, "UNAVAILABLE", "The model is overloaded."), unavailable, 10),
        (Reply::error(500, "INTERNAL", "x"), unavailable, 10),
    ];
    for (reply, fits, requests) in table {
        let said = format!("{reply:?}");
        let fake = Fake::start(move |_| reply.clone());
        let error = ask(&client(&fake, SIGNING), &request()).await.0.unwrap_err();
        assert!(fits(&error), "{said}: {error:?}");
        assert_eq!(fake.requests().len(), requests, "{said}");
    }
}

#[tokio::test]
async fn temporary_errors_are_retried_as_requested() {
    let fake = Fake::queue([
        Reply::error(429, "RESOURCE_EXHAUSTED", "x").detail(retry_info("0.003s")),
        Reply::error(503, "UNAVAILABLE", "busy")
            .detail(retry_info("0.9s"))
            .header("retry-after-ms", "2"),
        rich().error_event("UNAVAILABLE"),
        rich().error_event("INTERNAL"),
        Reply::raw(200, "text/event-stream", b"data: {broken\n\n"),
        Reply::raw(200, "application/json", b"{\"candidates\":[]}"),
        Reply::raw(502, "text/html", b"<h1>bad gateway</h1>"),
        Reply::message().stop("MALFORMED_FUNCTION_CALL"),
        Reply::raw(200, "text/event-stream", b""),
        rich(),
    ]);
    let (answer, deltas) = ask(&client(&fake, SIGNING), &request()).await;
    assert_eq!(answer.unwrap().blocks, rich_blocks(9));
    let waits: Vec<(Duration, &str)> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Retry { wait, why, .. } => Some((*wait, why.as_str())),
            Delta::Text(_) | Delta::Thought(_) | Delta::ToolInput { .. } | Delta::Silent { .. } => {
                None
            }
        })
        .collect();
    let words = [
        "429 RESOURCE_EXHAUSTED",
        "503 UNAVAILABLE: busy",
        "503 UNAVAILABLE: in mid-stream",
        "500 INTERNAL",
        "not JSON",
        "no end",
        "502",
        "MALFORMED_FUNCTION_CALL",
        "empty",
    ];
    assert_eq!(waits.len(), words.len(), "{waits:?}");
    // The header wins over the body.
    for (wait, least) in waits.iter().zip([3, 2]) {
        assert!((least..=least + 1).contains(&wait.0.as_millis()), "{waits:?}");
    }
    for (said, word) in waits.iter().zip(words) {
        assert!(said.1.contains(word), "{said:?} does not name {word}");
    }
}

#[tokio::test]
async fn what_the_api_withholds_is_not_asked_for_again() {
    let rejected = |error: &ModelError| matches!(error, ModelError::Rejected(_));
    for (reply, fits, words) in [
        (
            Reply::blocked("PROHIBITED_CONTENT"),
            rejected as Fits,
            "PROHIBITED_CONTENT: the prompt is blocked",
        ),
        (Reply::blocked("SAFETY").plain(), rejected, "SAFETY: the prompt is blocked"),
        (Reply::message().stop("RECITATION"), rejected, "RECITATION: the answer is blocked"),
        (rich().error_event("INVALID_ARGUMENT"), rejected, "in mid-stream"),
    ] {
        let fake = Fake::start(move |_| reply.clone());
        let error = ask(&client(&fake, PLAIN), &request()).await.0.unwrap_err();
        assert!(fits(&error) && error.to_string().contains(words), "{error}");
        assert_eq!(fake.requests().len(), 1, "{words}");
    }
    for (reason, meaning) in
        [("SAFETY", StopReason::Refusal), ("max_tokens", StopReason::MaxTokens)]
    {
        let fake = Fake::queue([Reply::text("half").stop(reason)]);
        let answer = ask(&client(&fake, SIGNING), &request()).await.0.unwrap();
        assert_eq!((answer.text().as_str(), answer.stop_reason), ("half", meaning));
    }
}

#[tokio::test]
async fn stalls_and_missing_answers_end_by_their_limits() {
    let limits = CallLimits {
        first_byte: Duration::from_millis(500),
        silence: Duration::from_millis(500),
        ..CallLimits::default()
    };
    let fake = Fake::start(|view| match view.number {
        0 => Reply::mute(),
        1 => rich().stall_after(400),
        _ => rich(),
    });
    let client = Client::new(ClientConfig { limits, ..config(&fake, PLAIN) }).unwrap();
    let (answer, deltas) = ask(&client, &request()).await;
    assert_eq!(answer.unwrap().stop_reason, StopReason::ToolUse);
    // On a loaded machine, an answer without a stall may exceed the limits as well.
    assert!(retries(&deltas) >= 2, "{deltas:?}");
    tokio::task::spawn_blocking(move || fake.wait_for_hangups(2)).await.unwrap();
}

#[tokio::test]
async fn no_error_contains_the_key() {
    let foreign = "AIzaSyA0123456789-abcdefghijklmnopqrst_u";
    let echo = format!("Consumer 'api_key:{CANARY}' has been suspended, and {foreign}");
    for status in [400, 403, 404, 429, 500] {
        let reply = Reply::error(status, "SOME_ERROR", &echo);
        let fake = Fake::start(move |_| reply.clone());
        let (answer, deltas) = ask(&client(&fake, SIGNING), &request()).await;
        let said = format!("{deltas:?} {}", answer.unwrap_err());
        assert!(!said.contains("canary") && !said.contains("AIza"), "{said}");
        assert!(said.contains("[redacted]"), "{said}");
        assert!(fake.requests().iter().all(|view| !view.target.contains(CANARY)));
    }
}

#[test]
fn a_model_whose_name_is_no_part_of_a_path_is_refused() {
    let fake = Fake::queue([]);
    for name in ["../../v1/files", "x?key=1", "a/b", ""] {
        let refused = Client::new(config(&fake, name)).err().unwrap();
        assert!(matches!(&refused, ConfigError::BadModel { .. }), "{refused}");
    }
}

/// Conversations that are valid by the rules of `wire::chat`, with any text of a model or a tool, and with signatures of
/// no one.
fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    let said = "[ \n]{0,2}|[a-zä\"\\\\\u{0}]{0,5}";
    let calls = proptest::collection::vec(said, 0..3);
    let inputs = prop_oneof![Just(Value::Null), Just(json!({"a": [1]})), Just(json!("text"))];
    let ids = prop_oneof![Just("c"), Just("call_")];
    let round = (said, calls, inputs, ids, said);
    proptest::collection::vec(round, 0..4).prop_map(|rounds| {
        let mut messages = vec![ChatMessage { role: Role::User, blocks: vec![text("begin")] }];
        for (at, (before, calls, input, prefix, after)) in rounds.into_iter().enumerate() {
            let id = |k: usize| format!("{prefix}{at}{k}");
            let foreign = json!({"type": "gemini", "model": "other", "signature": "s"});
            let mut asked = vec![text(&before), Block::Opaque { value: foreign }];
            asked.extend((0..calls.len()).map(|k| call(&id(k), "bash", input.clone())));
            let answers = calls.iter().enumerate();
            let answers = answers.map(|(k, content)| result(&id(k), content, k % 2 == 1));
            let given = answers.rev().chain([text(&after)]).collect();
            messages.push(ChatMessage { role: Role::Assistant, blocks: asked });
            messages.push(ChatMessage { role: Role::User, blocks: given });
        }
        messages
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_conversation_is_sent_in_a_valid_form(messages in conversation(), system in " |s", is_old in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fake = Fake::start(|_| Reply::text("ok"));
        let request = Request { system, messages, ..request() };
        let model = if is_old { PLAIN } else { SIGNING };
        let answer = runtime.block_on(async { ask(&client(&fake, model), &request).await.0 });
        prop_assert_eq!(answer.map(|answer| answer.text()), Ok("ok".to_owned()));
        prop_assert_eq!(fake.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn any_pieces_of_a_stream_give_the_same_answer(size in 1_usize..400, said in "[a-zäß🦀]{0,20}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fake = Fake::queue([
            Reply::text(&said).tool("c", "bash", &json!({"command": said})).pieces(size),
        ]);
        let answer = runtime.block_on(async { ask(&client(&fake, PLAIN), &request()).await.0 }).unwrap();
        prop_assert_eq!(answer.text(), said.clone());
        prop_assert_eq!(answer.blocks.last(), Some(&call("c", "bash", json!({"command": said}))));
    }
}
