//! Task tools: the model's side of the shared task list. `protocol::tasks` decides what is allowed; these
//! files read arguments and word answers.

mod claim;
mod complete;
mod context;
mod create;
mod get;
mod list;
mod update;

pub(super) use context::TaskContext;

use super::registry::Registration;
use crate::wire::tool::ToolSpec;

/// The tool that an agent needs to take tasks from the list by itself.
pub(super) const COMPLETE: &ToolSpec = complete::TOOL.spec;

/// The tools of this folder.
pub(super) const TOOLS: &[Registration] =
    &[create::TOOL, list::TOOL, get::TOOL, claim::TOOL, update::TOOL, complete::TOOL];
