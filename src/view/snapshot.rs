//! The state to which a feed of changes adds up. A new visitor of the page gets it first; with one conversation,
//! `team top` draws it.

use super::change::{Change, LineDiff, MessageProgress, ModelCallUsage, PendingQuestion};
use super::feed::Feed;
use super::members::MemberView;
use super::opened::{self, OpenedMessage};
use crate::protocol::tasks::blockers;
use crate::store::relay::copies;
use crate::store::tail::Tail;
use crate::store::{TeamDir, roster};
use crate::wire::WithUnknownFields;
use crate::wire::price_list::PriceList;
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::transcript::Line;
use std::collections::{BTreeMap, VecDeque};

/// The maximum number of model calls that are kept.
const CALLS: usize = 5_000;

/// The maximum number of messages that are kept, unless the snapshot has another limit.
const MESSAGES: usize = 10_000;

/// The part of a conversation that is read when it is first followed, in bytes from its end.
const LOOK_BACK: u64 = 1024 * 1024;

/// The maximum number of lines of a conversation that are kept.
const LINES: usize = 4_000;

/// The state of the team after the last change.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The lead, then the members in the order in which they joined.
    pub(crate) members: Vec<MemberView>,
    pub(crate) messages: MessageList,
    /// The task list: each task with the tasks that block it.
    pub(crate) tasks: Vec<(WithUnknownFields<Task>, Vec<TaskId>)>,
    pub(crate) requests: Vec<PendingQuestion>,
    /// The end of the conversation that is followed.
    pub(crate) conversation: ConversationTail,
    /// The message that a person has opened.
    pub(crate) opened: Option<OpenedMessage>,
    /// The error of the last look at the files.
    pub(crate) trouble: Option<String>,
    config: Vec<String>,
    calls: VecDeque<ModelCallUsage>,
}

#[derive(Debug, Default)]
pub(crate) struct ConversationTail {
    /// The agent; empty while no conversation is followed.
    pub(crate) name: String,
    /// The lines, oldest first.
    pub(crate) lines: VecDeque<Line>,
    /// The number of lines that were read and are kept no longer: line 0 of `lines` has this number.
    pub(crate) dropped: usize,
    /// Whether the file has earlier lines.
    pub(crate) starts_late: bool,
    /// The reader of further lines; `None` if no agent can have the name.
    tail: Option<Tail>,
}

/// The place of a message in a list: its time in microseconds since 1970, and the number of messages found before it.
type Place = (u64, usize);

/// The latest messages, each once, with the furthest stage that it has reached.
#[derive(Debug)]
pub(crate) struct MessageList {
    limit: usize,
    /// The messages in the order of their times: they are found file by file.
    messages: BTreeMap<Place, MessageProgress>,
    next: usize,
    /// The places of the messages, by recipient and id.
    places: BTreeMap<(String, String), Place>,
}

impl Default for MessageList {
    fn default() -> Self {
        Self::of_last(MESSAGES)
    }
}

