//! A teammate on another host: the lead orders its start, and the supervisor of that host carries it out.

use super::host_orders::{HostChoice, OrderFailure, TRANSPORT_WITHIN, choose_host, give};
use super::supervisor::{Supervisor, SupervisorRole};
use crate::protocol::ladder::Urgency;
use crate::store::relay::{self, order_id};
use crate::store::{asynchronous::offload, roster};
use crate::tools::{SpawnOrder, ToolError};
use crate::wire::carried::HostName;
use crate::wire::host_order::{Order, OrderAnswer, SpawnThere};
use crate::wire::limits::{AGENT_READY_TIMEOUT, READY_TIMEOUT};
use crate::wire::roster::{Roster, StartedBy};
use crate::wire::{AgentName, roster::OtherHome};
use std::time::Duration;

/// The time that the other host has beside the start itself, for example to make a clone.
const PREPARED_WITHIN: Duration = Duration::from_secs(20);

/// The time in which an agent that has started on another host is on the roster of this one.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// A start on another host that is awaited, as long as this value lives.
struct StartingElsewhere<'a>(&'a Supervisor);

impl<'a> StartingElsewhere<'a> {
    fn begin(supervisor: &'a Supervisor) -> Self {
        supervisor.starting_elsewhere.send_modify(|count| *count += 1);
        Self(supervisor)
    }
}

impl Drop for StartingElsewhere<'_> {
    fn drop(&mut self) {
        self.0.starting_elsewhere.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Supervisor {
    /// Returns the host on which an ordered teammate runs or is to run, if it is another one. Without a word for it, that is the
    /// one that the name belongs to.
    pub(super) async fn host_for(
        &self,
        order: &SpawnOrder,
        roster: &Roster,
    ) -> Result<Option<HostName>, ToolError> {
        if matches!(self.config.role, SupervisorRole::Host) {
            return Ok(None);
        }
        let (dir, name) = (self.config.bus.dir(), &order.name);
        // The name of a host that was given up is free.
        let home = roster.home_of(name.as_str()).filter(|home| !home.is_given_up);
        let Some(word) = &order.host else {
            return Ok(home.and_then(|home| HostName::parse(&home.host).ok()));
        };
        let chosen = choose_host(dir, word).await.map_err(ToolError::reply)?;
        let chosen_name = match &chosen {
            HostChoice::Here => None,
            HostChoice::Other(host) => Some(host.as_str()),
        };
        let runs_on = |host: &str| {
            ToolError::Reply(format!(
                "{name} runs on {host}; shut it down first to start it elsewhere, or leave host out"
            ))
        };
        if let Some(OtherHome { host, is_alive, is_away, .. }) = home
            && chosen_name != Some(&*host)
        {
            if is_alive {
                return Err(runs_on(&host));
            }
            if is_away {
                return Err(ToolError::Reply(format!(
                    "{name} belongs to {host}, which is away: it may run there; choose another name, or leave host out"
                )));
            }
        } else if chosen_name.is_some()
            && roster.host_of(name.as_str()).is_none()
            && self.is_alive(name)?
        {
            return Err(runs_on("this host"));
        }
        Ok(match chosen {
            HostChoice::Here => None,
            HostChoice::Other(host) => Some(host),
        })
    }

    /// Orders the start of a teammate on another host, or a new prompt for one that is idle there.
    pub(super) async fn spawn_on_host(
        &self,
        host: HostName,
        order: SpawnOrder,
        role_has_file: bool,
    ) -> Result<String, ToolError> {
        let SpawnOrder { name, role, prompt, message_id, model, mode, isolation, host: _ } = order;
        let id = order_id(&message_id);
        let spawn = Order::Spawn(Box::new(SpawnThere {
            name: name.to_string(),
            role,
            role_has_file,
            prompt,
            message_id,
            model,
            model_of_lead: self.config.model.borrow().clone(),
            mode_of_lead: self.config.permissions.borrow().mode,
            mode,
            isolation,
        }));
        let _starting = StartingElsewhere::begin(self);
        let within = READY_TIMEOUT.max(AGENT_READY_TIMEOUT) + PREPARED_WITHIN + TRANSPORT_WITHIN;
        let answer =
            give(self.config.bus.dir(), &host, (id, spawn), (&*self.config.clock, within)).await;
        let refused = |why: String| {
            ToolError::Reply(format!(
                "{name} was not started on {host}: {why}; try again, choose another host, or go on without it"
            ))
        };
        match answer {
            Ok(OrderAnswer::Spawned { text }) => {
                self.wait_until_known(&name, &host).await;
                self.elsewhere.borrow_mut().insert(name.to_string());
                tracing::info!(%name, %host, "teammate spawned on another host");
                Ok(format!(
                    "{text} It is on host {host}, which shares no files with this one: send it text, or commits."
                ))
            }
            Ok(OrderAnswer::Refused { why }) => Err(refused(why)),
            Ok(OrderAnswer::Stopped { .. }) => {
                Err(refused("its answer is for another order".into()))
            }
            Err(why @ OrderFailure::Unanswered { .. }) => Err(ToolError::Reply(format!(
                "{why}; list_teammates says whether {name} runs there after all"
            ))),
            Err(why) => Err(refused(why.to_string())),
        }
    }

    /// Waits for the starts on other hosts that are under way, unless the team is stopped without requests.
    pub(super) async fn wait_started_elsewhere(&self) {
        let mut starting = self.starting_elsewhere.subscribe();
        let mut urgency = self.urgency.subscribe();
        tokio::select! {
            _ = starting.wait_for(|count| *count == 0) => {}
            _ = urgency.wait_for(|urgency| *urgency > Urgency::Polite) => {}
        }
    }

    /// Waits until the roster of this host has an agent that has started on another one, so that it can be written to.
    async fn wait_until_known(&self, name: &AgentName, host: &HostName) {
        let dir = self.config.bus.dir().clone();
        let known = async {
            loop {
                let (dir, name) = (dir.clone(), name.clone());
                let home = offload(move || roster::read(&dir).ok()?.home_of(name.as_str())).await;
                if home.is_some_and(|home| home.is_alive && home.host == host.as_str()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(KNOWN_WITHIN, known).await.is_err() {
            tracing::warn!(%name, %host, "a teammate of another host is not on the roster yet");
        }
    }

    /// Returns the living teammates on other hosts that a lead has ordered.
    pub(super) fn on_other_hosts(&self) -> Vec<AgentName> {
        let dir = self.config.bus.dir();
        if !matches!(relay::identity(dir), Ok(Some(_))) {
            return Vec::new();
        }
        let Ok(roster) = roster::read(dir) else { return Vec::new() };
        let ordered = roster.members.iter().filter(|member| {
            member.host.is_some()
                && !member.given_up
                && (member.alive == Some(true) || !member.status.is_over())
                && member.started_by == StartedBy::Lead
        });
        ordered.filter_map(|member| AgentName::member(&member.name).ok()).collect()
    }
}
