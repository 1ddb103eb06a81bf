//! The rows of a question, and the parsing of a line that answers it.

use super::diff::diff;
use super::markdown;
use super::messages::NAME_WIDTH;
use super::sanitize::{one_line, wrap};
use super::view::View;
use crate::tools::find;
use crate::view::requests::{
    Excerpt, FileChange, FileNow, SHOWN_ROWS, content, counted, editable, visible, visible_line,
};
use crate::wire::permission::{Question, QuestionKind, RuleScope};
use crate::wire::tool::SubjectArgument;

/// The maximum width of the asker with its host.
const LABEL_WIDTH: usize = 2 * NAME_WIDTH + 8;

/// The maximum width of the hosts in the first row of a question; the rows below have them in full.
const MAX_HOSTS_WIDTH: usize = 60;

const INDENT: &str = "    ";

/// Renders a question of the agent with this name and colour word, with the keys that answer it; `more` questions
/// wait after it.
pub(crate) fn ask(
    name: &str,
    color: &str,
    more: usize,
    question: &Question,
    view: &View,
) -> String {
    ask_about(name, color, more, question, None, view)
}

/// Renders a question like [`ask`], with the change to `file`, the file that it would change.
pub(crate) fn ask_about(
    name: &str,
    color: &str,
    more: usize,
    question: &Question,
    file: Option<&FileNow>,
    view: &View,
) -> String {
    let (text, omitted) = body(name, color, question, file, view);
    let first = match omitted {
        0 => String::new(),
        omitted => format!("v shows the {} in between; then ", counted(omitted)),
    };
    let keys = choices(question, 0);
    let keys: Vec<String> = keys.iter().map(|(key, meaning)| format!("{key} {meaning}")).collect();
    let more = if more == 0 { String::new() } else { format!("   ({more} more after this)") };
    let keys = format!("  {first}{}{more}", keys.join(" · "));
    format!("{text}{}\n", view.palette.dim(&keys))
}

/// Renders a question without the keys that answer it, and returns the number of rows that are left out.
pub(crate) fn body(
    name: &str,
    color: &str,
    question: &Question,
    file: Option<&FileNow>,
    view: &View,
) -> (String, usize) {
    let palette = view.palette;
    let name = palette.member(color, &one_line(name, LABEL_WIDTH));
    let mut rows = vec![format!("{} {name} asks to {}:", palette.warn("?"), purpose(question))];
    let (subject, omitted) = excerpt_rows(question, file, SHOWN_ROWS, view);
    rows.extend(subject);
    (rows.join("\n") + "\n", omitted)
}

/// Returns the completion of "NAME asks to", without the subject.
fn purpose(question: &Question) -> String {
    let tool = one_line(&question.tool, NAME_WIDTH);
    match (question.about, object(question)) {
        (QuestionKind::Plan, _) => "carry out this plan".into(),
        (QuestionKind::Permission, "command") => "run".into(),
        (QuestionKind::Permission, "host") => "fetch".into(),
        (QuestionKind::Permission, _) => format!("use {tool}"),
        (QuestionKind::Sandbox, _) if !question.hosts().is_empty() => {
            let hosts: Vec<String> = question.hosts().iter().map(ToString::to_string).collect();
            format!("reach {} with", one_line(&hosts.join(", "), MAX_HOSTS_WIDTH))
        }
        (QuestionKind::Sandbox, "command") => "run outside the walls".into(),
        (QuestionKind::Sandbox, _) => format!("leave the workspace with {tool}"),
    }
}

/// Returns the completion of "NAME asks to" with the beginning of the subject, on one line.
pub(crate) fn summary(question: &Question) -> String {
    let subject = match question.about {
        QuestionKind::Plan => return "carry out this plan".into(),
        QuestionKind::Permission | QuestionKind::Sandbox => one_line(&question.description, 200),
    };
    format!("{}: {subject}", purpose(question))
}

fn object(question: &Question) -> &'static str {
    match find(&question.tool).map(|spec| spec.subject) {
        Some(SubjectArgument::Command(_)) => "command",
        Some(SubjectArgument::File(_)) => "file",
        Some(SubjectArgument::Patch(_)) => "set of files",
        Some(SubjectArgument::Url(_)) => "host",
        Some(SubjectArgument::None) | None => "tool",
    }
}

