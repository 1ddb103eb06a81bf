//! The subagents of one agent: starts them, goes on with those that a killed process has left, and mails the results of
//! those in the background.

use super::ending::{EndReason, SubagentEnd};
use super::link::{CallerLink, OpenedModel, RETRY_AFTER, SubagentParts};
use super::request::{Asker, SubagentRequest};
use super::runner::Runner;
use crate::agent::event::Events;
use crate::bus::Outgoing;
use crate::os::failpoint::hit;
use crate::os::spawn::spawn_local;
use crate::protocol::permission::Policy;
use crate::store::asynchronous::offload;
use crate::store::{RoleMatch, subagents};
use crate::tools::rules::denied_by;
use crate::tools::{Registry, SubagentOps, SubagentOrder, ToolError, ToolFuture, find_by_alias};
use crate::wire::AgentName;
use crate::wire::message::{Body, Outcome};
use crate::wire::permission::{PermissionMode, RuleLists};
use crate::wire::role::Role;
use crate::wire::subagent::{SubagentId, SubagentStart};
use crate::wire::transcript::Entry;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// The subagents of one agent.
pub(crate) struct Subagents {
    link: Rc<CallerLink>,
    /// The starts in the caller's conversation, by the id of their call.
    known: RefCell<BTreeMap<String, SubagentStart>>,
    /// The ids of the system's mail about results that the caller has in its transcript.
    told: RefCell<BTreeSet<String>>,
    /// The highest number that was given.
    last: Cell<u64>,
    /// Held while a call gets its number.
    numbering: Mutex<()>,
    background: RefCell<BTreeMap<u64, JoinHandle<()>>>,
    /// The tools of the caller, from which those of its subagents derive.
    tools: OnceCell<Weak<Registry>>,
    own: Weak<Self>,
}

impl Subagents {
    pub(crate) fn new(parts: SubagentParts) -> Rc<Self> {
        let link = Rc::new(CallerLink::new(parts));
        Rc::new_cyclic(|own| Self {
            link,
            known: RefCell::default(),
            told: RefCell::default(),
            last: Cell::new(0),
            numbering: Mutex::default(),
            background: RefCell::default(),
            tools: OnceCell::new(),
            own: own.clone(),
        })
    }

    /// Connects the subagents with the event loop and the tools of their caller.
    pub(in crate::agent) fn connect(&self, caller: Events, tools: &Rc<Registry>) {
        self.link.connect(caller);
        // Set once, as the event loop.
        let _again = self.tools.set(Rc::downgrade(tools));
    }

    /// Returns the oldest request that the caller has not handled.
    pub(in crate::agent) fn next_request(&self) -> Option<SubagentRequest> {
        self.link.next_request()
    }

    /// Returns the beginning of the ids of the mail that [`Self::follow`] needs.
    pub(in crate::agent) fn mail_prefix(&self) -> String {
        self.link.mail_prefix()
    }

    /// Follows an entry of the caller's transcript.
    pub(in crate::agent) fn follow(&self, entry: &Entry) {
        if let Entry::Subagent(start) = entry {
            self.last.set(self.last.get().max(start.number().unwrap_or_default()));
            self.known.borrow_mut().insert(start.tool_use_id.clone(), start.clone());
        } else if let Entry::Mail { message, .. } = entry {
            let id = message.get("id").and_then(|id| id.as_str());
            if let Some(id) = id.filter(|id| id.starts_with(&self.link.mail_prefix())) {
                self.told.borrow_mut().insert(id.to_owned());
            }
        }
    }

    /// Returns the ids of the subagents that go on after a restart: those of these calls, and those in the background
    /// whose result the caller does not have.
    pub(in crate::agent) fn going_on(&self, calls: &BTreeSet<&str>) -> BTreeSet<String> {
        let (known, told) = (self.known.borrow(), self.told.borrow());
        let goes_on = |start: &&SubagentStart| {
            let is_open = start.background && !told.contains(&self.link.mail_id(start));
            is_open || calls.contains(start.tool_use_id.as_str())
        };
        known.values().filter(goes_on).map(|start| start.id.clone()).collect()
    }

    /// Whether a subagent works in the background.
    pub(in crate::agent) fn has_background(&self) -> bool {
        self.background.borrow().values().any(|work| !work.is_finished())
    }

    pub(in crate::agent) fn is_background(&self, number: u64) -> bool {
        self.background.borrow().contains_key(&number)
    }

