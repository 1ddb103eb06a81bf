//! The setting that says which teammates are started again when their process ends.

use serde::{Deserialize, Serialize};

/// Which ends of a teammate's process are followed by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// None.
    Never,
    /// A crash, or the kill of a hung process.
    #[default]
    OnCrash,
    /// Every end that was not asked for.
    Always,
}
