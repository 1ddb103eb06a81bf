//! A teammate on another host: the lead orders its start, and the supervisor of that host carries it out.

use super::clones_elsewhere::{ClonesElsewhere, TransferError};
use super::host_orders::{HostChoice, OrderFailure, TRANSPORT_WITHIN, choose_host, give};
use super::supervisor::{Supervisor, SupervisorRole};
use crate::protocol::ladder::Urgency;
use crate::store::relay::{self, order_id};
use crate::store::{asynchronous::offload, roster};
use crate::tools::{SpawnOrder, ToolError};
use crate::wire::carried::HostName;
use crate::wire::host_order::{CloneStart, Order, OrderAnswer, SpawnThere};
use crate::wire::isolation::{ClonePlace, Isolation};
use crate::wire::limits::{AGENT_READY_TIMEOUT, READY_TIMEOUT};
use crate::wire::roster::{Roster, StartedBy};
use crate::wire::{AgentName, roster::OtherHome};
use crate::work::elsewhere::is_cloneable;
use std::rc::Rc;
use std::time::Duration;

/// The time that the other host has beside the start itself, for example to make a clone.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

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

/// The noted clone of a teammate that is about to start on another host.
struct StartingWork {
    start: CloneStart,
    /// The clone that was noted before.
    before: Option<ClonePlace>,
    name: AgentName,
    clones: ClonesElsewhere,
}

/// The name of a teammate whose start on another host is under way. No other start of the name begins meanwhile.
struct StartingName<'a> {
    supervisor: &'a Supervisor,
    name: String,
}

impl Drop for StartingName<'_> {
    fn drop(&mut self) {
        self.supervisor.names_elsewhere.borrow_mut().remove(&self.name);
    }
}

/// Makes the note of a clone as it was: there was no start.
async fn restore_note(work: Option<StartingWork>) {
    let Some(StartingWork { before, name, clones, .. }) = work else { return };
    let undone = match before {
        Some(place) => clones.note(&name, place).await,
        None => clones.forget(&name).await.map_err(TransferError::from),
    };
    if let Err(why) = undone {
        tracing::warn!(%name, %why, "the note of a clone stays");
    }
}

impl Supervisor {
    /// Returns the clones on other hosts; `None` if there is no folder for what is known of them.
    pub(super) fn clones_elsewhere(&self) -> Option<ClonesElsewhere> {
        Some(ClonesElsewhere {
            dir: self.config.bus.dir().clone(),
            clock: Rc::clone(&self.config.clock),
            clones: self.config.clones.folder.clone()?,
            environment: self.config.environment.clone(),
            base: self.config.clones.base,
            by: AgentName::lead(),
        })
    }

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
        let _name = self.begin_elsewhere(&order.name)?;
        let work = self.send_work_for(&host, &order).await?;
        if self.is_closing.get() {
            restore_note(work).await;
            return Err(ToolError::reply("the team is stopping, so no teammate can be spawned"));
        }
        let SpawnOrder { name, role, prompt, message_id, model, mode, isolation, .. } = order;
        let id = order_id(&message_id);
        let clone = work.as_ref().map(|work| work.start.clone());
        let spawn = Order::Spawn(Box::new(SpawnThere {
            sent_keys: Vec::new(),
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
            clone,
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
            Ok(OrderAnswer::Spawned { text, has_clone }) => {
                if !has_clone {
                    restore_note(work).await;
                }
                self.wait_until_known(&name, &host).await;
                self.elsewhere.borrow_mut().insert(name.to_string());
                tracing::info!(%name, %host, "teammate spawned on another host");
                let how = if has_clone {
                    "its clone has the files of the workspace as they are now, and what it saves comes back"
                } else if self.clone_elsewhere(&name).is_some() {
                    "what it saves in its clone there comes back"
                } else {
                    "send it text"
                };
                Ok(format!(
                    "{text} It is on host {host}, which shares no files with this one: {how}."
                ))
            }
            Ok(answer) => {
                restore_note(work).await;
                Err(refused(answer.refusal()))
            }
            Err(why @ OrderFailure::Unanswered { .. }) => Err(ToolError::Reply(format!(
                "{why}; list_teammates says whether {name} runs there after all"
            ))),
            Err(why) => {
                restore_note(work).await;
                Err(refused(why.to_string()))
            }
        }
    }

    /// Begins with the start of a name on another host.
    fn begin_elsewhere(&self, name: &AgentName) -> Result<StartingName<'_>, ToolError> {
        self.check_not_starting_elsewhere(name)?;
        self.names_elsewhere.borrow_mut().insert(name.to_string());
        Ok(StartingName { supervisor: self, name: name.to_string() })
    }

