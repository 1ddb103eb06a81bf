//! `team log`: what happened, merged by time: the structured logs of the processes and, by type, mail as
//! it was taken in.

use super::args::{LogArgs, LogLevel};
use super::build_agent::block_on;
use super::context::{Context, mailbox_name, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::store::TeamDir;
use crate::store::tail::{Fresh, Tail};
use crate::ui;
use crate::wire::transcript::Line;
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// How often the files are looked at with `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The `--type` of log lines.
const LOG: &str = "log";

/// The `--type` of mail of any type.
const MAIL: &str = "mail";

/// Which of somebody's files a line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Log,
    Mail,
}

/// Somebody's lines of one kind.
type Key = (AgentName, Kind);

/// A line that is to be shown.
struct Item {
    at: WallTime,
    object: Map<String, Value>,
}

pub(super) fn run(context: &Context, args: &LogArgs) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let mut names = Vec::new();
    for given in &args.names {
        let name = mailbox_name(given)?;
        if !team.log(&name).exists() && !team.transcript(&name).exists() && !args.follow {
            let what = format!("{name} has no log");
            let why = "no process of that name has run in this team";
            return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
        }
        names.push(name);
    }
    let mut tails = BTreeMap::new();
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

/// Prints what came since the last call, one line of each file in memory; `false` when nobody reads any
/// more.
fn print_new(
    context: &Context,
    args: &LogArgs,
    team: &TeamDir,
    names: &[AgentName],
    tails: &mut BTreeMap<Key, Tail>,
) -> Result<bool, Failure> {
    let wants_log = args.types.is_empty() || args.types.iter().any(|kind| kind == LOG);
    let wants_mail = args.types.iter().any(|kind| kind != LOG);
    let mut keys = Vec::new();
    for name in if names.is_empty() { team.agents().map_err(store_failure)? } else { names.into() }
    {
        keys.extend(wants_log.then(|| (name.clone(), Kind::Log)));
        keys.extend(wants_mail.then(|| (name.clone(), Kind::Mail)));
    }
    for key in keys {
        if let Entry::Vacant(place) = tails.entry(key) {
            let tail = open(team, place.key(), args.since).map_err(store_failure)?;
            place.insert(tail);
        }
    }
    let mut streams = Vec::new();
    for (key, tail) in tails {
        let mut fresh = tail.fresh().map_err(store_failure)?;
        if let Some(item) = next(&mut fresh, key.1, args)? {
            streams.push((item, key, fresh));
        }
    }
    let view = context.view();
    // The streams are few, and within each the lines are in order already.
    while let Some(first) = earliest(&streams) {
        let Some((item, (name, kind), fresh)) = streams.get_mut(first) else { break };
        let following = next(fresh, *kind, args)?;
        let (name, kind) = (name.clone(), *kind);
        let item = match following {
            Some(following) => std::mem::replace(item, following),
            None => streams.remove(first).0,
        };
        if !out::say(&shown(item.object, &name, kind, args, &view)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn open(
    team: &TeamDir,
    (name, kind): &Key,
    since: Option<WallTime>,
) -> Result<Tail, crate::store::StoreError> {
    let path = match kind {
        Kind::Log => team.log(name),
        Kind::Mail => team.transcript(name),
    };
    match (since, kind) {
        (None, _) => Ok(Tail::new(path)),
        (Some(since), Kind::Log) => Tail::since(path, since, |line| {
            logged_at(&serde_json::from_slice::<Map<String, Value>>(line).ok()?)
        }),
        (Some(since), Kind::Mail) => Tail::since(path, since, Line::time),
    }
}

fn earliest<T, U>(streams: &[(Item, T, U)]) -> Option<usize> {
    let times = streams.iter().enumerate();
    times
        .min_by(|(_, (a, ..)), (_, (b, ..))| a.at.as_secs().total_cmp(&b.at.as_secs()))
        .map(|(at, _)| at)
}

/// The next line of a file that is asked for.
fn next(fresh: &mut Fresh<'_>, kind: Kind, args: &LogArgs) -> Result<Option<Item>, Failure> {
    while let Some(line) = fresh.next_line().map_err(|why| store_failure(why.into()))? {
        if kind == Kind::Mail && !Line::may_be(line, "mail") {
            continue;
        }
        let Ok(object) = serde_json::from_slice::<Map<String, Value>>(line) else { continue };
        let is_mail = object.get("kind").and_then(Value::as_str) == Some(MAIL);
        if kind == Kind::Mail && !is_mail {
            continue;
        }
        let at = match kind {
            Kind::Log => logged_at(&object),
            Kind::Mail => object.get("at").and_then(Value::as_f64).map(WallTime::from_secs),
        };
        let at = at.unwrap_or_default();
        let is_wanted = match kind {
            Kind::Log => args.level.is_none_or(|least| level_of(&object) <= least),
            Kind::Mail => args.types.iter().any(|wanted| {
                let kind = object.get("message").and_then(|message| message.get("type"));
                wanted == MAIL || kind.and_then(Value::as_str) == Some(wanted)
            }),
        };
        if is_wanted && args.since.is_none_or(|since| at >= since) {
            return Ok(Some(Item { at, object }));
        }
    }
    Ok(None)
}

/// When a log line was written.
fn logged_at(object: &Map<String, Value>) -> Option<WallTime> {
    let at = object.get("timestamp")?;
    let read = |text: &str| Some(text.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64());
    at.as_f64().or_else(|| read(at.as_str()?)).map(WallTime::from_secs)
}

/// A line that does not say counts as important.
fn level_of(object: &Map<String, Value>) -> LogLevel {
    match object.get("level").and_then(Value::as_str) {
        Some("WARN") => LogLevel::Warn,
        Some("INFO") => LogLevel::Info,
        Some("DEBUG") => LogLevel::Debug,
        Some("TRACE") => LogLevel::Trace,
        _ => LogLevel::Error,
    }
}

fn shown(
    mut object: Map<String, Value>,
    name: &AgentName,
    kind: Kind,
    args: &LogArgs,
    view: &ui::view::View,
) -> String {
    if args.show.json {
        object.insert("agent".into(), name.as_str().into());
        return Value::Object(object).to_string();
    }
    match kind {
        Kind::Log => ui::log::line(name.as_str(), &object, view),
        Kind::Mail => {
            let line = Line::read(Value::Object(object).to_string().as_bytes());
            line.map_or_else(String::new, |line| ui::transcript::line(&line, view))
        }
    }
}
