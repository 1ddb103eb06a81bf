//! The part of the record that one member plays again: its replies, and what is delivered to it between two of them.
//!
//! Pure: it is made from the lines of a transcript, and asked by the [`Place`] that the new transcript has reached.

use super::delivery::{Delivered, Delivery};
use super::place::Place;
use crate::agent::conversation::break_cause;
use crate::wire::WallTime;
use crate::wire::chat::{Reply, Usage};
use crate::wire::limits::RESTART_FIRST_PAUSE;
use crate::wire::message::Outcome;
use crate::wire::transcript::{Entry, Line};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A recorded call of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedCall {
    pub(super) at: WallTime,
    /// The time of the entry before it.
    pub(super) asked_at: WallTime,
    pub(super) answer: Answer,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Reply(Reply),
    Summary(String, Usage),
}

/// A tool call of the record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedTool {
    pub(super) started_at: WallTime,
    /// The process that it started in, from 1.
    session: usize,
    /// The result and its time; `None` if the record ends before it, or the call was cut short.
    pub(super) result: Option<(WallTime, Entry)>,
}

impl RecordedTool {
    /// Takes the result. A call that was cut short, also by the end of its process, has none of its own.
    fn end(&mut self, at: WallTime, result: Entry, session: usize) {
        if self.session == session && break_cause(&result).is_none() {
            self.result = Some((at, result));
        }
    }
}

/// The end of a process that was not asked to end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Crash {
    /// The place that it had reached.
    place: Place,
    /// Whether it came after the end of a turn, but before the member told that it is idle.
    pub(super) is_before_rest: bool,
    /// The time of the last entry before it.
    last_at: WallTime,
    /// The time of the next process.
    pub(super) came_back_at: WallTime,
}

impl Crash {
    /// Returns about the time of the crash: the next process comes after a pause.
    pub(super) fn crashed_at(&self) -> WallTime {
        let pause = RESTART_FIRST_PAUSE.as_secs_f64();
        let before_pause = WallTime::from_secs(self.came_back_at.as_secs() - pause);
        if before_pause < self.last_at { self.last_at } else { before_pause }
    }
}

/// The deliveries and ends of turns between two replies.
#[derive(Debug, Default)]
struct Segment {
    /// The processes up to here.
    sessions: usize,
    deliveries: Vec<Delivery>,
    turn_ends: Vec<TurnEnd>,
}

impl Segment {
    /// Notes that the deliveries since the last result have come before another call of the same reply.
    fn begin_call(
        &mut self,
        results: usize,
        last_result: Option<&(String, WallTime)>,
        reply_at: WallTime,
    ) {
        let since = self.deliveries.iter_mut().filter(|it| it.after.results == results);
        for delivery in since.filter(|it| it.after.turn_ends == 0) {
            if let Some((call, at)) = last_result {
                delivery.after_call = Some(call.clone());
                delivery.ordered_at = *at;
            } else {
                (delivery.is_ahead, delivery.ordered_at) = (true, reply_at);
            }
        }
    }
}

/// The end of a turn.
#[derive(Debug, Clone, Copy)]
struct TurnEnd {
    outcome: Outcome,
    /// The process that it was in, from 1.
    session: usize,
}

#[derive(Debug, Default)]
pub(super) struct Script {
    calls: Vec<RecordedCall>,
    /// The segment before each call, and the one after the last.
    segments: Vec<Segment>,
    tools: BTreeMap<String, RecordedTool>,
    crashes: Vec<Crash>,
    /// The messages that are delivered after this play, by the next process.
    later: Vec<Map<String, Value>>,
}

