//! A new lead looks at what an earlier one left behind (RELIABILITY 4), under its own life lock.

use super::stop::{StopOutcome, StopPlan, take_down_all};
use crate::bus::Bus;
use crate::os::{Clock, process_tree, uptime};
use crate::store::{LifeRecord, Liveness, StoreError, liveness, roster, unread};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, LastExit, StartedBy, Status};
use std::sync::Arc;
use std::time::Duration;

/// How long members of a dead lead may take to leave by themselves.
const LEAVING_WITHIN: Duration = crate::wire::limits::LEAD_LOSS_EXIT;

/// How the folder was before a new lead took its place in it.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// How an earlier lead stood on the roster.
    pub(crate) lead: Option<Status>,
    /// What the commands of that lead carry in their environment.
    pub(crate) run_id: Option<String>,
    /// The roster could not be read.
    pub(crate) was_damaged: bool,
}

/// What a new lead found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The roster could not be read and was rebuilt.
    pub(crate) was_damaged: bool,
    /// The earlier lead died without seeing its team out.
    pub(crate) lead_died: bool,
    /// Members whose process was gone though the roster said otherwise.
    pub(crate) ghosts: Vec<AgentName>,
    /// Members of a dead lead that were waited for or ended.
    pub(crate) left: Vec<AgentName>,
    /// Members started by hand, which stay.
    pub(crate) by_hand: Vec<AgentName>,
    /// What waits for those that had died, to be taken in by their next life.
    pub(crate) undelivered: Vec<(AgentName, usize)>,
}

impl Found {
    /// One line for the user; `None` when all was in order.
    pub(crate) fn summary(&self) -> Option<String> {
        let list = |names: &[AgentName]| {
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let mut parts = Vec::new();
        if self.was_damaged {
            parts.push(
                "its roster was damaged and was rebuilt (the bad one is kept as config.json.bad-N)"
                    .into(),
            );
        }
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
        for (name, count) in &self.undelivered {
            parts.push(format!("{count} undelivered for {name}"));
        }
        (!parts.is_empty()).then(|| format!("An earlier team was here: {}.", parts.join("; ")))
    }
}

/// Repairs the roster and sees members of a dead lead out.
pub(crate) async fn recover(
    bus: &Arc<Bus>,
    clock: &dyn Clock,
    takedown: &StopPlan,
    before: Before,
) -> Result<Found, StoreError> {
    let dir = bus.dir();
    let roster = roster::read(dir)?;
    let lead_died = before.lead.is_some_and(|status| !status.is_over());
    let was_damaged = before.was_damaged;
    let mut found = Found { was_damaged, lead_died, ..Found::default() };
    if let Some(run_id) = before.run_id.filter(|_| lead_died) {
        let stuck = process_tree::end_run(&run_id);
        tracing::info!(?stuck, "looked for commands of a dead lead");
    }
    let (mut leaving, mut dead) = (Vec::new(), Vec::new());
    for member in &roster.members {
        let Ok(name) = AgentName::member(&member.name) else { continue };
        match (liveness::probe(dir, &name)?, member.started_by) {
            (Liveness::Alive(_), StartedBy::Hand) => found.by_hand.push(name),
            (Liveness::Alive(_), StartedBy::Lead) => leaving.push(name),
            (Liveness::Dead, _) => dead.push(name),
        }
    }
    mark_dead(bus, clock, &dead, &mut found).await?;
    wait_exit(bus, clock, takedown, &leaving).await;
    // One that was about to die when it was looked at has written no end of its own.
    mark_dead(bus, clock, &leaving, &mut found).await?;
    leaving.retain(|name| !found.ghosts.contains(name));
    found.left = leaving;
    Ok(found)
}

/// Ends the commands of the dead, and writes down what became of those that could not do so themselves.
async fn mark_dead(
    bus: &Arc<Bus>,
    clock: &dyn Clock,
    dead: &[AgentName],
    found: &mut Found,
) -> Result<(), StoreError> {
    let dir = bus.dir();
    let roster = roster::read(dir)?;
    let mut ghosts = Vec::new();
    for name in dead {
        if liveness::probe(dir, name)?.is_alive() {
            continue;
        }
        if let Some(record) = liveness::last_record(dir, name)? {
            let stuck = process_tree::end_run(&record.run_id);
            tracing::info!(%name, ?stuck, "looked for commands of a dead member");
        }
        if roster.member(name.as_str()).is_none_or(|member| member.status.is_over()) {
            continue;
        }
        match unread::count(dir, name) {
            Ok(0) => {}
            Ok(count) => found.undelivered.push((name.clone(), count)),
            // What stands in its inbox's place blocks nobody else.
            Err(why) => tracing::warn!(%name, %why, "its mail cannot be counted"),
        }
        ghosts.push(name.to_string());
        found.ghosts.push(name.clone());
    }
    if ghosts.is_empty() {
        return Ok(());
    }
    let now = clock.now();
    super::write(bus, move |roster| {
        for member in roster.members.iter_mut().filter(|m| ghosts.contains(&m.name)) {
            let exit = LastExit { code: None, signal: None, cause: ExitCause::Crash, at: now };
            (member.status, member.activity, member.pid) = (Status::Failed, None, None);
            (member.since, member.last_exit) = (now, Some(exit));
        }
    })
    .await
}

/// Members of a dead lead notice its end by themselves; those that do not are taken down.
async fn wait_exit(bus: &Bus, clock: &dyn Clock, takedown: &StopPlan, leaving: &[AgentName]) {
    let began = clock.monotonic();
    let mut still = leaving.to_vec();
    loop {
        let waited = clock.monotonic().saturating_duration_since(began);
        let mut in_time = false;
        still.retain(|name| match liveness::probe(bus.dir(), name) {
            Ok(Liveness::Alive(record)) => {
                in_time |= waited.max(since_lead_lost(record.as_ref())) < LEAVING_WITHIN;
                true
            }
            Ok(Liveness::Dead) | Err(_) => false,
        });
        if still.is_empty() || !in_time {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let departures: Vec<StopOutcome> = take_down_all(takedown, still).await;
    for departure in departures {
        tracing::warn!(name = %departure.name, how = departure.words(), "left by force");
    }
}

/// How long ago a member saw its lead gone; nothing when it has not noticed yet, as far as it says.
fn since_lead_lost(record: Option<&LifeRecord>) -> Duration {
    let lost = record.and_then(|record| record.lead_lost);
    lost.map(|lost| uptime().since(lost)).unwrap_or_default()
}
