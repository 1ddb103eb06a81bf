//! The lead's processes: spawning teammates, watching over them, bringing back those that crash, taking
//! them down.
//!
//! *Invariant:* a teammate is on the roster before its process exists, and is reported ready only by
//! itself; nothing here talks to a model. The roster is written beside the event loop: whoever holds
//! its lock may be stopped, and the team goes on.

pub(crate) mod handshake;
mod reap;
pub(crate) mod recover;
mod roster_updates;
mod spawn;
mod start;
pub(crate) mod stop;
mod watch;

use crate::bus::Bus;
use crate::os::Clock;
use crate::os::program::TeammateProgram;
use crate::protocol::ladder::Urgency;
use crate::protocol::restart::{RestartLimits, RestartTracker};
use crate::settings::Rules;
use crate::settings::model::Credentials;
use crate::store::{StoreError, roster};
use crate::tasks::Tasks;
use crate::tools::ToolError;
use crate::tools::hooks::Hooks;
use crate::tools::team::{OpsFuture, SpawnOrder, TeamOps};
use crate::wire::hook::{Hook, HookEvent};
use crate::wire::money::Price;
use crate::wire::permission::{PermissionMode, Permissions, RuleLists};
use crate::wire::restart::RestartPolicy;
use crate::wire::roster::{ExitCause, Roster, StartedBy};
use crate::wire::{AgentName, WithUnknownFields};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stop::{How, StopOutcome, StopPlan, take_down_all};
use tokio::sync::watch as channel;

/// How long the end of a lead waits for hooks that are told of its teammates' ends.
const LAST_HOOKS: Duration = Duration::from_secs(10);

/// What the supervisor needs to know about the team it serves.
pub(crate) struct Plan {
    /// The team's mail.
    pub(crate) bus: Arc<Bus>,
    /// The team's tasks.
    pub(crate) tasks: Arc<Tasks>,
    /// Time.
    pub(crate) clock: Rc<dyn Clock>,
    /// The program that teammates run.
    pub(crate) program: TeammateProgram,
    /// Teammates that may live at once; four times as many may be spawned in one run.
    pub(crate) max_teammates: usize,
    /// The rules teammates take over.
    pub(crate) rules: Rules,
    /// What runs when something happens.
    pub(crate) hooks: Hooks,
    /// What models cost, by `provider/name`.
    pub(crate) prices: BTreeMap<String, Price>,
    /// Who is started again, and how fast.
    pub(crate) restart: RestartConfig,
    /// How long a teammate may give no sign of life; `None` for ever.
    pub(crate) hung_after: Option<Duration>,
    /// The model of a teammate that is given none.
    pub(crate) model: String,
    /// How freely a teammate may act that is told nothing else.
    pub(crate) permissions: RefCell<Permissions>,
    /// What reaches the models.
    pub(crate) credentials: Credentials,
    /// The environment of teammates: an allow list.
    pub(crate) environment: Vec<(String, String)>,
    /// What this lead's own commands carry in their environment.
    pub(crate) run_id: String,
    /// Gives fresh incarnations.
    pub(crate) incarnation: Box<dyn Fn() -> String>,
}

/// How ended teammates are started again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartConfig {
    /// After which ends.
    pub(crate) policy: RestartPolicy,
    /// How fast and how often.
    pub(crate) limits: RestartLimits,
    /// Where the jitter begins.
    pub(crate) seed: u64,
}

/// How long the cleaning up after those who have gone may take: guards get two seconds, what escaped them
/// gets two more.
const REAPED_WITHIN: Duration = Duration::from_secs(5);

/// The lead's side of the team's processes.
pub(crate) struct Supervisor {
    plan: Plan,
    /// Until they are reaped, with all that they left behind.
    children: channel::Sender<BTreeMap<AgentName, Child>>,
    spawned: Cell<usize>,
    /// Names being taken down by this supervisor: their end needs no report.
    expected: RefCell<Vec<AgentName>>,
    /// Names whose process is being started.
    starting: channel::Sender<BTreeSet<AgentName>>,
    /// Names that are about to be started again. Who takes one out calls that off.
    coming_back: RefCell<BTreeSet<AgentName>>,
    /// Lives that are ended because they no longer move.
    hung: RefCell<BTreeSet<String>>,
    restarts: RefCell<RestartTracker>,
    urgency: channel::Sender<Urgency>,
    /// The patience with those who are taken down by name.
    by_name: RefCell<BTreeMap<AgentName, channel::Sender<Urgency>>>,
    /// Processes of whose end the hooks have not heard to the end yet.
    unheard: channel::Sender<usize>,
    closing: Cell<bool>,
}

