//! A server behind an address: each message is a POST, and its answer JSON or a stream of events.
//!
//! A server with a handshake may give a session, which each further request names, and within which it may send
//! notifications as the answer to a GET. Without a handshake each request names its version, method and tool in headers.

use super::error::ConnectionError;
use super::from_server::FromServer;
use super::protocol::{Era, Version};
use crate::llm::sse::Decoder;
use crate::os::http_client::{self, chain};
use crate::os::spawn::erased;
use crate::rpc::lines::MAX_MESSAGE_BYTES;
use crate::rpc::message::{Message, MethodCall, RpcError, number_of};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// The maximum length of what is read of an answer that reports a failure, in bytes.
const MAX_FAILURE_BYTES: usize = 64 * 1024;

/// The maximum length of what is shown of it, in characters.
const MAX_FAILURE_CHARS: usize = 300;

/// The time to tell a server something that needs no answer.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before the notifications of a server are asked for again.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

/// The connection with an endpoint.
pub(super) struct Http {
    endpoint: Rc<Endpoint>,
    cancelled: UnboundedSender<u64>,
    /// The task that cancels; dropped with it.
    _cancelling: JoinSet<()>,
    /// The task that listens in the session.
    listening: RefCell<JoinSet<()>>,
}

struct Endpoint {
    client: Client,
    url: Url,
    /// The headers that the user has set.
    headers: HeaderMap,
    from_server: Rc<FromServer>,
    last_id: Cell<u64>,
    session: RefCell<Option<HeaderValue>>,
    /// Whether the server does not know that session any more.
    is_session_lost: Cell<bool>,
    /// The version that requests name, once it is agreed on.
    version: Cell<Option<Version>>,
}

/// Tells the server that a request is cancelled, unless it has ended.
struct CancelOnDrop<'a> {
    cancelled: &'a UnboundedSender<u64>,
    id: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // The receiver ends with the connection, which cancels as well.
            let _over = self.cancelled.send(id);
        }
    }
}

impl Http {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// # Errors
    /// The address or a header is invalid.
    pub(super) fn open(
        url: &str,
        headers: &BTreeMap<String, String>,
        era: Era,
        connect_limit: Duration,
        from_server: Rc<FromServer>,
    ) -> Result<Self, ConnectionError> {
        let refused = |why: String| ConnectionError::Refused(why);
        let url = Url::parse(url).map_err(|why| refused(format!("its url is invalid: {why}")))?;
        let is_plain = url.scheme() == "http" && http_client::is_loopback(&url);
        if url.scheme() != "https" && !is_plain {
            let why = "its url is not https; plain http is allowed only for this machine";
            return Err(refused(why.into()));
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name
                .parse()
                .map_err(|_| refused(format!("{name:?} is not a valid header name")))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| refused(format!("the value of its header {name} is invalid")))?;
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let client = http_client::builder(&url)
            .connect_timeout(connect_limit)
            .build()
            .map_err(|why| refused(chain(&why)))?;
        let endpoint = Rc::new(Endpoint {
            client,
            url,
            headers: all,
            from_server,
            last_id: Cell::new(0),
            session: RefCell::default(),
            is_session_lost: Cell::new(false),
            version: Cell::new((era == Era::Discover).then_some(Version::V2026_07_28)),
        });
        let (cancelled, to_cancel) = unbounded_channel();
        let mut cancelling = JoinSet::new();
        cancelling.spawn_local(erased(cancel(Rc::clone(&endpoint), to_cancel)));
        let listening = RefCell::default();
        Ok(Self { endpoint, cancelled, _cancelling: cancelling, listening })
    }

    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, ConnectionError> {
        let id = self.endpoint.last_id.get() + 1;
        self.endpoint.last_id.set(id);
        // Without a handshake, the end of the HTTP request is the cancellation. A handshake must not be cancelled.
        let version = self.endpoint.version.get();
        let is_told = version.is_some_and(|version| version.era() == Era::Handshake);
        let mut guard = CancelOnDrop { cancelled: &self.cancelled, id: is_told.then_some(id) };
        let answer = self.endpoint.exchange(id, method, params).await;
        guard.id = None;
        answer
    }

    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.endpoint.notify(method, params).await;
    }

    /// Uses the version that the handshake has agreed on, and listens to notifications if there is a session.
    pub(super) fn begin(&self, version: Version) {
        self.endpoint.version.set(Some(version));
        if self.endpoint.session.borrow().is_some() {
            self.listening.borrow_mut().spawn_local(erased(Rc::clone(&self.endpoint).listen()));
        }
    }

    /// Whether the server has forgotten the session.
    pub(super) fn is_session_lost(&self) -> bool {
        self.endpoint.is_session_lost.get()
    }

    /// Prepares another handshake.
    pub(super) fn forget_session(&self) {
        self.listening.take();
        self.endpoint.session.take();
        self.endpoint.version.take();
        self.endpoint.is_session_lost.take();
    }

    /// Ends the session, if there is one.
    pub(super) async fn end_session(&self) {
        let endpoint = &self.endpoint;
        if endpoint.session.borrow().is_none() || self.is_session_lost() {
            return;
        }
        let sent = endpoint.client.delete(endpoint.url.clone()).headers(endpoint.head()).send();
        if let Err(why) = sent.await {
            tracing::debug!(why = chain(&why.without_url()), "a session was not ended in order");
        }
    }
}

