//! The content of a request as a person must see it before an answer: every character that a terminal or a browser
//! hides has a visible sign, and a long content is cut in its middle, never at its end.

use crate::tools::edit_preview;
use crate::tools::find;
use crate::wire::permission::{Question, QuestionKind};
use crate::wire::tool::{SubjectArgument, ToolSpec};
use serde_json::Value;
use std::borrow::Cow;

/// The number of rows of a request that are shown before the person asks for all of them.
pub(crate) const SHOWN_ROWS: usize = 40;

/// Returns the text with a sign such as `<U+202E>` for each control, bidi and zero-width character. Line feeds
/// and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        if is_shown(c) {
            made.push(c);
        } else {
            made.push_str(&sign(c));
        }
    }
    Cow::Owned(made)
}

/// Returns the text on one line, with a sign also for line feeds and tabs: a path has neither.
pub(crate) fn visible_line(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { sign(c) } else { c.into() }).collect()
}

fn sign(c: char) -> String {
    format!("<U+{:04X}>", u32::from(c))
}

/// Whether a character is a control character, a line separator, or takes no room.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || takes_no_room(c)
}

/// Whether a character is a bidi control, a zero-width character, a variation selector or a tag: these can reorder
/// or hide text.
pub(crate) fn takes_no_room(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the lines of what a request asks for: a command, with the reason for which it is to leave the walls or the
/// hosts that it is to reach, a plan, or a path and the lines that would be removed and added there.
pub(crate) fn content(question: &Question) -> Vec<String> {
    let field = |name: &str| question.input.get(name).and_then(Value::as_str);
    let marked =
        |mark: &'static str, text| lines(text).map(move |line| format!("{mark} {}", visible(line)));
    let path = || vec![visible_line(&question.description)];
    let edits = edits(&question.input);
    match field("content") {
        Some(content) => path().into_iter().chain(marked("+", content)).collect(),
        None if !edits.is_empty() => {
            let rows = edits.iter().flat_map(|(old, new)| marked("-", old).chain(marked("+", new)));
            let is_everywhere = question.input.get("replace_all") == Some(&Value::Bool(true));
            let everywhere = is_everywhere.then(|| "everywhere in the file:".to_owned());
            path().into_iter().chain(everywhere).chain(rows).collect()
        }
        None if is_patch(question) => lines(field("input").unwrap_or_default())
            .map(|line| visible(line).into_owned())
            .collect(),
        None if is_file(question) => path(),
        _ => {
            let reason = field("outside").filter(|_| question.about == QuestionKind::Sandbox);
            let reason = reason.map(|why| format!("reason: {}", visible_line(why)));
            let command = lines(&question.description).map(|line| visible(line).into_owned());
            let hosts =
                question.hosts().into_iter().filter(|_| question.about == QuestionKind::Sandbox);
            let hosts = hosts.map(|host| format!("host: {host}"));
            command.chain(reason).chain(hosts).collect()
        }
    }
}

/// Returns the replacements of a call that edits a file: each old and new text.
fn edits(input: &Value) -> Vec<(&str, &str)> {
    fn pair(edit: &Value) -> Option<(&str, &str)> {
        Some((edit.get("old_text")?.as_str()?, edit.get("new_text")?.as_str()?))
    }
    let more = input.get("edits").and_then(Value::as_array).into_iter().flatten();
    std::iter::once(input).chain(more).filter_map(pair).collect()
}

fn is_patch(question: &Question) -> bool {
    let subject = find(&question.tool).map(|tool| tool.subject);
    matches!(subject, Some(SubjectArgument::Patch(_)))
}

/// The file that a question would change, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileNow {
    Missing,
    Text(String),
}

/// The change that a call would make to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileChange<'a> {
    /// The file gets other content; it may not exist before.
    Versions { before: Option<&'a str>, after: Cow<'a, str> },
    /// The call would fail, for this reason.
    NoPlace { why: String },
}

