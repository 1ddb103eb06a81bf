//! The settings of the sandbox: its level and network as words, its paths as lists, the questions about its commands.

use super::value::SettingValue;
use crate::wire::host::HostPattern;
use crate::wire::sandbox::{SandboxLevel, SandboxNetwork};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};

/// The paths that are hidden from commands by default: keys, tokens and passwords.
const HIDDEN: [&str; 25] = [
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/gh",
    "~/.kube",
    "~/.docker",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.git-credentials",
    "~/.cargo/credentials*",
    "~/.config/team",
    "~/.local/state/team",
    "~/.mozilla",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.local/share/keyrings",
    "~/.local/share/kwalletd",
    "~/.password-store",
    "~/.bash_history",
    "~/.zsh_history",
    "~/.vault-token",
];

/// The mark of an entry that takes a path off the default list.
const SHOWN: char = '!';

/// Further paths that commands may change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct WritablePaths(Vec<String>);

/// Paths that commands cannot read, besides the default list; `!PATH` takes a path off that list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct HiddenPaths(Vec<String>);

/// The hosts that commands reach without a question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostList(pub(super) Vec<HostPattern>);

/// Whether commands inside the walls ask as the permission mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AskInside(pub(crate) bool);

impl Default for AskInside {
    fn default() -> Self {
        Self(true)
    }
}

impl SettingValue for AskInside {
    fn expected() -> String {
        "true or false".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map(Self).map_err(|_| format!("{text:?} is neither true nor false"))
    }

    fn is_risk(&self) -> bool {
        !self.0
    }

    fn acts_untrusted(&self, own: Option<&Self>) -> bool {
        *self >= own.copied().unwrap_or_default()
    }
}

impl TryFrom<Vec<String>> for WritablePaths {
    type Error = String;

    fn try_from(paths: Vec<String>) -> Result<Self, String> {
        paths.iter().try_for_each(|path| check(path))?;
        Ok(Self(paths))
    }
}

impl TryFrom<Vec<String>> for HiddenPaths {
    type Error = String;

    fn try_from(paths: Vec<String>) -> Result<Self, String> {
        paths.iter().try_for_each(|path| check(path.strip_prefix(SHOWN).unwrap_or(path)))?;
        Ok(Self(paths))
    }
}

fn check(path: &str) -> Result<(), String> {
    if !path.starts_with('/') && !path.starts_with("~/") {
        return Err(format!("{path:?} begins with neither / nor ~/"));
    }
    let is_everything = Path::new(path).components().all(|part| part == Component::RootDir);
    if is_everything { Err(format!("{path:?} is the whole machine")) } else { Ok(()) }
}

macro_rules! list {
    ($($type:ty: $expected:literal, $is_risk:expr;)+) => {$(
        impl SettingValue for $type {
            fn expected() -> String {
                $expected.into()
            }

            fn shown(&self) -> Option<String> {
                let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
                (!all.is_empty()).then(|| all.join(", "))
            }

            fn is_said(&self) -> bool {
                !self.0.is_empty()
            }

            fn with_farther(mut self, farther: Self) -> Self {
                self.0.extend(farther.0);
                self
            }

            fn is_risk(&self) -> bool {
                self.0.iter().any($is_risk)
            }

            fn acts_untrusted(&self, _own: Option<&Self>) -> bool {
                !self.is_risk()
            }
        }
    )+};
}

list! {
    WritablePaths: r#"a list of paths in quotes, such as ["~/.cache"]"#, |_| true;
    HiddenPaths: r#"a list of paths in quotes, such as ["~/.cache"]"#, |path| path.starts_with(SHOWN);
    HostList: r#"a list of hosts in quotes, such as ["packages.example.com", "*.example.com"]"#, |_| true;
}

macro_rules! strictness {
    ($($type:ty: $words:literal, $strictest:expr),+) => {$(
        impl SettingValue for $type {
            fn expected() -> String {
                concat!("one of the words ", $words, ", in quotes").into()
            }

            fn is_risk(&self) -> bool {
                *self < $strictest
            }

            fn acts_untrusted(&self, own: Option<&Self>) -> bool {
                *self >= own.copied().unwrap_or_default()
            }
        }
    )+};
}

strictness!(
    SandboxLevel: "\"workspace\", \"read-only\", \"off\"", Self::ReadOnly,
    SandboxNetwork: "\"open\", \"hosts\", \"own\", \"off\"", Self::Off
);

impl WritablePaths {
    pub(super) fn all(&self) -> Vec<String> {
        self.0.clone()
    }
}

impl HiddenPaths {
    /// Returns the default list without the paths taken off, and the further ones.
    pub(super) fn all(&self) -> Vec<String> {
        let (shown, more): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|path| path.starts_with(SHOWN));
        let is_shown =
            |path: &&str| shown.iter().any(|entry| entry.strip_prefix(SHOWN) == Some(path));
        let defaults = HIDDEN.iter().copied().filter(|path| !is_shown(path));
        defaults.chain(more.into_iter().map(String::as_str)).map(ToOwned::to_owned).collect()
    }
}
