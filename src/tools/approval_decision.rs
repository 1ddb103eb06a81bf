//! Decisions about questions, and the messages that carry them.

use crate::protocol::request::RequestVerdict;
use crate::wire::message::{Body, Scope};
use crate::wire::permission::{PROGRAM, PermissionMode, QuestionKind, RuleScope};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decider {
    Model,
    Person,
    /// The program, because nobody can be asked.
    Program,
}

impl Decider {
    /// Returns the name of the decider in the record of a decision.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Model => "lead",
            Self::Person => "user",
            Self::Program => PROGRAM,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApprovalDecision {
    pub(crate) verdict: RequestVerdict,
    pub(crate) scope: Scope,
    /// The agents and the time for which `scope` holds; `None` for the whole team.
    pub(crate) rule_scope: Option<RuleScope>,
    pub(crate) reason: Option<String>,
    /// Arguments that replace those of the call.
    pub(crate) updated_input: Option<Value>,
    /// The mode in which the agent carries its approved plan out; `None` for `accept_edits`.
    pub(crate) mode: Option<PermissionMode>,
}

impl ApprovalDecision {
    /// Creates a decision about one call.
    pub(crate) fn once(verdict: RequestVerdict, reason: Option<String>) -> Self {
        let (scope, rule_scope) = (Scope::Once, None);
        Self { verdict, scope, rule_scope, reason, updated_input: None, mode: None }
    }

    /// Creates an approval that also allows the same call from now on.
    pub(crate) fn with_rule(rule_scope: RuleScope) -> Self {
        let yes = Self::once(RequestVerdict::Approve, None);
        Self { scope: rule_scope.answer(), rule_scope: Some(rule_scope), ..yes }
    }

    /// Returns the body of the message that carries the decision about a question of this kind. `by` names a decider other
    /// than the sender.
    pub(crate) fn into_body(self, about: QuestionKind, by: Option<Decider>) -> Body {
        let Self { verdict, scope, rule_scope, reason, updated_input, mode } = self;
        let approve = verdict == RequestVerdict::Approve;
        let rule_scope = rule_scope.map(|scope| scope.word().to_owned());
        let decider = by.map(|by| by.word().to_owned());
        match about {
            QuestionKind::Permission => Body::PermissionResponse {
                approve,
                scope,
                reason,
                decider,
                rule_scope,
                updated_input,
            },
            QuestionKind::Sandbox => Body::SandboxPermissionResponse {
                approve,
                scope,
                reason,
                decider,
                rule_scope,
                updated_input,
            },
            QuestionKind::Plan => {
                let mode = mode.map(|mode| mode.word().to_owned());
                Body::PlanApprovalResponse { approve, feedback: reason, mode }
            }
        }
    }

    /// Returns the decision in the body of a message, with the kind of its question and the word for a decider other than
    /// the sender; `None` if it answers no question.
    pub(crate) fn of_body(body: &Body) -> Option<(QuestionKind, Self, Option<String>)> {
        if let Body::PlanApprovalResponse { approve, feedback, mode } = body {
            let mode = mode.as_deref().and_then(PermissionMode::parse);
            let plan = Self::once(RequestVerdict::of(*approve), feedback.clone());
            return Some((QuestionKind::Plan, Self { mode, ..plan }, None));
        }
        let (about, approve, scope, reason, decider, rule_scope, updated_input) =
            if let Body::PermissionResponse {
                approve,
                scope,
                reason,
                decider,
                rule_scope,
                updated_input,
            } = body
            {
                let about = QuestionKind::Permission;
                (about, approve, scope, reason, decider, rule_scope, updated_input)
            } else if let Body::SandboxPermissionResponse {
                approve,
                scope,
                reason,
                decider,
                rule_scope,
                updated_input,
            } = body
            {
                let about = QuestionKind::Sandbox;
                (about, approve, scope, reason, decider, rule_scope, updated_input)
            } else {
                return None;
            };
        let (verdict, scope) = (RequestVerdict::of(*approve), *scope);
        let (reason, updated_input) = (reason.clone(), updated_input.clone());
        let rule_scope = rule_scope.as_deref().and_then(RuleScope::parse);
        let decision = Self { verdict, scope, rule_scope, reason, updated_input, mode: None };
        Some((about, decision, decider.clone()))
    }

    /// Returns the agents and the time for which the answer makes a rule; `None` if it makes none.
    pub(crate) fn makes_rule(&self) -> Option<RuleScope> {
        let is_yes = self.verdict == RequestVerdict::Approve;
        let scope = RuleScope::of_answer(self.scope, self.rule_scope.map(RuleScope::word));
        scope.filter(|_| is_yes)
    }
}
