//! The answers of the person in the record.

use super::moved::{moved_folder, replace_in};
use crate::protocol::request::RequestVerdict;
use crate::store::replay::each_entry;
use crate::store::{StoreError, TeamDir};
use crate::tools::approval_decision::ApprovalDecision;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::permission::{Decision, DecisionOutcome};
use crate::wire::replay::ReplayPlan;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde_json::Value;
use std::collections::BTreeSet;

/// An answer of the person to a question of an agent.
#[derive(Debug, Clone)]
pub(super) struct RecordedAnswer {
    pub(super) at: WallTime,
    /// The id of the question. It is the same in each run, since it is made from the id of the call.
    pub(super) id: String,
    pub(super) owner: AgentName,
    pub(super) decision: ApprovalDecision,
}

/// Reads the answers that the play of `team` has, in the order of their times.
pub(super) fn recorded_answers(
    record: &TeamDir,
    agents: &[AgentName],
    plan: &ReplayPlan,
    team: &TeamDir,
) -> Result<Vec<RecordedAnswer>, StoreError> {
    let (mut answers, mut of_model) = (Vec::new(), BTreeSet::new());
    for owner in agents {
        each_entry(record, owner, |Line { at, entry }| {
            if let Entry::Assistant { blocks, .. } = &entry {
                of_model.extend(blocks.iter().filter_map(decided_by));
            }
            let found = if owner.is_lead() { own_answer(&entry, at) } else { sent_answer(&entry) };
            let found = found.filter(|(at, ..)| plan.has(*at));
            answers.extend(found.map(|(at, id, decision)| {
                let owner = owner.clone();
                RecordedAnswer { at, id, owner, decision }
            }));
        })?;
    }
    // The lead's model decides again by its recorded call.
    answers.retain(|answer| !of_model.contains(&answer.id));
    answers.sort_by(|one, other| one.at.as_secs().total_cmp(&other.at.as_secs()));
    if let Some((old, new)) = moved_folder(plan, team) {
        let changed = answers.iter_mut().filter_map(|it| it.decision.updated_input.as_mut());
        changed.for_each(|input| replace_in(input, &old, &new));
    }
    Ok(answers)
}

/// Returns the question about which a call of the model decides.
fn decided_by(block: &Block) -> Option<String> {
    let Block::ToolUse { input, .. } = block else { return None };
    input.get("request_id").and_then(Value::as_str).map(str::to_owned)
}

/// Returns the answer to a question of the lead itself, which no message carries.
fn own_answer(entry: &Entry, at: WallTime) -> Option<(WallTime, String, ApprovalDecision)> {
    let Entry::Decision(decision) = entry else { return None };
    let Decision { request_id, outcome, by, scope, reason, updated_input, mode } = decision.clone();
    let verdict = RequestVerdict::of(outcome == DecisionOutcome::Approved);
    let decision =
        ApprovalDecision { verdict, scope, rule_scope: None, reason, updated_input, mode };
    (by == AgentName::user().as_str()).then_some((at, request_id, decision))
}

/// Returns the answer to a question of a teammate, which the lead has sent for the person.
fn sent_answer(entry: &Entry) -> Option<(WallTime, String, ApprovalDecision)> {
    let Entry::Mail { message, .. } = entry else { return None };
    let message = Message::read(message).ok()?;
    let (_, decision, of_program) = ApprovalDecision::of_body(&message.body)?;
    let is_of_person = message.from == AgentName::lead().as_str() && of_program.is_none();
    is_of_person.then_some((message.timestamp?, message.request_id?, decision))
}
