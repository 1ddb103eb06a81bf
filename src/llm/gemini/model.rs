//! The differences between models of this API, as their names tell them. Pure.

use crate::llm::http::ConfigError;

/// The way in which a model takes the wish for thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingControl {
    /// A level (Gemini 3 and later). Such a model always thinks, and signs its calls.
    Level,
    /// A number of tokens from `least` to `most` (Gemini 2.5).
    Budget {
        least: u32,
        most: u32,
        /// Whether a budget of 0 turns thinking off.
        can_be_off: bool,
        /// Whether the model thinks if nothing is said.
        is_default: bool,
    },
    /// None: the model is older, or not one of Gemini.
    Unknown,
}

impl ThinkingControl {
    pub(super) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let Some(rest) = name.strip_prefix("gemini-") else { return Self::Unknown };
        let version = rest.split('-').next().unwrap_or_default();
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(2), Some(5)) if rest.contains("pro") => {
                Self::Budget { least: 128, most: 32_768, can_be_off: false, is_default: true }
            }
            (Some(2), Some(5)) => {
                let is_lite = rest.contains("lite");
                let least = if is_lite { 512 } else { 0 };
                Self::Budget { least, most: 24_576, can_be_off: true, is_default: !is_lite }
            }
            (Some(..3), _) => Self::Unknown,
            // A name without a number, such as `gemini-flash-latest`, means a current model.
            _ => Self::Level,
        }
    }
}

/// Returns the path of a model below the version of the API. Fails for a name that would change the rest of the path.
pub(in crate::llm) fn path(model: &str) -> Result<String, ConfigError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let (folder, name) = match model.split_once('/') {
        Some((folder @ ("models" | "tunedModels"), name)) => (folder, name),
        _ => ("models", model),
    };
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        let why = "it is letters, digits, - _ and .";
        return Err(ConfigError::BadModel { name: model.into(), why });
    }
    Ok(format!("/{folder}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_how_a_model_is_asked_to_think() {
        let budget = |least, most, can_be_off, is_default| ThinkingControl::Budget {
            least,
            most,
            can_be_off,
            is_default,
        };
        for (name, control) in [
            ("gemini-3-pro-preview", ThinkingControl::Level),
            ("gemini-3.8-flash", ThinkingControl::Level),
            ("gemini-12.1-x", ThinkingControl::Level),
            ("gemini-flash-latest", ThinkingControl::Level),
            ("models/gemini-3-flash", ThinkingControl::Level),
            ("gemini-2.5-pro", budget(128, 32_768, false, true)),
            ("gemini-2.5-flash-preview", budget(0, 24_576, true, true)),
            ("gemini-2.5-flash-lite", budget(512, 24_576, true, false)),
            ("gemini-2.0-flash", ThinkingControl::Unknown),
            ("gemini-1.5-pro", ThinkingControl::Unknown),
            ("gemma-3-27b-it", ThinkingControl::Unknown),
            ("fake", ThinkingControl::Unknown),
        ] {
            assert_eq!(ThinkingControl::of(name), control, "{name}");
        }
    }

    #[test]
    fn a_name_stays_in_its_place_in_the_path() {
        for (name, whole) in [
            ("gemini-2.5-pro", "/models/gemini-2.5-pro"),
            ("models/gemma_3", "/models/gemma_3"),
            ("tunedModels/own-1", "/tunedModels/own-1"),
        ] {
            assert_eq!(path(name).as_deref(), Ok(whole));
        }
        for name in ["", ".", "..", "../files", "models/..", "a/b", "a?key=1", "a:b", "a b", "ä"] {
            assert!(matches!(path(name), Err(ConfigError::BadModel { .. })), "{name}");
        }
    }
}
