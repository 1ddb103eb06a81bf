//! The shared task list.

use super::super::cursor::Cursor;
use super::super::intent::{Intent, TaskChange};
use super::super::lexer::Kind;
use super::super::lexicon::{ARTICLE, FILLER, LOOK, QUESTION, TASK_NOUN};
use super::super::scope::{Party, Scope};
use super::{Parsed, depends, wording};

const NEW: &[&str] =
    &["create", "add", "make", "open", "new", "file", "put", "set up", "define", "write"];
const CLAIM: &[&str] = &["claim", "take", "pick up", "grab", "take on", "take over", "start"];
const COMPLETE: &[&str] = &["complete", "finish", "close", "resolve"];
const GIVE: &[&str] = &["assign", "give", "hand", "hand over", "delegate"];
const ENTITLED: &[&str] = &[
    "called",
    "named",
    "titled",
    "with the title",
    "with the subject",
    "with subject",
    "saying",
    "that says",
    "about",
    ":",
];
const FIRST: &[&str] = &[
    "after",
    "blocked by",
    "which depends on",
    "that depends on",
    "depending on",
    "dependent on",
    "which waits for",
    "that is blocked by",
    "which is blocked by",
];

/// "Create a task … for bob", "claim task 3", "mark task 4 as failed", "show the tasks"
pub(super) fn tasks<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let again = at.after(COMPLETE).or_else(|| at.after(CLAIM)).is_some_and(|at| at.word() == "it");
    if !at.has(TASK_NOUN) && !again {
        return None;
    }
    let intents = created(at, scope).or_else(|| changed(at, scope)).or_else(|| shown(at))?;
    if let Some(Intent::Task { id, .. }) = intents.last() {
        scope.task = Some(id.clone());
    }
    Some(Parsed { intents, rest: at.skip(at.len()) })
}

fn created(at: Cursor<'_>, scope: &Scope) -> Option<Vec<Intent>> {
    let object = at.after(NEW)?.past(ARTICLE);
    let direct = object.after(TASK_NOUN);
    let words = match direct {
        Some(words) => words,
        None => object.up_to(object.places().find(|at| at.after(&["to the", "to our"]).is_some())?),
    };
    let behind = object.skip(if direct.is_some() { object.len() } else { words.len() });
    let early = owner_at(words, scope);
    let words = early.as_ref().map_or(words, |(_, rest)| *rest);
    let order = words.after(&["to"]).filter(|_| direct.is_some());
    let words = order.unwrap_or_else(|| words.past(ENTITLED));
    let first = words.places().find(|at| at.after(FIRST).is_some());
    let given = |place| Some((place, owner_at(place, scope)?.0));
    let late = behind.places().chain(words.places()).find_map(given);
    let ends = [first, late.as_ref().map(|(place, _)| *place)];
    let words = ends.into_iter().flatten().fold(words, Cursor::up_to);
    let subject = match words.first() {
        Some(quote) if quote.kind == Kind::Quoted && words.skip(1).past(FILLER).is_empty() => {
            quote.text.clone()
        }
        Some(_) if order.is_some() => wording::imperative(words, scope, &[]),
        Some(_) => words.text().to_owned(),
        None => return None,
    };
    let after = first.map(ids).unwrap_or_default();
    let owner = early.map(|(name, _)| name).or(late.map(|(_, name)| name));
    Some(vec![Intent::CreateTask { subject, after, owner }])
}

/// "for bob", when nothing but an order or a title follows.
fn owner_at<'a>(at: Cursor<'a>, scope: &Scope) -> Option<(String, Cursor<'a>)> {
    let (Party::Names(names), rest) = scope.party(at.after(&["for"])?)? else { return None };
    let follows = rest.past(FILLER).is_empty()
        || rest.after(&["to"]).is_some()
        || rest.after(ENTITLED).is_some()
        || rest.after(FIRST).is_some()
        || rest.is(Kind::Quoted);
    Some((names.into_iter().next().filter(|_| follows)?, rest))
}

fn changed(at: Cursor<'_>, scope: &Scope) -> Option<Vec<Intent>> {
    let mut ids = ids(at);
    if ids.is_empty() && at.has(&["it"]) {
        ids.extend(scope.task.clone());
    }
    let done = at.has(&["done", "complete", "completed", "finished"]);
    if depends(at) {
        return None;
    }
    let change = if let Some(object) = at.after(GIVE) {
        let to = object.places().find_map(|at| at.after(&["to"]));
        let Party::Names(names) = scope.party(to.unwrap_or(object))?.0 else { return None };
        TaskChange::Assign(names.into_iter().next()?)
    } else if at.after(COMPLETE).is_some() || (at.after(&["mark", "set"]).is_some() && done) {
        TaskChange::Complete
    } else if at.after(CLAIM).is_some() {
        TaskChange::Claim
    } else if at.after(&["cancel", "drop"]).is_some() || at.has(&["cancelled", "canceled"]) {
        TaskChange::Status("cancelled")
    } else if at.after(&["fail"]).is_some() || at.has(&["failed"]) {
        TaskChange::Status("failed")
    } else if at.after(&["reopen"]).is_some() || at.has(&["pending"]) {
        TaskChange::Status("pending")
    } else if at.after(&["mark", "set"]).is_some() && at.has(&["progress", "started"]) {
        TaskChange::Status("in_progress")
    } else if at.after(LOOK).is_some() || at.after(QUESTION).is_some() {
        TaskChange::Show
    } else {
        return None;
    };
    let change = |id| Intent::Task { id, change: change.clone() };
    (!ids.is_empty()).then(|| ids.into_iter().map(change).collect())
}

fn shown(at: Cursor<'_>) -> Option<Vec<Intent>> {
    let asks = at.after(LOOK).is_some() || at.after(QUESTION).is_some();
    let bare = at.after(TASK_NOUN).is_some_and(Cursor::is_empty);
    (asks || bare).then(|| vec![Intent::ListTasks])
}

/// The numbers of the tasks named.
fn ids(at: Cursor<'_>) -> Vec<String> {
    let number = |word: &str| {
        let digits = word.trim_start_matches('#');
        let all = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        all.then(|| digits.to_owned())
    };
    at.tokens().iter().filter_map(|token| number(&token.low)).collect()
}
