//! Compares the transcripts of a record with those of its replay, entry by entry. What must differ is masked or left out.

use super::masks::Names;
use crate::agent::without_older_mail;
use crate::store::replay::each_entry;
use crate::store::{StoreError, TeamDir};
use crate::tools::without_next_step;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value, json};

/// The number of characters of an entry that a difference shows.
const SHOWN_CHARS: usize = 160;

/// The number of characters before the first differing one that a difference shows.
const SHOWN_BEFORE: usize = 40;

/// The fields of a message that belong to one run.
const OF_ONE_RUN: [&str; 9] =
    ["id", "timestamp", "ts", "seal", "request_id", "requestId", "incarnation", "deadline", "pid"];

/// A part of the record that is compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The time in the record from which on the team ends.
    pub(super) end: WallTime,
    /// Whether the entries from `end` on count, in any order: the team has ended in the record as it does here.
    pub(super) has_tail: bool,
    /// The time from which on the entries belong to the next part.
    pub(super) next: WallTime,
}

/// The comparison of one member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Compared {
    pub(crate) name: AgentName,
    /// The number of entries that are alike, up to the first difference.
    pub(crate) alike: usize,
    pub(crate) difference: Option<Difference>,
}

/// The first difference of a member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// The number of the entry in the record, from 1.
    pub(crate) entry: usize,
    /// The number of the turn, from 1.
    pub(crate) turn: usize,
    /// The time of the entry in the record.
    pub(crate) at: WallTime,
    /// The recorded entry; `None` if the record has ended.
    pub(crate) recorded: Option<String>,
    pub(crate) new: Option<String>,
}

/// An entry that counts, in words that can be compared.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    /// The number of its line.
    number: usize,
    turn: usize,
    at: WallTime,
    text: String,
}

/// Compares the transcripts of a member. With `has_notes`, notes of the program count; tools that do not run leave no
/// notes about files.
pub(super) fn compare(
    (record, of_record): (&TeamDir, &Names),
    (new, of_new): (&TeamDir, &Names),
    name: &AgentName,
    extents: &[Extent],
    has_notes: bool,
) -> Result<Compared, StoreError> {
    let recorded = steps(record, name, of_record, has_notes)?;
    let new = steps(new, name, of_new, has_notes)?;
    let (alike, difference) = first_difference(&recorded, &new, extents);
    Ok(Compared { name: name.clone(), alike, difference })
}

/// Returns the number of steps that are alike, and the first difference.
fn first_difference(
    all: &[Step],
    mut new: &[Step],
    extents: &[Extent],
) -> (usize, Option<Difference>) {
    let (mut alike, mut rest) = (0, all);
    for (number, extent) in extents.iter().enumerate() {
        let is_last = number + 1 == extents.len();
        let count = |time: WallTime| rest.iter().take_while(|step| step.at < time).count();
        let (part, after) = rest.split_at(count(extent.next));
        let (ordered, tail) = part.split_at(part.len().min(count(extent.end)));
        let pairs = ordered.iter().zip(new).take_while(|(old, new)| old.text == new.text);
        let same = pairs.count();
        alike += same;
        if let Some(old) = ordered.get(same) {
            return (alike, Some(difference(Some(old), new.get(same), all)));
        }
        let left = new.get(same..).unwrap_or_default();
        let left = if is_last { left } else { left.get(..tail.len()).unwrap_or(left) };
        if extent.has_tail {
            let (same, difference) = difference_of_tails(tail, left, all);
            alike += same;
            if difference.is_some() {
                return (alike, difference);
            }
        }
        (new, rest) = (new.get(same + left.len()..).unwrap_or_default(), after);
    }
    (alike, None)
}

/// Compares the ends of two teams, whose order does not count.
fn difference_of_tails(tail: &[Step], new: &[Step], all: &[Step]) -> (usize, Option<Difference>) {
    let mut left: Vec<&Step> = new.iter().collect();
    for (count, old) in tail.iter().enumerate() {
        match left.iter().position(|step| step.text == old.text) {
            Some(at) => drop(left.remove(at)),
            None => return (count, Some(difference(Some(old), left.first().copied(), all))),
        }
    }
    (tail.len(), left.first().map(|step| difference(None, Some(step), all)))
}

