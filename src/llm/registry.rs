//! The specification of a provider: the form of its models' names, its credentials, and its connection. Commands
//! and settings use it instead of a provider's name, except for the settings of `[anthropic]`, `[openai]` and `[gemini]`.

use super::http::{ConfigError, join};
use super::model_list::ModelListAnswer;
use super::provider::Provider;
use super::retry::Backoff;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// The specification of a provider.
pub struct ProviderSpec {
    /// The provider's name, which precedes the model's name: `anthropic` in `anthropic/NAME`.
    pub name: &'static str,
    /// The text of a hint about the things to check if the provider cannot be used.
    pub check: &'static str,
    /// The form of a model's name.
    pub model_name: ModelName,
    /// The model that is used if credentials are set and no model is named.
    pub default_model: Option<&'static str>,
    /// The environment variables of a provider that takes credentials and bills the use.
    pub variables: Option<Variables>,
    /// The search for a model if no name is given.
    pub discovery: Discovery,
    /// The context window of the models in tokens, if it is the same for all.
    pub context_tokens: Option<u64>,
    /// Whether the models are agents of other vendors, which only a teammate can run.
    pub is_agent: bool,
    /// Whether the model is a record, which only `team replay` names.
    pub is_replay: bool,
    /// Whether the models are so small that they need a shorter prompt.
    pub has_small_models: bool,
    /// The notice that the user sees before the first prompt.
    pub notice: Option<&'static str>,
    /// The base URL of the endpoint if none is configured.
    pub base_url: Option<&'static str>,
    /// Connects to a model.
    pub connect: fn(Connection<'_>) -> Result<Connected, ConnectError>,
    /// Requests the endpoint's list of models; `None` for a provider without an endpoint.
    pub list_models: Option<fn(&Access, Duration) -> ListFuture>,
}

/// The future of an endpoint's list of models; the error is a text for the user.
pub type ListFuture = Pin<Box<dyn Future<Output = Result<ModelListAnswer, String>>>>;

impl ProviderSpec {
    /// Returns a provider without credentials, model names or endpoint, which cannot be connected.
    pub const fn new(name: &'static str, check: &'static str) -> Self {
        Self {
            name,
            check,
            model_name: ModelName::None,
            default_model: None,
            variables: None,
            discovery: Discovery::None,
            context_tokens: None,
            is_agent: false,
            is_replay: false,
            has_small_models: false,
            notice: None,
            base_url: None,
            connect: |_| Err(ConnectError::Setup("it has no connection".into())),
            list_models: None,
        }
    }

    /// Whether this base URL is the public address of the provider: its host, or one of a region below it.
    pub fn is_own_address(&self, base_url: Option<&str>) -> bool {
        let host = |url: &str| {
            let url = join(url, "").ok()?;
            url.host_str().map(str::to_owned)
        };
        let Some(own) = self.base_url.and_then(host) else { return false };
        let Some(base_url) = base_url else { return true };
        let given = host(base_url).unwrap_or_default();
        given.strip_suffix(&own).is_some_and(|region| region.is_empty() || region.ends_with('.'))
    }

    /// Lists the forms in which a model of this provider is written.
    pub fn forms(&self) -> Vec<String> {
        let name = self.name;
        match self.model_name {
            ModelName::None => vec![name.into()],
            ModelName::Required => vec![format!("{name}/NAME")],
            ModelName::Optional => vec![name.into(), format!("{name}/NAME")],
            ModelName::File => vec![format!("{name}:FILE")],
        }
    }

    /// Parses a model of this provider: `Some(None)` is a model without a name.
    pub fn read(&self, text: &str) -> Option<Option<String>> {
        let rest = text.strip_prefix(self.name)?;
        let named = |separator| {
            let name = rest.strip_prefix(separator).filter(|name| !name.is_empty())?;
            Some(Some(name.to_owned()))
        };
        match self.model_name {
            ModelName::None => rest.is_empty().then_some(None),
            ModelName::Optional if rest.is_empty() => Some(None),
            ModelName::Required | ModelName::Optional => named('/'),
            ModelName::File => named(':'),
        }
    }

    /// Formats a model so that [`Self::read`] parses it.
    pub fn write(&self, model: Option<&str>) -> String {
        let separator = if self.model_name == ModelName::File { ':' } else { '/' };
        match model {
            None => self.name.to_owned(),
            Some(model) => format!("{}{separator}{model}", self.name),
        }
    }
}

/// The form of the name of a provider's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelName {
    /// The provider's name only: it has one model.
    None,
    /// `provider/NAME`.
    Required,
    /// `provider` or `provider/NAME`.
    Optional,
    /// `provider:FILE`.
    File,
}

/// The search for a model if no name is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// No search.
    None,
    /// The first model that a configured endpoint lists.
    FirstListed,
    /// The first model that a server on this machine lists.
    LocalServers,
}

