//! Deciding about plans that teammates have submitted.

use super::super::cursor::Cursor;
use super::super::intent::Intent;
use super::super::lexicon::FILLER;
use super::super::scope::{Scope, name_of, owner};
use super::Parsed;

const APPROVE: &[&str] = &["approve", "accept", "approve of", "agree to"];
const REJECT: &[&str] = &["reject", "decline", "refuse", "disapprove", "turn down"];

/// Before what is to be changed.
const BECAUSE: &[&str] =
    &[":", ", :", "because", "since", "with the feedback", "with feedback", "saying"];

/// "Approve the plan of alice", "reject alice's plan: name the file", "approve the plan"
pub(super) fn review<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (approve, object) = match (at.after(APPROVE), at.after(REJECT)) {
        (Some(object), _) => (true, object),
        (None, Some(object)) => (false, object),
        (None, None) => return None,
    };
    let (whose, rest) = plan_of(object)?;
    let feedback =
        rest.past(&["please", "now", ","]).after(BECAUSE).map(|text| text.past(&[":", "that"]));
    let (feedback, rest) = match feedback {
        Some(text) => (Some(spoken(text)), text.skip(text.len())),
        None => (None, rest.past(FILLER)),
    };
    let feedback = feedback.filter(|text| !text.is_empty());
    let is_meant = |from: &String| whose.as_ref().is_none_or(|whose| whose == from);
    let found = scope.plans.iter().rev().find(|(from, _)| is_meant(from));
    let intent = match found.cloned() {
        Some((_, request_id)) => Intent::Review { request_id, approve, feedback },
        None => {
            let whose = whose.as_deref().unwrap_or("anybody");
            Intent::Unable(format!("no plan of {whose} was submitted to me"))
        }
    };
    Some(Parsed { intents: vec![intent], rest })
}

/// "alice's plan", "the plan of alice", "the plan"
fn plan_of(at: Cursor<'_>) -> Option<(Option<String>, Cursor<'_>)> {
    if let Some(rest) = at.skip(1).after(&["plan"]) {
        let word = at.word().replace('\u{2019}', "'");
        if let Some(name) = owner(&word) {
            return Some((Some(name.to_owned()), rest));
        }
    }
    let rest = at.after(&["the plan", "plan", "this plan", "that plan", "her plan", "his plan"])?;
    let named = rest.after(&["of", "by", "from"]);
    let name = named.and_then(Cursor::first).and_then(name_of);
    match (named, name) {
        (Some(named), Some(name)) => Some((Some(name), named.skip(1))),
        (Some(_), None) => None,
        (None, _) => Some((None, rest)),
    }
}

/// Words as they were written, without the quotes around all of them.
fn spoken(at: Cursor<'_>) -> String {
    match (at.len(), at.first()) {
        (1, Some(token)) => token.text.clone(),
        _ => at.text().to_owned(),
    }
}
