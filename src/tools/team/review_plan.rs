//! The `review_plan` tool: the lead's model decides about a plan.

use crate::protocol::request::RequestVerdict;
use crate::tools::approval_queue::{ApprovalDecision, ApprovalQueue, Decider};
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::permission::{PermissionMode, QuestionKind};
use crate::wire::tool::{Audience, Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "review_plan",
        description: "Decide about a plan that a teammate has submitted (a plan_approval_request in \
                      your inbox). Approved, it goes on and carries it out; rejected, it gets your \
                      feedback and may submit another.",
        parameters: &[
            Parameter::required("request_id", ParameterType::Text, "the request's id"),
            Parameter::required("approve", ParameterType::Boolean, "true: carry it out"),
            Parameter::optional("feedback", ParameterType::Text, "what to change, or what to mind"),
        ],
        audience: Audience::Lead,
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ReviewPlan(Rc::clone(&parts.ops.as_ref()?.approval_queue)))),
};

struct ReviewPlan(Rc<ApprovalQueue>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    request_id: String,
    approve: bool,
    feedback: Option<String>,
}

impl Tool for ReviewPlan {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { request_id: id, approve, feedback } = arguments(call)?;
            let asked = self.0.find(&id).filter(|asked| asked.question.about == QuestionKind::Plan);
            let Some(asked) = asked else {
                return Err(ToolError::Reply(format!(
                    "no plan with the request_id {id:?} waits for a decision; permissions are the \
                     user's to give"
                )));
            };
            if self.0.is_for_person(&asked.question) {
                return Err(ToolError::reply(
                    "this team's settings leave plans to the user (plan_approval = \"person\"); the \
                     user was asked",
                ));
            }
            if approve && self.0.mode() == PermissionMode::Plan {
                return Err(ToolError::reply(
                    "you are in mode plan yourself, in which nothing is changed: only the user can \
                     approve this plan",
                ));
            }
            let decision = ApprovalDecision::once(RequestVerdict::of(approve), feedback);
            let asked = self.0.decide(&id, Decider::Model, decision).await?;
            let word = if approve { "approved" } else { "not approved" };
            Ok(format!("{}'s plan is {word}; it was told.", asked.owner))
        })
    }
}
