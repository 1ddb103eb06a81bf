//! The order of the record across the members: a step of one waits until the others have done what they did before it.
//!
//! The times of the record order the entries of all transcripts, since they come from one clock. The new transcripts
//! show what each member has done again, so no process needs to tell another one.

use super::list::RecordedList;
use super::place::Place;
use crate::agent::without_older_mail;
use crate::store::replay::{each_entry, follow};
use crate::store::tail::Tail;
use crate::store::{StoreError, TeamDir};
use crate::tools::changes_shared_list;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The kinds of entries by which progress is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Reply,
    Result,
    Mail,
    TurnEnd,
    /// Any other entry that is compared. A replay may lack one, so only its end waits for them.
    Other,
    /// A note of the program, which a replay without tools lacks.
    Note,
    /// The start of a process, or the note about it.
    Start,
}

/// The kinds of entries that order the steps of the members.
const ORDERING: [Mark; 4] = [Mark::Reply, Mark::Result, Mark::Mail, Mark::TurnEnd];

/// Tells the kinds of the entries of one transcript, in their order.
#[derive(Debug, Default)]
struct Marks {
    /// Whether the process has started, and has done nothing else.
    is_starting: bool,
}

impl Marks {
    fn of(&mut self, entry: &Entry) -> Option<Mark> {
        let mark = match entry {
            Entry::Assistant { .. } | Entry::Compacted { .. } => Some(Mark::Reply),
            Entry::ToolResult { .. } => Some(Mark::Result),
            Entry::Mail { .. } => Some(Mark::Mail),
            Entry::TurnEnd { .. } => Some(Mark::TurnEnd),
            Entry::User { .. }
            | Entry::ToolStart { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Interrupt { .. } => Some(Mark::Other),
            Entry::Note { content } => {
                let mark = if self.is_starting { Mark::Start } else { Mark::Note };
                without_older_mail(content).map(|_| mark)
            }
            Entry::Instructions { .. } => Some(Mark::Note),
            Entry::Session { .. } => Some(Mark::Start),
            Entry::Subagent(_)
            | Entry::Model { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::Unknown => None,
        };
        // The calls and the turn that were cut off are ended before the note.
        let is_of_start = matches!(mark, None | Some(Mark::Result | Mark::TurnEnd | Mark::Other));
        self.is_starting =
            matches!(entry, Entry::Session { .. }) || (self.is_starting && is_of_start);
        mark
    }
}

/// A member, as the record and its new transcript show it.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) name: AgentName,
    /// The times of the recorded entries of each kind.
    recorded: BTreeMap<Mark, Vec<WallTime>>,
    /// The times at which the recorded calls of tools started.
    starts: BTreeMap<String, WallTime>,
    /// The recorded calls that changed a shared list, with their times.
    list_calls: BTreeMap<String, WallTime>,
    /// The recorded calls without a result.
    unfinished: BTreeSet<String>,
    /// The calls that have a result.
    finished: BTreeSet<String>,
    marks: Marks,
    done: BTreeMap<Mark, usize>,
    pub(super) place: Place,
    /// The ids of the delivered messages.
    pub(super) mail: BTreeSet<String>,
    /// The calls of tools that have started and have no result.
    running: BTreeSet<String>,
    /// The questions that are open.
    pub(super) asked: BTreeSet<String>,
    /// The longest time that a reply or a result took in the record.
    pub(super) longest_step: Duration,
    tail: Tail,
}

impl Progress {
    /// Reads the record of a member, of which the play `has` a part.
    pub(super) fn open(
        (record, list): (&TeamDir, &RecordedList),
        has: impl Fn(WallTime) -> bool,
        team: &TeamDir,
        name: &AgentName,
    ) -> Result<Self, StoreError> {
        let (mut recorded, mut starts) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
        let (mut on_list, mut list_calls) = (BTreeSet::new(), BTreeMap::new());
        let (mut unfinished, mut marks) = (BTreeSet::new(), Marks::default());
        let (mut last_at, mut longest_step) = (None, Duration::ZERO);
        each_entry(record, name, |Line { at, entry }| {
            if !has(at) {
                return;
            }
            let mark = marks.of(&entry);
            let began = if let Entry::ToolResult { tool_use_id, .. } = &entry {
                starts.get(tool_use_id).copied()
            } else {
                last_at.filter(|_| mark == Some(Mark::Reply))
            };
            longest_step = longest_step.max(began.map_or(Duration::ZERO, |began| at.since(began)));
            last_at = Some(at);
            if let Some(mark) = mark {
                recorded.entry(mark).or_default().push(at);
            }
            if let Entry::ToolStart { tool_use_id, name } = entry {
                if changes_shared_list(&name) {
                    on_list.insert(tool_use_id.clone());
                }
                unfinished.insert(tool_use_id.clone());
                starts.insert(tool_use_id, at);
            } else if let Entry::ToolResult { tool_use_id, .. } = entry {
                unfinished.remove(&tool_use_id);
                if on_list.remove(&tool_use_id) {
                    let began = starts.get(&tool_use_id).copied().unwrap_or(at);
                    list_calls.insert(tool_use_id, list.changed_at(name, began, at));
                }
            }
        })?;
        Ok(Self {
            name: name.clone(),
            recorded,
            starts,
            list_calls,
            unfinished,
            finished: BTreeSet::new(),
            marks: Marks::default(),
            done: BTreeMap::new(),
            place: Place::default(),
            mail: BTreeSet::new(),
            running: BTreeSet::new(),
            asked: BTreeSet::new(),
            longest_step,
            tail: follow(team, name),
        })
    }

