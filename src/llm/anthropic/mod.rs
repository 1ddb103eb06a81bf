//! The Anthropic Messages API: configuration, headers, bodies.
//!
//! `client` retries; this module does not read the environment.

mod reply;
mod request;
pub mod spec;

use super::client::{Api, AttemptError, Client, NextAttempt};
use super::http::{ConfigError, Endpoint, Limits, PlainHttp, Url, join};
use super::model_list::{self, Listing};
use super::provider::{Delta, Provider, TurnFuture};
use super::retry::{Backoff, RetryPolicy};
use super::secret::{Redactor, Secret};
use crate::wire::chat::Request;
pub(super) use reply::Assembler;
use request::Extras;
use serde_json::Value;
use std::time::Duration;

/// The version of the API that this client is written for.
pub const API_VERSION: &str = "2026-10-21";

/// The credentials of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A key, sent as `x-api-key`.
    ApiKey(Secret),
    /// A token, sent as `Authorization: Bearer`.
    AuthToken(Secret),
    /// No credentials: a local server.
    Nobody,
}

/// The configuration of a client.
#[derive(Debug, Clone)]
pub struct AnthropicConfig {
    /// The base URL without `/v1`; a trailing `/v1` is accepted with a warning.
    pub base_url: String,
    /// The credentials.
    pub credentials: Credentials,
    /// The model.
    pub model: String,
    /// The name of the provider in the roster.
    pub provider: String,
    /// The header `anthropic-version`.
    pub version: String,
    /// Additional headers; they override the client's headers of the same name.
    pub extra_headers: Vec<(String, Secret)>,
    /// The field `thinking`, sent unchanged.
    pub thinking: Option<Value>,
    /// The field `output_config`, sent unchanged.
    pub output_config: Option<Value>,
    /// The limits of one attempt.
    pub limits: Limits,
    /// The limits of retries.
    pub retry: RetryPolicy,
    /// Whether plain http may leave this machine.
    pub plain_http: PlainHttp,
    /// The seed of the jitter; it should differ between the members of a team.
    pub jitter_seed: u64,
}

impl AnthropicConfig {
    /// Creates a configuration with defaults.
    pub fn new(base_url: &str, credentials: Credentials, model: &str) -> Self {
        Self {
            base_url: base_url.into(),
            credentials,
            model: model.into(),
            provider: "anthropic".into(),
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

    /// Requests the list of models of the endpoint.
    ///
    /// # Errors
    /// The configuration is unusable, or the endpoint does not respond; the text is for people.
    pub async fn listing(&self, limit: Duration) -> Result<Listing, String> {
        let (base, _) = self.base();
        let url = join(base, "/v1/models").map_err(|why| why.to_string())?;
        let endpoint = self.endpoint(url).map_err(|why| why.to_string())?;
        model_list::ask(&endpoint, limit).await
    }

    /// Returns the base URL without `/v1`, and whether it was removed.
    fn base(&self) -> (&str, bool) {
        let base = self.base_url.trim().trim_end_matches('/');
        base.strip_suffix("/v1").map_or((base, false), |shorter| (shorter, true))
    }

    fn endpoint(&self, url: Url) -> Result<Endpoint, ConfigError> {
        let redactor = Redactor::new(self.secrets());
        Endpoint::new(url, &self.headers()?, self.limits, self.plain_http, redactor)
    }

    fn secrets(&self) -> Vec<Secret> {
        // The API's own headers name versions and features; any other header may hold a key.
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

/// Parses additional headers in the form of `ANTHROPIC_CUSTOM_HEADERS`: one `Name: value` per line.
///
/// # Errors
/// A line has no colon or an invalid value. The error does not show the value.
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
    client: Client<Messages>,
    provider: String,
    warnings: Vec<String>,
}

/// The parts of a call that are specific to the Messages API.
#[derive(Debug)]
struct Messages {
    extras: Extras,
}

impl Anthropic {
    /// Creates a client, which connects at its first call.
    ///
    /// # Errors
    /// The base URL or a header is unusable.
    pub fn new(config: AnthropicConfig) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let (base, had_version) = config.base();
        if had_version {
            warnings
                .push("the base url should not end with /v1, which is added to it: ignored".into());
        }
        let endpoint = config.endpoint(join(base, "/v1/messages")?)?;
        let AnthropicConfig {
            model, provider, thinking, output_config, retry, jitter_seed, ..
        } = config;
        let api = Messages { extras: Extras { model, thinking, output_config } };
        Ok(Self { client: Client::new(api, endpoint, retry, jitter_seed), provider, warnings })
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

impl Provider for Anthropic {
    fn label(&self) -> String {
        format!("{}/{}", self.provider, self.client.api().extras.model)
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: &'a mut dyn FnMut(Delta)) -> TurnFuture<'a> {
        Box::pin(self.client.complete(request, sink))
    }
}

impl Api for Messages {
    type Assembler = Assembler;

    fn body(&self, request: &Request) -> Value {
        request::body(request, &self.extras)
    }

    fn assembler(&self, request: &Request) -> Assembler {
        Assembler::new(request, &self.extras.model)
    }

    fn on_failed_attempt(&self, _error: &AttemptError) -> NextAttempt {
        NextAttempt::AsPolicy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    #[test]
    fn a_base_url_with_v1_is_accepted_with_a_warning() {
        let client = |base| {
            let config = AnthropicConfig::new(base, Credentials::Nobody, "m");
            Anthropic::new(config).unwrap()
        };
        for base in ["https://h/api", "https://h/api/", "https://h/api/v1", " https://h/api/v1/ "] {
            let client = client(base);
            assert_eq!(client.client.url(), "https://h/api/v1/messages", "{base}");
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
        let debug = format!("{config:?} {:?}", Anthropic::new(config.clone()).unwrap().client);
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
    fn a_version_that_is_not_a_valid_header_is_refused() {
        let mut config = AnthropicConfig::new("https://h", Credentials::Nobody, "m");
        config.version = "2026\r\nx-evil: 1".into();
        assert!(matches!(Anthropic::new(config), Err(ConfigError::BadHeader { .. })));
    }
}
