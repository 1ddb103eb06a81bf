//! What a lead is started with: its request, the settings, and the model that both lead to.

use super::request::{LeadRequest, RunLimits};
use crate::agent::approval::Asks;
use crate::app::context::Context;
use crate::app::model_discovery;
use crate::app::model_selection::select_model;
use crate::app::team_rules::permissions;
use crate::error::Failure;
use crate::settings::Settings;
use crate::settings::model::{self, Credentials, ModelChoice, price_of};
use crate::store::roster;
use crate::ui::headless_output::Format;
use crate::wire::money::Price;
use crate::wire::permission::Permissions;

/// What a lead is started with.
pub(super) struct LeadOptions {
    pub(super) prompt: Option<String>,
    pub(super) output: Option<Format>,
    pub(super) settings: Settings,
    pub(super) permissions: Permissions,
    pub(super) model: ModelChoice,
    pub(super) credentials: Credentials,
    pub(super) price: Option<Price>,
    pub(super) limits: RunLimits,
    /// No model is configured, so the fallback is used and the person is told.
    pub(super) is_fallback_model: bool,
    pub(super) resume: bool,
    pub(super) takeover: bool,
}

impl LeadOptions {
    /// Resolves a request by the settings of the folder.
    ///
    /// # Errors
    /// Settings or permissions are not understood, no model can be used, or a budget in money has no
    /// price to go by.
    pub(super) fn resolve(context: &Context, request: LeadRequest) -> Result<Self, Failure> {
        let LeadRequest { prompt, output, flags, limits, resume, takeover } = request;
        let settings = context.settings_with(&flags)?;
        let permissions = permissions(&settings)?;
        settings.ignored.iter().for_each(|ignored| crate::app::output::warn(ignored));
        let is_headless = output.is_some();
        let mut named =
            model::resolve(&settings, &context.environment)?.map(|setting| setting.value);
        if named.is_none() && resume {
            named = last_model(context);
        }
        if named.is_none() && !is_headless {
            named = model_discovery::offer_local(&settings)?;
        }
        let is_fallback_model = named.is_none();
        let model = select_model(named, !is_headless)?;
        let credentials = Credentials::of(&settings, &context.environment);
        let (model, credentials) = model_discovery::complete(model, credentials, &settings)?;
        let price = settings.prices().get(&model.to_string()).copied();
        let price = price_of(&model, price, &settings.rules().budgets())?;
        Ok(Self {
            prompt,
            output,
            settings,
            permissions,
            model,
            credentials,
            price,
            limits,
            is_fallback_model,
            resume,
            takeover,
        })
    }
}

/// The model of the lead that stands in the roster.
fn last_model(context: &Context) -> Option<ModelChoice> {
    let lead = roster::read(&context.team().ok()?).ok()?.lead.clone()?;
    ModelChoice::parse(&lead.model).ok()
}

/// Chooses who decides about the lead's own calls: nobody is asked where nobody can answer.
pub(super) fn approver(is_headless: bool, stdin_is_terminal: bool) -> Asks {
    if is_headless {
        Asks::Nobody("in a headless run (-p) nobody can be asked".into())
    } else if stdin_is_terminal {
        Asks::Person
    } else {
        Asks::Nobody("standard input is no terminal, so nobody can be asked".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interactive_lead_at_a_terminal_asks_the_person() {
        for (is_headless, is_terminal) in [(true, true), (true, false), (false, false)] {
            assert!(matches!(approver(is_headless, is_terminal), Asks::Nobody(_)));
        }
        assert!(matches!(approver(false, true), Asks::Person));
    }
}
