//! The agents of a team: the entries of the roster with the state of their life locks and heartbeats.

use crate::os::{Clock, SystemClock, uptime};
use crate::store::heartbeat::{self, Heartbeat};
use crate::store::{Liveness, TeamDir, background, liveness, roster};
use crate::wire::activity::Activity;
use crate::wire::roster::{Member, Roster, Status, UsageCount};
use crate::wire::sandbox::SandboxEntry;
use crate::wire::{AgentName, WallTime};
use serde::Serialize;

/// One agent: its roster entry, corrected by its life lock and its heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MemberView {
    pub(crate) name: String,
    pub(crate) color: String,
    pub(crate) role: String,
    pub(crate) status: Status,
    pub(crate) alive: bool,
    pub(crate) since: WallTime,
    pub(crate) activity: Option<String>,
    /// The subagents that work for it, each a branch below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) subagents: Vec<SubagentView>,
    pub(crate) usage: UsageCount,
    pub(crate) model: String,
    pub(crate) unread: usize,
    pub(crate) pid: Option<i32>,
    /// The last heartbeat, while the agent is busy.
    #[serde(skip)]
    pub(crate) heartbeat: Option<LastHeartbeat>,
    /// The end of the last process, for people.
    pub(crate) ended: Option<String>,
    /// Whether the process is gone and nobody has handled that; the status is `failed` then.
    #[serde(skip)]
    pub(crate) found_dead: bool,
    /// The number of commands that it runs in the background.
    #[serde(skip)]
    pub(crate) background: usize,
    /// The host on which it runs; `None` if that is this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// The time since which its host is not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) away_since: Option<WallTime>,
    /// The walls around its commands, as it has published them.
    #[serde(skip)]
    pub(crate) sandbox: Option<SandboxEntry>,
}

impl MemberView {
    /// Whether its host is not heard, so that nobody knows whether it is still alive.
    pub(crate) fn is_away(&self) -> bool {
        self.alive && self.away_since.is_some()
    }
}

/// A subagent that works.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SubagentView {
    /// `CALLER:NUMBER`.
    pub(crate) id: String,
    pub(crate) doing: String,
}

/// The last heartbeat of a busy agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastHeartbeat {
    pub(crate) state: String,
    pub(crate) since: WallTime,
    /// The time since the heartbeat, or since the agent became busy if that was later, in seconds.
    pub(crate) silent_for: f64,
}

/// Returns all agents of the roster, the lead first; `unread` counts the mail of one agent.
pub(crate) fn members(
    team: &TeamDir,
    roster: &Roster,
    unread: impl Fn(&AgentName) -> usize,
) -> Vec<MemberView> {
    let liveness_of = |name: &AgentName| liveness::probe(team, name).unwrap_or(Liveness::Dead);
    let view_of = |name: &AgentName, member: &Member, status: Status, liveness: &Liveness| {
        let alive = liveness.is_alive();
        let is_here = alive && member.host.is_none();
        let is_busy = alive && matches!(status, Status::Working | Status::Waiting);
        let found_dead = status == Status::Failed && member.status != Status::Failed;
        let ended = member.last_exit.as_ref().map(|exit| match (exit.code, exit.signal) {
            (_, Some(signal)) => format!("{}, signal {signal}", exit.cause.word()),
            (Some(code), None) => format!("{}, exit {code}", exit.cause.word()),
            (None, None) => exit.cause.word().to_owned(),
        });
        // The recorded end is that of an earlier process.
        let ended = if found_dead { Some("its process is gone".to_owned()) } else { ended };
        MemberView {
            name: name.to_string(),
            color: member.color.clone(),
            role: member.role.clone(),
            status,
            alive,
            since: member.since,
            activity: member.activity.as_ref().map(ToString::to_string),
            subagents: subagents_of(name, member.activity.as_ref().filter(|_| alive)),
            usage: member.usage,
            model: member.model.clone(),
            unread: unread(name),
            pid: member.pid.filter(|_| alive),
            heartbeat: is_busy.then(|| heartbeat_of(team, name, member, status)).flatten(),
            ended,
            found_dead,
            background: if is_here { background::running(team, name).len() } else { 0 },
            host: member.host.clone(),
            away_since: member.away_since,
            sandbox: member.sandbox.clone(),
        }
    };
    let liveness_of = |name: &AgentName, there: Option<bool>| match there {
        // The last word of its host: the lock is that of the relay.
        Some(true) => Liveness::Alive(None),
        Some(false) => Liveness::Dead,
        None => liveness_of(name),
    };
    let of_lead = roster.lead.as_ref().and_then(|lead| lead.host.as_ref().and(lead.alive));
    let lead_liveness = liveness_of(&AgentName::lead(), of_lead);
    let lead = roster.lead.iter().map(|lead| {
        let is_gone = !lead_liveness.is_alive() && !lead.status.is_over();
        let status = if is_gone { Status::Failed } else { lead.status };
        let as_member = Member {
            role: "lead".into(),
            status: lead.status,
            activity: lead.activity.clone(),
            since: lead.since,
            pid: lead.pid,
            incarnation: lead.incarnation.clone(),
            model: lead.model.clone(),
            usage: lead.usage,
            sandbox: lead.sandbox.clone(),
            host: lead.host.clone(),
            away_since: lead.away_since,
            ..Member::default()
        };
        view_of(&AgentName::lead(), &as_member, status, &lead_liveness)
    });
    let members = roster.members.iter().filter_map(|member| {
        // An invalid name was written by another program; it must not become part of a path.
        let name = AgentName::member(&member.name).ok()?;
        let liveness = liveness_of(&name, member.host.as_ref().and(member.alive));
        let status = roster::effective_status(member, &liveness, &lead_liveness);
        Some(view_of(&name, member, status, &liveness))
    });
    lead.chain(members).collect()
}

