//! All that a late visitor is told first: the changes so far, folded to what still counts.

use super::{Change, Letter, Seat, Splice};
use std::collections::VecDeque;

/// Messages and calls that are remembered.
const LETTERS: usize = 500;
const CALLS: usize = 5000;

/// The state that a feed of changes adds up to.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    config: Vec<String>,
    seats: Vec<Seat>,
    tasks: Option<Change>,
    requests: Option<Change>,
    letters: VecDeque<Letter>,
    calls: VecDeque<Change>,
}

impl Picture {
    /// Takes a change in.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Config(splice) => splice.apply(&mut self.config),
            Change::Team { seats } => self.seats = seats,
            Change::Seats { seats } => take_seats(&mut self.seats, seats),
            Change::Tasks { .. } => self.tasks = Some(change),
            Change::Requests { .. } => self.requests = Some(change),
            Change::Usage(_) => {
                self.calls.push_back(change);
                if self.calls.len() > CALLS {
                    self.calls.pop_front();
                }
            }
            Change::Mail(letter) => self.keep(letter),
        }
    }

    fn keep(&mut self, letter: Letter) {
        // A message that still moves is one of the last.
        if let Some(known) = self.letters.iter_mut().rev().find(|known| known.id == letter.id) {
            known.stage = known.stage.max(letter.stage);
            return;
        }
        self.letters.push_back(letter);
        if self.letters.len() > LETTERS {
            self.letters.pop_front();
        }
    }

    /// The changes that lead from nothing to this.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let config = Splice::between(&[], &self.config).map(Change::Config);
        let team = Change::Team { seats: self.seats.clone() };
        let whole = [&self.tasks, &self.requests].into_iter().flatten().cloned();
        let letters = self.letters.iter().cloned().map(Change::Mail);
        let calls = self.calls.iter().cloned();
        config.into_iter().chain([team]).chain(whole).chain(calls).chain(letters)
    }
}

/// Puts those that are other than they were where they sat.
pub(super) fn take_seats(seats: &mut [Seat], changed: Vec<Seat>) {
    let mut changed = changed.into_iter().peekable();
    for seat in seats {
        if let Some(new) = changed.next_if(|new| new.name == seat.name) {
            *seat = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;

    fn letter(id: usize, stage: Stage) -> Change {
        Change::Mail(Letter {
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
            picture.apply(letter(1, stage));
        }
        assert_eq!(picture.changes().last(), Some(letter(1, Stage::Answered)));
        assert_eq!(picture.changes().count(), 2, "nobody, and the message");
    }

    #[test]
    fn only_the_last_are_remembered() {
        let mut picture = Picture::default();
        for id in 0..=LETTERS {
            picture.apply(letter(id, Stage::Appended));
        }
        assert_eq!(picture.changes().count(), 1 + LETTERS);
        assert_eq!(picture.changes().nth(1), Some(letter(1, Stage::Appended)));
    }

    #[test]
    fn of_what_is_told_whole_the_last_counts() {
        let mut picture = Picture::default();
        for (gone, text) in [(0, "old"), (1, "new")] {
            picture.apply(Change::Config(Splice { at: 0, gone, lines: vec![text.into()] }));
        }
        let new = Splice { at: 0, gone: 0, lines: vec!["new".into()] };
        assert_eq!(picture.changes().next(), Some(Change::Config(new)));
    }
}
