//! The models of an agent with what is known of them: its own, and those that go on if it fails.

use super::model::{KnownChoice, complete};
use crate::error::Failure;
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, RoleFallbacks, check_price};
use crate::settings::models::KnownModels;
use crate::wire::model_facts::ModelFacts;

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
        match usable(model.clone(), &mut credentials, settings) {
            Ok(model) => {
                check_its_price(&model, &credentials, settings)?;
                models.push(model);
            }
            Err(why) => left_out.push(format!("fallback_models: {model} is left out: {why}")),
        }
    }
    Ok(Fallbacks { models, credentials, left_out })
}

/// Returns the models of a role that go on if one fails, from the list `words` of its file. One that cannot be used now, or
/// has no price for a budget in money, is left out.
pub(super) fn resolve_of_role(
    words: &[String],
    settings: &Settings,
    mut credentials: ProviderCredentials,
) -> Fallbacks {
    let aliases = settings.model_aliases();
    let alias = |word: &str| aliases.get(word).map(String::as_str);
    let RoleFallbacks { models, mut left_out } = RoleFallbacks::read(words, alias, |model| {
        let model = usable(model, &mut credentials, settings)?;
        check_its_price(&model, &credentials, settings).map_err(|why| why.what)?;
        Ok(model)
    });
    for sentence in &mut left_out {
        sentence.insert_str(0, "fallbackModels of the role: ");
    }
    Fallbacks { models, credentials, left_out }
}

/// Completes a model that goes on if another one fails. Fails with the reason for which it cannot be used now.
pub(super) fn usable(
    model: ModelChoice,
    credentials: &mut ProviderCredentials,
    settings: &Settings,
) -> Result<ModelChoice, String> {
    if !credentials.suffice_for(&model) {
        return Err("it has no credentials".into());
    }
    let completed = complete(model, credentials.clone(), settings);
    let (model, with_model) = completed.map_err(|why| format!("{}: {}", why.what, why.why))?;
    *credentials = with_model;
    Ok(model)
}

/// Takes the size of a model's context from what its endpoint has listed, if nothing else says it.
pub(super) fn note_context(
    model: &ModelChoice,
    facts: &mut ModelFacts,
    credentials: &ProviderCredentials,
) {
    if facts.context_tokens.is_none() {
        let listed = model.name().and_then(|name| credentials.listed_context(model.spec(), name));
        facts.context_tokens = listed;
    }
}

fn check_its_price(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
    settings: &Settings,
) -> Result<(), Failure> {
    let known = KnownModels::of(settings, credentials).facts(&model.to_string());
    check_price(model, known.price, &settings.rules().budgets())
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
