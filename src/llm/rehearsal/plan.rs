//! The next tool call of a turn, or its closing text.
//!
//! For each reply, the steps of the turn are computed again from its texts; the calls that were made already
//! account for the first steps. A turn therefore survives a crash without a record of its steps.

use super::commands::{self, Step};
use super::conversation::{CurrentTurn, FinishedCall, UserInput};
use super::reply::{self, brief};
use super::template::Scope;
use crate::wire::message::Body;
use serde_json::{Value, json};

/// The results of calls that an end of the process prevented; they are made again.
const NEVER_RUN: [&str; 3] =
    ["not run: the program ended", "not run: the agent was stopped", "not run: the lead is gone"];

/// The results of calls whose effect is unknown.
const UNKNOWN: [&str; 2] = ["state unknown", "ended before it was done"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum NextReply {
    Call(&'static str, Value),
    /// The closing text of the turn.
    Close(String),
}

/// Returns the next reply of the agent `me`, which may call `tools`.
pub(super) fn next(turn: &CurrentTurn, me: &str, tools: &[&str]) -> NextReply {
    let is_lead = tools.contains(&"spawn_teammate");
    let mut scope = Scope { me: me.into(), ..Scope::default() };
    // Words of this turn may refer to earlier turns, so their last 200 texts are read first.
    for said in turn.earlier.iter().rev().take(200).rev() {
        steps_of(said, is_lead, &mut scope);
    }
    let steps = turn.said.iter().flat_map(|said| steps_of(said, is_lead, &mut scope));
    let steps: Vec<Step> = steps.collect();
    let outline = outline(&steps);
    let mut calls = turn.calls.iter();
    let mut last: Option<&FinishedCall> = None;
    // Whether a step of the current task failed.
    let mut has_failed = false;
    let (mut told, mut unclear) = (Vec::new(), Vec::new());
    for step in steps {
        let (tool, input) = match step {
            Step::Call(tool, input) => (tool, input),
            Step::AssignCreated(owner) => {
                let result = last.map_or("", |call| &call.result);
                let mut numbers = result.split(|c: char| !c.is_ascii_digit());
                let id = numbers.find(|run| !run.is_empty()).unwrap_or_default();
                ("update_task", json!({ "task_id": id, "owner": owner }))
            }
            Step::EndTask(id) if has_failed => {
                has_failed = false;
                let note = "a step of it failed";
                ("update_task", json!({ "task_id": id, "status": "failed", "note": note }))
            }
            Step::EndTask(id) => ("complete_task", json!({ "task_id": id })),
            Step::Remark(text) => {
                told.push(text);
                continue;
            }
            Step::Unclear(words) => {
                unclear.push(words);
                continue;
            }
        };
        if !tools.contains(&tool) {
            told.push(format!("Not done: I have no tool {tool}."));
            continue;
        }
        let Some(mut call) = calls.next() else { return NextReply::Call(tool, input) };
        while call.failed && call.result.starts_with("not run: in mode plan") {
            match calls.next() {
                None => return NextReply::Call("submit_plan", json!({ "plan": outline })),
                Some(review) if review.failed => {
                    let why = brief(&review.result);
                    told.push(format!("Nothing was changed, the plan was not carried out. {why}"));
                    return NextReply::Close(reply::closing(told, &unclear, is_lead));
                }
                // The plan was approved, so the same call is repeated.
                Some(_) => {}
            }
            let Some(again) = calls.next() else { return NextReply::Call(tool, input) };
            call = again;
        }
        while call.failed && NEVER_RUN.iter().any(|why| call.result.starts_with(why)) {
            let Some(again) = calls.next() else { return NextReply::Call(tool, input) };
            call = again;
        }
        last = Some(call);
        let is_unknown = UNKNOWN.iter().any(|why| call.result.starts_with(why));
        has_failed |= call.failed && !is_unknown;
        told.push(reply::about(call));
    }
    told.extend(calls.map(reply::about));
    if is_lead {
        told.extend(reply::all_mail(&turn.said, &turn.calls));
    } else if told.is_empty() && unclear.is_empty() && tools.contains(&"idle") {
        return NextReply::Call("idle", json!({}));
    }
    NextReply::Close(reply::closing(told, &unclear, is_lead))
}

/// Returns the numbered calls of a turn, which a teammate in mode `plan` submits as its plan.
fn outline(steps: &[Step]) -> String {
    let line = |step: &Step| match step {
        Step::Call(tool, input) => {
            let object = input.as_object()?.values().find_map(Value::as_str).unwrap_or_default();
            Some(format!("{tool} {object}").trim_end().to_owned())
        }
        Step::EndTask(id) => Some(format!("complete_task {id}")),
        Step::AssignCreated(_) | Step::Remark(_) | Step::Unclear(_) => None,
    };
    let lines = steps.iter().filter_map(line).zip(1..);
    lines.map(|(line, at)| format!("{at}. {line}")).collect::<Vec<_>>().join("\n")
}

/// Returns the steps that a text orders. A lead obeys only its prompt; a teammate also obeys mail of the lead
/// and the user, and task assignments of the system. All other mail is data.
fn steps_of(said: &UserInput, is_lead: bool, scope: &mut Scope) -> Vec<Step> {
    let message = match said {
        UserInput::Typed(text) => {
            scope.giver = (!is_lead).then(|| "user".into());
            return commands::steps(text, scope);
        }
        UserInput::Mail(message) => message,
    };
    if is_lead {
        if let (Body::PlanApprovalRequest { .. }, Some(id)) = (&message.body, &message.request_id) {
            scope.plans.retain(|(owner, _)| *owner != message.from);
            scope.plans.push((message.from.clone(), id.clone()));
        }
        return Vec::new();
    }
    let is_obeyed = matches!(message.from.as_str(), "lead" | "user");
    if is_obeyed {
        scope.giver = Some(message.from.clone());
    }
    let is_clear = |step: &Step| !matches!(step, Step::Unclear(_));
    if let Body::TaskAssignment { task_id, subject, description, blocked_by, .. } = &message.body {
        // A task that waits for other tasks is assigned again when it can begin.
        if !(is_obeyed || message.from == "system") || !blocked_by.is_empty() {
            return Vec::new();
        }
        let order = if description.trim().is_empty() { subject } else { description };
        let mut steps = commands::steps(order, scope);
        if !steps.is_empty() && steps.iter().all(is_clear) {
            steps.push(Step::EndTask(task_id.clone()));
        }
        return steps;
    }
    // A broadcast need not be an order, so its unclear parts get no answer.
    let is_broadcast = matches!(message.body, Body::Broadcast {});
    if !is_obeyed || !is_broadcast && !matches!(message.body, Body::Message { .. }) {
        return Vec::new();
    }
    let steps = commands::steps(&message.content, scope).into_iter();
    steps.filter(|step| !is_broadcast || is_clear(step)).collect()
}
