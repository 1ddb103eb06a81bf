//! `team requests`, `team approve`, `team deny`: what waits for a decision, read from the files alone,
//! and the person's answer from another shell.
//!
//! The answer goes to the lead, in the person's name, and the lead's program passes it on: a member acts
//! only on what its lead decides.

use super::args::{ApproveArgs, DenyArgs, Show};
use super::build_agent::block_on;
use super::context::{Context, store_failure};
use super::out;
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::store::transcript::{OpenQuestion, decision, open_questions};
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::ui::sanitize::one_line;
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation, Scope};
use crate::wire::permission::{Decision, DecisionOutcome, QuestionKind};
use serde_json::{Value, json};
use std::time::Duration;

/// How long the lead may take to pass an answer on.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often the files are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

struct Waiting {
    owner: AgentName,
    life: Liveness,
    open: OpenQuestion,
}

pub(super) fn list(context: &Context, show: &Show) -> Result<Exit, Failure> {
    let found = find(&context.seen_team()?)?;
    let printed = if show.json {
        let requests: Vec<Value> = found.iter().map(as_json).collect();
        out::say_json(&json!({ "schema": 1, "requests": requests }))
    } else if found.is_empty() {
        out::say("nothing waits for a decision")
    } else {
        let lines: Vec<String> = found.iter().map(as_line).collect();
        out::say(&lines.join("\n"))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

fn find(team: &TeamDir) -> Result<Vec<Waiting>, Failure> {
    let roster = roster::read(team).map_err(store_failure)?;
    let members = roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok());
    let mut found = Vec::new();
    for owner in std::iter::once(AgentName::lead()).chain(members) {
        let life = liveness::probe(team, &owner).unwrap_or(Liveness::Dead);
        for open in open_questions(team, &owner).map_err(store_failure)? {
            found.push(Waiting { owner: owner.clone(), life: life.clone(), open });
        }
    }
    Ok(found)
}

fn as_json(waiting: &Waiting) -> Value {
    let question = &waiting.open.question;
    json!({
        "request_id": question.request_id,
        "from": waiting.owner.as_str(),
        "kind": question.about.word(),
        "tool": question.tool,
        "input": question.input,
        "description": question.description,
        "decider": waiting.open.decider,
        "deadline": waiting.open.deadline,
        "waiting": waiting.life.is_alive(),
    })
}

fn as_line(waiting: &Waiting) -> String {
    let question = &waiting.open.question;
    let left = waiting.open.deadline.since(SystemClock.now());
    let state = match (waiting.life.is_alive(), waiting.open.decider.as_str()) {
        (false, _) => "not running; asks again when it is".to_owned(),
        (true, "user") if !waiting.owner.is_lead() => "on its own terminal".to_owned(),
        (true, _) => format!("{} s left", left.as_secs()),
    };
    let what = one_line(&question.description, 100);
    let (id, tool) = (one_line(&question.request_id, 200), one_line(&question.tool, 40));
    let id = if id.contains(' ') { format!("'{id}'") } else { id };
    format!("{id}  {} asks ({}) {tool}: {what}  ({state})", waiting.owner, question.about.word())
}

pub(super) fn approve(context: &Context, args: ApproveArgs) -> Result<Exit, Failure> {
    let scope = if args.always { Scope::Always } else { Scope::Once };
    answer(context, "approve", &args.id, Answer::Approve(scope), args.reason, &args.show)
}

pub(super) fn deny(context: &Context, args: DenyArgs) -> Result<Exit, Failure> {
    answer(context, "deny", &args.id, Answer::Deny, args.reason, &args.show)
}

/// What a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Approve(Scope),
    Deny,
}

fn answer(
    context: &Context,
    verb: &str,
    id: &str,
    answer: Answer,
    reason: Option<String>,
    show: &Show,
) -> Result<Exit, Failure> {
    context.refuse_inside(verb)?;
    let bus = context.bus(context.team()?)?;
    let outcome = block_on(decide(&bus, id, answer, reason))??;
    let printed = if show.json {
        out::say_json(&json!({ "schema": 1, "request_id": id, "outcome": outcome }))
    } else {
        out::say(&format!("{id} {outcome}"))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// Answers an open question in the person's name and waits until that is written down; gives the outcome
/// in a word.
pub(super) async fn decide(
    bus: &Bus,
    id: &str,
    answer: Answer,
    reason: Option<String>,
) -> Result<&'static str, Failure> {
    let team = bus.dir();
    let waiting = addressed(team, id)?;
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
    let body = match waiting.open.question.about {
        QuestionKind::Permission => {
            Body::PermissionResponse { approve, scope, reason, updated_input: None }
        }
        QuestionKind::Plan => Body::PlanApprovalResponse { approve, feedback: reason, mode: None },
        QuestionKind::Sandbox => Body::SandboxPermissionResponse { approve, scope, reason },
    };
    let correlation = Correlation { request_id: id.into(), incarnation: lead_life };
    bus.control(&AgentName::user(), &lead, body, correlation).map_err(|why| {
        Failure::new(Exit::Failure, format!("{id} was not answered"), why.to_string(), why.hint())
    })?;
    judged(id, answer, decided(team, &waiting).await)
}

/// The open question of that id, if it can be answered from here.
fn addressed(team: &TeamDir, id: &str) -> Result<Waiting, Failure> {
    let hint = "`team requests` lists what waits";
    let refuse =
        |why: String| Failure::new(Exit::Failure, format!("{id:?} cannot be answered"), why, hint);
    let found = find(team)?.into_iter().find(|it| it.open.question.request_id == id);
    let waiting = found.ok_or_else(|| refuse("no request of that id is open".into()))?;
    let owner = &waiting.owner;
    if !waiting.life.is_alive() {
        return Err(refuse(format!("{owner} is not running; it asks again when it is")));
    }
    if waiting.open.decider == "user" && !owner.is_lead() {
        return Err(refuse(format!("{owner} asks on its own terminal; answer there")));
    }
    Ok(waiting)
}

/// Waits until the one who asked has written down a decision.
async fn decided(team: &TeamDir, waiting: &Waiting) -> Option<Decision> {
    let id = &waiting.open.question.request_id;
    let give_up = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < give_up {
        let open = open_questions(team, &waiting.owner).unwrap_or_default();
        if !open.iter().any(|open| open.question.request_id == *id) {
            return decision(team, &waiting.owner, id).ok().flatten();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

fn judged(id: &str, answer: Answer, decided: Option<Decision>) -> Result<&'static str, Failure> {
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
