//! The client of the Messages API against the fake endpoint: requests, replies, retries, and every fault.

use crate::support::fake::{self, Fake, Reply, Unopened, post};
use agent_team::llm::retry::{Backoff, RetryPolicy};
use agent_team::llm::{
    Api, CallLimits, Client, ClientConfig, ConfigError, Credentials, Delta, ModelError, Provider,
    Redactor, Secret,
};
use agent_team::wire::chat::{
    Block, ChatMessage, Reply as Answer, Request, Role, StopReason, Thinking, ToolDefinition,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
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

fn config(base_url: &str) -> ClientConfig {
    let key = Credentials::ApiKey(Secret::new(CANARY).unwrap());
    ClientConfig { retry: AT_ONCE, ..ClientConfig::new(Api::Messages, base_url, key, "model-1") }
}

fn client(fake: &Fake) -> Client {
    Client::new(config(&fake.base_url())).unwrap()
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
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

/// A reply with every kind of block.
fn rich() -> Reply {
    Reply::message()
        .thinking("hm, ünïcode", "c2lnbmF0dXJl")
        .block(json!({"type": "text", "text": "I list the files 🦀."}))
        .tool("call-1", "bash", &json!({"command": "ls"}))
}

fn rich_blocks() -> Vec<Block> {
    vec![
        Block::Opaque {
            value: json!({"type": "thinking", "thinking": "hm, ünïcode", "signature": "c2lnbmF0dXJl"}),
        },
        text("I list the files 🦀."),
        Block::ToolUse {
            id: "call-1".into(),
            name: "bash".into(),
            input: json!({"command": "ls"}),
        },
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
        rich().crlf().pieces(1).until_close(),
    ] {
        let fake = Fake::queue([reply]);
        let (answer, deltas) = ask(&client(&fake), &request()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.blocks, rich_blocks());
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (11, 7));
        assert_eq!(
            (answer.model.as_str(), shown(&deltas).as_str()),
            ("model-1", "I list the files 🦀.")
        );
        assert_eq!(retries(&deltas), 0);
    }
}

#[tokio::test]
async fn a_conversation_goes_on_with_results_and_unchanged_thinking() {
    let fake = Fake::queue([rich(), Reply::text("done")]);
    let client = client(&fake);
    let mut request = request();
    let first = ask(&client, &request).await.0.unwrap();
    request.messages.push(ChatMessage { role: Role::Assistant, blocks: first.blocks });
    let result = Block::ToolResult {
        tool_use_id: "call-1".into(),
        content: "a.txt".into(),
        is_error: false,
    };
    request
        .messages
        .push(ChatMessage { role: Role::User, blocks: vec![result, text("<inbox>[]</inbox>")] });
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "done");

    let seen = fake.requests();
    assert_eq!(seen.len(), 2);
    let sent = &seen[1].body["messages"][1]["content"][0];
    assert_eq!(
        *sent,
        json!({"type": "thinking", "thinking": "hm, ünïcode", "signature": "c2lnbmF0dXJl"})
    );
    assert_eq!((seen[1].turn(), seen[1].model()), (1, "model-1"));
    assert_eq!(seen[1].results()[0]["content"], "a.txt");
    assert_eq!(
        (seen[1].system().as_str(), seen[1].last_text().as_str()),
        ("You are alice.", "<inbox>[]</inbox>")
    );
}

#[tokio::test]
async fn a_paused_turn_is_sent_again_unchanged() {
    let fake = Fake::queue([Reply::text("searching").stop("pause_turn"), Reply::text("found")]);
    let client = client(&fake);
    let mut request = request();
    let paused = ask(&client, &request).await.0.unwrap();
    assert_eq!(paused.stop_reason, StopReason::PauseTurn);
    request.messages.push(ChatMessage { role: Role::Assistant, blocks: paused.blocks });
    assert_eq!(ask(&client, &request).await.0.unwrap().text(), "found");
}

