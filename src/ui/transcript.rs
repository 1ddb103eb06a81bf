//! Transcript lines as a conversation for people.

use super::messages;
use super::sanitize::one_line;
use super::view::{Extent, View};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};

/// The lines of a tool result that are shown.
const RESULT_LINES: usize = 20;

/// One transcript line; empty if it has no information for people.
pub(crate) fn line(line: &Line, view: &View) -> String {
    let palette = view.palette;
    let time = palette.dim(&view.clock(line.at));
    let width = view.width.unwrap_or(200);
    let rows = match &line.entry {
        Entry::Session { incarnation, pid, model } => {
            let what = format!("── session {incarnation}, process {pid}, model {model}");
            vec![format!("{time} {}", palette.dim(&one_line(&what, width)))]
        }
        Entry::User { content } => {
            let mut rows = vec![format!("{time} {}", palette.bold("user"))];
            rows.extend(view.block(content, "  ", Extent::Whole));
            rows
        }
        Entry::Mail { message, .. } => return mail(message, &view.clock(line.at), view),
        Entry::Assistant { blocks, model, .. } => {
            let mut rows = vec![format!("{time} {}", palette.bold(&one_line(model, width)))];
            rows.extend(blocks.iter().flat_map(|block| said(block, view)));
            rows
        }
        Entry::ToolStart { .. } => Vec::new(),
        Entry::ToolResult { content, is_error, .. } => {
            let rows = view.block(content, "    ", Extent::Lines(RESULT_LINES));
            let paint = |row: &String| if *is_error { palette.bad(row) } else { palette.dim(row) };
            rows.iter().map(paint).collect()
        }
        Entry::Request { question, .. } => {
            let what = format!("? asks ({}): {}", question.about.word(), question.description);
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Decision(decision) => {
            let reason = decision.reason.iter().map(|reason| format!(": {reason}"));
            let what = format!("! {} by {}", decision.outcome.word(), decision.by);
            vec![palette.warn(&one_line(&(what + &reason.collect::<String>()), width))]
        }
        Entry::Note { content } => {
            let rows = view.block(content, "  ", Extent::Whole);
            rows.iter().map(|row| palette.warn(row)).collect()
        }
        Entry::Compacted { summary, .. } => {
            let head = palette.dim("── the conversation until here, summarized");
            let rows = view.block(summary, "  ", Extent::Whole);
            std::iter::once(format!("{time} {head}")).chain(rows).collect()
        }
        Entry::TurnEnd { outcome, rounds, .. } => {
            let calls = if *rounds == 1 { "model call" } else { "model calls" };
            let end = format!("── turn {}, {rounds} {calls}", outcome.word());
            vec![format!("{time} {}", palette.dim(&end))]
        }
        Entry::Unknown => vec![format!("{time} {}", palette.dim("(written by a later version)"))],
    };
    rows.into_iter().map(|row| row + "\n").collect()
}

fn mail(object: &serde_json::Map<String, serde_json::Value>, time: &str, view: &View) -> String {
    match Message::read(object) {
        Ok(message) => messages::taken_in(&message, time, view),
        Err(why) => {
            let raw = serde_json::Value::Object(object.clone()).to_string();
            format!("{time} ✉ mail that cannot be read ({why}): {}\n", one_line(&raw, 200))
        }
    }
}

fn said(block: &Block, view: &View) -> Vec<String> {
    match block {
        Block::Text { text } => view.block(text, "  ", Extent::Whole),
        Block::ToolUse { name, input, .. } => {
            let call = format!("⏺ {name} {input}");
            let width = view.width.map_or(200, |width| width.saturating_sub(2));
            vec![format!("  {}", view.palette.dim(&one_line(&call, width)))]
        }
        Block::ToolResult { content, .. } => {
            view.block(content, "    ", Extent::Lines(RESULT_LINES))
        }
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
        let entries = [
            Entry::Session { incarnation: "k3f9".into(), pid: 7, model: "rehearsal".into() },
            Entry::User { content: "list\nfiles".into() },
            Entry::Mail {
                claim: "1".into(),
                offset: 0,
                message: mail.as_object().unwrap().clone(),
            },
            Entry::Assistant {
                blocks: vec![
                    Block::Text { text: "Looking.".into() },
                    Block::Opaque { value: json!({"type":"thinking"}) },
                    Block::ToolUse {
                        id: "t".into(),
                        name: "bash".into(),
                        input: json!({"command":"ls"}),
                    },
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
