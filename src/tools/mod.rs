//! The tools of agents. Each one is a type with its arguments, its spec and its behaviour, and is
//! registered in the list of its topic.
//!
//! *Invariant:* a tool never starts or ends a process of the team, it asks [`TeamOps`]. A failure
//! is either told to the model or ends the agent; nothing else crosses this boundary. No other part of
//! the program compares names of tools: it asks [`find`] for the spec.

pub(crate) mod approval_queue;
mod call;
pub(crate) mod command;
mod files;
pub(crate) mod hooks;
mod mail;
mod parts;
mod registry;
mod tasks;
pub(crate) mod team;
#[cfg(test)]
mod tests;

pub(crate) use call::{Call, ToolError, ToolFuture};
#[cfg(test)]
pub(crate) use files::file_tools;
pub(crate) use parts::{Ops, SpawnOrder, TeamOps, ToolParts};
pub(crate) use registry::Registry;

use crate::store::TeamDir;
use crate::wire::tool::{Signal, ToolSpec};
use registry::{Registration, Tool as _};

/// Every tool, by folder.
const GROUPS: [&[Registration]; 5] =
    [command::bash::TOOLS, files::TOOLS, mail::TOOLS, tasks::TOOLS, team::TOOLS];

fn registrations() -> impl Iterator<Item = &'static Registration> {
    GROUPS.into_iter().flatten()
}

/// The tools of one agent.
pub(crate) fn registry(parts: ToolParts) -> Registry {
    Registry::new(registrations(), parts)
}

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static ToolSpec> {
    registrations().map(|registration| registration.spec).find(|spec| spec.name == name)
}

/// The tool of this name or alias, as role files write it.
pub(crate) fn find_by_alias(name: &str) -> Option<&'static ToolSpec> {
    registrations().map(|registration| registration.spec).find(|spec| spec.is_called(name))
}

/// Whether an agent in this role can complete tasks. A role without a file has every tool.
pub(crate) fn can_complete_tasks(team: &TeamDir, role: &str) -> bool {
    team.role(role, find_by_alias).is_none_or(|file| file.role.has(&tasks::CompleteTask::SPEC))
}

/// What a call tells the agent's loop.
pub(crate) fn signal(call: &Call) -> Signal {
    find(&call.name).map_or(Signal::None, |spec| spec.signal)
}
