//! A strict fake of the Messages API, of chat completions, of the Responses API and of the Gemini API. This HTTP/1.1 server on
//! loopback checks every request ([`validate`], [`completions`], [`responses`], [`gemini`]) and sends programmed replies ([`Reply`]) with any fault of a network or
//! a server.
//!
//! A request that the real API would refuse gets status 400 and fails the test when the fake is dropped. The
//! drop joins every thread of the server.

mod completions;
mod gemini;
mod gemini_reply;
mod images;
mod reply;
mod responses;
mod responses_reply;
mod trouble;
mod validate;

pub(crate) use reply::Reply;
pub(crate) use trouble::FAULTS;

use crate::support::harness::PATIENCE;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Completions,
    Responses,
    Gemini,
}

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct RequestView {
    pub(crate) api: Api,
    /// Header values by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The path and the query.
    pub(crate) target: String,
    /// The conversation of a request to the Gemini API, in the format of the Messages API.
    translated: Vec<Value>,
    /// The number of valid requests before this one.
    pub(crate) number: usize,
}

impl RequestView {
    /// Returns the name of the requested model.
    pub(crate) fn model(&self) -> &str {
        match self.api {
            Api::Gemini => gemini::model_of(&self.target),
            Api::Messages | Api::Completions | Api::Responses => {
                self.body["model"].as_str().unwrap_or_default()
            }
        }
    }

    /// Whether the request asks for a stream.
    pub(crate) fn is_streamed(&self) -> bool {
        self.body["stream"] == true || self.target.contains(":streamGenerateContent")
    }

    /// Returns the conversation as the API has it.
    pub(crate) fn conversation(&self) -> &Value {
        match self.api {
            Api::Messages | Api::Completions => &self.body["messages"],
            Api::Responses => &self.body["input"],
            Api::Gemini => &self.body["contents"],
        }
    }

    /// Returns the messages; those of the Responses API in the form of chat completions.
    fn messages(&self) -> Cow<'_, [Value]> {
        match self.api {
            Api::Gemini => self.translated.as_slice().into(),
            Api::Messages | Api::Completions => {
                self.body["messages"].as_array().map_or(&[][..], Vec::as_slice).into()
            }
            Api::Responses => responses::messages(&self.body).into(),
        }
    }

    /// Returns the system prompt.
    pub(crate) fn system(&self) -> String {
        match self.api {
            Api::Messages => texts(&self.body["system"]),
            Api::Gemini => texts(&self.body["systemInstruction"]["parts"]),
            Api::Completions => {
                let messages = self.messages();
                let system = messages.iter().filter(|message| message["role"] == "system");
                system.map(|message| texts(&message["content"])).collect()
            }
            Api::Responses => texts(&self.body["instructions"]),
        }
    }

    /// Returns the number of replies in the conversation so far.
    pub(crate) fn turn(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Returns the text of the user's messages since the last reply.
    pub(crate) fn last_text(&self) -> String {
        let messages = self.messages();
        let news = news(&messages).iter().filter(|message| message["role"] == "user");
        news.map(|message| texts(&message["content"])).collect::<Vec<_>>().join("\n")
    }

    /// Returns the tool results since the last reply, in the format of the Messages API.
    pub(crate) fn results(&self) -> Vec<Value> {
        let mut results = Vec::new();
        for message in news(&self.messages()) {
            if message["role"] == "tool" {
                results.push(json!({"type": "tool_result", "tool_use_id": message["tool_call_id"],
                    "content": message["content"]}));
            }
            let blocks = message["content"].as_array().into_iter().flatten();
            results.extend(blocks.filter(|block| block["type"] == "tool_result").cloned());
        }
        results
    }
}

/// Returns the messages since the last reply.
fn news(messages: &[Value]) -> &[Value] {
    let replied = messages.iter().rposition(|message| message["role"] == "assistant");
    &messages[replied.map_or(0, |at| at + 1)..]
}

impl RequestView {
    fn new(api: Api, headers: BTreeMap<String, String>, body: Value, target: &str) -> Self {
        let translated =
            if api == Api::Gemini { gemini::as_messages(&body["contents"]) } else { vec![] };
        Self { api, headers, body, target: target.into(), translated, number: 0 }
    }
}

fn texts(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten();
    let texts = blocks.filter_map(|block| block["text"].as_str()).chain(content.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

type Respond = dyn Fn(&RequestView) -> Reply + Send + Sync;

/// Whether requests must carry an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyPolicy {
    /// Every request needs a key.
    Required,
    /// No request may carry a key, as with a local server.
    Refused,
    /// No request is checked at all: a server that does not have the API.
    Unchecked,
}

/// The models that a local server lists.
pub(crate) const LOCAL_MODELS: [&str; 3] = ["text-embedding-small", "small:1b", "small:7b"];

struct Shared {
    respond: Box<Respond>,
    key_policy: KeyPolicy,
    keep: Keep,
    log: Mutex<Log>,
    changed: Condvar,
}

/// Whether answered requests are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    /// No requests are kept: those of a long run would fill the memory.
    Nothing,
}

