//! From a chosen model to the thing that answers.

use crate::error::{Exit, Failure};
use crate::llm::anthropic::parse_headers;
use crate::llm::rehearsal::Rehearsal;
use crate::llm::{self, Anthropic, AnthropicConfig, ConfigError, Provider, Scripted, Secret};
use crate::settings::model::{Credentials, ModelChoice};
use crate::wire::AgentName;
use std::rc::Rc;

/// Where the Messages API is when nothing else is said.
const ANTHROPIC: &str = "https://api.anthropic.com";

/// Which life of an agent a provider is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life<'a> {
    /// This one.
    pub(super) incarnation: &'a str,
    /// The first one of its conversation.
    pub(super) conversation: &'a str,
}

/// The provider of a model for one life of one agent.
///
/// # Errors
/// Credentials are missing or unusable, or the script cannot be read.
pub(super) fn provider_for(
    model: &ModelChoice,
    credentials: &Credentials,
    agent: &AgentName,
    life: Life<'_>,
) -> Result<Rc<dyn Provider>, Failure> {
    match model {
        ModelChoice::Rehearsal => Ok(Rc::new(Rehearsal::new(life.incarnation))),
        ModelChoice::Script(file) => {
            let word = life.conversation;
            // The end of an incarnation is random, its beginning is the time.
            let word = word.get(word.len().saturating_sub(8)..).unwrap_or(word);
            let scripted = Scripted::open(file, agent.as_str(), word).map_err(|why| {
                Failure::new(
                    Exit::Usage,
                    format!("the script {} cannot be used", file.display()),
                    why.to_string(),
                    "docs/script.md describes the format",
                )
            })?;
            Ok(Rc::new(scripted))
        }
        ModelChoice::Anthropic(name) => {
            let client = anthropic(name, credentials, agent).map_err(|why| {
                Failure::new(
                    Exit::NoModel,
                    format!("anthropic/{name} cannot be used"),
                    why.to_string(),
                    "check ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) and ANTHROPIC_BASE_URL in \
                     the lead's environment",
                )
            })?;
            for warning in client.warnings() {
                tracing::warn!(warning, "the endpoint");
            }
            Ok(Rc::new(client))
        }
    }
}

fn anthropic(
    model: &str,
    credentials: &Credentials,
    agent: &AgentName,
) -> Result<Anthropic, ConfigError> {
    let secret = |name: &str, value: &str| {
        Secret::new(value)
            .map_err(|why| ConfigError::BadHeader { name: name.into(), why: why.to_string() })
    };
    let who = match (&credentials.api_key, &credentials.auth_token) {
        (Some(key), _) => llm::Credentials::ApiKey(secret("ANTHROPIC_API_KEY", key)?),
        (None, Some(token)) => llm::Credentials::AuthToken(secret("ANTHROPIC_AUTH_TOKEN", token)?),
        (None, None) => llm::Credentials::Nobody,
    };
    let base_url = credentials.base_url.as_deref().unwrap_or(ANTHROPIC);
    let mut config = AnthropicConfig::new(base_url, who, model);
    if let Some(headers) = &credentials.custom_headers {
        config.extra_headers = parse_headers(headers)?;
    }
    if let Some(version) = &credentials.api_version {
        config.version.clone_from(version);
    }
    // Members that wait for the same endpoint should not come back at the same moment.
    let bytes = agent.as_str().bytes().map(u64::from);
    config.jitter_seed = bytes.fold(u64::from(std::process::id()), |seed, byte| seed * 31 + byte);
    Anthropic::new(config)
}
