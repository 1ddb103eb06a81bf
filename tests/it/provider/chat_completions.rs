//! The client of chat completions against the fake endpoint: requests, replies, retries, and every fault.

use crate::support::fake::{self, Fake, Reply, post_to};
use agent_team::llm::retry::RetryPolicy;
use agent_team::llm::{
    Api, CallLimits, Client, ClientConfig, Credentials, Delta, ModelError, Provider, Secret,
};
use agent_team::wire::chat::{
    Block, ChatMessage, Reply as Answer, Request, Role, StopReason, Thinking, ToolDefinition,
};
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
    let config = ClientConfig::new(Api::ChatCompletions, &base, key, "model-1");
    ClientConfig { retry: AT_ONCE, ..config }
}

fn client(fake: &Fake) -> Client {
    Client::new(config(fake)).unwrap()
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input }
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

/// A reply with reasoning, text and two calls.
fn rich() -> Reply {
    Reply::message()
        .block(json!({"type": "thinking", "thinking": "hm, ünïcode"}))
        .block(json!({"type": "text", "text": "I list the files 🦀."}))
        .tool("call-1", "bash", &json!({"command": "ls"}))
        .tool("call-2", "idle", &json!({}))
}

fn rich_blocks() -> Vec<Block> {
    vec![
        text("I list the files 🦀."),
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

/// The shown text, without the text of discarded attempts.
fn shown(deltas: &[Delta]) -> String {
    deltas.iter().fold(String::new(), |shown, delta| match delta {
        Delta::Text(text) => shown + text,
        Delta::Thought(_) | Delta::ToolInput { .. } => shown,
        Delta::Retry { .. } | Delta::Silent { .. } => String::new(),
    })
}

#[tokio::test]
async fn a_reply_with_every_block_is_read_completely() {
    for reply in [
        rich(),
        rich().plain(),
        rich().crlf(),
        rich().pieces(1),
        rich().pings(3, Duration::ZERO),
        rich().crlf().pieces(1).until_close(),
    ] {
        let fake = Fake::queue([reply]);
        let (answer, deltas) = ask(&client(&fake), &request()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.blocks, rich_blocks());
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (11, 7));
        assert_eq!(answer.model, "model-1");
        assert_eq!((shown(&deltas).as_str(), retries(&deltas)), ("I list the files 🦀.", 0));
        let seen = fake.requests().remove(0);
        assert_eq!(seen.headers["authorization"], format!("Bearer {CANARY}"));
        assert_eq!(seen.body["stream_options"], json!({"include_usage": true}));
    }
}

#[tokio::test]
async fn every_call_is_answered_by_one_message_and_mail_follows() {
    let fake = Fake::queue([rich(), Reply::text("done")]);
    let client = client(&fake);
    let mut request = request();
    let first = ask(&client, &request).await.0.unwrap();
    request.messages.push(ChatMessage { role: Role::Assistant, blocks: first.blocks });
    let result = |id: &str, is_error| Block::ToolResult {
        tool_use_id: id.into(),
        content: "a.txt".into(),
        is_error,
    };
    let blocks = vec![result("call-1", false), result("call-2", true), text("<inbox>[]</inbox>")];
    request.messages.push(ChatMessage { role: Role::User, blocks });
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");

    let seen = &fake.requests()[1];
    let roles: Vec<&Value> =
        seen.body["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!((seen.turn(), seen.system().as_str()), (1, "You are alice."));
    let said: Vec<Value> = seen.results().iter().map(|it| it["content"].clone()).collect();
    assert_eq!(said, ["a.txt", "[error] a.txt"]);
    assert_eq!(seen.last_text(), "<inbox>[]</inbox>");
}

/// llama-cpp-python sends an empty stream for requests with tools. The client repeats such a request without
/// streaming, and does not stream in later turns.
#[tokio::test]
async fn after_an_empty_stream_requests_do_not_stream() {
    for nothing in [&b""[..], b"data: [DONE]\n\n"] {
        let nothing = Reply::raw(200, "text/event-stream", nothing);
        let fake = Fake::queue([nothing, rich(), Reply::text("again")]);
        let client = client(&fake);
        let (answer, deltas) = ask(&client, &request()).await;
        assert_eq!((answer.unwrap().blocks, retries(&deltas)), (rich_blocks(), 0));
        assert_eq!(ask(&client, &request()).await.0.unwrap().text(), "again");
        let streams: Vec<Value> =
            fake.requests().iter().map(|view| view.body["stream"].clone()).collect();
        assert_eq!(streams, [json!(true), Value::Null, Value::Null]);
    }
    // An empty answer to a request without a stream is an error.
    let fake = Fake::start(|_| Reply::raw(200, "text/event-stream", b""));
    let error = ask(&client(&fake), &request()).await.0.unwrap_err();
    assert!(matches!(&error, ModelError::Unavailable(why) if why.contains("empty")), "{error}");
}

/// The client discards a partial reply if the connection closes, and repeats the request. Each tool call exists
/// once.
#[tokio::test]
async fn a_cut_stream_is_requested_again() {
    cut_streams(23).await;
}

#[tokio::test]
#[ignore = "long: scripts/check --all runs it"]
async fn a_stream_cut_at_any_byte_is_requested_again() {
    cut_streams(1).await;
}

/// Cuts a stream after 1, 1 + `step`, 1 + 2 * `step`, … bytes.
async fn cut_streams(step: usize) {
    for reply in [rich(), rich().until_close()] {
        let stream = reply.stream_bytes(fake::Api::Completions, "model-1");
        let length = stream.len();
        // After the finish reason only the usage follows.
        let reason = b"\"tool_calls\"}]";
        let ended = stream.windows(reason.len()).position(|part| part == reason).unwrap();
        let whole = reply.clone();
        let fake = Fake::start(move |view| {
            // The answers to even requests are cut, those to odd ones are complete.
            let (cut, odd) = (view.number / 2 * step + 1, view.number % 2);
            if odd == 1 { whole.clone() } else { whole.clone().cut_after(cut) }
        });
        let client = client(&fake);
        let request = request();
        let mut asked = 0;
        for cut in (1..=length).step_by(step) {
            let (answer, deltas) = ask(&client, &request).await;
            assert_eq!(answer.unwrap().blocks, rich_blocks(), "cut after {cut} bytes");
            assert_eq!(shown(&deltas), "I list the files 🦀.", "cut after {cut} bytes");
            let tried = retries(&deltas);
            assert!(tried == 1 || tried == 0 && cut > ended, "cut after {cut}: {tried} retries");
            asked += 1 + tried;
            if tried == 0 {
                break;
            }
        }
        let seen = fake.requests();
        assert_eq!(seen.len(), asked);
        assert!(seen.iter().all(|view| view.body == seen[0].body));
    }
}

#[tokio::test]
async fn errors_have_their_kind_and_request_id() {
    let unavailable = |error: &ModelError| matches!(error, ModelError::Unavailable(_));
    let credentials = |error: &ModelError| matches!(error, ModelError::Credentials(_));
    let full = |error: &ModelError| matches!(error, ModelError::ContextFull(_));
    let capped = |error: &ModelError| matches!(error, ModelError::SpendCap(_));
    let rejected = |error: &ModelError| matches!(error, ModelError::Rejected(_));
    let gone = |error: &ModelError| matches!(error, ModelError::NoModel(_));
    let table: [(Reply, Fits, usize); 12] = [
        (Reply::error(401, "invalid_api_key", "x"), credentials, 1),
        (Reply::error(403, "unsupported_country_region_territory", "x"), credentials, 1),
        (Reply::error(429, "insufficient_quota", "x"), capped, 1),
        (Reply::error(429, "insufficient_quota", "x").header("retry-after", "0"), capped, 1),
        (Reply::error(400, "context_length_exceeded", "x"), full, 1),
        (Reply::error(400, "BadRequestError", "This model's maximum context length is 9"), full, 1),
        (Reply::error(404, "model_not_found", "x"), gone, 1),
        (Reply::error(429, "rate_limit_exceeded", "x"), unavailable, 10),
        (Reply::error(429, "rate_limit_exceeded", "x").header("retry-after", "0"), unavailable, 10),
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
        assert_eq!(
            error.to_string().contains("gave up after 10 attempts"),
            requests == 10,
            "{error}"
        );
    }
}

#[tokio::test]
async fn temporary_errors_are_retried_as_requested() {
    let fake = Fake::queue([
        Reply::error(429, "rate_limit_exceeded", "x").header("retry-after-ms", "3"),
        rich().error_event("server_error"),
        rich().error_event("rate_limit_error"),
        Reply::raw(200, "text/event-stream", b"data: {broken\n\n"),
        Reply::raw(200, "application/json", b"{\"choices\":[]}"),
        Reply::raw(502, "text/html", b"<h1>bad gateway</h1>"),
        rich(),
    ]);
    let (answer, deltas) = ask(&client(&fake), &request()).await;
    assert_eq!(answer.unwrap().blocks, rich_blocks());
    let waits: Vec<(Duration, &str)> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Retry { wait, why, .. } => Some((*wait, why.as_str())),
            Delta::Text(_) | Delta::Thought(_) | Delta::ToolInput { .. } | Delta::Silent { .. } => {
                None
            }
        })
        .collect();
    let words = ["429", "in mid-stream", "in mid-stream", "not JSON", "no message", "502"];
    assert_eq!(waits.len(), words.len());
    assert!((3..4).contains(&waits[0].0.as_millis()), "{waits:?}");
    for (said, word) in waits.iter().zip(words) {
        assert!(said.1.contains(word), "{said:?} does not name {word}");
    }
}