#[derive(Default)]
struct Log {
    requests: Vec<RequestView>,
    /// The number of valid requests, kept or not.
    count: usize,
    violations: Vec<String>,
    /// The number of answers that stopped before their end while the connection stayed open.
    stalls: usize,
    /// The number of connections that the client closed before the answer was complete.
    hangups: usize,
    paused: bool,
    /// The signed parts that replies of the Gemini API have had.
    signed: gemini::Signed,
    /// The number of requests that were refused for a signature of another server.
    stale: usize,
    /// Open connections by number, closed when the fake is dropped.
    open: BTreeMap<usize, TcpStream>,
    over: bool,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn note(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log());
        self.changed.notify_all();
    }

    /// Waits for this long, or until the fake is dropped.
    fn pause(&self, time: Duration) {
        drop(self.changed.wait_timeout_while(self.log(), time, |log| !log.over).unwrap());
    }
}

/// The running server.
pub(crate) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a server that calls `respond` for each valid request.
    pub(crate) fn start(respond: impl Fn(&RequestView) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(loopback(), KeyPolicy::Required, Keep::All, respond)
    }

    /// Starts a server that refuses API keys, as a local server does.
    pub(crate) fn local(respond: impl Fn(&RequestView) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(loopback(), KeyPolicy::Refused, Keep::All, respond)
    }

    /// Starts a server that answers every request in the same way, also one for the list of models.
    pub(crate) fn always(reply: Reply) -> Self {
        Self::on(loopback(), KeyPolicy::Unchecked, Keep::All, move |_| reply.clone())
    }

    /// Starts a server that keeps no requests, for long runs.
    pub(crate) fn without_history(
        respond: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::on(loopback(), KeyPolicy::Required, Keep::Nothing, respond)
    }

    /// Returns the TCP port of the server.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    fn on(
        listener: TcpListener,
        key_policy: KeyPolicy,
        keep: Keep,
        respond: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            key_policy,
            keep,
            log: Mutex::default(),
            changed: Condvar::new(),
        });
        let mine = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, &mine));
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Starts a server that sends these replies in order, and an error after the last.
    pub(crate) fn queue(replies: impl IntoIterator<Item = Reply>) -> Self {
        let left: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        Self::start(move |_| {
            let next = left.lock().unwrap().pop_front();
            next.unwrap_or_else(|| {
                Reply::error(500, "api_error", "the queue is empty")
                    .header("x-should-retry", "false")
            })
        })
    }

    /// Returns the base URL for clients.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the valid requests so far.
    pub(crate) fn requests(&self) -> Vec<RequestView> {
        self.shared.log().requests.clone()
    }

    /// Waits until this many valid requests have arrived.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        self.wait("requests", |log| log.requests.len() >= count);
    }

    /// Returns the number of stalled answers.
    pub(crate) fn stalls(&self) -> usize {
        self.shared.log().stalls
    }

    /// Waits until this many clients have closed their connection before the answer was complete.
    pub(crate) fn wait_for_hangups(&self, count: usize) {
        self.wait("hangups", |log| log.hangups >= count);
    }

    fn wait(&self, what: &str, enough: impl Fn(&Log) -> bool) {
        let bound = PATIENCE;
        let guard = self.shared.log();
        let waited = self.shared.changed.wait_timeout_while(guard, bound, |log| !enough(log));
        assert!(!waited.unwrap().1.timed_out(), "no such {what} within {bound:?}");
    }

    /// Returns how many requests were refused for a signature of another server, for tests that provoke this.
    pub(crate) fn take_stale(&self) -> usize {
        std::mem::take(&mut self.shared.log().stale)
    }

    /// Removes and returns the violations, for tests that provoke them.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.log().violations)
    }
}

/// A reserved address that refuses connections until it is opened.
pub(crate) struct Unopened(tokio::net::TcpSocket);

impl Unopened {
    /// Reserves an address.
    pub(crate) fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    /// Returns the base URL for clients.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Starts a server on the reserved address.
    pub(crate) fn open(
        self,
        respond: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
    ) -> Fake {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(async { self.0.listen(64)?.into_std() }).unwrap();
        listener.set_nonblocking(false).unwrap();
        Fake::on(listener, KeyPolicy::Required, Keep::All, respond)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.note(|log| {
            log.over = true;
            for stream in log.open.values() {
                drop(stream.shutdown(Shutdown::Both));
            }
        });
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
        let violations = self.take_violations();
        if !thread::panicking() {
            assert_eq!(
                self.take_stale(),
                0,
                "the client sent signatures that are not of this server"
            );
            assert!(violations.is_empty(), "the client broke the format: {violations:#?}");
        }
    }
}

fn loopback() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    for (number, stream) in listener.incoming().enumerate() {
        let Ok(stream) = stream else { continue };
        {
            let mut log = shared.log();
            if log.over {
                break;
            }
            log.open.insert(number, stream.try_clone().unwrap());
        }
        let mine = Arc::clone(shared);
        connections.retain(|connection| !connection.is_finished());
        connections.push(thread::spawn(move || {
            serve(stream, &mine);
            mine.log().open.remove(&number);
        }));
    }
    for connection in connections {
        drop(connection.join());
    }
}