impl MessageList {
    fn of_last(limit: usize) -> Self {
        Self { limit, messages: BTreeMap::new(), next: 0, places: BTreeMap::new() }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &MessageProgress> {
        self.messages.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message, or updates the stage of a known one.
    pub(crate) fn add(&mut self, progress: MessageProgress) {
        let key = (progress.to.clone(), progress.id.clone());
        if let Some(known) = self.places.get(&key).and_then(|at| self.messages.get_mut(at)) {
            known.stage = known.stage.max(progress.stage);
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let time = progress.timestamp.map(|at| (at.as_secs() * 1e6) as u64);
        // A line that was written by hand may have none.
        let newest = || self.messages.last_key_value().map_or(0, |((time, _), _)| *time);
        let place = (time.unwrap_or_else(newest), self.next);
        self.places.insert(key, place);
        self.messages.insert(place, progress);
        self.next += 1;
        if self.messages.len() > self.limit
            && let Some((_, old)) = self.messages.pop_first()
        {
            self.places.remove(&(old.to, old.id));
        }
    }
}

impl Snapshot {
    /// Returns an empty snapshot that keeps at most `messages` messages.
    pub(crate) fn of_last(messages: usize) -> Self {
        Self { messages: MessageList::of_last(messages), ..Self::default() }
    }

    pub(crate) fn member(&self, name: &str) -> Option<&MemberView> {
        self.members.iter().find(|member| member.name == name)
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Config(diff) => diff.apply(&mut self.config),
            Change::Team { members } => self.members = members,
            Change::Members { members } => {
                // Both lists have the same order.
                let mut changed = members.into_iter().peekable();
                for member in &mut self.members {
                    if let Some(new) = changed.next_if(|new| new.name == member.name) {
                        *member = new;
                    }
                }
            }
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

    /// Returns the changes that lead from an empty snapshot to this one.
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

/// The observer of a team's files that keeps a [`Snapshot`] up to date.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) team: TeamDir,
    feed: Feed,
    /// The state of the team at the last look.
    pub(crate) snapshot: Snapshot,
}

impl Observer {
    pub(crate) fn of(team: &TeamDir) -> Self {
        let (feed, snapshot) = (Feed::of(team, PriceList::default()), Snapshot::default());
        Self { team: team.clone(), feed, snapshot }
    }

    /// Follows the conversation of `name` instead of the previous one.
    pub(crate) fn follow(&mut self, name: &str) {
        if self.snapshot.conversation.name == name {
            return;
        }
        // A roster that cannot be read is told by the next look.
        let roster = roster::read(&self.team).unwrap_or_default();
        let known = copies::conversation(&self.team, &roster, name);
        let tail = known.map(|path| Tail::of_last(path, LOOK_BACK));
        let (name, lines) = (name.to_owned(), VecDeque::new());
        let starts_late = tail.as_ref().is_some_and(|tail| tail.offset() > 0);
        self.snapshot.conversation =
            ConversationTail { name, lines, dropped: 0, starts_late, tail };
        self.read_on();
    }

    /// Reads all of the message that `wanted` names by recipient and id, once.
    pub(crate) fn open(&mut self, wanted: Option<(&str, &str)>) {
        let known = self.snapshot.opened.as_ref().map(|it| (it.to.as_str(), it.id.as_str()));
        if known == wanted {
            return;
        }
        self.snapshot.opened = wanted.map(|(to, id)| {
            let message = opened::find(&self.team, to, id).unwrap_or_else(|why| {
                self.snapshot.trouble = Some(why.to_string());
                None
            });
            OpenedMessage { to: to.to_owned(), id: id.to_owned(), message }
        });
    }

    /// Reads all files again; returns whether anything has changed.
    pub(crate) fn look(&mut self) -> bool {
        let before = self.snapshot.trouble.take();
        let changes = self.feed.look().unwrap_or_else(|why| {
            self.snapshot.trouble = Some(why.to_string());
            Vec::new()
        });
        let is_news = !changes.is_empty();
        for change in changes {
            self.snapshot.apply(change);
        }
        let is_longer = self.read_on();
        is_news || is_longer || self.snapshot.trouble != before
    }

    /// Reads the new lines of the followed conversation; returns whether it has changed.
    fn read_on(&mut self) -> bool {
        let ConversationTail { lines, dropped, starts_late, tail, .. } =
            &mut self.snapshot.conversation;
        let Some(tail) = tail else { return false };
        let before = tail.file();
        let new = match tail.read_new() {
            Ok(new) => new,
            Err(why) => {
                self.snapshot.trouble = Some(why.to_string());
                return false;
            }
        };
        let is_another = before.is_some() && before != tail.file();
        if is_another {
            *dropped += lines.len();
            lines.clear();
            *starts_late = false;
        }
        lines.extend(new.iter().filter_map(|line| Line::read(line)));
        let surplus = lines.len().saturating_sub(LINES);
        lines.drain(..surplus);
        *dropped += surplus;
        *starts_late |= surplus > 0;
        is_another || !new.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::Stage;
    use super::*;
    use crate::view::testing::{record, team_folder};
    use crate::wire::AgentName;
    use serde_json::{Value, json};
    use std::fs;

    fn progress(id: usize, stage: Stage) -> MessageProgress {
        let object = json!({"from": "a", "content": "", "id": id.to_string()});
        MessageProgress::read("b", object.as_object().unwrap(), stage).unwrap()
    }

    fn mail(snapshot: &Snapshot) -> Vec<Change> {
        let is_mail = |change: &Change| matches!(change, Change::Mail(_));
        snapshot.changes().into_iter().filter(is_mail).collect()
    }

    #[test]
    fn the_latest_messages_are_listed_once_with_their_furthest_stage() {
        let mut snapshot = Snapshot::of_last(500);
        for stage in [Stage::Appended, Stage::Answered, Stage::Claimed] {
            snapshot.apply(Change::Mail(progress(0, stage)));
        }
        assert_eq!(mail(&snapshot), [Change::Mail(progress(0, Stage::Answered))]);
        for number in 1..510 {
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
        let (at, name) = (1.0.into(), "a".into());
        snapshot.apply(Change::Usage(ModelCallUsage { at, name, input: 1, output: 2, cost: None }));
        snapshot.apply(Change::Mail(progress(1, Stage::Sent)));
        let new = LineDiff { at: 0, gone: 0, lines: vec!["new".into()] };
        assert_eq!(snapshot.changes().first(), Some(&Change::Config(new)));
        let mut copy = Snapshot::default();
        snapshot.changes().into_iter().for_each(|change| copy.apply(change));
        assert_eq!(copy.changes(), snapshot.changes());
    }

    fn message(text: &str, at: f64) -> Value {
        json!({"from": "user", "content": text, "id": format!("user:{text}"), "timestamp": at})
    }

    fn said(snapshot: &Snapshot) -> Vec<(&str, Stage)> {
        snapshot.messages.iter().map(|it| (it.content.as_str(), it.stage)).collect()
    }

    #[test]
    fn messages_of_several_files_are_in_the_order_of_their_times() {
        let (_folder, team) = team_folder();
        let (lead, user) = (AgentName::lead(), AgentName::user());
        let first = message("first", 1.0);
        record(&team.inbox(&lead), &message("second", 2.0));
        record(&team.inbox(&lead), &message("third", 3.0));
        record(&team.inbox(&user), &first);
        let mut observer = Observer::of(&team);
        assert!(observer.look());
        assert!(!observer.look(), "nothing has changed");
        let appended = ["first", "second", "third"].map(|text| (text, Stage::Appended));
        assert_eq!(said(&observer.snapshot), appended);
        let taken = json!({"kind":"mail","at":9,"gen":"1-a","offset":0,"message":first});
        record(&team.transcript(&user), &taken);
        assert!(observer.look());
        assert_eq!(said(&observer.snapshot).first(), Some(&("first", Stage::Acknowledged)));
        assert_eq!(observer.snapshot.messages.len(), 3);
        // Found later, but written earlier.
        record(&team.inbox(&user), &message("between", 2.5));
        record(
            &team.inbox(&lead),
            &json!({"from": "user", "content": "without a time", "id": "x"}),
        );
        assert!(observer.look());
        let order = ["first", "second", "between", "third", "without a time"];
        assert!(said(&observer.snapshot).iter().map(|it| it.0).eq(order));
    }

    #[test]
    fn only_the_end_of_a_long_conversation_is_read() {
        let (_folder, team) = team_folder();
        let path = team.transcript(&AgentName::lead());
        let note = |text: &str| json!({"kind": "note", "at": 5, "content": text});
        for _ in 0..40 {
            record(&path, &note(&"x".repeat(100_000)));
        }
        record(&path, &note("the end"));
        let mut observer = Observer::of(&team);
        observer.look();
        observer.follow("lead");
        let line = |text: &str| Line::read(note(text).to_string().as_bytes()).unwrap();
        assert!(observer.snapshot.conversation.starts_late);
        let lines = &observer.snapshot.conversation.lines;
        assert!((2..12).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines.back(), Some(&line("the end")));
        fs::rename(&path, team.archive().join("lead-000001.jsonl")).unwrap();
        record(&path, &note("a new one"));
        assert!(observer.look());
        let conversation = &observer.snapshot.conversation;
        assert_eq!(conversation.lines, [line("a new one")]);
        assert!(!conversation.starts_late, "it is another one");
        assert!(conversation.dropped > 1, "a line keeps its number");
    }

    #[test]
    fn an_unreadable_file_is_reported_until_it_can_be_read() {
        let (_folder, team) = team_folder();
        let mut observer = Observer::of(&team);
        let path = team.transcript(&AgentName::lead());
        fs::create_dir(&path).unwrap();
        assert!(observer.look());
        assert!(observer.snapshot.trouble.is_some());
        assert!(!observer.look(), "the same trouble is reported once");
        fs::remove_dir(&path).unwrap();
        record(&team.inbox(&AgentName::lead()), &message("now", 1.0));
        assert!(observer.look());
        assert!(observer.snapshot.trouble.is_none());
        assert_eq!(observer.snapshot.messages.len(), 1);
    }
}
