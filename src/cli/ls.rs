//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

use super::args::Show;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, terminal_size};
use crate::store::tasks::TaskList;
use crate::store::{Fsync, TeamDir, roster, unread};
use crate::ui::roster::{RosterRow, roster_table};
use crate::ui::style::Palette;
use crate::view::{self, MemberView};
use crate::wire::task::TaskStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) fn run(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let printed = if show.json {
        out::say_json(&as_json(&team)?)
    } else {
        let width = terminal_size::columns().unwrap_or(120);
        out::say(&table(&team, context.palette(), width)?)
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// The roster as people see it.
pub(super) fn table(team: &TeamDir, palette: Palette, width: usize) -> Result<String, Failure> {
    let now = SystemClock.now();
    let held = held(team);
    let mut rows = Vec::new();
    for member in member_views(team)? {
        let mut row = RosterRow::of(&member, now);
        if let Some(tasks) = held.get(&member.name).filter(|_| member.alive) {
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

fn member_views(team: &TeamDir) -> Result<Vec<MemberView>, Failure> {
    let roster = roster::read(team).map_err(store_failure)?;
    Ok(view::members(team, &roster, |name| unread::count(team, name).unwrap_or_default()))
}

fn as_json(team: &TeamDir) -> Result<Value, Failure> {
    let held = held(team);
    let agents: Vec<Value> = member_views(team)?
        .into_iter()
        .map(|member| {
            let mut object = member.entry;
            if let Value::Object(entry) = &mut object {
                entry.insert("status".into(), member.status.word().into());
                entry.insert("alive".into(), member.alive.into());
                entry.insert("unread".into(), member.unread.into());
                entry.insert("pid".into(), json!(member.pid));
                let tasks = held.get(&member.name).filter(|_| member.alive);
                entry.insert("tasks".into(), json!(tasks.cloned().unwrap_or_default()));
                let sign = member.sign.as_ref();
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