/// Serves a connection until one side closes it. Errors of the connection are ignored, because the client under
/// test reports them.
fn serve(stream: TcpStream, shared: &Shared) {
    drop(stream.set_nodelay(true));
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some((line, headers, body)) = read_request(&mut reader) {
        let reply = answer(shared, &line, headers, &body);
        shared.pause(reply.delay());
        let goes_on = reply.write(&mut writer, |time| shared.pause(time));
        if reply.stalls() {
            shared.note(|log| log.stalls += 1);
            drop(reader.read(&mut [0; 1]));
            shared.note(|log| log.hangups += 1);
        }
        if !goes_on {
            break;
        }
    }
    drop(writer.flush());
    drop(writer.shutdown(Shutdown::Both));
}

type Parts = (String, BTreeMap<String, String>, Vec<u8>);

fn read_request(reader: &mut impl BufRead) -> Option<Parts> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.trim_end().to_owned(), headers, body))
}

fn answer(shared: &Shared, line: &str, headers: BTreeMap<String, String>, body: &[u8]) -> Reply {
    if shared.key_policy == KeyPolicy::Unchecked {
        let view = RequestView::new(Api::Messages, headers, Value::Null, "");
        return (shared.respond)(&view);
    }
    let target = line.split(' ').nth(1).unwrap_or_default();
    let api = match line.split(' ').take(2).collect::<Vec<_>>().as_slice() {
        [verb, path] if path.starts_with("/v1beta/models") => match *verb {
            "GET" => return gemini_reply::models(&headers),
            _ => Api::Gemini,
        },
        ["POST", "/v1/messages"] => Api::Messages,
        ["POST", "/v1/chat/completions"] => Api::Completions,
        ["POST", "/v1/responses"] => Api::Responses,
        ["GET", "/v1/models"] if shared.key_policy == KeyPolicy::Required && !has_key(&headers) => {
            return Reply::error(401, "authentication_error", "there is no key");
        }
        ["GET", "/v1/models"] => {
            let models: Vec<Value> = LOCAL_MODELS.iter().map(|id| json!({"id": id})).collect();
            let list = json!({"object": "list", "data": models});
            return Reply::raw(200, "application/json", list.to_string().as_bytes());
        }
        _ => return Reply::error(404, "not_found_error", line),
    };
    let body: Value = serde_json::from_slice(body).unwrap_or(json!("not json"));
    let body = if api == Api::Gemini { gemini::in_camel_case(&body) } else { body };
    let mut violations = match api {
        Api::Messages => {
            let paused = shared.log().paused;
            let mut found = validate::violations(&headers, &body, paused);
            if shared.key_policy == KeyPolicy::Refused {
                // Local servers take sampling parameters.
                found.retain(|violation| violation != "temperature is not supported");
            }
            found
        }
        Api::Completions => completions::violations(&headers, &body),
        Api::Responses => responses::violations(&headers, &body),
        Api::Gemini => match check_gemini(shared, &headers, target, &body) {
            Ok(violations) => violations,
            // The real API cannot know whether the client has changed a signature or keeps an old one.
            Err(stale) => {
                shared.note(|log| log.stale += 1);
                return Reply::error(400, "INVALID_ARGUMENT", stale).of(api);
            }
        },
    };
    if shared.key_policy == KeyPolicy::Refused {
        violations.retain(|complaint| !complaint.starts_with("no "));
        if has_key(&headers) {
            violations.push("a key was sent to a server that wants none".into());
        }
    }
    if !violations.is_empty() {
        let message = violations.join("; ");
        shared.note(|log| log.violations.extend(violations));
        let kind = if api == Api::Gemini { "INVALID_ARGUMENT" } else { "invalid_request_error" };
        return Reply::error(400, kind, &message).of(api);
    }
    let mut view = RequestView::new(api, headers, body, target);
    shared.note(|log| {
        view.number = log.count;
        log.count += 1;
        if shared.keep == Keep::All {
            log.requests.push(view.clone());
        }
    });
    let reply = (shared.respond)(&view).asked(&view);
    shared.note(|log| log.signed.extend(view.model(), reply.signed_parts()));
    if reply.pauses() {
        shared.note(|log| log.paused = true);
    }
    reply
}

fn check_gemini(
    shared: &Shared,
    headers: &BTreeMap<String, String>,
    target: &str,
    body: &Value,
) -> Result<Vec<String>, &'static str> {
    gemini::violations(headers, target, body, &shared.log().signed)
}

fn has_key(headers: &BTreeMap<String, String>) -> bool {
    ["x-api-key", "x-goog-api-key", "authorization"].iter().any(|name| headers.contains_key(*name))
}

/// Sends one POST without a client library, for tests of the fake itself. Returns status and body.
pub(crate) fn post(fake: &Fake, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
    post_to(fake, "/v1/messages", headers, body)
}

/// Sends one POST to a path. Returns status and body.
pub(crate) fn post_to(
    fake: &Fake,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, String) {
    let mut stream = TcpStream::connect(fake.address).unwrap();
    let body = body.to_string();
    let length = body.len();
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: fake\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        text.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    (status, body)
}
