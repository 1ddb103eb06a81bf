//! The Anthropic Messages API, for everything that speaks it: one turn, tried again where that helps.
//!
//! *Invariant:* an attempt either ends with its `message_stop` and gives a whole reply, or leaves
//! nothing behind: the next attempt sends the same bytes. Knows neither the environment nor who else
//! calls; a shared back-off is handed in.

mod error;
mod reply;
mod request;

pub use reply::INVALID_JSON;

use super::http::{Answer, ConfigError, Endpoint, HttpError, Limits, PlainHttp, join};
use super::retry::{Alone, Backoff, Failure, Jitter, RetryPolicy, Verdict, retry_after, stagger};
use super::secret::{Redactor, Secret};
use super::sse::{Decoder, LineTooLong};
use super::{Delta, ModelError, Provider, TurnFuture};
use crate::os::{Clock, SystemClock};
use crate::wire::chat::{Reply, Request};
use error::Report;
use reply::{Assembler, Fault};
use request::Extras;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// The version of the API that this client is written for.
pub const API_VERSION: &str = "2026-10-21";

/// Bytes of an error body that are looked at.
const ERROR_BODY: usize = 64 << 10;

/// How the caller proves who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A key, sent as `x-api-key`.
    ApiKey(Secret),
    /// A token, sent as `Authorization: Bearer`.
    AuthToken(Secret),
    /// Nothing: a local server.
    Nobody,
}

/// Everything that makes a client.
#[derive(Debug, Clone)]
pub struct AnthropicConfig {
    /// Where the API is, without `/v1`; one at its end is tolerated with a warning.
    pub base_url: String,
    /// Who calls.
    pub credentials: Credentials,
    /// Which model answers.
    pub model: String,
    /// Header `anthropic-version`.
    pub version: String,
    /// Further headers; they win over ours of the same name.
    pub extra_headers: Vec<(String, Secret)>,
    /// Field `thinking`, sent as it is.
    pub thinking: Option<Value>,
    /// Field `output_config`, sent as it is.
    pub output_config: Option<Value>,
    /// Times and sizes of one attempt.
    pub limits: Limits,
    /// How often and when to try again.
    pub retry: RetryPolicy,
    /// Whether plain http may leave this machine.
    pub plain_http: PlainHttp,
    /// Where the jitter of waits begins; members of a team should differ.
    pub jitter_seed: u64,
}

impl AnthropicConfig {
    /// A configuration with the defaults for all that is not named.
    pub fn new(base_url: &str, credentials: Credentials, model: &str) -> Self {
        Self {
            base_url: base_url.into(),
            credentials,
            model: model.into(),
            version: API_VERSION.into(),
            extra_headers: Vec::new(),
            thinking: None,
            output_config: None,
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            plain_http: PlainHttp::default(),
            jitter_seed: 0,
        }
    }

    fn headers(&self) -> Result<Vec<(String, Secret)>, ConfigError> {
        let mut headers =
            vec![("anthropic-version".to_owned(), header(&self.version, "anthropic-version")?)];
        match &self.credentials {
            Credentials::ApiKey(key) => headers.push(("x-api-key".into(), key.clone())),
            Credentials::AuthToken(token) => {
                let bearer = format!("Bearer {}", token.reveal());
                headers.push(("authorization".into(), header(&bearer, "authorization")?));
            }
            Credentials::Nobody => {}
        }
        headers.extend(self.extra_headers.iter().cloned());
        Ok(headers)
    }

    fn secrets(&self) -> Vec<Secret> {
        // The API's own headers name versions and features; in any other there may be a key.
        let public = |name: &str| name.to_lowercase().starts_with("anthropic-");
        let extra = self.extra_headers.iter().filter(|(name, _)| !public(name));
        let mut secrets: Vec<Secret> = extra.map(|(_, value)| value.clone()).collect();
        match &self.credentials {
            Credentials::ApiKey(secret) | Credentials::AuthToken(secret) => {
                secrets.push(secret.clone());
            }
            Credentials::Nobody => {}
        }
        secrets
    }
}

fn header(value: &str, name: &str) -> Result<Secret, ConfigError> {
    let bad = |why| ConfigError::BadHeader { name: name.into(), why };
    Secret::new(value).map_err(|cause| bad(cause.to_string()))
}

/// Reads further headers as `ANTHROPIC_CUSTOM_HEADERS` has them: `Name: value`, one a line.
///
/// # Errors
/// A line has no colon, or a value no header can have; the error does not show it.
pub fn parse_headers(text: &str) -> Result<Vec<(String, Secret)>, ConfigError> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let headers = lines.map(|(number, line)| {
        let name = format!("line {number}");
        let bad = || ConfigError::BadHeader { name, why: "it is not 'Name: value'".into() };
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        Ok((name.trim().to_owned(), header(value.trim(), name.trim())?))
    });
    headers.collect()
}

