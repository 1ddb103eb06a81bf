//! Shell commands: the `bash` tool, the run of one command, its environment and its output.

pub(super) mod bash;
#[cfg(test)]
mod containment;
mod environment;
pub(super) mod output;
mod output_store;
pub(super) mod shell;

pub(crate) use environment::CommandEnvironment;
pub(crate) use output_store::OutputStore;

use super::registry::Registration;

/// The tools of this folder.
pub(super) const TOOLS: &[Registration] = &[bash::TOOL];
