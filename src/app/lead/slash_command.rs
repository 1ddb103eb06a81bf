//! What a person types at the lead's prompt: a prompt for the model, a slash command, `@name text`.

use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;

/// A typed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypedLine {
    Blank,
    /// For the lead's model.
    Prompt(String),
    /// For one member, past the lead's model.
    Direct {
        to: String,
        text: String,
    },
    Show(View),
    /// Stop one member.
    Stop(AgentName),
    Mode(PermissionMode),
    /// Stop the team.
    Quit,
    /// Not understood: why, and what to type instead.
    Invalid(String),
}

/// A view of a slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    Team,
    Inbox,
    Tasks,
    Log(AgentName),
    Mode,
    Cost,
    Help,
}

/// Parses a line.
pub(super) fn parse(line: &str) -> TypedLine {
    let line = line.trim();
    if line.is_empty() {
        return TypedLine::Blank;
    }
    if let Some(rest) = line.strip_prefix('@') {
        return match rest.split_once(char::is_whitespace) {
            Some((to, text)) if !text.trim().is_empty() => {
                TypedLine::Direct { to: to.into(), text: text.trim().into() }
            }
            _ => TypedLine::Invalid(
                "write @NAME TEXT, for example: @alice start with the schema".into(),
            ),
        };
    }
    let Some(command) = line.strip_prefix('/') else { return TypedLine::Prompt(line.into()) };
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["help" | "?", ..] => TypedLine::Show(View::Help),
        ["team" | "status"] => TypedLine::Show(View::Team),
        ["inbox"] => TypedLine::Show(View::Inbox),
        ["tasks"] => TypedLine::Show(View::Tasks),
        ["cost"] => TypedLine::Show(View::Cost),
        ["mode"] => TypedLine::Show(View::Mode),
        ["mode", word] => PermissionMode::parse(word)
            .map_or_else(|| TypedLine::Invalid(unknown_mode(word)), TypedLine::Mode),
        ["log", name] => named(name, |name| TypedLine::Show(View::Log(name))),
        ["stop", name] => named(name, TypedLine::Stop),
        [verb @ ("log" | "stop")] => {
            TypedLine::Invalid(format!("write /{verb} NAME; /team shows the names"))
        }
        ["quit" | "exit"] => TypedLine::Quit,
        _ => {
            let verb = words.first().copied().unwrap_or_default();
            TypedLine::Invalid(format!("/{verb} is not a command here; /help lists them"))
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
    format!("{word:?} is no mode; there are: {}", modes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_line_is_recognised() {
        let alice = || AgentName::member("alice").unwrap();
        let cases = [
            ("", TypedLine::Blank),
            ("  do it ", TypedLine::Prompt("do it".into())),
            ("/team", TypedLine::Show(View::Team)),
            ("/status", TypedLine::Show(View::Team)),
            ("/inbox", TypedLine::Show(View::Inbox)),
            ("/tasks", TypedLine::Show(View::Tasks)),
            ("/cost", TypedLine::Show(View::Cost)),
            ("/mode", TypedLine::Show(View::Mode)),
            ("/mode plan", TypedLine::Mode(PermissionMode::Plan)),
            ("/log lead", TypedLine::Show(View::Log(AgentName::lead()))),
            ("/stop  alice ", TypedLine::Stop(alice())),
            ("/help", TypedLine::Show(View::Help)),
            ("/? mode of it", TypedLine::Show(View::Help)),
            ("/quit", TypedLine::Quit),
            ("/exit", TypedLine::Quit),
            ("@alice  go on", TypedLine::Direct { to: "alice".into(), text: "go on".into() }),
        ];
        for (line, typed) in cases {
            assert_eq!(parse(line), typed, "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_answered_with_what_to_type_instead() {
        for (line, answer) in [
            ("/taem", "/taem is not a command here"),
            ("/", "/ is not a command here"),
            ("/team now", "/team is not a command here"),
            ("/log lead alice", "/log is not a command here"),
            ("/stop", "write /stop NAME"),
            ("/log", "write /log NAME"),
            ("/stop Alice", "Alice"),
            ("@alice", "write @NAME TEXT"),
            ("@alice  ", "write @NAME TEXT"),
            ("/mode swift", "\"swift\" is no mode"),
        ] {
            let TypedLine::Invalid(why) = parse(line) else { panic!("{line} was accepted") };
            assert!(why.contains(answer), "{line}: {why}");
        }
    }
}