impl Script {
    /// Makes the script from the lines of a transcript, of which the play `has` a part. `rests` are the times at which the
    /// member told that it is idle; the lead, which tells it nobody, has none and rests after each turn.
    pub(super) fn new(
        lines: impl Iterator<Item = Line>,
        has: impl Fn(WallTime) -> bool,
        rests: Option<&[WallTime]>,
    ) -> Self {
        let mut script = Self { segments: vec![Segment::default()], ..Self::default() };
        let mut place = Place::default();
        let mut last_at = WallTime::default();
        let mut turn_ended_at = None;
        let mut was_asked_to_end = false;
        let mut is_asking = false;
        let mut reply_at = WallTime::default();
        let mut last_result: Option<(String, WallTime)> = None;
        for Line { at, entry } in lines {
            if !has(at) {
                if let Entry::Mail { message, .. } = entry {
                    script.later.push(message);
                }
                continue;
            }
            let before = place;
            place.pass(&entry);
            let segment = script.segments.last_mut();
            let comes_at_rest = turn_ended_at.is_some_and(|ended: WallTime| {
                rests.is_none_or(|rests| rests.iter().any(|rest| *rest >= ended && *rest <= at))
            });
            let delivery = |what| Delivery {
                at,
                ordered_at: at,
                what,
                after: before,
                comes_at_rest,
                after_call: None,
                is_ahead: false,
            };
            match entry {
                Entry::Assistant { blocks, stop_reason, usage, model } => {
                    let reply = Reply { blocks, stop_reason, usage, model };
                    script.add_call(at, last_at, Answer::Reply(reply));
                    (turn_ended_at, last_result, reply_at) = (None, None, at);
                }
                Entry::Compacted { summary, usage, .. } => {
                    script.add_call(at, last_at, Answer::Summary(summary, usage));
                }
                Entry::Mail { message, verified, .. } => {
                    was_asked_to_end |=
                        message.get("type").is_some_and(|kind| kind == "shutdown_request");
                    script.deliver(delivery(Delivered::Mail { message, verified }));
                }
                Entry::User { content } => {
                    script.deliver(delivery(Delivered::Prompt(content)));
                }
                Entry::TurnEnd { outcome, .. } => {
                    if let Some(segment) = segment {
                        segment.turn_ends.push(TurnEnd { outcome, session: place.sessions });
                    }
                    turn_ended_at = Some(at);
                }
                Entry::ToolStart { tool_use_id, .. } => {
                    // Mail since a question about the call has come while the member waited for the answer.
                    if let Some(segment) = segment.filter(|_| !is_asking) {
                        segment.begin_call(before.results, last_result.as_ref(), reply_at);
                    }
                    let session = place.sessions;
                    let tool = RecordedTool { started_at: at, session, result: None };
                    script.tools.insert(tool_use_id, tool);
                    is_asking = false;
                }
                // A call about which nobody is asked may be denied before it starts.
                Entry::Request { .. } | Entry::Decision(_) => {
                    if let Some(segment) = segment.filter(|_| !is_asking) {
                        segment.begin_call(before.results, last_result.as_ref(), reply_at);
                    }
                    is_asking = true;
                }
                Entry::ToolResult { ref tool_use_id, .. } => {
                    is_asking = false;
                    last_result = Some((tool_use_id.clone(), at));
                    if let Some(tool) = script.tools.get_mut(tool_use_id) {
                        tool.end(at, entry, place.sessions);
                    }
                }
                Entry::Session { .. } => {
                    if let Some(segment) = segment {
                        segment.sessions = place.sessions;
                    }
                    let is_before_rest = turn_ended_at.is_some() && !comes_at_rest;
                    turn_ended_at = None;
                    // The lead that comes back begins another run.
                    if before.sessions > 0 && rests.is_some() && !was_asked_to_end {
                        let (place, came_back_at) = (before, at);
                        script.crashes.push(Crash { place, is_before_rest, last_at, came_back_at });
                    }
                    was_asked_to_end = false;
                }
                Entry::Subagent(_)
                | Entry::Interrupt { .. }
                | Entry::Model { .. }
                | Entry::Note { .. }
                | Entry::Instructions { .. }
                | Entry::ResultsLeftOut { .. }
                | Entry::HandedOut { .. }
                | Entry::Unknown => {}
            }
            last_at = at;
        }
        script
    }

