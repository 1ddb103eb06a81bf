//! The tools of plans: a teammate submits one, the lead's model reviews it.

use super::approval_queue::{ApprovalDecision, ApprovalQueue, Decider};
use super::team::{spec, text_property};
use super::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::protocol::request::RequestVerdict;
use crate::wire::chat::ToolSpec;
use crate::wire::permission::{PermissionMode, QuestionKind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// A plan goes to whoever decides before this tool runs: the agent's gate asks, and answers the call
/// with the decision. It runs only where there is nothing to decide.
pub(super) struct SubmitPlan;

impl Tool for SubmitPlan {
    fn spec(&self) -> ToolSpec {
        spec(
            "submit_plan",
            "In mode plan: send your plan to be approved and wait for the decision. Say what you will \
             change, where and why, and how you will check it.",
            &json!({ "plan": text_property("the plan") }),
            &["plan"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            match call.input.get("plan") {
                Some(Value::String(_)) => {
                    Ok("You are not in mode plan: no approval is needed, go on.".into())
                }
                _ => Err(ToolError::Reply("give the plan as text in the field plan".into())),
            }
        })
    }
}

pub(super) struct ReviewPlan(pub(super) Rc<ApprovalQueue>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewInput {
    request_id: String,
    approve: bool,
    feedback: Option<String>,
}

impl Tool for ReviewPlan {
    fn spec(&self) -> ToolSpec {
        spec(
            "review_plan",
            "Decide about a plan that a teammate has submitted (a plan_approval_request in your \
             inbox). Approved, it goes on and carries it out; rejected, it gets your feedback and may \
             submit another.",
            &json!({
                "request_id": text_property("the request's id"),
                "approve": { "type": "boolean", "description": "true: carry it out" },
                "feedback": text_property("what to change, or what to mind"),
            }),
            &["request_id", "approve"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: ReviewInput = arguments(call)?;
            let id = input.request_id;
            let asked = self.0.find(&id).filter(|asked| asked.question.about == QuestionKind::Plan);
            let Some(asked) = asked else {
                return Err(ToolError::Reply(format!(
                    "no plan with the request_id {id:?} waits for a decision; permissions are the \
                     user's to give"
                )));
            };
            if self.0.is_for_person(&asked.question) {
                return Err(ToolError::Reply(
                    "this team's settings leave plans to the user (plan_approval = \"person\"); the \
                     user was asked"
                        .into(),
                ));
            }
            if input.approve && self.0.mode() == PermissionMode::Plan {
                return Err(ToolError::Reply(
                    "you are in mode plan yourself, in which nothing is changed: only the user can \
                     approve this plan"
                        .into(),
                ));
            }
            let ruling = ApprovalDecision::once(RequestVerdict::of(input.approve), input.feedback);
            let asked = self.0.decide(&id, Decider::Model, ruling).await?;
            let word = if input.approve { "approved" } else { "not approved" };
            Ok(format!("{}'s plan is {word}; it was told.", asked.owner))
        })
    }
}
