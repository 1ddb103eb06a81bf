//! Rendering of messages for people: fields in words, with marks and indentation; and the path of one message.

use super::sanitize::{columns, one_line};
use super::view::View;
use crate::view::trace::{Step, TraceEvent};
use crate::wire::attachment::Attachment;
use crate::wire::message::{Body, IdleReason, Message, Outcome};
use crate::wire::permission::{RuleLists, RuleScope};
use serde_json::Value;

/// The state of a message in an inbox view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unread,
    /// The owner has received the message since this reader last looked.
    TakenIn,
}

/// The widest name that is shown in full, in columns.
pub(super) const NAME_WIDTH: usize = 32;

/// Renders an inbox: the number of unread messages, then each message.
pub(crate) fn inbox(owner: &str, items: &[(Message, Standing)], view: &View) -> String {
    if items.is_empty() {
        return format!("No mail for {owner}.\n");
    }
    let count = |of: Standing| items.iter().filter(|(_, standing)| *standing == of).count();
    let (unread, taken) = (count(Standing::Unread), count(Standing::TakenIn));
    let counts = [(unread, "unread"), (taken, "delivered since you last looked")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let title = format!("Mail for {owner}: {}", counts.join(", "));
    let mut text = view.palette.bold(&title) + "\n";
    for (message, standing) in items {
        text.push_str(&entry(&view.clock(message.timestamp), message, Some(*standing), view));
    }
    text
}

/// Renders one message: time, sender, recipient, type, then its text.
pub(crate) fn message(message: &Message, view: &View) -> String {
    entry(&view.clock(message.timestamp), message, None, view)
}

/// Renders a message as one line that begins with `time`. Text that does not fit on the line follows as a block.
pub(super) fn entry(time: &str, message: &Message, mark: Option<Standing>, view: &View) -> String {
    let palette = view.palette;
    let from = one_line(&message.from, NAME_WIDTH);
    let to = message.to.as_deref().map(|to| format!(" -> {}", one_line(to, NAME_WIDTH)));
    let is_plain = matches!(message.body, Body::Message { .. });
    let kind = format!(" [{}]", one_line(message.body.kind(), NAME_WIDTH));
    let kind = if is_plain { "" } else { &kind };
    let mark = match mark {
        None => String::new(),
        Some(Standing::Unread) => palette.warn(" (unread)"),
        Some(Standing::TakenIn) => palette.dim(" (delivered)"),
    };
    let route = format!("{from}{}", to.unwrap_or_default());
    let head = format!("{} {}{}{mark}", palette.dim(time), palette.bold(&route), palette.dim(kind));
    let said = in_words(message);
    let short = one_line(&said, 400);
    let used = columns(time) + columns(&route) + columns(kind) + " (delivered): ".len() + 1;
    let room = view.width.unwrap_or(100).saturating_sub(used);
    if said.trim().contains('\n') || columns(&short) > room {
        let rows = view.block(&said, "  ", None);
        format!("{head}\n{}\n", rows.join("\n"))
    } else {
        format!("{head}: {short}\n")
    }
}

/// Returns the text of a message: the meaning of its type, its content, and its attachments. The text is not sanitized.
pub(crate) fn in_words(message: &Message) -> String {
    let attached = message.attachments.iter().map(|it| {
        let Attachment { path, bytes, .. } = it;
        if it.missing {
            format!("\n[attached: {}, which its host has no more]", it.name())
        } else {
            format!("\n[attached: {path}, {bytes} bytes]")
        }
    });
    text_in_words(message) + &attached.collect::<String>()
}

fn text_in_words(message: &Message) -> String {
    let says_itself = matches!(message.body, Body::TeammateTerminated { .. });
    if says_itself && !message.content.trim().is_empty() {
        return message.content.clone();
    }
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
        Body::IdleNotification { reason } => match reason {
            IdleReason::Available => "is idle".into(),
            IdleReason::Interrupted => "is idle, its turn was interrupted".into(),
            IdleReason::Failed => "is idle, its turn failed".into(),
        },
        Body::ShutdownRequest { reason, .. } => format!("please shut down{}", because(reason)),
        Body::ShutdownResponse { approve, reason } => {
            let answer = if *approve { "shuts down" } else { "refuses to shut down" };
            format!("{answer}{}", because(reason))
        }
        Body::InterruptRequest { reason } => {
            format!("please end the running turn{}", because(reason))
        }
        Body::PlanApprovalRequest { plan, .. } => format!("asks to approve this plan:\n{plan}"),
        Body::PlanApprovalResponse { approve: true, feedback, mode } => {
            let mode = mode.as_ref().map(|mode| format!(", continue in mode {mode}"));
            format!("plan approved{}{}", mode.unwrap_or_default(), because(feedback))
        }
        Body::PlanApprovalResponse { approve: false, feedback, .. } => {
            format!("plan not approved{}", because(feedback))
        }
        Body::PermissionRequest { tool, description, input, .. } => {
            let what = if description.is_empty() { subject(input) } else { description.clone() };
            format!("asks to run {tool}: {what}")
        }
        Body::PermissionResponse { approve, scope, rule_scope, reason, updated_input, .. }
        | Body::SandboxPermissionResponse {
            approve,
            scope,
            rule_scope,
            reason,
            updated_input,
            ..
        } => {
            let scope = match RuleScope::of_answer(*scope, rule_scope.as_deref()) {
                None => "once",
                Some(RuleScope::Agent) => "for this agent",
                Some(RuleScope::Session) => "for this session",
                Some(RuleScope::Team) => "for this team",
                Some(RuleScope::Good) => "for good",
            };
            let verdict = if *approve { "allowed" } else { "denied" };
            let edited = updated_input.as_ref().map(edited).unwrap_or_default();
            format!("{verdict} {scope}{edited}{}", because(reason))
        }
        Body::PermissionUpdate { revoked: Some(numbers), .. } => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("revokes the permission rules {}", numbers.join(", "))
        }
        Body::PermissionUpdate { removed: Some(removed), .. } => {
            format!("permission rules revoked: {}", rules_in_words(removed))
        }
        Body::PermissionUpdate { rules, .. } => {
            format!("new permission rules: {}", rules_in_words(rules))
        }
        Body::ModeSetRequest { mode } => format!("continue in mode {mode}"),
        Body::SandboxPermissionRequest { host: None, path: None, tool, input, .. } => {
            let tool = tool.as_deref().unwrap_or("a tool");
            let what = input.as_ref().map(|input| format!(": {}", subject(input)));
            format!("asks to run {tool} outside the walls{}", what.unwrap_or_default())
        }
        Body::SandboxPermissionRequest { host: Some(host), path: None, tool, .. } => {
            let tool = tool.as_deref().unwrap_or("a tool");
            format!("asks to reach {host} with {tool}")
        }
        Body::SandboxPermissionRequest { host, path, tool, .. } => {
            let what = [host, path].into_iter().flatten().cloned().collect::<Vec<_>>();
            let tool = tool.as_deref().map(|tool| format!(" with {tool}")).unwrap_or_default();
            format!("asks to leave the workspace{tool} for {}", what.join(" and "))
        }
        Body::TaskAssignment { task_id, subject, description, assigned_by, blocked_by } => {
            let details = because(&Some(description.clone()));
            let after = if blocked_by.is_empty() { "" } else { ", after " };
            let blockers = blocked_by.join(", ");
            format!("task {task_id} from {assigned_by}{after}{blockers}: {subject}{details}")
        }
        Body::SpawnRequest { name, role, prompt, .. } => {
            format!("asks to start {name} ({role}): {prompt}")
        }
        Body::SpawnResponse { approve: true, reason } => format!("started{}", because(reason)),
        Body::SpawnResponse { approve: false, reason } => {
            format!("not started{}", because(reason))
        }
        Body::TeammateTerminated { name, cause, exit } => {
            format!("{name} has ended: {cause} ({exit})")
        }
    }
}

