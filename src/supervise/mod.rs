//! The lead's processes: spawning teammates, noticing their end, taking them down.
//!
//! *Invariant:* a teammate is on the roster before its process exists, and is reported ready only by
//! itself; nothing here talks to a model.

mod entry;
pub(crate) mod hello;
pub(crate) mod recover;
mod start;
pub(crate) mod takedown;

use crate::bus::{Bus, Outgoing};
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::program::TeammateProgram;
use crate::os::{Clock, descendants};
use crate::protocol::ladder::Haste;
use crate::settings::model::{Credentials, ModelChoice};
use crate::store::{Life, life, roster};
use crate::tools::ToolError;
use crate::tools::team::{OpsFuture, SpawnOrder, TeamOps};
use crate::wire::AgentName;
use crate::wire::message::Body;
use crate::wire::permission::{Mode, Permissions, RuleLists};
use crate::wire::roster::{ExitCause, LastExit, StartedBy, Status};
use hello::Rules;
use start::StartError;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use takedown::{Departure, How, Takedown, take_down_all};
use tokio::sync::watch;

/// What the supervisor needs to know about the team it serves.
pub(crate) struct Plan {
    /// The team's mail.
    pub(crate) bus: Arc<Bus>,
    /// Time.
    pub(crate) clock: Rc<dyn Clock>,
    /// The program that teammates run.
    pub(crate) program: TeammateProgram,
    /// Teammates that may live at once; four times as many may be started in one run.
    pub(crate) max_teammates: usize,
    /// The rules teammates take over.
    pub(crate) rules: Rules,
    /// The model of a teammate that is given none.
    pub(crate) model: String,
    /// How freely a teammate may act that is told nothing else.
    pub(crate) permissions: RefCell<Permissions>,
    /// What reaches the models.
    pub(crate) credentials: Credentials,
    /// The environment of teammates: an allow list.
    pub(crate) environment: Vec<(String, String)>,
    /// What this lead's own commands carry in their environment.
    pub(crate) marker: String,
    /// Gives fresh incarnations.
    pub(crate) incarnation: Box<dyn Fn() -> String>,
}

/// The lead's side of the team's processes.
pub(crate) struct Supervisor {
    plan: Plan,
    children: RefCell<BTreeMap<AgentName, Child>>,
    started: Cell<usize>,
    /// Names being started or taken down by this supervisor: their end needs no report.
    expected: RefCell<Vec<AgentName>>,
    haste: watch::Sender<Haste>,
    closing: Cell<bool>,
}

/// A running teammate that this lead started.
struct Child {
    incarnation: String,
    /// While the lead holds its end, the teammate knows that the lead lives.
    _lifeline: OwnedFd,
}

impl Supervisor {
    /// A supervisor without teammates.
    pub(crate) fn new(plan: Plan) -> Rc<Self> {
        Rc::new(Self {
            plan,
            children: RefCell::default(),
            started: Cell::new(0),
            expected: RefCell::default(),
            haste: watch::Sender::new(Haste::Polite),
            closing: Cell::new(false),
        })
    }

    /// The operations as the lead's tools get them.
    pub(crate) fn ops(self: &Rc<Self>) -> Rc<dyn TeamOps> {
        Rc::new(Ops(Rc::clone(self)))
    }

