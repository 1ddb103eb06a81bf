//! The roster with liveness, activity, unread mail, age and tokens, as a table or as JSON.

use super::names::unknown_name;
use crate::error::Failure;
use crate::llm::model_table::{self, cost_note};
use crate::os::{Clock, SystemClock};
use crate::store::{Fsync, TeamDir, relay, roster, tasks::TaskList, unread};
use crate::ui::{roster::activity, roster::roster_table, roster::walls_in_words, style::Palette};
use crate::view::{self, MemberView};
use crate::wire::AgentName;
use crate::wire::roster::Roster;
use crate::wire::task::TaskStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The width of the table, in columns, if the width of the terminal is unknown.
const DEFAULT_COLUMNS: usize = 120;

/// The words below a table with members of other hosts, while nothing is heard of them.
const NO_RELAY: &str =
    "No relay runs on this host: the members of other hosts are shown as they were heard last";

/// Renders the roster, or only the agents with these names.
pub(crate) fn table(
    team: &TeamDir,
    names: &[AgentName],
    palette: Palette,
    width: Option<usize>,
) -> Result<String, Failure> {
    let now = SystemClock.now();
    let roster = roster::read(team)?;
    let mut members = members_with_tasks(team, &roster, names)?;
    for (member, tasks) in &mut members {
        if !tasks.is_empty() {
            let doing = activity(member);
            let separator = if doing.is_empty() { "" } else { ", " };
            let with_tasks = format!("{doing}{separator}task {}", tasks.join(", "));
            // The activity contains the words of the heartbeat already.
            (member.activity, member.heartbeat, member.background) = (Some(with_tasks), None, 0);
        }
    }
    let members: Vec<_> = members.iter().map(|(member, _)| member).collect();
    let has_hosts = members.iter().any(|member| member.host.is_some());
    let is_stale = has_hosts && !relay::is_served(team).unwrap_or(true);
    let stale = if is_stale { format!("{NO_RELAY}\n") } else { String::new() };
    let is_priced = members.iter().any(|member| member.usage.cost.is_some());
    let note = if is_priced { palette.dim(&cost_note()) + "\n" } else { String::new() };
    let table = roster_table(&members, now, palette, width.unwrap_or(DEFAULT_COLUMNS));
    let walls =
        walls_in_words(&members).map(|words| palette.dim(&format!("walls: {words}")) + "\n");
    Ok(walls.unwrap_or_default() + &table + &stale + &note)
}

/// Returns the roster, or only the agents with these names.
pub(crate) fn json(team: &TeamDir, names: &[AgentName]) -> Result<Value, Failure> {
    let roster = roster::read(team)?;
    let entries = roster.members.iter().map(|member| (member.name.as_str(), json!(member)));
    let lead_name = AgentName::lead();
    let lead = roster.lead.iter().map(|lead| (lead_name.as_str(), json!(lead)));
    let mut entries: BTreeMap<_, _> = entries.chain(lead).collect();
    let agents = members_with_tasks(team, &roster, names)?.into_iter().map(|(member, tasks)| {
        let entry = entries.remove(member.name.as_str()).unwrap_or_default();
        agent_json(entry, &member, &tasks)
    });
    let is_lead = |agent: &Value| agent.get("name").is_some_and(|name| name == lead_name.as_str());
    let (lead, members): (Vec<Value>, Vec<Value>) = agents.partition(is_lead);
    Ok(json!({
        "schema": 1,
        "used": roster.used(),
        "prices_of": model_table::made(),
        "sandbox": roster.lead.as_ref().and_then(|lead| lead.sandbox.as_ref()),
        "team": team.root().display().to_string(),
        "lead": lead.into_iter().next(),
        "members": members,
    }))
}

/// Names this host beside its members, if others are on other hosts.
fn name_own_host(team: &TeamDir, members: &mut [MemberView]) {
    if members.iter().all(|member| member.host.is_none()) {
        return;
    }
    let identity = relay::identity(team).ok().flatten();
    let own = identity.map_or_else(|| "-".to_owned(), |identity| identity.host.to_string());
    for member in members.iter_mut().filter(|member| member.host.is_none()) {
        member.host = Some(own.clone());
    }
}

/// Returns the entry of an agent with what else is known of it.
fn agent_json(mut object: Value, member: &MemberView, tasks: &[String]) -> Value {
    let away = member.is_away();
    let heartbeat = member.heartbeat.as_ref();
    if let Value::Object(entry) = &mut object {
        for (key, value) in [
            ("status", json!(member.status.word())),
            ("alive", json!(member.alive)),
            ("unread", json!(member.unread)),
            ("pid", json!(member.pid)),
            ("tasks", json!(tasks)),
            ("doing", json!(heartbeat.map(|heartbeat| &heartbeat.state))),
            ("doing_since", json!(heartbeat.map(|heartbeat| heartbeat.since))),
            ("silent_for", json!(heartbeat.map(|heartbeat| heartbeat.silent_for))),
        ] {
            entry.insert(key.into(), value);
        }
        if let Some(host) = &member.host {
            entry.insert("host".into(), json!(host));
            entry.insert("away".into(), json!(away));
        }
    }
    object
}

/// Returns the agents, those that are alive with the ids of their tasks in progress. An unreadable task list counts
/// as empty here; `team task ls` reports it. Fails if there is no agent of one of the names.
fn members_with_tasks(
    team: &TeamDir,
    roster: &Roster,
    names: &[AgentName],
) -> Result<Vec<(MemberView, Vec<String>)>, Failure> {
    let listed = roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok());
    let unread = unread::counts(team, listed.chain([AgentName::lead()]).collect());
    let unread_of = |name: &AgentName| unread.get(name).copied().unwrap_or_default();
    let mut members = view::members(team, roster, unread_of);
    name_own_host(team, &mut members);
    let mut held: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut list = TaskList::of(team, Fsync::Never);
    // Only a member that is alive works on a task.
    if members.iter().any(|member| member.alive) && list.look().is_ok() {
        for task in list.board().values().filter(|task| task.status == TaskStatus::InProgress) {
            if let Some(owner) = task.owner.as_deref() {
                held.entry(owner).or_default().push(task.id.to_string());
            }
        }
    }
    let with_tasks = |member: MemberView| {
        let tasks = held.remove(member.name.as_str()).filter(|_| member.alive).unwrap_or_default();
        (member, tasks)
    };
    for name in names {
        if members.iter().all(|member| member.name != name.as_str()) {
            let why = "no agent of that name belongs to this team";
            return Err(unknown_name(team, name, format!("there is no member {name}"), why));
        }
    }
    let is_wanted = |member: &MemberView| {
        names.is_empty() || names.iter().any(|name| member.name == name.as_str())
    };
    Ok(members.into_iter().filter(is_wanted).map(with_tasks).collect())
}
