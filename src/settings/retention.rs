//! The limits of what a team keeps.

use super::value::SettingValue;
use serde::{Deserialize, Serialize};

/// A limit beyond which something is removed; `None`: everything is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RetentionLimit(pub(crate) Option<u64>);

impl SettingValue for RetentionLimit {
    fn expected() -> String {
        "a whole number".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().map_err(|_| format!("{text:?} is no whole number"))?;
        Ok(Self(Some(number)))
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        own == Some(self)
    }
}