#[tokio::test]
async fn credentials_and_headers_go_where_they_belong() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let with = |credentials| ClientConfig {
        credentials,
        extra_headers: vec![("X-Gateway".into(), Secret::new("g1").unwrap())],
        ..config(&format!("{}/v1/", fake.base_url()))
    };
    let secret = Secret::new(CANARY).unwrap();
    for credentials in [Credentials::ApiKey(secret.clone()), Credentials::Bearer(secret)] {
        ask(&Client::new(with(credentials)).unwrap(), &request()).await.0.unwrap();
    }
    let [key, token] = fake.requests().try_into().unwrap();
    assert_eq!(key.headers["x-api-key"], CANARY);
    assert!(!key.headers.contains_key("authorization"));
    assert_eq!(token.headers["authorization"], format!("Bearer {CANARY}"));
    assert!(!token.headers.contains_key("x-api-key"));
    for seen in [key, token] {
        assert_eq!(seen.headers["anthropic-version"], "2026-10-21");
        assert_eq!(seen.headers["x-gateway"], "g1");
        assert_eq!(seen.body["stream"], true);
    }
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

/// Cuts a stream after 0, `step`, 2 * `step`, … bytes.
async fn cut_streams(step: usize) {
    for reply in [rich(), rich().until_close()] {
        let length = reply.stream_bytes(fake::Api::Messages, "model-1").len();
        let whole = reply.clone();
        let fake = Fake::start(move |view| {
            // The answers to even requests are cut, those to odd ones are complete.
            let (cut, odd) = (view.number / 2 * step, view.number % 2);
            if odd == 1 { whole.clone() } else { whole.clone().cut_after(cut) }
        });
        let client = client(&fake);
        let request = request();
        for cut in (0..=length).step_by(step) {
            let (answer, deltas) = ask(&client, &request).await;
            assert_eq!(answer.unwrap().blocks, rich_blocks(), "cut after {cut} bytes");
            assert_eq!(shown(&deltas), "I list the files 🦀.", "cut after {cut} bytes");
            assert_eq!(retries(&deltas), usize::from(cut < length), "cut after {cut} bytes");
        }
        let seen = fake.requests();
        assert_eq!(seen.len(), 2 * (length / step + 1) - usize::from(length % step == 0));
        assert!(seen.iter().all(|view| view.body == seen[0].body));
    }
}

#[tokio::test]
async fn errors_have_their_kind_and_request_id() {
    let unavailable = |error: &ModelError| matches!(error, ModelError::Unavailable(_));
    let table: [(Reply, Fits, usize); 14] = [
        (
            Reply::error(401, "authentication_error", "x"),
            |e| matches!(e, ModelError::Credentials(_)),
            1,
        ),
        (
            Reply::error(403, "permission_error", "x"),
            |e| matches!(e, ModelError::Credentials(_)),
            1,
        ),
        (Reply::error(402, "billing_error", "x"), |e| matches!(e, ModelError::SpendCap(_)), 1),
        (
            Reply::error(429, "rate_limit_error", "monthly spend limit"),
            |e| matches!(e, ModelError::SpendCap(_)),
            1,
        ),
        (Reply::error(429, "rate_limit_error", "x"), unavailable, 10),
        (
            Reply::error(429, "rate_limit_error", "x").header("retry-after", "3600"),
            |e| matches!(e, ModelError::Unavailable(why) if why.contains("wait for 3600 s, until 2")),
            1,
        ),
        (
            Reply::error(413, "request_too_large", "x"),
            |e| matches!(e, ModelError::ContextFull(_)),
            1,
        ),
        (
            Reply::error(400, "invalid_request_error", "prompt is too long: 2 > 1"),
            |e| matches!(e, ModelError::ContextFull(_)),
            1,
        ),
        (Reply::error(404, "not_found_error", "x"), |e| matches!(e, ModelError::Rejected(_)), 1),
        (Reply::error(529, "overloaded_error", "x"), unavailable, 10),
        (Reply::error(500, "api_error", "x"), unavailable, 10),
        (
            Reply::error(529, "overloaded_error", "x").header("x-should-retry", "false"),
            unavailable,
            1,
        ),
        (
            Reply::error(400, "invalid_request_error", "x").header("x-should-retry", "true"),
            |e| matches!(e, ModelError::Rejected(_)),
            10,
        ),
        (Reply::error(429, "rate_limit_error", "x").header("retry-after", "0"), unavailable, 10),
    ];
    for (reply, fits, requests) in table {
        let said = format!("{reply:?}");
        let fake = Fake::start(move |_| reply.clone());
        let error = ask(&client(&fake), &request()).await.0.unwrap_err();
        assert!(fits(&error), "{said}: {error:?}");
        assert_eq!(fake.requests().len(), requests, "{said}");
        assert!(
            error.to_string().contains(&format!("request_id req_fake_{}", requests - 1)),
            "{error}"
        );
        assert_eq!(
            error.to_string().contains("gave up after 10 attempts"),
            requests == 10,
            "{error}"
        );
    }
}

