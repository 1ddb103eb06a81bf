//! Spawning for the lead's model: a new teammate, or a new prompt for one that is idle.

use super::handshake::StartReason;
use super::members::Child;
use super::reap::StartedLife;
use super::start::{self, SpawnSpec, StartError};
use super::supervisor::Supervisor;
use crate::bus::{Bus, Outgoing};
use crate::os::failpoint::hit;
use crate::protocol::restart::RestartHistory;
use crate::settings::model::ModelChoice;
use crate::store::{Liveness, liveness, roster};
use crate::tools::{SpawnOrder, ToolError, find_by_alias};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const USE_OURS: &str = "leave model out to use the lead's";

/// How long a spawn waits for the cleanup after the last process of the name.
const REAPED_WITHIN: Duration = Duration::from_secs(5);

impl Supervisor {
    pub(super) async fn spawn(self: &Rc<Self>, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        if self.is_closing.get() {
            return Err(ToolError::Reply(
                "the team is being stopped; nobody can be spawned".into(),
            ));
        }
        self.check_terms(&order)?;
        // A spawn does not wait for the pause before a restart.
        self.members.cancel_restart(&name);
        loop {
            self.members.wait_started(&name).await;
            if let Liveness::Alive(_) = probe(&self.config.bus, &name)? {
                return self.give_new_prompt(order).await;
            }
            if !self.members.is_unreaped(&name) {
                break;
            }
            let names = [name.clone()];
            let reaped = tokio::time::timeout(REAPED_WITHIN, self.members.wait_reaped(&names));
            reaped.await.map_err(|_| {
                ToolError::Reply(format!("the last process of {name} is still ending; try again"))
            })?;
        }
        self.check_caps()?;
        self.spawned.set(self.spawned.get() + 1);
        self.members.with_history(&name, |history| *history = RestartHistory::default());
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

    /// Gives a living member the prompt if it is idle.
    async fn give_new_prompt(&self, order: SpawnOrder) -> Result<String, ToolError> {
        let name = order.name.clone();
        let roster =
            roster::read(self.config.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
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

    /// Changes the role of an idle member. Its own process tells its model.
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
        let bus = Arc::clone(&self.config.bus);
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

    /// Returns the ordered mode, else the stricter of the role's and the lead's, else the lead's.
    fn mode_for(&self, order: &SpawnOrder) -> PermissionMode {
        let ours = self.config.permissions.borrow().mode;
        let role = || {
            self.config.bus.dir().role(&order.role, find_by_alias).and_then(|file| file.role.mode)
        };
        order.mode.or_else(|| role().map(|mode| mode.min(ours))).unwrap_or(ours)
    }

    /// Returns the ordered model, else the role's, else the lead's, and a note if the role's cannot be used.
    fn model_for(&self, order: &SpawnOrder) -> (String, String) {
        let ours = || self.config.model.clone();
        if let Some(model) = &order.model {
            return (model.clone(), String::new());
        }
        let role = self.config.bus.dir().role(&order.role, find_by_alias);
        let Some(model) = role.and_then(|file| file.role.model) else {
            return (ours(), String::new());
        };
        let why = match ModelChoice::parse(&model) {
            Ok(chosen) if self.config.credentials.reach(&chosen) => return (model, String::new()),
            Ok(_) => "there are no credentials for it".into(),
            Err(why) => why.what,
        };
        (ours(), format!(" Its role asks for {model}, which is not used: {why}."))
    }

    fn check_terms(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let mine = self.config.permissions.borrow().mode;
        if let Some(mode) = order.mode.filter(|mode| *mode > mine) {
            return Err(ToolError::Reply(format!(
                "mode {mode} is looser than the lead's ({mine}), which only the user can change; \
                 leave mode out, or give a stricter one"
            )));
        }
        if let Some(model) = &order.model {
            let chosen = ModelChoice::parse(model)
                .map_err(|why| ToolError::Reply(format!("{}; {USE_OURS}", why.what)))?;
            if !self.config.credentials.reach(&chosen) {
                return Err(ToolError::Reply(format!(
                    "there are no credentials for {model}; {USE_OURS}"
                )));
            }
        }
        Ok(())
    }

    fn check_caps(&self) -> Result<(), ToolError> {
        let max = self.config.max_teammates;
        let roster =
            roster::read(self.config.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
        let living = roster
            .members
            .iter()
            .filter_map(|member| AgentName::member(&member.name).ok())
            .filter(|name| matches!(probe(&self.config.bus, name), Ok(Liveness::Alive(_))))
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

    /// Starts a process and the task that reaps it. Returns its pid.
    pub(super) async fn launch(self: &Rc<Self>, spec: &SpawnSpec) -> Result<i32, StartError> {
        let name = spec.name.clone();
        self.members.begin_start(&name);
        let started = match start::start(&self.config, spec).await {
            Ok(started) => started,
            Err(why) => {
                self.members.start_failed(&name);
                return Err(why);
            }
        };
        let incarnation = started.incarnation;
        let child = Child { incarnation: incarnation.clone(), _lifeline: started.lifeline };
        self.members.started(&name, child);
        hit("spawn.registered");
        let life = StartedLife { name, incarnation, since: self.config.clock.monotonic() };
        let supervisor = Rc::clone(self);
        self.exit_hooks.send_modify(|count| *count += 1);
        tokio::task::spawn_local(async move { supervisor.reap(life, started.process).await });
        Ok(started.pid)
    }
}

fn probe(bus: &Bus, name: &AgentName) -> Result<Liveness, ToolError> {
    liveness::probe(bus.dir(), name).map_err(|why| ToolError::Reply(why.to_string()))
}

fn spawn_failed(name: &AgentName, why: &StartError) -> String {
    format!("{name} could not be started: {why}; try again or go on without it")
}
