//! The client of the Responses API against the fake endpoint: requests, replies, reasoning, retries, and every fault.

use crate::support::fake::{self, Fake, Reply};
use agent_team::llm::retry::RetryPolicy;
use agent_team::llm::{
    Api, Client, ClientConfig, Credentials, Delta, ModelError, Provider, Secret,
};
use agent_team::wire::chat::{
    Block, ChatMessage, Reply as Answer, Request, Role, StopReason, Thinking, ToolDefinition,
};
use futures_util::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

const CANARY: &str = "canary-key-0123456789";

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

fn config(fake: &Fake) -> ClientConfig {
    let base = format!("{}/v1", fake.base_url());
    let key = Credentials::Bearer(Secret::new(CANARY).unwrap());
    let cache_key = Some("conversation-1".into());
    let config = ClientConfig::new(Api::Responses, &base, key, "model-1");
    ClientConfig { retry: AT_ONCE, cache_key, ..config }
}

/// The number of streams that are cut at a time.
const STREAMS_AT_ONCE: usize = 8;

fn client(fake: &Fake) -> Client {
    Client::new(config(fake)).unwrap()
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input }
}

fn result(id: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: "a.txt".into(), is_error }
}

fn request() -> Request {
    Request {
        system: "You are alice.".into(),
        messages: vec![ChatMessage { role: Role::User, blocks: vec![text("hi")] }],
        tools: vec![ToolDefinition {
            name: "bash".into(),
            description: "Runs a command.".into(),
            input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
        }],
        max_tokens: 1024,
        thinking: Thinking::default(),
    }
}

/// Returns the request with a reply of the model and the next message of the user.
fn then(request: &Request, reply: Vec<Block>, next: Vec<Block>) -> Request {
    let mut longer = request.clone();
    longer.messages.push(ChatMessage { role: Role::Assistant, blocks: reply });
    longer.messages.push(ChatMessage { role: Role::User, blocks: next });
    longer
}

/// A reply with reasoning before a comment and before the first of two calls.
fn rich() -> Reply {
    Reply::message()
        .thinking("hm, ünïcode", "c2ln")
        .block(json!({"type": "text", "text": "I list the files 🦀.", "phase": "commentary"}))
        .thinking("", "bW9yZQ")
        .tool("call-1", "bash", &json!({"command": "ls"}))
        .tool("call-2", "idle", &json!({}))
}

/// The reasoning item that the fake sends at this place of its reply to a request.
fn reasoning(number: usize, at: usize, summary: &str, signature: &str) -> Value {
    let id = format!("rs_{number}_{at}");
    let parts = [json!({"type": "summary_text", "text": summary})];
    let parts = if summary.is_empty() { &parts[..0] } else { &parts };
    json!({"id": id, "type": "reasoning", "summary": parts,
        "encrypted_content": format!("gAAAA.{id}.{signature}")})
}

fn opaque(value: Value) -> Block {
    Block::Opaque { value }
}

