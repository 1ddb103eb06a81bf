//! The `shutdown_response` tool: a teammate answers a shutdown request.

use super::context::TeamContext;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{
    Audience, Effect, Parameter, ParameterType, Purpose, RoleAccess, Signal, ToolSpec,
};
use serde::Deserialize;
use serde_json::Value;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "shutdown_response",
        description: "Answer an open shutdown request. Refusing is a wish: say why; the deadline stands.",
        parameters: &[
            Parameter::required("request_id", ParameterType::Text, "the request's id"),
            Parameter::required("approve", ParameterType::Boolean, "true: end now"),
            Parameter::optional("reason", ParameterType::Text, "why"),
        ],
        audience: Audience::Teammate,
        effect: Effect::Talks,
        role_access: RoleAccess::Always,
        purpose: Purpose::Talk,
        signal: Signal::AnswersShutdown,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ShutdownResponse(Rc::clone(&parts.team)))),
};

struct ShutdownResponse(Rc<TeamContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    request_id: String,
    approve: bool,
    reason: Option<String>,
}

impl Tool for ShutdownResponse {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: Arguments = arguments(call)?;
            if !self.0.is_shutdown_open(&input.request_id) {
                return Err(ToolError::reply(
                    "no shutdown request with that id is open; there is nothing to answer",
                ));
            }
            self.0.answer_shutdown(input.approve, input.reason).await?;
            Ok(if input.approve { "Ending." } else { "Your refusal was sent." }.into())
        })
    }
}

/// Why a recorded call refuses this shutdown request; `None` if it does not.
pub(crate) fn refusal_reason(name: &str, input: &Value, request_id: &str) -> Option<String> {
    if name != TOOL.spec.name {
        return None;
    }
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let refuses = input.get("approve").and_then(Value::as_bool) == Some(false);
    (refuses && text("request_id") == Some(request_id))
        .then(|| text("reason").unwrap_or("no reason given").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_refusal_of_this_request_has_a_reason() {
        let reason = |name, input: &Value| refusal_reason(name, input, "r1");
        let refusal = json!({"request_id": "r1", "approve": false, "reason": "busy"});
        assert_eq!(reason("shutdown_response", &refusal).as_deref(), Some("busy"));
        let silent = json!({"request_id": "r1", "approve": false});
        assert_eq!(reason("shutdown_response", &silent).as_deref(), Some("no reason given"));
        assert_eq!(reason("another_tool", &refusal), None);
        for other in [
            json!({"request_id": "r2", "approve": false}),
            json!({"request_id": "r1", "approve": true}),
            json!({"request_id": "r1"}),
            json!(null),
        ] {
            assert_eq!(reason("shutdown_response", &other), None, "{other}");
        }
    }
}