fn subagents_of(name: &AgentName, activity: Option<&Activity>) -> Vec<SubagentView> {
    let all = activity.map(Activity::subagents).unwrap_or_default();
    let view = |(number, doing)| SubagentView { id: format!("{name}:{number}"), doing };
    all.into_iter().map(view).collect()
}

fn heartbeat_of(
    team: &TeamDir,
    name: &AgentName,
    member: &Member,
    status: Status,
) -> Option<LastHeartbeat> {
    let last = heartbeat::read(team, name).ok().flatten()?;
    if last.incarnation != member.incarnation {
        return None;
    }
    let (age, now) = (uptime().since(last.uptime).as_secs_f64(), SystemClock.now());
    let busy_for = now.since(member.since).as_secs_f64();
    // An idle agent writes no heartbeat, so the last one is of an earlier spell of work. After the wall clock was
    // set back, a start in the future says nothing.
    if busy_for < age && member.since <= now {
        let (state, since) = (status.word().to_owned(), member.since);
        return Some(LastHeartbeat { state, since, silent_for: busy_for });
    }
    let Heartbeat { state, since, .. } = last;
    Some(LastHeartbeat { state, since, silent_for: age })
}

#[cfg(test)]
impl MemberView {
    /// Returns a coder that has done nothing yet.
    pub(crate) fn sample(name: &str, status: Status) -> Self {
        Self {
            name: name.into(),
            color: "blue".into(),
            role: "coder".into(),
            status,
            alive: !status.is_over(),
            model: "rehearsal".into(),
            pid: Some(7),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::heartbeat::HeartbeatFile;
    use crate::store::liveness::{LifeLock, LifeRecord};
    use crate::view::testing::team_folder;
    use crate::wire::MachineTime;

    #[test]
    fn a_silence_begins_with_the_work_and_not_before_it() {
        let (_top, dir) = team_folder();
        let alice = AgentName::member("alice").unwrap();
        let _life = LifeLock::take(&dir, &alice, LifeRecord::default()).unwrap();
        let now = SystemClock.now();
        let ago = |seconds: f64| WallTime::from_secs(now.as_secs() - seconds);
        let shown = |heartbeat: f64, since: WallTime| {
            let last = Heartbeat {
                incarnation: "a".into(),
                count: 1,
                state: "llm".into(),
                since,
                limit: None,
                uptime: MachineTime::from_secs(uptime().as_secs() - heartbeat),
            };
            HeartbeatFile::open(&dir, &alice).unwrap().write(&last).unwrap();
            let (status, incarnation) = (Status::Working, "a".into());
            let member =
                Member { name: "alice".into(), status, incarnation, since, ..Member::default() };
            let roster = Roster { members: vec![member.into()], ..Roster::default() };
            members(&dir, &roster, |_| 0).remove(0).heartbeat.unwrap()
        };
        let fresh = shown(2700.0, now);
        assert!(fresh.silent_for < 2000.0 && fresh.state == "working", "{fresh:?}");
        let hung = shown(2700.0, ago(3600.0));
        assert!(hung.silent_for >= 2700.0 && hung.state == "llm", "{hung:?}");
        let never_beat = shown(9000.0, ago(3600.0));
        assert!((3600.0..9000.0).contains(&never_beat.silent_for), "{never_beat:?}");
        let after_a_clock_step = shown(2700.0, ago(-3600.0));
        assert!(after_a_clock_step.silent_for >= 2700.0, "{after_a_clock_step:?}");
    }
}
