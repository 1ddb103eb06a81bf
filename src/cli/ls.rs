//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

use super::args::Show;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, window};
use crate::store::tasks::TaskList;
use crate::store::{Fsync, TeamDir, peek, roster};
use crate::ui::roster::{RosterRow, roster_table};
use crate::ui::style::Palette;
use crate::view::{self, Seat};
use crate::wire::task::TaskStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
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
    let now = SystemClock.now();
    let held = held(team);
    let mut rows = Vec::new();
    for seat in seats(team)? {
        let mut row = RosterRow::of(&seat, now);
        if let Some(tasks) = held.get(&seat.name).filter(|_| seat.alive) {
            let doing = std::mem::take(&mut row.activity);
            let doing = if doing.is_empty() { doing } else { doing + ", " };
            row.activity = format!("{doing}task {}", tasks.join(", "));
        }
        rows.push(row);
    }
    Ok(roster_table(&rows, palette, width))
}

/// The tasks that are in progress, by owner. A list that cannot be read is `team task ls`'s to tell of.
fn held(team: &TeamDir) -> BTreeMap<String, Vec<String>> {
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = TaskList::of(team, Fsync::Never);
    if list.look().is_err() {
        return held;
    }
    let running = list.board().values().filter(|task| task.status == TaskStatus::InProgress);
    for task in running {
        if let Some(owner) = task.owner.clone() {
            held.entry(owner).or_default().push(task.id.to_string());
        }
    }
    held
}

fn seats(team: &TeamDir) -> Result<Vec<Seat>, Failure> {
    let roster = roster::read(team).map_err(store_failure)?;
    Ok(view::seats(team, &roster, |name| peek::count(team, name).unwrap_or_default()))
}

fn as_json(team: &TeamDir) -> Result<Value, Failure> {
    let held = held(team);
    let agents: Vec<Value> = seats(team)?
        .into_iter()
        .map(|seat| {
            let mut object = seat.entry;
            if let Value::Object(entry) = &mut object {
                entry.insert("status".into(), seat.status.word().into());
                entry.insert("alive".into(), seat.alive.into());
                entry.insert("unread".into(), seat.unread.into());
                entry.insert("pid".into(), json!(seat.pid));
                let tasks = held.get(&seat.name).filter(|_| seat.alive);
                entry.insert("tasks".into(), json!(tasks.cloned().unwrap_or_default()));
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
