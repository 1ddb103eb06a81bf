//! The state of a player that is read from the files: the place of each member, and the mail that is held.

use super::delivery::{Delivered, Delivery};
use super::list::RecordedList;
use super::order::{
    Progress, does_another_work, have_others_changed_list, have_others_reached, list_change,
};
use super::place::Place;
use super::recorded_mail::{id_of, is_same};
use super::script::{Crash, Script};
use crate::os::deadline::deadline;
use crate::store::TeamDir;
use crate::store::replay::release;
use crate::store::tail::Tail;
use crate::wire::message::Outcome;
use crate::wire::replay::{Fault, Pace, PlayEnd, ReplayPlan};
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time of [`Shared::stalled_after`] if no reply takes its time.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Returns the time without any progress of the team after which something is missing.
pub(super) fn stalled_after(plan: &ReplayPlan, members: &[Progress]) -> Duration {
    let longest = members.iter().map(|member| member.longest_step).max();
    let paced = longest.filter(|_| plan.pace == Pace::RealTime).unwrap_or_default();
    let delay = |fault: &Fault| match fault {
        Fault::SlowModel { ms } => Duration::from_millis(*ms),
        Fault::Kill { .. } => Duration::ZERO,
    };
    deadline(STALLED_AFTER) + paced + plan.faults.iter().map(delay).sum::<Duration>()
}

/// The state that is read from the files.
pub(super) struct Shared {
    pub(super) me: AgentName,
    pub(super) dir: TeamDir,
    pub(super) record: TeamDir,
    pub(super) script: Arc<Script>,
    /// The time in the record from which on the team ends, and nothing is ordered.
    pub(super) end: WallTime,
    pub(super) ending: PlayEnd,
    pub(super) members: Vec<Progress>,
    pub(super) held_tail: Tail,
    pub(super) held: Vec<HeldMail>,
    /// The ids of all mail that this process has found held.
    pub(super) seen: BTreeSet<String>,
    /// The place for which `released` counts.
    pub(super) place: Option<Place>,
    /// The number of deliveries of this segment that the member has got or is to get.
    pub(super) released: usize,
    /// The number of deliveries of the next segment that are in the inbox.
    pub(super) ahead: usize,
    pub(super) grew_at: Instant,
    /// The time without any progress of the team after which something is missing.
    pub(super) stalled_after: Duration,
    /// Whether notes of the program are compared.
    pub(super) with_notes: bool,
    /// Whether the model is asked for a reply that the record does not have.
    pub(super) has_no_reply: bool,
    /// The reason for which the record is no longer followed.
    pub(super) strayed: Option<String>,
    /// The times at which the person added tasks in the record.
    pub(super) of_person: Vec<WallTime>,
    /// The number of these tasks that are on the new list.
    pub(super) added: Cell<usize>,
    /// The new id of each recorded request.
    pub(super) request_ids: BTreeMap<String, String>,
}

pub(super) struct HeldMail {
    pub(super) line: Vec<u8>,
    pub(super) message: Map<String, Value>,
}

impl HeldMail {
    pub(super) fn read(line: Vec<u8>) -> Option<Self> {
        let message = serde_json::from_slice(&line).ok()?;
        Some(Self { line, message })
    }
}

/// The segment of the script to which deliveries belong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Window {
    Now,
    /// The one after the next reply.
    Ahead,
}

/// The next step of a member that waits for its deliveries.
pub(super) enum Step {
    Wait,
    /// Somebody outside the team has sent this message in the record, so the member sends it to itself.
    Send(Box<Delivery>),
    /// The deliveries are in the inbox; these are the prompts.
    Go(Vec<String>),
}

impl Shared {
    /// Reads what the members have done and what mail has come.
    pub(super) fn look(&mut self) {
        let mut has_grown = false;
        for member in &mut self.members {
            has_grown |= member.follow();
        }
        let lines = self.held_tail.read_new().unwrap_or_else(|why| {
            tracing::warn!(%why, "held mail could not be read");
            Vec::new()
        });
        has_grown |= !lines.is_empty();
        let mine = self.members.iter().find(|member| member.name == self.me);
        for held in lines.into_iter().filter_map(HeldMail::read) {
            let id = id_of(&held.message);
            // A report that is sent again after a crash is the same message.
            let is_new = id.is_empty() || self.seen.insert(id.to_owned());
            if is_new && !mine.is_some_and(|mine| mine.mail.contains(id)) {
                self.held.push(held);
            }
        }
        if has_grown {
            self.grew_at = Instant::now();
        }
        let place = mine.map(|mine| mine.place).unwrap_or_default();
        match &mut self.place {
            // A process that comes back goes on where its transcript ends.
            None => self.released = place.delivered,
            Some(before) if before.replies != place.replies => {
                self.released = std::mem::take(&mut self.ahead);
            }
            Some(_) => {}
        }
        self.place = Some(place);
    }

