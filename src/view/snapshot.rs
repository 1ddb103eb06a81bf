//! The state that a feed of changes adds up to: what `team top` draws, and what a new visitor of the page
//! gets first.

use super::change::{Asked, Change, Spent};
use super::line_diff::LineDiff;
use super::members::MemberView;
use super::message_progress::MessageProgress;
use crate::protocol::tasks::blockers;
use crate::wire::WithUnknownFields;
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::transcript::Line;
use std::collections::{BTreeMap, VecDeque};

/// The most model calls that are kept.
const CALLS: usize = 5_000;

/// The most messages that are kept, unless the snapshot has another limit.
const MESSAGES: usize = 10_000;

/// The team as of the last change.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The lead, then the members in the order in which they joined.
    pub(crate) members: Vec<MemberView>,
    /// The latest messages.
    pub(crate) messages: MessageList,
    /// The task list; with each task, the tasks that block it.
    pub(crate) tasks: Vec<(WithUnknownFields<Task>, Vec<TaskId>)>,
    /// The open requests.
    pub(crate) requests: Vec<Asked>,
    /// The end of the conversation that is followed.
    pub(crate) conversation: Conversation,
    /// The error of the last look at the files.
    pub(crate) trouble: Option<String>,
    /// The lines of the roster file.
    config: Vec<String>,
    calls: VecDeque<Spent>,
}

/// The last lines of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The agent; empty while no conversation is followed.
    pub(crate) name: String,
    /// The lines, oldest first.
    pub(crate) lines: VecDeque<Line>,
}

/// The latest messages, each once, with the furthest stage that it has reached.
#[derive(Debug)]
pub(crate) struct MessageList {
    messages: VecDeque<MessageProgress>,
    limit: usize,
    /// The number of the first message in `messages`.
    first: usize,
    /// The numbers of the messages, by recipient and id.
    numbers: BTreeMap<(String, String), usize>,
}

impl Default for MessageList {
    fn default() -> Self {
        Self::of_last(MESSAGES)
    }
}

impl MessageList {
    fn of_last(limit: usize) -> Self {
        Self { messages: VecDeque::new(), limit, first: 0, numbers: BTreeMap::new() }
    }

    /// The messages, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &MessageProgress> {
        self.messages.iter()
    }

    /// The number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message, or the stage that a known one has reached.
    pub(crate) fn add(&mut self, progress: MessageProgress) {
        let key = (progress.to.clone(), progress.id.clone());
        let known = self.numbers.get(&key).and_then(|number| number.checked_sub(self.first));
        if let Some(known) = known.and_then(|at| self.messages.get_mut(at)) {
            known.stage = known.stage.max(progress.stage);
            return;
        }
        self.numbers.insert(key, self.first + self.messages.len());
        self.messages.push_back(progress);
        while self.messages.len() > self.limit {
            if let Some(old) = self.messages.pop_front() {
                self.numbers.remove(&(old.to, old.id));
            }
            self.first += 1;
        }
    }
}

impl Snapshot {
    /// An empty snapshot that keeps so many messages.
    pub(crate) fn of_last(messages: usize) -> Self {
        Self { messages: MessageList::of_last(messages), ..Self::default() }
    }

    /// The agent of that name.
    pub(crate) fn member(&self, name: &str) -> Option<&MemberView> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Config(diff) => diff.apply(&mut self.config),
            Change::Team { members } => self.members = members,
            Change::Members { members } => self.replace_members(members),
            Change::Tasks { tasks } => {
                let board: Board = tasks.iter().map(|task| (task.id, task.clone())).collect();
                let with_blockers = |task: WithUnknownFields<Task>| {
                    let blockers = blockers(&board, &task).into_iter().map(|(id, _)| id).collect();
                    (task, blockers)
                };
                self.tasks = tasks.into_iter().map(with_blockers).collect();
            }
            Change::Requests { requests } => self.requests = requests,
            Change::Mail(progress) => self.messages.add(progress),
            Change::Usage(spent) => {
                self.calls.push_back(spent);
                self.calls.drain(..self.calls.len().saturating_sub(CALLS));
            }
        }
    }

    /// Replaces the agents that have changed; both lists have the same order.
    fn replace_members(&mut self, changed: Vec<MemberView>) {
        let mut changed = changed.into_iter().peekable();
        for member in &mut self.members {
            if let Some(new) = changed.next_if(|new| new.name == member.name) {
                *member = new;
            }
        }
    }

    /// The changes that lead from an empty snapshot to this one.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let config = LineDiff::between(&[], &self.config).map(Change::Config);
        let whole = [
            Change::Team { members: self.members.clone() },
            Change::Tasks { tasks: self.tasks.iter().map(|(task, _)| task.clone()).collect() },
            Change::Requests { requests: self.requests.clone() },
        ];
        let calls = self.calls.iter().cloned().map(Change::Usage);
        let messages = self.messages.iter().cloned().map(Change::Mail);
        config.into_iter().chain(whole).chain(calls).chain(messages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message_progress::Stage;
    use super::*;

    fn progress(id: usize, stage: Stage) -> MessageProgress {
        MessageProgress {
            id: id.to_string(),
            kind: "message".into(),
            from: "a".into(),
            to: "b".into(),
            content: String::new(),
            timestamp: None,
            stage,
        }
    }

    fn mail(snapshot: &Snapshot) -> Vec<Change> {
        let is_mail = |change: &Change| matches!(change, Change::Mail(_));
        snapshot.changes().into_iter().filter(is_mail).collect()
    }

    #[test]
    fn a_message_is_listed_once_with_its_furthest_stage() {
        let mut snapshot = Snapshot::default();
        for stage in [Stage::Appended, Stage::Answered, Stage::Claimed] {
            snapshot.apply(Change::Mail(progress(1, stage)));
        }
        assert_eq!(mail(&snapshot), [Change::Mail(progress(1, Stage::Answered))]);
    }

    #[test]
    fn only_the_latest_messages_are_kept() {
        let mut snapshot = Snapshot::of_last(500);
        for number in 0..510 {
            snapshot.messages.add(progress(number, Stage::Appended));
        }
        snapshot.messages.add(progress(500, Stage::Answered));
        snapshot.messages.add(progress(500, Stage::Claimed));
        assert_eq!((snapshot.messages.len(), mail(&snapshot).len()), (500, 500));
        assert_eq!(snapshot.messages.iter().next().unwrap().id, "10");
        assert_eq!(snapshot.messages.iter().nth_back(9).unwrap().stage, Stage::Answered);
    }

    #[test]
    fn the_changes_of_a_snapshot_rebuild_it() {
        let mut snapshot = Snapshot::default();
        for (gone, text) in [(0, "old"), (1, "new")] {
            snapshot.apply(Change::Config(LineDiff { at: 0, gone, lines: vec![text.into()] }));
        }
        let spent = Spent { at: 1.0.into(), name: "a".into(), input: 1, output: 2, cost: None };
        snapshot.apply(Change::Usage(spent));
        snapshot.apply(Change::Mail(progress(1, Stage::Sent)));
        let new = LineDiff { at: 0, gone: 0, lines: vec!["new".into()] };
        assert_eq!(snapshot.changes().first(), Some(&Change::Config(new)));
        let mut copy = Snapshot::default();
        snapshot.changes().into_iter().for_each(|change| copy.apply(change));
        assert_eq!(copy.changes(), snapshot.changes());
    }
}
