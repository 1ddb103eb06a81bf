//! All that a late visitor is told first: the changes so far, folded to what still counts.

use super::{Change, LineDiff, MemberView, MessageProgress};
use std::collections::VecDeque;

/// Messages and calls that are remembered.
const MESSAGES: usize = 500;
const CALLS: usize = 5000;

/// The state that a feed of changes adds up to.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    config: Vec<String>,
    members: Vec<MemberView>,
    tasks: Option<Change>,
    requests: Option<Change>,
    messages: VecDeque<MessageProgress>,
    calls: VecDeque<Change>,
}

impl Picture {
    /// Takes a change in.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Config(splice) => splice.apply(&mut self.config),
            Change::Team { members } => self.members = members,
            Change::Members { members } => apply_members(&mut self.members, members),
            Change::Tasks { .. } => self.tasks = Some(change),
            Change::Requests { .. } => self.requests = Some(change),
            Change::Usage(_) => {
                self.calls.push_back(change);
                if self.calls.len() > CALLS {
                    self.calls.pop_front();
                }
            }
            Change::Mail(progress) => self.keep(progress),
        }
    }

    fn keep(&mut self, progress: MessageProgress) {
        // A message that still moves is one of the last.
        if let Some(known) = self.messages.iter_mut().rev().find(|known| known.id == progress.id) {
            known.stage = known.stage.max(progress.stage);
            return;
        }
        self.messages.push_back(progress);
        if self.messages.len() > MESSAGES {
            self.messages.pop_front();
        }
    }

    /// The changes that lead from nothing to this.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let config = LineDiff::between(&[], &self.config).map(Change::Config);
        let team = Change::Team { members: self.members.clone() };
        let whole = [&self.tasks, &self.requests].into_iter().flatten().cloned();
        let messages = self.messages.iter().cloned().map(Change::Mail);
        let calls = self.calls.iter().cloned();
        config.into_iter().chain([team]).chain(whole).chain(calls).chain(messages)
    }
}

/// Puts those that are other than they were where they sat.
pub(super) fn apply_members(members: &mut [MemberView], changed: Vec<MemberView>) {
    let mut changed = changed.into_iter().peekable();
    for member in members {
        if let Some(new) = changed.next_if(|new| new.name == member.name) {
            *member = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;

    fn progress(id: usize, stage: Stage) -> Change {
        Change::Mail(MessageProgress {
            id: id.to_string(),
            kind: "message".into(),
            from: "a".into(),
            to: "b".into(),
            content: String::new(),
            timestamp: None,
            stage,
        })
    }

    #[test]
    fn a_message_is_told_once_with_the_furthest_step() {
        let mut picture = Picture::default();
        for stage in [Stage::Appended, Stage::Answered, Stage::Claimed] {
            picture.apply(progress(1, stage));
        }
        assert_eq!(picture.changes().last(), Some(progress(1, Stage::Answered)));
        assert_eq!(picture.changes().count(), 2, "nobody, and the message");
    }

    #[test]
    fn only_the_last_are_remembered() {
        let mut picture = Picture::default();
        for id in 0..=MESSAGES {
            picture.apply(progress(id, Stage::Appended));
        }
        assert_eq!(picture.changes().count(), 1 + MESSAGES);
        assert_eq!(picture.changes().nth(1), Some(progress(1, Stage::Appended)));
    }

    #[test]
    fn of_what_is_told_whole_the_last_counts() {
        let mut picture = Picture::default();
        for (gone, text) in [(0, "old"), (1, "new")] {
            picture.apply(Change::Config(LineDiff { at: 0, gone, lines: vec![text.into()] }));
        }
        let new = LineDiff { at: 0, gone: 0, lines: vec!["new".into()] };
        assert_eq!(picture.changes().next(), Some(Change::Config(new)));
    }
}
