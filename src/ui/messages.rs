//! Messages for people: fields in words, with marks and indentation.

use super::sanitize::one_line;
use super::text_width::columns;
use super::view::{Extent, View};
use crate::wire::message::{Body, IdleReason, Message, Outcome, Scope};

/// The state of a message in an inbox view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is in the inbox.
    Unread,
    /// The owner has received it since this reader's last look.
    TakenIn,
}

/// The widest name that is shown in full, in columns.
pub(super) const NAME_WIDTH: usize = 32;

/// An inbox: the number of unread messages, then each message.
pub(crate) fn inbox(owner: &str, items: &[(Message, Standing)], view: &View) -> String {
    if items.is_empty() {
        return format!("No mail for {owner}.\n");
    }
    let unread = items.iter().filter(|(_, standing)| *standing == Standing::Unread).count();
    let taken = items.len() - unread;
    let title = match (unread, taken) {
        (unread, 0) => format!("Mail for {owner}: {unread} unread"),
        (0, taken) => format!("Mail for {owner}: {taken} taken in since you last looked"),
        (unread, taken) => {
            format!("Mail for {owner}: {unread} unread, {taken} taken in since you last looked")
        }
    };
    let mut text = view.palette.bold(&title) + "\n";
    for (message, standing) in items {
        text.push_str(&entry(&sent_at(message, view), message, Some(*standing), view));
    }
    text
}

/// One message: time, sender, recipient, type, then its text.
pub(crate) fn message(message: &Message, view: &View) -> String {
    entry(&sent_at(message, view), message, None, view)
}

/// The same in a conversation, with the time at which it was received.
pub(super) fn taken_in(message: &Message, time: &str, view: &View) -> String {
    entry(&format!("{time} ✉"), message, None, view)
}

fn sent_at(message: &Message, view: &View) -> String {
    message.timestamp.map_or_else(|| "--:--:--".into(), |at| view.clock(at))
}

/// The line of a message after its time, and a block with the text that does not fit.
fn entry(time: &str, message: &Message, standing: Option<Standing>, view: &View) -> String {
    let palette = view.palette;
    let from = one_line(&message.from, NAME_WIDTH);
    let to = message.to.as_deref().map(|to| format!(" -> {}", one_line(to, NAME_WIDTH)));
    let kind = if matches!(message.body, Body::Message { .. }) {
        String::new()
    } else {
        format!(" [{}]", one_line(message.body.kind(), NAME_WIDTH))
    };
    let mark = match standing {
        None => String::new(),
        Some(Standing::Unread) => palette.warn(" (unread)"),
        Some(Standing::TakenIn) => palette.dim(" (taken in)"),
    };
    let route = format!("{from}{}", to.unwrap_or_default());
    let head =
        format!("{} {}{}{mark}", palette.dim(time), palette.bold(&route), palette.dim(&kind));
    let said = in_words(message);
    let short = one_line(&said, 400);
    let used = columns(time) + columns(&route) + columns(&kind) + " (taken in): ".len() + 1;
    let room = view.width.unwrap_or(100).saturating_sub(used);
    if said.trim().contains('\n') || columns(&short) > room {
        let rows = view.block(&said, "  ", Extent::Whole);
        format!("{head}\n{}\n", rows.join("\n"))
    } else {
        format!("{head}: {short}\n")
    }
}

/// The text of a message: the meaning of its type, then its content. Not sanitized.
pub(super) fn in_words(message: &Message) -> String {
    let meaning = meaning(&message.body);
    match (meaning.is_empty(), message.content.trim().is_empty()) {
        (true, _) => message.content.clone(),
        (false, true) => meaning,
        (false, false) if meaning.contains(message.content.trim()) => meaning,
        (false, false) => format!("{meaning}: {}", message.content),
    }
}

