//! The settings about models: `[models]` and `fallback_models`, and the same list in a role file.

use super::model_choice::ModelChoice;
use super::value::{SettingEntry, SettingValue};
use crate::llm::model_table::has_public_price;
use crate::wire::money::{Money, Price};
use serde::{Deserialize, Serialize};

/// The facts about a model in a settings file: an entry of `[models]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelSetting {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read: Option<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write: Option<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) knows_patches: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sees_images: Option<bool>,
}

impl ModelSetting {
    /// Whether it says anything about prices.
    pub(super) fn has_price(&self) -> bool {
        [self.input, self.output, self.cache_read, self.cache_write].iter().any(Option::is_some)
    }

    /// Returns `price` with the prices that are set here; `None` if that of input or output is missing.
    pub(super) fn price_over(&self, price: Option<Price>) -> Option<Price> {
        Some(Price {
            input: self.input.or(price.map(|price| price.input))?,
            output: self.output.or(price.map(|price| price.output))?,
            cache_read: self.cache_read.or(price.and_then(|price| price.cache_read)),
            cache_write: self.cache_write.or(price.and_then(|price| price.cache_write)),
        })
    }
}

impl SettingEntry for ModelSetting {
    type Name = String;
    const IS_TRUSTED_AS_A_WHOLE: bool = false;
    const EXPECTED: &'static str = "a table of models, each with context_tokens, answer_tokens, input, output, \
         cache_read, cache_write, knows_patches or sees_images";

    fn shown(&self, _model: &String) -> String {
        let context = self.context_tokens.map(|tokens| format!("context {tokens}"));
        let answer = self.answer_tokens.map(|tokens| format!("answer {tokens}"));
        let price = |what: &str, price: Option<Money>| price.map(|price| format!("{price} {what}"));
        let (input, output) = (price("in", self.input), price("out", self.output));
        let read = price("cache read", self.cache_read);
        let write = price("cache write", self.cache_write);
        let ability = |name: &str, has: Option<bool>| has.map(|has| format!("{name} {has}"));
        let patches = ability("knows_patches", self.knows_patches);
        let images = ability("sees_images", self.sees_images);
        let parts = [context, answer, input, output, read, write, patches, images];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Without trust, a folder gives a price only to a model that has none.
    fn acts_untrusted(&self, model: &String, own: Option<&Self>) -> bool {
        let prices = [self.input, self.output, self.cache_read, self.cache_write];
        let is_free = || prices.iter().all(Option::is_none) || !has_public_price(model);
        own.map_or_else(is_free, |own| own == self)
    }
}

/// The models that go on when that of an agent fails, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub(crate) struct FallbackModels(pub(crate) Vec<ModelChoice>);

impl TryFrom<Vec<String>> for FallbackModels {
    type Error = String;

    fn try_from(models: Vec<String>) -> Result<Self, String> {
        let mut all = Vec::new();
        for text in models {
            let model = fallback_model(&text)?;
            // A model that has failed is not asked again for being named twice.
            if !all.contains(&model) {
                all.push(model);
            }
        }
        Ok(Self(all))
    }
}

/// Reads a model that can go on for another one.
fn fallback_model(text: &str) -> Result<ModelChoice, String> {
    let model = ModelChoice::parse(text).map_err(|bad| format!("{}: {}", bad.what, bad.why))?;
    if model.agent().is_some() {
        return Err(format!("{text:?} is an agent of another vendor, which cannot go on"));
    }
    Ok(model)
}

impl From<FallbackModels> for Vec<String> {
    fn from(models: FallbackModels) -> Self {
        models.0.iter().map(ToString::to_string).collect()
    }
}

impl SettingValue for FallbackModels {
    fn expected() -> String {
        "a list of models in quotes, such as [\"openai/NAME\"]".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let models = text.split([',', ' ']).filter(|part| !part.is_empty());
        models.map(str::to_owned).collect::<Vec<_>>().try_into()
    }

    fn shown(&self) -> Option<String> {
        let models: Vec<String> = self.clone().into();
        (!models.is_empty()).then(|| models.join(", "))
    }
}

/// The models that go on for a role, from the list in its file.
#[derive(Debug)]
pub(crate) struct RoleFallbacks {
    pub(crate) models: Vec<ModelChoice>,
    /// A sentence about each of the others, with the reason for which it is left out.
    pub(crate) left_out: Vec<String>,
}

impl RoleFallbacks {
    /// Reads the list of a role. `alias` returns the model that a word means. `check` returns the model to use, or the reason
    /// for which it cannot be used.
    pub(crate) fn read<'a>(
        words: &[String],
        alias: impl Fn(&str) -> Option<&'a str>,
        mut check: impl FnMut(ModelChoice) -> Result<ModelChoice, String>,
    ) -> Self {
        let (mut models, mut left_out) = (Vec::new(), Vec::new());
        for word in words {
            match fallback_model(alias(word).unwrap_or(word)).and_then(&mut check) {
                Ok(model) if models.contains(&model) => {}
                Ok(model) => models.push(model),
                Err(why) => left_out.push(format!("{word} is left out: {why}")),
            }
        }
        Self { models, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_named_twice_is_tried_once() {
        let named = ["openai/a", "sonnet", "openai/b", "openai/a"].map(str::to_owned);
        let alias = |word: &str| (word == "sonnet").then_some("openai/a");
        let role = RoleFallbacks::read(&named, alias, Ok);
        assert_eq!((role.models.len(), role.left_out.len()), (2, 0));
        let setting = FallbackModels::parse("openai/a, openai/b openai/a").unwrap();
        assert_eq!(setting.shown().unwrap(), "openai/a, openai/b");
    }
}
