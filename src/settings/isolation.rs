//! The setting for the folder that teammates work in. A folder can make it stricter, not looser.

use super::value::SettingValue;
use crate::wire::isolation::Isolation;

impl SettingValue for Isolation {
    fn expected() -> String {
        "one of the words \"shared\", \"clone\", in quotes".into()
    }

    fn is_risk(&self) -> bool {
        *self < Self::Clone
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        *self >= own.copied().unwrap_or_default()
    }
}
