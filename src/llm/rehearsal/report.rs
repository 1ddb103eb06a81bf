//! What an agent says at the end of a turn: facts about its calls, their outputs quoted and bounded,
//! and the mail that came.

use super::conversation::{Done, Said, letters};
use crate::wire::message::{Body, Message};
use serde_json::Value;

/// Characters of one output that are quoted.
const QUOTED_CHARS: usize = 4_000;

/// Characters of a message that its sender repeats.
const BRIEF_CHARS: usize = 200;

/// What a call was for, where its arguments alone do not say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aim {
    /// The arguments say it.
    Plain,
    /// To see whether this file exists.
    Existence(String),
    /// To look for mail, perhaps of one sender only.
    Mail(Option<String>),
    /// To prepare another call: only its failure is news.
    Preparation,
}

/// What a call did, in words; empty when there is nothing to tell.
pub(super) fn call(done: &Done, aim: &Aim) -> String {
    let result = done.result.trim();
    match aim {
        Aim::Preparation if !done.failed => String::new(),
        Aim::Existence(path) => existence(path, done),
        Aim::Mail(about) if !done.failed => inbox(result, about.as_deref()),
        Aim::Plain | Aim::Mail(_) | Aim::Preparation => plain(done, result),
    }
}

/// Mail as it is told by somebody for whom it is data.
pub(super) fn mail(message: &Message) -> Option<String> {
    if let Body::IdleNotification { .. } = message.body {
        return None;
    }
    let from = &message.from;
    let told = if let Body::TeammateTerminated { name, cause, exit } = &message.body {
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

/// The mail among what was said that no call of the turn has shown already.
pub(super) fn unseen_mail(said: &[Said], done: &[Done]) -> Vec<String> {
    let shown: Vec<Message> = done
        .iter()
        .filter(|call| call.tool == "read_inbox")
        .flat_map(|call| letters(&call.result))
        .collect();
    let mails = said.iter().filter_map(|said| match said {
        Said::Mail(message) => Some(message.as_ref()),
        Said::Typed(_) => None,
    });
    mails
        .filter(|mail| mail.id.is_none() || shown.iter().all(|seen| seen.id != mail.id))
        .filter_map(mail)
        .collect()
}

fn existence(path: &str, done: &Done) -> String {
    let result = done.result.trim();
    if result.contains("No such file") {
        format!("{path} does not exist.")
    } else if done.failed || result.contains("[exit code") {
        format!("Could not see whether {path} exists: {}", bounded(result))
    } else {
        format!("{path} exists: {}", bounded(result))
    }
}

fn inbox(result: &str, about: Option<&str>) -> String {
    let all = letters(result);
    let told = |messages: &[&Message]| {
        messages.iter().filter_map(|message| mail(message)).collect::<Vec<_>>().join("\n")
    };
    let everything = told(&all.iter().collect::<Vec<_>>());
    let Some(name) = about else {
        return match (everything.is_empty(), result.is_empty()) {
            (false, _) => format!("In the inbox:\n{everything}"),
            (true, true) => "The inbox is empty.".into(),
            (true, false) => format!("In the inbox:\n{}", bounded(result)),
        };
    };
    let theirs: Vec<_> = all.iter().filter(|message| message.from == name).collect();
    let theirs = told(&theirs);
    if !theirs.is_empty() {
        return format!("From {name}:\n{theirs}");
    }
    match (everything.is_empty(), result.is_empty()) {
        (false, _) => format!("Nothing from {name} yet. In the inbox:\n{everything}"),
        (true, true) => format!("Nothing from {name} yet; the inbox is empty."),
        (true, false) => format!("Nothing from {name} yet. The inbox says:\n{}", bounded(result)),
    }
}

fn plain(done: &Done, result: &str) -> String {
    let field = |key: &str| done.input.get(key).and_then(Value::as_str).unwrap_or_default();
    if done.failed && done.tool != "bash" {
        let object = ["name", "to", "path", "task_id"].map(field).concat();
        return format!("{} {object} failed: {}", done.tool, bounded(result));
    }
    match done.tool.as_str() {
        "bash" => match (done.failed, result.is_empty()) {
            (true, _) => format!("`{}` failed:\n{}", field("command"), quoted(result)),
            (false, true) => format!("`{}` printed nothing.", field("command")),
            (false, false) => format!("`{}` printed:\n{}", field("command"), quoted(result)),
        },
        "spawn_teammate" => format!("Spawned {} ({}).", field("name"), field("role")),
        "send_message" => format!("Sent {}: \"{}\"", field("to"), brief(field("content"))),
        "broadcast" => format!("Told everybody: \"{}\"", brief(field("content"))),
        "write_file" => format!("Wrote {} ({} bytes).", field("path"), field("content").len()),
        "edit_file" => format!("Edited {}.", field("path")),
        "read_file" => format!("{} contains:\n{}", field("path"), quoted(result)),
        "list_teammates" => format!("The team:\n{}", bounded(result)),
        "shutdown_teammate" => format!("Shutting down {}: {}", field("name"), bounded(result)),
        tool => format!("{tool}: {}", bounded(result)),
    }
}

/// The begin of a text, for those who know the rest.
pub(super) fn brief(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(BRIEF_CHARS).collect();
    if line.len() < text.len() { format!("{line} …") } else { line }
}

fn quoted(text: &str) -> String {
    let fence = if text.contains("```") { "~~~~" } else { "```" };
    format!("{fence}\n{}\n{fence}", bounded(text))
}

/// The begin of a text, with a word about what is left out.
fn bounded(text: &str) -> String {
    let left = text.chars().count().saturating_sub(QUOTED_CHARS);
    if left == 0 {
        return text.to_owned();
    }
    let begin: String = text.chars().take(QUOTED_CHARS).collect();
    format!("{begin}\n[… {left} characters more]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(object: &Value) -> Option<String> {
        mail(&Message::read(object.as_object().unwrap()).unwrap())
    }

    #[test]
    fn mail_without_a_text_is_told_by_what_it_says() {
        let answer = |approve| json!({"type": "shutdown_response", "from": "dana", "approve": approve, "reason": "busy"});
        assert_eq!(told(&answer(true)).unwrap(), "dana agrees to shut down");
        assert_eq!(told(&answer(false)).unwrap(), "dana refuses to shut down: busy");
        let gone = json!({"type": "teammate_terminated", "from": "system", "name": "dana",
            "cause": "crash", "exit": "signal 9"});
        assert_eq!(told(&gone).unwrap(), "dana is gone: crash (signal 9)");
        let idle = json!({"type": "idle_notification", "from": "dana", "reason": "available"});
        assert_eq!(told(&idle), None);
    }
}