/// A client of one endpoint for one model.
pub struct Anthropic {
    endpoint: Endpoint,
    extras: Extras,
    retry: RetryPolicy,
    jitter: Jitter,
    backoff: Box<dyn Backoff>,
    warnings: Vec<String>,
}

impl Anthropic {
    /// A client; it connects at its first call.
    ///
    /// # Errors
    /// The base URL or a header cannot be used.
    pub fn new(config: AnthropicConfig) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let mut base = config.base_url.trim().trim_end_matches('/');
        if let Some(shorter) = base.strip_suffix("/v1") {
            base = shorter;
            warnings
                .push("the base url should not end with /v1, which is added to it: ignored".into());
        }
        let url = join(base, "/v1/messages")?;
        let redactor = Redactor::new(config.secrets());
        let endpoint =
            Endpoint::new(url, &config.headers()?, config.limits, config.plain_http, redactor)?;
        let AnthropicConfig { model, thinking, output_config, retry, jitter_seed, .. } = config;
        Ok(Self {
            endpoint,
            extras: Extras { model, thinking, output_config },
            retry,
            jitter: Jitter::seeded(jitter_seed),
            backoff: Box::new(Alone),
            warnings,
        })
    }

    /// The same client, waiting together with others.
    #[must_use]
    pub fn with_backoff(self, backoff: Box<dyn Backoff>) -> Self {
        Self { backoff, ..self }
    }

    /// What the person who wrote the configuration should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    async fn converse(
        &self,
        request: &Request,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<Reply, ModelError> {
        let body = request::body(request, &self.extras).to_string().into_bytes();
        let start = Instant::now();
        let mut tries = 0;
        loop {
            self.wait_with_others(start, sink).await?;
            tries += 1;
            let miss = match self.attempt(request, body.clone(), sink).await {
                Ok(reply) => return Ok(reply),
                Err(miss) => miss,
            };
            let why = self.endpoint.shown(&format!("{}: {}", self.endpoint.url(), miss.words()));
            let Some(failure) = miss.failure() else { return Err(miss.error(why)) };
            match self.retry.judge(failure, tries, start.elapsed(), self.jitter.draw()) {
                Verdict::Final => return Err(miss.error(why)),
                Verdict::Exhausted => {
                    let seconds = start.elapsed().as_secs();
                    return Err(
                        miss.error(format!("{why}; gave up after {tries} tries in {seconds} s"))
                    );
                }
                Verdict::Retry(wait) => {
                    if matches!(failure, Failure::Status { status: 429 | 529, .. }) {
                        self.backoff.hold(wait);
                    }
                    sink(Delta::Retry { wait, why });
                    sleep(wait).await;
                }
            }
        }
    }

    /// Waits as long as the endpoint has asked anybody to.
    async fn wait_with_others(
        &self,
        start: Instant,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        loop {
            let pending = self.backoff.pending();
            if pending.is_zero() {
                return Ok(());
            }
            let wait = pending + stagger(pending, self.jitter.draw());
            let why = "the endpoint asked another member of the team to wait".to_owned();
            if start.elapsed() + wait > self.retry.within {
                return Err(ModelError::Unavailable(why));
            }
            sink(Delta::Retry { wait, why });
            sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        body: Vec<u8>,
        sink: &mut dyn FnMut(Delta),
    ) -> Result<Reply, Miss> {
        let mut answer = self.endpoint.post(body).await?;
        if !(200..300).contains(&answer.status()) {
            return Err(Miss::Reported(report(answer).await));
        }
        let mut assembler = Assembler::new(request, &self.extras.model);
        let media = answer.header("content-type").unwrap_or_default().to_lowercase();
        if media.starts_with("application/json") {
            assembler.take_whole(&answer.rest().await?, sink)?;
            return Ok(assembler.finish());
        }
        if media.starts_with("text/html") {
            return Err(Miss::NotTheApi);
        }
        let mut decoder = Decoder::default();
        while let Some(piece) = answer.piece().await? {
            for event in decoder.push(&piece)? {
                if assembler.take(&event, sink)? {
                    return Ok(assembler.finish());
                }
            }
        }
        Err(Miss::Cut)
    }
}

