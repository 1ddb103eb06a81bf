//! The identity of a member, its limits, and the context that its parts share.

use super::event::Events;
use super::progress::Progress;
use crate::bus::Bus;
use crate::os::Clock;
use crate::store::asynchronous::SharedMailbox;
use crate::tasks::Tasks;
use crate::tools::team_context::TeamContext;
use crate::wire::AgentName;
use std::rc::Rc;
use std::sync::Arc;

/// The identity and the limits of the member that a machine belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: AgentName,
    /// The incarnation of this process; requests for another one are not acted on.
    pub(crate) incarnation: String,
    /// The maximum number of model calls in one turn.
    pub(crate) max_rounds: u32,
    /// The maximum number of turns that one colleague may cause without any work being done.
    pub(crate) max_exchanges: u32,
    /// Whether the member claims tasks from the list while it is idle.
    pub(crate) takes_tasks: bool,
    /// Whether hooks and open tasks are checked before the member becomes idle after a turn.
    pub(crate) checks_idle: bool,
    /// `acp/NAME` of the foreign agent that does the work; `None` for a model.
    pub(crate) foreign: Option<String>,
}

/// The context that the parts of a member share.
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
