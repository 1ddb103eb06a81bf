//! `leases/ID.json`: paths of the workspace that only one agent changes while its process runs.
//!
//! Data only: `protocol::leases` decides which leases exclude each other.

use super::{FORMAT_VERSION, WallTime};
use serde::{Deserialize, Serialize};

/// A lease. The file needs only `owner` and `paths`; its name is the id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Lease {
    /// The format version of the file; a newer one may be read, not written.
    #[serde(default = "this_version")]
    pub version: u32,
    /// The id.
    #[serde(default)]
    pub id: String,
    /// The agent that alone changes the paths.
    pub owner: String,
    /// The incarnation of the owner. When that process ends, the lease counts no more.
    pub incarnation: Option<String>,
    /// Files and folders, relative to the workspace. A folder stands for all that is below it.
    pub paths: Vec<String>,
    /// The reason, in words.
    #[serde(default)]
    pub why: String,
    /// The time of the claim.
    #[serde(default)]
    pub created_at: WallTime,
}

fn this_version() -> u32 {
    FORMAT_VERSION
}