impl<'a> FileChange<'a> {
    /// Returns the change of a call that writes a file or a piece of it; `None` for any other call.
    pub(crate) fn of(question: &'a Question, file: &'a FileNow) -> Option<Self> {
        let field = |name: &str| question.input.get(name).and_then(Value::as_str);
        let before = match file {
            FileNow::Missing => None,
            FileNow::Text(text) => Some(text.as_str()),
        };
        if let Some(content) = field("content") {
            return Some(Self::Versions { before, after: Cow::Borrowed(content) });
        }
        Some(match edit_preview(&question.input, before.unwrap_or_default())? {
            Ok(after) => Self::Versions { before, after: Cow::Owned(after) },
            Err(why) => {
                // The rest is advice for the model.
                let why = why.split(';').next().unwrap_or_default();
                Self::NoPlace { why: why.replace("old_text", "the text to replace") }
            }
        })
    }
}

fn is_file(question: &Question) -> bool {
    let subject = find(&question.tool).map(|tool| tool.subject);
    let leaves = question.about == QuestionKind::Sandbox;
    leaves && find(&question.tool).and_then(ToolSpec::command_argument).is_none()
        || matches!(subject, Some(SubjectArgument::File(_)))
}

/// Returns the lines of a text; an empty text has none, and a line feed at the end starts no further line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let whole = text.strip_suffix('\n').unwrap_or(text);
    whole.split('\n').filter(|_| !text.is_empty())
}

/// Returns the argument of a call that a person may change, and its text; `None` if an answer can only be yes or no.
pub(crate) fn editable(question: &Question) -> Option<(&'static str, &str)> {
    let is_call = match question.about {
        QuestionKind::Permission => true,
        // A file outside is read or written as it was asked.
        QuestionKind::Sandbox => find(&question.tool)?.command_argument().is_some(),
        QuestionKind::Plan => false,
    };
    if !is_call {
        return None;
    }
    let names = find(&question.tool)?.command_argument().into_iter().chain(["content", "new_text"]);
    names.into_iter().find_map(|name| Some((name, question.input.get(name)?.as_str()?)))
}

/// The first and the last rows of a long content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt<'a, T> {
    pub(crate) head: &'a [T],
    /// The number of rows between head and tail that are left out.
    pub(crate) omitted: usize,
    pub(crate) tail: &'a [T],
}

impl<'a, T> Excerpt<'a, T> {
    /// Leaves rows out of the middle, so that `most` remain.
    pub(crate) fn of(rows: &'a [T], most: usize) -> Self {
        let omitted = rows.len().saturating_sub(most);
        let end = if omitted == 0 { rows.len() } else { most.div_ceil(2) };
        let (head, rest) = rows.split_at(end);
        Self { head, omitted, tail: rest.get(omitted..).unwrap_or_default() }
    }

    /// Returns the words for the rows that are left out.
    pub(crate) fn gap(&self) -> String {
        format!("… {} left out here …", counted(self.omitted))
    }
}

