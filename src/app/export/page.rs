//! An export as a page for people: the members, and the conversation of each. All text is escaped, and the page loads nothing.

use super::value::ExportedValue;
use crate::os::formatted_time;
use crate::store::export::ExportedKind;
use crate::tools::find;
use crate::wire::WallTime;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::tool_summary::summary;
use crate::wire::transcript::{Entry, Line};
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// Returns the whole document.
pub(super) fn page(head: &Value, values: &[ExportedValue]) -> String {
    let (workspace, program) = (word(head, "workspace"), word(head, "program"));
    let at = head.get("at").and_then(Value::as_f64);
    let at = time(WallTime::from_secs(at.unwrap_or_default()));
    let mut conversations: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for ExportedValue { file, kind, value } in values {
        let is_conversation =
            matches!(kind, ExportedKind::Conversation | ExportedKind::EarlierConversation);
        if is_conversation && let Some(line) = Line::read(value.to_string().as_bytes()) {
            conversations.entry(title(file)).or_default().push(line);
        }
    }
    let mut page = format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=viewport content=\"width=device-width\"><title>team in {workspace}</title>\
         <style>{STYLE}</style>\n<h1>A team in {workspace}</h1>\n\
         <p>Exported {at} by team {program}. Secrets that were known are redacted.</p>\n"
    );
    page.push_str(&members(values));
    page.push_str("<nav><h2>Conversations</h2><ul>\n");
    for (name, lines) in &conversations {
        let name = escaped(name);
        let _infallible =
            writeln!(page, "<li><a href=\"#{name}\">{name}</a>: {} entries", lines.len());
    }
    page.push_str("</ul></nav>\n");
    for (name, lines) in &conversations {
        let name = escaped(name);
        let _infallible = writeln!(page, "<section id=\"{name}\"><h2>{name}</h2>");
        for line in lines {
            page.push_str(&entry(line));
        }
        page.push_str("</section>\n");
    }
    page + &tasks(values) + "</html>"
}

/// Returns the name of a conversation: its path below the folder of all conversations.
fn title(file: &str) -> &str {
    let below = file.split_once('/').map_or(file, |(_, below)| below);
    below.rsplit_once('.').map_or(below, |(name, _)| name)
}

/// Returns a field with a text, escaped.
fn word(value: &Value, key: &str) -> String {
    escaped(value.get(key).and_then(Value::as_str).unwrap_or_default())
}

/// Returns the table of the members on the roster.
fn members(values: &[ExportedValue]) -> String {
    let Some(roster) = values.iter().find(|it| it.kind == ExportedKind::Roster) else {
        return String::new();
    };
    let lead = roster.value.get("lead").filter(|lead| lead.is_object());
    let members = roster.value.get("members").and_then(Value::as_array).into_iter().flatten();
    let mut table =
        String::from("<table><tr><th>name<th>role<th>model<th>status<th>tokens in<th>tokens out\n");
    for member in lead.into_iter().chain(members) {
        let name = if member.get("name").is_some() { word(member, "name") } else { "lead".into() };
        let usage = member.get("usage");
        let tokens = |key: &str| usage.and_then(|it| it.get(key)?.as_u64()).unwrap_or_default();
        let _infallible = writeln!(
            table,
            "<tr><td>{name}<td>{}<td>{}<td>{}<td>{}<td>{}",
            word(member, "role"),
            word(member, "model"),
            word(member, "status"),
            tokens("input_tokens"),
            tokens("output_tokens")
        );
    }
    table + "</table>\n"
}

