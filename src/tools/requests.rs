//! The tool by which the model of another program passes on the decisions of the person about the calls of teammates.

use super::approval_decision::{ApprovalDecision, Decider};
use super::call::{Call, ToolError};
use super::registry::{Tool, ToolParts, parameters};
use crate::protocol::request::RequestVerdict;
use crate::wire::permission::QuestionKind;
use crate::wire::tool::ParameterType::{Boolean, Text};
use crate::wire::tool::{Audience, Effect, Served, ToolSpec};

parameters!(AnswerRequest {
    request_id: String = required(Text, "the request's id"),
    call: String = required(
        Text,
        "the description in the request, word for word, so that the user sees here what may run"
    ),
    approve: bool = required(Boolean, "true: the call may run, this once"),
    reason: Option<String> = optional(Text, "why; told to the teammate"),
});

impl Tool for AnswerRequest {
    const SPEC: ToolSpec = ToolSpec {
        name: "answer_request",
        description: "Pass the user's decision on to a teammate whose call waits for permission (a \
                      permission_request in your inbox). The decision is the user's: ask, unless the user \
                      has told you how to decide about such calls.",
        audience: Audience::Lead,
        effect: Effect::Changes,
        served: Served::Listed,
        ..ToolSpec::STRICT
    };

    fn is_available(parts: &ToolParts) -> bool {
        // A lead of this program asks the person itself.
        parts.served.is_some()
    }

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (queue, id) = (&parts.ops()?.approval_queue, &self.request_id);
        let asked = queue.find(id).filter(|asked| asked.question.about != QuestionKind::Plan);
        let Some(asked) = asked else {
            return Err(ToolError::Reply(format!(
                "no call with the request_id {id:?} waits for permission: it was answered, or its deadline has passed"
            )));
        };
        let waits = &asked.question.description;
        if self.call.trim() != waits.trim() {
            return Err(ToolError::Reply(format!(
                "nothing was decided: {} waits with another call; give it word for word in `call`:\n{waits}",
                asked.owner
            )));
        }
        let decision = ApprovalDecision::once(RequestVerdict::of(self.approve), self.reason);
        let asked = queue.decide(id, Decider::Person, decision).await?;
        let word = if self.approve { "may run, this once" } else { "was refused" };
        Ok(format!("The call of {} {word}; it was told.", asked.owner))
    }
}
