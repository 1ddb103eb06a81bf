//! `/model`: the lead goes on with its conversation on another model. Teammates keep theirs.

use super::options::LeadOptions;
use super::runtime::LeadRuntime;
use crate::app::fallbacks::chain;
use crate::app::model::{ModelUser, complete, open_alone, open_models};
use crate::app::subagent_models::OwnModel;
use crate::error::Failure;
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, check_price};
use crate::settings::models::KnownModels;
use crate::store::Fsync;
use crate::store::asynchronous::{offload, update_roster};
use crate::wire::AgentName;

/// The settings from which a model is opened.
pub(super) struct ModelSwitch {
    settings: Settings,
    credentials: ProviderCredentials,
    /// The models that go on if one fails.
    fallbacks: Vec<ModelChoice>,
    /// The incarnation in which a resumed conversation began.
    conversation: Option<String>,
}

impl ModelSwitch {
    pub(super) fn new(options: &LeadOptions, conversation: Option<String>) -> Self {
        let LeadOptions { settings, credentials, fallbacks, .. } = options;
        Self {
            settings: settings.clone(),
            credentials: credentials.clone(),
            fallbacks: fallbacks.clone(),
            conversation,
        }
    }

    /// Makes the lead call another model from its next call on, also the teammates that it spawns without one. Fails if the
    /// model cannot be used; then nothing has changed.
    pub(super) async fn use_model(
        &self,
        given: &str,
        runtime: &LeadRuntime,
    ) -> Result<ModelChoice, Failure> {
        let model = ModelChoice::parse(given)?;
        let (settings, credentials) = (self.settings.clone(), self.credentials.clone());
        // A local server is searched for, and an endpoint may be asked for its models.
        let completed = offload(move || complete(model, credentials, &settings)).await;
        let (model, credentials) = completed?;
        let name = model.to_string();
        let known = KnownModels::of(&self.settings, &credentials);
        check_price(&model, known.facts(&name).price, &self.settings.rules().budgets())?;
        open_alone(&model, &credentials)?;
        let (me, conversation) = (AgentName::lead(), self.conversation.as_deref());
        let (incarnation, team) = (&runtime.incarnation, runtime.team());
        let user = ModelUser { agent: me.as_str(), incarnation, conversation, team, player: None };
        let chain = chain(&model, &self.fallbacks, &known);
        let models = open_models(&chain, &credentials, &user)?;
        let shown = name.clone();
        update_roster(team, Fsync::Never, move |roster| {
            if let Some(lead) = &mut roster.lead {
                lead.model = shown;
            }
        })
        .await?;
        if let Some(of_subagents) = &runtime.subagent_models {
            let (credentials, known) = (credentials.clone(), known.clone());
            of_subagents.own.replace(OwnModel { chain, credentials, known });
        }
        runtime.supervisor.set_model(name, credentials, known);
        runtime.next_models.set(Some(models));
        Ok(model)
    }
}