fn rich_blocks(number: usize) -> Vec<Block> {
    vec![
        opaque(reasoning(number, 0, "hm, ünïcode", "c2ln")),
        opaque(json!({"type": "message_phase", "phase": "commentary"})),
        text("I list the files 🦀."),
        opaque(reasoning(number, 2, "", "bW9yZQ")),
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

/// The shown text and reasoning, without those of discarded attempts.
fn shown(deltas: &[Delta]) -> [String; 2] {
    let mut shown = [String::new(), String::new()];
    for delta in deltas {
        match delta {
            Delta::Text(text) => shown[0].push_str(text),
            Delta::Thought(text) => shown[1].push_str(text),
            Delta::ToolInput { .. } => {}
            Delta::Retry { .. } | Delta::Silent { .. } => shown = [String::new(), String::new()],
        }
    }
    shown
}

fn input(view: &fake::RequestView) -> &[Value] {
    view.body["input"].as_array().unwrap()
}

fn types(view: &fake::RequestView) -> Vec<&str> {
    input(view).iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_reply_with_every_item_is_read_completely() {
    for reply in [
        rich(),
        rich().plain(),
        rich().crlf(),
        rich().pieces(1),
        rich().pings(3, Duration::ZERO),
        rich().crlf().pieces(1).until_close(),
    ] {
        let is_plain = format!("{reply:?}").contains("form: Plain");
        let fake = Fake::queue([reply]);
        let (answer, deltas) = ask(&client(&fake), &request()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.blocks, rich_blocks(0));
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (11, 7));
        assert_eq!((answer.model.as_str(), retries(&deltas)), ("model-1", 0));
        let thought = if is_plain { "" } else { "hm, ünïcode" };
        assert_eq!(shown(&deltas), ["I list the files 🦀.", thought]);
        let seen = fake.requests().remove(0);
        assert_eq!(seen.headers["authorization"], format!("Bearer {CANARY}"));
        let fields = ["stream", "store", "include", "prompt_cache_key", "max_output_tokens"];
        let sent = fields.map(|name| seen.body[name].clone());
        let include = json!(["reasoning.encrypted_content"]);
        assert_eq!(
            sent,
            [json!(true), json!(false), include, json!("conversation-1"), json!(1024)]
        );
        assert_eq!(seen.body["tools"][0]["strict"], false);
    }
}

#[tokio::test]
async fn reasoning_goes_back_unchanged_and_each_call_is_answered_before_mail() {
    let fake = Fake::queue([rich(), Reply::text("done")]);
    let client = client(&fake);
    let request = request();
    let first = ask(&client, &request).await.0.unwrap();
    let news = vec![result("call-1", false), result("call-2", true), text("<inbox>[]</inbox>")];
    let request = then(&request, first.blocks, news);
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");

    let seen = &fake.requests()[1];
    let expected = [
        "message",
        "reasoning",
        "message",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ];
    assert_eq!(types(seen), expected);
    let items = input(seen);
    assert_eq!(items[1], reasoning(0, 0, "hm, ünïcode", "c2ln"));
    assert_eq!(items[2]["phase"], "commentary");
    assert_eq!(items[3], reasoning(0, 2, "", "bW9yZQ"));
    assert!(items[4..].iter().all(|item| item["id"].is_null()), "{items:#?}");
    assert_eq!((seen.turn(), seen.system().as_str()), (1, "You are alice."));
    let said: Vec<Value> = seen.results().iter().map(|it| it["content"].clone()).collect();
    assert_eq!(said, ["a.txt", "[error] a.txt"]);
    assert_eq!(seen.last_text(), "<inbox>[]</inbox>");
}

/// The fake refuses reasoning that another endpoint has sent, as the API does. The client sends the conversation
/// without it, and keeps the reasoning of later replies.
#[tokio::test]
async fn reasoning_that_the_endpoint_cannot_read_is_left_out() {
    let fake = Fake::queue([rich(), Reply::text("done")]);
    let client = client(&fake);
    let foreign = opaque(json!({"id": "rs_9", "type": "reasoning", "summary": [],
        "encrypted_content": "gAAAA.other"}));
    let reply = vec![foreign, call("call-0", "bash", json!({}))];
    let request = then(&request(), reply, vec![result("call-0", false)]);
    let (answer, deltas) = ask(&client, &request).await;
    let answer = answer.unwrap();
    assert_eq!((retries(&deltas), &answer.blocks), (0, &rich_blocks(0)));
    let refused = fake.take_violations();
    assert!(refused.len() == 1 && refused[0].contains("could not be verified"), "{refused:?}");
    let news = vec![result("call-1", false), result("call-2", false)];
    let request = then(&request, answer.blocks, news);
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");
    let seen = fake.requests();
    let count = |view| types(view).iter().filter(|kind| **kind == "reasoning").count();
    assert_eq!(seen.iter().map(count).collect::<Vec<_>>(), [0, 2]);
}

#[tokio::test]
async fn a_model_that_does_not_reason_is_asked_for_no_reasoning() {
    let refusal = "Encrypted content is not supported with this model.";
    let fake = Fake::start(move |view| {
        let is_asked_for = !view.body["include"].is_null();
        let refused = || Reply::error(400, "invalid_request_error", refusal);
        if is_asked_for { refused() } else { Reply::text("done") }
    });
    let client = client(&fake);
    let known = vec![opaque(reasoning(0, 0, "", "c2ln")), text("done")];
    let request = then(&request(), known, vec![text("again")]);
    for _ in 0..2 {
        let (answer, deltas) = ask(&client, &request).await;
        assert_eq!((answer.unwrap().text().as_str(), retries(&deltas)), ("done", 0));
    }
    let seen = fake.requests();
    let asked: Vec<bool> = seen.iter().map(|view| view.body["include"].is_array()).collect();
    assert_eq!(asked, [true, false, false], "the client remembers it");
    assert!(seen[1..].iter().all(|view| !types(view).contains(&"reasoning")));
}

/// The client discards a partial reply if the connection closes, and repeats the request. Each tool call exists
/// once.
#[tokio::test]
async fn a_cut_stream_is_requested_again() {
    cut_streams(97).await;
}

#[tokio::test]
#[ignore = "long: scripts/check --all runs it"]
async fn a_stream_cut_at_any_byte_is_requested_again() {
    cut_streams(1).await;
}

/// Cuts a stream after 0, `step`, 2 * `step`, … bytes. Several streams are cut at a time, since each one waits before it is requested
/// again.
async fn cut_streams(step: usize) {
    for reply in [rich(), rich().until_close()] {
        let cut = |first| cut_some(&reply, (first * step, STREAMS_AT_ONCE * step));
        join_all((0..STREAMS_AT_ONCE).map(cut)).await;
    }
}

/// Cuts a stream after `first`, `first + step`, … bytes.
async fn cut_some(reply: &Reply, (first, step): (usize, usize)) {
    let length = reply.stream_bytes(fake::Api::Responses, "model-1").len();
    let whole = reply.clone();
    let fake = Fake::start(move |view| {
        // The answers to even requests are cut, those to odd ones are complete.
        let (cut, odd) = (first + view.number / 2 * step, view.number % 2);
        if odd == 1 { whole.clone() } else { whole.clone().cut_after(cut) }
    });
    let client = client(&fake);
    let request = request();
    // The numbers of requests in the ids lengthen the stream a little: the last ones are not cut.
    for (round, cut) in (first..length).step_by(step).enumerate() {
        let (answer, deltas) = ask(&client, &request).await;
        assert_eq!(answer.unwrap().blocks, rich_blocks(2 * round + 1), "after {cut} bytes");
        assert_eq!(shown(&deltas)[0], "I list the files 🦀.", "cut after {cut} bytes");
        assert_eq!(retries(&deltas), 1, "cut after {cut} bytes");
    }
    let seen = fake.requests();
    assert_eq!(seen.len(), 2 * (first..length).step_by(step).len());
    assert!(seen.iter().all(|view| view.body == seen[0].body));
}

#[tokio::test]
async fn errors_have_their_kind_and_request_id() {
    let unavailable = |error: &ModelError| matches!(error, ModelError::Unavailable(_));
    let credentials = |error: &ModelError| matches!(error, ModelError::Credentials(_));
    let full = |error: &ModelError| matches!(error, ModelError::ContextFull(_));
    let capped = |error: &ModelError| matches!(error, ModelError::SpendCap(_));
    let rejected = |error: &ModelError| matches!(error, ModelError::Rejected(_));
    let gone = |error: &ModelError| matches!(error, ModelError::NoModel(_));
    let window = "Your input exceeds the context window of this model.";
    let table: [(Reply, Fits, usize); 10] = [
        (Reply::error(401, "invalid_api_key", "x"), credentials, 1),
        (Reply::error(403, "unsupported_country_region_territory", "x"), credentials, 1),
        (Reply::error(429, "insufficient_quota", "x").header("retry-after", "0"), capped, 1),
        (Reply::error(400, "context_length_exceeded", "x"), full, 1),
        (Reply::error(400, "invalid_request_error", window), full, 1),
        (Reply::error(404, "model_not_found", "x"), gone, 1),
        (Reply::error(429, "rate_limit_exceeded", "x"), unavailable, 10),
        (Reply::error(500, "server_error", "x"), unavailable, 10),
        (Reply::error(503, "overloaded", "x"), unavailable, 10),
        (Reply::error(400, "x", "x").header("x-should-retry", "true"), rejected, 10),
    ];
    for (reply, fits, requests) in table {
        let said = format!("{reply:?}");
        let fake = Fake::start(move |view| {
            reply.clone().header("x-request-id", &format!("req_{}", view.number))
        });
        let error = ask(&client(&fake), &request()).await.0.unwrap_err();
        assert!(fits(&error), "{said}: {error:?}");
        assert_eq!(fake.requests().len(), requests, "{said}");
        assert!(error.to_string().contains("(request_id req_"), "{error}");
        assert!(!error.to_string().contains("chat_completions"), "{error}");
    }
    let fake = Fake::start(|_| Reply::raw(404, "text/plain", b"no such path"));
    let error = ask(&client(&fake), &request()).await.0.unwrap_err().to_string();
    assert!(error.contains("api = \"chat_completions\" under [openai]"), "{error}");
}

#[tokio::test]
async fn temporary_errors_are_retried_as_requested() {
    let fake = Fake::queue([
        Reply::error(429, "rate_limit_exceeded", "x").header("retry-after-ms", "3"),
        rich().error_event("server_error"),
        rich().failed("server_error"),
        rich().failed("rate_limit_exceeded"),
        rich().plain().failed("server_is_overloaded"),
        Reply::raw(200, "text/event-stream", b"data: {broken\n\n"),
        Reply::raw(200, "text/event-stream", b""),
        Reply::raw(200, "application/json", b"{\"output\":3}"),
        Reply::raw(502, "text/html", b"<h1>bad gateway</h1>"),
        rich(),
    ]);
    let (answer, deltas) = ask(&client(&fake), &request()).await;
    assert_eq!(answer.unwrap().blocks, rich_blocks(9));
    let whys = deltas.iter().filter_map(|delta| match delta {
        Delta::Retry { why, .. } => Some(why.as_str()),
        Delta::Text(_) | Delta::Thought(_) | Delta::ToolInput { .. } | Delta::Silent { .. } => None,
    });
    let words = [
        "429",
        "in mid-stream",
        "500 server_error",
        "429 rate_limit",
        "529",
        "not JSON",
        "empty",
        "no output",
        "502",
    ];
    for (said, word) in whys.clone().zip(words) {
        assert!(said.contains(word), "{said:?} does not name {word}");
    }
    assert_eq!(whys.count(), words.len());
}

#[tokio::test]
async fn an_error_after_the_beginning_that_is_final_ends_the_turn() {
    for (code, fits) in [
        ("insufficient_quota", (|e| matches!(e, ModelError::SpendCap(_))) as Fits),
        ("context_length_exceeded", |e| matches!(e, ModelError::ContextFull(_))),
        ("invalid_prompt", |e| matches!(e, ModelError::Rejected(_))),
    ] {
        for reply in [rich().error_event(code), rich().failed(code), rich().plain().failed(code)] {
            let fake = Fake::start(move |_| reply.clone());
            let error = ask(&client(&fake), &request()).await.0.unwrap_err();
            assert!(fits(&error) && error.to_string().contains(code), "{error}");
            assert_eq!(fake.requests().len(), 1, "{code}");
        }
    }
}

#[tokio::test]
async fn an_incomplete_response_is_a_reply_and_its_open_reasoning_does_not_go_back() {
    let thought = || Reply::message().thinking("hm", "c2ln");
    for (reply, reason, kept) in [
        (thought().stop("max_tokens"), StopReason::MaxTokens, 0),
        (
            thought().block(json!({"type": "text", "text": "I"})).stop("max_tokens"),
            StopReason::MaxTokens,
            2,
        ),
        (
            thought().tool("c", "bash", &json!("{\"comm")).stop("max_tokens"),
            StopReason::MaxTokens,
            2,
        ),
        (thought().tool("c", "bash", &json!("{\"comm")).stop("refusal"), StopReason::Refusal, 0),
        (
            Reply::message().block(json!({"type": "refusal", "refusal": "No."})),
            StopReason::Refusal,
            1,
        ),
    ] {
        for reply in [reply.clone().plain(), reply] {
            let fake = Fake::queue([reply, Reply::text("done")]);
            let client = client(&fake);
            let answer = ask(&client, &request()).await.0.unwrap();
            assert_eq!((&answer.stop_reason, answer.blocks.len()), (&reason, kept), "{answer:?}");
            let is_call = answer.blocks.iter().any(|it| matches!(it, Block::ToolUse { .. }));
            let news = if is_call { result("c", true) } else { text("go on") };
            let request = then(&request(), answer.blocks, vec![news]);
            assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");
        }
    }
}

#[tokio::test]
async fn no_error_contains_the_key() {
    let echo = format!("Incorrect API key provided: {CANARY}, Bearer {CANARY}");
    for status in [400, 401, 404, 429, 500] {
        let reply = Reply::error(status, "some_error", &echo);
        let fake = Fake::start(move |_| reply.clone());
        let (answer, deltas) = ask(&client(&fake), &request()).await;
        let said = format!("{deltas:?} {}", answer.unwrap_err());
        assert!(!said.contains("canary") && said.contains("[redacted]"), "{said}");
    }
}

/// Returns a block of a model of any provider, the one of this kind at this place.
fn block_of(kind: usize, said: &str, at: [usize; 2]) -> Block {
    let id = |prefix: &str| format!("{prefix}-{}-{}", at[0], at[1]);
    match kind {
        0 => text(said),
        1 => call(&id("c"), "bash", Value::Null),
        2 => call(&id("c"), "bash", json!({"a": [said]})),
        3 => opaque(reasoning(at[0], at[1], said, "c2ln")),
        4 => opaque(json!({"type": "reasoning", "id": id("rs"), "summary": []})),
        5 => opaque(json!({"type": "message_phase", "phase": "final_answer"})),
        6 => opaque(json!({"type": "thinking", "thinking": said, "signature": "s"})),
        _ => opaque(json!({"anything": [null]})),
    }
}

/// Conversations with text, calls, and opaque blocks of every kind at any place.
fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    let blocks = proptest::collection::vec((0_usize..8, "[ \n]{0,2}|[a-zä\"\\\\\u{0}]{0,5}"), 0..6);
    let replies = proptest::collection::vec((blocks, "[ \n]{0,2}|[a-z]{0,3}"), 0..4);
    replies.prop_map(|replies| {
        let mut messages = vec![ChatMessage { role: Role::User, blocks: vec![text("begin")] }];
        for (at, (blocks, after)) in replies.into_iter().enumerate() {
            let blocks = blocks.iter().enumerate();
            let blocks = blocks.map(|(k, (kind, said))| block_of(*kind, said, [at, k]));
            let blocks: Vec<Block> = blocks.collect();
            let results = blocks.iter().filter_map(|block| {
                let Block::ToolUse { id, .. } = block else { return None };
                Some(result(id, id.ends_with('1')))
            });
            let given: Vec<Block> = results.chain([text(&after)]).collect();
            messages.push(ChatMessage { role: Role::Assistant, blocks });
            messages.push(ChatMessage { role: Role::User, blocks: given });
        }
        messages
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_conversation_is_sent_in_a_valid_form(messages in conversation(), system in " |s") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fake = Fake::start(|_| Reply::text("ok"));
        let request = Request { system, messages, ..request() };
        let answer = runtime.block_on(async { ask(&client(&fake), &request).await.0 });
        prop_assert_eq!(answer.map(|answer| answer.text()), Ok("ok".to_owned()));
        prop_assert_eq!(fake.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn any_pieces_of_a_stream_give_the_same_answer(size in 1_usize..400, said in "[a-zäß🦀]{1,20}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fake = Fake::queue([
            Reply::text(&said).tool("c", "bash", &json!({"command": said})).pieces(size),
        ]);
        let answer = runtime.block_on(async { ask(&client(&fake), &request()).await.0 }).unwrap();
        prop_assert_eq!(answer.text(), said.clone());
        prop_assert_eq!(answer.blocks.last(), Some(&call("c", "bash", json!({"command": said}))));
    }
}
