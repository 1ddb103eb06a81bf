//! Mail tools, by which a model sends and reads the team's mail.

use super::call::{Call, ToolError};
use super::registry::{TALKS, Tool, ToolParts, parameters};
use super::team_context::TeamContext;
use crate::bus::Outgoing;
use crate::store::asynchronous::offload;
use crate::store::unread;
use crate::wire::hook::HookEvent;
use crate::wire::inbox_block::{inbox_block, marked};
use crate::wire::tool::ParameterType::{Boolean, Count, Text, TextList, Word};
use crate::wire::tool::{
    AfterCrash, Audience, CompactOffer, Effect, OfferCondition, Purpose, RoleAccess, Served,
    Signal, ToolSpec,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait of `check_inbox`, in seconds: some programs give up a call after a minute.
const MAX_WAIT_S: u64 = 45;

/// The maximum number of characters of a `msg_type` that the error repeats.
const KIND_CHARS: usize = 64;

const MAIL: ToolSpec =
    ToolSpec { role_access: RoleAccess::Granted, purpose: Purpose::Talk, ..TALKS };

parameters!(SendMessage {
    to: String = required(Text, ""),
    content: String = required(Text, ""),
    msg_type: Option<String> = optional(Word(&["message"]), ""),
    #[serde(default)]
    attach: Vec<String> = optional(TextList, "paths of files to send"),
});

impl Tool for SendMessage {
    const SPEC: ToolSpec = ToolSpec {
        name: "send_message",
        description: "Send a message to a teammate, `lead` or `user`. It is stored at once and wakes \
                      the recipient.",
        compact: Some(CompactOffer::always(Audience::Both, "Send a message to one agent.")),
        after_crash: AfterCrash::Repeat,
        signal: Signal::SendsMessage,
        served: Served::Loaded,
        ..MAIL
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let Self { to, content, msg_type, attach } = self;
        if let Some(kind) = msg_type.filter(|kind| kind != "message") {
            return Err(ToolError::Reply(wrong_type(&kind)));
        }
        let team = &parts.team;
        let files = parts.files.find_attached(&attach)?;
        ask_to_send(team, 1, &to, &content, &attach).await?;
        let (bus, me, id) = (Arc::clone(&team.bus), team.me.clone(), team.message_id(call));
        let outgoing = Outgoing { id: Some(id), ..Outgoing::text(content) };
        let send = move || {
            if !files.is_empty() {
                bus.check_recipient(&me, &to)?;
            }
            let kept = files.into_iter().map(|file| file.keep(bus.dir(), bus.fsync()));
            let kept = kept.collect::<Result<Vec<_>, _>>().map_err(ToolError::reply)?;
            bus.send(&me, &to, outgoing.with_attachments(&kept))?;
            Ok::<_, ToolError>(match bus.delay_of(&to) {
                None => format!("Sent to {to}."),
                Some(why) => format!("Sent to {to}; {why}."),
            })
        };
        offload(send).await
    }
}

/// Checks the sender's rate limit, then the user's hooks.
pub(super) async fn ask_to_send(
    team: &TeamContext,
    count: usize,
    to: &str,
    content: &str,
    attach: &[String],
) -> Result<(), ToolError> {
    team.reserve_sends(count).await?;
    let mut fields = json!({ "to": to, "content": content });
    if let (Some(fields), false) = (fields.as_object_mut(), attach.is_empty()) {
        fields.insert("attach".into(), attach.into());
    }
    team.hooks.ask(HookEvent::MessageSent, fields).await
}

fn wrong_type(kind: &str) -> String {
    let instead = match kind {
        "broadcast" => "use the broadcast tool",
        "shutdown_request" => "use shutdown_teammate (the lead's tool)",
        "shutdown_response" => "use shutdown_response",
        "plan_approval_request" => "use submit_plan, in mode plan",
        "plan_approval_response" => "use review_plan (the lead's tool)",
        "spawn_request" => "use spawn_teammate (the lead's tool)",
        "permission_response" | "permission_update" | "mode_set_request" => {
            "only the user grants permissions"
        }
        "result" => "end your turn with the text: the program sends it to the lead",
        _ => "leave msg_type out",
    };
    let kind: String = kind.chars().take(KIND_CHARS).collect();
    format!("msg_type {kind:?} cannot be sent with send_message; {instead}")
}

parameters!(Broadcast { content: String = required(Text, "") });

impl Tool for Broadcast {
    const SPEC: ToolSpec = ToolSpec {
        name: "broadcast",
        description: "Send the same message to every other agent of the team.",
        compact: Some(CompactOffer::when(
            OfferCondition::Teammates,
            Audience::Lead,
            "Send a message to all teammates.",
        )),
        after_crash: AfterCrash::Repeat,
        served: Served::Listed,
        ..MAIL
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let team = &parts.team;
        let bus = Arc::clone(&team.bus);
        // The reachable agents include the sender and the person, who get no broadcast.
        let receivers = offload(move || bus.reachable()).await?.len().saturating_sub(2);
        ask_to_send(team, receivers, "all", &self.content, &[]).await?;
        let (bus, me, id) = (Arc::clone(&team.bus), team.me.clone(), team.message_id(call));
        let outgoing = Outgoing { id: Some(id), ..Outgoing::broadcast(self.content) };
        let sent = offload(move || bus.broadcast(&me, &outgoing)).await?;
        if sent.is_empty() {
            return Err(ToolError::reply("there is no other agent on the team; nothing was sent"));
        }
        let lines = sent.iter().map(|(name, outcome)| match outcome {
            Ok(_) => format!("\n- {name}: sent"),
            Err(why) => format!("\n- {name}: NOT sent: {why}"),
        });
        let reached = sent.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        Ok(format!("Sent to {reached} of {}:{}", sent.len(), lines.collect::<String>()))
    }
}

parameters!(ReadInbox {});

impl Tool for ReadInbox {
    const SPEC: ToolSpec = ToolSpec {
        name: "read_inbox",
        description: "Show unread mail, and mail since you last looked. You get mail before every \
                      step anyway: do not use this tool to wait.",
        compact: Some(CompactOffer::always(Audience::Lead, "Show your mail.")),
        effect: Effect::Reads,
        ..MAIL
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let team = &parts.team;
        let waiting = unread::waiting(team.bus.dir(), &team.me).map_err(ToolError::reply)?;
        let recent = team.take_recent();
        let keyring = team.bus.keyring();
        let unread = waiting.iter().filter_map(|waiting| {
            let message = waiting.verified(keyring)?;
            Some(marked(waiting.object.as_ref()?, message.is_verified()))
        });
        let states = recent.iter().cloned().map(|message| (message, "taken_in"));
        let states = states.chain(unread.map(|message| (message, "unread")));
        let with_state = |(mut message, state): (Map<String, Value>, &str)| {
            message.insert("state".into(), state.into());
            message
        };
        let mail: Vec<_> = states.map(with_state).collect();
        if mail.is_empty() && recent.is_empty() {
            let none =
                "No mail: nothing is unread, and nothing was delivered since you last looked.";
            return Ok(none.into());
        }
        let older = match recent.dropped() {
            0 => String::new(),
            more => format!("\n[{more} older ones, which you were shown before, are left out]"),
        };
        Ok(inbox_block(&mail) + &older)
    }
}

parameters!(CheckInbox {
    wait_seconds: Option<u64> = optional(
        Count { most: Some(MAX_WAIT_S) },
        "if there is no mail, wait for it for so long"
    ),
    #[serde(default)]
    again: bool = optional(Boolean, "show once more the mail that you have got since you joined"),
});

impl Tool for CheckInbox {
    const SPEC: ToolSpec = ToolSpec {
        name: "check_inbox",
        description: "Take your unread mail. The result of every tool of the team ends with your \
                      unread mail as well. While you wait for an answer, call this with \
                      wait_seconds.",
        effect: Effect::Reads,
        served: Served::Loaded,
        ..MAIL
    };

    fn is_available(parts: &ToolParts) -> bool {
        parts.served.is_some()
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let served = parts.served.as_ref();
        let served = served.ok_or_else(|| ToolError::reply("use read_inbox, which you have"))?;
        let wait = self.wait_seconds.unwrap_or_default();
        if wait > MAX_WAIT_S {
            return Err(ToolError::Reply(format!(
                "wait_seconds is at most {MAX_WAIT_S}; call check_inbox again after that"
            )));
        }
        let earlier = served.mail.handed_out();
        let wait = if self.again { Duration::ZERO } else { Duration::from_secs(wait) };
        let unread = served.mail.take(call, wait).await?;
        if !self.again {
            return Ok(unread.block().unwrap_or_else(|| "No unread mail.".into()));
        }
        let mail: Vec<_> = earlier.iter().cloned().chain(unread.mail).collect();
        if mail.is_empty() {
            return Ok("You have got no mail since you joined.".into());
        }
        let older = match earlier.dropped() {
            0 => String::new(),
            more => format!("\n[{more} older ones are left out; `team transcript` shows them]"),
        };
        Ok(inbox_block(&mail) + &older)
    }
}
