//! The model of an agent when the settings name none.

use crate::error::{Exit, Failure};
use crate::settings::model::{ModelChoice, credential_variables};

/// Selects the model that is named. At a terminal an unnamed model is the fallback, whose notice a person
/// reads; elsewhere it is a failure.
pub(super) fn select_model(
    named: Option<ModelChoice>,
    has_person: bool,
) -> Result<ModelChoice, Failure> {
    match named {
        Some(model) => Ok(model),
        None if has_person => Ok(ModelChoice::fallback()),
        None => Err(Failure::new(
            Exit::NoModel,
            "no model is configured",
            format!(
                "there is no --model, TEAM_MODEL, `model` in settings, {}",
                credential_variables()
            ),
            format!(
                "set one of the keys, or add --model {} to try the program without a model",
                ModelChoice::fallback()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_person_gets_the_fallback_model() {
        let named = ModelChoice::parse("anthropic/m").unwrap();
        for has_person in [false, true] {
            assert_eq!(select_model(Some(named.clone()), has_person).unwrap(), named);
        }
        assert_eq!(select_model(None, true).unwrap(), ModelChoice::fallback());
        assert_eq!(select_model(None, false).unwrap_err().exit, Exit::NoModel);
    }
}
