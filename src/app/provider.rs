//! From a chosen model to its provider.

use super::team_backoff::TeamBackoff;
use crate::error::{Exit, Failure};
use crate::llm::registry::{ConnectError, Connected, Connection};
use crate::llm::{Listing, Provider};
use crate::settings::model::{Credentials, ModelChoice};
use crate::store::TeamDir;
use crate::wire::AgentName;
use std::rc::Rc;
use std::time::Duration;

/// The conversation that a provider serves.
pub(super) struct Conversation<'a> {
    pub(super) agent: AgentName,
    pub(super) incarnation: &'a str,
    /// The incarnation in which the conversation began; `None` for a new one.
    pub(super) first_incarnation: Option<&'a str>,
}

/// Opens a model for one incarnation of one agent.
///
/// # Errors
/// Credentials are missing or unusable, or a script cannot be read.
pub(super) fn open_provider(
    model: &ModelChoice,
    credentials: &Credentials,
    conversation: &Conversation<'_>,
    team: &TeamDir,
) -> Result<Rc<dyn Provider>, Failure> {
    let Conversation { agent, incarnation, first_incarnation } = conversation;
    let connection = Connection {
        model: model.name().unwrap_or_default(),
        access: credentials.access(model),
        agent: agent.as_str(),
        incarnation,
        conversation: first_incarnation.unwrap_or(incarnation),
        jitter_seed: jitter_seed(agent),
        backoff: &|base_url| Box::new(TeamBackoff::of(team, base_url)),
    };
    let Connected { provider, warning } =
        (model.spec().connect)(connection).map_err(|why| unusable(model, &why))?;
    if let Some(warning) = warning {
        tracing::warn!(warning, "the endpoint");
    }
    Ok(provider)
}

fn unusable(model: &ModelChoice, why: &ConnectError) -> Failure {
    let check = model.spec().check;
    let (exit, hint) = match why {
        ConnectError::Setup(_) => (Exit::Usage, check.to_owned()),
        ConnectError::Config(_) => (
            Exit::NoModel,
            format!("check {check}, as the lead's environment and settings have them"),
        ),
    };
    Failure::new(exit, format!("{model} cannot be used"), why.to_string(), hint)
}

/// Members that wait for the same endpoint must not come back at the same moment.
fn jitter_seed(agent: &AgentName) -> u64 {
    let bytes = agent.as_str().bytes().map(u64::from);
    bytes.fold(u64::from(std::process::id()), |seed, byte| seed.wrapping_mul(31).wrapping_add(byte))
}

/// The URL of the endpoint of a model; `None` for a provider without an endpoint.
pub(super) fn base_url(model: &ModelChoice, credentials: &Credentials) -> Option<String> {
    let named = credentials.access(model).base_url;
    named.or_else(|| model.spec().base_url.map(ToOwned::to_owned))
}

/// Asks the endpoint of a model for its models; `None` for a provider without an endpoint. The error is for
/// people.
pub(super) async fn list_models(
    model: &ModelChoice,
    credentials: &Credentials,
    limit: Duration,
) -> Option<Result<Listing, String>> {
    let list = model.spec().list_models?;
    Some(list(&credentials.access(model), limit).await)
}
