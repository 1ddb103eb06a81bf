//! The `idle` tool: the model ends its turn because it has nothing to do.

use crate::tools::call::{Call, NoArguments, Tool, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{Audience, Effect, Purpose, RoleAccess, Signal, ToolSpec};

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "idle",
        description: "End your turn because there is nothing to do now; mail wakes you again.",
        audience: Audience::Teammate,
        compact: Some(Audience::Teammate),
        effect: Effect::Reads,
        role_access: RoleAccess::Always,
        purpose: Purpose::Talk,
        signal: Signal::EndsTurn,
        ..ToolSpec::STRICT
    },
    build: |_| Some(Box::new(Idle)),
};

struct Idle;

impl Tool for Idle {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let NoArguments {} = arguments(call)?;
            Ok("Idle.".into())
        })
    }
}
