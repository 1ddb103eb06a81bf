//! OpenAI-compatible chat completions: configuration, headers, and the differences to the Messages API.
//!
//! `client` retries; this module does not read the environment. If a server answers a streamed request with an
//! empty response (some do when tools are offered), the client retries once without streaming, and never streams from
//! that server again.

mod reply;
mod request;
pub mod spec;

use super::client::{Api, AttemptError, Client, NextAttempt};
use super::http::{ConfigError, Endpoint, Limits, PlainHttp, Url, join};
use super::model_list::{self, Listing};
use super::provider::{Delta, Provider, TurnFuture};
use super::report::Report;
use super::retry::{Backoff, RetryPolicy};
use super::secret::{Redactor, Secret};
use crate::wire::chat::Request;
pub(super) use reply::Assembler;
use request::{AnswerLimit, Shape, Transfer};
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

/// The configuration of a client.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// The base URL including `/v1`; a base without a path gets `/v1`, with a warning.
    pub base_url: String,
    /// The key, sent as `Authorization: Bearer`; `None` for a server that needs none.
    pub api_key: Option<Secret>,
    /// The model.
    pub model: String,
    /// Additional headers; they override the client's headers of the same name.
    pub extra_headers: Vec<(String, Secret)>,
    /// The limits of one attempt.
    pub limits: Limits,
    /// The limits of retries.
    pub retry: RetryPolicy,
    /// Whether plain http may leave this machine.
    pub plain_http: PlainHttp,
    /// The seed of the jitter; it should differ between the members of a team.
    pub jitter_seed: u64,
}

impl OpenAiConfig {
    /// Creates a configuration with defaults.
    pub fn new(base_url: &str, api_key: Option<Secret>, model: &str) -> Self {
        Self {
            base_url: base_url.into(),
            api_key,
            model: model.into(),
            extra_headers: Vec::new(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            plain_http: PlainHttp::default(),
            jitter_seed: 0,
        }
    }

    fn headers(&self) -> Result<Vec<(String, Secret)>, ConfigError> {
        let mut headers = Vec::new();
        if let Some(key) = &self.api_key {
            let bearer = Secret::new(format!("Bearer {}", key.reveal())).map_err(|cause| {
                ConfigError::BadHeader { name: "authorization".into(), why: cause.to_string() }
            })?;
            headers.push(("authorization".to_owned(), bearer));
        }
        headers.extend(self.extra_headers.iter().cloned());
        Ok(headers)
    }

    /// Requests the list of models of the endpoint.
    ///
    /// # Errors
    /// The configuration is unusable, or the endpoint does not respond; the text is for people.
    pub async fn listing(&self, limit: Duration) -> Result<Listing, String> {
        let (url, _) = self.url("/models").map_err(|why| why.to_string())?;
        let endpoint = self.endpoint(url).map_err(|why| why.to_string())?;
        model_list::ask(&endpoint, limit).await
    }

    /// Returns the URL of a path below the base, and whether `/v1` was added to the base.
    fn url(&self, path: &str) -> Result<(Url, bool), ConfigError> {
        let base = join(self.base_url.trim(), "")?;
        let is_bare = matches!(base.path(), "" | "/");
        let base = if is_bare { join(base.as_str(), "/v1")? } else { base };
        Ok((join(base.as_str(), path)?, is_bare))
    }

    fn endpoint(&self, url: Url) -> Result<Endpoint, ConfigError> {
        let redactor = Redactor::new(self.secrets());
        Endpoint::new(url, &self.headers()?, self.limits, self.plain_http, redactor)
    }

    fn secrets(&self) -> impl Iterator<Item = Secret> {
        let extra = self.extra_headers.iter().map(|(_, value)| value);
        self.api_key.iter().chain(extra).cloned()
    }
}

/// A client of one endpoint for one model.
pub struct OpenAi {
    client: Client<Completions>,
    warnings: Vec<String>,
}

/// The parts of a call that are specific to chat completions.
#[derive(Debug)]
struct Completions {
    shape: Shape,
    transfer: Cell<Transfer>,
}

impl OpenAi {
    /// Creates a client, which connects at its first call.
    ///
    /// # Errors
    /// The base URL or a header is unusable.
    pub fn new(config: OpenAiConfig) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let (url, is_bare) = config.url("/chat/completions")?;
        if is_bare {
            warnings.push("the base url has no path: /v1 is added to it".into());
        }
        let is_theirs = url.host_str().is_some_and(|host| host == "api.openai.com");
        let limit = if is_theirs { AnswerLimit::Completion } else { AnswerLimit::Plain };
        let endpoint = config.endpoint(url)?;
        let shape = Shape { model: config.model, limit };
        let api = Completions { shape, transfer: Cell::new(Transfer::Streamed) };
        Ok(Self { client: Client::new(api, endpoint, config.retry, config.jitter_seed), warnings })
    }

    /// Shares a back-off with other callers.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Box<dyn Backoff>) -> Self {
        self.client.share(backoff);
        self
    }

    /// Returns warnings about the configuration.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl Provider for OpenAi {
    fn label(&self) -> String {
        format!("openai/{}", self.client.api().shape.model)
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: &'a mut dyn FnMut(Delta)) -> TurnFuture<'a> {
        Box::pin(self.client.complete(request, sink))
    }
}

impl Api for Completions {
    type Assembler = Assembler;

    fn body(&self, request: &Request) -> Value {
        request::body(request, &self.shape, self.transfer.get())
    }

    fn assembler(&self, request: &Request) -> Assembler {
        Assembler::new(request, &self.shape.model)
    }

    fn on_failed_attempt(&self, error: &AttemptError) -> NextAttempt {
        match (error, self.transfer.get()) {
            (AttemptError::Empty, Transfer::Streamed) => {
                self.transfer.set(Transfer::AtOnce);
                NextAttempt::Resend
            }
            _ => NextAttempt::AsPolicy,
        }
    }

    fn translate(&self, mut report: Report) -> Report {
        if report.is("insufficient_quota") || report.is("context_length_exceeded") {
            report.should_retry = Some(false);
        } else if report.status == 429 && report.retry_after.is_none() {
            // Unlike the Messages API, many of these servers send no retry-after.
            report.should_retry = report.should_retry.or(Some(true));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_without_a_path_gets_v1_with_a_warning() {
        for (base, url, warned) in [
            ("https://h/v1", "https://h/v1/chat/completions", 0),
            (" https://h/openai/v1/ ", "https://h/openai/v1/chat/completions", 0),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions", 1),
            ("http://localhost:1/", "http://localhost:1/v1/chat/completions", 1),
        ] {
            let client = OpenAi::new(OpenAiConfig::new(base, None, "m")).unwrap();
            assert_eq!((client.client.url(), client.warnings().len()), (url, warned));
            assert_eq!(client.label(), "openai/m");
        }
        assert!(OpenAi::new(OpenAiConfig::new("http://192.0.2.1/v1", None, "m")).is_err());
    }

    #[test]
    fn no_secret_in_debug_output() {
        let key = Secret::new("canary-key-123").unwrap();
        let config = OpenAiConfig::new("https://h/v1", Some(key), "m");
        let debug = format!("{config:?} {:?}", OpenAi::new(config.clone()).unwrap().client);
        assert!(!debug.contains("canary"), "{debug}");
    }
}
