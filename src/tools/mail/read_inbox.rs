//! The `read_inbox` tool.

use crate::store::unread;
use crate::tools::call::{Call, NoArguments, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::tools::team::TeamContext;
use crate::wire::inbox_block::inbox_block;
use crate::wire::tool::{Effect, Purpose, RoleAccess, ToolSpec};
use serde_json::{Map, Value};
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "read_inbox",
        description: "Show your mail: what is unread, and what was taken in since you last looked. Mail \
                      is also shown to you by itself before every step, so waiting with this tool is \
                      useless.",
        effect: Effect::Reads,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Talk,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ReadInbox(Rc::clone(&parts.team)))),
};

struct ReadInbox(Rc<TeamContext>);

impl Tool for ReadInbox {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoArguments {} = arguments(call)?;
            let waiting =
                unread::waiting(self.0.bus().dir(), self.0.me()).map_err(ToolError::reply)?;
            let recent = self.0.take_recent();
            let unread = waiting.iter().filter_map(|waiting| waiting.object.as_ref());
            let mail: Vec<_> = recent
                .iter()
                .map(|message| with_state(message, "taken_in"))
                .chain(unread.map(|message| with_state(message, "unread")))
                .collect();
            if mail.is_empty() {
                return Ok("No mail: nothing is unread and nothing was taken in since you last \
                           looked."
                    .into());
            }
            Ok(inbox_block(&mail))
        })
    }
}

fn with_state(message: &Map<String, Value>, state: &str) -> Map<String, Value> {
    let mut message = message.clone();
    message.insert("state".into(), state.into());
    message
}
