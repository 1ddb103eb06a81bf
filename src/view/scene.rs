//! The team for somebody who stays and watches: changes folded into one picture, and one conversation
//! followed.

use super::picture::apply_members;
use super::{Asked, Change, Feed, MemberView, MessageProgress};
use crate::protocol::tasks::blockers;
use crate::store::TeamDir;
use crate::store::tail::Tail;
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::transcript::Line;
use crate::wire::{AgentName, WithUnknownFields};
use std::collections::{BTreeMap, VecDeque};

/// Messages that are kept.
const MESSAGES: usize = 10_000;

/// How much of the end of a conversation is read.
const LOOK_BACK: u64 = 1024 * 1024;

/// Lines of a conversation that are kept.
const LINES: usize = 4_000;

/// The team as it was at the last look.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    /// The lead, then the members in the order they joined.
    pub(crate) members: Vec<MemberView>,
    /// What was said between them, oldest first.
    pub(crate) messages: MessageList,
    /// The task list, and what each task still waits for.
    pub(crate) tasks: Vec<(WithUnknownFields<Task>, Vec<TaskId>)>,
    /// What waits for an answer.
    pub(crate) requests: Vec<Asked>,
    /// The end of one agent's conversation.
    pub(crate) conversation: Conversation,
    /// Why something could not be read at the last look.
    pub(crate) trouble: Option<String>,
}

/// The last lines of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Whose it is; empty when nobody's is followed.
    pub(crate) name: String,
    /// Its lines, oldest first.
    pub(crate) lines: VecDeque<Line>,
}

/// The latest messages, each once, with the furthest step it has come.
#[derive(Debug, Default)]
pub(crate) struct MessageList {
    kept: VecDeque<MessageProgress>,
    /// The number of the first one that is kept.
    first: usize,
    /// Their numbers, by receiver and id.
    numbers: BTreeMap<(String, String), usize>,
}

impl MessageList {
    /// The messages, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &MessageProgress> {
        self.kept.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// A message was seen.
    pub(crate) fn meet(&mut self, progress: MessageProgress) {
        let key = (progress.to.clone(), progress.id.clone());
        let known = self.numbers.get(&key).and_then(|number| number.checked_sub(self.first));
        if let Some(known) = known.and_then(|at| self.kept.get_mut(at)) {
            known.stage = known.stage.max(progress.stage);
            return;
        }
        self.numbers.insert(key, self.first + self.kept.len());
        self.kept.push_back(progress);
        while self.kept.len() > MESSAGES {
            if let Some(old) = self.kept.pop_front() {
                self.numbers.remove(&(old.to, old.id));
            }
            self.first += 1;
        }
    }
}

impl Scene {
    /// The agent of that name.
    pub(crate) fn member(&self, name: &str) -> Option<&MemberView> {
        self.members.iter().find(|member| member.name == name)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Team { members } => self.members = members,
            Change::Members { members } => apply_members(&mut self.members, members),
            Change::Tasks { tasks } => {
                let board: Board = tasks.iter().map(|task| (task.id, task.clone())).collect();
                let waits_for =
                    |task: &Task| blockers(&board, task).into_iter().map(|(id, _)| id).collect();
                let tasks = tasks.into_iter().map(|task| {
                    let waits_for = waits_for(&task);
                    (task, waits_for)
                });
                self.tasks = tasks.collect();
            }
            Change::Requests { requests } => self.requests = requests,
            Change::Mail(progress) => self.messages.meet(progress),
            Change::Config(_) | Change::Usage(_) => {}
        }
    }
}

/// Keeps a [`Scene`] up to date.
#[derive(Debug)]
pub(crate) struct Observer {
    team: TeamDir,
    feed: Feed,
    followed: Option<Tail>,
    scene: Scene,
}

impl Observer {
    /// Knows nothing yet.
    pub(crate) fn of(team: &TeamDir) -> Self {
        let (feed, scene) = (Feed::of(team), Scene::default());
        Self { team: team.clone(), feed, followed: None, scene }
    }

    /// The team as of the last look.
    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Follows the conversation of `name`, and nobody else's.
    pub(crate) fn follow(&mut self, name: &str) {
        if self.scene.conversation.name == name {
            return;
        }
        self.scene.conversation = Conversation { name: name.to_owned(), ..Conversation::default() };
        let known = AgentName::mailbox(name).ok();
        self.followed = known.map(|name| Tail::of_last(self.team.transcript(&name), LOOK_BACK));
        self.read_on();
    }

    /// Looks at everything again; `true` when something is new.
    pub(crate) fn look(&mut self) -> bool {
        let before = self.scene.trouble.take();
        let mut is_news = false;
        match self.feed.look() {
            Ok(mut changes) => {
                is_news |= !changes.is_empty();
                if self.scene.messages.len() == 0 {
                    in_order(&mut changes);
                }
                for change in changes {
                    self.scene.apply(change);
                }
            }
            Err(why) => self.scene.trouble = Some(why.to_string()),
        }
        is_news |= self.read_on();
        is_news || self.scene.trouble != before
    }

