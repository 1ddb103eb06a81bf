//! The `broadcast` tool.

use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::off_thread::off_thread;
use crate::tools::registry::Registration;
use crate::tools::team::TeamContext;
use crate::wire::hook::HookEvent;
use crate::wire::tool::{
    AfterCrash, Effect, Parameter, ParameterType, Purpose, RoleAccess, ToolSpec,
};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "broadcast",
        description: "Send the same message to everybody on the team but yourself.",
        parameters: &[Parameter::required("content", ParameterType::Text, "the text")],
        effect: Effect::Talks,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Talk,
        after_crash: AfterCrash::Repeat,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(Broadcast(Rc::clone(&parts.team)))),
};

struct Broadcast(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    content: String,
}

impl Tool for Broadcast {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { content } = arguments(call)?;
            let bus = Arc::clone(self.0.bus());
            // The reachable agents include the sender and the person, who get no broadcast.
            let receivers = off_thread(move || bus.reachable()).await?.len().saturating_sub(2);
            self.0.reserve_sends(receivers).await?;
            let fields = json!({ "to": "all", "content": content });
            self.0.hooks().ask(HookEvent::MessageSent, fields).await?;
            let (bus, me) = (Arc::clone(self.0.bus()), self.0.me().clone());
            let id = format!("{me}:{}", call.id);
            let sent = off_thread(move || bus.broadcast(&me, &content, Some(&id))).await?;
            if sent.is_empty() {
                return Err(ToolError::reply("nobody else is on the team; nothing was sent"));
            }
            let lines: Vec<String> = sent
                .iter()
                .map(|(name, outcome)| match outcome {
                    Ok(_) => format!("- {name}: sent"),
                    Err(why) => format!("- {name}: NOT sent: {why}"),
                })
                .collect();
            let reached = sent.iter().filter(|(_, outcome)| outcome.is_ok()).count();
            Ok(format!("Sent to {reached} of {}:\n{}", sent.len(), lines.join("\n")))
        })
    }
}
