//! A new lead looks at what an earlier one left behind (RELIABILITY 4), under its own life lock.

use super::takedown::{Departure, Takedown, take_down_all};
use crate::bus::Bus;
use crate::os::{Clock, descendants};
use crate::store::{Life, StoreError, life, roster};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, LastExit, StartedBy, Status};
use std::time::Duration;

/// How long members of a dead lead may take to leave by themselves.
const LEAVING_WITHIN: Duration = Duration::from_secs(35);

/// What a new lead found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The earlier lead died without seeing its team out.
    pub(crate) lead_died: bool,
    /// Members whose process was gone though the roster said otherwise.
    pub(crate) ghosts: Vec<AgentName>,
    /// Members of a dead lead that were waited for or ended.
    pub(crate) left: Vec<AgentName>,
    /// Members started by hand, which stay.
    pub(crate) by_hand: Vec<AgentName>,
}

impl Found {
    /// One line for the user; `None` when all was in order.
    pub(crate) fn summary(&self) -> Option<String> {
        let list = |names: &[AgentName]| {
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let mut parts = Vec::new();
        if self.lead_died {
            parts.push("its lead had died".into());
        }
        if !self.ghosts.is_empty() {
            parts.push(format!("{} had died", list(&self.ghosts)));
        }
        if !self.left.is_empty() {
            parts.push(format!("{} of an earlier lead ended", list(&self.left)));
        }
        if !self.by_hand.is_empty() {
            parts.push(format!("{} (started by hand) stays", list(&self.by_hand)));
        }
        (!parts.is_empty()).then(|| format!("An earlier team was here: {}.", parts.join("; ")))
    }
}

/// Repairs the roster and sees members of a dead lead out. `before` is how that lead stood on the
/// roster, if there was one.
pub(crate) async fn recover(
    bus: &Bus,
    clock: &dyn Clock,
    takedown: &Takedown,
    before: Option<Status>,
) -> Result<Found, StoreError> {
    let dir = bus.dir();
    let roster = roster::read(dir)?;
    let lead_died = before.is_some_and(|status| !status.is_over());
    let mut found = Found { lead_died, ..Found::default() };
    let mut leaving = Vec::new();
    for member in &roster.members {
        let Ok(name) = AgentName::member(&member.name) else { continue };
        match (life::probe(dir, &name)?, member.started_by) {
            (Life::Alive(_), StartedBy::Hand) => found.by_hand.push(name),
            (Life::Alive(_), StartedBy::Lead) => leaving.push(name),
            (Life::Dead, _) => {
                if let Some(record) = life::last_record(dir, &name)? {
                    let stuck = descendants::end_marked(&record.marker);
                    tracing::info!(%name, ?stuck, "looked for commands of a dead member");
                }
                if !member.status.is_over() {
                    found.ghosts.push(name);
                }
            }
        }
    }
    let ghosts: Vec<String> = found.ghosts.iter().map(ToString::to_string).collect();
    let now = clock.now();
    if !ghosts.is_empty() {
        roster::update(dir, bus.fsync(), |roster| {
            for member in roster.members.iter_mut().filter(|m| ghosts.contains(&m.name)) {
                let exit = LastExit { code: None, signal: None, cause: ExitCause::Crash, at: now };
                (member.status, member.activity, member.pid) = (Status::Failed, None, None);
                (member.since, member.last_exit) = (now, Some(exit));
            }
        })?;
    }
    found.left = see_out(bus, clock, takedown, leaving).await;
    Ok(found)
}

/// Members of a dead lead notice its end by themselves; those that do not are taken down.
async fn see_out(
    bus: &Bus,
    clock: &dyn Clock,
    takedown: &Takedown,
    leaving: Vec<AgentName>,
) -> Vec<AgentName> {
    let until = clock.monotonic() + LEAVING_WITHIN;
    let mut still = leaving.clone();
    loop {
        still.retain(|name| matches!(life::probe(bus.dir(), name), Ok(Life::Alive(_))));
        if still.is_empty() || clock.monotonic() >= until {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let departures: Vec<Departure> = take_down_all(takedown, still).await;
    for departure in departures {
        tracing::warn!(name = %departure.name, how = departure.how.words(), "left by force");
    }
    leaving
}
