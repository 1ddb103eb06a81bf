//! What a person types at the lead's prompt: a prompt for the model, a slash command, `@name text`.

use super::super::inbox;
use super::super::ls;
use super::super::task;
use crate::bus::{Bus, Outgoing};
use crate::store::tasks::Problem;
use crate::store::{TeamDir, roster, tail::Tail};
use crate::tasks::Tasks;
use crate::ui;
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::UsageCount;
use serde_json::{Map, Value};

/// Lines that `/log` shows.
const LOG_LINES: usize = 20;

/// A typed line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// A blank line.
    Nothing,
    /// For the model.
    Prompt(String),
    /// For one member, past the model.
    Direct {
        /// Whom.
        to: String,
        /// What.
        text: String,
    },
    /// Something to look at.
    Show(Show),
    /// End one member.
    Stop(AgentName),
    /// Go on in another mode.
    Mode(PermissionMode),
    /// End the team.
    Quit,
    /// Not understood; says why and what to type instead.
    Wrong(String),
}

/// What can be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Show {
    /// The roster.
    Team,
    /// The lead's mail.
    Inbox,
    /// The task list.
    Tasks,
    /// A log.
    Log(AgentName),
    /// The mode.
    Mode,
    /// Turns and tokens.
    Cost,
    /// Help.
    Help,
}

