//! The `send_message` tool.

use crate::bus::Outgoing;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::off_thread::off_thread;
use crate::tools::registry::Registration;
use crate::tools::team::TeamContext;
use crate::wire::hook::HookEvent;
use crate::wire::tool::{
    AfterCrash, Audience, Effect, Parameter, ParameterType, Purpose, RoleAccess, Signal, ToolSpec,
};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;

/// Characters of an unknown `msg_type` that the error repeats.
const KIND_CHARS: usize = 64;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "send_message",
        description: "Send a message to one agent by name (a teammate, or `lead`, or `user`). It is \
                      stored at once and wakes the receiver. An unknown or ended receiver is an error.",
        parameters: &[
            Parameter::required("to", ParameterType::Text, "who gets it"),
            Parameter::required("content", ParameterType::Text, "the text"),
            Parameter::optional("msg_type", ParameterType::Word(&["message"]), ""),
        ],
        compact: Some(Audience::Both),
        effect: Effect::Talks,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Talk,
        after_crash: AfterCrash::Repeat,
        signal: Signal::SendsMessage,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(SendMessage(Rc::clone(&parts.team)))),
};

struct SendMessage(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    to: String,
    content: String,
    msg_type: Option<String>,
}

impl Tool for SendMessage {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { to, content, msg_type } = arguments(call)?;
            if let Some(kind) = msg_type.filter(|kind| kind != "message") {
                return Err(ToolError::Reply(wrong_type(&kind)));
            }
            self.0.reserve_sends(1).await?;
            let fields = json!({ "to": to, "content": content });
            self.0.hooks().ask(HookEvent::MessageSent, fields).await?;
            let (bus, me) = (Arc::clone(self.0.bus()), self.0.me().clone());
            let id = Some(format!("{me}:{}", call.id));
            let (answer, outgoing) =
                (format!("Sent to {to}."), Outgoing { id, ..Outgoing::text(content) });
            off_thread(move || bus.send(&me, &to, outgoing)).await?;
            Ok(answer)
        })
    }
}

fn wrong_type(kind: &str) -> String {
    let instead = match kind {
        "broadcast" => "use the broadcast tool",
        "shutdown_request" => "use shutdown_teammate (the lead's tool)",
        "shutdown_response" => "use shutdown_response",
        "plan_approval_request" => "use submit_plan (a teammate's tool)",
        "plan_approval_response" => "use review_plan (the lead's tool)",
        "permission_response" | "permission_update" | "mode_set_request" => {
            "only the user grants permissions"
        }
        "result" => "end your turn with the text: the program sends it to the lead",
        _ => "leave msg_type out",
    };
    let kind: String = kind.chars().take(KIND_CHARS).collect();
    format!("msg_type {kind:?} cannot be sent with send_message; {instead}")
}
