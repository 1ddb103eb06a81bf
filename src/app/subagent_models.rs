//! The models of an agent's subagents: by default that of the agent, or another one that its credentials suffice for.

use super::model::{KnownChoice, ModelUser, open_models};
use crate::agent::subagent::{ModelOpener, OpenedModel};
use crate::error::Failure;
use crate::settings::model::{ModelChoice, ProviderCredentials, check_price};
use crate::settings::models::KnownModels;
use crate::store::TeamDir;
use crate::wire::budget::Budgets;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The model of an agent, from which those of its subagents derive.
#[derive(Clone)]
pub(super) struct OwnModel {
    pub(super) choice: KnownChoice,
    pub(super) credentials: ProviderCredentials,
    /// The facts about other models.
    pub(super) known: KnownModels,
}

pub(super) struct SubagentModels {
    pub(super) own: RefCell<OwnModel>,
    /// The models that words in role files mean. A teammate knows none.
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) budgets: Budgets,
    pub(super) incarnation: String,
    /// The incarnation in which the agent's conversation began.
    pub(super) conversation: String,
    pub(super) team: TeamDir,
}

impl SubagentModels {
    fn open_model(&self, wanted: Option<&str>, agent: &str) -> Result<OpenedModel, Failure> {
        let OwnModel { choice: own, credentials, known } = self.own.borrow().clone();
        let wanted = wanted.map(|word| self.aliases.get(word).map_or(word, String::as_str));
        let model = wanted.map_or_else(|| Ok(own.model.clone()), ModelChoice::parse)?;
        let name = model.to_string();
        let choice = if model == own.model {
            own
        } else {
            let facts = known.facts(&name);
            check_price(&model, facts.price, &self.budgets)?;
            KnownChoice { model, facts }
        };
        let conversation = format!("{}/{agent}", self.conversation);
        let user = ModelUser {
            agent,
            incarnation: &self.incarnation,
            conversation: Some(&conversation),
            team: &self.team,
            player: None,
        };
        let models = open_models(&(choice, Vec::new()), &credentials, &user)?;
        Ok(OpenedModel { name, model: models.own })
    }
}

impl ModelOpener for SubagentModels {
    fn open(&self, model: Option<&str>, agent: &str) -> Result<OpenedModel, String> {
        self.open_model(model, agent).map_err(|failure| {
            let Failure { what, why, .. } = failure;
            format!("{what}: {why}; leave `model` out to use yours")
        })
    }
}
