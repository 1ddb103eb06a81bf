//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

use super::args::Show;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, window};
use crate::store::{Life, TeamDir, life, peek, roster};
use crate::ui::roster::{RosterRow, roster_table};
use crate::ui::style::{self, Palette};
use crate::wire::AgentName;
use crate::wire::roster::{Lead, Member, Status, UsageCount};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let team = context.team()?;
    let printed = if show.json {
        out::say_json(&as_json(&team)?)
    } else {
        let width = window::columns().unwrap_or(120);
        out::say(&table(&team, context.palette(), width)?)
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// The roster as people see it.
pub(super) fn table(team: &TeamDir, palette: Palette, width: usize) -> Result<String, Failure> {
    let rows: Vec<RosterRow> = seats(team)?.into_iter().map(row).collect();
    Ok(roster_table(&rows, palette, width))
}

/// One agent, its roster entry joined with what is really so.
struct Seat {
    name: String,
    color: String,
    role: String,
    status: Status,
    alive: bool,
    since: f64,
    activity: Option<String>,
    usage: UsageCount,
    model: String,
    unread: usize,
    pid: Option<i32>,
    /// How its last process ended.
    ended: Option<String>,
    entry: Value,
}

fn seats(team: &TeamDir) -> Result<Vec<Seat>, Failure> {
    let roster = roster::read(team).map_err(store_failure)?;
    let lead_life = life_of(team, &AgentName::lead());
    let mut seats = Vec::new();
    if let Some(lead) = &roster.lead {
        seats.push(lead_seat(team, lead, lead_life.is_alive()));
    }
    for member in &roster.members {
        // An entry with a name that cannot exist was written by somebody else; it reaches no path.
        if let Ok(name) = AgentName::member(&member.name) {
            seats.push(member_seat(team, &name, member, &lead_life));
        }
    }
    Ok(seats)
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
        unread: peek::count(team, &AgentName::lead()).unwrap_or_default(),
        pid: lead.pid.filter(|_| alive),
        ended: None,
        entry: json!(lead),
    }
}

fn member_seat(team: &TeamDir, name: &AgentName, member: &Member, lead_life: &Life) -> Seat {
    let life = life_of(team, name);
    let ended = member.last_exit.as_ref().map(|exit| match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("{}, signal {signal}", exit.cause.word()),
        (Some(code), None) => format!("{}, exit {code}", exit.cause.word()),
        (None, None) => exit.cause.word().to_owned(),
    });
    Seat {
        name: member.name.clone(),
        color: member.color.clone(),
        role: member.role.clone(),
        status: roster::effective_status(member, &life, lead_life),
        alive: life.is_alive(),
        since: member.since,
        activity: member.activity.clone(),
        usage: member.usage,
        model: member.model.clone(),
        unread: peek::count(team, name).unwrap_or_default(),
        pid: member.pid.filter(|_| life.is_alive()),
        ended,
        entry: json!(member),
    }
}

fn row(seat: Seat) -> RosterRow {
    let ended = seat.ended.filter(|_| !seat.alive);
    let age = Duration::try_from_secs_f64(SystemClock.now() - seat.since).unwrap_or_default();
    RosterRow {
        activity: ended.or(seat.activity).unwrap_or_default(),
        name: seat.name,
        color: seat.color,
        role: seat.role,
        status: seat.status,
        life: if seat.alive { style::Life::Alive } else { style::Life::Dead },
        age,
        unread: seat.unread,
        tokens: seat.usage.input_tokens.saturating_add(seat.usage.output_tokens),
        model: seat.model,
    }
}

fn as_json(team: &TeamDir) -> Result<Value, Failure> {
    let agents: Vec<Value> = seats(team)?
        .into_iter()
        .map(|seat| {
            let mut object = seat.entry;
            if let Value::Object(entry) = &mut object {
                entry.insert("status".into(), seat.status.word().into());
                entry.insert("alive".into(), seat.alive.into());
                entry.insert("unread".into(), seat.unread.into());
                entry.insert("pid".into(), json!(seat.pid));
            }
            object
        })
        .collect();
    let is_lead = |agent: &Value| agent.get("name").is_some_and(|name| name == "lead");
    let (lead, members): (Vec<Value>, Vec<Value>) = agents.into_iter().partition(is_lead);
    let lead = lead.into_iter().next();
    Ok(json!({
        "schema": 1,
        "team": team.root().display().to_string(),
        "lead": lead,
        "members": members,
    }))
}
