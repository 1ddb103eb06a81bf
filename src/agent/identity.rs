//! Who a member is, the rules that it works by, and what its parts share.

use super::event::Events;
use super::progress::Progress;
use crate::bus::Bus;
use crate::os::Clock;
use crate::store::asynchronous::SharedMailbox;
use crate::tasks::Tasks;
use crate::tools::team::TeamContext;
use crate::wire::AgentName;
use std::rc::Rc;
use std::sync::Arc;

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

/// What the parts of a member share.
pub(super) struct MemberContext {
    pub(super) me: Identity,
    pub(super) mailbox: SharedMailbox,
    pub(super) bus: Arc<Bus>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) team_context: Rc<TeamContext>,
    pub(super) events: Events,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) show: Rc<dyn Fn(&Progress)>,
}
