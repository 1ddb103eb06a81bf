//! The agents of a team: the entries of the roster with the state of their life locks and heartbeats.

use crate::os::uptime;
use crate::store::heartbeat::{self, Heartbeat};
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::wire::roster::{Lead, Member, Roster, Status, UsageCount};
use crate::wire::{AgentName, WallTime};
use serde::Serialize;
use serde_json::{Value, json};

/// One agent: its roster entry, corrected by its life lock and its heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MemberView {
    pub(crate) name: String,
    pub(crate) color: String,
    pub(crate) role: String,
    pub(crate) status: Status,
    pub(crate) alive: bool,
    pub(crate) since: WallTime,
    pub(crate) activity: Option<String>,
    pub(crate) usage: UsageCount,
    pub(crate) model: String,
    pub(crate) unread: usize,
    pub(crate) pid: Option<i32>,
    /// Its last heartbeat, while it is busy.
    #[serde(skip)]
    pub(crate) sign: Option<Sign>,
    /// The end of its last process, for people.
    pub(crate) ended: Option<String>,
    #[serde(skip)]
    pub(crate) entry: Value,
}

/// The last heartbeat of a busy agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sign {
    /// Its activity.
    pub(crate) state: String,
    /// The start of the activity.
    pub(crate) since: WallTime,
    /// The age of the heartbeat, in seconds.
    pub(crate) silent_for: f64,
}

/// All agents of the roster, the lead first; `unread` counts the mail of one.
pub(crate) fn members(
    team: &TeamDir,
    roster: &Roster,
    unread: impl Fn(&AgentName) -> usize,
) -> Vec<MemberView> {
    let lead_life = life_of(team, &AgentName::lead());
    let mut members = Vec::new();
    if let Some(lead) = &roster.lead {
        members.push(lead_view(team, lead, lead_life.is_alive()));
    }
    for member in &roster.members {
        // An invalid name was written by another program; it must not become part of a path.
        if let Ok(name) = AgentName::member(&member.name) {
            members.push(member_view(team, &name, member, &lead_life));
        }
    }
    for member in &mut members {
        member.unread =
            AgentName::mailbox(&member.name).map(|name| unread(&name)).unwrap_or_default();
    }
    members
}

/// The last heartbeat of a busy agent.
fn sign_of(team: &TeamDir, name: &AgentName, incarnation: &str, status: Status) -> Option<Sign> {
    let is_busy = matches!(status, Status::Working | Status::Waiting);
    let last = heartbeat::read(team, name).ok().flatten().filter(|_| is_busy)?;
    let silent_for = uptime().since(last.uptime).as_secs_f64();
    let Heartbeat { state, since, .. } = last;
    (last.incarnation == incarnation).then_some(Sign { state, since, silent_for })
}

fn life_of(team: &TeamDir, name: &AgentName) -> Liveness {
    liveness::probe(team, name).unwrap_or(Liveness::Dead)
}

fn lead_view(team: &TeamDir, lead: &Lead, alive: bool) -> MemberView {
    let status = if alive || lead.status.is_over() { lead.status } else { Status::Failed };
    MemberView {
        name: "lead".into(),
        color: String::new(),
        role: "lead".into(),
        status,
        alive,
        since: lead.since,
        activity: lead.activity.as_ref().map(ToString::to_string),
        usage: lead.usage,
        model: lead.model.clone(),
        unread: 0,
        pid: lead.pid.filter(|_| alive),
        sign: sign_of(team, &AgentName::lead(), &lead.incarnation, status).filter(|_| alive),
        ended: None,
        entry: json!(lead),
    }
}

fn member_view(
    team: &TeamDir,
    name: &AgentName,
    member: &Member,
    lead_life: &Liveness,
) -> MemberView {
    let life = life_of(team, name);
    let status = roster::effective_status(member, &life, lead_life);
    let ended = member.last_exit.as_ref().map(|exit| match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("{}, signal {signal}", exit.cause.word()),
        (Some(code), None) => format!("{}, exit {code}", exit.cause.word()),
        (None, None) => exit.cause.word().to_owned(),
    });
    MemberView {
        name: member.name.clone(),
        color: member.color.clone(),
        role: member.role.clone(),
        status,
        alive: life.is_alive(),
        since: member.since,
        activity: member.activity.as_ref().map(ToString::to_string),
        usage: member.usage,
        model: member.model.clone(),
        unread: 0,
        pid: member.pid.filter(|_| life.is_alive()),
        sign: sign_of(team, name, &member.incarnation, status).filter(|_| life.is_alive()),
        ended,
        entry: json!(member),
    }
}
