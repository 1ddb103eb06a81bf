//! Rendering of transcript lines as a conversation for people, and of lines of a structured log.

use super::messages::{self, NAME_WIDTH};
use super::sanitize::{one_line, pad};
use super::view::View;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use serde_json::{Map, Value};

const RESULT_LINES: usize = 20;

/// Renders one transcript line; empty if it has no information for people.
pub(crate) fn line(line: &Line, view: &View) -> String {
    let palette = view.palette;
    let time = view.clock(Some(line.at));
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
        Entry::Mail { message, verified, .. } => match Message::read(message) {
            Ok(message) => {
                let mark = if *verified { "" } else { " (not verified)" };
                return messages::entry(&format!("{time} ✉{mark}"), &message, None, view);
            }
            Err(why) => {
                let raw = Value::Object(message.clone()).to_string();
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

/// The fields of a log object that are not listed among its details.
const PLACED: [&str; 7] = ["timestamp", "level", "message", "target", "fields", "span", "spans"];

/// Renders one line of the structured log of the agent `name`: time, level, agent, message, details. The object is
/// the JSON of `tracing-subscriber`, with the event's fields beside the common ones or under `fields`.
pub(crate) fn log_line(name: &str, object: &Map<String, Value>, view: &View) -> String {
    let palette = view.palette;
    let inner = object.get("fields").and_then(Value::as_object);
    let message = inner.and_then(|fields| fields.get("message")).or_else(|| object.get("message"));
    let level = object.get("level").map_or_else(String::new, plain);
    let head = pad(&one_line(&level, 5), 5);
    let head = match level.as_str() {
        "ERROR" => palette.bad(&head),
        "WARN" => palette.warn(&head),
        _ => palette.dim(&head),
    };
    let mut words = vec![message.map_or_else(String::new, plain)];
    let details = object.iter().chain(inner.into_iter().flatten());
    let details = details.filter(|(key, _)| !PLACED.contains(&key.as_str()));
    words.extend(details.map(|(key, value)| format!("{key}={}", plain(value))));
    let name = one_line(name, NAME_WIDTH);
    let used = "00:00:00 LEVEL ".len() + name.len() + 1;
    let room = view.width.map_or(2000, |width| width.saturating_sub(used).max(20));
    let time = palette.dim(&time(object, view));
    format!("{time} {head} {} {}\n", palette.bold(&name), one_line(&words.join(" "), room))
}

fn time(object: &Map<String, Value>, view: &View) -> String {
    let seconds =
        |text: &str| Some(text.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64());
    let at = object.get("timestamp").and_then(|at| at.as_f64().or_else(|| seconds(at.as_str()?)));
    view.clock(at.map(Into::into))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_kind_of_line_is_shown() {
        let lines = r#"{"kind":"session","incarnation":"k3f9","pid":7,"model":"rehearsal"}
{"kind":"user","content":"list\nfiles"}
{"kind":"mail","gen":"1","offset":0,"message":{"from":"bob","to":"alice","content":"hi"}}
{"kind":"assistant","stop_reason":"tool_use","usage":{},"model":"rehearsal","blocks":[
 {"type":"text","text":"Looking."},{"type":"opaque","value":{}},{"type":"tool_use","id":"t","name":"bash","input":{"command":"ls"}}]}
{"kind":"tool_start","tool_use_id":"t","name":"bash"}
{"kind":"tool_result","tool_use_id":"t","content":"a\nb","is_error":false}
{"kind":"note","content":"You were restarted."}
{"kind":"turn_end","outcome":"done","rounds":1}
{"kind":"of a later version"}"#;
        let entries = serde_json::Deserializer::from_str(lines).into_iter::<Entry>();
        let entries = entries.map(|entry| Line { at: 1.0.into(), entry: entry.unwrap() });
        let view = View::fixed(Some(60));
        let text: String = entries.map(|entry| line(&entry, &view)).collect();
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

    #[test]
    fn both_layouts_of_tracing_and_unknown_fields_are_shown() {
        let nested = json!({"timestamp":"2025-11-21T01:53:20.125Z","level":"WARN",
            "fields":{"message":"retrying","wait":2},"target":"agent_team::llm"});
        let flat = json!({"timestamp":1_763_690_000.1,"level":"INFO","message":"started","pid":7});
        for (value, wanted) in [
            (nested, "01:53:20 WARN  alice retrying wait=2\n"),
            (flat, "01:53:20 INFO  alice started pid=7\n"),
            (json!({"a":"\u{1b}[2Jb\n"}), "--:--:--       alice a=b\n"),
        ] {
            let view = View::fixed(Some(80));
            assert_eq!(log_line("alice", value.as_object().unwrap(), &view), wanted);
        }
    }
}