    fn deliver(&mut self, delivery: Delivery) {
        if let Some(segment) = self.segments.last_mut() {
            segment.deliveries.push(delivery);
        }
    }

    fn add_call(&mut self, at: WallTime, asked_at: WallTime, answer: Answer) {
        self.calls.push(RecordedCall { at, asked_at, answer });
        let sessions = self.segments.last().map_or(0, |segment| segment.sessions);
        self.segments.push(Segment { sessions, ..Segment::default() });
    }

    /// Returns the crash of the process at this place, if it had one.
    pub(super) fn crash(&self, place: &Place) -> Option<Crash> {
        self.crashes.iter().find(|crash| crash.place == *place).copied()
    }

    /// Returns the number of processes that the record has until the next reply.
    pub(super) fn sessions_before(&self, place: &Place) -> usize {
        self.segments.get(place.replies).map_or(0, |segment| segment.sessions)
    }

    /// Returns the next call of the model.
    pub(super) fn next_call(&self, place: &Place) -> Option<&RecordedCall> {
        self.calls.get(place.replies)
    }

    /// Returns the outcome of the turn that ends before the next reply, although it has begun.
    pub(super) fn end_without_reply(&self, place: &Place) -> Option<Outcome> {
        let end = self.segments.get(place.replies)?.turn_ends.get(place.turn_ends)?;
        (end.session <= place.sessions).then_some(end.outcome)
    }

    /// Whether nothing comes after this place before `end`, although the mail that was delivered last starts a turn.
    pub(super) fn ends_at(&self, place: &Place, end: WallTime) -> bool {
        let is_last = place.replies == self.calls.len() && self.end_without_reply(place).is_none();
        let Some(segment) = self.segments.get(place.replies).filter(|_| is_last) else {
            return false;
        };
        let (before, after) =
            segment.deliveries.split_at(place.delivered.min(segment.deliveries.len()));
        let mut since_turn = before.iter().filter(|it| it.after.turn_ends == place.turn_ends);
        since_turn.any(Delivery::wakes) && after.iter().all(|it| it.at >= end)
    }

    pub(super) fn tool(&self, id: &str) -> Option<&RecordedTool> {
        self.tools.get(id)
    }

    /// Returns the deliveries that the member takes in here, after the first `released` of the segment: those of a drain
    /// while it works, or those that wake it.
    pub(super) fn due(&self, place: &Place, released: usize, is_at_rest: bool) -> &[Delivery] {
        let segment = self.segments.get(place.replies);
        let rest = segment.and_then(|segment| segment.deliveries.get(released..));
        let rest = rest.unwrap_or_default();
        let is_due =
            |it: &&Delivery| place.has_passed(&it.after) && (is_at_rest || !it.comes_at_rest);
        let count = rest.iter().take_while(is_due).count();
        rest.get(..count).unwrap_or_default()
    }

    /// Returns the deliveries that come while the model writes its next reply.
    pub(super) fn due_ahead(&self, place: &Place, ahead: usize) -> &[Delivery] {
        let next = self.segments.get(place.replies + 1);
        let all = next.and_then(|segment| segment.deliveries.get(ahead..)).unwrap_or_default();
        let count = all.iter().take_while(|it| it.is_ahead).count();
        all.get(..count).unwrap_or_default()
    }

    /// Returns the deliveries of [`Self::due`] that come between this call and the next one of the same reply.
    pub(super) fn due_after_call(&self, place: &Place, released: usize, id: &str) -> &[Delivery] {
        let passed = Place { results: usize::MAX, decisions: usize::MAX, ..*place };
        let due = self.due(&passed, released, false);
        let count = due.iter().take_while(|it| {
            it.after.results <= place.results || it.after_call.as_deref() == Some(id)
        });
        let count = if due.iter().any(|it| it.after_call.as_deref() == Some(id)) {
            count.count()
        } else {
            0
        };
        due.get(..count).unwrap_or_default()
    }