    /// Forgets the subagents of the background that have ended.
    pub(in crate::agent) fn forget_ended(&self) {
        self.background.borrow_mut().retain(|_, work| !work.is_finished());
    }

    /// Ends the subagents in the background. Returns their numbers.
    pub(in crate::agent) fn end_background(&self, reason: EndReason) -> Vec<u64> {
        self.link.end_reason.set(reason);
        let ended = std::mem::take(&mut *self.background.borrow_mut());
        ended.values().for_each(JoinHandle::abort);
        ended.into_keys().collect()
    }

    /// Sets the reason for which the subagents that are cancelled next end.
    pub(in crate::agent) fn set_end_reason(&self, reason: EndReason) {
        self.link.end_reason.set(reason);
    }

    /// Returns the start of this call, which is in the caller's transcript afterwards.
    async fn begin(
        &self,
        order: &SubagentOrder,
        model: String,
    ) -> Result<SubagentStart, ToolError> {
        let (dir, caller) = (self.link.parts.bus.dir().clone(), self.link.parts.caller.clone());
        let on_disk = offload(move || subagents::last_number(&dir, &caller)).await;
        let number = on_disk.map_err(ToolError::reply)?.max(self.last.get()) + 1;
        self.last.set(number);
        let id = SubagentId { caller: self.link.parts.caller.clone(), number };
        let start = SubagentStart {
            id: id.to_string(),
            caller: self.link.parts.caller.to_string(),
            tool_use_id: order.call_id.clone(),
            task: self.link.parts.secrets.hide(&order.task).into_owned(),
            role: order.role.clone(),
            model,
            background: order.is_background,
        };
        let recorded = start.clone();
        self.link.ask(|reply| SubagentRequest::Begin { start: recorded, reply }).await;
        hit("sub.recorded");
        self.known.borrow_mut().insert(order.call_id.clone(), start.clone());
        Ok(start)
    }

    /// Runs a call of the caller.
    async fn run_call(self: Rc<Self>, order: SubagentOrder) -> Result<String, ToolError> {
        // Those of one reply get their numbers and their places in the order of the calls.
        let numbering = self.numbering.lock().await;
        let known = self.known.borrow().get(&order.call_id).cloned();
        let role = self.role(order.role.as_deref()).await?;
        let number = known.as_ref().and_then(SubagentStart::number);
        let start = match known {
            Some(start) => start,
            None => {
                // A model that cannot be used is reported before anything begins.
                let wanted = order.model.as_deref().or(role.model.as_deref());
                let model = self.open_model(wanted, order.model.is_some(), &role, "")?;
                self.begin(&order, model.name).await?
            }
        };
        drop(numbering);
        tracing::info!(id = start.id, is_resumed = number.is_some(), "subagent");
        let runner = self.runner(start.clone(), role)?;
        if start.background {
            if !self.is_background(runner.id.number) {
                self.spawn(runner);
            }
            let id = &start.id;
            return Ok(format!(
                "The subagent {id} works in the background: its result comes as mail."
            ));
        }
        let place = self.link.place().await;
        let end = runner.run().await;
        drop(place);
        let text = end.in_words(&start.id);
        if end.outcome == Outcome::Done { Ok(text) } else { Err(ToolError::Reply(text)) }
    }

    /// Returns the role of this name, without limits if there is no file of it. Fails if the name is unclear.
    async fn role(&self, name: Option<&str>) -> Result<Role, ToolError> {
        let Some(name) = name.map(ToOwned::to_owned) else { return Ok(Role::default()) };
        let team = self.link.parts.bus.dir().clone();
        match offload(move || team.find_role(&name, find_by_alias)).await {
            RoleMatch::Unclear(why) => Err(ToolError::reply(why)),
            found @ (RoleMatch::File(_) | RoleMatch::FreeText) => Ok(found.limits()),
        }
    }

    /// Opens a model for a subagent in a role. A model that only its role wants is left out if it cannot be used.
    fn open_model(
        &self,
        wanted: Option<&str>,
        is_ordered: bool,
        role: &Role,
        name: &str,
    ) -> Result<OpenedModel, ToolError> {
        let fallbacks = role.fallback_models.as_deref();
        match self.link.parts.models.open(wanted, fallbacks, name) {
            Err(why) if wanted.is_some() && !is_ordered => {
                tracing::warn!(model = wanted, why, "the model of a subagent's role is not used");
                let models = &self.link.parts.models;
                models.open(None, fallbacks, name).map_err(ToolError::Reply)
            }
            opened => opened.map_err(ToolError::Reply),
        }
    }