#[tokio::test]
async fn an_error_in_mid_stream_that_is_final_ends_the_turn() {
    for (kind, fits) in [
        ("insufficient_quota", (|e| matches!(e, ModelError::SpendCap(_))) as Fits),
        ("context_length_exceeded", |e| matches!(e, ModelError::ContextFull(_))),
        ("invalid_request_error", |e| matches!(e, ModelError::Rejected(_))),
    ] {
        let fake = Fake::start(move |_| rich().error_event(kind));
        let error = ask(&client(&fake), &request()).await.0.unwrap_err();
        assert!(fits(&error) && error.to_string().contains(kind), "{error}");
        assert_eq!(fake.requests().len(), 1, "{kind}");
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
    let client = Client::new(ClientConfig { limits, ..config(&fake) }).unwrap();
    let (answer, deltas) = ask(&client, &request()).await;
    assert_eq!(answer.unwrap().blocks, rich_blocks());
    // On a loaded machine, an answer without a stall may exceed the limits as well.
    assert!(retries(&deltas) >= 2, "{deltas:?}");
    tokio::task::spawn_blocking(move || fake.wait_for_hangups(2)).await.unwrap();
}

/// A machine that is switched off does not even refuse connections. A listener with a full queue simulates it.
#[tokio::test]
async fn an_unreachable_host_ends_by_the_connect_limit() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
    let _full: Vec<_> = std::iter::repeat_with(connect).take_while(Result::is_ok).collect();
    let limits = CallLimits { connect: Duration::from_millis(200), ..CallLimits::default() };
    let retry = RetryPolicy { tries: 2, ..AT_ONCE };
    let base = format!("http://{address}/v1");
    let config = ClientConfig::new(Api::ChatCompletions, &base, Credentials::Anonymous, "m");
    let config = ClientConfig { limits, retry, ..config };
    let begun = std::time::Instant::now();
    let error = ask(&Client::new(config).unwrap(), &request()).await.0.unwrap_err();
    assert!(
        matches!(&error, ModelError::Unavailable(why) if why.contains("2 attempts")),
        "{error}"
    );
    // The time is far below the other limits.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
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

#[test]
fn a_fake_without_history_numbers_its_requests_and_keeps_none() {
    let fake = Fake::without_history(|view| Reply::text(&format!("number {}", view.number)));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer k"),
        ("connection", "close"),
    ];
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for number in 0..3 {
        let (status, said) = post_to(&fake, "/v1/chat/completions", &headers, &body);
        assert!(status == 200 && said.contains(&format!("number {number}")), "{said}");
    }
    assert!(fake.requests().is_empty());
}

