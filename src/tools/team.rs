//! Tools by which agents start, stop and direct each other.

use super::approval_decision::{ApprovalDecision, Decider};
use super::call::{Call, ToolError};
use super::ops::SpawnOrder;
use super::registry::{Parameters, TALKS, Tool, ToolParts, parameters};
use crate::protocol::request::RequestVerdict;
use crate::store::{Liveness, StoreError, TeamDir, liveness, relay, roster};
use crate::wire::AgentName;
use crate::wire::isolation::Isolation;
use crate::wire::permission::{PermissionMode, QuestionKind};
use crate::wire::roster::Status;
use crate::wire::tool::ParameterType::{Boolean, Text, Word};
use crate::wire::tool::{
    Audience, CompactOffer, Effect, OfferCondition, Parameter, Purpose, RoleAccess, Served, Signal,
    Supersedes, ToolSpec,
};
use serde::Deserialize;
use serde_json::Value;

/// The name of the tool whose calls submit plans.
pub(crate) const PLAN_TOOL: &str = SubmitPlan::SPEC.name;

parameters!(ListTeammates {});

impl Tool for ListTeammates {
    const SPEC: ToolSpec = ToolSpec {
        name: "list_teammates",
        description: "Show the members of the team: name, role, status, activity.",
        compact: Some(CompactOffer::always(Audience::Lead, "Show the team.")),
        effect: Effect::Reads,
        role_access: RoleAccess::Granted,
        purpose: Purpose::Talk,
        served: Served::Loaded,
        supersedes: Supersedes::SameCall,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let dir = parts.team.bus.dir();
        let roster = roster::read(dir).map_err(ToolError::reply)?;
        let liveness_of = |name: AgentName| liveness::probe(dir, &name).unwrap_or(Liveness::Dead);
        let lead_liveness = liveness_of(AgentName::lead());
        let lead = roster.lead.iter().map(|lead| {
            let status = if lead_liveness.is_alive() { lead.status.word() } else { "not running" };
            format!("- lead: {status}")
        });
        let mut lines: Vec<String> = lead.collect();
        for member in &roster.members {
            let liveness = AgentName::member(&member.name).map_or(Liveness::Dead, liveness_of);
            let status = roster::effective_status(member, &liveness, &lead_liveness);
            let activity = match &member.activity {
                Some(activity) if status == Status::Working => format!(" ({activity})"),
                _ => String::new(),
            };
            let you = if member.name == parts.team.me.as_str() { " (you)" } else { "" };
            let (name, role, model) = (&member.name, &member.role, &member.model);
            let status = status.word();
            // It shares no files with the members of this host.
            let host = member.host.as_ref().map(|host| match member.away_since {
                Some(_) => format!(", on host {host}, which is away"),
                None => format!(", on host {host}"),
            });
            let host = host.unwrap_or_default();
            lines.push(format!("- {name}{you}: {status}{activity}, {role}, {model}{host}"));
        }
        if roster.members.is_empty() {
            lines.push("There are no teammates yet.".into());
        }
        lines.extend(hosts_line(dir).map_err(ToolError::reply)?);
        Ok(lines.join("\n"))
    }
}

/// Returns the hosts of the team with their labels in one line; `None` if it has one host.
fn hosts_line(dir: &TeamDir) -> Result<Option<String>, StoreError> {
    let Some(own) = relay::identity(dir)? else { return Ok(None) };
    let words = |name: &str, state: &str, labels: &[String]| {
        let labels = labels.iter().map(|label| format!(", {label}"));
        format!("{name} ({state}{})", labels.collect::<String>())
    };
    let mut hosts = vec![words(own.host.as_str(), "this one", &own.labels)];
    for host in relay::known_hosts(dir)? {
        let is_up = host.is_heard && host.away_since.is_none();
        hosts.push(words(host.host.as_str(), if is_up { "up" } else { "away" }, &host.labels));
    }
    Ok(Some(format!("Hosts: {}.", hosts.join(", "))))
}

parameters!(SpawnTeammate {
    name: String = required(Text, "lower-case, such as alice or db-expert"),
    role: String = required(Text, "such as coder or tester"),
    prompt: String = required(Text, "its first task"),
    model: Option<String> = optional(Text, "another model, as provider/name"),
    mode: Option<PermissionMode> = optional(
        Word(&PermissionMode::WORDS),
        "a stricter permission mode than yours; plan: it must submit a plan to you before it \
         changes anything"
    ),
    isolation: Option<Isolation> = optional(
        Word(&Isolation::WORDS),
        "clone: it works in a clone of the repository of its own, and offers you its work"
    ),
    host: Option<String> = optional(
        Text,
        "the name or a label of another host of the team, such as gpu; there it works in a clone of the repository, \
         or without one in a folder of that host"
    ),
});

