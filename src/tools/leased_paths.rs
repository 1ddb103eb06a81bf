//! The paths that other agents have leased, for commands and hooks of this one.

use crate::leases;
use crate::protocol::leases::LeaseRecord;
use crate::store::TeamDir;
use crate::wire::AgentName;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of leased paths that are mounted for a command, at about 20 µs each. The others are compared.
pub(super) const MOST_MOUNTED: usize = 256;

/// A path that another agent has leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeasedPath {
    /// The id of the lease.
    pub(super) id: String,
    pub(super) path: String,
    /// The absolute path.
    pub(super) real: PathBuf,
    pub(super) owner: String,
    pub(super) why: String,
}

/// Returns the paths that a hook of this agent may only read.
pub(super) fn read_only_paths(dir: &TeamDir, me: &AgentName, workspace: &Path) -> Vec<PathBuf> {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let leased = leased_by_others(dir, me, &workspace).into_iter().map(|leased| leased.real);
    leased.filter(|real| fs::symlink_metadata(real).is_ok()).take(MOST_MOUNTED).collect()
}

/// Returns the paths that other agents have leased. If the leases cannot be read, the command runs without them.
pub(super) fn leased_by_others(dir: &TeamDir, me: &AgentName, workspace: &Path) -> Vec<LeasedPath> {
    let leases = leases::of_others(dir, me).unwrap_or_else(|why| {
        tracing::warn!(%why, "a command runs without the leases of others");
        Vec::new()
    });
    let paths = |lease: LeaseRecord| {
        let leased = |path: &String| LeasedPath {
            id: lease.id.clone(),
            path: path.clone(),
            real: workspace.join(path),
            owner: lease.owner.clone(),
            why: lease.why.clone(),
        };
        lease.paths.iter().map(leased).collect::<Vec<_>>()
    };
    leases.into_iter().flat_map(paths).collect()
}
