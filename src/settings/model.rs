//! The choice of a model, its credentials and its price.

use super::endpoints::{BaseUrl, header_lines, is_public};
use super::environment::Environment;
use super::layers::{Setting, Source};
use super::table::Settings;
use crate::error::{Exit, Failure};
use crate::wire::budget::Budgets;
use crate::wire::money::Price;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The model that is used if only a key is configured.
const DEFAULT_ANTHROPIC_MODEL: &str = "claude-sonnet-5-5";

/// A model and its provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelChoice {
    /// The embedded rehearsal model.
    Rehearsal,
    /// Scripted replies from a file.
    Script(PathBuf),
    /// A model behind the Anthropic Messages API.
    Anthropic(String),
    /// A model behind OpenAI-compatible chat completions; without a name, the first one that the endpoint
    /// lists.
    OpenAi(Option<String>),
    /// A model of a server on this machine; without a name, the first one that is found.
    Local(Option<String>),
}

impl ModelChoice {
    /// Parses `rehearsal`, `script:FILE`, `anthropic/NAME`, `openai`, `openai/NAME`,
    /// `local` and `local/NAME`.
    ///
    /// # Errors
    /// The text names no known provider.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (provider, name) = match text.strip_prefix("script:") {
            Some(file) => ("script", Some(file)),
            None => text.split_once('/').map_or((text, None), |(it, name)| (it, Some(name))),
        };
        match (provider, name) {
            (_, Some("")) => {}
            ("rehearsal", None) => return Ok(Self::Rehearsal),
            ("script", Some(file)) => return Ok(Self::Script(file.into())),
            ("anthropic", Some(name)) => return Ok(Self::Anthropic(name.into())),
            ("openai", name) => return Ok(Self::OpenAi(name.map(Into::into))),
            ("local", name) => return Ok(Self::Local(name.map(Into::into))),
            _ => {}
        }
        Err(Failure::new(
            Exit::Usage,
            format!("{text:?} is not a model that this version can use"),
            "a model is anthropic/NAME, openai/NAME, openai, local, local/NAME, rehearsal or script:FILE",
            format!("for example --model anthropic/{DEFAULT_ANTHROPIC_MODEL}"),
        ))
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rehearsal => out.write_str("rehearsal"),
            Self::Script(file) => write!(out, "script:{}", file.display()),
            Self::Anthropic(name) => write!(out, "anthropic/{name}"),
            Self::OpenAi(Some(name)) => write!(out, "openai/{name}"),
            Self::OpenAi(None) => out.write_str("openai"),
            Self::Local(Some(name)) => write!(out, "local/{name}"),
            Self::Local(None) => out.write_str("local"),
        }
    }
}

/// The model in force, resolved in the order of SPEC 8; `None` if neither a setting nor a key names one.
///
/// # Errors
/// The name of the model is not understood.
pub(crate) fn resolve(
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<Setting<ModelChoice>>, Failure> {
    if let Setting { value: Some(text), source } = &settings.model {
        let value = ModelChoice::parse(text)?;
        return Ok(Some(Setting { value, source: source.clone() }));
    }
    let found =
        |keys: &[&'static str]| keys.iter().find(|key| environment.get(key).is_some()).copied();
    let setting = |value, key: &str| Setting { value, source: Source::Environment(key.into()) };
    if let Some(key) = found(&["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]) {
        let name = environment.get("ANTHROPIC_MODEL").unwrap_or(DEFAULT_ANTHROPIC_MODEL);
        let model = ModelChoice::Anthropic(name.to_owned());
        return Ok(Some(setting(model, key)));
    }
    let model = || ModelChoice::OpenAi(environment.get("OPENAI_MODEL").map(Into::into));
    Ok(found(&["OPENAI_API_KEY"]).map(|key| setting(model(), key)))
}

/// The price of a model, if it is known. A budget in money cannot be kept without it.
///
/// # Errors
/// Money is limited, the model is paid for, and no price is set.
pub(crate) fn price_of(
    model: &ModelChoice,
    price: Option<Price>,
    budgets: &Budgets,
) -> Result<Option<Price>, Failure> {
    let is_paid = matches!(model, ModelChoice::Anthropic(_) | ModelChoice::OpenAi(_));
    if price.is_none() && budgets.limit_money() && is_paid {
        let hint = format!(
            "set input and output for a million tokens under [prices.\"{model}\"] in the settings"
        );
        let why = "there is a budget in money, which cannot be kept without prices";
        return Err(Failure::new(
            Exit::Usage,
            format!("the price of {model} is not set"),
            why,
            hint,
        ));
    }
    Ok(price)
}

/// The credentials and addresses of the models. Teammates get them over the control socket, never in arguments
/// or in the environment. `Debug` shows no secret.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// Access to the Messages API.
    pub(crate) anthropic: AnthropicAccess,
    /// Access to chat completions.
    pub(crate) openai: OpenAiAccess,
    /// The address of the local server, once it is found.
    pub(crate) local: Option<String>,
}

/// The credentials and the address of the Messages API.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct AnthropicAccess {
    /// `ANTHROPIC_API_KEY`.
    pub(crate) api_key: Option<String>,
    /// `ANTHROPIC_AUTH_TOKEN`.
    pub(crate) auth_token: Option<String>,
    /// `ANTHROPIC_BASE_URL`, or `anthropic.base_url`.
    pub(crate) base_url: Option<String>,
    /// `anthropic.headers` and `ANTHROPIC_CUSTOM_HEADERS`: lines of `Name: value`.
    pub(crate) custom_headers: Option<String>,
    /// `ANTHROPIC_VERSION`, or `anthropic.version`: the API version to ask for.
    pub(crate) api_version: Option<String>,
}

/// The credentials and the address of chat completions.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct OpenAiAccess {
    /// `OPENAI_API_KEY`.
    pub(crate) api_key: Option<String>,
    /// `OPENAI_BASE_URL`, or `openai.base_url`.
    pub(crate) base_url: Option<String>,
    /// `openai.headers` and `OPENAI_CUSTOM_HEADERS`: lines of `Name: value`.
    pub(crate) custom_headers: Option<String>,
}

