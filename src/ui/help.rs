//! The commands and keys of the interactive lead, and the help that explains them.

use super::console::{ArgumentKind, SlashCommand};
use super::sanitize::{columns, pad};
use super::style::Palette;

const fn command(
    name: &'static str,
    usage: &'static str,
    argument: ArgumentKind,
    about: &'static str,
) -> SlashCommand {
    SlashCommand { name, usage, about, argument }
}

/// The slash commands.
pub(crate) const COMMANDS: &[SlashCommand] = &[
    command("/team", "", ArgumentKind::None, "the members: status, unread mail, tokens"),
    command("/tasks", "", ArgumentKind::None, "the task list: who does what, what waits for what"),
    command("/jobs", "[stop ID]", ArgumentKind::Text, "what runs in the background; end one"),
    command("/reminders", "", ArgumentKind::None, "the timers: who is reminded of what, and when"),
    command("/inbox", "", ArgumentKind::None, "the lead's mail: unread, and new since you looked"),
    command("/requests", "[N]", ArgumentKind::Text, "the questions that wait; all of question N"),
    command("/approve", "N", ArgumentKind::Text, "say yes to question N"),
    command("/deny", "N WHY", ArgumentKind::Text, "say no to question N, and why"),
    command("/interrupt", "NAME", ArgumentKind::Member, "end a teammate's turn, not the teammate"),
    command("/stop", "NAME", ArgumentKind::Member, "end a teammate; it can be spawned again"),
    command("/diff", "[NAME]", ArgumentKind::Member, "what the team has changed in this session"),
    command("/undo", "NAME [TURN|list]", ArgumentKind::Member, "take an agent's changes back"),
    command("/mode", "[MODE]", ArgumentKind::Mode, "show or change what runs without asking"),
    command("/permissions", "[revoke N]", ArgumentKind::Text, "the rules in force; revoke rule N"),
    command("/clear", "", ArgumentKind::None, "start a new session; this one is kept"),
    command("/resume", "[ID]", ArgumentKind::Text, "list the sessions; resume one"),
    command("/model", "PROVIDER/NAME", ArgumentKind::Text, "continue with another model"),
    command("/compact", "", ArgumentKind::None, "summarize the conversation before the next step"),
    command("/log", "NAME", ArgumentKind::Member, "the last lines of an agent's log"),
    command("/cost", "", ArgumentKind::None, "turns, tokens and cost of each agent"),
    command("/help", "", ArgumentKind::None, "commands, keys and examples"),
    command("/quit", "", ArgumentKind::None, "stop the team and leave; --resume comes back"),
];

const EXAMPLES: [&str; 4] = [
    "Start carol as a reviewer and dave as a coder.",
    "Ask dave to write hello.py that prints a greeting, then have carol read it.",
    "Tell everybody that the deadline is Friday.",
    "Dismiss carol and show who is left.",
];

const KEYS: [(&str, &str); 11] = [
    ("@alice TEXT", "write to alice directly, past the lead"),
    ("@src/main.rs", "name a file; Tab completes it"),
    ("!COMMAND", "run a command yourself; the next prompt tells the lead its output"),
    ("y, n, n WHY, always", "answer the question above the input; Alt-Y, Alt-N, Alt-A as well"),
    ("v, e", "show all of what is asked about; edit it in your editor before it runs"),
    ("Esc", "put the question off; without one, interrupt the lead's turn"),
    ("Ctrl-O", "open what was folded last: a tool's output, a long message"),
    ("Alt-Enter, \\ Enter", "a new line without sending; a paste keeps its lines"),
    ("Up, Ctrl-R", "earlier input; search in it"),
    ("Ctrl-C", "clear the line; interrupt the turn; three times: stop the team"),
    ("Ctrl-D", "on an empty line: stop the team and leave"),
];

/// Returns the names of all slash commands.
pub(crate) fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

pub(crate) fn help(palette: Palette) -> String {
    let mut text = String::from("Say in your own words what you want done. The lead can:\n");
    text.extend(EXAMPLES.map(|example| format!("  {}\n", palette.bold(example))));
    text.push_str("\nYou may type at any time, also while the lead works.\n");
    let usage = |command: &SlashCommand| format!("{} {}", command.name, command.usage);
    let commands = COMMANDS.iter().map(|it| (usage(it).trim().to_owned(), it.about));
    let keys = KEYS.iter().map(|(key, about)| ((*key).to_owned(), *about));
    for rows in [commands.collect::<Vec<_>>(), keys.collect()] {
        let width = rows.iter().map(|(left, _)| columns(left)).max().unwrap_or_default();
        text.push('\n');
        let row = |(left, right): &(String, &str)| {
            format!("  {}  {right}\n", palette.bold(&pad(left, width)))
        };
        text.extend(rows.iter().map(row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_explained_and_fits_on_a_small_terminal() {
        let text = help(Palette::plain());
        for command in command_names() {
            assert!(command.starts_with('/') && text.contains(command), "{command}");
        }
        assert!(text.lines().all(|line| columns(line) <= 100), "{text}");
        assert!(COMMANDS.iter().all(|command| columns(command.about) <= 55));
    }
}