fn difference(old: Option<&Step>, new: Option<&Step>, recorded: &[Step]) -> Difference {
    let place = old.or(recorded.last());
    let text = |step: &Step| step.text.clone();
    let (old_text, new_text) = (old.map(text), new.map(text));
    let first = match (&old_text, &new_text) {
        (Some(old), Some(new)) => old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    Difference {
        entry: place.map_or(1, |step| step.number),
        turn: place.map_or(1, |step| step.turn),
        at: place.map_or_else(WallTime::default, |step| step.at),
        recorded: old_text.map(|text| cut(&text, first)),
        new: new_text.map(|text| cut(&text, first)),
    }
}

/// Returns the part of a text around its character number `first`.
fn cut(text: &str, first: usize) -> String {
    let begin = if first > SHOWN_CHARS - SHOWN_BEFORE { first - SHOWN_BEFORE } else { 0 };
    let mut shown = String::new();
    if begin > 0 {
        // The kind of the entry stays visible.
        shown.extend(text.split(' ').next());
        shown.push_str(" …");
    }
    shown.extend(text.chars().skip(begin).take(SHOWN_CHARS));
    if text.chars().count() > begin + SHOWN_CHARS {
        shown.push('…');
    }
    shown
}

fn steps(
    team: &TeamDir,
    name: &AgentName,
    names: &Names,
    has_notes: bool,
) -> Result<Vec<Step>, StoreError> {
    let (mut found, mut number, mut turn) = (Vec::new(), 0, 1);
    each_entry(team, name, |Line { at, entry }| {
        number += 1;
        let is_end = matches!(entry, Entry::TurnEnd { .. });
        if let Some(text) = words_of(&entry, names, has_notes) {
            found.push(Step { number, turn, at, text });
        }
        turn += usize::from(is_end);
    })?;
    Ok(found)
}

/// Returns an entry in words that are the same in each run; `None` if it does not count.
fn words_of(entry: &Entry, names: &Names, has_notes: bool) -> Option<String> {
    let (kind, value) = match entry {
        Entry::User { content } => ("user", json!(content)),
        Entry::Mail { message, verified, .. } => {
            // Other mail may be sealed before its recipient has the key; that depends on the moment of a start.
            let needs_seal = Message::read(message).is_ok_and(|it| it.body.needs_seal());
            let is_void = needs_seal && !verified;
            ("mail", json!([of_message(message), if is_void { "unverified" } else { "verified" }]))
        }
        Entry::Assistant { blocks, stop_reason, usage, .. } => {
            ("assistant", json!([blocks, stop_reason, usage]))
        }
        Entry::ToolStart { tool_use_id, name } => ("tool_start", json!([name, tool_use_id])),
        Entry::ToolResult { tool_use_id, content, is_error, file, .. } => {
            let path = file.as_ref().map(|file| file.path.clone());
            // A replay has no small model.
            let content = without_next_step(content);
            ("tool_result", json!([content, is_error, path, tool_use_id]))
        }
        Entry::Request { question, decider, .. } => {
            ("request", json!([question.tool, question.description, decider]))
        }
        Entry::Decision(decision) => {
            ("decision", json!([decision.outcome, decision.scope, decision.reason]))
        }
        Entry::Interrupt { by, outcome, .. } => ("interrupt", json!([by, outcome])),
        Entry::Note { content } if has_notes => ("note", json!(without_older_mail(content)?)),
        Entry::Instructions { file, content } if has_notes => {
            ("instructions", json!([file, content]))
        }
        Entry::Compacted { summary, .. } => ("compacted", json!(summary)),
        Entry::TurnEnd { outcome, rounds, report, cut_off } => {
            let report = report.as_ref().map(|report| &report.text);
            ("turn_end", json!([outcome, rounds, report, cut_off]))
        }
        // A process, the choice of a model and what fits its context belong to one run.
        Entry::Session { .. }
        | Entry::Model { .. }
        | Entry::Subagent(_)
        | Entry::Note { .. }
        | Entry::Instructions { .. }
        | Entry::ResultsLeftOut { .. }
        | Entry::HandedOut { .. }
        | Entry::Unknown => return None,
    };
    Some(names.mask(&format!("{kind} {value}")))
}

fn of_message(message: &Map<String, Value>) -> Map<String, Value> {
    let mut message = message.clone();
    message.retain(|key, _| !OF_ONE_RUN.contains(&key.as_str()));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(texts: &[&str]) -> Vec<Step> {
        let step = |(number, text): (u32, &&str)| Step {
            number: number as usize + 1,
            turn: 1,
            at: time(number),
            text: (*text).to_owned(),
        };
        (0..).zip(texts).map(step).collect()
    }

    /// Compares steps that are a second apart, of which the last in the record are the end of the team.
    fn compared(
        old: &[&str],
        new: &[&str],
        before_end: u32,
        has_tail: bool,
    ) -> (usize, Option<usize>) {
        let extent = Extent { end: time(before_end), has_tail, next: time(u32::MAX) };
        let (alike, found) = first_difference(&steps(old), &steps(new), &[extent]);
        (alike, found.map(|found| found.entry))
    }

    fn time(seconds: u32) -> WallTime {
        WallTime::from_secs(seconds.into())
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(compared(&["a", "b"], &["a", "b"], 2, true), (2, None));
        assert_eq!(compared(&["a", "b", "c"], &["a", "x", "c"], 3, true), (1, Some(2)));
        assert_eq!(compared(&["a", "b"], &["a"], 2, true), (1, Some(2)), "one is missing");
        assert_eq!(compared(&["a"], &["a", "b"], 1, true), (1, Some(1)), "one is too many");
        assert_eq!(compared(&["a"], &["a", "b"], 1, false), (1, None), "it comes after the end");
    }

    #[test]
    fn the_order_of_the_end_does_not_count() {
        assert_eq!(compared(&["a", "b", "c"], &["a", "c", "b"], 1, true), (3, None));
        assert_eq!(compared(&["a", "b", "c"], &["a", "c", "d"], 1, true), (1, Some(2)));
    }

    #[test]
    fn each_run_of_the_lead_has_an_end_of_its_own() {
        let old = steps(&["a", "b", "c", "d", "e"]);
        let first = Extent { end: time(1), has_tail: true, next: time(3) };
        let last = Extent { end: time(4), has_tail: true, next: time(u32::MAX) };
        let compared = |new: &[&str]| {
            let (alike, found) = first_difference(&old, &steps(new), &[first, last]);
            (alike, found.map(|found| found.entry))
        };
        assert_eq!(compared(&["a", "b", "c", "d", "e"]), (5, None));
        assert_eq!(compared(&["a", "c", "b", "d", "e"]), (5, None), "the end has no order");
        assert_eq!(compared(&["a", "b", "d", "c", "e"]), (2, Some(3)), "the run is over");
        assert_eq!(compared(&["a", "b", "c", "d", "e", "f"]), (5, Some(5)));
    }

    #[test]
    fn a_seal_counts_only_for_mail_that_needs_one() {
        let words = |kind: &str, verified: bool| {
            let message = json!({ "type": kind, "from": "lead", "content": "", "request_id": "r" });
            let Value::Object(message) = message else { unreachable!() };
            let entry = Entry::Mail { claim: "1-a".into(), offset: 0, message, verified };
            words_of(&entry, &Names::default(), true)
        };
        assert_eq!(words("message", true), words("message", false));
        assert_ne!(words("shutdown_request", true), words("shutdown_request", false));
    }

    #[test]
    fn a_long_text_is_cut_around_the_difference() {
        let text = format!("mail {}END", "x".repeat(500));
        let shown = cut(&text, 505);
        assert!(shown.starts_with("mail …x") && shown.ends_with("END"), "{shown}");
        assert!(cut(&text, 0).ends_with('…'));
        assert_eq!(cut("short", 3), "short");
    }
}
