//! The question of a host for the places of names, which the authority of the team answers.

use crate::carrier::Carrier;
use agent_team::relay::{NameStep, Placement};
use agent_team::wire::AgentName;
use agent_team::wire::carried::RELAY_PROTOCOL;
use serde::{Deserialize, Serialize};

/// The most names of one question: their answers fit into a message of any server.
pub(super) const MOST_NAMES: usize = 256;

/// The question.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NameQuestion {
    v: u32,
    pub(super) names: Vec<WantedName>,
}

/// A name, and the place that it is to have.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WantedName {
    pub(super) name: String,
    pub(super) placement: Placement,
}

/// The answer: one for each name, in the order of the question.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NameAnswers {
    pub(super) answers: Vec<NameAnswer>,
}

/// The answer for one name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum NameAnswer {
    /// The name has this place.
    Placed {
        /// The place.
        placement: Placement,
        /// Its revision at the carrier.
        revision: u64,
    },
    /// It belongs to another host, or may not be placed.
    Refused {
        /// The reason.
        why: String,
    },
    /// It may be placed later.
    Later {
        /// The reason.
        why: String,
    },
}

/// The place that a name has got.
pub(super) struct Placed {
    pub(super) name: AgentName,
    pub(super) placement: Placement,
    pub(super) revision: u64,
}

/// The reason for which a name was not placed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepFailure {
    #[error("another host was faster")]
    OtherWasFaster,
    #[error("{0}")]
    Refused(String),
    #[error("the name is not placed: {0}")]
    Unanswered(String),
}

/// Reads a question; `None` if this version does not understand it, or it is too long.
pub(super) fn parse(body: &[u8]) -> Option<Vec<WantedName>> {
    let question = serde_json::from_slice::<NameQuestion>(body).ok()?;
    (question.v == RELAY_PROTOCOL && question.names.len() <= MOST_NAMES).then_some(question.names)
}

/// Returns the name of a step, and the place that it gives it; `None` if it changes no place.
pub(super) fn wanted(step: &NameStep) -> Option<(AgentName, Placement)> {
    match step {
        NameStep::Create(name, placement) | NameStep::Replace(name, placement, _) => {
            Some((name.clone(), placement.clone()))
        }
        NameStep::End(_) => None,
    }
}

/// Asks the authority for the places of names; returns what follows for each of them.
pub(super) async fn ask(
    wanted: Vec<(AgentName, Placement)>,
    carrier: &Carrier,
) -> Vec<Result<Placed, StepFailure>> {
    let answers = match ask_all(&wanted, carrier).await {
        Ok(answers) => answers,
        Err(why) => {
            return wanted.iter().map(|_| Err(StepFailure::Unanswered(why.clone()))).collect();
        }
    };
    let taken = |((name, _), answer)| match answer {
        NameAnswer::Placed { placement, revision } => Ok(Placed { name, placement, revision }),
        NameAnswer::Refused { why } => Err(StepFailure::Refused(why)),
        NameAnswer::Later { why } => Err(StepFailure::Unanswered(why)),
    };
    wanted.into_iter().zip(answers).map(taken).collect()
}

async fn ask_all(
    wanted: &[(AgentName, Placement)],
    carrier: &Carrier,
) -> Result<Vec<NameAnswer>, String> {
    let wanted_name = |(name, placement): &(AgentName, Placement)| WantedName {
        name: name.to_string(),
        placement: placement.clone(),
    };
    let names = wanted.iter().map(wanted_name).collect();
    let question = serde_json::to_vec(&NameQuestion { v: RELAY_PROTOCOL, names });
    let question = question.map_err(|why| why.to_string())?;
    let answer = carrier.request_claim(question.into()).await.map_err(|why| why.to_string())?;
    let answers = serde_json::from_slice::<NameAnswers>(&answer).map_err(|why| why.to_string())?;
    if answers.answers.len() != wanted.len() {
        return Err(format!("{} answers for {} names", answers.answers.len(), wanted.len()));
    }
    Ok(answers.answers)
}
