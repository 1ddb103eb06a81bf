//! The parts of a running lead that its session, its approvals and its end share.

use super::conversation::NextSession;
use crate::agent::Events;
use crate::agent::event::Event;
use crate::agent::model_chain::AgentModels;
use crate::app::subagent_models::SubagentModels;
use crate::bus::Bus;
use crate::error::Failure;
use crate::os::spawn::spawn_local;
use crate::settings::granted::RulesOfLead;
use crate::settings::last_lead::LastLead;
use crate::store::tail::Tail;
use crate::store::{TeamDir, asynchronous::offload};
use crate::supervise::supervisor::Supervisor;
use crate::tasks::Tasks;
use crate::tools::{Ops, approval_queue::ApprovalQueue, command::BackgroundCommands};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct LeadRuntime {
    pub(super) bus: Arc<Bus>,
    pub(super) tasks: Arc<Tasks>,
    /// Whether idle teammates claim tasks of the list, so that a claimable task keeps a run from ending.
    pub(super) auto_claim: bool,
    pub(super) supervisor: Rc<Supervisor>,
    pub(super) approval_queue: Rc<ApprovalQueue>,
    pub(super) events: Events,
    /// The model that the lead's agent uses from its next model call on.
    pub(super) next_models: Rc<Cell<Option<AgentModels>>>,
    /// The models of the lead's subagents; `None` if a model of another program leads.
    pub(super) subagent_models: Option<Rc<SubagentModels>>,
    /// The background commands of the lead's agent; `None` if a model of another program leads.
    pub(super) background: Option<Rc<BackgroundCommands>>,
    pub(super) incarnation: String,
    pub(super) last_lead: Arc<LastLead>,
    /// The rules that answers of the person have made.
    pub(super) rules: Rc<RulesOfLead>,
    /// The mail that the lead has not drained yet.
    pub(super) unread_mail: Rc<RefCell<Tail>>,
    /// The session that follows in this process, for a session that sets it before it ends in order.
    pub(super) next_session: Rc<Cell<Option<NextSession>>>,
}

impl LeadRuntime {
    pub(super) fn team(&self) -> &TeamDir {
        self.bus.dir()
    }

    /// Returns the operations of the lead for its tools.
    pub(super) fn ops(&self) -> Ops {
        let (team, approval_queue) = (self.supervisor.ops(), Rc::clone(&self.approval_queue));
        Ops { team, approval_queue }
    }

    /// Begins the supervision: starts the returning teammates, and records the rules and the mode of this lead.
    pub(super) async fn begin(
        &self,
        returning: &[AgentName],
        mode: PermissionMode,
    ) -> Result<(), Failure> {
        self.supervisor.resume(returning).await?;
        spawn_local(Rc::clone(&self.supervisor).keep_watch());
        if let Err(why) = self.keep().await {
            tracing::warn!(why, "`team permissions` shows the rules of an earlier lead");
        }
        self.record_mode(mode).await;
        Ok(())
    }

    /// Notes the mode in which the lead carries its approved plan out. Its teammates keep their modes: their plans are not
    /// approved with it.
    pub(super) async fn take_mode(&self, mode: PermissionMode) {
        self.approval_queue.mode.set(mode);
        self.supervisor.set_mode(mode);
        self.record_mode(mode).await;
    }

    /// Records the mode of this lead, for one that resumes the team.
    pub(super) async fn record_mode(&self, mode: PermissionMode) {
        let (last_lead, incarnation) = (Arc::clone(&self.last_lead), self.incarnation.clone());
        if let Err(why) = offload(move || last_lead.set(&incarnation, mode)).await {
            tracing::warn!(%why, "a resumed lead will not keep a looser mode");
        }
    }

    /// Stops a command that the lead runs in the background, whose model is told of the end. Returns what the person is told.
    pub(super) fn stop_job(&self, id: &str) -> String {
        let stopped = self.background.as_ref().and_then(|own| own.stop_by_user(id));
        match stopped {
            Some(title) => format!("stopping {title}; the lead is told of its end"),
            None => format!(
                "the lead runs no command {id}; /jobs lists them, and @NAME asks a teammate to stop \
                 its own"
            ),
        }
    }

    pub(super) fn send(&self, event: Event) {
        // An agent whose loop has ended needs no more events.
        let _ended = self.events.send(event);
    }
}
