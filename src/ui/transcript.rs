//! Transcript lines as a conversation for people.

use super::messages;
use super::sanitize::one_line;
use super::view::View;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};

/// The lines of a tool result that are shown.
const RESULT_LINES: usize = 20;

/// One transcript line; empty if it has no information for people.
pub(crate) fn line(line: &Line, view: &View) -> String {
    let palette = view.palette;
    let time = view.clock(line.at);
    let head = |what: String| format!("{} {what}", palette.dim(&time));
    let width = view.width.unwrap_or(200);
    let rows = match &line.entry {
        Entry::Session { incarnation, pid, model } => {
            let what = format!("── session {incarnation}, process {pid}, model {model}");
            vec![head(palette.dim(&one_line(&what, width)))]
        }
        Entry::User { content } => {
            let text = view.block(content, "  ", None);
            [vec![head(palette.bold("user"))], text].concat()
        }
        Entry::Mail { message, .. } => match Message::read(message) {
            Ok(message) => {
                return messages::entry(&format!("{time} ✉"), &message, None, view);
            }
            Err(why) => {
                let raw = serde_json::Value::Object(message.clone()).to_string();
                let raw = one_line(&raw, 200);
                vec![format!("{time} ✉ mail that cannot be read ({why}): {raw}")]
            }
        },
        Entry::Assistant { blocks, model, .. } => {
            let said = blocks.iter().flat_map(|block| said(block, view)).collect();
            [vec![head(palette.bold(&one_line(model, width)))], said].concat()
        }
        Entry::ToolStart { .. } => Vec::new(),
        Entry::ToolResult { content, is_error, .. } => {
            let rows = view.block(content, "    ", Some(RESULT_LINES));
            let paint = |row: &String| if *is_error { palette.bad(row) } else { palette.dim(row) };
            rows.iter().map(paint).collect()
        }
        Entry::Request { question, .. } => {
            let what = format!("? asks ({}): {}", question.about.word(), question.description);
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Decision(decision) => {
            let reason = decision.reason.as_ref().map(|reason| format!(": {reason}"));
            let decided = decision.outcome.word();
            let what = format!("! {decided} by {}{}", decision.by, reason.unwrap_or_default());
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Note { content } => {
            let rows = view.block(content, "  ", None);
            rows.iter().map(|row| palette.warn(row)).collect()
        }
        Entry::Compacted { summary, .. } => {
            let what = palette.dim("── the conversation until here, summarized");
            [vec![head(what)], view.block(summary, "  ", None)].concat()
        }
        Entry::TurnEnd { outcome, rounds, .. } => {
            let calls = if *rounds == 1 { "model call" } else { "model calls" };
            let end = format!("── turn {}, {rounds} {calls}", outcome.word());
            vec![head(palette.dim(&end))]
        }
        Entry::Unknown => vec![head(palette.dim("(written by a later version)"))],
    };
    rows.into_iter().map(|row| row + "\n").collect()
}

fn said(block: &Block, view: &View) -> Vec<String> {
    match block {
        Block::Text { text } => view.block(text, "  ", None),
        Block::ToolUse { name, input, .. } => {
            let width = view.width.map_or(200, |width| width.saturating_sub(2));
            let call = one_line(&format!("⏺ {name} {input}"), width);
            vec![format!("  {}", view.palette.dim(&call))]
        }
        Block::ToolResult { content, .. } => view.block(content, "    ", Some(RESULT_LINES)),
        Block::Opaque { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{StopReason, Usage};
    use crate::wire::message::Outcome;
    use serde_json::json;

    #[test]
    fn each_kind_of_line_is_shown() {
        let mail =
            json!({"type":"message","from":"bob","to":"alice","content":"hi","timestamp":2.0});
        let message = mail.as_object().unwrap().clone();
        let input = json!({"command":"ls"});
        let entries = [
            Entry::Session { incarnation: "k3f9".into(), pid: 7, model: "rehearsal".into() },
            Entry::User { content: "list\nfiles".into() },
            Entry::Mail { claim: "1".into(), offset: 0, message },
            Entry::Assistant {
                blocks: vec![
                    Block::Text { text: "Looking.".into() },
                    Block::Opaque { value: json!({"type":"thinking"}) },
                    Block::ToolUse { id: "t".into(), name: "bash".into(), input },
                ],
                stop_reason: StopReason::ToolUse,
                usage: Usage::default(),
                model: "rehearsal".into(),
            },
            Entry::ToolStart { tool_use_id: "t".into(), name: "bash".into() },
            Entry::ToolResult { tool_use_id: "t".into(), content: "a\nb".into(), is_error: false },
            Entry::Note { content: "You were restarted.".into() },
            Entry::TurnEnd { outcome: Outcome::Done, rounds: 1, report: None },
            Entry::Unknown,
        ];
        let view = View::fixed(Some(60));
        let text: String =
            entries.into_iter().map(|entry| line(&Line { at: 1.0.into(), entry }, &view)).collect();
        let wanted = "\
00:00:01 ── session k3f9, process 7, model rehearsal
00:00:01 user
  list
  files
00:00:01 ✉ bob -> alice: hi
00:00:01 rehearsal
  Looking.
  ⏺ bash {\"command\":\"ls\"}
    a
    b
  You were restarted.
00:00:01 ── turn done, 1 model call
00:00:01 (written by a later version)
";
        assert_eq!(text, wanted);
    }
}
