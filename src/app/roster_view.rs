//! The roster with liveness, activity, unread mail, age and tokens, as a table or as JSON.

use crate::error::Failure;
use crate::os::{Clock, SystemClock};
use crate::store::tasks::TaskList;
use crate::store::{Fsync, TeamDir, roster, unread};
use crate::ui::roster::{activity, roster_table};
use crate::ui::style::Palette;
use crate::view::{self, MemberView};
use crate::wire::task::TaskStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Ids of tasks in progress, by owner.
type HeldTasks = BTreeMap<String, Vec<String>>;

/// Renders the roster as a table.
pub(crate) fn table(team: &TeamDir, palette: Palette, width: usize) -> Result<String, Failure> {
    let now = SystemClock.now();
    let held = held_tasks(team);
    let mut members = member_views(team)?;
    for member in &mut members {
        if let Some(tasks) = held.get(&member.name).filter(|_| member.alive) {
            let doing = activity(member);
            let doing = if doing.is_empty() { doing } else { doing + ", " };
            // The activity has the words of the heartbeat already.
            (member.activity, member.sign) =
                (Some(format!("{doing}task {}", tasks.join(", "))), None);
        }
    }
    Ok(roster_table(&members.iter().collect::<Vec<_>>(), now, palette, width))
}

/// Renders the roster as JSON.
pub(crate) fn json(team: &TeamDir) -> Result<Value, Failure> {
    let held = held_tasks(team);
    let agents = member_views(team)?.into_iter().map(|member| agent_json(member, &held));
    let is_lead = |agent: &Value| agent.get("name").is_some_and(|name| name == "lead");
    let (lead, members): (Vec<Value>, Vec<Value>) = agents.partition(is_lead);
    Ok(json!({
        "schema": 1,
        "used": roster::read(team)?.used(),
        "team": team.root().display().to_string(),
        "lead": lead.into_iter().next(),
        "members": members,
    }))
}

fn agent_json(member: MemberView, held: &HeldTasks) -> Value {
    let mut object = member.entry;
    if let Value::Object(entry) = &mut object {
        let tasks = held.get(&member.name).filter(|_| member.alive);
        let sign = member.sign.as_ref();
        entry.insert("status".into(), member.status.word().into());
        entry.insert("alive".into(), member.alive.into());
        entry.insert("unread".into(), member.unread.into());
        entry.insert("pid".into(), json!(member.pid));
        entry.insert("tasks".into(), json!(tasks.cloned().unwrap_or_default()));
        entry.insert("doing".into(), json!(sign.map(|sign| &sign.state)));
        entry.insert("doing_since".into(), json!(sign.map(|sign| sign.since)));
        entry.insert("silent_for".into(), json!(sign.map(|sign| sign.silent_for)));
    }
    object
}

/// An unreadable task list is reported by `team task ls`, not here.
fn held_tasks(team: &TeamDir) -> HeldTasks {
    let mut held = HeldTasks::new();
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
    let roster = roster::read(team)?;
    Ok(view::members(team, &roster, |name| unread::count(team, name).unwrap_or_default()))
}
