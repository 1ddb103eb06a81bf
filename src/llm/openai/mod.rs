//! OpenAI-compatible chat completions, for the many servers that speak them: configuration, headers,
//! and where they differ from the Messages API.
//!
//! Trying again is `client`'s; the environment is not known here. A server that answers a streamed
//! request with nothing (some do, when tools are offered) is asked once more without a stream, and from
//! then on always so.

mod reply;
mod request;

use super::client::{Api, AttemptError, Client, Next};
use super::http::{ConfigError, Endpoint, Limits, PlainHttp, Url, join};
use super::model_list::{self, Listing};
use super::report::Report;
use super::retry::{Backoff, RetryPolicy};
use super::secret::{Redactor, Secret};
use super::{Delta, Provider, TurnFuture};
use crate::wire::chat::Request;
pub(super) use reply::Assembler;
use request::{AnswerLimit, Shape, Transfer};
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

/// Everything that makes a client.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// Where the API is, with `/v1`; added, with a warning, where there is no path at all.
    pub base_url: String,
    /// Sent as `Authorization: Bearer`; nothing for a server that wants none.
    pub api_key: Option<Secret>,
    /// Which model answers.
    pub model: String,
    /// Further headers; they win over ours of the same name.
    pub extra_headers: Vec<(String, Secret)>,
    /// Times and sizes of one attempt.
    pub limits: Limits,
    /// How often and when to try again.
    pub retry: RetryPolicy,
    /// Whether plain http may leave this machine.
    pub plain_http: PlainHttp,
    /// Where the jitter of waits begins; members of a team should differ.
    pub jitter_seed: u64,
}

impl OpenAiConfig {
    /// A configuration with the defaults for all that is not named.
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

    /// Asks the endpoint for its models; whatever model stands here.
    ///
    /// # Errors
    /// The configuration cannot be used, or nobody answers; in words for people.
    pub async fn listing(&self, limit: Duration) -> Result<Listing, String> {
        let (url, _) = self.url("/models").map_err(|why| why.to_string())?;
        let endpoint = self.endpoint(url).map_err(|why| why.to_string())?;
        model_list::ask(&endpoint, limit).await
    }

    /// A path below the base, and whether `/v1` was added to that.
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

/// What is particular to chat completions.
#[derive(Debug)]
struct Completions {
    shape: Shape,
    transfer: Cell<Transfer>,
}

impl OpenAi {
    /// A client; it connects at its first call.
    ///
    /// # Errors
    /// The base URL or a header cannot be used.
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

    /// The same client, waiting together with others.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Box<dyn Backoff>) -> Self {
        self.client.share(backoff);
        self
    }

    /// What the person who wrote the configuration should know.
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

    fn after_miss(&self, miss: &AttemptError) -> Next {
        match (miss, self.transfer.get()) {
            (AttemptError::Empty, Transfer::Streamed) => {
                self.transfer.set(Transfer::AtOnce);
                Next::AskDifferently
            }
            _ => Next::AsJudged,
        }
    }

    fn translate(&self, mut report: Report) -> Report {
        if report.is("insufficient_quota") || report.is("context_length_exceeded") {
            report.should_retry = Some(false);
        } else if report.status == 429 && report.retry_after.is_none() {
            // Unlike the Messages API, many of these servers name no time to come back.
            report.should_retry = report.should_retry.or(Some(true));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_without_a_path_gets_one_with_a_warning() {
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