fn meaning(body: &Body) -> String {
    let because = |reason: &Option<String>| match reason.as_deref() {
        None | Some("") => String::new(),
        Some(reason) => format!(": {reason}"),
    };
    match body {
        Body::Message { .. }
        | Body::Broadcast {}
        | Body::Unknown { .. }
        | Body::Result { outcome: Outcome::Done } => String::new(),
        Body::Result { outcome: Outcome::Failed } => "the turn failed".into(),
        Body::Result { outcome: Outcome::Interrupted } => "the turn was interrupted".into(),
        Body::IdleNotification { reason: IdleReason::Available } => "is idle".into(),
        Body::IdleNotification { reason: IdleReason::Interrupted } => {
            "is idle, its turn was interrupted".into()
        }
        Body::IdleNotification { reason: IdleReason::Failed } => "is idle, its turn failed".into(),
        Body::ShutdownRequest { reason, .. } => format!("please shut down{}", because(reason)),
        Body::ShutdownResponse { approve: true, reason } => {
            format!("shuts down{}", because(reason))
        }
        Body::ShutdownResponse { approve: false, reason } => {
            format!("does not want to shut down{}", because(reason))
        }
        Body::PlanApprovalRequest { plan, .. } => format!("asks to approve this plan:\n{plan}"),
        Body::PlanApprovalResponse { approve: true, feedback, mode } => {
            let mode = mode.as_ref().map(|mode| format!(", go on in mode {mode}"));
            format!("plan approved{}{}", mode.unwrap_or_default(), because(feedback))
        }
        Body::PlanApprovalResponse { approve: false, feedback, .. } => {
            format!("plan not approved{}", because(feedback))
        }
        Body::PermissionRequest { tool, description, input } => {
            let what = if description.is_empty() { input.to_string() } else { description.clone() };
            format!("asks to run {tool}: {what}")
        }
        Body::PermissionResponse { approve, scope, reason, .. }
        | Body::SandboxPermissionResponse { approve, scope, reason } => {
            let scope = match scope {
                Scope::Once => "once",
                Scope::Session => "for this session",
                Scope::Always => "always",
            };
            let verdict = if *approve { "allowed" } else { "denied" };
            format!("{verdict} {scope}{}", because(reason))
        }
        Body::PermissionUpdate { rules } => format!("new permission rules {rules}"),
        Body::ModeSetRequest { mode } => format!("go on in mode {mode}"),
        Body::SandboxPermissionRequest { host, path, tool, .. } => {
            let what = [host, path].into_iter().flatten().cloned().collect::<Vec<_>>();
            let tool = tool.as_deref().map(|tool| format!(" with {tool}")).unwrap_or_default();
            format!("asks to leave the workspace{tool} for {}", what.join(" and "))
        }
        Body::TaskAssignment { task_id, subject, description, assigned_by, blocked_by } => {
            let description = Some(description.clone());
            let details = because(&description);
            let wait = if blocked_by.is_empty() {
                String::new()
            } else {
                format!(", after {}", blocked_by.join(", "))
            };
            format!("task {task_id} from {assigned_by}{wait}: {subject}{details}")
        }
        Body::TeammateTerminated { name, cause, exit } => {
            format!("{name} has ended: {cause} ({exit})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &serde_json::Value) -> Message {
        Message::read(value.as_object().unwrap()).unwrap()
    }

    fn text(content: &str) -> Message {
        let value = json!({"type":"message","from":"alice","to":"lead","content":content,
            "timestamp":1_763_690_000.125});
        read(&value)
    }

    #[test]
    fn a_short_message_is_a_line_and_a_long_one_a_block() {
        let view = View::fixed(Some(60));
        assert_eq!(message(&text("done"), &view), "01:53:20 alice -> lead: done\n");
        assert_eq!(message(&text("a\nb"), &view), "01:53:20 alice -> lead\n  a\n  b\n");
        let long = message(&text(&"word ".repeat(20)), &view);
        assert_eq!(long.lines().count(), 3, "{long}");
        assert!(long.lines().all(|line| columns(line) <= 60), "{long}");
    }

    #[test]
    fn an_inbox_marks_unread_and_received_messages() {
        let items = [(text("one"), Standing::TakenIn), (text("two"), Standing::Unread)];
        let wanted = "\
Mail for lead: 1 unread, 1 taken in since you last looked
01:53:20 alice -> lead (taken in): one
01:53:20 alice -> lead (unread): two
";
        assert_eq!(inbox("lead", &items, &View::fixed(Some(80))), wanted);
        assert_eq!(inbox("lead", &[], &View::fixed(Some(80))), "No mail for lead.\n");
    }

    #[test]
    fn each_type_is_shown_in_words() {
        let cases = [
            (
                json!({"type":"shutdown_request","content":"","reason":"tests are done"}),
                "please shut down: tests are done",
            ),
            (
                json!({"type":"shutdown_rejected","content":"busy"}),
                "does not want to shut down: busy",
            ),
            (
                json!({"type":"plan_approval_request","content":"","plan":"1. look"}),
                "asks to approve this plan:\n1. look",
            ),
            (
                json!({"type":"permission_request","content":"","tool":"bash","input":{"command":"ls"},
                "description":"ls"}),
                "asks to run bash: ls",
            ),
            (
                json!({"type":"result","content":"no model","outcome":"failed"}),
                "the turn failed: no model",
            ),
            (json!({"type":"result","content":"all green","outcome":"done"}), "all green"),
            (
                json!({"type":"teammate_terminated","content":"bob has ended: crash (signal 9)",
                "name":"bob","cause":"crash","exit":"signal 9"}),
                "bob has ended: crash (signal 9)",
            ),
            (json!({"type":"telepathy","content":"hm"}), "hm"),
        ];
        for (value, wanted) in cases {
            assert_eq!(in_words(&read(&value)), wanted);
        }
    }

    #[test]
    fn every_field_is_sanitized() {
        let hostile = json!({"type":"\u{1b}[2J\n","from":"a\u{1b}]52;c;x\u{7}\nlead: yes",
            "to":"\u{202e}bob","content":"\u{9b}31mx"});
        let shown = message(&read(&hostile), &View::fixed(Some(200)));
        assert_eq!(shown, "--:--:-- a52;c;x lead: yes -> bob []: x\n");
    }
}
