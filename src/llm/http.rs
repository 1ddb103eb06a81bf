//! A POST or GET to one endpoint: connection, headers, time limits, size limits.
//!
//! *Invariant:* a secret is sent to the configured host only: redirects are not followed, a loopback address is
//! never reached through a proxy, and plain http never leaves the machine. This file does not know the content of
//! requests and responses.

use super::attempt_error::AttemptError;
use super::secret::{Redactor, Secret};
use crate::os::http_client::{self, causes, chain, is_loopback};
use crate::wire::limits;
use reqwest::Client;
pub(crate) use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::cell::OnceCell;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time and size limits of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// The time until the connection is established.
    pub connect: Duration,
    /// The time until the response starts: a local model may process a long conversation for minutes.
    pub first_byte: Duration,
    /// The time without a response after which the caller is told so, once in each attempt.
    pub first_byte_notice: Duration,
    /// The time between two chunks of the response; the server's pings count as chunks.
    pub silence: Duration,
    /// The time of one whole attempt.
    pub call: Duration,
    /// The size of one response in bytes.
    pub reply_bytes: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            connect: limits::MODEL_CONNECT,
            first_byte: limits::MODEL_FIRST_BYTE,
            first_byte_notice: limits::MODEL_FIRST_BYTE_NOTICE,
            silence: limits::MODEL_SILENCE,
            call: limits::MODEL_CALL,
            reply_bytes: limits::MODEL_REPLY_BYTES,
        }
    }
}

/// A configuration error that prevents every call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The base URL cannot be used.
    #[error("the base URL '{base}' cannot be used: {why}")]
    BadBase {
        /// The base URL without credentials.
        base: String,
        /// The problem.
        why: String,
    },
    /// The model's name cannot be part of a URL.
    #[error("the model's name {name:?} cannot be used: {why}")]
    BadModel {
        /// The name.
        name: String,
        /// The problem.
        why: &'static str,
    },
    /// A header cannot be sent.
    #[error("the header '{name}' cannot be sent: {why}")]
    BadHeader {
        /// The name of the header.
        name: String,
        /// The problem.
        why: String,
    },
}

impl ConfigError {
    pub(super) fn header(name: &str, why: impl Into<String>) -> Self {
        Self::BadHeader { name: name.into(), why: why.into() }
    }
}

/// A URL with the headers that are sent with each request.
#[derive(Debug)]
pub(crate) struct Endpoint {
    url: Url,
    headers: HeaderMap,
    limits: CallLimits,
    redactor: Redactor,
    /// The client, created at the first call to save the memory of an agent that never calls a model.
    client: OnceCell<Client>,
}

/// Appends a path to the base URL; a trailing slash makes no difference.
pub(crate) fn join(base: &str, path: &str) -> Result<Url, ConfigError> {
    let bad = |base: &str, why: &str| ConfigError::BadBase { base: base.into(), why: why.into() };
    // A base URL that does not parse is not shown: it might be a misplaced key.
    let mut url =
        Url::parse(base.trim()).map_err(|cause| bad("[not shown]", &cause.to_string()))?;
    let shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(bad(&shown, "it must begin with https:// or http:// and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad(&shown, "it must not contain credentials"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad(&shown, "it must end with a path, without ? and #"));
    }
    let path = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

impl Endpoint {
    /// Creates an endpoint whose responses and errors are shown only through `redactor`.
    pub(crate) fn new(
        url: Url,
        headers: &[(String, Secret)],
        limits: CallLimits,
        redactor: Redactor,
    ) -> Result<Self, ConfigError> {
        if url.scheme() == "http" && !is_loopback(&url) {
            let base = url.origin().ascii_serialization();
            let why = "plain http would expose conversations and the key to the network, so it is \
                       allowed only for this machine (localhost, 127.0.0.1, [::1]): use https, or \
                       a tunnel to the server, such as ssh -L 8080:localhost:8080 HOST";
            return Err(ConfigError::BadBase { base, why: why.into() });
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let bad = |why: &str| ConfigError::header(name, why);
            let key: HeaderName =
                name.parse().map_err(|_| bad("this is not a valid header name"))?;
            let ours = ["host", "content-length", "transfer-encoding", "connection"];
            if ours.contains(&key.as_str()) {
                return Err(bad("the program sets it itself"));
            }
            let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| bad("bad value"))?;
            value.set_sensitive(true);
            map.insert(key, value);
        }
        Ok(Self { url, headers: map, limits, redactor, client: OnceCell::new() })
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the scheme, host and port, for people.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(crate) fn limits(&self) -> &CallLimits {
        &self.limits
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Prepares foreign text for display: one line without secrets, at most 2,000 characters.
    pub(crate) fn shown(&self, text: &str) -> String {
        const LONGEST: usize = 2000;
        let clean = self.redactor.redact(text);
        let line = clean.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut shown: String = line.take(LONGEST).collect();
        if clean.chars().nth(LONGEST).is_some() {
            shown.push('…');
        }
        shown
    }

    /// Posts a JSON body and waits for the response headers.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Answer<'_>, AttemptError> {
        let end = Instant::now() + self.limits.call;
        let request = self.client()?.post(self.url.clone());
        let request = request.header("content-type", "application/json");
        let request = request.headers(self.headers.clone()).body(body);
        let begin = Instant::now() + self.limits.first_byte;
        match timeout_at(begin.min(end), request.send()).await {
            Ok(Ok(response)) => {
                let limit = self.limits.call;
                Ok(Answer { endpoint: self, response, end, limit, received: 0 })
            }
            Ok(Err(cause)) => Err(self.broken(cause)),
            Err(_) if end <= begin => Err(AttemptError::TooLong(self.limits.call)),
            Err(_) => Err(AttemptError::NoAnswer(self.limits.first_byte)),
        }
    }

    /// Returns status and body of a GET that completes within `limit`.
    pub(crate) async fn get(&self, limit: Duration) -> Result<(u16, Vec<u8>), AttemptError> {
        let end = Instant::now() + limit;
        let sent = self.client()?.get(self.url.clone()).headers(self.headers.clone()).send();
        let response = timeout_at(end, sent).await.map_err(|_| AttemptError::NoAnswer(limit))?;
        let response = response.map_err(|cause| self.broken(cause))?;
        let answer = Answer { endpoint: self, response, end, limit, received: 0 };
        let status = answer.status();
        Ok((status, answer.rest().await?))
    }

    fn client(&self) -> Result<&Client, AttemptError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let builder = http_client::builder(&self.url).connect_timeout(self.limits.connect);
        let client =
            builder.build().map_err(|cause| AttemptError::Setup(self.shown(&chain(&cause))))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn broken(&self, cause: reqwest::Error) -> AttemptError {
        if causes(&cause).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_refusal) {
            return AttemptError::Refused;
        }
        AttemptError::Broken(self.shown(&chain(&cause.without_url())))
    }
}

/// A response whose headers have arrived. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    endpoint: &'a Endpoint,
    response: reqwest::Response,
    end: Instant,
    /// The time of the whole attempt, which is over at `end`.
    limit: Duration,
    received: usize,
}

