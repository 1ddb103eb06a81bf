//! Writes the closing text of a turn: the results of its calls, its mail, and the help text.

use super::commands::{CONFIGURE, LIST_FILE, NATURE, help};
use super::conversation::{FinishedCall, UserInput, said_in};
use crate::wire::message::{Body, Message};
use serde_json::Value;

/// The lengths of a quoted result, and of a line of [`brief`], in characters.
const QUOTED_CHARS: usize = 4_000;
const BRIEF_CHARS: usize = 200;

/// Returns the closing text: the lines of `told`, then the words that were not understood.
pub(super) fn closing(mut told: Vec<String>, unclear: &[String], is_lead: bool) -> String {
    let named = if is_lead { "Not understood" } else { "I found no command in" };
    told.extend(unclear.iter().map(|words| format!("{named}: \"{}\"", brief(words))));
    if !unclear.is_empty() {
        told.push(if is_lead { help() } else { format!("({NATURE} {CONFIGURE})") });
    } else if told.is_empty() {
        return "Ready. Say \"help\" for what I understand.".into();
    }
    told.join("\n")
}

pub(super) fn about(call: &FinishedCall) -> String {
    let result = call.result.trim();
    let field = |key: &str| call.input.get(key).and_then(Value::as_str).unwrap_or_default();
    if call.failed && call.tool != "bash" {
        let object = ["name", "to", "path", "task_id"].map(field).concat();
        let called = format!("{} {object}", call.tool);
        return format!("{} failed: {}", called.trim_end(), bounded(result));
    }
    let command = field("command");
    match (call.tool.as_str(), command.strip_prefix(LIST_FILE)) {
        ("bash", Some(path)) if result.contains("No such file") => {
            format!("{path} does not exist.")
        }
        ("bash", Some(path)) if !call.failed && !result.contains("[exit code") => {
            format!("{path} exists: {}", bounded(result))
        }
        ("bash", _) if call.failed => format!("`{command}` failed:\n{}", quoted(result)),
        ("bash", _) if result.is_empty() => format!("`{command}` printed nothing."),
        ("bash", _) => format!("`{command}` printed:\n{}", quoted(result)),
        ("spawn_teammate", _) => format!("Spawned {} ({}).", field("name"), field("role")),
        ("send_message", _) => format!("Sent {}: \"{}\"", field("to"), brief(field("content"))),
        ("broadcast", _) => format!("Told everybody: \"{}\"", brief(field("content"))),
        ("write_file", _) => format!("Wrote {} ({} bytes).", field("path"), field("content").len()),
        ("read_file", _) => format!("{} contains:\n{}", field("path"), quoted(result)),
        ("list_teammates", _) => format!("The team:\n{}", bounded(result)),
        ("shutdown_teammate", _) => format!("Shutting down {}: {}", field("name"), bounded(result)),
        ("read_inbox", _) => {
            let told = all_mail(&said_in(result), &[]);
            let told = if told.is_empty() { bounded(result) } else { told.join("\n") };
            format!("In the inbox:\n{told}")
        }
        (tool, _) => format!("{tool}: {}", bounded(result)),
    }
}

/// Describes the mail in `said` that no `read_inbox` call of the turn has shown.
pub(super) fn all_mail(said: &[UserInput], calls: &[FinishedCall]) -> Vec<String> {
    let reads = calls.iter().filter(|call| call.tool == "read_inbox");
    let shown: Vec<UserInput> = reads.flat_map(|call| said_in(&call.result)).collect();
    let is_new = |it: &&Message| it.id.is_none() || mail(&shown).all(|seen| seen.id != it.id);
    mail(said).filter(is_new).filter_map(about_mail).collect()
}

fn mail(said: &[UserInput]) -> impl Iterator<Item = &Message> {
    said.iter().filter_map(|said| {
        if let UserInput::Mail(message) = said { Some(message.as_ref()) } else { None }
    })
}

/// Describes a message as data; `None` for an idle notification.
fn about_mail(message: &Message) -> Option<String> {
    let from = &message.from;
    let told = if let Body::IdleNotification { .. } = message.body {
        return None;
    } else if let Body::TeammateTerminated { name, cause, exit } = &message.body {
        format!("{name} is gone: {cause} ({exit})")
    } else if let Body::PlanApprovalRequest { plan, decider } = &message.body {
        let how = match decider.as_deref() {
            Some("user") => "the user decides".into(),
            _ => format!("say \"approve the plan of {from}\" or \"reject {from}'s plan: WHY\""),
        };
        format!("{from} asks to carry out this plan ({how}):\n{plan}")
    } else if let Body::ShutdownResponse { approve: true, .. } = message.body {
        format!("{from} agrees to shut down")
    } else if let Body::ShutdownResponse { reason, .. } = &message.body {
        format!("{from} refuses to shut down: {}", reason.as_deref().unwrap_or("no reason given"))
    } else {
        format!("{from} ({}): {}", message.body.kind(), message.content)
    };
    Some(bounded(&told))
}

pub(super) fn brief(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(BRIEF_CHARS).collect();
    if line.len() < text.len() { format!("{line} …") } else { line }
}

fn quoted(text: &str) -> String {
    format!("```\n{}\n```", bounded(text))
}

/// Returns the first [`QUOTED_CHARS`] of a text, and the number of the characters after them.
fn bounded(text: &str) -> String {
    let begin: String = text.chars().take(QUOTED_CHARS).collect();
    match text.chars().skip(QUOTED_CHARS).count() {
        0 => begin,
        left => format!("{begin}\n[… {left} characters more]"),
    }
}
