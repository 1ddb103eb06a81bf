//! Who a member is, and the rules that it works by.

use crate::wire::AgentName;

/// The member that a machine belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: AgentName,
    /// This life of the name; requests for another one are not acted on.
    pub(crate) incarnation: String,
    /// Model calls that one turn may take.
    pub(crate) max_rounds: u32,
    /// Turns that colleagues may give each other without any work being done.
    pub(crate) max_exchanges: u32,
    /// While it is idle, it takes work from the task list, too, not only from mail and prompts.
    pub(crate) takes_tasks: bool,
    /// Hooks are asked before it is idle, after each turn that did what was asked.
    pub(crate) asks_idle_hook: bool,
}