impl Answer<'_> {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the next chunk of the body, or `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Vec<u8>>, AttemptError> {
        let limits = self.endpoint.limits;
        let silent = Instant::now() + limits.silence;
        let piece = match timeout_at(silent.min(self.end), self.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(cause)) => return Err(self.endpoint.broken(cause)),
            Err(_) if self.end <= silent => return Err(AttemptError::TooLong(self.limit)),
            Err(_) => return Err(AttemptError::Silence(limits.silence)),
        };
        let Some(piece) = piece else { return Ok(None) };
        self.received += piece.len();
        if self.received > limits.reply_bytes {
            return Err(AttemptError::TooLarge(limits.reply_bytes));
        }
        Ok(Some(piece.to_vec()))
    }

    pub(crate) async fn rest(mut self) -> Result<Vec<u8>, AttemptError> {
        let mut rest = Vec::new();
        while let Some(piece) = self.piece().await? {
            rest.extend(piece);
        }
        Ok(rest)
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base: &str, headers: &[(String, Secret)]) -> Result<Endpoint, ConfigError> {
        let url = join(base, "/v1/messages")?;
        Endpoint::new(url, headers, CallLimits::default(), Redactor::default())
    }

    #[test]
    fn a_base_url_is_checked_and_plain_http_stays_on_this_machine() {
        let joined = join("https://h/p/", "/v1/messages").unwrap();
        assert_eq!(joined.as_str(), "https://h/p/v1/messages");
        let good = "http://127.0.0.1:1 http://localhost http://[::1]:8080/x/ http://127.9.9.9 \
            https://api.anthropic.com";
        for base in good.split(' ') {
            endpoint(base, &[]).unwrap();
        }
        let bad = " h file:///etc https://u:canary@h https://h?a=canary https://h#canary sk-canary \
            http://10.0.0.1 http://localhost.evil.org http://0x7f.example http://[::2]";
        for base in bad.split(' ') {
            let error = endpoint(base, &[]).unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    /// The error of a list whose beginning comes at once, and whose end never does.
    #[test]
    fn a_response_that_does_not_end_names_the_limit_of_its_request() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", server.local_addr().unwrap());
        // The thread ends with the process.
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
                    request.push(byte[0]);
                }
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{";
                std::io::Write::write_all(&mut stream, head).unwrap();
                open.push(stream);
            }
        });
        let endpoint = endpoint(&base, &[]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut limit = Duration::from_millis(100);
        // On a machine under load even the beginning may come too late.
        let why = loop {
            let why = runtime.block_on(endpoint.get(limit)).unwrap_err();
            if !matches!(why, AttemptError::NoAnswer(_)) {
                break why;
            }
            limit *= 2;
        };
        assert_eq!(why, AttemptError::TooLong(limit));
    }

    #[test]
    fn reserved_and_malformed_headers_are_refused() {
        for name in ["Host", "content-length", "a b", "a\r\nb", ""] {
            let made = endpoint("https://h", &[(name.to_owned(), Secret::new("v").unwrap())]);
            assert!(matches!(made, Err(ConfigError::BadHeader { .. })), "{name:?}");
        }
    }

    #[test]
    fn foreign_text_is_shown_as_one_short_line() {
        let text = format!("a\n\x1b[31m sk-ant-0123456789abcdef {}", "x".repeat(9999));
        let shown = endpoint("https://h", &[]).unwrap().shown(&text);
        assert!(shown.starts_with("a  [31m [redacted] xxx") && shown.chars().count() == 2001);
    }
}
