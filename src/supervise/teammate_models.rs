//! The models of a teammate: the one that its spawn or its role names, and those that go on if it fails.

use super::handshake::FallbackModel;
use super::supervisor::Supervisor;
use crate::settings::model::{ModelChoice, RoleFallbacks, check_price};
use crate::tools::{SpawnOrder, ToolError};
use crate::wire::permission::PermissionMode;
use crate::wire::role::Role;

impl Supervisor {
    /// Returns the ordered model, else the role's, else the lead's; the ordered mode, else the stricter of
    /// the role's and the lead's; and a note if the role's model cannot be used.
    /// Fails if none of them names a model.
    pub(super) fn choose(
        &self,
        order: &SpawnOrder,
        role: Option<Role>,
    ) -> Result<(String, PermissionMode, String), ToolError> {
        let ours = self.config.permissions.borrow().mode;
        let order_model = order.model.as_ref().filter(|_| !self.plays_record());
        let role_mode = role.as_ref().and_then(|role| role.mode).map(|mode| mode.min(ours));
        let mode = order.mode.or(role_mode).unwrap_or(ours);
        if let Some(model) = order_model {
            return Ok((model.clone(), mode, String::new()));
        }
        let ours = || {
            self.config.model.borrow().clone().ok_or_else(|| {
                ToolError::reply(
                    "no model is configured for teammates: give one in `model`, as provider/name, or acp/claude, \
                     acp/codex and so on for an agent of another vendor; or ask the user to set `model` in the settings",
                )
            })
        };
        let wanted = role.and_then(|role| role.model).filter(|_| !self.plays_record());
        let Some(wanted) = wanted else { return Ok((ours()?, mode, String::new())) };
        let why = match self.model_of_role(&wanted) {
            Ok(model) => return Ok((model, mode, String::new())),
            Err(why) => why,
        };
        tracing::warn!(name = %order.name, role = order.role, model = wanted, %why, "the model of a role is not used");
        let note = format!(" Its role asks for {wanted}, which is not used: {why}.");
        Ok((ours()?, mode, note))
    }

    /// Whether the replies of all members come from a record, whatever their models were.
    pub(super) fn plays_record(&self) -> bool {
        let ours = self.config.model.borrow();
        ours.as_deref()
            .is_some_and(|model| ModelChoice::parse(model).is_ok_and(|model| model.is_replay()))
    }

    /// Returns the model that a role's word means. Fails if it cannot be used. An alias is only for a lead whose
    /// model is of the same provider.
    fn model_of_role(&self, wanted: &str) -> Result<String, String> {
        let alias = self.config.model_aliases.get(wanted);
        let model = alias.map_or(wanted, String::as_str);
        let chosen = ModelChoice::parse(model).map_err(|why| why.what)?;
        if alias.is_some() {
            let ours = self.config.model.borrow().as_deref().map(ModelChoice::parse).transpose();
            let ours = ours.map_err(|why| why.what)?;
            if ours.is_none_or(|ours| ours.spec().name != chosen.spec().name) {
                return Err(format!(
                    "it means {model}, and the lead's model is of another provider (set \
                     model_aliases.{wanted} for it)"
                ));
            }
        }
        if self.config.credentials.borrow().suffice_for(&chosen) {
            return Ok(model.to_owned());
        }
        Err("there are no credentials for it".into())
    }

    /// Returns the models that go on if that of a teammate fails: those of its role, or those of the team if the role names
    /// none; and a note about the role's models that are left out.
    pub(super) fn fallbacks_of(&self, role: Option<&Role>) -> (Vec<ModelChoice>, String) {
        let of_role = role.and_then(|role| Some((role, role.fallback_models.as_ref()?)));
        let Some((role, words)) = of_role.filter(|_| !self.plays_record()) else {
            return (self.config.fallbacks.clone(), String::new());
        };
        let aliases = &self.config.model_aliases;
        let (credentials, known) = (self.config.credentials.borrow(), self.config.known.borrow());
        let budgets = self.config.rules.budgets();
        let RoleFallbacks { models, left_out } = RoleFallbacks::read(
            words,
            |word| aliases.get(word).map(String::as_str),
            |model| {
                if !credentials.suffice_for(&model) {
                    return Err("there are no credentials for it".into());
                }
                let price = known.facts(&model.to_string()).price;
                check_price(&model, price, &budgets).map_err(|why| why.what)?;
                Ok(model)
            },
        );
        if left_out.is_empty() {
            return (models, String::new());
        }
        let left_out = left_out.join("; ");
        tracing::warn!(role = role.name, left_out, "a fallback model of a role is not used");
        (models, format!(" Of the models that would go on for its role, {left_out}."))
    }

    /// Returns the models of a teammate besides its own, with what is known of them.
    pub(super) fn known_fallbacks(&self, models: &[ModelChoice]) -> Vec<FallbackModel> {
        let known = self.config.known.borrow();
        let names = models.iter().skip(1).map(ToString::to_string);
        names.map(|model| FallbackModel { facts: known.facts(&model), model }).collect()
    }
}

/// Returns the models that a teammate with this model may call, its own first. An agent of another vendor has no other.
pub(super) fn chain_of(own: ModelChoice, fallbacks: &[ModelChoice]) -> Vec<ModelChoice> {
    let fallbacks = if own.agent().is_some() { &[][..] } else { fallbacks };
    let others = fallbacks.iter().filter(|model| **model != own).cloned();
    let others: Vec<_> = others.collect();
    [own].into_iter().chain(others).collect()
}
