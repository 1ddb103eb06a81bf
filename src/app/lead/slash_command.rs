//! Lines that a person types at the lead's prompt, and the views of the team's files that slash commands show.

use super::background_view;
use super::conversation::NextSession;
use crate::app::{inbox_view, remind, roster_view, task_view};
use crate::llm::model_table::cost_note;
use crate::store::{TeamDir, process_log, roster, tasks::Problem};
use crate::tasks::Tasks;
use crate::timers;
use crate::ui::help::{COMMANDS, command_names, help};
use crate::ui::question::TypedAnswer;
use crate::ui::{transcript::log_line, view::View as Layout};
use crate::wire::nearest::nearest;
use crate::wire::{AgentName, permission::PermissionMode, roster::UsageCount};
use serde_json::{Map, Value};

/// The number of lines that `/log` shows.
const LOG_LINES: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypedLine {
    Blank,
    /// Text for the lead's model.
    Prompt(String),
    /// A message to one member, which bypasses the lead's model.
    Direct {
        to: String,
        text: String,
    },
    /// A command of the person, for the shell.
    Shell(String),
    Show(View),
    /// The list of questions that wait, or all of the one with this number.
    Requests(Option<u64>),
    /// The answer to the question with this number.
    Answer {
        number: u64,
        said: TypedAnswer,
    },
    Stop(AgentName),
    /// The id of the lead's command in the background that is to be stopped.
    StopJob(String),
    /// The name of the teammate whose turn is to be interrupted.
    Interrupt(String),
    /// Take back the last turn of an agent, or this turn and all later ones.
    Undo {
        name: String,
        to_turn: Option<u64>,
    },
    /// List the turns of an agent that can be taken back.
    Turns(String),
    /// Show what all have changed, or one agent.
    Diff(Option<String>),
    Mode(PermissionMode),
    Compact,
    /// List the conversations of the lead.
    Sessions,
    /// End this session and go on with another conversation.
    Next(NextSession),
    /// Go on with this model.
    Model(String),
    /// List the permission rules in force.
    Permissions,
    /// Take back the rule with this number.
    Revoke(u64),
    Quit,
    /// A line that is not understood, with the reason and the correct form.
    Invalid(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    Team,
    Inbox,
    Tasks,
    Jobs,
    Reminders,
    Log(AgentName),
    Mode,
    Cost,
    Help,
}

pub(super) fn parse(line: &str) -> TypedLine {
    let line = line.trim();
    if line.is_empty() {
        return TypedLine::Blank;
    }
    if let Some(rest) = line.strip_prefix('@') {
        return mention(line, rest);
    }
    if let Some(command) = line.strip_prefix('!') {
        return match command.trim() {
            "" => TypedLine::Invalid("write !COMMAND, for example: !git status".into()),
            command => TypedLine::Shell(command.into()),
        };
    }
    let Some(command) = line.strip_prefix('/') else {
        return match line.to_lowercase().as_str() {
            "quit" | "exit" | ":q" => TypedLine::Quit,
            "help" | "?" => TypedLine::Show(View::Help),
            _ => TypedLine::Prompt(line.into()),
        };
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["help" | "?", ..] => TypedLine::Show(View::Help),
        ["team" | "status"] => TypedLine::Show(View::Team),
        ["inbox"] => TypedLine::Show(View::Inbox),
        ["jobs"] => TypedLine::Show(View::Jobs),
        ["jobs", "stop", id] => TypedLine::StopJob((*id).into()),
        ["tasks"] => TypedLine::Show(View::Tasks),
        ["reminders"] => TypedLine::Show(View::Reminders),
        ["clear" | "new"] => TypedLine::Next(NextSession::New),
        ["model", name] => TypedLine::Model((*name).into()),
        ["sessions" | "resume"] => TypedLine::Sessions,
        ["resume", id] => TypedLine::Next(NextSession::Resume((*id).into())),
        ["permissions"] => TypedLine::Permissions,
        ["permissions", "revoke", number] => numbered(number, TypedLine::Revoke),
        ["compact"] => TypedLine::Compact,
        ["cost"] => TypedLine::Show(View::Cost),
        ["mode"] => TypedLine::Show(View::Mode),
        ["mode", word] => PermissionMode::parse(word)
            .map_or_else(|| TypedLine::Invalid(unknown_mode(word)), TypedLine::Mode),
        ["requests"] => TypedLine::Requests(None),
        ["requests", number] => numbered(number, |number| TypedLine::Requests(Some(number))),
        ["approve", number] => {
            numbered(number, |number| TypedLine::Answer { number, said: TypedAnswer::Yes })
        }
        ["deny", number, why @ ..] => {
            let why = Some(why.join(" ")).filter(|why| !why.is_empty());
            numbered(number, |number| TypedLine::Answer { number, said: TypedAnswer::No(why) })
        }
        ["log", name] => named(name, |name| TypedLine::Show(View::Log(name))),
        ["stop", name] => named(name, TypedLine::Stop),
        ["interrupt", name] => TypedLine::Interrupt((*name).into()),
        ["undo", name] => TypedLine::Undo { name: (*name).into(), to_turn: None },
        ["undo", name, "list"] => TypedLine::Turns((*name).into()),
        ["undo", name, turn] => match turn.parse() {
            Ok(turn) => TypedLine::Undo { name: (*name).into(), to_turn: Some(turn) },
            Err(_) => TypedLine::Invalid(misused("undo")),
        },
        ["diff"] => TypedLine::Diff(None),
        ["diff", name] => TypedLine::Diff(Some((*name).into())),
        ["quit" | "exit"] => TypedLine::Quit,
        [] => TypedLine::Invalid("a command follows the slash; /help lists them".into()),
        [verb, ..] => TypedLine::Invalid(misused(verb)),
    }
}

/// Parses a line that begins with `@`: a message to a member, or a prompt that begins with the name of a file.
fn mention(line: &str, rest: &str) -> TypedLine {
    let (to, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if to.contains(['/', '.']) {
        return TypedLine::Prompt(line.into());
    }
    if text.trim().is_empty() {
        let how = "write @NAME TEXT, for example: @alice start with the schema";
        return TypedLine::Invalid(how.into());
    }
    TypedLine::Direct { to: to.into(), text: text.trim().into() }
}

/// Says how a command is used, or which one was probably meant.
fn misused(verb: &str) -> String {
    let typed = format!("/{verb}");
    let known = COMMANDS.iter().find(|command| command.name == typed);
    if let Some(command) = known {
        return match command.usage {
            "" => format!("{typed} takes no arguments"),
            usage => format!("write {typed} {usage}: {}", command.about),
        };
    }
    let begins: Vec<&str> =
        command_names().filter(|name| verb.len() > 1 && name.starts_with(&typed)).collect();
    let near = nearest(&typed, command_names());
    match (begins.as_slice(), near) {
        (&[one], _) | ([], Some(one)) => {
            format!("{typed} is not a command; did you mean {one}? /help lists them")
        }
        ([], None) => format!("{typed} is not a command; /help lists them"),
        (several, _) => format!("{typed} is not a command; did you mean {}?", several.join(" or ")),
    }
}

fn numbered(text: &str, then: impl FnOnce(u64) -> TypedLine) -> TypedLine {
    match text.trim_start_matches('#').parse() {
        Ok(number) => then(number),
        Err(_) => {
            let why = format!("{text:?} is not the number of a question; /requests lists them");
            TypedLine::Invalid(why)
        }
    }
}

fn named(name: &str, then: impl FnOnce(AgentName) -> TypedLine) -> TypedLine {
    match AgentName::mailbox(name) {
        Ok(name) => then(name),
        Err(why) => TypedLine::Invalid(format!("{why}; {}", why.hint())),
    }
}

fn unknown_mode(word: &str) -> String {
    let modes = PermissionMode::ALL.map(|mode| format!("{mode} ({})", mode.meaning()));
    format!("{word:?} is not a mode; the modes are: {}", modes.join(", "))
}

pub(super) fn render(view: &View, tasks: &Tasks, layout: &Layout, width: Option<usize>) -> String {
    let team = tasks.dir();
    let shown = match view {
        View::Team => roster_view::table(team, &[], layout.palette, width),
        View::Inbox => {
            let lead = AgentName::lead();
            inbox_view::read(team, &lead).map(|items| inbox_view::render(&lead, items, layout))
        }
        View::Tasks => return task_list(tasks, layout),
        View::Jobs => return background_view::list(team),
        View::Reminders => return reminders(team, layout),
        View::Log(name) => return log_tail(team, name, layout),
        View::Mode => {
            let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
            let mode = lead.and_then(|lead| PermissionMode::parse(&lead.mode)).unwrap_or_default();
            return format!("mode {mode}: {}", mode.meaning());
        }
        View::Cost => return cost(team),
        View::Help => return help(layout.palette),
    };
    shown.unwrap_or_else(|failure| failure.to_string())
}

fn task_list(tasks: &Tasks, layout: &Layout) -> String {
    let seen = match tasks.snapshot() {
        Ok(seen) => seen,
        Err(why) => return format!("the task list cannot be read: {why}; {}", why.hint()),
    };
    let problem = |problem: &Problem| format!("{} is not a task: {}\n", problem.file, problem.why);
    let problems: String = seen.problems.iter().map(problem).collect();
    task_view::table(&seen, layout.palette) + &problems
}

fn reminders(team: &TeamDir, layout: &Layout) -> String {
    let all = match timers::of_all(team) {
        Ok(all) => all,
        Err(why) => return format!("the timers cannot be read: {why}; {}", why.hint()),
    };
    let problem = |problem: &Problem| format!("{}: {}\n", problem.file, problem.why);
    let problems: String = all.problems.iter().map(problem).collect();
    remind::table(&all, layout.palette) + &problems
}

fn log_tail(team: &TeamDir, name: &AgentName, layout: &Layout) -> String {
    let last = process_log::tail(team, name).starting_at_last(LOG_LINES);
    let lines = match last.and_then(|mut tail| tail.read_new()) {
        Ok(lines) if lines.is_empty() => return format!("{name} has no log"),
        Ok(lines) => lines,
        Err(why) => return why.to_string(),
    };
    let shown = lines.iter().filter_map(|line| {
        let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
        Some(log_line(name.as_str(), &object, layout))
    });
    shown.collect()
}

fn cost(team: &TeamDir) -> String {
    let Ok(roster) = roster::read(team) else { return "the roster cannot be read".into() };
    let lead = roster.lead.iter().map(|lead| ("lead", lead.usage));
    let members = roster.members.iter().map(|member| (member.name.as_str(), member.usage));
    let lines = lead.chain(members).map(|(name, usage)| format!("{name}: {}", words(&usage)));
    let together = format!("together, in this conversation: {}", words(&roster.used()));
    let note = roster.used().cost.map(|_| cost_note());
    lines.chain([together]).chain(note).collect::<Vec<_>>().join("\n")
}

fn words(usage: &UsageCount) -> String {
    let UsageCount { turns, input_tokens, output_tokens, .. } = usage;
    let cached = usage.cached_share().map(|share| format!(" ({share} % from the cache)"));
    let cost = usage.cost.map(|cost| format!(", cost ~${cost}"));
    let (cached, cost) = (cached.unwrap_or_default(), cost.unwrap_or_default());
    let switches = match usage.model_switches {
        0 => String::new(),
        1 => ", 1 switch to another model".into(),
        switches => format!(", {switches} switches to another model"),
    };
    let turns_word = if *turns == 1 { "turn" } else { "turns" };
    format!(
        "{turns} {turns_word}, {input_tokens} tokens in{cached}, {output_tokens} out{cost}{switches}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::process_log::ProcessLog;
    use crate::ui::style::Palette;
    use std::io::Write;

    #[test]
    fn each_form_of_a_line_is_recognised() {
        let alice = || AgentName::member("alice").unwrap();
        let no =
            |why: &str| TypedLine::Answer { number: 2, said: TypedAnswer::No(Some(why.into())) };
        let cases = [
            ("", TypedLine::Blank),
            ("  do it ", TypedLine::Prompt("do it".into())),
            ("/jobs", TypedLine::Show(View::Jobs)),
            ("/jobs stop c2", TypedLine::StopJob("c2".into())),
            ("/status", TypedLine::Show(View::Team)),
            ("/reminders", TypedLine::Show(View::Reminders)),
            ("/cost", TypedLine::Show(View::Cost)),
            ("/mode plan", TypedLine::Mode(PermissionMode::Plan)),
            ("/log lead", TypedLine::Show(View::Log(AgentName::lead()))),
            ("/stop  alice ", TypedLine::Stop(alice())),
            ("/? mode of it", TypedLine::Show(View::Help)),
            ("/exit", TypedLine::Quit),
            ("Quit", TypedLine::Quit),
            ("quit the editor", TypedLine::Prompt("quit the editor".into())),
            ("help", TypedLine::Show(View::Help)),
            ("/requests", TypedLine::Requests(None)),
            ("/interrupt alice", TypedLine::Interrupt("alice".into())),
            ("/undo alice", TypedLine::Undo { name: "alice".into(), to_turn: None }),
            ("/undo alice 3", TypedLine::Undo { name: "alice".into(), to_turn: Some(3) }),
            ("/undo alice list", TypedLine::Turns("alice".into())),
            ("/diff", TypedLine::Diff(None)),
            ("/approve 2", TypedLine::Answer { number: 2, said: TypedAnswer::Yes }),
            ("/deny 2 too  slow", no("too slow")),
            ("! git status ", TypedLine::Shell("git status".into())),
            ("@src/main.rs explain", TypedLine::Prompt("@src/main.rs explain".into())),
            ("@alice  go on", TypedLine::Direct { to: "alice".into(), text: "go on".into() }),
        ];
        for (line, typed) in cases {
            assert_eq!(parse(line), typed, "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_answered_with_what_to_type_instead() {
        for (line, answer) in [
            ("/taem", "/taem is not a command; did you mean /team? /help lists them"),
            ("/hel", "/hel is not a command; did you mean /help?"),
            ("/wherever", "/wherever is not a command; /help lists them"),
            ("/", "a command follows the slash"),
            ("/team now", "/team takes no arguments"),
            ("/tasks x", "/tasks takes no arguments"),
            ("/quit now", "/quit takes no arguments"),
            ("/log lead alice", "write /log NAME"),
            ("/stop", "write /stop NAME"),
            ("/log", "write /log NAME"),
            ("/stop Alice", "Alice"),
            ("/mode fast", "the modes are: plan ("),
            ("/undo", "write /undo NAME [TURN|list]"),
            ("/undo alice now", "write /undo NAME [TURN|list]"),
            ("/approve all", "\"all\" is not the number of a question"),
            ("/deny", "write /deny N WHY"),
            ("!", "write !COMMAND"),
            ("@alice", "write @NAME TEXT"),
            ("@alice  ", "write @NAME TEXT"),
        ] {
            let TypedLine::Invalid(why) = parse(line) else { panic!("{line} was accepted") };
            assert!(why.contains(answer), "{line}: {why}");
        }
    }

    #[test]
    fn a_log_is_shown_without_blank_lines() {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        let mut log = ProcessLog::open(&team, &AgentName::lead()).unwrap();
        for message in ["one", "two"] {
            let line = format!("{{\"level\":\"INFO\",\"message\":\"{message}\"}}\n");
            log.write_all(line.as_bytes()).unwrap();
        }
        let layout = Layout::new(Palette::plain(), None);
        let text = log_tail(&team, &AgentName::lead(), &layout);
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }
}