    fn runner(self: &Rc<Self>, start: SubagentStart, role: Role) -> Result<Runner, ToolError> {
        let tools = self.tools.get().and_then(Weak::upgrade);
        let tools = tools.ok_or_else(|| ToolError::reply("the agent ends"))?;
        let tools = tools.for_subagent(role.clone());
        let number = start.number().ok_or_else(|| ToolError::reply("its start is not legible"))?;
        let models = self.open_model(Some(&start.model), false, &role, &start.id)?.models;
        tools.set_model(models.own.facts.abilities());
        let lists = RuleLists { deny: denied_by(&role), ..RuleLists::default() };
        let mode = role.mode.unwrap_or(PermissionMode::Bypass);
        let limits = Policy::new(mode, &lists).map_err(|why| {
            ToolError::Reply(format!("a rule of the role is invalid: {why}; name another role"))
        })?;
        let tools = Rc::new(tools);
        let asker = Rc::new(Asker { id: start.id.clone(), tools: Rc::clone(&tools), limits });
        let id = SubagentId { caller: self.link.parts.caller.clone(), number };
        Ok(Runner { link: Rc::clone(&self.link), id, start, role, models, tools, asker })
    }

    /// Runs a subagent in the background; its result is mailed to the caller.
    fn spawn(self: &Rc<Self>, runner: Runner) {
        let (all, id, start) = (Rc::clone(self), runner.id.clone(), runner.start.clone());
        let number = id.number;
        let work = spawn_local(async move {
            let place = all.link.place().await;
            let end = runner.run().await;
            drop(place);
            all.tell(&start, &end).await;
            all.link.send(SubagentRequest::Ended(number));
        });
        self.background.borrow_mut().insert(number, work);
    }

    /// Sends a result to the caller, unless it has it. Tries again while the disk is full.
    async fn tell(&self, start: &SubagentStart, end: &SubagentEnd) {
        let id = self.link.mail_id(start);
        if self.told.borrow().contains(&id) {
            return;
        }
        let content = self.link.parts.bus.cut(&end.in_words(&start.id));
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(Body::text(), content) };
        loop {
            let (bus, to, outgoing) = (
                Arc::clone(&self.link.parts.bus),
                self.link.parts.caller.clone(),
                outgoing.clone(),
            );
            let send = move || bus.send(&AgentName::system(), to.as_str(), outgoing);
            match offload(send).await {
                Ok(_) => break,
                Err(why) if why.is_full() => tokio::time::sleep(RETRY_AFTER).await,
                Err(why) => {
                    // The result is in the transcript, and is sent by the next process.
                    tracing::error!(id = start.id, %why, "the result of a subagent was not sent");
                    break;
                }
            }
        }
        hit("sub.told");
    }

    /// Goes on with the subagents in the background that a killed process has left, and sends the results that were not
    /// delivered.
    pub(in crate::agent) async fn resume_background(self: &Rc<Self>) {
        let starts: Vec<SubagentStart> = self.known.borrow().values().cloned().collect();
        for start in starts.into_iter().filter(|start| start.background) {
            if self.told.borrow().contains(&self.link.mail_id(&start)) {
                continue;
            }
            if let Err(why) = self.resume_one(start.clone()).await {
                tracing::error!(id = start.id, %why, "a subagent cannot go on");
            }
        }
    }

    async fn resume_one(self: &Rc<Self>, start: SubagentStart) -> Result<(), ToolError> {
        let (dir, id) = (self.link.parts.bus.dir().clone(), SubagentId::parse(&start.id));
        let Some(id) = id else { return Ok(()) };
        let lines = offload(move || subagents::read_all(&dir, &id)).await;
        let ended = SubagentEnd::in_lines(&lines.map_err(ToolError::reply)?);
        match ended {
            // A person has ended it, and the caller knows.
            Some(end) if end.text.is_empty() => {}
            Some(end) => self.tell(&start, &end).await,
            None => {
                let role = self.role(start.role.as_deref()).await?;
                let runner = self.runner(start, role)?;
                self.spawn(runner);
            }
        }
        Ok(())
    }
}

impl SubagentOps for Subagents {
    fn run(&self, order: SubagentOrder) -> ToolFuture<'_> {
        Box::pin(async move {
            let gone = || ToolError::reply("the agent ends");
            self.own.upgrade().ok_or_else(gone)?.run_call(order).await
        })
    }
}
