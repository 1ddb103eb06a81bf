//! The supervisor of a lead's teammates: what it is made of, its small operations, and those that the
//! lead's tools are given. Spawning, reaping, stopping and watching are in files of their own.

use super::members::Members;
use crate::bus::Bus;
use crate::os::Clock;
use crate::os::program::TeammateProgram;
use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartTracker;
use crate::settings::Rules;
use crate::settings::model::Credentials;
use crate::tasks::Tasks;
use crate::tools::hooks::Hooks;
use crate::tools::{SpawnOrder, TeamOps, ToolError, ToolFuture};
use crate::wire::AgentName;
use crate::wire::hook::Hook;
use crate::wire::money::Price;
use crate::wire::permission::{PermissionMode, Permissions, RuleLists};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The team that a supervisor serves, and the settings of its teammates.
pub(crate) struct SupervisorConfig {
    pub(crate) bus: Arc<Bus>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) clock: Rc<dyn Clock>,
    /// Program that teammates run.
    pub(crate) program: TeammateProgram,
    /// Teammates that may live at once. One run may spawn four times as many.
    pub(crate) max_teammates: usize,
    /// Rules that teammates take over.
    pub(crate) rules: Rules,
    /// Hooks of the lead and of its teammates.
    pub(crate) hooks: Hooks,
    /// Prices of models, by `provider/name`.
    pub(crate) prices: BTreeMap<String, Price>,
    /// How ended teammates are restarted.
    pub(crate) restarts: RefCell<RestartTracker>,
    /// Time without a sign of life after which a teammate counts as hung; `None` for never.
    pub(crate) hung_after: Option<Duration>,
    /// Model of a teammate for which neither the spawn nor the role names one.
    pub(crate) model: String,
    /// Permissions of the lead, from which those of its teammates are derived.
    pub(crate) permissions: RefCell<Permissions>,
    pub(crate) credentials: Credentials,
    /// Environment of teammates: an allow list.
    pub(crate) environment: Vec<(String, String)>,
    /// Run id that the lead's own commands carry in their environment.
    pub(crate) run_id: String,
    /// Generates incarnations.
    pub(crate) incarnation: Box<dyn Fn() -> String>,
}

/// The lead's side of the team's processes.
pub(crate) struct Supervisor {
    pub(super) config: SupervisorConfig,
    pub(super) members: Members,
    /// Processes that this run has spawned.
    pub(super) spawned: Cell<usize>,
    /// Urgency of stops that concern several members.
    pub(super) urgency: watch::Sender<Urgency>,
    /// Hooks under way that are told of the end of a teammate.
    pub(super) exit_hooks: watch::Sender<usize>,
    /// The team is being stopped: no process is started any more.
    pub(super) is_closing: Cell<bool>,
}

impl Supervisor {
    /// Creates a supervisor without teammates.
    pub(crate) fn new(config: SupervisorConfig) -> Rc<Self> {
        Rc::new(Self {
            config,
            members: Members::default(),
            spawned: Cell::new(0),
            urgency: watch::Sender::new(Urgency::Polite),
            exit_hooks: watch::Sender::new(0),
            is_closing: Cell::new(false),
        })
    }

    /// Lists the hooks, for the lead's own agent.
    pub(crate) fn hooks(&self) -> Vec<Hook> {
        self.config.hooks.list.clone()
    }

    /// Sets the mode of teammates that are spawned from now on.
    pub(crate) fn set_mode(&self, mode: PermissionMode) {
        self.config.permissions.borrow_mut().mode = mode;
    }

    /// Adds permission rules for teammates that are spawned from now on.
    pub(crate) fn add_rules(&self, rules: &RuleLists) {
        self.config.permissions.borrow_mut().rules.add(rules);
    }

    /// Whether a teammate of this lead still runs or is being cleaned up.
    pub(crate) fn has_children(&self) -> bool {
        self.members.any_unreaped()
    }

    /// Returns the operations for the lead's tools.
    pub(crate) fn ops(self: &Rc<Self>) -> Rc<dyn TeamOps> {
        Rc::new(Rc::clone(self))
    }
}

impl TeamOps for Rc<Supervisor> {
    fn spawn(&self, order: SpawnOrder) -> ToolFuture<'_> {
        let supervisor = Self::clone(self);
        run_to_completion(async move { supervisor.spawn_ordered(order).await })
    }

    fn shutdown(&self, name: AgentName, reason: String) -> ToolFuture<'_> {
        let supervisor = Self::clone(self);
        run_to_completion(async move { supervisor.stop_ordered(name, reason).await })
    }
}

/// Runs an operation as a task of its own: an interrupted turn drops the future of its tool, and must not
/// leave a process half started or half stopped.
fn run_to_completion(
    work: impl Future<Output = Result<String, ToolError>> + 'static,
) -> ToolFuture<'static> {
    let task = tokio::task::spawn_local(work);
    Box::pin(async move { task.await.unwrap_or_else(|why| Err(ToolError::reply(why))) })
}