impl Tool for SpawnTeammate {
    const SPEC: ToolSpec = ToolSpec {
        name: "spawn_teammate",
        description: "Start a teammate: an agent with a name, a role and a memory of its own. \
                      Returns when it is ready. A name that is idle gets the new prompt; a name \
                      that was shut down comes back with its memory.",
        compact: Some(CompactOffer::always(
            Audience::Lead,
            "Start a teammate, or give an idle one a new prompt. name: lower-case.",
        )),
        audience: Audience::Lead,
        served: Served::Listed,
        ..TALKS
    };

    fn hidden_parameters(parts: &ToolParts) -> &'static [&'static str] {
        // The prompts of a team with one host do not speak of hosts.
        let has_hosts = matches!(relay::identity(parts.team.bus.dir()), Ok(Some(_)));
        if has_hosts { &[] } else { &["host"] }
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let Self { name, role, prompt, model, mode, isolation, host } = self;
        let (name, message_id) = (AgentName::member(&name)?, parts.team.message_id(call));
        let host = host.filter(|host| !host.trim().is_empty());
        let clone_of = None;
        let order =
            SpawnOrder { name, role, prompt, message_id, model, mode, isolation, host, clone_of };
        parts.ops()?.team.spawn(order).await
    }
}

/// Returns the name that a call gives to a teammate; `None` for another tool.
pub(crate) fn spawned_name(tool: &str, input: &Value) -> Option<String> {
    let name = (tool == SpawnTeammate::SPEC.name).then(|| input.get("name"))??;
    name.as_str().map(ToOwned::to_owned)
}

parameters!(ShutdownTeammate {
    name: String = required(Text, ""),
    reason: Option<String> = optional(Text, "why; told to the teammate"),
});

impl Tool for ShutdownTeammate {
    const SPEC: ToolSpec = ToolSpec {
        name: "shutdown_teammate",
        description: "End a teammate: it is asked first, and killed if it does not end in time. \
                      Returns when its process is gone and says how it ended.",
        compact: Some(CompactOffer::when(
            OfferCondition::Teammates,
            Audience::Lead,
            "End a teammate.",
        )),
        audience: Audience::Lead,
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let reason = self.reason.unwrap_or_else(|| "the lead no longer needs you".into());
        parts.ops()?.team.shutdown(AgentName::member(&self.name)?, reason).await
    }
}

parameters!(ShutdownResponse {
    request_id: String = required(Text, ""),
    approve: bool = required(Boolean, "true: end now"),
    reason: Option<String> = optional(Text, ""),
});

impl Tool for ShutdownResponse {
    const SPEC: ToolSpec = ToolSpec {
        name: "shutdown_response",
        description: "Answer an open shutdown request. A refusal is only a request for more time: \
                      say why. The deadline does not change.",
        audience: Audience::Teammate,
        role_access: RoleAccess::Always,
        purpose: Purpose::Talk,
        signal: Signal::AnswersShutdown,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        if !parts.team.is_shutdown_open(&self.request_id) {
            return Err(ToolError::reply(
                "no shutdown request with that id is open; there is nothing to answer",
            ));
        }
        parts.team.answer_shutdown(self.approve, self.reason).await?;
        Ok(if self.approve { "Ending." } else { "Your refusal was sent." }.into())
    }
}

/// Returns the reason for which a recorded call refuses this shutdown request; `None` if it does not refuse it.
pub(crate) fn refusal_reason(name: &str, input: &Value, request_id: &str) -> Option<String> {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let refuses = input.get("approve").and_then(Value::as_bool) == Some(false);
    let is_refusal = name == ShutdownResponse::SPEC.name && refuses;
    (is_refusal && text("request_id") == Some(request_id))
        .then(|| text("reason").unwrap_or("no reason given").to_owned())
}

/// The arguments of `submit_plan`. In mode plan, `agent::approval` asks for a decision and answers the call with
/// it, so that the tool itself runs only if no approval is needed.
#[derive(Deserialize)]
pub(super) struct SubmitPlan {
    plan: Option<Value>,
}

