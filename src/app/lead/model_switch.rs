//! `/model`: the lead goes on with its conversation on another model. Teammates keep theirs.

use super::runtime::LeadRuntime;
use crate::agent::conversation::NewModel;
use crate::app::model::{complete, open_alone, open_provider};
use crate::error::Failure;
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, price_of};
use crate::store::Fsync;
use crate::store::asynchronous::{offload, update_roster};
use crate::wire::AgentName;

/// The settings from which a model is opened.
pub(super) struct ModelSwitch {
    settings: Settings,
    credentials: ProviderCredentials,
    /// The incarnation in which a resumed conversation began.
    conversation: Option<String>,
}

impl ModelSwitch {
    pub(super) fn new(
        settings: Settings,
        credentials: ProviderCredentials,
        conversation: Option<String>,
    ) -> Self {
        Self { settings, credentials, conversation }
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
        let price = self.settings.prices().get(&name).copied();
        let rules = self.settings.rules();
        let price = price_of(&model, price, &rules.budgets())?;
        open_alone(&model, &credentials)?;
        let (me, conversation) = (AgentName::lead(), self.conversation.as_deref());
        let (incarnation, team) = (&runtime.incarnation, runtime.team());
        let provider = open_provider(&model, &credentials, &me, incarnation, conversation, team)?;
        let context_tokens = rules.context_tokens.or(model.spec().context_tokens);
        let shown = name.clone();
        update_roster(team, Fsync::Never, move |roster| {
            if let Some(lead) = &mut roster.lead {
                lead.model = shown;
            }
        })
        .await?;
        runtime.supervisor.set_model(name, credentials);
        runtime.next_model.set(Some(NewModel { provider, context_tokens, price }));
        Ok(model)
    }
}