impl Provider for Anthropic {
    fn label(&self) -> String {
        format!("anthropic/{}", self.extras.model)
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: &'a mut dyn FnMut(Delta)) -> TurnFuture<'a> {
        Box::pin(self.converse(request, sink))
    }
}

/// Reads what an error answer says, as far as it can be read.
async fn report(mut answer: Answer<'_>) -> Report {
    let mut body = Vec::new();
    while let (true, Ok(Some(piece))) = (body.len() < ERROR_BODY, answer.piece().await) {
        body.extend(piece);
    }
    let mut report = Report::from_body(answer.status(), &body);
    if let Some(target) = answer.header("location") {
        report.message =
            format!("it redirects to {target}, which is not followed: is the base url right?");
    }
    let given_id = || answer.header("request-id").map(str::to_owned);
    report.request_id = report.request_id.or_else(given_id);
    report.should_retry = answer.header("x-should-retry").and_then(|word| word.parse().ok());
    let now = SystemClock.now();
    report.retry_after =
        retry_after(answer.header("retry-after-ms"), answer.header("retry-after"), now);
    report
}

/// Why an attempt gave no reply.
#[derive(Debug)]
enum Miss {
    Http(HttpError),
    Garbled(String),
    Oversized(LineTooLong),
    /// The stream ended before its last event.
    Cut,
    /// A web page: somebody else answers at this address.
    NotTheApi,
    Reported(Report),
}

impl Miss {
    fn words(&self) -> String {
        match self {
            Self::Http(cause) => cause.to_string(),
            Self::Garbled(what) => format!("the answer breaks the format: {what}"),
            Self::Oversized(cause) => cause.to_string(),
            Self::Cut => "the stream ended before the message did".into(),
            Self::NotTheApi => {
                "a web page answers there, not the api: is the base url right?".into()
            }
            Self::Reported(report) => report.words(),
        }
    }

    /// For the retry policy; nothing where a further attempt would only repeat the same.
    fn failure(&self) -> Option<Failure> {
        match self {
            Self::Http(HttpError::Setup(_) | HttpError::TooLarge(_))
            | Self::Oversized(_)
            | Self::NotTheApi => None,
            Self::Http(_) | Self::Garbled(_) | Self::Cut => Some(Failure::Broken),
            Self::Reported(report) => Some(report.failure()),
        }
    }

    fn error(&self, shown: String) -> ModelError {
        match self {
            Self::Reported(report) => report.error(shown),
            Self::NotTheApi => ModelError::Rejected(shown),
            Self::Http(_) | Self::Garbled(_) | Self::Oversized(_) | Self::Cut => {
                ModelError::Unavailable(shown)
            }
        }
    }
}

impl From<HttpError> for Miss {
    fn from(cause: HttpError) -> Self {
        Self::Http(cause)
    }
}

impl From<LineTooLong> for Miss {
    fn from(cause: LineTooLong) -> Self {
        Self::Oversized(cause)
    }
}

impl From<Fault> for Miss {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Garbled(what) => Self::Garbled(what),
            Fault::Error(event) => Self::Reported(Report::from_event(&event)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    #[test]
    fn a_base_with_v1_is_tolerated_with_a_warning() {
        let client = |base| {
            let config = AnthropicConfig::new(base, Credentials::Nobody, "m");
            Anthropic::new(config).unwrap()
        };
        for base in ["https://h/api", "https://h/api/", "https://h/api/v1", " https://h/api/v1/ "] {
            let client = client(base);
            assert_eq!(client.endpoint.url(), "https://h/api/v1/messages", "{base}");
            assert_eq!(client.warnings().len(), usize::from(base.contains("v1")), "{base}");
        }
        assert_eq!(client("https://h").label(), "anthropic/m");
    }

    #[test]
    fn no_secret_in_debug_output() {
        let mut config = AnthropicConfig::new(
            "https://h",
            Credentials::AuthToken(secret("canary-token-1")),
            "m",
        );
        config.extra_headers.push(("x-gateway".into(), secret("canary-gateway-1")));
        let debug = format!("{config:?} {:?}", Anthropic::new(config.clone()).unwrap().endpoint);
        assert!(!debug.contains("canary"), "{debug}");
    }

    #[test]
    fn custom_headers_are_lines_of_name_and_value() {
        let headers = parse_headers("X-One: 1: 2\n\n anthropic-beta : a,b \r\n").unwrap();
        let shown: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(shown, [("X-One", "1: 2"), ("anthropic-beta", "a,b")]);
        for bad in ["canary", "ok: 1\ncanary", "x: canary\u{1}"] {
            let error = parse_headers(bad).unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
        assert_eq!(parse_headers(""), Ok(vec![]));
    }

    #[test]
    fn a_version_that_is_no_header_is_refused() {
        let mut config = AnthropicConfig::new("https://h", Credentials::Nobody, "m");
        config.version = "2026\r\nx-evil: 1".into();
        assert!(matches!(Anthropic::new(config), Err(ConfigError::BadHeader { .. })));
    }

    #[test]
    fn a_broken_setup_and_oversize_are_not_repeated() {
        assert_eq!(Miss::Http(HttpError::TooLarge(1)).failure(), None);
        assert_eq!(Miss::Oversized(LineTooLong).failure(), None);
        assert_eq!(Miss::Http(HttpError::Silence(Duration::ZERO)).failure(), Some(Failure::Broken));
    }
}
