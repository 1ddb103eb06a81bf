//! `team log`: the structured logs of the processes, merged by time.

use super::args::LogArgs;
use super::assemble::block_on;
use super::context::{Context, mailbox_name, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::store::TeamDir;
use crate::store::tail::Tail;
use crate::ui;
use crate::wire::AgentName;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the files are looked at with `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(context: &Context, args: &LogArgs) -> Result<Exit, Failure> {
    let team = context.team()?;
    let mut names = Vec::new();
    for given in &args.names {
        let name = mailbox_name(given)?;
        if !team.log(&name).exists() && !args.follow {
            let what = format!("{name} has no log");
            let why = "no process of that name has run in this team";
            return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
        }
        names.push(name);
    }
    let mut tails: BTreeMap<AgentName, Tail> = BTreeMap::new();
    if !print_new(context, args, &team, &names, &mut tails)? {
        return Ok(Exit::Failure);
    }
    if !args.follow {
        return Ok(Exit::Ok);
    }
    block_on(async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !print_new(context, args, &team, &names, &mut tails)? {
                return Ok(Exit::Ok);
            }
        }
    })?
}

/// Prints what was logged since the last call; `false` when nobody reads any more.
fn print_new(
    context: &Context,
    args: &LogArgs,
    team: &TeamDir,
    names: &[AgentName],
    tails: &mut BTreeMap<AgentName, Tail>,
) -> Result<bool, Failure> {
    let all = if names.is_empty() { team.logs().map_err(store_failure)? } else { names.to_vec() };
    let mut lines: Vec<(String, AgentName, Map<String, Value>)> = Vec::new();
    for name in all {
        let tail = tails.entry(name.clone()).or_insert_with(|| Tail::new(team.log(&name)));
        for line in tail.read_new().map_err(store_failure)? {
            if let Ok(Value::Object(object)) = serde_json::from_slice(&line) {
                let at = object.get("timestamp").and_then(Value::as_str).unwrap_or_default();
                lines.push((at.to_owned(), name.clone(), object));
            }
        }
    }
    // RFC 3339 in UTC with a fixed width sorts as text; the sort is stable within one process.
    lines.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let view = context.view();
    for (_, name, mut object) in lines {
        let shown = if args.show.json {
            object.insert("agent".into(), name.as_str().into());
            Value::Object(object).to_string()
        } else {
            ui::log::line(name.as_str(), &object, &view)
        };
        if !out::say(&shown) {
            return Ok(false);
        }
    }
    Ok(true)
}