/// A running teammate that this lead started.
struct Child {
    incarnation: String,
    started: Instant,
    /// While the lead holds its end, the teammate knows that the lead lives.
    _lifeline: OwnedFd,
}

/// Makes patience shorter, never longer.
fn raise(patience: &channel::Sender<Urgency>, urgency: Urgency) {
    patience.send_if_modified(|now| {
        let more = urgency > *now;
        *now = urgency.max(*now);
        more
    });
}

impl Supervisor {
    /// A supervisor without teammates.
    pub(crate) fn new(plan: Plan) -> Rc<Self> {
        let RestartConfig { policy, limits, seed } = plan.restart;
        Rc::new(Self {
            plan,
            children: channel::Sender::new(BTreeMap::new()),
            spawned: Cell::new(0),
            expected: RefCell::default(),
            starting: channel::Sender::new(BTreeSet::new()),
            coming_back: RefCell::default(),
            hung: RefCell::default(),
            restarts: RefCell::new(RestartTracker::new(policy, limits, seed)),
            urgency: channel::Sender::new(Urgency::Polite),
            by_name: RefCell::default(),
            unheard: channel::Sender::new(0),
            closing: Cell::new(false),
        })
    }

    /// The operations as the lead's tools get them.
    pub(crate) fn ops(self: &Rc<Self>) -> Rc<dyn TeamOps> {
        Rc::new(Ops(Rc::clone(self)))
    }

    /// What runs when something happens, for the lead's own agent.
    pub(crate) fn hooks(&self) -> Vec<Hook> {
        self.plan.hooks.list()
    }

    /// Teammates that are spawned from now on are this free.
    pub(crate) fn set_mode(&self, mode: PermissionMode) {
        self.plan.permissions.borrow_mut().mode = mode;
    }

    /// Teammates that are spawned from now on have these rules, too.
    pub(crate) fn add_rules(&self, rules: &RuleLists) {
        self.plan.permissions.borrow_mut().rules.add(rules);
    }

    /// Whether any teammate of this lead still runs.
    pub(crate) fn has_children(&self) -> bool {
        !self.children.borrow().is_empty()
    }

    /// Loses patience: ladders under way skip to the rung of `urgency`.
    pub(crate) fn hurry(&self, urgency: Urgency) {
        raise(&self.urgency, urgency);
        for patience in self.by_name.borrow().values() {
            raise(patience, urgency);
        }
    }

    /// Who is asked a second time has been asked enough: SIGTERM is next. Whether it is being asked.
    pub(crate) fn insist(&self, name: &AgentName) -> bool {
        let by_name = self.by_name.borrow();
        let asked = by_name.get(name);
        asked.inspect(|patience| raise(patience, Urgency::Now)).is_some()
    }

    /// Takes down everybody this lead started, in parallel; nobody can be spawned any more.
    pub(crate) async fn stop_all(&self, reason: &str, cause: ExitCause) -> Vec<StopOutcome> {
        self.closing.set(true);
        // Whoever is being started has one name with those that run already: it is taken down, too.
        let mut names: BTreeSet<AgentName> = self.children.borrow().keys().cloned().collect();
        names.extend(self.coming_back.borrow().iter().cloned());
        names.extend(self.starting.borrow().iter().cloned());
        let mut departures = self.stop(names.into_iter().collect(), reason, cause).await;
        departures.retain(|departure| departure.how != How::WasGone);
        self.wait_for_hooks().await;
        departures
    }

    /// Waits until the hooks have heard of every end, for a while.
    async fn wait_for_hooks(&self) {
        if !self.plan.hooks.are_there_for(HookEvent::TeammateExited) {
            return;
        }
        let mut unheard = self.unheard.subscribe();
        let heard = tokio::time::timeout(LAST_HOOKS, unheard.wait_for(|count| *count == 0));
        if heard.await.is_err() {
            tracing::warn!("a hook for the end of a teammate is cut off: the lead ends");
        }
    }

    /// Takes some members down; those that were about to be started again stay ended.
    pub(crate) async fn stop(
        &self,
        names: Vec<AgentName>,
        reason: &str,
        cause: ExitCause,
    ) -> Vec<StopOutcome> {
        self.stop_with(names, reason, cause, self.urgency.subscribe()).await
    }

