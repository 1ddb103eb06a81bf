//! A snapshot that follows the files, and one conversation.

use super::change::Change;
use super::feed::Feed;
use super::snapshot::{Conversation, Snapshot};
use crate::store::TeamDir;
use crate::store::tail::Tail;
use crate::wire::AgentName;
use crate::wire::transcript::Line;

/// The part of a conversation that is read when it is first followed, in bytes from its end.
const LOOK_BACK: u64 = 1024 * 1024;

/// The most lines of a conversation that are kept.
const LINES: usize = 4_000;

/// Keeps a [`Snapshot`] up to date.
#[derive(Debug)]
pub(crate) struct Observer {
    team: TeamDir,
    feed: Feed,
    followed: Option<Tail>,
    snapshot: Snapshot,
}

impl Observer {
    /// An observer with an empty snapshot.
    pub(crate) fn of(team: &TeamDir) -> Self {
        let (feed, snapshot) = (Feed::of(team), Snapshot::default());
        Self { team: team.clone(), feed, followed: None, snapshot }
    }

    /// The team as of the last look.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Follows the conversation of `name` instead of the one before.
    pub(crate) fn follow(&mut self, name: &str) {
        if self.snapshot.conversation.name == name {
            return;
        }
        self.snapshot.conversation =
            Conversation { name: name.to_owned(), ..Conversation::default() };
        let known = AgentName::mailbox(name).ok();
        self.followed = known.map(|name| Tail::of_last(self.team.transcript(&name), LOOK_BACK));
        self.read_on();
    }

    /// Reads all files again; `true` if anything has changed.
    pub(crate) fn look(&mut self) -> bool {
        let before = self.snapshot.trouble.take();
        let mut is_news = false;
        match self.feed.look() {
            Ok(mut changes) => {
                is_news |= !changes.is_empty();
                if self.snapshot.messages.len() == 0 {
                    in_order(&mut changes);
                }
                for change in changes {
                    self.snapshot.apply(change);
                }
            }
            Err(why) => self.snapshot.trouble = Some(why.to_string()),
        }
        is_news |= self.read_on();
        is_news || self.snapshot.trouble != before
    }

    /// Reads on in the followed conversation; `true` if it has changed.
    fn read_on(&mut self) -> bool {
        let Some(tail) = &mut self.followed else { return false };
        let before = tail.file();
        let new = match tail.read_new() {
            Ok(new) => new,
            Err(why) => {
                self.snapshot.trouble = Some(why.to_string());
                return false;
            }
        };
        let lines = &mut self.snapshot.conversation.lines;
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

/// Sorts messages by time: the first look reads them file by file.
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
    use super::super::message_progress::Stage;
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

    fn write_to(team: &TeamDir, name: &AgentName, text: &str, at: f64) {
        let mut inbox =
            OpenOptions::new().create(true).append(true).open(team.inbox(name)).unwrap();
        writeln!(
            inbox,
            r#"{{"from":"user","content":"{text}","id":"user:{text}","timestamp":{at}}}"#
        )
        .unwrap();
    }

    fn said(snapshot: &Snapshot) -> Vec<(&str, Stage)> {
        snapshot
            .messages
            .iter()
            .map(|progress| (progress.content.as_str(), progress.stage))
            .collect()
    }

    fn note(text: &str) -> Line {
        Line { at: 5.0.into(), entry: Entry::Note { content: text.into() } }
    }

    #[test]
    fn messages_of_several_files_are_in_the_order_of_their_times() {
        let (_folder, team) = place();
        let (lead, user) = (AgentName::lead(), AgentName::user());
        write_to(&team, &lead, "second", 2.0);
        write_to(&team, &lead, "third", 3.0);
        write_to(&team, &user, "first", 1.0);
        let mut observer = Observer::of(&team);
        assert!(observer.look());
        assert!(!observer.look(), "nothing has changed");
        let texts: Vec<_> = said(observer.snapshot()).into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["first", "second", "third"]);
        let line = fs::read_to_string(team.inbox(&user)).unwrap();
        let message = serde_json::from_str(&line).unwrap();
        let taken = Entry::Mail { claim: "000000000001-a".into(), offset: 0, message };
        let mut transcript = Transcript::open(&team, &user).unwrap();
        transcript.append(&Line { at: 9.0.into(), entry: taken }).unwrap();
        assert!(observer.look());
        assert_eq!(said(observer.snapshot()).first(), Some(&("first", Stage::Acknowledged)));
        assert_eq!(observer.snapshot().messages.len(), 3);
    }

    #[test]
    fn only_the_end_of_a_long_conversation_is_read() {
        let (_folder, team) = place();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        for _ in 0..40 {
            transcript.append(&note(&"x".repeat(100_000))).unwrap();
        }
        transcript.append(&note("the end")).unwrap();
        let mut observer = Observer::of(&team);
        observer.look();
        observer.follow("lead");
        let lines = &observer.snapshot().conversation.lines;
        assert!((2..12).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines.back(), Some(&note("the end")));
        let kept = team.archive().join("lead-000001.jsonl");
        fs::rename(team.transcript(&AgentName::lead()), kept).unwrap();
        let mut transcript = Transcript::open(&team, &AgentName::lead()).unwrap();
        transcript.append(&note("a new one")).unwrap();
        assert!(observer.look());
        let lines = &observer.snapshot().conversation.lines;
        assert_eq!(lines.iter().collect::<Vec<_>>(), [&note("a new one")]);
    }

    #[test]
    fn an_unreadable_file_is_reported_until_it_can_be_read() {
        let (_folder, team) = place();
        let mut observer = Observer::of(&team);
        let path = team.transcript(&AgentName::lead());
        fs::create_dir(&path).unwrap();
        assert!(observer.look());
        assert!(observer.snapshot().trouble.is_some());
        assert!(!observer.look(), "the same trouble is reported once");
        fs::remove_dir(&path).unwrap();
        write_to(&team, &AgentName::lead(), "now", 1.0);
        assert!(observer.look());
        assert!(observer.snapshot().trouble.is_none());
        assert_eq!(observer.snapshot().messages.len(), 1);
    }
}