    /// Teammates that are spawned from now on are this free.
    pub(crate) fn set_mode(&self, mode: Mode) {
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

    /// Loses patience: ladders under way skip to the rung of `haste`.
    pub(crate) fn hurry(&self, haste: Haste) {
        self.haste.send_if_modified(|now| {
            let more = haste > *now;
            *now = haste.max(*now);
            more
        });
    }

    /// Takes down everybody this lead started, in parallel; nobody can be spawned any more.
    pub(crate) async fn stop_all(&self, reason: &str, cause: ExitCause) -> Vec<Departure> {
        self.closing.set(true);
        let names: Vec<AgentName> = self.children.borrow().keys().cloned().collect();
        self.stop(names, reason, cause).await
    }

    /// Takes some members down.
    pub(crate) async fn stop(
        &self,
        names: Vec<AgentName>,
        reason: &str,
        cause: ExitCause,
    ) -> Vec<Departure> {
        self.expected.borrow_mut().extend(names.iter().cloned());
        let takedown = Takedown {
            bus: Arc::clone(&self.plan.bus),
            clock: Rc::clone(&self.plan.clock),
            by: AgentName::lead(),
            reason: reason.into(),
            cause,
            haste: self.haste.subscribe(),
        };
        let departures = take_down_all(&takedown, names.clone()).await;
        self.expected.borrow_mut().retain(|name| !names.contains(name));
        departures
    }

    async fn spawn(self: &Rc<Self>, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        if self.closing.get() {
            return Err(ToolError::Reply(
                "the team is being stopped; nobody can be spawned".into(),
            ));
        }
        self.check_terms(&order)?;
        if let Life::Alive(_) = probe(&self.plan.bus, &name)? {
            return self.give_new_prompt(order).await;
        }
        self.check_caps()?;
        self.started.set(self.started.get() + 1);
        self.expected.borrow_mut().push(name.clone());
        let started = start::start(&self.plan, &order).await;
        self.expected.borrow_mut().retain(|other| *other != name);
        let started = started.map_err(|why| ToolError::Reply(spawn_failed(&name, &why)))?;
        let (pid, model) = (started.pid, started.model);
        let child = Child { incarnation: started.incarnation, _lifeline: started.lifeline };
        self.children.borrow_mut().insert(name.clone(), child);
        let reaper = Rc::clone(self);
        let reaped = name.clone();
        tokio::task::spawn_local(async move { reaper.reap(reaped, started.process).await });
        let role = order.role.clone();
        self.deliver_prompt(order).await?;
        tracing::info!(%name, pid, model, "teammate spawned");
        Ok(format!(
            "Spawned {name} ({role}) on {model}, pid {pid}. It has its prompt and is at work."
        ))
    }

    /// A live member: idle ones get the prompt, the others are left in peace.
    async fn give_new_prompt(&self, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        let roster =
            roster::read(self.plan.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
        let member = roster.member(name.as_str());
        let status = member.map(|member| member.status);
        let other_mode = |mode: &Mode| member.is_some_and(|member| member.mode != mode.word());
        match status {
            Some(Status::Idle) if order.mode.as_ref().is_some_and(other_mode) => {
                Err(ToolError::Reply(format!(
                    "{name} is idle in another mode; shut it down first to start it in that one, or \
                     leave mode out"
                )))
            }
            Some(Status::Idle) => {
                self.note_role(&order)?;
                self.deliver_prompt(order).await?;
                Ok(format!("{name} was idle and has the new prompt (same process, same memory)."))
            }
            Some(status) => Err(ToolError::Reply(format!(
                "{name} is {} and was not given the prompt; send it a message instead, or wait \
                 until it is idle",
                status.word()
            ))),
            None => Err(ToolError::Reply(format!(
                "a process holds the name {name} but is not on the roster; choose another name"
            ))),
        }
    }

    /// What an idle member is for from now on; its memory and its instructions stay.
    fn note_role(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let noted = roster::update(self.plan.bus.dir(), self.plan.bus.fsync(), |roster| {
            if let Some(member) = roster.member_mut(order.name.as_str()) {
                member.role.clone_from(&order.role);
            }
        });
        noted.map_err(|why| ToolError::Reply(why.to_string()))
    }

    async fn deliver_prompt(&self, order: SpawnOrder) -> Result<(), ToolError> {
        let bus = Arc::clone(&self.plan.bus);
        let SpawnOrder { name, prompt, message_id, .. } = order;
        let send = move || {
            let outgoing = Outgoing { id: Some(message_id), ..Outgoing::text(prompt) };
            bus.send(&AgentName::lead(), name.as_str(), outgoing)
        };
        match tokio::task::spawn_blocking(send).await {
            Ok(sent) => sent.map(|_| ()).map_err(|why| ToolError::Reply(why.to_string())),
            Err(why) => Err(ToolError::Reply(why.to_string())),
        }
    }

    fn check_terms(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let mine = self.plan.permissions.borrow().mode;
        if let Some(mode) = order.mode.filter(|mode| *mode > mine) {
            return Err(ToolError::Reply(format!(
                "mode {mode} is looser than the lead's ({mine}), which only the user can change; \
                 leave mode out, or give a stricter one"
            )));
        }
        if let Some(model) = &order.model {
            let chosen = ModelChoice::parse(model)
                .map_err(|why| ToolError::Reply(format!("{}; {}", why.what, why.hint)))?;
            let has_key = self.plan.credentials.secrets().iter().any(|secret| !secret.is_empty());
            if chosen.is_real() && !has_key {
                return Err(ToolError::Reply(format!(
                    "there are no credentials for {model}; leave model out to use the lead's"
                )));
            }
        }
        Ok(())
    }

    fn check_caps(&self) -> Result<(), ToolError> {
        let max = self.plan.max_teammates;
        let roster =
            roster::read(self.plan.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
        let living = roster
            .members
            .iter()
            .filter_map(|member| AgentName::member(&member.name).ok())
            .filter(|name| matches!(probe(&self.plan.bus, name), Ok(Life::Alive(_))))
            .count();
        if living >= max {
            return Err(ToolError::Reply(format!(
                "{living} teammates are alive and max_teammates is {max}; shut one down first"
            )));
        }
        if self.started.get() >= max.saturating_mul(4) {
            return Err(ToolError::Reply(format!(
                "{} teammates were started in this run, which is the most for max_teammates {max}; \
                 work with those that are there",
                self.started.get()
            )));
        }
        Ok(())
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
        let departures = self.stop(vec![name.clone()], &reason, ExitCause::Stopped).await;
        let how = departures.first().map_or(How::WasGone, |departure| departure.how);
        let text = format!("{name} {}.", how.words());
        if how == How::Stuck { Err(ToolError::Reply(text)) } else { Ok(text) }
    }

    /// Waits for a teammate's end, takes its exit status, and tells whoever needs to know.
    async fn reap(&self, name: AgentName, process: Pidfd) {
        if let Err(why) = takedown::ended(&process).await {
            tracing::warn!(%name, %why, "the end of the teammate cannot be waited for");
        }
        // Asked at once: whoever takes it down forgets about it when it sees the same end.
        let expected = self.expected.borrow().contains(&name);
        let exit = process.wait();
        // Guards and escapees of a dead teammate come to the lead, which adopts orphans.
        let marker = self.plan.marker.clone();
        match tokio::task::spawn_blocking(move || descendants::end_strays(&marker)).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(%name, ?stuck, "strays of the teammate could not be ended"),
        }
        let incarnation =
            self.children.borrow_mut().remove(&name).map_or_else(String::new, |c| c.incarnation);
        tracing::info!(%name, ?exit, "teammate ended");
        if !expected {
            self.note_unexpected_end(&name, &incarnation, exit.ok());
        }
    }

    fn note_unexpected_end(&self, name: &AgentName, incarnation: &str, exit: Option<ExitKind>) {
        let now = self.plan.clock.now();
        let (code, signal) = match exit {
            Some(ExitKind::Code(code)) => (Some(code), None),
            Some(ExitKind::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let updated = roster::update(self.plan.bus.dir(), self.plan.bus.fsync(), |roster| {
            let member = roster.member_mut(name.as_str())?;
            if member.incarnation != incarnation {
                return None;
            }
            let orderly = member.status == Status::Stopping || member.status.is_over();
            if !member.status.is_over() {
                let cause = if orderly { ExitCause::Stopped } else { ExitCause::Crash };
                member.last_exit = Some(LastExit { code, signal, cause, at: now });
                member.status = if orderly { Status::Shutdown } else { Status::Failed };
                (member.since, member.activity) = (now, None);
            }
            member.pid = None;
            member.last_exit.as_ref().map(|exit| exit.cause)
        });
        let cause = match updated {
            Ok(Some(cause)) => cause,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(%name, %why, "the roster could not be told of the end");
                ExitCause::Crash
            }
        };
        let exit = match (code, signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".into(),
        };
        let content = format!("{name} is gone ({}, {exit}).", cause.word());
        let cause = cause.word().into();
        let body = Body::TeammateTerminated { name: name.to_string(), cause, exit };
        let id = format!("system:{name}:{incarnation}");
        if let Err(why) = self.plan.bus.notify_lead(body, content, id) {
            tracing::error!(%name, %why, "the lead could not be told of the end");
        }
    }
}

fn probe(bus: &Bus, name: &AgentName) -> Result<Life, ToolError> {
    life::probe(bus.dir(), name).map_err(|why| ToolError::Reply(why.to_string()))
}

fn spawn_failed(name: &AgentName, why: &StartError) -> String {
    format!("{name} could not be started: {why}; nothing of it is left, try again or go on without")
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
