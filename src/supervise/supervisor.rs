//! The supervisor of a lead's teammates: its parts, the stop of all teammates or of one by name, and the operations
//! for the lead's tools. Start, reaping and periodic checks are in files of their own.

use super::clone_config::CloneConfig;
use super::clones_elsewhere::CollectedAt;
use super::commands::end_commands;
use super::members::{Members, raise};
use super::relay_process::{RelayProcess, RelayProgram};
use super::stop::{StopOutcome, StopPlan, stop_in_parallel, words};
use crate::bus::Bus;
use crate::os::command::CommandSetup;
use crate::os::program::OwnProgram;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::os::{Clock, Signal, process_tree};
use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartTracker;
use crate::settings::Rules;
use crate::settings::agents::AgentPrograms;
use crate::settings::environment::PassedNames;
use crate::settings::model::{ModelChoice, ProviderCredentials};
use crate::settings::models::KnownModels;
use crate::store::{Liveness, liveness, roster};
use crate::tasks::Tasks;
use crate::tools::hooks::Hooks;
use crate::tools::{CollectFuture, SpawnOrder, TeamOps, ToolError, ToolFuture};
use crate::wire::AgentName;
use crate::wire::hook::{Hook, HookEvent};
use crate::wire::log_words;
use crate::wire::mcp::NamedMcpServer;
use crate::wire::permission::{GrantedAllow, PermissionMode, Permissions};
use crate::wire::roster::{ExitCause, StartedBy};
use crate::wire::sandbox::Sandbox;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time for which an ending lead waits for the hooks that run at the end of its teammates.
const LAST_HOOKS_WITHIN: Duration = Duration::from_secs(10);

/// The team that a supervisor serves, and the settings of its teammates.
pub(crate) struct SupervisorConfig {
    pub(crate) bus: Arc<Bus>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) clock: Rc<dyn Clock>,
    /// The program of this process, which teammates run too.
    pub(crate) program: OwnProgram,
    /// The number of teammates that may be alive at once. One run may spawn four times as many.
    pub(crate) max_teammates: usize,
    pub(crate) rules: Rules,
    pub(crate) hooks: Hooks,
    pub(crate) mcp_servers: Vec<NamedMcpServer>,
    pub(crate) pass_environment: PassedNames,
    /// The facts about models.
    pub(crate) known: RefCell<KnownModels>,
    /// The models that go on if that of a teammate fails.
    pub(crate) fallbacks: Vec<ModelChoice>,
    /// The agents of other vendors that teammates can run.
    pub(crate) agents: AgentPrograms,
    pub(crate) restarts: RefCell<RestartTracker>,
    /// Time without a sign of life after which a teammate counts as hung; `None` for never.
    pub(crate) hung_after: Option<Duration>,
    /// Model of a teammate for which neither the spawn nor the role names one.
    pub(crate) model: RefCell<Option<String>>,
    /// The models that the aliases in role files mean.
    pub(crate) model_aliases: BTreeMap<&'static str, String>,
    /// Permissions of the lead, from which those of its teammates are derived.
    pub(crate) permissions: RefCell<Permissions>,
    /// Walls around the commands of its teammates.
    pub(crate) sandbox: Sandbox,
    pub(crate) credentials: RefCell<ProviderCredentials>,
    /// Environment of teammates: an allow list.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) role: SupervisorRole,
    /// Run id that the lead's own commands carry in their environment.
    pub(crate) run_id: String,
    /// The clones in which teammates work.
    pub(crate) clones: CloneConfig,
    pub(crate) incarnation: Box<dyn Fn() -> String>,
}

/// The process that supervises.
#[derive(Debug, Clone)]
pub(crate) enum SupervisorRole {
    /// The lead. It keeps the relay of its host up, for a team with other hosts.
    Lead(RelayProgram),
    /// The supervisor of a host, for a lead on another one.
    Host,
}

