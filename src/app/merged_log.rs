//! The history of a team, merged by time: the structured logs of its processes, also rotated ones, and drained mail.

use crate::error::Failure;
use crate::store::relay::copies;
use crate::store::tail::{Fresh, Tail};
use crate::store::{StoreError, TeamDir, process_log};
use crate::ui::{self, view::View};
use crate::wire::carried::HostName;
use crate::wire::{AgentName, WallTime, transcript::Line};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, btree_map::Entry};

/// The kind of an agent's file from which a line comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Log,
    Mail,
}

pub(crate) struct Item {
    at: WallTime,
    kind: Kind,
    object: Map<String, Value>,
}

#[derive(Default)]
pub(crate) struct LogFilter {
    /// The agents whose lines are shown; all agents if empty.
    pub(crate) names: Vec<AgentName>,
    pub(crate) since: Option<WallTime>,
    pub(crate) level: Option<LogLevel>,
    /// Types of mail, `mail` for all of it, or `log` for log lines; log lines alone if empty.
    pub(crate) types: Vec<String>,
}

/// The level of a log line, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum LogLevel {
    /// Failures.
    Error,
    /// Unexpected states that are handled.
    Warn,
    /// Normal events.
    Info,
    /// Details.
    Debug,
    /// All details.
    Trace,
}

/// The merged files, each read up to some point.
pub(crate) struct MergedLog {
    team: TeamDir,
    filter: LogFilter,
    /// By host, which is `None` for this one.
    tails: BTreeMap<(Option<HostName>, AgentName, Kind), Tail>,
}

impl MergedLog {
    /// Starts at the beginning of all files, or at the time of the filter.
    pub(crate) fn new(team: TeamDir, filter: LogFilter) -> Self {
        Self { team, filter, tails: BTreeMap::new() }
    }

    pub(crate) fn team(&self) -> &TeamDir {
        &self.team
    }

    /// Passes the appended lines to `show` in order of time, with one line of each file in memory. Stops and returns
    /// `false` if `show` returns it.
    pub(crate) fn show_new(
        &mut self,
        mut show: impl FnMut((&AgentName, Option<&HostName>), Item) -> bool,
    ) -> Result<bool, Failure> {
        self.open_new_files()?;
        let Self { filter, tails, .. } = self;
        let mut streams = Vec::new();
        for ((host, name, kind), tail) in tails {
            let mut fresh = tail.fresh()?;
            if let Some(item) = next(&mut fresh, *kind, filter)? {
                streams.push((item, (name, host.as_ref()), fresh));
            }
        }
        // The streams are few, and the lines of each are in order.
        let order = |a: &Item, b: &Item| a.at.as_secs().total_cmp(&b.at.as_secs());
        while let Some((first, (item, agent, fresh))) =
            streams.iter_mut().enumerate().min_by(|(_, (a, ..)), (_, (b, ..))| order(a, b))
        {
            let (following, agent) = (next(fresh, item.kind, filter)?, *agent);
            let item = match following {
                Some(following) => std::mem::replace(item, following),
                None => streams.remove(first).0,
            };
            if !show(agent, item) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn open_new_files(&mut self) -> Result<(), Failure> {
        let LogFilter { names, since, types, .. } = &self.filter;
        let wants_log = types.is_empty() || types.iter().any(|kind| kind == "log");
        let wants_mail = types.iter().any(|kind| kind != "log");
        let wanted = [(Kind::Log, wants_log), (Kind::Mail, wants_mail)];
        let others = copies::all(&self.team)?.into_iter();
        let others = others.map(|(host, folder)| (Some(host), folder));
        for (host, folder) in std::iter::once((None, self.team.clone())).chain(others) {
            let names = if names.is_empty() { folder.agents()? } else { names.clone() };
            for name in names {
                for (kind, _) in wanted.iter().filter(|(_, is_wanted)| *is_wanted) {
                    let key = (host.clone(), name.clone(), *kind);
                    if let Entry::Vacant(place) = self.tails.entry(key) {
                        place.insert(kind.open(&folder, &name, *since)?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Kind {
    fn open(
        self,
        team: &TeamDir,
        name: &AgentName,
        since: Option<WallTime>,
    ) -> Result<Tail, StoreError> {
        match (self, since) {
            (Self::Log, None) => Ok(process_log::tail(team, name)),
            (Self::Log, Some(since)) => {
                process_log::tail(team, name).starting_at(since, process_log::time)
            }
            (Self::Mail, None) => Ok(Tail::new(team.transcript(name))),
            (Self::Mail, Some(since)) => Tail::since(team.transcript(name), since, Line::time),
        }
    }
}

/// Returns the next line of a file that matches the filter.
fn next(fresh: &mut Fresh<'_>, kind: Kind, filter: &LogFilter) -> Result<Option<Item>, Failure> {
    while let Some(line) = fresh.next_line().map_err(StoreError::from)? {
        if kind == Kind::Mail && !Line::may_be(line, "mail") {
            continue;
        }
        let Ok(object) = serde_json::from_slice::<Map<String, Value>>(line) else { continue };
        let (at, is_wanted) = match kind {
            Kind::Log => {
                let is_wanted = filter.level.is_none_or(|least| level_of(&object) <= least);
                (process_log::logged_at(&object), is_wanted)
            }
            Kind::Mail if object.get("kind").and_then(Value::as_str) != Some("mail") => continue,
            Kind::Mail => {
                let kind = object.get("message").and_then(|it| it.get("type")?.as_str());
                let is_wanted = |wanted: &String| wanted == "mail" || kind == Some(wanted);
                let at = object.get("at").and_then(Value::as_f64).map(WallTime::from_secs);
                (at, filter.types.iter().any(is_wanted))
            }
        };
        let at = at.unwrap_or_default();
        if is_wanted && filter.since.is_none_or(|since| at >= since) {
            return Ok(Some(Item { at, kind, object }));
        }
    }
    Ok(None)
}

/// Returns the level of a log line. A line without a level counts as an error.
fn level_of(object: &Map<String, Value>) -> LogLevel {
    object.get("level").and_then(|it| LogLevel::deserialize(it).ok()).unwrap_or(LogLevel::Error)
}

impl Item {
    /// Returns the line as an object, with its agent, and with its host if that is another one.
    pub(crate) fn json(mut self, name: &AgentName, host: Option<&HostName>) -> Value {
        self.object.insert("agent".into(), name.as_str().into());
        if let Some(host) = host {
            self.object.insert("host".into(), host.as_str().into());
        }
        Value::Object(self.object)
    }

    /// Renders the line; `color` is the colour word of the agent.
    pub(crate) fn text(self, name: &AgentName, color: &str, view: &View) -> String {
        match self.kind {
            Kind::Log => {
                ui::transcript::colored_log_line((name.as_str(), color), &self.object, view)
            }
            Kind::Mail => {
                let line = Line::read(Value::Object(self.object).to_string().as_bytes());
                line.map_or_else(String::new, |line| ui::transcript::line(&line, view))
            }
        }
    }
}
