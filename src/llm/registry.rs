//! What a provider tells about itself: how its models are named, what credentials it takes, how it is
//! connected. Settings and commands ask the specification and know no provider by name.

use super::http::ConfigError;
use super::model_list::Listing;
use super::provider::Provider;
use super::retry::Backoff;
use serde::{Deserialize, Serialize};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A provider.
pub struct ProviderSpec {
    /// The word before the model's name, such as `anthropic` in `anthropic/NAME`.
    pub name: &'static str,
    /// What a person checks when the provider cannot be used.
    pub check: &'static str,
    /// How a model is named.
    pub model_name: ModelName,
    /// The model when credentials are set and no model is named.
    pub default_model: Option<&'static str>,
    /// The environment variables, for a provider that takes credentials and bills them.
    pub variables: Option<Variables>,
    /// How a model without a name is found.
    pub discovery: Discovery,
    /// Tokens that fit each of the models, where all have the same limit.
    pub context_tokens: Option<u64>,
    /// The models are small enough to need a shorter prompt.
    pub has_small_models: bool,
    /// Shown to the person before the first prompt.
    pub notice: Option<&'static str>,
    /// The URL of the endpoint when none is configured.
    pub base_url: Option<&'static str>,
    /// Opens a model.
    pub connect: fn(Connection<'_>) -> Result<Connected, ConnectError>,
    /// Asks the endpoint for its models; `None` for a provider without an endpoint.
    pub list_models: Option<fn(&Access, Duration) -> ListFuture>,
}

/// The answer of an endpoint that is asked for its models; the error is for people.
pub type ListFuture = Pin<Box<dyn Future<Output = Result<Listing, String>>>>;

impl ProviderSpec {
    /// A provider without credentials, model names or endpoint, which cannot be connected.
    pub const fn new(name: &'static str, check: &'static str) -> Self {
        Self {
            name,
            check,
            model_name: ModelName::None,
            default_model: None,
            variables: None,
            discovery: Discovery::None,
            context_tokens: None,
            has_small_models: false,
            notice: None,
            base_url: None,
            connect: |_| Err(ConnectError::Setup("it has no connection".into())),
            list_models: None,
        }
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

    /// Reads a model of this provider: `Some(None)` is a model without a name.
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

    /// Writes a model as [`Self::read`] reads it.
    pub fn write(&self, model: Option<&str>) -> String {
        let separator = if self.model_name == ModelName::File { ':' } else { '/' };
        match model {
            None => self.name.to_owned(),
            Some(model) => format!("{}{separator}{model}", self.name),
        }
    }
}

/// How a model of a provider is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelName {
    /// The provider is the model.
    None,
    /// `provider/NAME`.
    Required,
    /// `provider` or `provider/NAME`.
    Optional,
    /// `provider:FILE`.
    File,
}

/// How a model without a name is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// It is not.
    None,
    /// The first model that a configured endpoint lists.
    FirstListed,
    /// The first model that a server on this machine lists.
    LocalServers,
}

/// The environment variables of a provider: `PREFIX_API_KEY`, `PREFIX_BASE_URL`, `PREFIX_CUSTOM_HEADERS`,
/// `PREFIX_MODEL`, and those that not every provider has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// The beginning of all names.
    pub prefix: &'static str,
    /// There is `PREFIX_AUTH_TOKEN`.
    pub has_auth_token: bool,
}

impl Variables {
    /// The name of one variable.
    pub fn name(self, word: &str) -> String {
        format!("{}_{word}", self.prefix)
    }

    /// The variables that hold credentials, the usual one first.
    pub fn credentials(self) -> impl Iterator<Item = String> {
        let token = self.has_auth_token.then(|| self.name("AUTH_TOKEN"));
        std::iter::once(self.name("API_KEY")).chain(token)
    }
}

/// What reaches a provider's endpoint.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// A key.
    pub api_key: Option<String>,
    /// A token, for those that take one instead of a key.
    pub auth_token: Option<String>,
    /// The endpoint, if not the provider's own.
    pub base_url: Option<String>,
    /// Further headers: lines of `Name: value`.
    pub custom_headers: Option<String>,
    /// The version of the API to ask for, if not the current one.
    pub api_version: Option<String>,
}

impl Access {
    /// Whether there is anything to reach an endpoint with: a key, or a server that may need none.
    pub fn is_usable(&self) -> bool {
        [&self.api_key, &self.auth_token, &self.base_url].iter().any(|value| value.is_some())
    }
}

/// One agent's connection to a model.
pub struct Connection<'a> {
    /// The model's name; empty for a provider without names.
    pub model: &'a str,
    /// What reaches the endpoint.
    pub access: Access,
    /// The agent's name.
    pub agent: &'a str,
    /// Unique to this incarnation of the agent.
    pub incarnation: &'a str,
    /// Unique to the agent's conversation, over all its incarnations.
    pub conversation: &'a str,
    /// The seed of the jitter of retries; it differs between the members of a team.
    pub jitter_seed: u64,
    /// Gives the pause that the team shares for the endpoint of a base URL.
    pub backoff: &'a dyn Fn(&str) -> Box<dyn Backoff>,
}

/// A connected model.
pub struct Connected {
    /// The model.
    pub provider: Rc<dyn Provider>,
    /// What the person who wrote the configuration should know.
    pub warning: Option<&'static str>,
}

/// Why a model cannot be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration of the endpoint cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the model is made from cannot be used.
    #[error("{0}")]
    Setup(String),
}

#[cfg(test)]
mod tests {
    use super::super::PROVIDERS;

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
