//! Who a member is, and the rules that it works by.

use crate::wire::AgentName;

/// The member that a machine belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Its name.
    pub(crate) name: AgentName,
    /// This life of the name; requests for another one are not acted on.
    pub(crate) incarnation: String,
    /// Model calls that one turn may take.
    pub(crate) max_rounds: u32,
    /// Turns that colleagues may give each other without any work being done.
    pub(crate) max_exchanges: u32,
    /// Where its work comes from.
    pub(crate) auto_claim: AutoClaim,
    /// Whether hooks are asked before it is idle.
    pub(crate) idle_hook: IdleHook,
}

/// Where a member's work comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AutoClaim {
    /// From mail and prompts only.
    Asked,
    /// From the task list, too, while it is idle.
    TakesTasks,
}

/// Whether hooks are asked before a member is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleHook {
    /// No hook is asked.
    Free,
    /// The hooks are asked after each turn that did what was asked.
    Asked,
}