/// The supervisor of a lead's teammates on one host.
pub(crate) struct Supervisor {
    pub(super) config: SupervisorConfig,
    pub(super) members: Members,
    pub(super) spawned: Cell<usize>,
    /// Urgency of stops that concern several members.
    pub(super) urgency: watch::Sender<Urgency>,
    /// The number of started processes whose exit hooks have not finished.
    pub(super) exit_hooks: watch::Sender<usize>,
    /// Whether the team is being stopped, so that no process is started any more.
    pub(super) is_closing: Cell<bool>,
    pub(super) relay: RefCell<RelayProcess>,
    /// The number of teammates whose start on another host is awaited.
    pub(super) starting_elsewhere: watch::Sender<usize>,
    /// The teammates that were alive on other hosts at the last look.
    pub(super) elsewhere: RefCell<BTreeSet<String>>,
    /// The names whose start on another host is under way.
    pub(super) names_elsewhere: RefCell<BTreeSet<String>>,
    /// The state of each teammate on another host in which its work was collected last, or is now.
    pub(super) collected: RefCell<BTreeMap<String, CollectedAt>>,
    /// The access to models of teammates that do not have that of this process.
    access: RefCell<BTreeMap<AgentName, ProviderCredentials>>,
}

impl Supervisor {
    pub(crate) fn new(config: SupervisorConfig) -> Rc<Self> {
        Rc::new(Self {
            config,
            members: Members::default(),
            spawned: Cell::new(0),
            urgency: watch::Sender::new(Urgency::Polite),
            exit_hooks: watch::Sender::new(0),
            is_closing: Cell::new(false),
            relay: RefCell::default(),
            starting_elsewhere: watch::Sender::new(0),
            elsewhere: RefCell::default(),
            names_elsewhere: RefCell::default(),
            collected: RefCell::default(),
            access: RefCell::default(),
        })
    }

    pub(crate) fn hooks(&self) -> Vec<Hook> {
        self.config.hooks.list.clone()
    }

    /// Returns the setup of commands that the person runs: without walls.
    pub(crate) fn setup_of_person(&self) -> CommandSetup {
        CommandSetup { walls: None, ..self.config.hooks.setup.clone() }
    }

    /// Sets the mode of teammates that are spawned from now on.
    pub(crate) fn set_mode(&self, mode: PermissionMode) {
        self.config.permissions.borrow_mut().mode = mode;
    }

    /// Sets the model of teammates that are spawned from now on without one, and the access to all models.
    pub(crate) fn set_model(
        &self,
        model: String,
        credentials: ProviderCredentials,
        known: KnownModels,
    ) {
        self.config.model.replace(Some(model));
        self.set_access(credentials, known);
    }

    /// Sets the access to all models of a teammate, which is spawned next, and keeps it for its restarts.
    pub(crate) fn set_access_of(
        &self,
        name: &AgentName,
        credentials: ProviderCredentials,
        known: KnownModels,
    ) {
        self.access.borrow_mut().insert(name.clone(), credentials.clone());
        self.set_access(credentials, known);
    }

    /// Returns the access of a teammate to models.
    pub(super) fn access_of(&self, name: &AgentName) -> ProviderCredentials {
        let own = self.access.borrow().get(name).cloned();
        own.unwrap_or_else(|| self.config.credentials.borrow().clone())
    }

    /// Sets the access to all models, for teammates that are spawned from now on.
    pub(crate) fn set_access(&self, credentials: ProviderCredentials, known: KnownModels) {
        self.config.credentials.replace(credentials);
        self.config.known.replace(known);
    }

    /// Sets the calls that answers of the person allow to teammates that are spawned from now on.
    pub(crate) fn set_granted(&self, granted: Vec<GrantedAllow>) {
        self.config.permissions.borrow_mut().granted = granted;
    }

    /// Returns the operations for the lead's tools.
    pub(crate) fn ops(self: &Rc<Self>) -> Rc<dyn TeamOps> {
        Rc::new(Rc::clone(self))
    }

    /// Raises the urgency of all stops: ladders under way skip to the rung of that urgency.
    pub(crate) fn raise_urgency(&self, urgency: Urgency) {
        raise(&self.urgency, urgency);
        self.members.raise_stops(None, urgency);
    }