    /// Takes in what the followed conversation has got since; `true` when it has.
    fn read_on(&mut self) -> bool {
        let Some(tail) = &mut self.followed else { return false };
        let before = tail.file();
        let new = match tail.read_new() {
            Ok(new) => new,
            Err(why) => {
                self.scene.trouble = Some(why.to_string());
                return false;
            }
        };
        let lines = &mut self.scene.conversation.lines;
        let is_another = before.is_some() && before != tail.file();
        if is_another {
            lines.clear();
        }
        let is_longer = !new.is_empty();
        lines.extend(new.iter().filter_map(|line| Line::read(line)));
        lines.drain(..lines.len().saturating_sub(LINES));
        is_another || is_longer
    }
}

/// What is found at first was read file by file: it is put into the order of its times.
fn in_order(changes: &mut [Change]) {
    let time = |change: &Change| match change {
        Change::Mail(progress) => progress.timestamp.unwrap_or_default().as_secs(),
        Change::Config(_)
        | Change::Team { .. }
        | Change::Members { .. }
        | Change::Tasks { .. }
        | Change::Requests { .. }
        | Change::Usage(_) => 0.0,
    };
    changes.sort_by(|a, b| time(a).total_cmp(&time(b)));
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;
    use crate::store::Transcript;
    use crate::wire::transcript::Entry;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    fn place() -> (tempfile::TempDir, TeamDir) {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, team)
    }

    fn write_to(team: &TeamDir, name: &AgentName, text: &str, at: crate::wire::WallTime) {
        let mut inbox =
            OpenOptions::new().create(true).append(true).open(team.inbox(name)).unwrap();
        writeln!(
            inbox,
            r#"{{"from":"user","content":"{text}","id":"user:{text}","timestamp":{at}}}"#
        )
        .unwrap();
    }

    fn said(scene: &Scene) -> Vec<(&str, Stage)> {
        scene.messages.iter().map(|progress| (progress.content.as_str(), progress.stage)).collect()
    }

    fn note(text: &str) -> Line {
        Line { at: 5.0.into(), entry: Entry::Note { content: text.into() } }
    }

    #[test]
    fn what_lies_in_several_files_is_one_stream() {
        let (_folder, team) = place();
        let (lead, user) = (AgentName::lead(), AgentName::user());
        write_to(&team, &lead, "second", 2.0.into());
        write_to(&team, &lead, "third", 3.0.into());
        write_to(&team, &user, "first", 1.0.into());
        let mut observer = Observer::of(&team);
        assert!(observer.look());
        assert!(!observer.look(), "nothing has changed");
        let texts: Vec<_> = said(observer.scene()).into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["first", "second", "third"]);
        let line = fs::read_to_string(team.inbox(&user)).unwrap();
        let message = serde_json::from_str(&line).unwrap();
        let taken = Entry::Mail { claim: "000000000001-a".into(), offset: 0, message };
        let mut transcript = Transcript::open(&team, &user).unwrap();
        transcript.append(&Line { at: 9.0.into(), entry: taken }).unwrap();
        assert!(observer.look());
        assert_eq!(said(observer.scene()).first(), Some(&("first", Stage::Acknowledged)));
        assert_eq!(observer.scene().messages.len(), 3);
    }

    #[test]
    fn of_a_long_conversation_only_the_end_is_read() {
        let (_folder, team) = place();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        for _ in 0..40 {
            transcript.append(&note(&"x".repeat(100_000))).unwrap();
        }
        transcript.append(&note("the end")).unwrap();
        let mut observer = Observer::of(&team);
        observer.look();
        observer.follow("lead");
        let lines = &observer.scene().conversation.lines;
        assert!((2..12).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines.back(), Some(&note("the end")));
        let kept = team.archive().join("lead-000001.jsonl");
        fs::rename(team.transcript(&AgentName::lead()), kept).unwrap();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        transcript.append(&note("a new one")).unwrap();
        assert!(observer.look());
        let lines = &observer.scene().conversation.lines;
        assert_eq!(lines.iter().collect::<Vec<_>>(), [&note("a new one")]);
    }

    #[test]
    fn what_cannot_be_read_is_told_for_as_long() {
        let (_folder, team) = place();
        let mut observer = Observer::of(&team);
        let path = team.transcript(&AgentName::lead());
        fs::create_dir(&path).unwrap();
        assert!(observer.look());
        assert!(observer.scene().trouble.is_some());
        assert!(!observer.look(), "the same trouble is told once");
        fs::remove_dir(&path).unwrap();
        write_to(&team, &AgentName::lead(), "now", 1.0.into());
        assert!(observer.look());
        assert!(observer.scene().trouble.is_none());
        assert_eq!(observer.scene().messages.len(), 1);
    }

    #[test]
    fn only_the_latest_messages_are_kept() {
        let mut messages = MessageList::default();
        let progress = |number: usize, stage| MessageProgress {
            id: number.to_string(),
            kind: "message".into(),
            from: "a".into(),
            to: "b".into(),
            content: String::new(),
            timestamp: None,
            stage,
        };
        for number in 0..MESSAGES + 10 {
            messages.meet(progress(number, Stage::Appended));
        }
        messages.meet(progress(MESSAGES, Stage::Answered));
        messages.meet(progress(MESSAGES, Stage::Claimed));
        assert_eq!(messages.len(), MESSAGES);
        assert_eq!(messages.iter().next().unwrap().id, "10");
        assert_eq!(messages.iter().nth_back(9).unwrap().stage, Stage::Answered);
    }
}
