//! A tool call and its result, each as one line.

use super::sanitize::{columns, fit, one_line};
use crate::tools::find;
use crate::view::requests::counted;
use crate::wire::tool_summary::summary;
use serde_json::Value;

/// The widest name of a tool that is shown in full, in columns.
const NAME_WIDTH: usize = 40;

/// Renders a call as its tool and its subject: `bash  cargo test`. The text is plain and at most `width` columns wide.
pub(crate) fn call(name: &str, input: &Value, width: usize) -> String {
    line(name, &summary(find(name), input), width)
}

/// Renders a call like [`call`] from a summary that was made before.
pub(crate) fn line(name: &str, summary: &str, width: usize) -> String {
    let name = one_line(name, NAME_WIDTH.min(width));
    let room = width.saturating_sub(columns(&name) + 2);
    let subject = one_line(summary, room);
    if subject.is_empty() { name } else { format!("{name}  {subject}") }
}

/// Renders a result as one line: its text if it has one line that is short, else the number of its lines.
pub(crate) fn folded(content: &str, width: usize) -> String {
    let content = content.trim();
    let lines = content.lines().count();
    let text = one_line(content, width);
    let is_whole = lines <= 1 && !text.ends_with('…');
    if is_whole { text } else { fit(&counted(lines), width).into_owned() }
}

/// Splits the result of a command that did not succeed into its output and the words about its end, such as
/// `exit code 1`.
pub(crate) fn exit_note(content: &str) -> Option<(&str, &str)> {
    let content = content.trim_end();
    let (output, last) = content.rsplit_once('\n').unwrap_or(("", content));
    let note = last.strip_prefix('[')?.strip_suffix(']')?;
    let is_note = ["exit code ", "ended by signal ", "timed out after "];
    is_note.iter().any(|words| note.starts_with(words)).then_some((output, note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_one_line_with_the_subject_of_its_tool() {
        for (name, input, wanted) in [
            ("bash", json!({"command": "cargo  test\n --all"}), "bash  cargo test --all"),
            (
                "read_file",
                json!({"path": "src/a.rs", "offset": 3, "limit": 2}),
                "read_file  src/a.rs:3-4",
            ),
            ("write_file", json!({"path": "a", "content": "x"}), "write_file  a (1 line)"),
            (
                "send_message",
                json!({"to": "bob", "content": "hi there"}),
                "send_message  bob: hi there",
            ),
            ("claim_task", json!({"task_id": "3"}), "claim_task  3"),
            (
                "update_task",
                json!({"task_id": "3", "status": "pending"}),
                "update_task  3 status=pending",
            ),
            (
                "spawn_teammate",
                json!({"name": "al", "role": "coder", "prompt": "go"}),
                "spawn_teammate  al coder: go",
            ),
            ("idle", json!({}), "idle"),
            ("mcp_x", json!({"q": "a\u{1b}[2Jb"}), "mcp_x  q=ab"),
        ] {
            assert_eq!(call(name, &input, 60), wanted);
        }
        assert_eq!(call("bash", &json!({"command": "cargo test"}), 12), "bash  cargo…");
    }

    #[test]
    fn the_end_of_a_command_is_told_by_its_last_line() {
        assert_eq!(exit_note("a\nb\n[exit code 1]"), Some(("a\nb", "exit code 1")));
        assert_eq!(exit_note("[ended by signal 9]\n"), Some(("", "ended by signal 9")));
        for other in ["", "a", "[x]", "exit code 1", "[exit code 1]\nb"] {
            assert_eq!(exit_note(other), None, "{other}");
        }
    }

    #[test]
    fn a_result_is_its_only_line_or_the_number_of_lines() {
        assert_eq!(folded(" done \n", 20), "done");
        assert_eq!(folded("a\nb\n", 20), "2 lines");
        assert_eq!(folded(&"a ".repeat(30), 20), "1 line");
        assert_eq!(folded("\u{1b}[2Jx", 20), "x");
        assert_eq!(folded("", 20), "");
    }
}
