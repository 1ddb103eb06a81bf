//! The configuration of a client: endpoint, credentials, headers, limits. This file does not read the environment.

use super::http::{CallLimits, ConfigError, Endpoint, Url, join};
use super::registry::{Access, ProviderSpec};
use super::retry::RetryPolicy;
use super::secret::{Redactor, Secret};
use crate::wire::chat::{Request, Thinking};

/// The version of the Messages API that this client is written for.
const API_VERSION: &str = "2026-10-21";

/// The temperature of small models. At the usual 0.8 they garble calls and leave out steps.
const SMALL_MODEL_TEMPERATURE: f64 = 0.2;

/// The API of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// The Anthropic Messages API.
    Messages,
    /// OpenAI-compatible chat completions.
    ChatCompletions,
    /// The Responses API of `OpenAI`.
    Responses,
    /// The Gemini API of Google.
    Gemini,
}

/// The credentials of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A key, sent as `x-api-key`, or as `x-goog-api-key` to the Gemini API.
    ApiKey(Secret),
    /// A token, or a key of `OpenAI`'s APIs, sent as `Authorization: Bearer`.
    Bearer(Secret),
    /// No credentials, as for a local server.
    Anonymous,
}

/// The configuration of a client.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The API of the endpoint.
    pub api: Api,
    /// The base URL: without the version (`/v1`, `/v1beta`) for the Messages API and the Gemini API, with it for the others.
    /// The other form is accepted with a warning.
    pub base_url: String,
    /// The credentials.
    pub credentials: Credentials,
    /// The model.
    pub model: String,
    /// The name of the provider in the roster.
    pub provider: String,
    /// The header `anthropic-version`.
    pub version: String,
    /// Secrets of the provider that are not sent, but redacted in what the endpoint says.
    pub unused_keys: Vec<Secret>,
    /// Additional headers; they override the client's headers of the same name.
    pub extra_headers: Vec<(String, Secret)>,
    /// A text that is the same for all calls of a conversation, by which an endpoint finds its cache.
    pub cache_key: Option<String>,
    /// The temperature of requests that ask for no thinking, if the endpoint is not to choose it. Of the Messages API only.
    pub temperature: Option<f64>,
    /// The limits of one attempt.
    pub limits: CallLimits,
    /// The limits of retries.
    pub retry: RetryPolicy,
    /// The seed of the jitter; it should differ between the members of a team.
    pub jitter_seed: u64,
}

impl ClientConfig {
    /// Creates a configuration with defaults.
    pub fn new(api: Api, base_url: &str, credentials: Credentials, model: &str) -> Self {
        let provider = match api {
            Api::Messages => "anthropic",
            Api::ChatCompletions | Api::Responses => "openai",
            Api::Gemini => "gemini",
        };
        Self {
            api,
            base_url: base_url.into(),
            credentials,
            model: model.into(),
            provider: provider.into(),
            version: API_VERSION.into(),
            unused_keys: Vec::new(),
            extra_headers: Vec::new(),
            cache_key: None,
            temperature: None,
            limits: CallLimits::default(),
            retry: RetryPolicy::default(),
            jitter_seed: 0,
        }
    }

    /// Returns the temperature that a request names. Models that think need the one that their makers recommend.
    pub(super) fn temperature_of(&self, request: &Request) -> Option<f64> {
        self.temperature.filter(|_| request.thinking == Thinking::default())
    }

    pub(super) fn of(spec: &ProviderSpec, api: Api, access: &Access) -> Result<Self, ConfigError> {
        let secret = |word: &str, text: Option<&String>| {
            let variable = || spec.variables.map(|it| it.name(word)).unwrap_or_default();
            let secret = text.map(Secret::new).transpose();
            secret.map_err(|why| ConfigError::header(&variable(), why.to_string()))
        };
        let as_key = match api {
            Api::Messages | Api::Gemini => Credentials::ApiKey,
            Api::ChatCompletions | Api::Responses => Credentials::Bearer,
        };
        let token = secret("AUTH_TOKEN", access.auth_token.as_ref())?.map(Credentials::Bearer);
        let credentials = secret("API_KEY", access.api_key.as_ref())?.map(as_key).or(token);
        let base_url = access.base_url.as_deref().or(spec.base_url).unwrap_or_default();
        let new = Self::new(api, base_url, credentials.unwrap_or(Credentials::Anonymous), "");
        let version = access.api_version.clone().unwrap_or(new.version);
        let extra_headers = parse_headers(access.custom_headers.as_deref().unwrap_or_default())?;
        // A text that cannot be a key needs no redaction.
        let unused_keys = access.unused_keys.iter().filter_map(|key| Secret::new(key).ok());
        let unused_keys = unused_keys.collect();
        let temperature = spec.has_small_models.then_some(SMALL_MODEL_TEMPERATURE);
        Ok(Self {
            provider: spec.name.into(),
            version,
            unused_keys,
            extra_headers,
            temperature,
            ..new
        })
    }

    /// Returns the endpoint of a path, and a warning if the base URL is in the other form.
    pub(super) fn endpoint(
        &self,
        path: &str,
    ) -> Result<(Endpoint, Option<&'static str>), ConfigError> {
        let (url, warning) = self.url(path)?;
        let redactor = Redactor::new(self.secrets());
        Ok((Endpoint::new(url, &self.headers()?, self.limits, redactor)?, warning))
    }

