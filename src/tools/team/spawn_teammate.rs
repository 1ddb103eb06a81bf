//! The `spawn_teammate` tool.

use super::context::TeamContext;
use super::ops::{SpawnOrder, TeamOps};
use crate::tools::call::{Call, Tool, ToolFuture, arguments, member_name};
use crate::tools::registry::Registration;
use crate::wire::permission::PermissionMode;
use crate::wire::tool::{Audience, Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "spawn_teammate",
        description: "Start a teammate: an agent with a name, a role and a memory of its own. Answers \
                      when it is ready. A name that is idle gets the new prompt; a name that was shut \
                      down comes back with its memory.",
        parameters: &[
            Parameter::required(
                "name",
                ParameterType::Text,
                "lower-case, such as alice or db-expert",
            ),
            Parameter::required(
                "role",
                ParameterType::Text,
                "what it is for, such as coder or tester",
            ),
            Parameter::required("prompt", ParameterType::Text, "what it is to do"),
            Parameter::optional("model", ParameterType::Text, "another model, as provider/name"),
            Parameter::optional(
                "mode",
                ParameterType::Word(&PermissionMode::WORDS),
                "a stricter permission mode than yours; plan: it must submit a plan to you before it \
                 changes anything",
            ),
        ],
        audience: Audience::Lead,
        compact: Some(Audience::Lead),
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| {
        let ops = Rc::clone(&parts.ops.as_ref()?.team);
        Some(Box::new(SpawnTeammate { team: Rc::clone(&parts.team), ops }))
    },
};

struct SpawnTeammate {
    team: Rc<TeamContext>,
    ops: Rc<dyn TeamOps>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    name: String,
    role: String,
    prompt: String,
    model: Option<String>,
    mode: Option<PermissionMode>,
}

impl Tool for SpawnTeammate {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { name, role, prompt, model, mode } = arguments(call)?;
            let name = member_name(&name)?;
            let message_id = format!("{}:{}", self.team.me(), call.id);
            self.ops.spawn(SpawnOrder { name, role, prompt, message_id, model, mode }).await
        })
    }
}