    /// Makes SIGTERM the next step of a stop by name that is under way. Returns whether there is one.
    pub(crate) fn raise_urgency_of(&self, name: &AgentName) -> bool {
        self.members.raise_stops(Some(name), Urgency::Now)
    }

    /// Stops all teammates that this lead has started, on all hosts, in parallel, and starts no more.
    pub(crate) async fn stop_all(&self, reason: &str, cause: ExitCause) -> Vec<StopOutcome> {
        self.is_closing.set(true);
        if matches!(self.config.role, SupervisorRole::Lead(_)) {
            self.wait_started_elsewhere().await;
        }
        let mut outcomes =
            self.stop(self.its_own(), (&AgentName::lead(), reason, cause), None).await;
        outcomes.retain(|outcome| outcome.rung.is_some());
        self.wait_for_hooks().await;
        outcomes
    }

    /// Returns the members that it stops at its end: those that it runs, and those that a lead has started on other hosts. A member
    /// that was started by hand is none of them.
    pub(crate) fn its_own(&self) -> Vec<AgentName> {
        let mut names = self.members.with_process();
        if matches!(self.config.role, SupervisorRole::Lead(_)) {
            names.extend(self.on_other_hosts());
        }
        names.into_iter().collect()
    }

    /// Ends the relay, if this lead has started it.
    pub(crate) async fn end_relay(&self) {
        let running = self.relay.borrow_mut().take();
        if let Some(running) = running {
            RelayProcess::end(running).await;
        }
    }