    /// Returns the URL of a path, which may have a query.
    fn url(&self, path: &str) -> Result<(Url, Option<&'static str>), ConfigError> {
        let versioned = |version: &str| {
            let base = self.base_url.trim().trim_end_matches('/');
            let shorter = base.strip_suffix(version);
            let (path, query) =
                path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
            let mut url = join(shorter.unwrap_or(base), &format!("{version}{path}"))?;
            url.set_query(query);
            Ok((url, shorter.is_some()))
        };
        match self.api {
            Api::Messages => {
                let (url, has_version) = versioned("/v1")?;
                let warning = "the base URL should not end with /v1, which is added to it: the /v1 \
                               is ignored";
                Ok((url, has_version.then_some(warning)))
            }
            Api::Gemini => {
                let (url, has_version) = versioned("/v1beta")?;
                let warning = "the base URL should not end with /v1beta, which is added to it: the \
                               /v1beta is ignored";
                Ok((url, has_version.then_some(warning)))
            }
            Api::ChatCompletions | Api::Responses => {
                let base = join(&self.base_url, "")?;
                let is_bare = matches!(base.path(), "" | "/");
                let warning = "the base URL has no path: /v1 is added to it";
                let version = if is_bare { "/v1" } else { "" };
                let url = join(base.as_str(), &format!("{version}{path}"))?;
                Ok((url, is_bare.then_some(warning)))
            }
        }
    }

    fn headers(&self) -> Result<Vec<(String, Secret)>, ConfigError> {
        let mut headers = Vec::new();
        if self.api == Api::Messages {
            headers.push(header("anthropic-version", &self.version)?);
        }
        match &self.credentials {
            Credentials::ApiKey(key) => {
                let is_google = self.api == Api::Gemini;
                let name = if is_google { "x-goog-api-key" } else { "x-api-key" };
                headers.push((name.into(), key.clone()));
            }
            Credentials::Bearer(token) => {
                headers.push(header("authorization", &format!("Bearer {}", token.reveal()))?);
            }
            Credentials::Anonymous => {}
        }
        headers.extend_from_slice(&self.extra_headers);
        Ok(headers)
    }

    fn secrets(&self) -> Vec<Secret> {
        // The headers of the Messages API name versions and features; any other header may hold a key.
        let is_public =
            |name: &str| self.api == Api::Messages && name.to_lowercase().starts_with("anthropic-");
        let extra = self.extra_headers.iter().filter(|(name, _)| !is_public(name));
        let own = match &self.credentials {
            Credentials::ApiKey(secret) | Credentials::Bearer(secret) => Some(secret),
            Credentials::Anonymous => None,
        };
        extra.map(|(_, value)| value).chain(own).chain(&self.unused_keys).cloned().collect()
    }
}

fn header(name: &str, value: &str) -> Result<(String, Secret), ConfigError> {
    let secret = Secret::new(value).map_err(|why| ConfigError::header(name, why.to_string()))?;
    Ok((name.to_owned(), secret))
}

/// Parses additional headers in the form of `ANTHROPIC_CUSTOM_HEADERS`: one `Name: value` per line. An error does
/// not show the value.
fn parse_headers(text: &str) -> Result<Vec<(String, Secret)>, ConfigError> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let headers = lines.map(|(number, line)| {
        let bad = || ConfigError::header(&format!("line {number}"), "it is not 'Name: value'");
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        header(name.trim(), value.trim())
    });
    headers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_in_the_other_form_is_accepted_with_a_warning() {
        for (api, base, url, is_warned) in [
            (Api::Messages, "https://h", "https://h/v1/x", false),
            (Api::Messages, "https://h/api", "https://h/api/v1/x", false),
            (Api::Messages, "https://h/api/", "https://h/api/v1/x", false),
            (Api::Messages, "https://h/api/v1", "https://h/api/v1/x", true),
            (Api::Messages, " https://h/api/v1/ ", "https://h/api/v1/x", true),
            (Api::Gemini, "https://h", "https://h/v1beta/x", false),
            (Api::Gemini, "https://h/api/v1beta/", "https://h/api/v1beta/x", true),
            (Api::ChatCompletions, "https://h/v1", "https://h/v1/x", false),
            (Api::ChatCompletions, " https://h/openai/v1/ ", "https://h/openai/v1/x", false),
            (Api::ChatCompletions, "http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/x", true),
            (Api::ChatCompletions, "http://localhost:1/", "http://localhost:1/v1/x", true),
            (Api::Responses, "https://h/v1", "https://h/v1/x", false),
            (Api::Responses, "https://h", "https://h/v1/x", true),
        ] {
            let config = ClientConfig::new(api, base, Credentials::Anonymous, "m");
            let (endpoint, warning) = config.endpoint("/x").unwrap();
            assert_eq!((endpoint.url(), warning.is_some()), (url, is_warned), "{base}");
        }
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
        let config = ClientConfig::new(Api::Messages, "https://h", Credentials::Anonymous, "m");
        let config = ClientConfig { version: "2026\r\nx-evil: 1".into(), ..config };
        assert!(matches!(config.endpoint("/x"), Err(ConfigError::BadHeader { .. })));
    }
}
