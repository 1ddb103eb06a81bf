//! Answers of the person: the lead gives each one again once its question is asked and the team is as far as it was, and
//! mail reaches a member while it waits for one.

use super::delivery::Delivery;
use super::recorded_answers::RecordedAnswer;
use super::shared::{Shared, Window};
use super::{LOOK_INTERVAL, Player, SLOW_INTERVAL};
use crate::tools::approval_decision::ApprovalDecision;
use std::rc::Rc;

impl Player {
    /// Whether the lead itself has asked the person.
    pub(crate) fn asks_person(&self) -> bool {
        self.answers.iter().any(|answer| answer.owner.is_lead())
    }

    /// Whether the person answers this question.
    pub(crate) fn has_answer(&self, id: &str) -> bool {
        self.answers.iter().any(|answer| answer.id == id)
    }

    /// Returns the next answer of the person at its time, with the id of its question. It is the next one until it is
    /// [given](Self::give): a question is in the transcript a moment before it can be answered.
    pub(crate) async fn next_answer(&self) -> (String, ApprovalDecision) {
        loop {
            tokio::time::sleep(SLOW_INTERVAL).await;
            let given = self.given.borrow().clone();
            if given.len() == self.answers.len() {
                std::future::pending::<()>().await;
            }
            let answers = self.answers.clone();
            let is_due = move |shared: &mut Shared| {
                let mut left = answers.iter().filter(|answer| !given.contains(&answer.id));
                left.find(|answer| shared.is_due(answer)).cloned()
            };
            if let Some(RecordedAnswer { id, decision, .. }) = self.look(is_due).await {
                return (id, decision);
            }
        }
    }

    /// Notes that the answer to this question was given.
    pub(crate) fn give(&self, id: String) {
        self.given.borrow_mut().insert(id);
    }

    /// Delivers the mail that comes while this member waits for an answer, which is among it.
    pub(super) async fn deliver_to_asker(self: Rc<Self>) {
        // The member acts on an answer after all mail of the same drain is recorded.
        let next = |shared: &Shared| {
            let due = shared.due(false);
            let Some(first) = due.first() else { return Vec::new() };
            let is_with_first = |it: &&Delivery| first.is_answer() && it.comes_with(first);
            let rest = due.iter().skip(1).take_while(is_with_first);
            let all = std::iter::once(first).chain(rest);
            all.map(|it| it.clone().ordered_at(first.ordered_at)).collect()
        };
        loop {
            // An answer that the record does not have comes at once, such as that nobody can answer.
            let look = |shared: &mut Shared| {
                shared.release_unexpected();
                (shared.is_asking(), shared.strayed.is_none())
            };
            let (is_asking, is_followed) = self.look(look).await;
            if !is_asking {
                return;
            }
            if is_followed {
                self.deliver_before_next_call(Window::Now, next).await;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Shared {
    /// Whether this member waits for an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.members.iter().any(|member| member.name == self.me && !member.asked.is_empty())
    }

    /// Whether a question is open, and the team as far as it was at the answer. A question whose answer comes after the end
    /// stays open.
    fn is_due(&self, answer: &RecordedAnswer) -> bool {
        let is_open = self.members.iter().any(|member| member.asked.contains(&answer.id));
        let is_time =
            || answer.at < self.end && self.is_time(answer.at) && self.have_all_reached(answer.at);
        is_open && (self.strayed.is_some() || is_time())
    }
}