    /// Fails if the start of a name on another host is under way.
    pub(super) fn check_not_starting_elsewhere(&self, name: &AgentName) -> Result<(), ToolError> {
        if self.names_elsewhere.borrow().contains(name.as_str()) {
            let why = format!("{name} is being started on another host; wait for that");
            return Err(ToolError::Reply(why));
        }
        Ok(())
    }

    /// Sends the files of the workspace for the clone of a teammate that is about to start on another host, and notes the clone.
    /// `None` if it is running, is to work in a folder of that host, or there is no repository to clone.
    async fn send_work_for(
        &self,
        host: &HostName,
        order: &SpawnOrder,
    ) -> Result<Option<StartingWork>, ToolError> {
        let name = &order.name;
        if order.isolation == Some(Isolation::Shared) {
            return Ok(None);
        }
        let roster = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        // A life lock alone tells nothing here: it may be that of a host which was given up a moment ago, or of a command.
        let home = roster.home_of(name.as_str()).filter(|home| !home.is_given_up);
        let runs_there = home.is_some_and(|home| home.is_alive && home.host == host.as_str());
        let is_over = roster.member(name.as_str()).is_none_or(|member| member.status.is_over());
        if runs_there && !is_over {
            return Ok(None);
        }
        let Some(clones) = self.clones_elsewhere() else { return Ok(None) };
        if let Some(place) = self.known_clone(name) {
            return Err(ToolError::Reply(format!(
                "{name} has a clone with its work on this host, {}; leave host out, or ask the user to give the clone up \
                 with `team work drop {name}`",
                place.path
            )));
        }
        let (workspace, environment) =
            (clones.dir.workspace().to_owned(), clones.environment.clone());
        let folder = workspace.clone();
        let is_cloneable = offload(move || is_cloneable(&folder, &environment)).await;
        if !is_cloneable.map_err(ToolError::reply)? {
            return Ok(None);
        }
        let before = clones.known(name);
        if let Some((_, earlier)) = before.as_ref().filter(|(_, earlier)| earlier != host)
            && !self.is_given_up(earlier)?
        {
            return Err(ToolError::Reply(format!(
                "{name} has a clone with its work on {earlier}; start it there (host {earlier}), or ask the user to remove the \
                 clone with `team work drop {name}`"
            )));
        }
        let before = before.map(|(place, _)| place);
        let (start, place) = clones.send_start(host, name).await.map_err(|why| {
            let hint = match &why {
                TransferError::Order(_) => "; try again, or choose another host",
                // These say it themselves.
                TransferError::Work(_)
                | TransferError::Refused(_)
                | TransferError::Dropped(_)
                | TransferError::Here(_) => "",
            };
            ToolError::Reply(format!(
                "{name} was not started on {host}: its files could not be sent: {why}{hint}"
            ))
        })?;
        // Without the note, its work would not be collected if this process is killed.
        clones.note(name, place).await.map_err(ToolError::reply)?;
        Ok(Some(StartingWork { start, before, name: name.clone(), clones }))
    }

    fn is_given_up(&self, host: &HostName) -> Result<bool, ToolError> {
        let known = relay::known_hosts(self.config.bus.dir()).map_err(ToolError::reply)?;
        Ok(known.iter().any(|known| known.host == *host && known.is_given_up))
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