/// Returns `1 line`, `2 lines`.
pub(crate) fn counted(lines: usize) -> String {
    format!("{lines} line{}", if lines == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn content_of(tool: &str, description: &str, input: &Value) -> Vec<String> {
        let question = json!({"request_id": "a:t", "tool_use_id": "t", "about": "permission",
            "tool": tool, "description": description, "input": input});
        content(&serde_json::from_value(question).unwrap())
    }

    #[test]
    fn hidden_characters_have_signs_and_layout_stays() {
        let command = "ls\n\tx\u{202e}y\u{1b}[2J\r\u{200b}é";
        let shown = content_of("bash", command, &json!({ "command": command }));
        assert_eq!(shown, ["ls", "\tx<U+202E>y<U+001B>[2J<U+000D><U+200B>é"]);
        let input = json!({"path": "a\nb", "content": "one\r\n\ntwo\n\n"});
        let shown = content_of("write_file", "a\nb\u{e0041}", &input);
        assert_eq!(shown, ["a<U+000A>b<U+E0041>", "+ one<U+000D>", "+ ", "+ two", "+ "]);
        let input = json!({"old_text": "x\ny", "new_text": ""});
        assert_eq!(content_of("edit_file", "a", &input), ["a", "- x", "- y"]);
        assert_eq!(content_of("read_file", "a\n", &json!({"path": "a\n"})), ["a<U+000A>"]);
    }

    #[test]
    fn only_commands_and_new_text_of_files_can_be_changed() {
        for (tool, input, wanted) in [
            ("bash", json!({"command": "ls", "timeout": 3}), Some(("command", "ls"))),
            ("write_file", json!({"path": "a", "content": "b"}), Some(("content", "b"))),
            ("edit_file", json!({"old_text": "a", "new_text": "b"}), Some(("new_text", "b"))),
            ("read_file", json!({"path": "a"}), None),
            ("unknown", json!({"content": "a"}), None),
        ] {
            let question = json!({"request_id": "a:t", "tool_use_id": "t", "about": "permission",
                "tool": tool, "description": "d", "input": input});
            let question: Question = serde_json::from_value(question).unwrap();
            assert_eq!(editable(&question), wanted, "{tool}");
        }
    }

    #[test]
    fn a_change_is_made_to_the_file_as_it_is() {
        let change = |input: Value, file: &FileNow| {
            let question = json!({"request_id": "a:t", "tool_use_id": "t", "about": "permission",
                "tool": "edit_file", "description": "a", "input": input});
            let question: Question = serde_json::from_value(question).unwrap();
            match FileChange::of(&question, file)? {
                FileChange::Versions { before, after } => Some(format!("{before:?} {after:?}")),
                FileChange::NoPlace { why } => Some(why),
            }
        };
        let text = FileNow::Text("one two".into());
        let edit = |old: &str| json!({"path": "a", "old_text": old, "new_text": "2"});
        for (input, file, wanted) in [
            (edit("two"), &text, Some("Some(\"one two\") \"one 2\"")),
            (edit("three"), &text, Some("the text to replace occurs 0 times in a")),
            (edit("o"), &text, Some("the text to replace occurs 2 times in a, at lines 1, 1")),
            (edit(""), &text, Some("the text to replace is empty")),
            (edit("two"), &FileNow::Missing, Some("the text to replace occurs 0 times in a")),
            (
                json!({"path": "a", "edits": [{"old_text": "one", "new_text": "1"}, {"old_text": "two", "new_text": "1"}]}),
                &text,
                Some("Some(\"one two\") \"1 1\""),
            ),
            (
                json!({"path": "a", "old_text": "o", "new_text": "0", "replace_all": true}),
                &text,
                Some("Some(\"one two\") \"0ne tw0\""),
            ),
            (json!({"content": "x"}), &text, Some("Some(\"one two\") \"x\"")),
            (json!({"content": "x"}), &FileNow::Missing, Some("None \"x\"")),
            (json!({"command": "x"}), &text, None),
        ] {
            assert_eq!(change(input.clone(), file).as_deref(), wanted, "{input}");
        }
    }

    proptest! {
        #[test]
        fn an_excerpt_shows_both_ends_and_counts_the_rest(rows in 0usize..100, most in 0usize..50) {
            let rows: Vec<usize> = (0..rows).collect();
            let excerpt = Excerpt::of(&rows, most);
            let Excerpt { head, omitted, tail } = excerpt;
            prop_assert_eq!(head.len() + omitted + tail.len(), rows.len());
            prop_assert!(rows.starts_with(head) && rows.ends_with(tail));
            prop_assert!(head.len() + tail.len() == rows.len().min(most));
        }

        #[test]
        fn no_hidden_character_is_left(text: String) {
            let shown = visible(&text);
            prop_assert!(shown.chars().all(|c| matches!(c, '\n' | '\t') || !is_hidden(c)));
            prop_assert!(!visible_line(&text).chars().any(is_hidden));
        }
    }
}
