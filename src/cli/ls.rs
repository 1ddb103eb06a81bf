//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

use super::args::Show;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, uptime, window};
use crate::store::beat::{self, Beat};
use crate::store::{Life, TeamDir, life, peek, roster};
use crate::ui::roster::{RosterRow, age, roster_table};
use crate::ui::style::{self, Palette};
use crate::wire::AgentName;
use crate::wire::roster::{Lead, Member, Status, UsageCount};
use serde_json::{Value, json};
use std::time::Duration;

/// How many seconds without a sign of life are worth mentioning; a busy agent gives one every five.
const WORTH_SAYING: f64 = 15.0;

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
    /// Its last sign of life, while it owes one.
    sign: Option<Sign>,
    /// How its last process ended.
    ended: Option<String>,
    entry: Value,
}

/// What a busy agent last said about itself.
struct Sign {
    /// What it does.
    state: String,
    /// Since when.
    since: f64,
    /// How many seconds ago it said so.
    silent_for: f64,
}

/// The last sign of life of somebody who is busy.
fn sign_of(team: &TeamDir, name: &AgentName, incarnation: &str, status: Status) -> Option<Sign> {
    let is_busy = matches!(status, Status::Working | Status::Waiting);
    let last = beat::read(team, name).ok().flatten().filter(|_| is_busy)?;
    let silent_for = (uptime() - last.uptime).max(0.0);
    let Beat { state, since, .. } = last;
    (last.incarnation == incarnation).then_some(Sign { state, since, silent_for })
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
        sign: sign_of(team, &AgentName::lead(), &lead.incarnation, status).filter(|_| alive),
        ended: None,
        entry: json!(lead),
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
        unread: peek::count(team, name).unwrap_or_default(),
        pid: member.pid.filter(|_| life.is_alive()),
        sign: sign_of(team, name, &member.incarnation, status).filter(|_| life.is_alive()),
        ended,
        entry: json!(member),
    }
}

fn row(seat: Seat) -> RosterRow {
    let ended = seat.ended.filter(|_| !seat.alive);
    let quiet = seat.sign.filter(|sign| sign.silent_for > WORTH_SAYING).map(|sign| {
        let silent = Duration::try_from_secs_f64(sign.silent_for).unwrap_or_default();
        format!("{}, no sign of life for {}", sign.state, age(silent))
    });
    let age = Duration::try_from_secs_f64(SystemClock.now() - seat.since).unwrap_or_default();
    RosterRow {
        activity: ended.or(quiet).or(seat.activity).unwrap_or_default(),
        name: seat.name,
        color: seat.color,
        role: seat.role,
        status: seat.status,
        life: if seat.alive { style::Life::Alive } else { style::Life::Dead },
        age,
        unread: seat.unread,
        tokens: seat.usage.tokens(),
        cached: seat.usage.cached_share(),
        cost: seat.usage.cost,
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
                let sign = seat.sign.as_ref();
                entry.insert("doing".into(), json!(sign.map(|sign| &sign.state)));
                entry.insert("doing_since".into(), json!(sign.map(|sign| sign.since)));
                entry.insert("silent_for".into(), json!(sign.map(|sign| sign.silent_for)));
            }
            object
        })
        .collect();
    let is_lead = |agent: &Value| agent.get("name").is_some_and(|name| name == "lead");
    let (lead, members): (Vec<Value>, Vec<Value>) = agents.into_iter().partition(is_lead);
    let lead = lead.into_iter().next();
    let used = roster::read(team).map_err(store_failure)?.used();
    Ok(json!({
        "schema": 1,
        "used": used,
        "team": team.root().display().to_string(),
        "lead": lead,
        "members": members,
    }))
}