#[tokio::test]
async fn temporary_errors_are_retried_as_requested() {
    let limited = Reply::error(429, "rate_limit_error", "x").header("retry-after-ms", "3");
    let fake = Fake::queue([
        limited,
        Reply::error(529, "overloaded_error", "busy"),
        rich().error_event("overloaded_error"),
        Reply::raw(200, "text/event-stream", b"data: {broken\n\n"),
        Reply::raw(200, "application/json", b"{\"type\":\"mess"),
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
    assert_eq!(waits.len(), 6);
    assert!((3..4).contains(&waits[0].0.as_millis()), "{waits:?}");
    assert!(waits[1..].iter().all(|wait| wait.0.is_zero()), "{waits:?}");
    for (said, word) in
        waits.iter().zip(["429", "busy", "in mid-stream", "not JSON", "not JSON", "502"])
    {
        assert!(said.1.contains(word), "{said:?} does not name {word}");
    }
}

#[tokio::test]
async fn an_error_event_that_is_final_ends_the_turn() {
    for (kind, requests) in
        [("invalid_request_error", 1), ("authentication_error", 1), ("rate_limit_error", 10)]
    {
        let fake = Fake::start(move |_| rich().error_event(kind));
        let error = ask(&client(&fake), &request()).await.0.unwrap_err();
        assert!(error.to_string().contains(kind), "{error}");
        assert_eq!(fake.requests().len(), requests, "{kind}");
    }
}

#[tokio::test]
async fn stalls_and_missing_answers_end_by_their_limits() {
    let limits = CallLimits {
        first_byte: Duration::from_millis(500),
        first_byte_notice: Duration::from_millis(300),
        silence: Duration::from_millis(500),
        ..CallLimits::default()
    };
    let fake = Fake::start(|view| match view.number {
        0 => Reply::mute(),
        1 => rich().stall_after(0),
        2 => rich().stall_after(400),
        _ => rich().after(Duration::from_millis(20)),
    });
    let client = Client::new(ClientConfig { limits, ..config(&fake.base_url()) }).unwrap();
    let (answer, deltas) = ask(&client, &request()).await;
    assert_eq!(answer.unwrap().blocks, rich_blocks());
    // On a loaded machine, an answer without a stall may exceed the limits as well.
    assert!(retries(&deltas) >= 3, "{deltas:?}");
    let Delta::Silent { left, why } = &deltas[0] else { panic!("{deltas:?}") };
    assert!(why.starts_with("no first byte from http://127.0.0.1:"), "{why}");
    assert_eq!(*left, Duration::from_millis(200));
    tokio::task::spawn_blocking(move || fake.wait_for_hangups(3)).await.unwrap();
}

#[tokio::test]
async fn pings_reset_the_stall_limit_but_not_that_of_the_call() {
    let pings = |count| Fake::start(move |_| rich().pings(count, Duration::from_millis(100)));
    // An answer takes longer than the limit of silence. On a loaded machine, some attempts may be silent for longer.
    let fake = pings(15);
    let limits = CallLimits { silence: Duration::from_secs(1), ..CallLimits::default() };
    let patient = Client::new(ClientConfig { limits, ..config(&fake.base_url()) }).unwrap();
    assert_eq!(ask(&patient, &request()).await.0.unwrap().blocks, rich_blocks());

    let fake = pings(1000);
    let limits = CallLimits { call: Duration::from_millis(400), ..limits };
    let retry = RetryPolicy { tries: 1, ..AT_ONCE };
    let hasty = ClientConfig { limits, retry, ..config(&fake.base_url()) };
    let error = ask(&Client::new(hasty).unwrap(), &request()).await.0.unwrap_err();
    assert!(error.to_string().contains("not finished within 400ms"), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_refused_once() {
    let huge = || Reply::text(&"x".repeat(100_000));
    for reply in [huge(), huge().plain()] {
        let fake = Fake::start(move |_| reply.clone());
        let limits = CallLimits { reply_bytes: 10_000, ..CallLimits::default() };
        let client = Client::new(ClientConfig { limits, ..config(&fake.base_url()) }).unwrap();
        let error = ask(&client, &request()).await.0.unwrap_err();
        assert!(
            matches!(&error, ModelError::Unavailable(why) if why.contains("larger than 10000")),
            "{error}"
        );
        assert_eq!(fake.requests().len(), 1);
    }
}

/// The model must stop generating if the user presses Ctrl-C during a reply, because the user pays per token.
#[tokio::test]
async fn dropping_the_turn_closes_its_connection() {
    for reply in [Reply::mute(), rich().stall_after(0), rich().stall_after(600)] {
        let fake = Fake::start(move |_| reply.clone());
        let client = client(&fake);
        let request = request();
        let arrived = tokio::task::spawn_blocking(move || {
            fake.wait_for_requests(1);
            fake
        });
        let mut sink = |_| ();
        // The turn never completes, so it is dropped when the select ends.
        let fake = tokio::select! {
            _ = client.turn(&request, &mut sink) => panic!("a stalled stream gave a reply"),
            arrived = arrived => arrived.unwrap(),
        };
        tokio::task::spawn_blocking(move || fake.wait_for_hangups(1)).await.unwrap();
    }
}

#[tokio::test]
async fn no_listener_is_unavailable_after_all_tries() {
    // Reserved, so that no server of another test gets the address.
    let unopened = Unopened::new();
    let client = Client::new(config(&unopened.base_url())).unwrap();
    let (answer, deltas) = ask(&client, &request()).await;
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("10 attempts"), "{error}");
    assert_eq!(retries(&deltas), 9);
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_over_https() {
    let fake = Fake::queue([]);
    let base = fake.base_url().replace("http://", "https://");
    let error = ask(&Client::new(config(&base)).unwrap(), &request()).await.0.unwrap_err();
    assert!(
        matches!(&error, ModelError::Unavailable(why) if why.contains("10 attempts")),
        "{error}"
    );
    assert_eq!(fake.requests().len(), 0);
}

#[tokio::test]
async fn no_error_contains_the_key() {
    let echo = format!("the key {CANARY} or sk-ant-api03-0123456789abcdef is bad, Bearer {CANARY}");
    let last = Fake::start(|_| Reply::text("never reached"));
    for (status, extra) in [
        (400, None),
        (401, None),
        (404, None),
        (429, None),
        (500, None),
        (302, Some(last.base_url())),
    ] {
        let mut reply = Reply::error(status, "some_error", &echo);
        if let Some(target) = extra {
            reply = reply.header("location", &format!("{target}/{CANARY}"));
        }
        let fake = Fake::start(move |_| reply.clone());
        let (answer, deltas) = ask(&client(&fake), &request()).await;
        let said = format!("{answer:?} {deltas:?} {}", answer.as_ref().unwrap_err());
        assert!(!said.contains("canary") && !said.contains("api03"), "{said}");
        assert!(said.contains("[redacted]"), "{said}");
    }
    assert_eq!(last.requests().len(), 0, "a redirect was followed");
    assert!(!format!("{:?}", config("http://127.0.0.1")).contains("canary"));
    let redactor = Redactor::new([Secret::new(CANARY).unwrap()]);
    assert!(!redactor.redact(&echo).contains("canary"));
}

#[tokio::test]
async fn a_web_page_is_not_the_api() {
    let fake = Fake::queue([Reply::raw(200, "text/html; charset=utf-8", b"<html>log in</html>")]);
    let error = ask(&client(&fake), &request()).await.0.unwrap_err();
    assert!(matches!(&error, ModelError::Rejected(why) if why.contains("base URL")), "{error}");
}

#[test]
fn a_key_never_leaves_the_machine_in_the_clear() {
    let refused = Client::new(config("http://192.0.2.1")).err().unwrap();
    assert!(matches!(&refused, ConfigError::BadBase { .. }), "{refused}");
    assert!(refused.to_string().contains("https"), "{refused}");
}

/// Requests to loopback use no proxy: another test of this file passes with an unreachable one.
#[test]
fn no_proxy_is_used_for_loopback() {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "provider::messages_api::a_reply_with_every_block_is_read_completely"]);
    again.env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        again.env(name, "http://127.0.0.1:9");
    }
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A shared back-off that a test can inspect.
#[derive(Debug, Clone, Default)]
struct Board(Rc<RefCell<(Duration, Vec<Duration>)>>);

impl Backoff for Board {
    fn pending(&self) -> Duration {
        std::mem::take(&mut self.0.borrow_mut().0)
    }

    fn hold(&self, wait: Duration) {
        self.0.borrow_mut().1.push(wait);
    }
}

#[tokio::test]
async fn the_backoff_is_shared() {
    let limited = Reply::error(429, "rate_limit_error", "x").header("retry-after-ms", "2");
    let fake = Fake::queue([limited, Reply::error(500, "api_error", "x"), rich()]);
    let board = Board::default();
    board.0.borrow_mut().0 = Duration::from_millis(1);
    let client = client(&fake).with_backoff(Box::new(board.clone()));
    let (answer, deltas) = ask(&client, &request()).await;
    answer.unwrap();
    assert!(
        matches!(&deltas[0], Delta::Retry { why, .. } if why.contains("another member")),
        "{deltas:?}"
    );
    let held = board.0.borrow().1.clone();
    assert_eq!(held.len(), 1, "only what the endpoint asks for is shared: {held:?}");
    assert!(held[0] >= Duration::from_millis(2));
}

#[test]
fn the_fake_refuses_what_the_api_refuses() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-version", "2026-10-21"),
        ("x-api-key", "k"),
        ("connection", "close"),
    ];
    let user = || json!({"role": "user", "content": "hi"});
    let call = || json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "c"});
    let says = json!({"type": "text", "text": "x"});
    let body = |change: Value| {
        let mut body = json!({"model": "m", "max_tokens": 5, "messages": [user()]});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    assert_eq!(post(&fake, &headers, &body(json!({}))).0, 200);
    assert_eq!(fake.take_violations(), [""; 0]);
    let cached = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let table = [
        (json!({"temperature": 1.0}), "temperature"),
        (json!({"top_p": 1.0}), "top_p"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"model": ""}), "model"),
        (json!({"novelty": 1}), "novelty"),
        (json!({"messages": []}), "not empty"),
        (json!({"messages": [{"role": "assistant", "content": "x"}]}), "role should be user"),
        (json!({"messages": [user(), user()]}), "role should be assistant"),
        (json!({"messages": [user(), {"role": "assistant", "content": "x"}]}), "not the user's"),
        (json!({"messages": [{"role": "user", "content": []}]}), "empty content"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}),
            "empty text",
        ),
        (json!({"messages": [user(), call(), user()]}), "not answered"),
        (
            json!({"messages": [user(), call(), {"role": "user", "content": [says, result("a")]}]}),
            "after text",
        ),
        (
            json!({"messages": [user(), call(), {"role": "user", "content": [result("b")]}]}),
            "not asked",
        ),
        (
            json!({"messages": [user(), call(), {"role": "user", "content": [result("a"), result("a")]}]}),
            "not asked",
        ),
        (json!({"tools": [{"name": "n", "input_schema": {"type": "array"}}]}), "schema"),
        (json!({"tools": [{"name": "../n", "input_schema": {"type": "object"}}]}), "name"),
        (json!({"system": vec![cached; 5]}), "4 allowed"),
    ];
    for (change, complaint) in table {
        let (status, said) = post(&fake, &headers, &body(change.clone()));
        assert!(
            status == 400 && said.contains(complaint),
            "{change} should give {complaint}: {said}"
        );
        assert!(!fake.take_violations().is_empty());
    }
    for missing in 0..3 {
        let mut fewer = headers.to_vec();
        fewer.remove(missing);
        assert_eq!(post(&fake, &fewer, &body(json!({}))).0, 400, "without {:?}", headers[missing]);
    }
    assert_eq!(fake.take_violations().len(), 3);
}

/// Conversations that are valid by the rules of `wire::chat`, with any text of a model or a tool.
fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    let said = "[ \n]{0,2}|[a-zä\"\\\\\u{0}]{0,5}";
    let calls = proptest::collection::vec(said, 0..3);
    let inputs = prop_oneof![Just(Value::Null), Just(json!({"a": [1]})), Just(json!("text"))];
    let round = (said, calls, inputs, said);
    proptest::collection::vec(round, 0..4).prop_map(|rounds| {
        let mut messages = vec![ChatMessage { role: Role::User, blocks: vec![text("begin")] }];
        for (at, (before, calls, input, after)) in rounds.into_iter().enumerate() {
            let id = |k: usize| format!("c-{at}-{k}");
            let mut asked = vec![text(&before)];
            asked.extend((0..calls.len()).map(|k| Block::ToolUse {
                id: id(k),
                name: "bash".into(),
                input: input.clone(),
            }));
            let mut given: Vec<Block> = calls
                .iter()
                .enumerate()
                .map(|(k, content)| Block::ToolResult {
                    tool_use_id: id(k),
                    content: content.clone(),
                    is_error: k % 2 == 1,
                })
                .collect();
            given.push(text(&after));
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
}