/// Understands a line.
pub(super) fn understand(line: &str) -> Typed {
    let line = line.trim();
    if line.is_empty() {
        return Typed::Nothing;
    }
    if let Some(rest) = line.strip_prefix('@') {
        return match rest.split_once(char::is_whitespace) {
            Some((to, text)) if !text.trim().is_empty() => {
                Typed::Direct { to: to.into(), text: text.trim().into() }
            }
            _ => Typed::Wrong("write @NAME TEXT, for example: @alice start with the schema".into()),
        };
    }
    let Some(command) = line.strip_prefix('/') else { return Typed::Prompt(line.into()) };
    let mut words = command.split_whitespace();
    let (verb, argument, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
    let named = |make: fn(AgentName) -> Typed| match argument.map(AgentName::mailbox) {
        Some(Ok(name)) => make(name),
        Some(Err(why)) => Typed::Wrong(format!("{why}; {}", why.hint())),
        None => Typed::Wrong(format!("write /{verb} NAME; /team shows the names")),
    };
    match (verb, argument, rest) {
        ("team" | "status", None, None) => Typed::Show(Show::Team),
        ("inbox", None, None) => Typed::Show(Show::Inbox),
        ("tasks", None, None) => Typed::Show(Show::Tasks),
        ("cost", None, None) => Typed::Show(Show::Cost),
        ("help" | "?", _, _) => Typed::Show(Show::Help),
        ("mode", _, None) => match argument {
            None => Typed::Show(Show::Mode),
            Some(word) => {
                PermissionMode::parse(word).map_or_else(|| Typed::Wrong(modes(word)), Typed::Mode)
            }
        },
        ("log", _, None) => named(|name| Typed::Show(Show::Log(name))),
        ("stop", _, None) => named(Typed::Stop),
        ("quit" | "exit", None, None) => Typed::Quit,
        _ => Typed::Wrong(format!("/{verb} is not a command here; /help lists them")),
    }
}

fn modes(word: &str) -> String {
    let modes = PermissionMode::ALL.map(|mode| format!("{mode} ({})", mode.meaning()));
    format!("{word:?} is no mode; there are: {}", modes.join(", "))
}

/// Writes to one member, as the person.
pub(super) fn write_to(bus: &Bus, to: &str, text: String) -> String {
    match bus.send(&AgentName::user(), to, Outgoing::text(text)) {
        Ok(_) => format!("sent to {to}"),
        Err(why) => format!("nothing was sent: {why}; {}", why.hint()),
    }
}

/// The text of something to look at.
pub(super) fn show(what: &Show, tasks: &Tasks, view: &View, width: usize) -> String {
    let team = tasks.dir();
    let shown = match what {
        Show::Team => ls::table(team, view.palette, width),
        Show::Inbox => {
            let lead = AgentName::lead();
            inbox::look(team, &lead).map(|items| inbox::render(&lead, items, view))
        }
        Show::Tasks => return task_list(tasks, view),
        Show::Log(name) => return log_tail(team, name, view),
        Show::Mode => {
            let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
            let mode = lead.and_then(|lead| PermissionMode::parse(&lead.mode)).unwrap_or_default();
            return format!("mode {mode}: {}", mode.meaning());
        }
        Show::Cost => return cost(team),
        Show::Help => return ui::help::help(view.palette),
    };
    shown.unwrap_or_else(|failure| failure.to_string())
}

fn task_list(tasks: &Tasks, view: &View) -> String {
    let seen = match tasks.look() {
        Ok(seen) => seen,
        Err(why) => return format!("the task list cannot be read: {why}; {}", why.hint()),
    };
    let problem = |problem: &Problem| format!("{} is no task: {}\n", problem.file, problem.why);
    let problems: String = seen.problems.iter().map(problem).collect();
    task::table(&seen, view.palette) + &problems
}

fn log_tail(team: &TeamDir, name: &AgentName, view: &View) -> String {
    let lines = match Tail::new(team.log(name)).read_new() {
        Ok(lines) if lines.is_empty() => return format!("{name} has no log"),
        Ok(lines) => lines,
        Err(why) => return why.to_string(),
    };
    let first = lines.len().saturating_sub(LOG_LINES);
    let shown = lines.iter().skip(first).filter_map(|line| {
        let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
        Some(ui::log::line(name.as_str(), &object, view))
    });
    shown.collect()
}

fn cost(team: &TeamDir) -> String {
    let Ok(roster) = roster::read(team) else { return "the roster cannot be read".into() };
    let lead = roster.lead.iter().map(|lead| ("lead", lead.usage));
    let members = roster.members.iter().map(|member| (member.name.as_str(), member.usage));
    let lines = lead.chain(members).map(|(name, usage)| format!("{name}: {}", words(&usage)));
    let together = format!("together, in this conversation: {}", words(&roster.used()));
    lines.chain([together]).collect::<Vec<_>>().join("\n")
}

/// What was used, in words.
fn words(usage: &UsageCount) -> String {
    let UsageCount { turns, input_tokens, output_tokens, .. } = usage;
    let cached = usage.cached_share().map(|share| format!(" ({share} % from the cache)"));
    let cost = usage.cost.map(|cost| format!(", cost {cost}"));
    let (cached, cost) = (cached.unwrap_or_default(), cost.unwrap_or_default());
    format!("{turns} turns, {input_tokens} tokens in{cached}, {output_tokens} out{cost}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::can_complete_tasks;
    use crate::ui::style::Palette;
    use std::io::Write;

    #[test]
    fn a_log_has_no_gaps() {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        let mut log = team.open_log(&AgentName::lead()).unwrap();
        writeln!(log, r#"{{"level":"INFO","message":"one"}}"#).unwrap();
        writeln!(log, r#"{{"level":"INFO","message":"two"}}"#).unwrap();
        let view = View::new(Palette::plain(), None);
        let clock = std::sync::Arc::new(crate::os::SystemClock);
        let bus = Bus::new(team, crate::bus::Limits::default(), clock.clone());
        let tasks = Tasks::new(std::sync::Arc::new(bus), clock, can_complete_tasks);
        let text = show(&Show::Log(AgentName::lead()), &tasks, &view, 80);
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }

    #[test]
    fn lines_are_told_apart() {
        let cases = [
            ("", Typed::Nothing),
            ("  do it ", Typed::Prompt("do it".into())),
            ("/team", Typed::Show(Show::Team)),
            ("/log lead", Typed::Show(Show::Log(AgentName::lead()))),
            ("/mode plan", Typed::Mode(PermissionMode::Plan)),
            ("/quit", Typed::Quit),
            ("@alice  go on", Typed::Direct { to: "alice".into(), text: "go on".into() }),
        ];
        for (line, typed) in cases {
            assert_eq!(understand(line), typed, "{line}");
        }
        for line in ["/taem", "/stop", "/stop Alice", "@alice", "/mode swift", "/team now"] {
            assert!(matches!(understand(line), Typed::Wrong(_)), "{line}");
        }
    }
}