impl Parameters for SubmitPlan {
    const PARAMETERS: &[Parameter] = &[Parameter::required("plan", Text, "")];
}

impl Tool for SubmitPlan {
    const SPEC: ToolSpec = ToolSpec {
        name: "submit_plan",
        description: "In mode plan: send your plan to be approved and wait for the decision. Say what \
                      you will change, where and why, and how you will check it.",
        compact: Some(CompactOffer::when(
            OfferCondition::PlanMode,
            Audience::Both,
            "Send your plan and wait for the decision. Before that you can change nothing.",
        )),
        audience: Audience::Both,
        role_access: RoleAccess::Granted,
        signal: Signal::SubmitsPlan,
        served: Served::Listed,
        ..TALKS
    };

    fn is_available(parts: &ToolParts) -> bool {
        parts.served.as_ref().is_none_or(|served| served.submits_plans)
    }

    async fn run(self, _: &Call, _: &ToolParts) -> Result<String, ToolError> {
        match self.plan {
            Some(Value::String(_)) => {
                Ok("You are not in mode plan: no approval is needed, go on.".into())
            }
            _ => Err(ToolError::reply("give the plan as text in the field plan")),
        }
    }
}

parameters!(ReviewPlan {
    request_id: String = required(Text, ""),
    approve: bool = required(Boolean, "true: carry it out"),
    feedback: Option<String> = recommended(Text, ""),
});

impl Tool for ReviewPlan {
    const SPEC: ToolSpec = ToolSpec {
        name: "review_plan",
        description: "Decide about a plan that a teammate has submitted (a plan_approval_request in \
                      your inbox). Approved, it goes on and carries it out; rejected, it gets your \
                      feedback and may submit another.",
        compact: Some(CompactOffer::when(
            OfferCondition::PlanToReview,
            Audience::Lead,
            "Decide about a plan in your mail.",
        )),
        audience: Audience::Lead,
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (queue, id) = (&parts.ops()?.approval_queue, &self.request_id);
        let asked = queue.find(id).filter(|asked| asked.question.about == QuestionKind::Plan);
        let Some(asked) = asked else {
            return Err(ToolError::Reply(format!(
                "no plan with the request_id {id:?} waits for a decision; permissions are the user's \
                 to give"
            )));
        };
        if queue.mode.get() == PermissionMode::Plan {
            return Err(ToolError::reply(
                "you are in mode plan, in which nothing may be changed: the user was asked about \
                 this plan, and decides",
            ));
        }
        if queue.is_for_person(&asked) {
            return Err(ToolError::reply(
                "this team's settings leave plans to the user (plan_approval = \"person\"); the user \
                 was asked",
            ));
        }
        let decision = ApprovalDecision::once(RequestVerdict::of(self.approve), self.feedback);
        let asked = queue.decide(id, Decider::Model, decision).await?;
        let word = if self.approve { "approved" } else { "not approved" };
        Ok(format!("{}'s plan is {word}; it was told.", asked.owner))
    }
}

parameters!(Idle {});

impl Tool for Idle {
    const SPEC: ToolSpec = ToolSpec {
        name: "idle",
        description: "End your turn because there is nothing to do now; mail wakes you again.",
        compact: Some(CompactOffer::always(
            Audience::Teammate,
            "End your turn because there is nothing to do now.",
        )),
        audience: Audience::Teammate,
        effect: Effect::Reads,
        role_access: RoleAccess::Always,
        purpose: Purpose::Talk,
        signal: Signal::EndsTurn,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, _: &ToolParts) -> Result<String, ToolError> {
        Ok("Idle.".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_refusal_of_this_request_has_a_reason() {
        let refusal = json!({"request_id": "r1", "approve": false, "reason": "busy"});
        let own = "shutdown_response";
        for (tool, input, reason) in [
            (own, refusal.clone(), Some("busy")),
            (own, json!({"request_id": "r1", "approve": false}), Some("no reason given")),
            ("another_tool", refusal, None),
            (own, json!({"request_id": "r2", "approve": false}), None),
            (own, json!({"request_id": "r1", "approve": true}), None),
            (own, json!({"request_id": "r1"}), None),
            (own, json!(null), None),
        ] {
            let found = refusal_reason(tool, &input, "r1");
            assert_eq!(found.as_deref(), reason, "{tool} {input}");
        }
    }
}