fn tasks(values: &[ExportedValue]) -> String {
    let tasks = values.iter().filter(|it| it.kind == ExportedKind::Task);
    let rows: Vec<String> = tasks
        .map(|task| {
            let word = |key: &str| word(&task.value, key);
            format!(
                "<tr><td>{}<td>{}<td>{}<td>{}\n",
                word("id"),
                word("status"),
                word("owner"),
                word("subject")
            )
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<section><h2>Tasks</h2><table><tr><th>id<th>status<th>owner<th>subject\n{}</table></section>\n",
        rows.concat()
    )
}

/// Returns an entry of a conversation; nothing for one that only the program needs.
fn entry(Line { at, entry }: &Line) -> String {
    let at = time(*at);
    let row = |class: &str, head: &str, text: &str| {
        format!(
            "<div class={class}><time>{at}</time> <b>{head}</b><pre>{}</pre></div>\n",
            escaped(text)
        )
    };
    let note = |text: &str| format!("<div class=note><time>{at}</time> {}</div>\n", escaped(text));
    match entry {
        Entry::Session { model, .. } => note(&format!("a process began, with {model}")),
        Entry::User { content } => row("user", "the user", content),
        Entry::Mail { message, verified, .. } => match Message::read(message) {
            Ok(mail) if mail.body.is_for_program() => String::new(),
            Ok(mail) => {
                let seal = if *verified { "" } else { ", not sealed" };
                let head =
                    format!("{} from {}{seal}", escaped(mail.body.kind()), escaped(&mail.from));
                row("mail", &head, &mail.content)
            }
            Err(_) => row("mail", "mail", &Value::Object(message.clone()).to_string()),
        },
        Entry::Assistant { blocks, .. } => blocks.iter().map(|block| said(block, &row)).collect(),
        Entry::ToolResult { content, is_error, images, .. } => {
            let lines = match content.lines().count() {
                1 => "1 line".to_owned(),
                more => format!("{more} lines"),
            };
            let head = if *is_error { "failed" } else { "result" };
            let images = images.iter().map(|image| format!(", the image {}", image.path));
            let images = escaped(&images.collect::<String>());
            format!(
                "<details class=result><summary>{head}, {lines}{images}</summary><pre>{}</pre></details>\n",
                escaped(content)
            )
        }
        Entry::Decision(decision) => note(&format!(
            "decision by {}: {}{}",
            decision.by,
            decision.outcome.word(),
            decision.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
        )),
        Entry::Request { question, .. } => note(&format!("asks: {}", question.description)),
        Entry::Interrupt { by, .. } => note(&format!("interrupted by {by}")),
        Entry::Subagent(start) => note(&format!("subagent {}: {}", start.id, start.task)),
        Entry::Model { model } => note(&format!("goes on with {model}")),
        Entry::Note { content } => note(content),
        Entry::Instructions { file, .. } => note(&format!("was told the instructions in {file}")),
        Entry::ResultsLeftOut { tool_use_ids } => {
            note(&format!("from here on without {} replaced results", tool_use_ids.len()))
        }
        Entry::Compacted { summary, .. } => {
            row("summary", "summary of the conversation so far", summary)
        }
        Entry::TurnEnd { outcome, rounds, .. } => {
            let calls = if *rounds == 1 { "model call" } else { "model calls" };
            note(&format!("turn {}, {rounds} {calls}", outcome.word()))
        }
        Entry::ToolStart { .. } | Entry::HandedOut { .. } | Entry::Unknown => String::new(),
    }
}

/// Returns a block of a reply.
fn said(block: &Block, row: &impl Fn(&str, &str, &str) -> String) -> String {
    match block {
        Block::Text { text } => row("said", "says", text),
        Block::ToolUse { name, input, .. } => {
            let summary = summary(find(name), input);
            let first = summary.lines().next().unwrap_or_default();
            let input = serde_json::to_string_pretty(input).unwrap_or_default();
            format!(
                "<details class=call><summary><b>{}</b> {}</summary><pre>{}</pre></details>\n",
                escaped(name),
                escaped(first),
                escaped(&input)
            )
        }
        Block::ToolResult { .. } | Block::Image { .. } | Block::Opaque { .. } => String::new(),
    }
}

fn time(at: WallTime) -> String {
    formatted_time(at, TimeZone::system(), "%Y-%m-%d %H:%M:%S").unwrap_or_default()
}

/// Escapes a text for elements and quoted attributes. A control character is shown as its code.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_has_the_conversation_and_no_markup_of_others() {
        let of = |kind, file: &str, value: Value| ExportedValue { file: file.into(), kind, value };
        let line = |value: Value| of(ExportedKind::Conversation, "conversations/alice.x", value);
        let values = [
            of(
                ExportedKind::Roster,
                "r",
                json!({"members": [{"name": "alice", "role": "<b>coder", "usage": {"input_tokens": 7}}]}),
            ),
            line(json!({"kind": "user", "at": 1.0, "content": "<script>alert(1)</script>"})),
            line(
                json!({"kind": "assistant", "at": 2.0, "stop_reason": "tool_use", "model": "m", "usage": {},
                "blocks": [{"type": "text", "text": "I look \u{1b}[31m"},
                    {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls <dir>"}}]}),
            ),
            line(
                json!({"kind": "tool_result", "at": 3.0, "tool_use_id": "t", "content": "a\nb", "is_error": true}),
            ),
            line(json!({"kind": "mail", "at": 4.0, "gen": "1", "offset": 0, "verified": false,
                "message": {"from": "bob", "type": "message", "content": "hi & bye"}})),
            line(json!({"kind": "later", "at": 5.0})),
            line(json!("torn")),
            of(ExportedKind::Task, "t", json!({"id": "1", "subject": "polish"})),
        ];
        let page = page(&json!({"workspace": "~/w", "program": "1", "at": 0}), &values);
        for part in [
            "&lt;b&gt;coder",
            "&lt;script&gt;alert(1)",
            r"I look \u{1b}[31m",
            "<b>bash</b> ls &lt;dir&gt;",
            "failed, 2 lines",
            "message from bob, not sealed",
            "hi &amp; bye",
            "polish",
            "<h2>alice</h2>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<script"), "{page}");
    }
}
