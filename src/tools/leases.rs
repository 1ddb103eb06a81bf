//! Tools for leases on paths, by which agents that work in the same folder keep out of each other's way.

use super::call::{Call, ToolError};
use super::registry::{TALKS, Tool, ToolParts, parameters};
use crate::leases::{self, LeaseError};
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::wire::AgentName;
use crate::wire::tool::ParameterType::{Text, TextList};
use crate::wire::tool::{AfterCrash, ToolSpec};

/// The answer to an agent that works in a clone.
const IN_CLONE: &str =
    "You work in a clone of your own, where nobody else writes: no lease is needed.";

parameters!(ClaimFiles {
    paths: Vec<String> = required(TextList, "files and folders, which need not exist yet"),
    why: String = required(Text, "what you will change"),
});

impl Tool for ClaimFiles {
    const SPEC: ToolSpec = ToolSpec {
        name: "claim_files",
        description: "Lease files or folders: until you release them or end, no other agent can change \
                      them. A folder stands for all below it. You get all paths or none. Claim only \
                      what you are about to change.",
        after_crash: AfterCrash::Repeat,
        of_subagents: true,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        if parts.work.is_some() {
            return Ok(IN_CLONE.into());
        }
        let paths = leasable(&self.paths, parts)?;
        let (id, why) = (leases::new_id(), self.why);
        let claimed =
            with_leases(parts, move |dir, me| leases::claim(dir, me, id, paths, why)).await?;
        Ok(format!(
            "Leased by you until you release it, end or are restarted: {}\nCommands of others that were started before \
             may still change it.",
            claimed.join(", ")
        ))
    }
}

parameters!(ReleaseFiles {
    #[serde(default)]
    paths: Option<Vec<String>> = optional(TextList, "all of yours if left out"),
});

impl Tool for ReleaseFiles {
    const SPEC: ToolSpec = ToolSpec {
        name: "release_files",
        description: "Release leased paths, so that others can change them.",
        after_crash: AfterCrash::Repeat,
        of_subagents: true,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        if parts.work.is_some() {
            return Ok(IN_CLONE.into());
        }
        let paths = self.paths.map(|paths| leasable(&paths, parts)).transpose()?;
        let released =
            with_leases(parts, move |dir, me| leases::release(dir, me, paths.as_deref())).await?;
        Ok(if released.is_empty() {
            "You have leased nothing.".into()
        } else {
            format!("Released: {}", released.join(", "))
        })
    }
}

/// Returns the paths as leases have them. Fails if one of them cannot be leased.
fn leasable(paths: &[String], parts: &ToolParts) -> Result<Vec<String>, ToolError> {
    paths.iter().map(|path| parts.files.find_leasable(path)).collect()
}

/// Changes leases as this agent, on another thread. The error is fatal if the team folder is gone.
async fn with_leases<T: Send + 'static>(
    parts: &ToolParts,
    work: impl FnOnce(&TeamDir, &AgentName) -> Result<T, LeaseError> + Send + 'static,
) -> Result<T, ToolError> {
    let (dir, me) = (parts.team.bus.dir().clone(), parts.team.me.clone());
    Ok(offload(move || work(&dir, &me)).await?)
}
