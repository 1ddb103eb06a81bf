//! The types that a setting can have, with the rules to parse, show and combine their values.

use crate::llm::model_table::has_public_price;
use crate::llm::registry::OpenAiApi;
use crate::wire::Fsync;
use crate::wire::RestartPolicy;
use crate::wire::chat::Effort;
use crate::wire::hook::Hook;
use crate::wire::isolation::CloneBase;
use crate::wire::money::{Money, Price};
use crate::wire::permission::{PermissionMode, PlanApproval};
use crate::wire::roster::is_team_name;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Display;

/// The size of the prompt and of the tool list that a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PromptProfile {
    /// Compact for a provider with small models, otherwise full.
    Auto,
    /// The whole prompt and all tools.
    Full,
    /// A short prompt, and the tools that the agent can use now.
    Compact,
}

/// The name of a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TeamName(String);

impl TryFrom<String> for TeamName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let rule = "letters, digits, spaces, `-`, `_` and `.`, at most 64";
        let refused = || format!("{name:?} is not a valid team name ({rule})");
        if is_team_name(&name) { Ok(Self(name)) } else { Err(refused()) }
    }
}

impl From<TeamName> for String {
    fn from(name: TeamName) -> Self {
        name.0
    }
}

impl SettingValue for TeamName {
    fn parse(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }

    fn expected() -> String {
        "a text in quotes".into()
    }
}

/// A type that a setting with one value can have.
pub(crate) trait SettingValue: Clone + Serialize + DeserializeOwned {
    /// Says in plain words what a value of a file must be.
    fn expected() -> String;

    /// Parses the text of a flag or an environment variable; by default, as one of the words of the type.
    fn parse(text: &str) -> Result<Self, String> {
        let word: StrDeserializer<'_, WordError> = text.trim().into_deserializer();
        Self::deserialize(word).map_err(|why| why.to_string())
    }

    /// Returns the value as `team config` shows it; `None` if it is unset or empty.
    fn shown(&self) -> Option<String> {
        let value = json!(self);
        if let Value::String(word) = value {
            return Some(word);
        }
        (!value.is_null()).then(|| value.to_string())
    }

    /// Whether the value of a file has an effect; an empty list that would be added to others has none.
    fn is_said(&self) -> bool {
        true
    }

    /// Combines this value with that of a farther layer. By default the nearer layer wins.
    #[must_use]
    fn with_farther(self, _farther: Self) -> Self {
        self
    }

    /// Whether `team trust` lists a folder's value as one that needs trust.
    fn is_risk(&self) -> bool {
        true
    }

    /// Whether a folder's value is in force without trust; `own` is the value of the user's own layers.
    fn acts_untrusted(&self, _own: Option<&Self>) -> bool {
        false
    }
}

/// A type that the entries of a settings table with free keys can have.
pub(crate) trait SettingEntry: Clone + Serialize + DeserializeOwned {
    /// The key of an entry.
    type Name: Clone + Ord + Display + Serialize + DeserializeOwned;

    /// Whether the list of trusted settings has the table as one value, instead of each entry.
    const IS_TRUSTED_AS_A_WHOLE: bool;

    /// The required form of the table in a file, in plain words.
    const EXPECTED: &'static str;

    /// Returns the entry as `team config` shows it.
    fn shown(&self, name: &Self::Name) -> String;

    /// Whether a folder's entry of this name is in force without trust; `own` is the user's own entry of that name.
    fn acts_untrusted(&self, name: &Self::Name, own: Option<&Self>) -> bool;
}

macro_rules! whole_number {
    ($($number:ty),+) => {$(
        impl SettingValue for $number {
            fn expected() -> String {
                "a whole number, such as 50".into()
            }

            fn parse(text: &str) -> Result<Self, String> {
                text.trim().parse().map_err(|_| format!("{text:?} is not a whole number"))
            }

            fn acts_untrusted(&self, own: Option<&Self>) -> bool {
                own.is_none_or(|own| self <= own)
            }
        }
    )+};
}

whole_number!(u32, u64, usize);

