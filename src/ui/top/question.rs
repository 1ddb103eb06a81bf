//! An open question, and the rules for an answer to it.

use crate::view::Snapshot;
use crate::view::change::PendingQuestion;
use crate::view::requests::counted;
use crate::wire::permission::QuestionKind;
use std::ops::Range;

/// A question that is shown in full.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    /// The question as it was opened: an answer is one to this question and to no other.
    pub(super) asked: PendingQuestion,
    /// For each row, whether it was on the screen; empty before it is drawn.
    seen: Vec<bool>,
    /// The width of these rows.
    width: usize,
    /// Whether every row was on the screen.
    is_seen: bool,
}

impl OpenQuestion {
    pub(super) fn of(asked: &PendingQuestion) -> Self {
        Self { asked: asked.clone(), seen: Vec::new(), width: 0, is_seen: false }
    }

    /// Records that these of `all` rows are on the screen. Rows of another width are other rows.
    pub(super) fn draw(&mut self, shown: Range<usize>, all: usize, width: usize) {
        if (self.seen.len(), self.width) != (all, width) {
            (self.seen, self.width) = (vec![false; all], width);
        }
        let shown = self.seen.get_mut(shown.start.min(all)..shown.end.min(all));
        shown.unwrap_or_default().fill(true);
        self.is_seen |= self.seen.iter().all(|seen| *seen);
    }

    /// Returns the number of rows that were not on the screen yet; `None` before it is drawn.
    pub(super) fn unseen(&self) -> Option<usize> {
        if self.is_seen {
            return Some(0);
        }
        let unseen = self.seen.iter().filter(|seen| !**seen).count();
        (!self.seen.is_empty()).then_some(unseen)
    }

    /// Whether the question still waits for an answer, unchanged.
    pub(super) fn still_waits(&self, snapshot: &Snapshot) -> bool {
        let is_this =
            |it: &PendingQuestion| it.from == self.asked.from && it.question == self.asked.question;
        snapshot.requests.iter().any(is_this)
    }

    /// Returns the reason for which no answer to the question counts now, if there is one.
    pub(super) fn refusal(&self, snapshot: &Snapshot) -> Option<String> {
        let from = &self.asked.from;
        if !self.still_waits(snapshot) {
            Some("This question is no longer open: nothing was answered".into())
        } else if !snapshot.member(from).is_some_and(|member| member.alive) {
            Some(format!("{from} is not running; it asks again when it is"))
        } else {
            None
        }
    }

    /// Returns the reason for which the question cannot be approved now, if there is one.
    pub(super) fn objection(&self, is_always: bool) -> Option<String> {
        match self.unseen() {
            _ if is_always && self.asked.question.about == QuestionKind::Plan => {
                Some("A plan can only be approved once: y or n".into())
            }
            None => Some("Not yet: read it first".into()),
            Some(0) => None,
            Some(unseen) => {
                let unseen = counted(unseen);
                Some(format!("Not yet: {unseen} not shown so far; space shows more"))
            }
        }
    }
}