/// The key of an answer that makes a rule. Alone it is for the team.
pub(crate) const ALWAYS: &str = "always [agent|session|team|good]";

/// Returns the keys that answer a question, and what each means; `omitted` rows of the subject are not shown yet.
pub(crate) fn choices(question: &Question, omitted: usize) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    if omitted > 0 {
        let what = format!("shows the {} in between, before a yes counts", counted(omitted));
        keys.push(("v", what));
    }
    keys.extend([("y", "yes".into()), ("n", "no".into()), ("n WHY", "no, and why".into())]);
    let object = object(question);
    let always = |object: &str| (ALWAYS, format!("yes to exactly this {object} from now on"));
    match question.about {
        QuestionKind::Plan => {}
        QuestionKind::Sandbox if !question.hosts().is_empty() => {
            let what = "yes to these hosts and exactly this command from now on";
            keys.push((ALWAYS, what.into()));
        }
        QuestionKind::Permission | QuestionKind::Sandbox if object == "command" => {
            keys.extend([always(object), ("e COMMAND", "run that instead".into())]);
        }
        QuestionKind::Permission => keys.push(always(object)),
        QuestionKind::Sandbox => keys.push(always("file")),
    }
    let edits = question.about != QuestionKind::Plan && question.hosts().is_empty();
    if edits && editable(question).is_some() {
        keys.push(("e", "edit it".into()));
    }
    keys
}

/// Returns the indented rows of the subject of a question, and the number of rows that are left out so that `most`
/// remain.
pub(crate) fn excerpt_rows(
    question: &Question,
    file: Option<&FileNow>,
    most: usize,
    view: &View,
) -> (Vec<String>, usize) {
    let subject = subject_rows(question, file, view);
    let excerpt = Excerpt::of(&subject, most);
    let mut rows = excerpt.head.to_vec();
    if excerpt.omitted > 0 {
        rows.push(view.palette.warn(&format!("{INDENT}{}", excerpt.gap())));
    }
    rows.extend(excerpt.tail.iter().cloned());
    (rows, excerpt.omitted)
}

/// Returns the number of rows that [`ask`] leaves out of the question.
pub(crate) fn omitted_rows(question: &Question, view: &View) -> usize {
    omitted_of(&subject_rows(question, None, view))
}

/// Returns the number of these rows of a subject that a question leaves out.
pub(crate) fn omitted_of(rows: &[String]) -> usize {
    Excerpt::of(rows, SHOWN_ROWS).omitted
}

/// Returns the subject of a question in full: a person must be able to read all of it before approving.
pub(crate) fn whole(question: &Question) -> String {
    content(question).join("\n")
}

/// Returns the indented rows of the subject of a question, all of them: a plan as markdown, the change to `file` with
/// its line numbers, or the lines of what it asks for.
pub(crate) fn subject_rows(
    question: &Question,
    file: Option<&FileNow>,
    view: &View,
) -> Vec<String> {
    let room = view.width.map(|width| width.saturating_sub(INDENT.len()));
    let view = View { width: room, ..view.clone() };
    let rows = match file.and_then(|file| FileChange::of(question, file)) {
        Some(change) => change_rows(question, &change, &view),
        None if question.about == QuestionKind::Plan => {
            let plan = markdown::render(&visible(&question.description), view.palette, room);
            plan.lines().map(ToOwned::to_owned).collect()
        }
        None => wrapped(content(question), room),
    };
    let indent = |row: String| if row.is_empty() { row } else { format!("{INDENT}{row}") };
    rows.into_iter().map(indent).collect()
}

fn change_rows(question: &Question, change: &FileChange<'_>, view: &View) -> Vec<String> {
    let path = visible_line(&question.description);
    let notice = |text: String| {
        let rows = wrapped(vec![text], view.width);
        rows.iter().map(|row| view.palette.warn(row)).collect::<Vec<_>>()
    };
    match change {
        FileChange::Versions { before, after } => {
            let diff = diff(before.unwrap_or_default(), after, view);
            let state = match before {
                None => format!("new file, {}", counted(after.lines().count())),
                Some(_) if diff.rows.is_empty() => "no change".into(),
                Some(_) => diff.counts(),
            };
            [wrapped(vec![format!("{path}  {state}")], view.width), diff.rows].concat()
        }
        FileChange::NoPlace { why } => {
            let why = format!("the edit would fail: {}", visible_line(why));
            let mut lines = content(question);
            let rest = lines.split_off(1.min(lines.len()));
            let head = wrapped(lines, view.width);
            [head, notice(why), wrapped(rest, view.width)].concat()
        }
    }
}

