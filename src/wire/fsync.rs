//! What an acknowledged write survives, as a setting and in each write.

use serde::{Deserialize, Serialize};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// The end of any process, and power loss.
    #[default]
    Always,
    /// The end of any process.
    Never,
}
