//! From a chosen model to the thing that answers.

use super::backoff::TeamBackoff;
use crate::error::{Exit, Failure};
use crate::llm::anthropic::parse_headers;
use crate::llm::rehearsal::Rehearsal;
use crate::llm::{
    self, Anthropic, AnthropicConfig, ConfigError, Listing, OpenAi, OpenAiConfig, Provider,
    Scripted, Secret,
};
use crate::settings::model::{AnthropicAccess, Credentials, ModelChoice, OpenAiAccess};
use crate::store::TeamDir;
use crate::wire::AgentName;
use std::rc::Rc;
use std::time::Duration;

/// Where the APIs are when nothing else is said.
const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";

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
    team: &TeamDir,
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
            let client = anthropic(name, &credentials.anthropic, agent, team).map_err(|why| {
                unusable(
                    model,
                    &why,
                    "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), ANTHROPIC_BASE_URL",
                )
            })?;
            warn(client.warnings());
            Ok(Rc::new(client))
        }
        ModelChoice::Local(name) => {
            let client = local(name.as_deref(), credentials.local.as_deref(), agent, team)
                .map_err(|why| unusable(model, &why, "the local server"))?;
            Ok(Rc::new(client))
        }
        ModelChoice::OpenAi(name) => {
            let name = name.as_deref().unwrap_or_default();
            let client = openai(name, &credentials.openai, agent, team)
                .map_err(|why| unusable(model, &why, "OPENAI_API_KEY, OPENAI_BASE_URL"))?;
            warn(client.warnings());
            Ok(Rc::new(client))
        }
    }
}

/// Where calls to this model go; `None` for one that lives in this program.
pub(super) fn base_url(model: &ModelChoice, credentials: &Credentials) -> Option<String> {
    let or =
        |named: &Option<String>, default: &str| named.clone().unwrap_or_else(|| default.into());
    match model {
        ModelChoice::Rehearsal | ModelChoice::Script(_) => None,
        ModelChoice::Anthropic(_) => Some(or(&credentials.anthropic.base_url, ANTHROPIC)),
        ModelChoice::OpenAi(_) => Some(or(&credentials.openai.base_url, OPENAI)),
        ModelChoice::Local(_) => credentials.local.clone(),
    }
}

/// What the endpoint of a model says when it is asked for its models; `None` for one that lives in this
/// program. The error is for people.
pub(super) async fn listing(
    model: &ModelChoice,
    credentials: &Credentials,
    limit: Duration,
) -> Option<Result<Listing, String>> {
    let anthropic = match model {
        ModelChoice::Rehearsal | ModelChoice::Script(_) => return None,
        ModelChoice::OpenAi(_) => {
            return Some(match openai_config("", &credentials.openai) {
                Ok(config) => config.listing(limit).await,
                Err(why) => Err(why.to_string()),
            });
        }
        ModelChoice::Anthropic(_) => anthropic_config("", &credentials.anthropic),
        ModelChoice::Local(_) => {
            let base_url = credentials.local.as_deref().unwrap_or_default();
            Ok(AnthropicConfig::new(base_url, llm::Credentials::Nobody, ""))
        }
    };
    Some(match anthropic {
        Ok(config) => config.listing(limit).await,
        Err(why) => Err(why.to_string()),
    })
}

fn unusable(model: &ModelChoice, why: &ConfigError, variables: &str) -> Failure {
    Failure::new(
        Exit::NoModel,
        format!("{model} cannot be used"),
        why.to_string(),
        format!("check {variables}, as the lead's environment and settings have them"),
    )
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(warning, "the endpoint");
    }
}

fn anthropic(
    model: &str,
    access: &AnthropicAccess,
    agent: &AgentName,
    team: &TeamDir,
) -> Result<Anthropic, ConfigError> {
    let config = anthropic_config(model, access)?;
    let base_url = config.base_url.clone();
    let config = AnthropicConfig { jitter_seed: seed(agent), ..config };
    Ok(Anthropic::new(config)?.with_backoff(Box::new(TeamBackoff::of(team, &base_url))))
}

/// What reaches the Messages API, for this model.
fn anthropic_config(model: &str, access: &AnthropicAccess) -> Result<AnthropicConfig, ConfigError> {
    let who = match (&access.api_key, &access.auth_token) {
        (Some(key), _) => llm::Credentials::ApiKey(secret("ANTHROPIC_API_KEY", key)?),
        (None, Some(token)) => llm::Credentials::AuthToken(secret("ANTHROPIC_AUTH_TOKEN", token)?),
        (None, None) => llm::Credentials::Nobody,
    };
    let base_url = access.base_url.as_deref().unwrap_or(ANTHROPIC);
    let mut config = AnthropicConfig::new(base_url, who, model);
    if let Some(headers) = &access.custom_headers {
        config.extra_headers = parse_headers(headers)?;
    }
    if let Some(version) = &access.api_version {
        config.version.clone_from(version);
    }
    Ok(config)
}

/// Local servers speak the Messages API and want no key.
fn local(
    model: Option<&str>,
    base_url: Option<&str>,
    agent: &AgentName,
    team: &TeamDir,
) -> Result<Anthropic, ConfigError> {
    let (base_url, model) = (base_url.unwrap_or_default(), model.unwrap_or_default());
    let mut config = AnthropicConfig::new(base_url, llm::Credentials::Nobody, model);
    config.provider = "local".into();
    config.jitter_seed = seed(agent);
    Ok(Anthropic::new(config)?.with_backoff(Box::new(TeamBackoff::of(team, base_url))))
}

fn openai(
    model: &str,
    access: &OpenAiAccess,
    agent: &AgentName,
    team: &TeamDir,
) -> Result<OpenAi, ConfigError> {
    let config = openai_config(model, access)?;
    let base_url = config.base_url.clone();
    let config = OpenAiConfig { jitter_seed: seed(agent), ..config };
    Ok(OpenAi::new(config)?.with_backoff(Box::new(TeamBackoff::of(team, &base_url))))
}

/// What reaches chat completions, for this model.
pub(super) fn openai_config(
    model: &str,
    access: &OpenAiAccess,
) -> Result<OpenAiConfig, ConfigError> {
    let key = access.api_key.as_deref().map(|key| secret("OPENAI_API_KEY", key)).transpose()?;
    let base_url = access.base_url.as_deref().unwrap_or(OPENAI);
    let mut config = OpenAiConfig::new(base_url, key, model);
    if let Some(headers) = &access.custom_headers {
        config.extra_headers = parse_headers(headers)?;
    }
    Ok(config)
}

fn secret(name: &str, value: &str) -> Result<Secret, ConfigError> {
    Secret::new(value)
        .map_err(|why| ConfigError::BadHeader { name: name.into(), why: why.to_string() })
}

/// Members that wait for the same endpoint should not come back at the same moment.
fn seed(agent: &AgentName) -> u64 {
    let bytes = agent.as_str().bytes().map(u64::from);
    bytes.fold(u64::from(std::process::id()), |seed, byte| seed.wrapping_mul(31).wrapping_add(byte))
}