/// Tells the server which requests are cancelled.
async fn cancel(endpoint: Rc<Endpoint>, mut cancelled: UnboundedReceiver<u64>) {
    while let Some(id) = cancelled.recv().await {
        endpoint.notify("notifications/cancelled", json!({ "requestId": id })).await;
    }
}

impl Endpoint {
    /// Returns the headers that every request has.
    fn head(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(version) = self.version.get() {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        if let Some(session) = &*self.session.borrow() {
            headers.insert(SESSION, session.clone());
        }
        headers
    }

    async fn post(&self, message: Message) -> Result<Response, ConnectionError> {
        let mut headers = self.head();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let is_modern = self.version.get().is_some_and(|version| version.era() == Era::Discover);
        if let Message::Call(call) = &message
            && is_modern
        {
            headers.extend(header_value(&call.method).map(|value| (METHOD, value)));
            let name = call.params.get("name").and_then(Value::as_str);
            headers.extend(name.and_then(header_value).map(|value| (NAME, value)));
        }
        let body = message.into_json().to_string();
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        request.send().await.map_err(|why| {
            let is_unreached = why.is_connect();
            let why = chain(&why.without_url());
            if is_unreached {
                ConnectionError::Refused(format!("it cannot be reached: {why}"))
            } else {
                ConnectionError::Ended(format!(": {why}"))
            }
        })
    }

    async fn notify(&self, method: &str, params: Value) {
        let call = MethodCall { id: None, method: method.to_owned(), params };
        self.tell(Message::Call(call)).await;
    }

    /// Sends a message that needs no answer.
    async fn tell(&self, message: Message) {
        let told = timeout(NOTIFY_TIMEOUT, self.post(message)).await;
        if !matches!(&told, Ok(Ok(response)) if response.status().is_success()) {
            tracing::debug!("an MCP server did not accept a notification or an answer");
        }
    }

    async fn exchange(
        &self,
        id: u64,
        method: &'static str,
        params: Value,
    ) -> Result<Value, ConnectionError> {
        let call = MethodCall { id: Some(id.into()), method: method.to_owned(), params };
        let mut response = self.post(Message::Call(call)).await?;
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        if method == "initialize" {
            *self.session.borrow_mut() = response.headers().get(SESSION).cloned();
        }
        if has_type(&response, EVENTS) {
            let ended = ": its stream of events ended before the answer";
            let answer = self.read_events(response, Some(id)).await?;
            return answer.ok_or_else(|| ConnectionError::Ended(ended.into()))?.map_err(refused);
        }
        if !has_type(&response, JSON) {
            let why = "it is neither JSON nor a stream of events";
            return Err(ConnectionError::NotUnderstood(why.into()));
        }
        let body = read_body(&mut response, MAX_MESSAGE_BYTES).await?;
        let Some(body) = body else {
            let why = format!("it is longer than {} MiB", MAX_MESSAGE_BYTES >> 20);
            return Err(ConnectionError::NotUnderstood(why));
        };
        match Message::read(&body) {
            // A server that could not read the request has no id.
            Ok(Message::Response { id: answered, result })
                if number_of(&answered) == Some(id) || (answered.is_null() && result.is_err()) =>
            {
                result.map_err(refused)
            }
            Ok(Message::Response { .. } | Message::Call(_)) | Err(_) => {
                Err(ConnectionError::NotUnderstood("it is no answer to the request".into()))
            }
        }
    }

    /// Reads events up to the answer to a request, if there is one, or to the end of the stream.
    async fn read_events(
        &self,
        mut response: Response,
        wanted: Option<u64>,
    ) -> Result<Option<Result<Value, RpcError>>, ConnectionError> {
        let mut decoder = Decoder::default();
        while let Some(piece) = response.chunk().await.map_err(ended)? {
            let (events, is_short) = decoder.push(&piece);
            for event in events {
                match Message::read(event.data.as_bytes()) {
                    Ok(Message::Response { id, result }) => {
                        if wanted.is_some() && number_of(&id) == wanted {
                            return Ok(Some(result));
                        }
                    }
                    Ok(Message::Call(call)) => {
                        if let Some((id, result)) = self.from_server.receive(call) {
                            self.tell(Message::Response { id, result }).await;
                        }
                    }
                    Err(_) => tracing::debug!("an MCP server sent an event that is no message"),
                }
            }
            is_short.map_err(|why| ConnectionError::Ended(format!(": {why}")))?;
        }
        Ok(None)
    }

    /// Reads what the server sends by itself, as long as it offers that.
    async fn listen(self: Rc<Self>) {
        loop {
            let mut headers = self.head();
            headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
            let Ok(response) = self.client.get(self.url.clone()).headers(headers).send().await
            else {
                return;
            };
            if !response.status().is_success() || !has_type(&response, EVENTS) {
                return;
            }
            if let Err(why) = self.read_events(response, None).await {
                tracing::debug!(%why, "the notifications of an MCP server ended");
            }
            sleep(LISTEN_PAUSE).await;
        }
    }

    /// Returns the error of an answer whose status is none of success.
    async fn failure(&self, mut response: Response) -> ConnectionError {
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.session.borrow().is_some() {
            self.is_session_lost.set(true);
        }
        if status == StatusCode::UNAUTHORIZED {
            let why =
                "it asks for a login (OAuth), which is not supported; set a header with a token";
            return ConnectionError::Refused(why.into());
        }
        let body = read_body(&mut response, MAX_FAILURE_BYTES).await.ok().flatten();
        let body = body.unwrap_or_default();
        if let Ok(Message::Response { result: Err(why), .. }) = Message::read(&body) {
            return refused(why);
        }
        let text = String::from_utf8_lossy(&body);
        let text: String = text.trim().chars().take(MAX_FAILURE_CHARS).collect();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        let why = format!("it answered with HTTP {}{text}", status.as_u16());
        if status.is_server_error() {
            // Another program before the server may answer so while it works.
            return ConnectionError::Ended(format!(": {why}"));
        }
        ConnectionError::Refused(why)
    }
}

/// Reads a body to its end; `None` if it is too long.
async fn read_body(
    response: &mut Response,
    most: usize,
) -> Result<Option<Vec<u8>>, ConnectionError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(ended)? {
        if body.len() + piece.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

fn refused(why: RpcError) -> ConnectionError {
    ConnectionError::Refused(why.message)
}

fn ended(why: reqwest::Error) -> ConnectionError {
    ConnectionError::Ended(format!(": {}", chain(&why.without_url())))
}

/// Whether an answer has this type; letter case and parameters make no difference.
fn has_type(response: &Response, wanted: &str) -> bool {
    let given = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.and_then(|given| given.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(wanted)
}

/// Returns a text as the value of a header; in base64 if it has characters that are lost on the way.
fn header_value(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if is_plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_as_it_is_or_in_base64() {
        for (text, value) in [
            ("git_log", "git_log"),
            ("git log", "git log"),
            ("", ""),
            (" a", "=?base64?IGE=?="),
            ("\u{e9}", "=?base64?w6k=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(header_value(text).unwrap(), value, "{text:?}");
        }
    }
}