    pub(super) fn place(&self) -> Place {
        self.place.unwrap_or_default()
    }

    /// Returns what is due. Nobody types a prompt after the end of the play.
    pub(super) fn due(&self, is_at_rest: bool) -> &[Delivery] {
        let due = self.script.due(&self.place(), self.released, is_at_rest);
        let is_too_late =
            |it: &Delivery| it.at >= self.end && (self.ending == PlayEnd::Cut || !it.is_mail());
        let count = due.iter().position(is_too_late).unwrap_or(due.len());
        due.get(..count).unwrap_or_default()
    }

    /// Returns the mail that was sent before the next process came, once the others are as far as at the crash.
    pub(super) fn mail_of_crash(&self, crash: Crash) -> Vec<Delivery> {
        let place = Place { sessions: self.place().sessions + 1, ..self.place() };
        let due = self.script.due(&place, self.released, true).iter();
        let mail = due.take_while(|it| it.was_sent_before(crash.came_back_at)).cloned();
        mail.map(|it| it.ordered_at(crash.crashed_at())).collect()
    }

    /// Whether the record ends after the mail that was drained last, although that mail starts a turn.
    pub(super) fn is_last_drain(&self) -> bool {
        self.ending == PlayEnd::Ended && self.script.ends_at(&self.place(), self.end)
    }

    pub(super) fn due_ahead(&self) -> &[Delivery] {
        self.script.due_ahead(&self.place(), self.ahead)
    }

    pub(super) fn due_after_call(&self, id: &str) -> &[Delivery] {
        self.script.due_after_call(&self.place(), self.released, id)
    }

    pub(super) fn is_time(&self, time: WallTime) -> bool {
        let time = if time < self.end { time } else { self.end };
        have_others_reached(&self.members, &self.me, time) && self.has_person_reached(time)
    }

    /// Whether the tasks that the person added before this time are on the list again. No transcript has them.
    pub(super) fn has_person_reached(&self, time: WallTime) -> bool {
        let wanted = self.of_person.partition_point(|at| *at < time);
        if wanted > self.added.get()
            && let Ok(list) = RecordedList::read(&self.dir)
        {
            self.added.set(list.of_person.len());
        }
        wanted <= self.added.get()
    }

    /// Whether the shared lists are as they were before a call.
    pub(super) fn is_list_ready(&self, id: &str) -> bool {
        list_change(&self.members, &self.me, id).is_none_or(|time| {
            have_others_changed_list(&self.members, &self.me, time) && self.has_person_reached(time)
        })
    }

    pub(super) fn have_all_reached(&self, time: WallTime) -> bool {
        let has_reached =
            |member: &Progress| member.has_reached(time) && member.has_changed_list(time);
        self.strayed.is_some() || self.members.iter().all(has_reached)
    }

