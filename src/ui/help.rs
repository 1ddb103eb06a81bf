//! The text of `/help`, and the list of slash commands.

use super::style::Palette;
use super::text_width::{columns, pad};

/// The slash commands: syntax and description.
const COMMANDS: [(&str, &str); 9] = [
    ("/team", "the members, their status and unread mail"),
    ("/inbox", "your lead's mail: unread, and taken in since you last looked"),
    ("/tasks", "the task list: who does what, what waits for what"),
    ("/log NAME", "the last lines of an agent's log"),
    ("/stop NAME", "end one teammate gracefully"),
    ("/mode NAME", "show or change the permission mode: plan, default, accept_edits, bypass"),
    ("/cost", "turns and tokens of all agents"),
    ("/help", "this text"),
    ("/quit", "stop the whole team gracefully and leave"),
];

const EXAMPLES: [&str; 4] = [
    "Start carol as a reviewer and dave as a coder.",
    "Ask dave to write hello.py that prints a greeting, then have carol read it.",
    "Tell everybody that the deadline is Friday.",
    "Dismiss carol and show who is left.",
];

const KEYS: [(&str, &str); 7] = [
    ("@alice TEXT", "write to alice directly, past the lead"),
    ("y, n, always", "answer the question that is shown; Alt-Y, Alt-N, Alt-A leave the line alone"),
    ("Tab", "complete a command or a name"),
    ("Alt-Enter", "a new line without sending; a paste keeps its lines"),
    ("Up, Ctrl-R", "earlier input"),
    (
        "Ctrl-C",
        "clears the line; during a turn interrupts it; again: stops the team; again: at once",
    ),
    ("Ctrl-D", "on an empty line: like /quit"),
];

/// The slash commands to complete.
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(usage, _)| usage.split(' ').next().unwrap_or(usage))
}

pub(crate) fn help(palette: Palette) -> String {
    let mut text = String::from("Say in your own words what you want done. The lead can:\n");
    text.extend(EXAMPLES.map(|example| format!("  {}\n", palette.bold(example))));
    text.push_str("\nYou may type at any time, also while the lead works.\n\n");
    text.push_str(&table(&COMMANDS, palette));
    text.push('\n');
    text.push_str(&table(&KEYS, palette));
    text
}

fn table(rows: &[(&str, &str)], palette: Palette) -> String {
    let width = rows.iter().map(|(left, _)| columns(left)).max().unwrap_or_default();
    let line =
        |(left, right): &(&str, &str)| format!("  {}  {right}\n", palette.bold(&pad(left, width)));
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_explained_and_completed() {
        let text = help(Palette::plain());
        for command in commands() {
            assert!(command.starts_with('/') && text.contains(command), "{command}");
        }
        assert!(commands().any(|command| command == "/log"));
        assert!(text.lines().all(|line| columns(line) <= 100), "{text}");
    }
}