#[test]
fn the_fake_refuses_what_the_api_refuses() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer k"),
        ("connection", "close"),
    ];
    let user = || json!({"role": "user", "content": "hi"});
    let call = json!({"id": "a", "type": "function", "function": {"name": "n", "arguments": "{}"}});
    let calls = || json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
    let body = |change: Value| {
        let mut body = json!({"model": "m", "messages": [user()]});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    let post = |headers: &[(&str, &str)], body: &Value| {
        post_to(&fake, "/v1/chat/completions", headers, body)
    };
    assert_eq!(post(&headers, &body(json!({}))).0, 200);
    let good = json!({"messages": [user(), calls(), answer("a"), user()]});
    assert_eq!(post(&headers, &body(good)).0, 200);
    assert_eq!(fake.take_violations(), [""; 0]);
    let table = [
        (json!({"temperature": 1.0}), "temperature"),
        (json!({"model": ""}), "model"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"stream_options": {}}), "stream_options"),
        (json!({"tools": []}), "tools: empty"),
        (json!({"tools": [{"type": "function", "function": {"name": "n"}}]}), "schema"),
        (json!({"messages": []}), "not empty"),
        (json!({"messages": [user(), calls(), user()]}), "not answered"),
        (json!({"messages": [user(), calls(), answer("b")]}), "not asked"),
        (json!({"messages": [user(), calls(), answer("a"), answer("a")]}), "not asked"),
        (json!({"messages": [user(), answer("a")]}), "not asked"),
        (json!({"messages": [user(), {"role": "assistant", "content": null}]}), "neither"),
        (json!({"messages": [{"role": "user", "content": " "}]}), "empty content"),
        (json!({"messages": [user(), {"role": "assistant", "content": "x"}]}), "the last one"),
    ];
    for (change, complaint) in table {
        let (status, said) = post(&headers, &body(change.clone()));
        assert!(status == 400 && said.contains(complaint), "{change}: {complaint}: {said}");
        assert!(!fake.take_violations().is_empty());
    }
    for missing in 0..2 {
        let mut fewer = headers.to_vec();
        fewer.remove(missing);
        assert_eq!(post(&fewer, &body(json!({}))).0, 400);
        assert!(!fake.take_violations().is_empty());
    }
}