macro_rules! one_word {
    ($($type:ty: $words:literal),+) => {$(
        impl SettingValue for $type {
            fn expected() -> String {
                concat!("one of the words ", $words, ", in quotes").into()
            }
        }
    )+};
}

one_word!(
    CloneBase: "\"snapshot\", \"head\"",
    Effort: "\"off\", \"low\", \"medium\", \"high\"",
    Fsync: "\"always\", \"never\"",
    OpenAiApi: "\"responses\", \"chat_completions\"",
    PromptProfile: "\"auto\", \"full\", \"compact\"",
    RestartPolicy: "\"never\", \"on-crash\", \"always\"",
    PlanApproval: "\"lead\", \"person\""
);

impl SettingValue for PermissionMode {
    fn expected() -> String {
        let words = Self::ALL.map(|mode| format!("{:?}", mode.word()));
        format!("one of the words {}, in quotes", words.join(", "))
    }

    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| {
            let modes = Self::ALL.map(|mode| format!("{mode} ({})", mode.meaning()));
            format!("{text:?} is not a permission mode; the modes are: {}", modes.join(", "))
        })
    }

    fn is_risk(&self) -> bool {
        *self > Self::Plan
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        *self <= own.copied().unwrap_or_default()
    }
}

impl SettingValue for bool {
    fn expected() -> String {
        "true or false, without quotes".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| format!("{text:?} is neither true nor false"))
    }
}

impl SettingValue for String {
    fn expected() -> String {
        "text in quotes".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl SettingValue for Money {
    fn expected() -> String {
        "an amount of money, such as 2.50".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number: Option<f64> = text.trim().parse().ok();
        let money = number.and_then(|number| Self::try_from(number).ok());
        money.ok_or_else(|| format!("{text:?} is not an amount of money such as 2.50"))
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        own.is_none_or(|own| self <= own)
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    fn expected() -> String {
        T::expected()
    }

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(T::shown)
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        let own = own.and_then(Option::as_ref);
        self.as_ref().is_none_or(|value| value.acts_untrusted(own))
    }
}

/// A list of loopback ports.
impl SettingValue for Vec<u16> {
    fn expected() -> String {
        "a list of port numbers, such as [8080, 11434]".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let ports = text.split([',', ' ']).filter(|part| !part.is_empty() && *part != "none");
        ports.map(str::parse).collect::<Result<_, _>>().map_err(|_| {
            format!("{text:?} is neither a list of ports with commas between them nor \"none\"")
        })
    }

    fn shown(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

/// Permission rules: those of all layers apply.
impl SettingValue for Vec<String> {
    fn expected() -> String {
        "a list of texts in quotes, such as [\"bash(cargo test:*)\"]".into()
    }

    fn shown(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(", "))
    }

    fn is_said(&self) -> bool {
        !self.is_empty()
    }

    fn with_farther(mut self, farther: Self) -> Self {
        self.extend(farther);
        self
    }
}

/// Hooks: those of all layers run, the user's own before those of a folder.
impl SettingValue for Vec<Hook> {
    fn expected() -> String {
        "a table with an event and a command; `team init` writes an example".into()
    }

    fn shown(&self) -> Option<String> {
        let hooks = self.iter().map(|hook| format!("{}: {}", hook.event.word(), hook.command));
        (!self.is_empty()).then(|| hooks.collect::<Vec<_>>().join("; "))
    }

    fn is_said(&self) -> bool {
        !self.is_empty()
    }

    fn with_farther(self, mut farther: Self) -> Self {
        farther.extend(self);
        farther
    }
}

impl SettingEntry for Price {
    type Name = String;
    const IS_TRUSTED_AS_A_WHOLE: bool = false;
    const EXPECTED: &'static str = "a table of numbers: input, output, cache_read, cache_write";

    fn shown(&self, _model: &String) -> String {
        format!("{} in, {} out", self.input, self.output)
    }

    /// Without trust, a folder gives a price only to a model that has none.
    fn acts_untrusted(&self, model: &String, own: Option<&Self>) -> bool {
        own.map_or_else(|| !has_public_price(model), |own| own == self)
    }
}
