//! The `submit_plan` tool: a teammate submits a plan for approval.

use crate::tools::call::{Call, Tool, ToolError, ToolFuture};
use crate::tools::registry::Registration;
use crate::wire::tool::{Audience, Effect, Parameter, ParameterType, RoleAccess, Signal, ToolSpec};
use serde_json::Value;

/// The name of this tool.
pub(crate) const NAME: &str = TOOL.spec.name;

pub(in crate::tools) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "submit_plan",
        description: "In mode plan: send your plan to be approved and wait for the decision. Say what \
                      you will change, where and why, and how you will check it.",
        parameters: &[Parameter::required("plan", ParameterType::Text, "the plan")],
        audience: Audience::Teammate,
        effect: Effect::Talks,
        role_access: RoleAccess::Granted,
        signal: Signal::SubmitsPlan,
        ..ToolSpec::STRICT
    },
    build: |_| Some(Box::new(SubmitPlan)),
};

/// In mode plan, the agent's approval gate asks for a decision and answers the call with it, so that
/// the tool itself runs only if no approval is needed.
struct SubmitPlan;

impl Tool for SubmitPlan {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            match call.input.get("plan") {
                Some(Value::String(_)) => {
                    Ok("You are not in mode plan: no approval is needed, go on.".into())
                }
                _ => Err(ToolError::reply("give the plan as text in the field plan")),
            }
        })
    }
}