    /// Kills the processes of all teammates and of their commands, without a look at the roster. For a stop that takes
    /// too long.
    pub(crate) async fn kill_all(&self) {
        self.is_closing.set(true);
        self.raise_urgency(Urgency::AtOnce);
        let (bus, run_id) = (Arc::clone(&self.config.bus), self.config.run_id.clone());
        let names = self.members.with_process();
        let kill = move || {
            let record = |name| match liveness::probe(bus.dir(), name) {
                Ok(Liveness::Alive(record)) => Some((name.clone(), record?)),
                Ok(Liveness::Dead) | Err(_) => None,
            };
            let records: Vec<_> = names.iter().filter_map(record).collect();
            for (_, record) in &records {
                let process = record.open_process();
                let killed = process.map(|process| process.signal_group(Signal::SIGKILL));
                let killed = killed.map_or_else(|| "not running".into(), |it| log_words::done(&it));
                tracing::warn!(pid = record.pid, killed, "a teammate is killed");
            }
            // The search for the processes of commands takes longer than the signals.
            let mut stuck = process_tree::end_strays(&run_id);
            stuck.extend(records.iter().flat_map(|(name, record)| {
                end_commands(bus.dir(), name, &record.run_id, bus.fsync())
            }));
            stuck
        };
        match spawn_blocking(kill).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(
                stuck = log_words::work_listed(&stuck),
                "processes of the team could not be ended"
            ),
        }
    }

    pub(crate) async fn stop_named(&self, name: AgentName, reason: &str) -> Option<StopOutcome> {
        let urgency = watch::Sender::new(*self.urgency.borrow());
        if self.raise_urgency_of(&name) {
            raise(&urgency, Urgency::Now);
        }
        let (by, cause) = (AgentName::lead(), ExitCause::Stopped);
        self.stop(vec![name], (&by, reason, cause), Some(urgency)).await.pop()
    }

    /// Stops a member by the order of another host. Its stop that is under way becomes as urgent.
    pub(crate) async fn stop_for_host(
        &self,
        name: AgentName,
        why: (&AgentName, &str, ExitCause),
        urgency: Urgency,
    ) -> Option<StopOutcome> {
        self.members.raise_stops(Some(&name), urgency);
        self.stop(vec![name], why, Some(watch::Sender::new(urgency))).await.pop()
    }

    /// Whether a teammate of this supervisor runs, is being started, or is to be started again.
    pub(crate) fn has_teammates(&self) -> bool {
        !self.members.with_process().is_empty()
    }

    /// Sets the model of teammates that are spawned from now on without one.
    pub(crate) fn set_default_model(&self, model: Option<String>) {
        self.config.model.replace(model);
    }

    /// Stops a teammate on behalf of the lead's model.
    pub(super) async fn stop_ordered(
        &self,
        name: AgentName,
        reason: String,
    ) -> Result<String, ToolError> {
        let roster = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        let Some(member) = roster.member(name.as_str()) else {
            let names: Vec<&str> = roster.members.iter().map(|member| &*member.name).collect();
            return Err(ToolError::Reply(format!(
                "there is no teammate {name}; the team is: {}",
                if names.is_empty() { "empty".into() } else { names.join(", ") }
            )));
        };
        if member.started_by == StartedBy::Hand {
            return Err(ToolError::Reply(format!(
                "{name} was started by hand and is the user's to stop (`team stop {name}`)"
            )));
        }
        let outcome = self.stop_named(name.clone(), &reason).await;
        let how = outcome.as_ref().map_or_else(|| words(None).into(), StopOutcome::words);
        let text = format!("{name} {how}.");
        let is_stuck = outcome.is_some_and(|outcome| outcome.is_stuck());
        if is_stuck { Err(ToolError::Reply(text)) } else { Ok(text) }
    }

    /// Stops some members, in a name, for a reason, with a cause for the record. `by_name` is the urgency of a stop of one
    /// member alone.
    async fn stop(
        &self,
        names: Vec<AgentName>,
        (by, reason, cause): (&AgentName, &str, ExitCause),
        by_name: Option<watch::Sender<Urgency>>,
    ) -> Vec<StopOutcome> {
        let stop = self.members.begin_stop(&names, by_name);
        for name in &names {
            self.members.wait_started(name).await;
        }
        let plan = StopPlan {
            bus: Arc::clone(&self.config.bus),
            clock: Rc::clone(&self.config.clock),
            by: by.clone(),
            reason: reason.into(),
            cause,
            urgency: (*stop).as_ref().unwrap_or(&self.urgency).subscribe(),
        };
        let outcomes = stop_in_parallel(&plan, names.clone()).await;
        // A lead that exits in the middle of the cleanup would leave processes behind.
        let gone = outcomes.iter().filter(|outcome| !outcome.is_stuck());
        let gone: Vec<AgentName> = gone.map(|outcome| outcome.name.clone()).collect();
        if !self.members.wait_reaped(&gone).await {
            tracing::warn!(
                gone = log_words::listed(&gone),
                "the cleanup after them takes too long to wait for"
            );
        }
        self.members.end_stop(&names, &stop);
        outcomes
    }

    /// Waits until the exit hooks of all teammates have finished, at most for [`LAST_HOOKS_WITHIN`].
    async fn wait_for_hooks(&self) {
        if !self.config.hooks.are_there_for(HookEvent::TeammateExited) {
            return;
        }
        let mut hooks = self.exit_hooks.subscribe();
        let told = tokio::time::timeout(LAST_HOOKS_WITHIN, hooks.wait_for(|count| *count == 0));
        if told.await.is_err() {
            tracing::warn!("the lead ends before a hook for the end of a teammate has finished");
        }
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

    fn collect_work(&self, name: AgentName) -> CollectFuture<'_> {
        let supervisor = Self::clone(self);
        run_to_completion(async move { supervisor.collect_ordered(&name).await })
    }

    fn send_files(&self, name: AgentName) -> ToolFuture<'_> {
        let supervisor = Self::clone(self);
        run_to_completion(async move { supervisor.send_files_ordered(&name).await })
    }
}

/// Runs work as a task of its own. An interrupted turn drops the future of its tool, which must not interrupt the
/// start or stop of a process.
fn run_to_completion<T: 'static>(
    work: impl Future<Output = Result<T, ToolError>> + 'static,
) -> Pin<Box<dyn Future<Output = Result<T, ToolError>>>> {
    let task = spawn_local(work);
    Box::pin(async move { task.await.unwrap_or_else(|why| Err(ToolError::reply(why))) })
}
