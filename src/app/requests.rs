//! Open requests, read from the files alone, and the user's answer from outside the lead.
//!
//! The answer is sent to the lead as `user`, and the lead's program passes it on: a member acts only on the
//! decisions of its lead.

use super::names::member_names;
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::store::asynchronous::offload;
use crate::store::transcript::{OpenQuestion, decision, open_questions};
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::ui::sanitize::one_line;
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation, Scope};
use crate::wire::permission::{Decision, DecisionOutcome, QuestionKind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long the lead may take to pass an answer on.
const RELAY_LIMIT: Duration = Duration::from_secs(15);

/// Interval at which the transcript is checked for the decision.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// An open request.
pub(crate) struct OpenRequest {
    owner: AgentName,
    life: Liveness,
    open: OpenQuestion,
}

/// Finds the open requests of the lead and of all members.
pub(crate) fn find(team: &TeamDir) -> Result<Vec<OpenRequest>, Failure> {
    let roster = roster::read(team)?;
    let members = member_names(&roster);
    let mut found = Vec::new();
    for owner in std::iter::once(AgentName::lead()).chain(members) {
        let life = liveness::probe(team, &owner).unwrap_or(Liveness::Dead);
        for open in open_questions(team, &owner)? {
            found.push(OpenRequest { owner: owner.clone(), life: life.clone(), open });
        }
    }
    Ok(found)
}

/// Renders a request as JSON.
pub(crate) fn json(request: &OpenRequest) -> Value {
    let question = &request.open.question;
    json!({
        "request_id": question.request_id,
        "from": request.owner.as_str(),
        "kind": question.about.word(),
        "tool": question.tool,
        "input": question.input,
        "description": question.description,
        "decider": request.open.decider,
        "deadline": request.open.deadline,
        "waiting": request.life.is_alive(),
    })
}

/// Renders a request as a line.
pub(crate) fn line(request: &OpenRequest) -> String {
    let question = &request.open.question;
    let left = request.open.deadline.since(SystemClock.now());
    let state = match (request.life.is_alive(), request.open.decider.as_str()) {
        (false, _) => "not running; asks again when it is".to_owned(),
        (true, "user") if !request.owner.is_lead() => "on its own terminal".to_owned(),
        (true, _) => format!("{} s left", left.as_secs()),
    };
    let what = one_line(&question.description, 100);
    let (id, tool) = (one_line(&question.request_id, 200), one_line(&question.tool, 40));
    let id = if id.contains(' ') { format!("'{id}'") } else { id };
    format!("{id}  {} asks ({}) {tool}: {what}  ({state})", request.owner, question.about.word())
}

/// The user's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Approve(Scope),
    Deny,
}

/// Answers an open request in the user's name and waits until its owner has recorded the decision. Returns
/// the outcome as a word.
pub(crate) async fn decide(
    bus: &Arc<Bus>,
    id: &str,
    answer: Answer,
    reason: Option<String>,
) -> Result<&'static str, Failure> {
    let team = bus.dir();
    let request = answerable(team, id)?;
    let lead = AgentName::lead();
    let lead_life = match liveness::probe(team, &lead) {
        Ok(Liveness::Alive(Some(record))) => record.incarnation,
        _ => {
            let hint = "start one with `team lead`, then answer there or from here";
            let why = "the lead passes answers on, and none is running";
            return Err(Failure::new(Exit::Failure, format!("{id} was not answered"), why, hint));
        }
    };
    let (approve, scope) = match answer {
        Answer::Approve(scope) => (true, scope),
        Answer::Deny => (false, Scope::Once),
    };
    let body = match request.open.question.about {
        QuestionKind::Permission => {
            Body::PermissionResponse { approve, scope, reason, updated_input: None }
        }
        QuestionKind::Plan => Body::PlanApprovalResponse { approve, feedback: reason, mode: None },
        QuestionKind::Sandbox => Body::SandboxPermissionResponse { approve, scope, reason },
    };
    let correlation = Correlation { request_id: id.into(), incarnation: lead_life };
    let sender = Arc::clone(bus);
    let relay = move || sender.control(&AgentName::user(), &lead, body, correlation);
    offload(relay).await.map_err(|why| {
        Failure::new(Exit::Failure, format!("{id} was not answered"), why.to_string(), why.hint())
    })?;
    result(id, answer, recorded_decision(team, &request).await)
}

/// Finds the request of that id.
///
/// # Errors
/// It is not open, or cannot be answered from outside.
fn answerable(team: &TeamDir, id: &str) -> Result<OpenRequest, Failure> {
    let hint = "`team requests` lists what waits";
    let refuse =
        |why: String| Failure::new(Exit::Failure, format!("{id:?} cannot be answered"), why, hint);
    let found = find(team)?.into_iter().find(|it| it.open.question.request_id == id);
    let request = found.ok_or_else(|| refuse("no request of that id is open".into()))?;
    let owner = &request.owner;
    if !request.life.is_alive() {
        return Err(refuse(format!("{owner} is not running; it asks again when it is")));
    }
    if request.open.decider == "user" && !owner.is_lead() {
        return Err(refuse(format!("{owner} asks on its own terminal; answer there")));
    }
    Ok(request)
}

/// Waits until the owner of the request has recorded a decision.
async fn recorded_decision(team: &TeamDir, request: &OpenRequest) -> Option<Decision> {
    let id = &request.open.question.request_id;
    let give_up = tokio::time::Instant::now() + RELAY_LIMIT;
    while tokio::time::Instant::now() < give_up {
        let open = open_questions(team, &request.owner).unwrap_or_default();
        if !open.iter().any(|open| open.question.request_id == *id) {
            return decision(team, &request.owner, id).ok().flatten();
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    None
}

/// Compares the recorded decision with the answer.
fn result(id: &str, answer: Answer, decided: Option<Decision>) -> Result<&'static str, Failure> {
    let wanted = match answer {
        Answer::Approve(_) => DecisionOutcome::Approved,
        Answer::Deny => DecisionOutcome::Rejected,
    };
    let Some(decided) = decided else {
        let why = "the answer was sent, and the lead has not passed it on yet";
        let hint = "`team requests` tells whether it still waits";
        return Err(Failure::new(Exit::Failure, format!("{id} is still open"), why, hint));
    };
    if decided.outcome != wanted {
        let why = decided.reason.unwrap_or_else(|| "it was decided otherwise before".into());
        let what = format!("{id} is {} all the same", word(decided.outcome));
        return Err(Failure::new(Exit::Failure, what, why, "`team requests` lists what waits"));
    }
    Ok(word(decided.outcome))
}

fn word(outcome: DecisionOutcome) -> &'static str {
    match outcome {
        DecisionOutcome::Approved => "approved",
        DecisionOutcome::Rejected => "rejected",
        DecisionOutcome::Expired => "expired",
        DecisionOutcome::Withdrawn => "withdrawn",
    }
}
