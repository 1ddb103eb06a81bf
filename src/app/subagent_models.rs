//! The models of an agent's subagents: by default those of the agent, or others that its credentials suffice for.

use super::model::{KnownChoice, ModelUser, open_alone, open_models};
use crate::agent::subagent::{ModelOpener, OpenedModel};
use crate::error::Failure;
use crate::settings::model::{ModelChoice, ProviderCredentials, RoleFallbacks, check_price};
use crate::settings::models::KnownModels;
use crate::store::TeamDir;
use crate::wire::budget::Budgets;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The models of an agent, from which those of its subagents derive.
#[derive(Clone)]
pub(super) struct OwnModel {
    /// Its model, and those that go on if it fails.
    pub(super) chain: (KnownChoice, Vec<KnownChoice>),
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
    fn open_model(
        &self,
        wanted: Option<&str>,
        of_role: Option<&[String]>,
        agent: &str,
    ) -> Result<OpenedModel, Failure> {
        let own_model = self.own.borrow().clone();
        let of_role = of_role.map(|words| self.fallbacks_of_role(words, &own_model));
        let OwnModel { chain: (own, fallbacks), credentials, known } = own_model;
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
        let mut others = of_role.unwrap_or(fallbacks);
        others.retain(|other| other.model != choice.model);
        let models = open_models(&(choice, others), &credentials, &user)?;
        Ok(OpenedModel { name, models })
    }

    /// Returns the models of the list of a role. One that the credentials of the agent do not suffice for is left out.
    fn fallbacks_of_role(&self, words: &[String], own: &OwnModel) -> Vec<KnownChoice> {
        let OwnModel { credentials, known, .. } = own;
        let price = |model: &ModelChoice| known.facts(&model.to_string()).price;
        let read = RoleFallbacks::read(
            words,
            |word| self.aliases.get(word).map(String::as_str),
            |model| {
                let opened = open_alone(&model, credentials);
                let checked =
                    opened.and_then(|_| check_price(&model, price(&model), &self.budgets));
                checked
                    .map(|()| model)
                    .map_err(|Failure { what, why, .. }| format!("{what}: {why}"))
            },
        );
        for left_out in read.left_out {
            tracing::warn!(left_out, "a fallback model of a subagent's role is not used");
        }
        let known = |model: ModelChoice| {
            let facts = known.facts(&model.to_string());
            KnownChoice { model, facts }
        };
        read.models.into_iter().map(known).collect()
    }
}

impl ModelOpener for SubagentModels {
    fn open(
        &self,
        model: Option<&str>,
        fallbacks: Option<&[String]>,
        agent: &str,
    ) -> Result<OpenedModel, String> {
        self.open_model(model, fallbacks, agent).map_err(|failure| {
            let Failure { what, why, .. } = failure;
            format!("{what}: {why}; leave `model` out to use yours")
        })
    }
}