fn wrapped(lines: Vec<String>, width: Option<usize>) -> Vec<String> {
    lines.into_iter().flat_map(|line| wrap(line.trim_end(), width)).collect()
}

/// The reply to a line that is no answer, while a question waits.
pub(crate) const NOT_AN_ANSWER: &str =
    "not an answer, nothing was decided: y, n, or n and why; Esc postpones the question";

/// The reason for which an approval does not count yet.
pub(crate) fn look_first(omitted: usize) -> String {
    format!("nothing is approved yet: v shows the {} in between; then y", counted(omitted))
}

/// A person's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedAnswer {
    Yes,
    /// No, perhaps with a reason.
    No(Option<String>),
    /// Yes, and from now on without a question, for the agents and the time of the scope.
    Always(RuleScope),
    /// Run this command instead.
    Instead(String),
    /// Change the subject in the person's editor.
    Edit,
    /// No answer yet: show the whole subject.
    ShowWhole,
}

/// Parses a line as an answer to an open question; `None` if it is not one. Case does not matter, and a yes or a no
/// may be polite.
pub(crate) fn understand(line: &str) -> Option<TypedAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let word = word.trim_end_matches([',', '.', '!', ':', ';']).to_lowercase();
    let polite = rest.trim_end_matches(['.', '!']).to_lowercase();
    let is_polite = matches!(&*polite, "" | "please" | "pls" | "thanks" | "thank you" | "sure");
    match (&*word, rest) {
        ("y" | "yes" | "yep" | "yeah" | "ok" | "okay" | "sure", _) if is_polite => {
            Some(TypedAnswer::Yes)
        }
        ("n" | "no" | "nope", _) if is_polite => Some(TypedAnswer::No(None)),
        ("n" | "no", why) => Some(TypedAnswer::No(Some(why.into()))),
        ("a" | "always", scope) => {
            let scope = scope.to_lowercase();
            let scope = scope.trim_start_matches("for ");
            let scope = if scope.is_empty() { RuleScope::Team } else { RuleScope::parse(scope)? };
            Some(TypedAnswer::Always(scope))
        }
        ("v" | "view", "") => Some(TypedAnswer::ShowWhole),
        ("e" | "edit", "") => Some(TypedAnswer::Edit),
        ("e" | "edit", command) => Some(TypedAnswer::Instead(command.into())),
        _ => None,
    }
}

