//! The `shutdown_teammate` tool.

use super::ops::TeamOps;
use crate::tools::call::{Call, Tool, ToolFuture, arguments, member_name};
use crate::tools::registry::Registration;
use crate::wire::tool::{Audience, Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "shutdown_teammate",
        description: "End a teammate: it is asked first, and ended by force when it does not go in time. \
                      Answers when its process is gone and says how it ended.",
        parameters: &[
            Parameter::required("name", ParameterType::Text, "whom to end"),
            Parameter::optional("reason", ParameterType::Text, "why; told to the teammate"),
        ],
        audience: Audience::Lead,
        compact: Some(Audience::Lead),
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ShutdownTeammate(Rc::clone(&parts.ops.as_ref()?.team)))),
};

struct ShutdownTeammate(Rc<dyn TeamOps>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    name: String,
    reason: Option<String>,
}

impl Tool for ShutdownTeammate {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: Arguments = arguments(call)?;
            let reason = input.reason.unwrap_or_else(|| "the lead no longer needs you".into());
            self.0.shutdown(member_name(&input.name)?, reason).await
        })
    }
}