    /// Reads what the member has done since the last call. Returns whether there was anything.
    pub(super) fn follow(&mut self) -> bool {
        let lines = self.tail.read_new().unwrap_or_else(|why| {
            tracing::warn!(name = %self.name, %why, "its transcript could not be read");
            Vec::new()
        });
        for line in &lines {
            let Some(Line { entry, .. }) = Line::read(line) else { continue };
            if let Some(mark) = self.marks.of(&entry) {
                *self.done.entry(mark).or_default() += 1;
            }
            self.place.pass(&entry);
            if let Entry::ToolStart { tool_use_id, .. } = entry {
                self.running.insert(tool_use_id);
            } else if let Entry::ToolResult { tool_use_id, .. } = entry {
                self.running.remove(&tool_use_id);
                self.finished.insert(tool_use_id);
            } else if let Entry::Mail { message, .. } = entry {
                let id = message.get("id").and_then(|id| id.as_str());
                self.mail.extend(id.map(str::to_owned));
            } else if let Entry::Request { question, .. } = entry {
                self.asked.insert(question.request_id);
            } else if let Entry::Decision(decision) = entry {
                self.asked.remove(&decision.request_id);
            } else if let Entry::Session { .. } = entry {
                self.running.clear();
                self.asked.clear();
            }
        }
        !lines.is_empty()
    }

    /// Whether the member has done again what it did before this time.
    pub(super) fn has_reached(&self, time: WallTime) -> bool {
        self.has_as_many(&ORDERING, time)
    }

    /// Whether the member has written all entries again that are compared, of those before this time.
    pub(super) fn has_written(&self, time: WallTime, with_notes: bool) -> bool {
        let is_noted = !with_notes || self.has_as_many(&[Mark::Note], time);
        is_noted && self.has_as_many(&[Mark::Other], time) && self.has_reached(time)
    }

    /// Whether the member has started as often as before this time.
    pub(super) fn has_started(&self, time: WallTime) -> bool {
        self.has_as_many(&[Mark::Start], time)
    }

    fn has_as_many(&self, marks: &[Mark], time: WallTime) -> bool {
        marks.iter().all(|mark| {
            let times = self.recorded.get(mark).map(Vec::as_slice).unwrap_or_default();
            let wanted = times.partition_point(|at| *at < time);
            self.done.get(mark).copied().unwrap_or_default() >= wanted
        })
    }

    /// Whether the calls that changed a shared list before this time have been made again.
    pub(super) fn has_changed_list(&self, time: WallTime) -> bool {
        let mut before = self.list_calls.iter().filter(|(_, at)| **at < time);
        before.all(|(id, _)| self.finished.contains(id))
    }

    /// Whether a call of a tool is under way that has a result in the record.
    pub(super) fn runs_tool_to_its_end(&self) -> bool {
        self.running.iter().any(|id| !self.unfinished.contains(id))
    }

    /// Whether a call of a tool is under way.
    pub(super) fn runs_tool(&self) -> bool {
        !self.running.is_empty()
    }
}

/// Whether all members but `me` have done again what they did before this time.
pub(super) fn have_others_reached(all: &[Progress], me: &AgentName, time: WallTime) -> bool {
    all.iter().filter(|member| member.name != *me).all(|member| member.has_reached(time))
}

/// Whether another member runs a tool, which may take its time. A call that itself waits for the order does not count.
pub(super) fn does_another_work(all: &[Progress], me: &AgentName) -> bool {
    all.iter().filter(|member| member.name != *me).any(|member| {
        member.running.iter().any(|id| {
            let started = member.starts.get(id);
            started.is_none_or(|at| have_others_reached(all, &member.name, *at))
        })
    })
}

/// Returns the time at which a call of `me` changed a shared list in the record.
pub(super) fn list_change(all: &[Progress], me: &AgentName, id: &str) -> Option<WallTime> {
    let mine = all.iter().find(|member| member.name == *me);
    mine.and_then(|member| member.list_calls.get(id)).copied()
}

/// Whether the calls of others that changed a shared list before this time have been made again. Calls that overlap are
/// ordered by what they did, so that a new entry gets the same id.
pub(super) fn have_others_changed_list(all: &[Progress], me: &AgentName, time: WallTime) -> bool {
    all.iter().filter(|member| member.name != *me).all(|member| member.has_changed_list(time))
}