    /// Releases what is due once all of it is there.
    pub(super) fn step(&mut self, due: &[Delivery], window: Window) -> Step {
        self.release_unexpected();
        if self.strayed.is_some() {
            return Step::Go(Vec::new());
        }
        let mut found = Vec::new();
        for delivery in due {
            if !self.is_time(delivery.ordered_at) {
                return self.wait(|| "another member has not come as far as in the record".into());
            }
            let Delivered::Mail { message, .. } = &delivery.what else { continue };
            let is_it = |(at, held): &(usize, &HeldMail)| {
                !found.contains(at) && is_same(message, &held.message)
            };
            match self.held.iter().enumerate().find(is_it) {
                Some((at, _)) => found.push(at),
                None if self.is_from_outside(message) => {
                    return Step::Send(Box::new(delivery.clone()));
                }
                None => {
                    let from = message.get("from").and_then(Value::as_str).unwrap_or_default();
                    let kind = message.get("type").and_then(Value::as_str).unwrap_or_default();
                    let why = format!("a {kind} of {from} has not come");
                    return self.wait(move || why);
                }
            }
        }
        let mut prompts = Vec::new();
        let mut found = found.into_iter();
        let mut gone = Vec::new();
        for delivery in due {
            match &delivery.what {
                Delivered::Prompt(text) => prompts.push(text.clone()),
                Delivered::Mail { message, .. } => {
                    let Some(at) = found.next() else { continue };
                    if let Some(held) = self.held.get(at) {
                        note_request(&mut self.request_ids, message, &held.message);
                    }
                    self.release(at);
                    gone.push(at);
                }
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.held.remove(at);
        }
        match window {
            Window::Now => self.released += due.len(),
            Window::Ahead => self.ahead += due.len(),
        }
        Step::Go(prompts)
    }

    /// Waits, unless the team has stalled.
    pub(super) fn wait(&mut self, missing: impl FnOnce() -> String) -> Step {
        if self.has_strayed(missing) { Step::Go(Vec::new()) } else { Step::Wait }
    }

    /// Whether the record is no longer followed. This happens if nothing goes on and something is missing.
    pub(super) fn has_strayed(&mut self, missing: impl FnOnce() -> String) -> bool {
        if self.strayed.is_none()
            && self.is_stalled()
            && !does_another_work(&self.members, &self.me)
        {
            self.stray(missing());
        }
        self.strayed.is_some()
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.grew_at.elapsed() > self.stalled_after
    }

    /// Whether all that the record has before its end is there again. An entry that orders nothing may be missing.
    pub(super) fn is_played(&self) -> bool {
        let end = self.end;
        // A lead may end while a member starts, which then starts all the same.
        let starts =
            if self.ending == PlayEnd::Ended { WallTime::from_secs(f64::MAX) } else { end };
        let is_written = |member: &Progress| {
            member.has_written(end, self.with_notes) && member.has_started(starts)
        };
        let is_whole = self.members.iter().all(is_written) && self.is_where_it_ended();
        is_whole || (self.is_stalled() && self.members.iter().all(|it| it.has_reached(end)))
    }

    /// Whether a turn that the end cut off in the record is as far here.
    fn is_where_it_ended(&self) -> bool {
        let outcome = self.script.end_without_reply(&self.place());
        let mine = self.members.iter().find(|member| member.name == self.me);
        let is_asking =
            outcome == Some(Outcome::Interrupted) && !mine.is_some_and(Progress::runs_tool);
        !is_asking || self.has_no_reply
    }

    pub(super) fn stray(&mut self, why: String) {
        tracing::warn!(why, "the record is no longer followed");
        self.strayed = Some(why);
        self.release_unexpected();
    }

    /// Releases mail that the record does not have, and all mail if the record is no longer followed.
    pub(super) fn release_unexpected(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.place();
        let mut expected: Vec<_> = self.script.mail_from(&place, self.released).collect();
        let has_strayed = self.strayed.is_some();
        let is_unexpected = |held: &HeldMail| {
            let known = expected.iter().position(|recorded| is_same(recorded, &held.message));
            known.map(|at| expected.swap_remove(at)).is_none() || has_strayed
        };
        let unexpected: Vec<bool> = self.held.iter().map(is_unexpected).collect();
        for (at, is_unexpected) in unexpected.into_iter().enumerate().rev() {
            if is_unexpected {
                self.release(at);
                self.held.remove(at);
            }
        }
    }

    pub(super) fn release(&self, at: usize) {
        let Some(held) = self.held.get(at) else { return };
        if let Err(why) = release(&self.dir, &self.me, &held.line) {
            tracing::warn!(%why, "held mail could not be moved to the inbox");
        }
    }

    /// Whether the sender of a message is no agent of the team.
    pub(super) fn is_from_outside(&self, message: &Map<String, Value>) -> bool {
        let from = message.get("from").and_then(Value::as_str).unwrap_or_default();
        from != AgentName::system().as_str()
            && !self.members.iter().any(|member| member.name.as_str() == from)
    }
}

/// Notes the new id of a recorded request.
fn note_request(
    ids: &mut BTreeMap<String, String>,
    recorded: &Map<String, Value>,
    new: &Map<String, Value>,
) {
    let id = |message: &Map<String, Value>| {
        message.get("request_id").and_then(Value::as_str).map(str::to_owned)
    };
    if let (Some(recorded), Some(new)) = (id(recorded), id(new)) {
        ids.insert(recorded, new);
    }
}
