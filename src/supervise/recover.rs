//! Recovery from the remains of an earlier lead (RELIABILITY 4), by a new lead that holds the life lock.

use super::commands::end_commands;
use super::members::MemberId;
use super::roster_updates;
use super::stop::{StopPlan, stop_in_parallel};
use crate::os::uptime;
use crate::store::asynchronous::offload;
use crate::store::{LifeRecord, Liveness, StoreError, liveness, roster, unread};
use crate::wire::AgentName;
use crate::wire::log_words;
use crate::wire::roster::{StartedBy, Status};
use std::sync::Arc;
use std::time::Duration;

/// The time that members of a dead lead have to exit by themselves.
const EXIT_WITHIN: Duration = crate::wire::limits::LEAD_LOSS_EXIT;

/// The state of the folder before the new lead wrote its entry.
#[derive(Debug, Default)]
pub(crate) struct EarlierTeam {
    pub(crate) lead: Option<Status>,
    /// Run id that the commands of that lead carry in their environment.
    pub(crate) run_id: Option<String>,
    /// Whether the roster could not be read, and was rebuilt.
    pub(crate) was_damaged: bool,
}

/// The findings of a new lead about an earlier team.
#[derive(Debug, Default)]
pub(crate) struct RecoveryReport {
    was_damaged: bool,
    /// Whether the earlier lead ended without stopping its team.
    lead_exited: bool,
    /// Members without a process whose entry showed no end.
    ghosts: Vec<AgentName>,
    /// Members of a dead lead that have exited or were stopped.
    left: Vec<AgentName>,
    /// Members started by hand, which continue to run.
    by_hand: Vec<AgentName>,
    /// Members that a lead has started on other hosts and that continue to run there.
    elsewhere: Vec<AgentName>,
    /// The number of unread messages of each dead member, which are kept for its next incarnation.
    undelivered: Vec<(AgentName, usize)>,
}

impl RecoveryReport {
    /// Describes the findings in one line for the user; `None` if there were none.
    pub(crate) fn summary(&self) -> Option<String> {
        let damage =
            "its roster was damaged and was rebuilt (the bad one is kept as config.json.bad-N)";
        let list = |names: &[AgentName], what: &str| {
            let words: Vec<&str> = names.iter().map(AgentName::as_str).collect();
            (!words.is_empty()).then(|| format!("{} {what}", words.join(", ")))
        };
        let parts = [
            self.was_damaged.then(|| damage.to_owned()),
            self.lead_exited.then(|| "its lead had exited without stopping it".to_owned()),
            list(&self.ghosts, "had exited"),
            list(&self.left, "of an earlier lead ended"),
            list(&self.by_hand, "(started by hand) is still running"),
            list(&self.elsewhere, "is still running on another host"),
        ];
        let mail = self.undelivered.iter().map(|(name, n)| format!("{n} undelivered for {name}"));
        let parts: Vec<String> = parts.into_iter().flatten().chain(mail).collect();
        (!parts.is_empty()).then(|| format!("An earlier team was here: {}.", parts.join("; ")))
    }
}

/// Repairs the roster, waits for the members of a dead lead, and stops those that do not exit.
pub(crate) async fn recover(
    stop: &StopPlan,
    EarlierTeam { lead, run_id, was_damaged }: EarlierTeam,
) -> Result<RecoveryReport, StoreError> {
    let dir = stop.bus.dir();
    let roster = roster::read(dir)?;
    let lead_exited = lead.is_some_and(|status| !status.is_over());
    let mut found = RecoveryReport { was_damaged, lead_exited, ..RecoveryReport::default() };
    if let Some(run_id) = run_id.filter(|_| lead_exited) {
        let bus = Arc::clone(&stop.bus);
        let end = move || end_commands(bus.dir(), &AgentName::lead(), &run_id, bus.fsync());
        let stuck = offload(end).await;
        tracing::info!(stuck = log_words::listed(stuck), "looked for commands of a dead lead");
    }
    let (mut leaving, mut dead) = (Vec::new(), Vec::new());
    for member in &roster.members {
        let Ok(name) = AgentName::member(&member.name) else { continue };
        // Its own host looks after it.
        if member.host.is_some() {
            if member.alive == Some(true) && member.started_by == StartedBy::Lead {
                found.elsewhere.push(name);
            }
            continue;
        }
        match (liveness::probe(dir, &name)?, member.started_by) {
            (Liveness::Alive(_), StartedBy::Hand) => found.by_hand.push(name),
            (Liveness::Alive(_), StartedBy::Lead) => leaving.push(name),
            (Liveness::Dead, _) => dead.push(name),
        }
    }
    mark_dead(stop, &dead, &mut found).await?;
    wait_exit(stop, &leaving).await;
    // A member that was killed just after the probe has recorded no end of its own.
    mark_dead(stop, &leaving, &mut found).await?;
    leaving.retain(|name| !found.ghosts.contains(name));
    found.left = leaving;
    Ok(found)
}

