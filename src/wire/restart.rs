//! The word of the settings that says when a teammate whose process has ended is started again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether an ended teammate comes back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// It does not.
    Never,
    /// After a crash, or when it had to be killed because it no longer moved.
    #[default]
    OnCrash,
    /// After every end that nobody asked for.
    Always,
}

impl RestartPolicy {
    /// Every word there is.
    pub const ALL: [Self; 3] = [Self::Never, Self::OnCrash, Self::Always];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnCrash => "on-crash",
            Self::Always => "always",
        }
    }
}

impl fmt::Display for RestartPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}
