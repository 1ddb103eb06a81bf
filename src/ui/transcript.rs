//! Rendering of transcript lines as a conversation for people, and of lines of a structured log.

use super::diff::{Diff, diff_of_part};
use super::markdown;
use super::messages::{self, NAME_WIDTH};
use super::sanitize::{columns, one_line, pad};
use super::tool_line;
use super::view::View;
use crate::view::requests::counted;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, InterruptOutcome, Line};
use serde_json::{Map, Value};

/// The number of rows of the change of an edit that are shown.
const DIFF_ROWS: usize = 20;
/// The number of lines of the result of a failed call that are shown.
const ERROR_LINES: usize = 5;
/// The widest result that is shown behind its call, in columns.
const RESULT_WIDTH: usize = 40;
/// The width that is used where the output has none.
const WIDE: usize = 200;

/// The lines of a conversation in order, in which each call of a tool and its result are one row.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Whether results are shown in full.
    is_full: bool,
    /// The calls without a result.
    open: Vec<Call>,
    /// The id of the call whose row was the last one.
    last_shown: Option<String>,
}

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    input: Value,
    is_shown: bool,
}

impl Conversation {
    pub(crate) fn new(is_full: bool) -> Self {
        Self { is_full, ..Self::default() }
    }

    /// Renders the next line; empty if it has no information for people yet.
    pub(crate) fn line(&mut self, next: &Line, view: &View) -> String {
        let rows = match &next.entry {
            Entry::Assistant { blocks, model, .. } => {
                let rest = self.pause(view);
                self.open = blocks.iter().filter_map(Call::of).collect();
                let model = view.palette.bold(&one_line(model, view.width.unwrap_or(WIDE)));
                let time = view.palette.dim(&view.clock(Some(next.at)));
                rest + &reply(&format!("{time} {model}"), blocks, false, view)
            }
            Entry::ToolStart { .. } | Entry::HandedOut { .. } => return String::new(),
            Entry::ToolResult { tool_use_id, content, is_error, .. } => {
                return self.result(tool_use_id, content, *is_error, view);
            }
            Entry::Session { .. } | Entry::TurnEnd { .. } => {
                let rest = self.pause(view);
                self.open.clear();
                rest + &line(next, view)
            }
            Entry::User { .. }
            | Entry::Mail { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Interrupt { .. }
            | Entry::Note { .. }
            | Entry::Subagent(_)
            | Entry::Instructions { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::Model { .. }
            | Entry::Compacted { .. }
            | Entry::Unknown => line(next, view),
        };
        if !rows.is_empty() {
            self.last_shown = None;
        }
        rows
    }

    /// Renders the calls that have no result yet: no further line is there now.
    pub(crate) fn pause(&mut self, view: &View) -> String {
        let mut rows = String::new();
        for call in self.open.iter_mut().filter(|call| !call.is_shown) {
            call.is_shown = true;
            rows.push_str(&call_row(&call.name, &call.input, None, view));
            self.last_shown = Some(call.id.clone());
        }
        rows
    }

    fn result(&mut self, id: &str, content: &str, is_error: bool, view: &View) -> String {
        let known = self.open.iter().position(|call| call.id == id);
        let call = known.map(|at| self.open.remove(at));
        let is_just_shown = self.last_shown.take().is_some_and(|last| last == id);
        let mut result = ResultText::new(content, is_error, self.is_full, view);
        let change = call.as_ref().filter(|_| !is_error).map(|call| change_of(&call.input, view));
        let change = change.unwrap_or_default();
        if !change.rows.is_empty() {
            result.words = format!("{} ({})", result.words, change.counts());
        }
        let head = match &call {
            Some(call) if !is_just_shown => call_row(&call.name, &call.input, Some(&result), view),
            Some(_) | None => result.row(view),
        };
        let change: String = change.rows.iter().flat_map(|row| ["    ", row, "\n"]).collect();
        head + &change + &result.below
    }
}

impl Call {
    fn of(block: &Block) -> Option<Self> {
        let Block::ToolUse { id, name, input, .. } = block else { return None };
        Some(Self { id: id.clone(), name: name.clone(), input: input.clone(), is_shown: false })
    }
}

/// The result of a call: some words for one row, and the rows below it, each with a line end.
struct ResultText {
    words: String,
    is_error: bool,
    below: String,
}

impl ResultText {
    fn new(content: &str, is_error: bool, is_full: bool, view: &View) -> Self {
        let end = tool_line::exit_note(content).filter(|_| !is_error);
        let is_failed = is_error || end.is_some();
        let (output, end) = end.unwrap_or((content, ""));
        let folded = tool_line::folded(output, RESULT_WIDTH);
        let is_short = folded == output.trim();
        let words = match (is_failed, end) {
            (_, end) if !end.is_empty() => one_line(end, RESULT_WIDTH),
            (true, _) if is_full || !is_short => "failed".into(),
            (false, _) if is_full => String::new(),
            _ => folded,
        };
        let mark = if is_failed { "✗" } else { "✓" };
        let words = format!("{mark} {words}").trim_end().to_owned();
        let is_told = output.trim().is_empty() || is_short && words.ends_with(output.trim());
        let rows = match (is_told, is_full || is_failed) {
            (true, _) | (_, false) => Vec::new(),
            _ if is_full => view.block(output, "    ", None),
            // The end of a command's output tells why it failed, the beginning of other errors.
            _ if end.is_empty() => view.block(output, "    ", Some(ERROR_LINES)),
            _ => last_rows(output, view),
        };
        let palette = view.palette;
        let paint = |row: &String| if is_error { palette.bad(row) } else { palette.dim(row) };
        let below = rows.iter().map(|row| paint(row) + "\n").collect();
        Self { words, is_error: is_failed, below }
    }

    fn painted(&self, view: &View) -> String {
        if self.is_error { view.palette.bad(&self.words) } else { view.palette.dim(&self.words) }
    }

    fn row(&self, view: &View) -> String {
        format!("    {}\n", self.painted(view))
    }
}

/// Renders the last lines of a long output.
fn last_rows(output: &str, view: &View) -> Vec<String> {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let omitted = lines.len().saturating_sub(ERROR_LINES);
    let last = lines.get(omitted..).unwrap_or_default().join("\n");
    let gap = (omitted > 0).then(|| format!("    … {} before", counted(omitted)));
    gap.into_iter().chain(view.block(&last, "    ", None)).collect()
}

/// Renders a call as one row, with its result if it has one.
fn call_row(name: &str, input: &Value, result: Option<&ResultText>, view: &View) -> String {
    let words = result.map(|result| format!("   {}", result.painted(view))).unwrap_or_default();
    let used = "  ⏺ ".chars().count() + result.map_or(0, |result| columns(&result.words) + 3);
    // A narrow view shows the beginning of the call all the same.
    let room = view.width.unwrap_or(WIDE).saturating_sub(used).max(8);
    let call = tool_line::call(name, input, room);
    format!("  {} {call}{words}\n", view.palette.dim("⏺"))
}

/// Returns the change of a call that replaces a piece of a file; no rows for any other call.
fn change_of(input: &Value, view: &View) -> Diff {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let (Some(old), Some(new)) = (text("old_text"), text("new_text")) else {
        return Diff::default();
    };
    let inner = View { width: view.width.map(|width| width.saturating_sub(4)), ..view.clone() };
    let mut change = diff_of_part(old, new, &inner);
    let omitted = change.rows.len().saturating_sub(DIFF_ROWS);
    if omitted > 1 {
        change.rows.truncate(DIFF_ROWS);
        change.rows.push(view.palette.dim(&format!("… {omitted} more lines")));
    }
    change
}

/// Renders one transcript line without the lines around it; empty if it has no information for people. The result of
/// a tool is a row of its own.
pub(crate) fn line(line: &Line, view: &View) -> String {
    let palette = view.palette;
    let time = view.clock(Some(line.at));
    let head = |what: String| format!("{} {what}", palette.dim(&time));
    let width = view.width.unwrap_or(WIDE);
    let rows = match &line.entry {
        Entry::Session { incarnation, pid, model, .. } => {
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
            let head = head(palette.bold(&one_line(model, width)));
            return reply(&head, blocks, true, view);
        }
        Entry::ToolStart { .. } | Entry::HandedOut { .. } => Vec::new(),
        Entry::ToolResult { content, is_error, .. } => {
            let result = ResultText::new(content, *is_error, false, view);
            return result.row(view) + &result.below;
        }
        Entry::Request { question, .. } => {
            let what = format!("? asks ({}): {}", question.about.word(), question.description);
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Decision(decision) => {
            let reason = decision.reason.as_ref().map(|reason| format!(": {reason}"));
            let decided = decision.outcome.word();
            let edited = decision.updated_input.as_ref().map(messages::edited).unwrap_or_default();
            let reason = reason.unwrap_or_default();
            let what = format!("! {decided} by {}{edited}{reason}", decision.by);
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Subagent(start) => {
            let role = start.role.as_ref().map(|role| format!(" ({role})")).unwrap_or_default();
            let place = if start.background { " in the background" } else { "" };
            let what = format!("├─ subagent {}{role}{place}: {}", start.id, start.task);
            vec![palette.dim(&one_line(&what, width))]
        }
        Entry::Interrupt { by, outcome, .. } => {
            let what = match outcome {
                InterruptOutcome::Interrupted => format!("! turn interrupted by {by}"),
                InterruptOutcome::NoTurn => format!("! {by} interrupted, but no turn was running"),
            };
            vec![palette.warn(&one_line(&what, width))]
        }
        Entry::Note { content } => {
            let rows = view.block(content, "  ", None);
            rows.iter().map(|row| palette.warn(row)).collect()
        }
        Entry::Instructions { file, .. } => {
            let what = one_line(&format!("was told the instructions in {file}"), width);
            vec![palette.dim(&format!("  {what}"))]
        }
        Entry::ResultsLeftOut { tool_use_ids } => {
            let what = format!("from here on without {} replaced results", tool_use_ids.len());
            vec![palette.dim(&format!("  {what}"))]
        }
        Entry::Model { model } => {
            let what = one_line(&format!("goes on with {model}"), width);
            vec![palette.warn(&format!("  {what}"))]
        }
        Entry::Compacted { summary, .. } => {
            let what = palette.dim("── summary of the conversation so far");
            return head(what) + "\n" + &text(summary, view);
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

/// Renders a reply of the model below its head.
fn reply(head: &str, blocks: &[Block], has_calls: bool, view: &View) -> String {
    let mut rows = format!("{head}\n");
    for block in blocks {
        match block {
            Block::Text { text: said } => rows.push_str(&text(said, view)),
            Block::ToolUse { name, input, .. } if has_calls => {
                rows.push_str(&call_row(name, input, None, view));
            }
            Block::ToolResult { content, is_error, .. } => {
                rows.push_str(&ResultText::new(content, *is_error, false, view).row(view));
            }
            Block::ToolUse { .. } | Block::Image { .. } | Block::Opaque { .. } => {}
        }
    }
    rows
}

/// Renders the text of a model as indented rows.
fn text(text: &str, view: &View) -> String {
    let width = view.width.map(|width| width.saturating_sub(2));
    let rows = markdown::render(text, view.palette, width);
    let indent = |row: &str| if row.is_empty() { "\n".into() } else { format!("  {row}\n") };
    rows.lines().map(indent).collect()
}

/// The fields of a log object that are not listed among its details.
const PLACED: [&str; 7] = ["timestamp", "level", "message", "target", "fields", "span", "spans"];

/// Renders one line of the structured log of the agent `name`, without a colour of the agent.
pub(crate) fn log_line(name: &str, object: &Map<String, Value>, view: &View) -> String {
    colored_log_line((name, ""), object, view)
}

/// Renders one line of the structured log of an agent, which is given by its name and its colour word: time, level, agent, message, details. The object is
/// the JSON of `tracing-subscriber`, with the event's fields beside the common ones or under `fields`.
pub(crate) fn colored_log_line(
    (name, color): (&str, &str),
    object: &Map<String, Value>,
    view: &View,
) -> String {
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
    let words = one_line(&words.join(" "), room);
    let words = match level.as_str() {
        "ERROR" => palette.bad(&words),
        "WARN" => palette.warn(&words),
        _ => words,
    };
    let name = if color.is_empty() { palette.bold(&name) } else { palette.member(color, &name) };
    format!("{time} {head} {name} {words}\n")
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
{"kind":"instructions","file":"src/AGENTS.md","content":"Use tabs."}
{"kind":"turn_end","outcome":"done","rounds":1}
{"kind":"of a later version"}"#;
        let view = View::fixed(Some(60));
        let text: String = super::tests::lines(lines).iter().map(|it| line(it, &view)).collect();
        let wanted = "\
00:00:01 ── session k3f9, process 7, model rehearsal
00:00:01 user
  list
  files
00:00:01 ✉ bob -> alice: hi
00:00:01 rehearsal
  Looking.
  ⏺ bash  ls
    ✓ 2 lines
  You were restarted.
  was told the instructions in src/AGENTS.md
00:00:01 ── turn done, 1 model call
00:00:01 (written by a later version)
";
        assert_eq!(text, wanted);
    }

    fn lines(text: &str) -> Vec<Line> {
        let entries = serde_json::Deserializer::from_str(text).into_iter::<Entry>();
        entries.map(|entry| Line { at: 1.0.into(), entry: entry.unwrap() }).collect()
    }

    const CALLS: &str = r#"{"kind":"assistant","stop_reason":"tool_use","usage":{},"model":"m","blocks":[
 {"type":"text","text":"**Two** calls:\n\n```rust\nx\n```"},
 {"type":"tool_use","id":"a","name":"bash","input":{"command":"cargo test"}},
 {"type":"tool_use","id":"b","name":"edit_file","input":{"path":"a.rs","old_text":"1\n2","new_text":"1\n3"}},
 {"type":"tool_use","id":"c","name":"bash","input":{"command":"false"}}]}
{"kind":"tool_start","tool_use_id":"a","name":"bash"}
{"kind":"tool_result","tool_use_id":"a","content":"x\ny\n","is_error":false}
{"kind":"tool_result","tool_use_id":"b","content":"edited a.rs","is_error":false}
{"kind":"tool_result","tool_use_id":"c","content":"1\n2\n3\n4\n5\n6\n7","is_error":true}"#;

    #[test]
    fn a_call_and_its_result_are_one_row() {
        let view = View::fixed(Some(60));
        let mut conversation = Conversation::new(false);
        let shown: String = lines(CALLS).iter().map(|it| conversation.line(it, &view)).collect();
        let wanted = "\
00:00:01 m
  Two calls:

    x
  ⏺ bash  cargo test   ✓ 2 lines
  ⏺ edit_file  a.rs   ✓ edited a.rs (+1 −1)
      1
    - 2
    + 3
  ⏺ bash  false   ✗ failed
    1
    2
    3
    4
    5
    … 2 more lines
";
        assert_eq!(shown, wanted);
        let mut full = Conversation::new(true);
        let shown: String = lines(CALLS).iter().map(|it| full.line(it, &view)).collect();
        assert!(shown.contains("⏺ bash  cargo test   ✓\n    x\n    y\n"), "{shown}");
        assert!(shown.contains("    5\n    6\n    7\n"), "{shown}");
    }

    #[test]
    fn a_result_tells_why_a_call_failed() {
        let view = View::fixed(Some(60));
        let of = |content: &str, is_error| {
            let result = ResultText::new(content, is_error, false, &view);
            result.row(&view) + &result.below
        };
        assert_eq!(
            of("1\n2\n3\n4\n5\n6\n[exit code 1]", false),
            "    ✗ exit code 1\n    … 1 line before\n    2\n    3\n    4\n    5\n    6\n"
        );
        assert_eq!(of("[exit code 1]", false), "    ✗ exit code 1\n");
        assert_eq!(of("a.rs does not exist", true), "    ✗ a.rs does not exist\n");
        assert_eq!(of("a\nb", true), "    ✗ failed\n    a\n    b\n");
        assert_eq!(of("", true), "    ✗\n");
        let long = "word ".repeat(20);
        let rows = of(&long, true);
        assert!(rows.starts_with("    ✗ failed\n    word"), "{rows}");
    }

    #[test]
    fn a_call_that_runs_is_shown_once_before_its_result() {
        let view = View::fixed(Some(60));
        let mut conversation = Conversation::new(false);
        let (lines, mut shown) = (lines(CALLS), String::new());
        for next in &lines {
            shown.push_str(&conversation.line(next, &view));
            shown.push_str(&conversation.pause(&view));
        }
        let calls = "  ⏺ bash  cargo test\n  ⏺ edit_file  a.rs\n  ⏺ bash  false\n";
        assert!(shown.contains(calls), "{shown}");
        // The result of the last row follows it; the others repeat their calls.
        assert!(shown.contains("  ⏺ bash  cargo test   ✓ 2 lines\n"), "{shown}");
        let mut conversation = Conversation::new(false);
        let one = &lines[4..];
        let shown: String = one.iter().map(|it| conversation.line(it, &view)).collect();
        assert!(shown.starts_with("    ✗ failed\n    1\n"), "the call is before: {shown}");
    }

    #[test]
    fn the_result_of_the_last_row_is_below_it() {
        let view = View::fixed(Some(60));
        let text = r#"{"kind":"assistant","stop_reason":"tool_use","usage":{},"model":"m","blocks":[
 {"type":"tool_use","id":"a","name":"bash","input":{"command":"ls"}}]}
{"kind":"tool_result","tool_use_id":"a","content":"","is_error":false}
{"kind":"turn_end","outcome":"done","rounds":2}"#;
        let mut conversation = Conversation::new(false);
        let mut shown = String::new();
        for next in lines(text) {
            shown.push_str(&conversation.line(&next, &view));
            shown.push_str(&conversation.pause(&view));
        }
        let wanted = "00:00:01 m\n  ⏺ bash  ls\n    ✓\n00:00:01 ── turn done, 2 model calls\n";
        assert_eq!(shown, wanted);
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
