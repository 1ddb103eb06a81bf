//! The program of a client: its name for people, its model on the roster, and the names of members that follow from it.

use crate::wire::AgentName;

/// The beginning of the model of a member whose model another program runs; the name of the program follows.
const MODEL: &str = "mcp/";

/// The longest name that a program may give itself on the roster, in characters.
const PROGRAM_CHARS: usize = 40;

/// Names of members for programs whose own name is longer, by its beginning.
const SHORT_NAMES: [(&str, &str); 7] = [
    ("claude", "claude"),
    ("codex", "codex"),
    ("copilot", "copilot"),
    ("gemini", "gemini"),
    ("opencode", "opencode"),
    ("qwen", "qwen"),
    ("cursor", "cursor"),
];

/// Returns the model that the roster and the transcript name for a model which this program runs.
pub(in crate::app) fn model_of_program(program: &str) -> String {
    format!("{MODEL}{program}")
}

/// Whether a model on the roster or in a transcript is one that another program runs.
pub(in crate::app) fn is_of_program(model: &str) -> bool {
    model.starts_with(MODEL)
}

/// Returns the name of a program for people: short, and without characters that are no part of a name.
pub(in crate::app) fn shown_program(given: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = given
        .chars()
        .map(|c| if c == ' ' { '-' } else { c })
        .filter(fits)
        .take(PROGRAM_CHARS)
        .collect();
    if name.is_empty() { "client".into() } else { name }
}

/// Returns names of members for a program: its own, then with numbers.
pub(super) fn names_for(program: &str) -> impl Iterator<Item = AgentName> {
    let lower = program.to_ascii_lowercase();
    let short = SHORT_NAMES.iter().find(|(begin, _)| lower.starts_with(begin));
    let base = short.map_or(lower.as_str(), |(_, name)| name);
    let base: String = base
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(*c))
        .take(28)
        .collect();
    let is_name = AgentName::member(&base).is_ok();
    let base = if is_name { base } else { "client".to_owned() };
    (1..).filter_map(move |number| {
        let name = if number == 1 { base.clone() } else { format!("{base}-{number}") };
        AgentName::member(&name).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_the_name_of_its_program_or_a_numbered_one() {
        for (program, names) in [
            ("claude-code", ["claude", "claude-2"]),
            ("Codex", ["codex", "codex-2"]),
            ("gemini-cli-mcp-client", ["gemini", "gemini-2"]),
            ("copilot-cli", ["copilot", "copilot-2"]),
            ("My Agent", ["my-agent", "my-agent-2"]),
            ("lead", ["client", "client-2"]),
            ("7up", ["client", "client-2"]),
            ("../../etc", ["etc", "etc-2"]),
            ("", ["client", "client-2"]),
        ] {
            let shown = shown_program(program);
            let found: Vec<String> =
                names_for(&shown).take(2).map(|name| name.to_string()).collect();
            assert_eq!(found, names, "{program}");
        }
        assert_eq!(names_for(&"x".repeat(90)).nth(98).unwrap().as_str().len(), 31);
    }
}