/// Kills the commands of dead members, and records the end of members that did not record it themselves.
async fn mark_dead(
    stop: &StopPlan,
    dead: &[AgentName],
    found: &mut RecoveryReport,
) -> Result<(), StoreError> {
    let dir = stop.bus.dir();
    let roster = roster::read(dir)?;
    let mut ghosts = Vec::new();
    for name in dead {
        if liveness::probe(dir, name)?.is_alive() {
            continue;
        }
        if let Some(record) = liveness::last_record(dir, name)? {
            let (bus, owner) = (Arc::clone(&stop.bus), name.clone());
            let end = move || end_commands(bus.dir(), &owner, &record.run_id, bus.fsync());
            let stuck = offload(end).await;
            tracing::info!(%name, stuck = log_words::listed(stuck), "looked for commands of a dead member");
        }
        let entry = roster.member(name.as_str()).filter(|member| !member.status.is_over());
        let Some(entry) = entry else { continue };
        match unread::count(dir, name) {
            Ok(0) => {}
            Ok(count) => found.undelivered.push((name.clone(), count)),
            // An unreadable inbox does not block the recovery of the others.
            Err(why) => tracing::warn!(%name, %why, "its mail cannot be counted"),
        }
        ghosts.push(MemberId { name: name.clone(), incarnation: entry.incarnation.clone() });
        found.ghosts.push(name.clone());
    }
    if ghosts.is_empty() {
        return Ok(());
    }
    let now = stop.clock.now();
    roster_updates::write(&stop.bus, move |roster| {
        for id in &ghosts {
            roster_updates::found_dead(roster, id, now);
        }
    })
    .await
}

/// Waits for the members of a dead lead to exit by themselves, and stops those that do not.
async fn wait_exit(stop: &StopPlan, leaving: &[AgentName]) {
    let began = stop.clock.monotonic();
    let mut still = leaving.to_vec();
    loop {
        let waited = stop.clock.monotonic().saturating_duration_since(began);
        let mut in_time = false;
        still.retain(|name| match liveness::probe(stop.bus.dir(), name) {
            Ok(Liveness::Alive(record)) => {
                in_time |= waited.max(since_lead_lost(record.as_ref())) < EXIT_WITHIN;
                true
            }
            Ok(Liveness::Dead) | Err(_) => false,
        });
        if still.is_empty() || !in_time {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for outcome in stop_in_parallel(stop, still).await {
        let words = outcome.words();
        tracing::warn!(name = %outcome.name, outcome = words, "stopped after its lead exited");
    }
}

/// Returns the time since a member noticed the end of its lead; zero if it has not noticed it yet.
fn since_lead_lost(record: Option<&LifeRecord>) -> Duration {
    let lost = record.and_then(|record| record.lead_lost);
    lost.map(|lost| uptime().since(lost)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_all_findings_in_one_line() {
        assert_eq!(RecoveryReport::default().summary(), None);
        let name = |name| AgentName::member(name).unwrap();
        let found = RecoveryReport {
            lead_exited: true,
            ghosts: vec![name("alice"), name("bob")],
            by_hand: vec![name("carol")],
            undelivered: vec![(name("bob"), 2)],
            ..RecoveryReport::default()
        };
        assert_eq!(
            found.summary().unwrap(),
            "An earlier team was here: its lead had exited without stopping it; alice, bob had \
             exited; carol (started by hand) is still running; 2 undelivered for bob."
        );
    }

    #[test]
    fn a_member_that_has_not_noticed_its_leads_death_has_the_whole_time() {
        assert_eq!(since_lead_lost(None), Duration::ZERO);
        let since =
            |lead_lost| since_lead_lost(Some(&LifeRecord { lead_lost, ..Default::default() }));
        assert_eq!(since(None), Duration::ZERO);
        let passed = Duration::from_secs(5);
        assert!(since(Some(uptime() - passed)) >= passed);
        // A record of an earlier boot names a later time.
        assert_eq!(since(Some(uptime() + Duration::from_secs(900))), Duration::ZERO);
    }
}
