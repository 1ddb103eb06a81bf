//! Who is on the team, each roster entry joined with what is really so: life, signs of life.
//!
//! Knows nothing of mail: the caller counts it.

use crate::os::uptime;
use crate::store::beat::{self, Beat};
use crate::store::{Life, TeamDir, life, roster};
use crate::wire::roster::{Lead, Member, Roster, Status, UsageCount};
use crate::wire::{AgentName, Timestamp};

/// One agent, its roster entry joined with what is really so.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seat {
    /// Its name.
    pub(crate) name: String,
    /// Its colour word; the lead has none.
    pub(crate) color: String,
    /// What it is for.
    pub(crate) role: String,
    /// What it does, as far as it lives.
    pub(crate) status: Status,
    /// Whether its life lock is held.
    pub(crate) alive: bool,
    /// Since when the status holds.
    pub(crate) since: Timestamp,
    /// The tool or phase it is in.
    pub(crate) activity: Option<String>,
    /// What it has used.
    pub(crate) usage: UsageCount,
    /// `provider/name` of its model.
    pub(crate) model: String,
    /// Messages that nobody has taken in.
    pub(crate) unread: usize,
    /// Its process, while it lives.
    pub(crate) pid: Option<i32>,
    /// Its last sign of life, while it owes one.
    pub(crate) sign: Option<Sign>,
    /// How its last process ended.
    pub(crate) ended: Option<String>,
}

impl Seat {
    /// Tokens read and written.
    pub(crate) fn tokens(&self) -> u64 {
        self.usage.input_tokens.saturating_add(self.usage.output_tokens)
    }
}

/// What a busy agent last said about itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sign {
    /// What it does.
    pub(crate) state: String,
    /// Since when.
    pub(crate) since: Timestamp,
    /// How many seconds ago it said so.
    pub(crate) silent_for: f64,
}

/// The last sign of life of somebody who is busy.
fn sign_of(team: &TeamDir, name: &AgentName, incarnation: &str, status: Status) -> Option<Sign> {
    let is_busy = matches!(status, Status::Working | Status::Waiting);
    let last = beat::read(team, name).ok().flatten().filter(|_| is_busy)?;
    let silent_for = (uptime() - last.uptime).max(0.0);
    let Beat { state, since, .. } = last;
    (last.incarnation == incarnation).then_some(Sign { state, since, silent_for })
}

/// Everybody on the roster; `unread` tells how much waits for whom.
pub(crate) fn seats(
    team: &TeamDir,
    roster: &Roster,
    mut unread: impl FnMut(&AgentName) -> usize,
) -> Vec<Seat> {
    let lead_life = life_of(team, &AgentName::lead());
    let mut seats = Vec::new();
    if let Some(lead) = &roster.lead {
        let seat = lead_seat(team, lead, lead_life.is_alive());
        seats.push(Seat { unread: unread(&AgentName::lead()), ..seat });
    }
    for member in &roster.members {
        // An entry with a name that cannot exist was written by somebody else; it reaches no path.
        if let Ok(name) = AgentName::member(&member.name) {
            let seat = member_seat(team, &name, member, &lead_life);
            seats.push(Seat { unread: unread(&name), ..seat });
        }
    }
    seats
}

fn life_of(team: &TeamDir, name: &AgentName) -> Life {
    life::probe(team, name).unwrap_or(Life::Dead)
}

fn lead_seat(team: &TeamDir, lead: &Lead, alive: bool) -> Seat {
    let status = if alive || lead.status.is_over() { lead.status } else { Status::Failed };
    Seat {
        name: "lead".into(),
        color: String::new(),
        role: "lead".into(),
        status,
        alive,
        since: lead.since,
        activity: lead.activity.clone(),
        usage: lead.usage,
        model: lead.model.clone(),
        unread: 0,
        pid: lead.pid.filter(|_| alive),
        sign: sign_of(team, &AgentName::lead(), &lead.incarnation, status).filter(|_| alive),
        ended: None,
    }
}

fn member_seat(team: &TeamDir, name: &AgentName, member: &Member, lead_life: &Life) -> Seat {
    let life = life_of(team, name);
    let status = roster::effective_status(member, &life, lead_life);
    let ended = member.last_exit.as_ref().map(|exit| match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("{}, signal {signal}", exit.cause.word()),
        (Some(code), None) => format!("{}, exit {code}", exit.cause.word()),
        (None, None) => exit.cause.word().to_owned(),
    });
    Seat {
        name: member.name.clone(),
        color: member.color.clone(),
        role: member.role.clone(),
        status,
        alive: life.is_alive(),
        since: member.since,
        activity: member.activity.clone(),
        usage: member.usage,
        model: member.model.clone(),
        unread: 0,
        pid: member.pid.filter(|_| life.is_alive()),
        sign: sign_of(team, name, &member.incarnation, status).filter(|_| life.is_alive()),
        ended,
    }
}
