//! Spawning for the lead's model: a new teammate, or a new prompt for one that is idle.

use super::handshake::StartReason;
use super::roster_updates::{SpawnSpec, write};
use super::supervisor::Supervisor;
use crate::bus::Outgoing;
use crate::os::failpoint::hit;
use crate::protocol::restart::RestartHistory;
use crate::settings::model::ModelChoice;
use crate::store::{liveness, roster};
use crate::tools::{SpawnOrder, ToolError, find_by_alias};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const USE_OURS: &str = "leave model out to use the lead's";

/// How long a spawn waits for a working member to become idle: its report arrives shortly before its status.
const IDLE_AFTER_REPORT: Duration = Duration::from_secs(1);

/// How long a spawn waits for the cleanup after the last process of the name.
const REAPED_WITHIN: Duration = Duration::from_secs(5);

impl Supervisor {
    pub(super) async fn spawn_ordered(
        self: &Rc<Self>,
        order: SpawnOrder,
    ) -> Result<String, ToolError> {
        let name = order.name.clone();
        if self.is_closing.get() {
            return Err(ToolError::reply("the team is being stopped; nobody can be spawned"));
        }
        self.check_terms(&order)?;
        // A spawn does not wait for the pause before a restart.
        self.members.cancel_restart(&name);
        loop {
            self.members.wait_started(&name).await;
            if self.is_alive(&name)? {
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
        let (model, mode, unused) = self.choose(&order);
        let role = order.role.clone();
        let spec = SpawnSpec {
            name: name.clone(),
            role: role.clone(),
            model: model.clone(),
            mode,
            start_reason: StartReason::Spawned,
            after: None,
        };
        let pid = self.launch(&spec).await.map_err(|why| {
            let hint = "try again or go on without it";
            ToolError::Reply(format!("{name} could not be started: {why}; {hint}"))
        })?;
        self.deliver_prompt(order).await?;
        hit("spawn.prompted");
        tracing::info!(%name, pid, model, "teammate spawned");
        Ok(format!(
            "Spawned {name} ({role}) on {model}, pid {pid}. It has its prompt and is at work.{unused}"
        ))
    }

    /// Gives a living member the prompt if it is idle. Its own process tells its model of a changed role.
    async fn give_new_prompt(&self, order: SpawnOrder) -> Result<String, ToolError> {
        let (name, role) = (order.name.clone(), order.role.clone());
        let asked = self.config.clock.monotonic();
        let read = || roster::read(self.config.bus.dir()).map_err(ToolError::reply);
        let mut roster = read()?;
        while roster.member(name.as_str()).is_some_and(|member| member.status == Status::Working)
            && self.config.clock.monotonic().duration_since(asked) < IDLE_AFTER_REPORT
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
            roster = read()?;
        }
        let Some(member) = roster.member(name.as_str()) else {
            return Err(ToolError::Reply(format!(
                "a process holds the name {name} but is not on the roster; choose another name"
            )));
        };
        if member.status != Status::Idle {
            return Err(ToolError::Reply(format!(
                "{name} is {} and was not given the prompt; send it a message instead, or wait \
                 until it is idle",
                member.status.word()
            )));
        }
        if order.mode.is_some_and(|mode| member.mode != mode.word()) {
            return Err(ToolError::Reply(format!(
                "{name} is idle in another mode; shut it down first to start it in that one, or \
                 leave mode out"
            )));
        }
        let idle = name.clone();
        let note_role = write(&self.config.bus, move |roster| {
            if let Some(member) = roster.member_mut(idle.as_str()) {
                member.role = role;
            }
        });
        note_role.await.map_err(ToolError::reply)?;
        self.deliver_prompt(order).await?;
        Ok(format!("{name} was idle and has the new prompt (same process, same memory)."))
    }

    async fn deliver_prompt(&self, order: SpawnOrder) -> Result<(), ToolError> {
        let bus = Arc::clone(&self.config.bus);
        let SpawnOrder { name, prompt, message_id, .. } = order;
        let send = move || {
            let outgoing = Outgoing { id: Some(message_id), ..Outgoing::text(prompt) };
            bus.send(&AgentName::lead(), name.as_str(), outgoing)
        };
        let sent = tokio::task::spawn_blocking(send).await.map_err(ToolError::reply)?;
        sent.map(drop).map_err(ToolError::reply)
    }

    /// Returns the ordered model, else the role's, else the lead's; the ordered mode, else the stricter of
    /// the role's and the lead's; and a note if the role's model cannot be used.
    fn choose(&self, order: &SpawnOrder) -> (String, PermissionMode, String) {
        let role = self.config.bus.dir().role(&order.role, find_by_alias).map(|file| file.role);
        let ours = self.config.permissions.borrow().mode;
        let role_mode = role.as_ref().and_then(|role| role.mode).map(|mode| mode.min(ours));
        let mode = order.mode.or(role_mode).unwrap_or(ours);
        if let Some(model) = &order.model {
            return (model.clone(), mode, String::new());
        }
        let Some(model) = role.and_then(|role| role.model) else {
            return (self.config.model.clone(), mode, String::new());
        };
        let why = match ModelChoice::parse(&model) {
            Ok(chosen) if self.config.credentials.reach(&chosen) => {
                return (model, mode, String::new());
            }
            Ok(_) => "there are no credentials for it".into(),
            Err(why) => why.what,
        };
        let note = format!(" Its role asks for {model}, which is not used: {why}.");
        (self.config.model.clone(), mode, note)
    }

    fn check_terms(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let mine = self.config.permissions.borrow().mode;
        if let Some(mode) = order.mode.filter(|mode| *mode > mine) {
            return Err(ToolError::Reply(format!(
                "mode {mode} is looser than the lead's ({mine}), which only the user can change; \
                 leave mode out, or give a stricter one"
            )));
        }
        let Some(model) = &order.model else { return Ok(()) };
        let chosen = ModelChoice::parse(model)
            .map_err(|why| ToolError::Reply(format!("{}; {USE_OURS}", why.what)))?;
        if self.config.credentials.reach(&chosen) {
            return Ok(());
        }
        Err(ToolError::Reply(format!("there are no credentials for {model}; {USE_OURS}")))
    }

    fn check_caps(&self) -> Result<(), ToolError> {
        let (max, spawned) = (self.config.max_teammates, self.spawned.get());
        let roster = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        let names = roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok());
        let living = names.filter(|name| self.is_alive(name).unwrap_or(false)).count();
        if living >= max {
            return Err(ToolError::Reply(format!(
                "{living} teammates are alive and max_teammates is {max}; shut one down first"
            )));
        }
        if spawned >= max.saturating_mul(4) {
            return Err(ToolError::Reply(format!(
                "{spawned} teammates were started in this run, which is the most for max_teammates \
                 {max}; work with those that are there"
            )));
        }
        Ok(())
    }

    fn is_alive(&self, name: &AgentName) -> Result<bool, ToolError> {
        let probed = liveness::probe(self.config.bus.dir(), name);
        Ok(probed.map_err(ToolError::reply)?.is_alive())
    }
}