impl Credentials {
    /// Collects keys from the environment, and addresses and headers from the settings.
    pub(crate) fn of(settings: &Settings, environment: &Environment) -> Self {
        let own = |name| environment.get(name).map(Into::into);
        let url = |url: &Setting<Option<BaseUrl>>| url.value.clone().map(|url| url.0);
        let headers = |headers, variable| header_lines(headers, environment.get(variable));
        Self {
            anthropic: AnthropicAccess {
                api_key: own("ANTHROPIC_API_KEY"),
                auth_token: own("ANTHROPIC_AUTH_TOKEN"),
                base_url: url(&settings.anthropic_base_url),
                custom_headers: headers(&settings.anthropic_headers, "ANTHROPIC_CUSTOM_HEADERS"),
                api_version: settings.anthropic_version.value.clone(),
            },
            openai: OpenAiAccess {
                api_key: own("OPENAI_API_KEY"),
                base_url: url(&settings.openai_base_url),
                custom_headers: headers(&settings.openai_headers, "OPENAI_CUSTOM_HEADERS"),
            },
            local: None,
        }
    }

    /// The only part that an agent on this model gets.
    pub(crate) fn only_for(&self, model: &ModelChoice) -> Self {
        match model {
            ModelChoice::Anthropic(_) => {
                Self { anthropic: self.anthropic.clone(), ..Self::default() }
            }
            ModelChoice::OpenAi(_) => Self { openai: self.openai.clone(), ..Self::default() },
            ModelChoice::Local(_) => Self { local: self.local.clone(), ..Self::default() },
            ModelChoice::Rehearsal | ModelChoice::Script(_) => Self::default(),
        }
    }

    /// Whether this model can be reached: with a key, or at an address that may need none.
    pub(crate) fn reach(&self, model: &ModelChoice) -> bool {
        let Self { anthropic, openai, .. } = self;
        match model {
            ModelChoice::Anthropic(_) => {
                let key = anthropic.api_key.as_ref().or(anthropic.auth_token.as_ref());
                key.or(anthropic.base_url.as_ref()).is_some()
            }
            ModelChoice::OpenAi(_) => {
                openai.api_key.as_ref().or(openai.base_url.as_ref()).is_some()
            }
            // Each process looks for the local server itself.
            ModelChoice::Local(_) | ModelChoice::Rehearsal | ModelChoice::Script(_) => true,
        }
    }

    /// The secret strings, for redaction. Every header except the API's own may hold a key.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let Self { anthropic, openai, .. } = self;
        let headers = anthropic.custom_headers.iter().chain(&openai.custom_headers);
        let headers = headers.flat_map(|headers| headers.lines());
        let headers = headers.filter_map(|line| line.split_once(':'));
        let values = headers.filter(|(name, _)| !is_public(name)).map(|(_, value)| value.trim());
        let keys = anthropic.api_key.iter().chain(&anthropic.auth_token).chain(&openai.api_key);
        keys.map(String::as_str).chain(values).map(Into::into).collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Credentials([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::Flags;
    use super::*;

    #[test]
    fn a_model_is_parsed_and_shown_with_its_provider() {
        for text in [
            "rehearsal",
            "script:a/b.jsonl",
            "anthropic/claude-x",
            "openai",
            "openai/o/x:1",
            "local",
            "local/q",
        ] {
            assert_eq!(ModelChoice::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "gpt", "anthropic/", "openai/", "local/", "script:", "Rehearsal"] {
            assert_eq!(ModelChoice::parse(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let environment = Environment::of(&[
            ("ANTHROPIC_API_KEY", "canary"),
            ("ANTHROPIC_CUSTOM_HEADERS", "X-House: canary two\nAnthropic-Beta: fast-2026"),
            ("OPENAI_API_KEY", "canary three"),
        ]);
        let file = std::path::Path::new("does-not-exist.toml");
        let settings = Settings::load(&environment, file, &Flags::default()).unwrap();
        let credentials = Credentials::of(&settings, &environment);
        assert!(!format!("{credentials:?}").contains("canary"));
        assert_eq!(credentials.secrets(), ["canary", "canary three", "canary two"]);
        let only = |model: &str| {
            let model = ModelChoice::parse(model).unwrap();
            assert!(credentials.reach(&model));
            assert!(
                !Credentials::default().reach(&model)
                    || matches!(model, ModelChoice::Rehearsal | ModelChoice::Script(_))
            );
            credentials.only_for(&model).secrets()
        };
        assert_eq!(only("anthropic/m"), ["canary", "canary two"]);
        assert_eq!(only("openai/m"), ["canary three"]);
        assert_eq!(only("rehearsal"), [""; 0]);
    }
}
