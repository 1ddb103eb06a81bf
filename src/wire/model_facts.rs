//! The facts about a model.

use super::model_abilities::ModelAbilities;
use super::money::Price;
use serde::{Deserialize, Serialize};

/// The facts about a model; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelFacts {
    /// The size of the context, in tokens.
    pub context_tokens: Option<u64>,
    /// The most tokens of one answer.
    pub answer_tokens: Option<u32>,
    /// The price of a million tokens.
    pub price: Option<Price>,
    /// The size of a prompt, in tokens, above which the price is higher.
    pub price_up_to: Option<u64>,
    /// Whether it is trained on the patch format of `apply_patch`.
    pub knows_patches: Option<bool>,
    /// Whether it sees images.
    pub sees_images: Option<bool>,
}

impl ModelFacts {
    /// Returns these facts, with those of `other` where one is unknown. The limit of a price belongs to the price.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (price, price_up_to) = match self.price {
            Some(_) => (self.price, self.price_up_to),
            None => (other.price, other.price_up_to),
        };
        Self {
            context_tokens: self.context_tokens.or(other.context_tokens),
            answer_tokens: self.answer_tokens.or(other.answer_tokens),
            price,
            price_up_to,
            knows_patches: self.knows_patches.or(other.knows_patches),
            sees_images: self.sees_images.or(other.sees_images),
        }
    }

    /// Returns the abilities; an unknown one counts as missing.
    pub fn abilities(&self) -> ModelAbilities {
        ModelAbilities {
            knows_patches: self.knows_patches.unwrap_or_default(),
            sees_images: self.sees_images.unwrap_or_default(),
        }
    }
}