/// Returns the words for arguments that the person has changed: the command or the path, else all of them.
pub(super) fn edited(input: &Value) -> String {
    format!(", edited to {}", subject(input))
}

/// Returns the part of a call's arguments that says what it does: the command or the path, else all values.
fn subject(input: &Value) -> String {
    let text = |name: &str| input.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let all = || {
        let fields = input.as_object().into_iter().flatten();
        fields
            .map(|(name, value)| format!("{name} {}", plain(value)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    text("command").or_else(|| text("path")).unwrap_or_else(all)
}

fn rules_in_words(rules: &Value) -> String {
    let lists = serde_json::from_value::<RuleLists>(rules.clone());
    lists.map_or_else(|_| subject(rules), |lists| lists.to_string())
}

/// Returns the words for a step, which follow the name of its agent.
fn words(what: TraceEvent) -> &'static str {
    match what {
        TraceEvent::Called => "calls the tool",
        TraceEvent::Reported => "ends a turn and reports it",
        TraceEvent::Sent => "sends it to",
        TraceEvent::Told => "is told",
        TraceEvent::Waits => "has it in the inbox, unread",
        TraceEvent::OnItsWay => "does not have it yet: it waits here for the recipient's host",
        TraceEvent::Arrived => "has it on its own host",
        TraceEvent::Claimed => "has claimed it from the inbox but not received it yet",
        TraceEvent::Processed => "has received its batch, which is in the transcript",
        TraceEvent::TakenIn => "receives it",
        TraceEvent::Read => "replies",
        TraceEvent::TurnEnded => "ends the turn",
        TraceEvent::Answered => "answers",
        TraceEvent::Dead => "has it as a dead letter",
        TraceEvent::Logged => "logs",
    }
}

pub(crate) fn trace_text(id: &str, mail: Option<&Message>, steps: &[Step], view: &View) -> String {
    let width = view.width.unwrap_or(200);
    let mut text = format!("{}\n", view.palette.bold(&one_line(id, width)));
    if let Some(mail) = mail {
        text.push_str(&message(mail, view));
    }
    for step in steps {
        let time = step.at.map_or_else(|| "now     ".into(), |at| view.clock(Some(at)));
        let place = step.proof.as_ref().map(|it| format!("  ({} at {})", it.file, it.offset));
        let place = place.unwrap_or_default();
        let separator = if step.text.is_empty() { "" } else { ": " };
        let room = width.saturating_sub(time.len() + place.len() + 1).max(30);
        let what = format!("{} {}{separator}{}", step.agent, words(step.what), step.text);
        let row = one_line(&what, room);
        let (time, place) = (view.palette.dim(&time), view.palette.dim(&place));
        text.extend([&time, " ", &row, &place, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::trace::Proof;
    use serde_json::json;

    fn text(content: &str) -> Message {
        let value = json!({"type":"message","from":"alice","to":"lead","content":content,
            "timestamp":1_763_690_000.125});
        Message::read(value.as_object().unwrap()).unwrap()
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
Mail for lead: 1 unread, 1 delivered since you last looked
01:53:20 alice -> lead (delivered): one
01:53:20 alice -> lead (unread): two
";
        assert_eq!(inbox("lead", &items, &View::fixed(Some(80))), wanted);
        assert_eq!(inbox("lead", &[], &View::fixed(Some(80))), "No mail for lead.\n");
    }

    #[test]
    fn each_type_is_shown_in_words() {
        let cases = r#"{"type":"shutdown_request","reason":"done"} => please shut down: done
{"type":"shutdown_rejected","content":"busy"} => refuses to shut down: busy
{"type":"plan_approval_request","plan":"1."} => asks to approve this plan:\n1.
{"type":"permission_request","tool":"bash","input":{"command":"ls"},"description":"ls"} => asks to run bash: ls
{"type":"permission_request","tool":"read_file","input":{"path":"a.rs","limit":3},"description":""} => asks to run read_file: a.rs
{"type":"permission_response","approve":true,"scope":"once","updated_input":{"command":"ls -a"}} => allowed once, edited to ls -a
{"type":"permission_response","approve":true,"scope":"session"} => allowed for this agent
{"type":"permission_response","approve":true,"scope":"always","rule_scope":"session"} => allowed for this session
{"type":"permission_update","rules":{"allow":["bash(ls)"]}} => new permission rules: allow bash(ls)
{"type":"permission_update","rules":{},"removed":{"allow":["bash(ls)"]}} => permission rules revoked: allow bash(ls)
{"type":"permission_update","rules":{},"revoked":[2,5]} => revokes the permission rules 2, 5
{"type":"sandbox_permission_request","tool":"bash","input":{"command":"docker ps"}} => asks to run bash outside the walls: docker ps
{"type":"interrupt_request","reason":"use cargo"} => please end the running turn: use cargo
{"type":"result","content":"no model","outcome":"failed"} => the turn failed: no model
{"type":"result","content":"all green","outcome":"done"} => all green
{"type":"teammate_terminated","content":"","name":"bob","cause":"crash","exit":"signal 9"} => bob has ended: crash (signal 9)
{"type":"teammate_terminated","content":"bob is gone (crash, signal 9). Pending again: task 1.","name":"bob","cause":"crash","exit":"signal 9"} => bob is gone (crash, signal 9). Pending again: task 1.
{"type":"message","content":"see","attachments":[{"path":"/t/a.txt","bytes":3,"hash":"00112233445566778899aabbccddeeff"}]} => see\n[attached: /t/a.txt, 3 bytes]
{"type":"message","content":"","attachments":[{"path":"/t/a.txt","bytes":3,"hash":"00112233445566778899aabbccddeeff","missing":true}]} => \n[attached: a.txt, which its host has no more]
{"type":"telepathy","content":"hm"} => hm"#;
        for case in cases.lines() {
            let (message, wanted) = case.split_once(" => ").unwrap();
            let message = serde_json::from_str(message).unwrap();
            let shown = in_words(&Message::read(&message).unwrap());
            assert_eq!(shown.replace('\n', "\\n"), wanted, "{case}");
        }
    }

    #[test]
    fn every_field_is_sanitized() {
        let hostile = json!({"type":"\u{1b}[2J\n","from":"a\u{1b}]52;c;x\u{7}\nlead: yes",
            "to":"\u{202e}bob","content":"\u{9b}31mx"});
        let hostile = Message::read(hostile.as_object().unwrap()).unwrap();
        let shown = message(&hostile, &View::fixed(Some(200)));
        assert_eq!(shown, "--:--:-- a52;c;x lead: yes -> bob []: x\n");
    }

    #[test]
    fn a_trace_has_a_row_per_step_and_is_sanitized() {
        use TraceEvent::{Read, Sent, Waits};
        let step = |at, what, file: Option<&str>, text: &str| Step {
            at,
            agent: "alice".into(),
            what,
            text: text.into(),
            proof: file.map(|file| Proof { file: file.into(), offset: 7, ..Proof::default() }),
        };
        let steps = [
            step(Some(1.0.into()), Sent, None, "bob"),
            step(Some(2.0.into()), Read, Some("transcript/bob.jsonl"), "\u{1b}[2Jdone\n"),
            step(None, Waits, Some("inbox/bob.jsonl"), ""),
        ];
        let wanted = "\
a:1
00:00:01 alice sends it to: bob
00:00:02 alice replies: done  (transcript/bob.jsonl at 7)
now      alice has it in the inbox, unread  (inbox/bob.jsonl at 7)
";
        assert_eq!(trace_text("a:1", None, &steps, &View::fixed(None)), wanted);
    }
}
