//! What the lead's model asks for: a new teammate, or a new prompt for one that is idle.

use super::handshake::StartReason;
use super::reap::Lived;
use super::start::{self, SpawnSpec, StartError};
use super::{Child, Supervisor};
use crate::bus::{Bus, Outgoing};
use crate::os::failpoint::hit;
use crate::settings::model::ModelChoice;
use crate::store::{Liveness, liveness, roster};
use crate::tools::team::SpawnOrder;
use crate::tools::{ToolError, find_by_alias};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use std::rc::Rc;
use std::sync::Arc;

const USE_OURS: &str = "leave model out to use the lead's";

impl Supervisor {
    pub(super) async fn spawn(self: &Rc<Self>, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        if self.closing.get() {
            return Err(ToolError::Reply(
                "the team is being stopped; nobody can be spawned".into(),
            ));
        }
        self.check_terms(&order)?;
        // Wanted now: it need not wait until its time to come back.
        self.coming_back.borrow_mut().remove(&name);
        self.wait_started(&name).await;
        if let Liveness::Alive(_) = probe(&self.plan.bus, &name)? {
            return self.give_new_prompt(order).await;
        }
        self.check_caps()?;
        self.spawned.set(self.spawned.get() + 1);
        self.restarts.borrow_mut().forget(name.as_str());
        let (model, unused) = self.model_for(&order);
        let spec = SpawnSpec {
            name: name.clone(),
            role: order.role.clone(),
            model: model.clone(),
            mode: self.mode_for(&order),
            start_reason: StartReason::Spawned,
            after: None,
        };
        let launched = self.launch(&spec).await;
        let pid = launched.map_err(|why| ToolError::Reply(spawn_failed(&name, &why)))?;
        let role = order.role.clone();
        self.deliver_prompt(order).await?;
        hit("spawn.prompted");
        tracing::info!(%name, pid, model, "teammate spawned");
        Ok(format!(
            "Spawned {name} ({role}) on {model}, pid {pid}. It has its prompt and is at work.{unused}"
        ))
    }

    /// A live member: idle ones get the prompt, the others are left in peace.
    async fn give_new_prompt(&self, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        let roster =
            roster::read(self.plan.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
        let member = roster.member(name.as_str());
        let status = member.map(|member| member.status);
        let other_mode =
            |mode: &PermissionMode| member.is_some_and(|member| member.mode != mode.word());
        match status {
            Some(Status::Idle) if order.mode.as_ref().is_some_and(other_mode) => {
                Err(ToolError::Reply(format!(
                    "{name} is idle in another mode; shut it down first to start it in that one, or \
                     leave mode out"
                )))
            }
            Some(Status::Idle) => {
                self.note_role(&order).await?;
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

    /// What an idle member is for from now on. Its own program tells its model.
    async fn note_role(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let (name, role) = (order.name.clone(), order.role.clone());
        let noted = self.write(move |roster| {
            if let Some(member) = roster.member_mut(name.as_str()) {
                member.role = role;
            }
        });
        noted.await.map_err(|why| ToolError::Reply(why.to_string()))
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

    /// The mode that was ordered, else the role's as far as the lead's goes, else the lead's.
    fn mode_for(&self, order: &SpawnOrder) -> PermissionMode {
        let ours = self.plan.permissions.borrow().mode;
        let role =
            || self.plan.bus.dir().role(&order.role, find_by_alias).and_then(|file| file.role.mode);
        order.mode.or_else(|| role().map(|mode| mode.min(ours))).unwrap_or(ours)
    }

    /// The model that was ordered, else the role's, else the lead's; and what is to be said when the
    /// role's cannot be had.
    fn model_for(&self, order: &SpawnOrder) -> (String, String) {
        let ours = || self.plan.model.clone();
        if let Some(model) = &order.model {
            return (model.clone(), String::new());
        }
        let role = self.plan.bus.dir().role(&order.role, find_by_alias);
        let Some(model) = role.and_then(|file| file.role.model) else {
            return (ours(), String::new());
        };
        let why = match ModelChoice::parse(&model) {
            Ok(chosen) if self.plan.credentials.reach(&chosen) => return (model, String::new()),
            Ok(_) => "there are no credentials for it".into(),
            Err(why) => why.what,
        };
        (ours(), format!(" Its role asks for {model}, which is not used: {why}."))
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
                .map_err(|why| ToolError::Reply(format!("{}; {USE_OURS}", why.what)))?;
            if !self.plan.credentials.reach(&chosen) {
                return Err(ToolError::Reply(format!(
                    "there are no credentials for {model}; {USE_OURS}"
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
            .filter(|name| matches!(probe(&self.plan.bus, name), Ok(Liveness::Alive(_))))
            .count();
        if living >= max {
            return Err(ToolError::Reply(format!(
                "{living} teammates are alive and max_teammates is {max}; shut one down first"
            )));
        }
        if self.spawned.get() >= max.saturating_mul(4) {
            return Err(ToolError::Reply(format!(
                "{} teammates were started in this run, which is the most for max_teammates {max}; \
                 work with those that are there",
                self.spawned.get()
            )));
        }
        Ok(())
    }

    /// Starts a process, enters it among the children, and has its end waited for. Gives its pid.
    pub(super) async fn launch(self: &Rc<Self>, spec: &SpawnSpec) -> Result<i32, StartError> {
        let name = spec.name.clone();
        self.starting.send_if_modified(|starting| starting.insert(name.clone()));
        let started = start::start(&self.plan, spec).await;
        let launched = started.map(|started| {
            let child = Child {
                incarnation: started.incarnation.clone(),
                started: self.plan.clock.monotonic(),
                _lifeline: started.lifeline,
            };
            let since = child.started;
            self.children.send_modify(|children| drop(children.insert(name.clone(), child)));
            hit("spawn.registered");
            let lived = Lived { name: name.clone(), incarnation: started.incarnation, since };
            let reaper = Rc::clone(self);
            self.unheard.send_modify(|count| *count += 1);
            tokio::task::spawn_local(async move { reaper.reap(lived, started.process).await });
            started.pid
        });
        self.starting.send_if_modified(|starting| starting.remove(&name));
        launched
    }
}

fn probe(bus: &Bus, name: &AgentName) -> Result<Liveness, ToolError> {
    liveness::probe(bus.dir(), name).map_err(|why| ToolError::Reply(why.to_string()))
}

fn spawn_failed(name: &AgentName, why: &StartError) -> String {
    format!("{name} could not be started: {why}; nothing of it is left, try again or go on without")
}
