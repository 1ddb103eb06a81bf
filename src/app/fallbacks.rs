//! The models of an agent with what is known of them: its own, and those that go on if it fails.

use super::model::{KnownChoice, complete};
use crate::error::Failure;
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, check_price};
use crate::settings::models::KnownModels;

/// The models that go on if one fails, with credentials for all of them.
#[derive(Debug)]
pub(super) struct Fallbacks {
    pub(super) models: Vec<ModelChoice>,
    pub(super) credentials: ProviderCredentials,
    /// Sentences about those that are left out, for the user.
    pub(super) left_out: Vec<String>,
}

/// Returns the models of the settings that go on if one fails. One that cannot be used now, since it has no credentials or
/// its server is not there, is left out. Fails if a budget in money has no price for one.
pub(super) fn resolve(
    settings: &Settings,
    mut credentials: ProviderCredentials,
) -> Result<Fallbacks, Failure> {
    let (mut models, mut left_out) = (Vec::new(), Vec::new());
    for model in &settings.fallback_models.value.0 {
        if !credentials.suffice_for(model) {
            left_out.push(format!("fallback_models: {model} is left out: it has no credentials"));
            continue;
        }
        match complete(model.clone(), credentials.clone(), settings) {
            Ok((model, with_model)) => {
                credentials = with_model;
                let known = KnownModels::of(settings, &credentials).facts(&model.to_string());
                check_price(&model, known.price, &settings.rules().budgets())?;
                models.push(model);
            }
            Err(why) => left_out
                .push(format!("fallback_models: {model} is left out: {}: {}", why.what, why.why)),
        }
    }
    Ok(Fallbacks { models, credentials, left_out })
}

/// Returns the models of an agent with what is known of them: its own, and the others.
pub(super) fn chain(
    own: &ModelChoice,
    fallbacks: &[ModelChoice],
    known: &KnownModels,
) -> (KnownChoice, Vec<KnownChoice>) {
    let of = |model: &ModelChoice| KnownChoice {
        model: model.clone(),
        facts: known.facts(&model.to_string()),
    };
    let others = fallbacks.iter().filter(|model| *model != own).map(of);
    (of(own), others.collect())
}