/// Whether a line asks for the person's editor on the subject of a question.
pub(crate) fn is_edit(line: &str) -> bool {
    understand(line) == Some(TypedAnswer::Edit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        let rows = "plan:\n    1. look<U+001B>[2J<U+001B>[A\n    2. write\n";
        assert!(text.contains(rows), "{text}");
    }

    #[test]
    fn a_long_subject_shows_both_ends_and_can_be_shown_in_full() {
        let content: Vec<String> = (1..=60).map(|line| format!("line {line}.\u{1b}[A")).collect();
        let input = json!({"path": "a", "content": content.join("\n")});
        let long = question("write_file", "a", &input);
        let text = shown(&long, 0);
        assert!(text.contains("line 19.") && !text.contains("line 20."), "{text}");
        assert!(!text.contains("line 40.") && text.contains("line 41."), "{text}");
        assert!(text.contains("    … 21 lines left out here …\n"), "{text}");
        assert!(text.contains("  v shows the 21 lines in between; then y yes"), "{text}");
        assert!(text.contains(" · e edit it"), "{text}");
        let all = whole(&long);
        assert!(all.contains("+ line 30.<U+001B>[A") && !all.contains('\u{1b}'), "{all}");
        assert!(!shown(&question("bash", "ls", &json!({})), 0).contains("left out"));
        // A line that is wrapped counts as the rows that it takes.
        let wide = "x".repeat(95 * 41);
        let wide = question("bash", &wide, &json!({ "command": wide }));
        assert_eq!(omitted_rows(&wide, &View::fixed(Some(99))), 1);
        assert_eq!(omitted_rows(&wide, &View::fixed(None)), 0);
    }

    fn shown_with(question: &Question, file: &FileNow) -> String {
        ask_about("alice", "", 0, question, Some(file), &View::fixed(Some(80)))
    }

    #[test]
    fn a_change_of_a_file_has_its_line_numbers_and_its_context() {
        let before: Vec<String> = (1..=20).map(|line| format!("line {line}\n")).collect();
        let before = before.concat();
        let file = FileNow::Text(before.clone());
        let input = json!({"path": "a.rs", "old_text": "line 10", "new_text": "line ten\u{1b}[2J"});
        let edit = question("edit_file", "a.rs", &input);
        let wanted = "\
? alice asks to use edit_file:
    a.rs  +1 −1
     7  7   line 7
     8  8   line 8
     9  9   line 9
    10    - line 10
       10 + line ten<U+001B>[2J
    11 11   line 11
    12 12   line 12
    13 13   line 13
";
        let text = shown_with(&edit, &file);
        assert!(text.starts_with(wanted), "{text}");
        let write = |content: &str| {
            question("write_file", "a.rs", &json!({"path": "a.rs", "content": content}))
        };
        let text = shown_with(&write("one\ntwo\n"), &FileNow::Missing);
        assert!(
            text.contains("    a.rs  new file, 2 lines\n      1 + one\n      2 + two\n"),
            "{text}"
        );
        let text = shown_with(&write(&before), &file);
        assert!(text.contains("    a.rs  no change\n  y yes"), "{text}");
        let text = shown_with(&edit, &FileNow::Text("other\n".into()));
        let notice =
            "    a.rs\n    the edit would fail: the text to replace occurs 0 times in a.rs\n";
        assert!(text.contains(notice) && text.contains("    - line 10\n    + line ten"), "{text}");
        let text = shown_with(&edit, &FileNow::Text("line 10, line 100\n".into()));
        assert!(text.contains("the text to replace occurs 2 times in a.rs"), "{text}");
    }

    #[test]
    fn a_long_change_is_left_out_in_its_middle() {
        let content: Vec<String> = (1..=60).map(|line| format!("line {line}.\n")).collect();
        let input = json!({"path": "a", "content": content.concat()});
        let long = question("write_file", "a", &input);
        let text = shown_with(&long, &FileNow::Missing);
        assert!(text.contains("… 21 lines left out here …"), "{text}");
        let rows = subject_rows(&long, Some(&FileNow::Missing), &View::fixed(Some(60)));
        assert_eq!((rows.len(), omitted_of(&rows)), (61, 21));
        let all = rows.concat();
        assert!((1..=60).all(|line| all.contains(&format!("line {line}."))), "{all}");
    }

    #[test]
    fn a_plan_is_markdown_in_which_nothing_is_hidden() {
        let plan = "# Plan\n1. **look**\n2. write\u{202e}\n\n```sh and hidden\nls\n```\n<!-- x -->";
        let text = shown(&question("submit_plan", plan, &json!({})), 0);
        let wanted = "    # Plan\n    1. look\n    2. write<U+202E>\n\n      sh and hidden\n      ls\n    <!-- x -->\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn only_an_answer_is_parsed_as_one() {
        for (line, said) in [
            ("y", TypedAnswer::Yes),
            ("Y", TypedAnswer::Yes),
            (" Yes ", TypedAnswer::Yes),
            ("NO", TypedAnswer::No(None)),
            (" yes ", TypedAnswer::Yes),
            ("n", TypedAnswer::No(None)),
            ("n too risky", TypedAnswer::No(Some("too risky".into()))),
            ("always", TypedAnswer::Always(RuleScope::Team)),
            ("always agent", TypedAnswer::Always(RuleScope::Agent)),
            ("Always for good", TypedAnswer::Always(RuleScope::Good)),
            ("e cargo test", TypedAnswer::Instead("cargo test".into())),
            ("edit", TypedAnswer::Edit),
            ("v", TypedAnswer::ShowWhole),
            ("YES", TypedAnswer::Yes),
            ("ok", TypedAnswer::Yes),
            ("y please", TypedAnswer::Yes),
            ("Yes, please!", TypedAnswer::Yes),
            ("no, write it anew", TypedAnswer::No(Some("write it anew".into()))),
        ] {
            assert_eq!(understand(line), Some(said), "{line}");
        }
        for line in
            ["", "yes but later", "Y is better", "always do so", "/mode", "what?", "okay then"]
        {
            assert_eq!(understand(line), None, "{line}");
        }
    }
}
