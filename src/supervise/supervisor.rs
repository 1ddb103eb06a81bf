//! The supervisor of a lead's teammates: what it is made of, and its small operations. Spawning, reaping,
//! restarting, stopping and watching are in files of their own.

use super::config::{RestartConfig, SupervisorConfig};
use super::members::Members;
use super::roster_updates;
use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartTracker;
use crate::store::StoreError;
use crate::wire::WithUnknownFields;
use crate::wire::hook::Hook;
use crate::wire::permission::{PermissionMode, RuleLists};
use crate::wire::roster::Roster;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::watch;

/// The lead's side of the team's processes.
pub(crate) struct Supervisor {
    pub(super) config: SupervisorConfig,
    pub(super) members: Members,
    pub(super) restarts: RefCell<RestartTracker>,
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
        let RestartConfig { policy, limits, seed } = config.restart;
        Rc::new(Self {
            config,
            members: Members::new(),
            restarts: RefCell::new(RestartTracker::new(policy, limits, seed)),
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

    /// Changes the roster beside the event loop.
    pub(super) async fn write<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        roster_updates::write(&self.config.bus, change).await
    }
}