    /// Returns the messages that are delivered from here on, after the first `released` of the segment, also those after
    /// this play.
    pub(super) fn mail_from(
        &self,
        place: &Place,
        released: usize,
    ) -> impl Iterator<Item = &Map<String, Value>> {
        let segments = self.segments.get(place.replies..).unwrap_or_default();
        let all = segments.iter().flat_map(|segment| &segment.deliveries).skip(released);
        let all = all.filter_map(|delivery| match &delivery.what {
            Delivered::Mail { message, .. } => Some(message),
            Delivered::Prompt(_) => None,
        });
        all.chain(&self.later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{Block, StopReason};
    use crate::wire::permission::{Decision, DecisionOutcome};
    use serde_json::json;

    fn mail(id: &str) -> Entry {
        let message = json!({"type": "message", "from": "lead", "content": "go", "id": id});
        let Value::Object(message) = message else { unreachable!() };
        Entry::Mail { claim: "1-a".into(), offset: 0, message, verified: true }
    }

    fn reply() -> Entry {
        let blocks = vec![Block::Text { text: "ok".into() }];
        let (stop_reason, usage, model) = (StopReason::EndTurn, Usage::default(), "m".into());
        Entry::Assistant { blocks, stop_reason, usage, model }
    }

    fn session() -> Entry {
        let (incarnation, model) = ("x".into(), "m".into());
        Entry::Session { incarnation, pid: 1, model, foreign: None }
    }

    fn start(id: &str) -> Entry {
        Entry::ToolStart { tool_use_id: id.into(), name: "bash".into() }
    }

    fn result(id: &str) -> Entry {
        Entry::tool_result(id.into(), "ok".into(), false, Vec::new())
    }

    fn turn_end() -> Entry {
        Entry::TurnEnd { outcome: Outcome::Done, rounds: 1, report: None, cut_off: false }
    }

    /// Makes the script of a teammate that told that it is idle at these times, from entries a second apart.
    fn script(entries: &[Entry], rests: &[f64]) -> Script {
        let lines = (0_u32..)
            .zip(entries)
            .map(|(at, entry)| Line { at: WallTime::from_secs(at.into()), entry: entry.clone() });
        let rests: Vec<_> = rests.iter().copied().map(WallTime::from_secs).collect();
        Script::new(lines, |_| true, Some(&rests))
    }

    fn place(entries: &[Entry]) -> Place {
        let mut place = Place::default();
        for entry in entries {
            place.pass(entry);
        }
        place
    }

    fn ids(due: &[Delivery]) -> Vec<&str> {
        due.iter()
            .map(|it| match &it.what {
                Delivered::Mail { message, .. } => message["id"].as_str().unwrap(),
                Delivered::Prompt(text) => text,
            })
            .collect()
    }

    #[test]
    fn mail_is_due_where_it_was_delivered() {
        let all = [
            session(),
            mail("first"),
            reply(),
            mail("ahead"),
            start("a"),
            result("a"),
            mail("between"),
            start("b"),
            result("b"),
            mail("last"),
            reply(),
            turn_end(),
            mail("at rest"),
        ];
        let script = script(&all, &[11.5]);
        let due = |count: usize, released: usize, is_at_rest: bool| {
            ids(script.due(&place(&all[..count]), released, is_at_rest))
        };
        assert_eq!(due(1, 0, false), ["first"]);
        assert_eq!(ids(script.due_ahead(&place(&all[..2]), 0)), ["ahead"]);
        let in_call = place(&all[..5]);
        assert_eq!(ids(script.due_after_call(&in_call, 1, "a")), ["between"]);
        assert_eq!(ids(script.due_after_call(&in_call, 1, "b")), [""; 0]);
        assert_eq!(due(9, 2, false), ["last"]);
        assert_eq!(due(12, 0, false), [""; 0], "it was idle before it came");
        assert_eq!(due(12, 0, true), ["at rest"]);
    }

    #[test]
    fn mail_before_a_call_that_is_denied_comes_before_it() {
        let denied = Decision::by_program("x", DecisionOutcome::Rejected, "nobody is there");
        let all = [
            session(),
            reply(),
            start("a"),
            result("a"),
            mail("between"),
            Entry::Decision(denied),
            result("b"),
            mail("last"),
            reply(),
        ];
        let script = script(&all, &[]);
        let place = place(&all[..3]);
        assert_eq!(ids(script.due_after_call(&place, 0, "a")), ["between"]);
    }

    #[test]
    fn mail_that_comes_while_a_question_is_open_comes_after_it() {
        let question = json!({"request_id": "m:a", "about": "permission", "tool_use_id": "a", "tool": "bash",
            "input": {}, "description": "ls"});
        let (question, decider) = (serde_json::from_value(question).unwrap(), "lead".into());
        let all = [
            session(),
            reply(),
            Entry::Request { question, decider, deadline: WallTime::default() },
            mail("while it waits"),
            Entry::Decision(Decision::by_program("m:a", DecisionOutcome::Approved, "")),
            mail("later"),
            start("a"),
            result("a"),
        ];
        let script = script(&all, &[]);
        assert_eq!(ids(script.due_ahead(&place(&all[..1]), 0)), [""; 0]);
        assert_eq!(ids(script.due(&place(&all[..3]), 0, false)), ["while it waits"]);
        assert_eq!(ids(script.due(&place(&all[..5]), 1, false)), ["later"]);
    }

    #[test]
    fn mail_that_came_before_the_member_was_idle_ends_no_rest() {
        let all = [session(), mail("first"), reply(), turn_end(), mail("at once")];
        let script = script(&all, &[9.0]);
        assert_eq!(ids(script.due(&place(&all[..4]), 0, false)), ["at once"]);
    }

    #[test]
    fn the_record_may_end_after_mail_that_starts_a_turn() {
        let all = [session(), mail("first"), reply(), turn_end(), mail("last")];
        let script = script(&all, &[]);
        let ends_at =
            |count: usize| script.ends_at(&place(&all[..count]), WallTime::from_secs(5.0));
        assert!(ends_at(5));
        assert!(!ends_at(4), "there is no mail yet");
        assert!(!ends_at(2), "a reply follows");
    }

    #[test]
    fn a_process_that_nobody_asked_to_end_has_crashed() {
        let mut asked = mail("stop");
        if let Entry::Mail { message, .. } = &mut asked {
            message.insert("type".into(), "shutdown_request".into());
        }
        let all = [session(), mail("first"), reply(), turn_end(), session(), asked, session()];
        let script = script(&all, &[]);
        assert!(script.crash(&place(&all[..4])).is_some());
        assert!(script.crash(&place(&all[..3])).is_none(), "it has not come as far");
        assert!(script.crash(&place(&all[..6])).is_none());
    }

    #[test]
    fn a_call_in_which_the_process_crashed_has_no_result() {
        let all = [session(), reply(), start("a"), session(), result("a"), start("b"), result("b")];
        let script = script(&all, &[]);
        assert_eq!(script.tool("a").map(|tool| tool.result.is_some()), Some(false));
        assert_eq!(script.tool("b").map(|tool| tool.result.is_some()), Some(true));
        assert!(script.crash(&place(&all[..3])).is_some(), "it crashes in the call");
    }

    #[test]
    fn a_crash_comes_before_the_rest_that_the_member_did_not_tell() {
        let all = [session(), mail("first"), reply(), turn_end(), session()];
        for (rest, is_before_rest) in [(3.5, false), (2.5, true), (4.5, true)] {
            let crash = script(&all, &[rest]).crash(&place(&all[..4])).unwrap();
            assert_eq!(crash.is_before_rest, is_before_rest, "idle at {rest}");
        }
        let all = [session(), session()];
        let crash = script(&all, &[]).crash(&place(&all[..1])).unwrap();
        assert!(!crash.is_before_rest, "a new process tells no rest");
    }
}