/// Conversations as agents produce them: turns with calls, their results, and optional text.
fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    let turn =
        ("[ -~äß\n]{0,8}", proptest::collection::vec("[ -~\"\\\\ä]{0,9}", 0..3), "[ -~]{0,8}");
    proptest::collection::vec(turn, 0..5).prop_map(|turns| {
        let mut messages = vec![ChatMessage { role: Role::User, blocks: vec![text("go")] }];
        for (at, (said, calls, after)) in turns.into_iter().enumerate() {
            let id = |k: usize| format!("t{at}-{k}");
            let mut asked = vec![text(&said)];
            asked.extend((0..calls.len()).map(|k| call(&id(k), "bash", json!({"at": calls[k]}))));
            let results = calls.iter().enumerate().map(|(k, content)| Block::ToolResult {
                tool_use_id: id(k),
                content: content.clone(),
                is_error: k % 2 == 1,
            });
            let given = results.chain([text(&after)]).collect();
            messages.push(ChatMessage { role: Role::Assistant, blocks: asked });
            messages.push(ChatMessage { role: Role::User, blocks: given });
        }
        messages
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

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
    fn any_pieces_of_a_stream_give_the_same_answer(size in 1_usize..400, said in "[a-zäß🦀]{0,20}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fake = Fake::queue([
            Reply::text(&said).tool("c", "bash", &json!({"command": said})).pieces(size),
        ]);
        let answer = runtime.block_on(async { ask(&client(&fake), &request()).await.0 }).unwrap();
        prop_assert_eq!(answer.text(), said.clone());
        prop_assert_eq!(answer.blocks.last(), Some(&call("c", "bash", json!({"command": said}))));
    }
}