    /// Takes one member down by its name.
    pub(crate) async fn stop_named(&self, name: AgentName, reason: &str) -> Option<StopOutcome> {
        let patience = channel::Sender::new(*self.urgency.borrow());
        if self.insist(&name) {
            raise(&patience, Urgency::Now);
        }
        let urgency = patience.subscribe();
        self.by_name.borrow_mut().insert(name.clone(), patience);
        let departed =
            self.stop_with(vec![name.clone()], reason, ExitCause::Stopped, urgency).await;
        self.by_name.borrow_mut().remove(&name);
        departed.into_iter().next()
    }

    async fn stop_with(
        &self,
        names: Vec<AgentName>,
        reason: &str,
        cause: ExitCause,
        urgency: channel::Receiver<Urgency>,
    ) -> Vec<StopOutcome> {
        self.coming_back.borrow_mut().retain(|name| !names.contains(name));
        for name in &names {
            self.wait_started(name).await;
        }
        self.expected.borrow_mut().extend(names.iter().cloned());
        let takedown = StopPlan {
            bus: Arc::clone(&self.plan.bus),
            clock: Rc::clone(&self.plan.clock),
            by: AgentName::lead(),
            reason: reason.into(),
            cause,
            urgency,
        };
        let departures = take_down_all(&takedown, names.clone()).await;
        self.wait_reaped(&departures).await;
        self.expected.borrow_mut().retain(|name| !names.contains(name));
        departures
    }

    /// Waits until nothing is left of those who have gone: a lead that ends in the middle of the cleaning
    /// up would leave the rest of it to nobody.
    async fn wait_reaped(&self, departures: &[StopOutcome]) {
        let mut children = self.children.subscribe();
        let gone: Vec<&AgentName> = departures
            .iter()
            .filter(|departure| departure.how != How::Stuck)
            .map(|departure| &departure.name)
            .collect();
        let reaped = children.wait_for(|left| gone.iter().all(|name| !left.contains_key(*name)));
        if tokio::time::timeout(REAPED_WITHIN, reaped).await.is_err() {
            tracing::warn!(?gone, "the cleaning up after them takes too long to be waited for");
        }
    }

    /// Waits until nobody of that name is being started; bounded by what a start may take.
    async fn wait_started(&self, name: &AgentName) {
        let mut starting = self.starting.subscribe();
        // The sender is ours, so it outlives this.
        let _settled = starting.wait_for(|starting| !starting.contains(name)).await;
    }

    /// Changes the roster beside the event loop.
    async fn write<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        write(&self.plan.bus, change).await
    }

    async fn shutdown(&self, name: AgentName, reason: String) -> Result<String, ToolError> {
        let roster =
            roster::read(self.plan.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
        let Some(member) = roster.member(name.as_str()) else {
            let names: Vec<&str> = roster.members.iter().map(|member| &*member.name).collect();
            return Err(ToolError::Reply(format!(
                "there is no teammate {name}; the team is: {}",
                if names.is_empty() { "nobody".into() } else { names.join(", ") }
            )));
        };
        if member.started_by == StartedBy::Hand {
            return Err(ToolError::Reply(format!(
                "{name} was started by hand and is the user's to stop (`team stop {name}`)"
            )));
        }
        let departure = self.stop_named(name.clone(), &reason).await;
        let words = departure.as_ref().map_or(How::WasGone.words().into(), StopOutcome::words);
        let how = departure.map_or(How::WasGone, |departure| departure.how);
        let text = format!("{name} {words}.");
        if how == How::Stuck { Err(ToolError::Reply(text)) } else { Ok(text) }
    }
}

/// Changes the roster beside the event loop: its lock may be held by somebody who was stopped.
async fn write<R: Send + 'static>(
    bus: &Arc<Bus>,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
) -> Result<R, StoreError> {
    crate::store::asynchronous::update_roster(bus.dir(), bus.fsync(), change).await
}

/// [`TeamOps`] of a lead.
struct Ops(Rc<Supervisor>);

impl TeamOps for Ops {
    fn spawn(&self, order: SpawnOrder) -> OpsFuture<'_> {
        let supervisor = Rc::clone(&self.0);
        to_the_end(async move { supervisor.spawn(order).await })
    }

    fn shutdown(&self, name: AgentName, reason: String) -> OpsFuture<'_> {
        let supervisor = Rc::clone(&self.0);
        to_the_end(async move { supervisor.shutdown(name, reason).await })
    }
}

/// A turn may be interrupted at any time; a half-born or half-ended process may not be left behind.
fn to_the_end(
    work: impl Future<Output = Result<String, ToolError>> + 'static,
) -> OpsFuture<'static> {
    let task = tokio::task::spawn_local(work);
    Box::pin(async move { task.await.unwrap_or_else(|why| Err(ToolError::Reply(why.to_string()))) })
}
