//! A tool call that the model still writes, in words for the viewer. Pure.
//!
//! *Invariant:* what is kept of a call does not grow with its length.

use crate::tools::find;
use crate::wire::tool_summary::summary;
use serde_json::Value;

/// The longest beginning of the arguments that is searched for the subject, in bytes.
const SUBJECT_BYTES: usize = 2048;

/// The beginning of a call, and the number of its lines so far.
#[derive(Debug, Default)]
pub(super) struct CallDraft {
    tool: String,
    begin: String,
    subject: String,
    lines: usize,
    /// Whether the last piece ended within an escape of a text.
    is_escaped: bool,
    shown: String,
}

impl CallDraft {
    /// Adds a piece of a call. Returns the words for the viewer if they have changed.
    pub(super) fn push(&mut self, tool: &str, piece: &str) -> Option<String> {
        if self.tool != tool {
            *self = Self { tool: tool.into(), ..Self::default() };
        }
        for c in piece.chars() {
            // A line end within a text of JSON is written as two characters.
            self.lines += usize::from(self.is_escaped && c == 'n');
            self.is_escaped = !self.is_escaped && c == '\\';
        }
        if self.subject.is_empty() && self.begin.len() < SUBJECT_BYTES {
            self.begin.push_str(piece);
            self.subject = subject(tool, &self.begin).unwrap_or_default();
        }
        let space = if self.subject.is_empty() { "" } else { " " };
        let lines = match self.lines {
            0 => String::new(),
            1 => " (1 line so far)".into(),
            lines => format!(" ({lines} lines so far)"),
        };
        let words = format!("{tool}{space}{}{lines}", self.subject);
        (words != self.shown).then(|| {
            self.shown.clone_from(&words);
            words
        })
    }
}

impl CallDraft {
    /// Whether the viewer has been shown anything.
    pub(super) fn is_shown(&self) -> bool {
        !self.shown.is_empty()
    }
}

/// Returns the subject of a call by its first argument, once that is complete.
fn subject(tool: &str, begin: &str) -> Option<String> {
    let end = first_comma(begin)?;
    let first: Value = serde_json::from_str(&format!("{}}}", begin.get(..end)?)).ok()?;
    first.as_object().is_some_and(|first| !first.is_empty()).then_some(())?;
    let words = summary(find(tool), &first);
    words.lines().next().map(str::to_owned)
}

/// Returns the place of the first comma outside of a text.
fn first_comma(json: &str) -> Option<usize> {
    let (mut is_text, mut is_escaped) = (false, false);
    json.char_indices().find_map(|(at, c)| {
        let is_quote = c == '"' && !is_escaped;
        is_text ^= is_quote;
        is_escaped = is_text && !is_escaped && c == '\\';
        (c == ',' && !is_text).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(tool: &str, pieces: &[&str]) -> Option<String> {
        let mut draft = CallDraft::default();
        pieces.iter().filter_map(|piece| draft.push(tool, piece)).last()
    }

    #[test]
    fn a_draft_has_its_tool_its_first_argument_and_its_lines() {
        let whole = "{\"path\":\"src/a,b.rs\",\"content\":\"one\\ntwo \\\\n\\nthree";
        let expected = "write_file src/a,b.rs (2 lines so far)";
        assert_eq!(last("write_file", &[whole]).as_deref(), Some(expected));
        let bytes: Vec<String> = whole.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(last("write_file", &bytes).as_deref(), Some(expected), "in any pieces");
        assert_eq!(last("bash", &["", "{\"command\": \"ls"]).as_deref(), Some("bash"));
        assert_eq!(last("bash", &["{\"command\": \"ls\", "]).as_deref(), Some("bash ls"));
        assert_eq!(last("odd", &["][,{,"]).as_deref(), Some("odd"));
    }

    #[test]
    fn unchanged_words_are_not_repeated_and_another_call_begins_anew() {
        let mut draft = CallDraft::default();
        assert!(draft.push("bash", "{\"command\":\"a").is_some());
        assert!(draft.push("bash", "bc").is_none());
        assert_eq!(draft.push("idle", "").as_deref(), Some("idle"));
        for _ in 0..1000 {
            draft.push("idle", &"x".repeat(100));
        }
        assert!(draft.begin.len() <= SUBJECT_BYTES + 100);
    }
}