/// The environment variables of a provider: `PREFIX_API_KEY`, `PREFIX_BASE_URL`, `PREFIX_CUSTOM_HEADERS`,
/// `PREFIX_MODEL`, and those that only some providers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// The prefix of all names.
    pub prefix: &'static str,
    /// Whether the provider has `PREFIX_AUTH_TOKEN`.
    pub has_auth_token: bool,
    /// Further variables that the vendor's own client reads. One that ends in `API_KEY` holds a key, which that client
    /// prefers to `PREFIX_API_KEY`.
    pub further: &'static [&'static str],
}

impl Variables {
    /// Returns the name of one variable: `PREFIX_word`.
    pub fn name(self, word: &str) -> String {
        format!("{}_{word}", self.prefix)
    }

    /// Returns the variables that hold a key, the one that is used if several are set first.
    pub fn keys(self) -> impl Iterator<Item = String> {
        let further = self.further.iter().filter(|name| name.ends_with("API_KEY"));
        further.map(ToString::to_string).chain([self.name("API_KEY")])
    }

    /// Returns the variables that hold credentials, the one that is used if several are set first.
    pub fn credentials(self) -> impl Iterator<Item = String> {
        self.keys().chain(self.has_auth_token.then(|| self.name("AUTH_TOKEN")))
    }

    /// Whether a variable of this name belongs to the provider, so that it may hold a key.
    pub fn owns(self, name: &str) -> bool {
        name.starts_with(&self.name("")) || self.further.contains(&name)
    }
}

/// An API of `OpenAI`'s models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenAiApi {
    /// The Responses API, which keeps the reasoning of a model between its calls of tools.
    Responses,
    /// Chat completions, which most servers have.
    ChatCompletions,
}

/// The access to a provider's endpoint: credentials, address, headers.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The API key.
    pub api_key: Option<String>,
    /// The keys of other variables of the provider, which are not used but redacted as well.
    #[serde(default)]
    pub unused_keys: Vec<String>,
    /// The token, for a provider that takes one instead of a key.
    pub auth_token: Option<String>,
    /// The base URL, if it is not the provider's own.
    pub base_url: Option<String>,
    /// The variable or file that sets the base URL.
    #[serde(default)]
    pub base_url_source: Option<String>,
    /// Additional headers: lines of `Name: value`.
    pub custom_headers: Option<String>,
    /// The version of the API, if it is not the client's default.
    pub api_version: Option<String>,
    /// The API of `OpenAI`'s models, if it is not to follow from the address.
    #[serde(default)]
    pub openai_api: Option<OpenAiApi>,
    /// The sizes of the contexts that the endpoint has listed, in tokens, by the model's name.
    #[serde(default)]
    pub listed_context: BTreeMap<String, u64>,
}

impl Access {
    /// Whether a key, a token or a base URL is set: a server at a configured base URL may need no key.
    pub fn is_usable(&self) -> bool {
        [&self.api_key, &self.auth_token, &self.base_url].iter().any(|value| value.is_some())
    }
}

/// The parameters of one agent's connection to a model.
pub struct Connection<'a> {
    /// The model's name; empty if the model has none.
    pub model: &'a str,
    /// The access to the endpoint.
    pub access: Access,
    /// The agent's name.
    pub agent: &'a str,
    /// The unique id of this incarnation of the agent.
    pub incarnation: &'a str,
    /// The unique id of the agent's conversation, the same in all its incarnations.
    pub conversation: &'a str,
    /// The seed of the jitter of retries; it differs between the members of a team.
    pub jitter_seed: u64,
    /// Whether another model goes on if this one fails, so that it is not tried for long.
    pub has_fallback: bool,
    /// Returns the back-off that the team shares for the endpoint of a base URL.
    pub backoff: &'a dyn Fn(&str) -> Box<dyn Backoff>,
}

/// A connected model.
pub struct Connected {
    /// The model.
    pub provider: Rc<dyn Provider>,
    /// A warning for the user about the configuration.
    pub warning: Option<&'static str>,
}

/// The reason for which a model cannot be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration of the endpoint cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The provider cannot be set up, for example because its script cannot be read.
    #[error("{0}")]
    Setup(String),
}

#[cfg(test)]
mod tests {
    use super::super::{CREDENTIAL_VARIABLES, PROVIDERS};

    #[test]
    fn the_variables_of_all_providers_are_listed() {
        let of_providers: Vec<_> = PROVIDERS.iter().filter_map(|spec| spec.variables).collect();
        assert_eq!(of_providers, CREDENTIAL_VARIABLES);
    }

    #[test]
    fn no_two_providers_read_the_same_model() {
        for spec in PROVIDERS {
            for form in spec.forms() {
                let readers = PROVIDERS.iter().filter(|other| other.read(&form).is_some());
                assert_eq!(readers.count(), 1, "{form}");
                let model = spec.read(&form).unwrap();
                assert_eq!(spec.write(model.as_deref()), form);
            }
        }
    }
}
