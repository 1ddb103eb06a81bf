//! The rows of a question, and the parsing of a line that answers it.

use super::messages::NAME_WIDTH;
use super::sanitize::{one_line, sanitize};
use super::view::View;
use crate::tools::find;
use crate::wire::permission::{Question, QuestionKind};
use crate::wire::tool::SubjectArgument;
use serde_json::Value;

/// The number of lines of a command, a change or a plan that are shown.
const SHOWN_LINES: usize = 40;

/// Renders a question of the agent with this name and colour word; `more` questions wait after it.
pub(crate) fn ask(
    name: &str,
    color: &str,
    more: usize,
    question: &Question,
    view: &View,
) -> String {
    let palette = view.palette;
    let name = palette.member(color, &one_line(name, NAME_WIDTH));
    let tool = one_line(&question.tool, NAME_WIDTH);
    let object = match find(&question.tool).map(|spec| spec.subject) {
        Some(SubjectArgument::Command(_)) => "command",
        Some(SubjectArgument::File(_)) => "file",
        Some(SubjectArgument::None) | None => "tool",
    };
    let always = |object| format!(" · always yes to this very {object}");
    let (what, keys) = match question.about {
        QuestionKind::Plan => ("carry out this plan:".into(), String::new()),
        QuestionKind::Permission if object == "command" => {
            ("run:".into(), always(object) + " · e COMMAND run that instead")
        }
        QuestionKind::Permission => (format!("use {tool}:"), always(object)),
        QuestionKind::Sandbox => (format!("leave the workspace with {tool}:"), always("file")),
    };
    let mut rows = vec![format!("{} {name} asks to {what}", palette.warn("?"))];
    let subject = subject_text(question);
    rows.extend(view.block(&subject, "    ", Some(SHOWN_LINES)));
    let is_cut = subject.lines().count() > SHOWN_LINES;
    let whole = if is_cut { "v the whole of it · " } else { "" };
    let more = if more == 0 { String::new() } else { format!("   ({more} more after this)") };
    let keys = format!("  {whole}y yes · n no · n WHY no, and why{keys}{more}");
    rows.push(palette.dim(&keys));
    rows.join("\n") + "\n"
}

/// Returns the subject of a question in full: a person must be able to read all of it before approving.
pub(crate) fn whole(question: &Question) -> String {
    sanitize(&subject_text(question)).into_owned()
}

/// Returns the subject of a question; a change of a file becomes removed and added lines.
fn subject_text(question: &Question) -> String {
    let field = |name: &str| question.input.get(name).and_then(Value::as_str);
    let marked = |mark: &str, text: &str| -> String {
        text.lines().flat_map(|line| ["\n", mark, " ", line]).collect()
    };
    let path = &question.description;
    match (field("content"), field("old_text"), field("new_text")) {
        (Some(content), ..) => format!("{path}{}", marked("+", content)),
        (None, Some(old), Some(new)) => format!("{path}{}{}", marked("-", old), marked("+", new)),
        _ => path.clone(),
    }
}

/// A person's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedAnswer {
    Yes,
    /// No, perhaps with a reason.
    No(Option<String>),
    /// Yes, and from now on without a question.
    Always,
    /// Run this command instead.
    Instead(String),
    /// Run another command instead, but the line does not contain it.
    InsteadOfWhat,
    /// No answer yet: show the whole subject.
    ShowWhole,
}

/// Parses a line as an answer to an open question; `None` if it is not one.
pub(crate) fn understand(line: &str) -> Option<TypedAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (word, rest) {
        ("y" | "yes", "") => Some(TypedAnswer::Yes),
        ("n" | "no", "") => Some(TypedAnswer::No(None)),
        ("n", why) => Some(TypedAnswer::No(Some(why.into()))),
        ("a" | "always", "") => Some(TypedAnswer::Always),
        ("v" | "view", "") => Some(TypedAnswer::ShowWhole),
        ("e" | "edit", "") => Some(TypedAnswer::InsteadOfWhat),
        ("e" | "edit", command) => Some(TypedAnswer::Instead(command.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn question(tool: &str, description: &str, input: &Value) -> Question {
        let about = if tool == "submit_plan" { "plan" } else { "permission" };
        serde_json::from_value(json!({"request_id": "alice:t", "tool_use_id": "t", "about": about,
            "tool": tool, "description": description, "input": input}))
        .unwrap()
    }

    fn shown(question: &Question, more: usize) -> String {
        ask("alice", "blue", more, question, &View::fixed(Some(100)))
    }

    #[test]
    fn a_question_shows_agent_and_subject() {
        let bash = question("bash", "rm -r target", &json!({"command": "rm -r target"}));
        let text = shown(&bash, 2);
        assert!(text.starts_with("? alice asks to run:\n    rm -r target\n  y yes"), "{text}");
        assert!(text.contains("(2 more after this)"), "{text}");
        let input = json!({"path": "a.rs", "old_text": "x\ny", "new_text": "z"});
        let text = shown(&question("edit_file", "a.rs", &input), 0);
        assert!(text.contains("use edit_file:\n    a.rs\n    - x\n    - y\n    + z\n"), "{text}");
        let plan = "1. look\u{1b}[2J\u{1b}[A\n2. write";
        let text = shown(&question("submit_plan", plan, &json!({})), 0);
        assert!(text.contains("plan:\n    1. look\n    2. write\n"), "{text}");
    }

    #[test]
    fn a_truncated_subject_can_be_shown_in_full() {
        let content: Vec<String> = (1..=41).map(|line| format!("line {line}\u{1b}[A")).collect();
        let input = json!({"path": "a", "content": content.join("\n")});
        let long = question("write_file", "a", &input);
        let text = shown(&long, 0);
        assert!(!text.contains("line 41"), "{text}");
        assert!(text.contains("  v the whole of it · y yes"), "{text}");
        let all = whole(&long);
        assert!(all.contains("+ line 41") && !all.contains('\u{1b}'), "{all}");
        assert!(!shown(&question("bash", "ls", &json!({})), 0).contains("whole"));
    }

    #[test]
    fn only_an_answer_is_parsed_as_one() {
        for (line, said) in [
            ("y", TypedAnswer::Yes),
            (" yes ", TypedAnswer::Yes),
            ("n", TypedAnswer::No(None)),
            ("n too risky", TypedAnswer::No(Some("too risky".into()))),
            ("always", TypedAnswer::Always),
            ("e cargo test", TypedAnswer::Instead("cargo test".into())),
            ("edit", TypedAnswer::InsteadOfWhat),
            ("v", TypedAnswer::ShowWhole),
        ] {
            assert_eq!(understand(line), Some(said), "{line}");
        }
        for line in ["", "yes please", "no, write it anew", "Y", "always do so", "/mode", "what?"] {
            assert_eq!(understand(line), None, "{line}");
        }
    }
}
