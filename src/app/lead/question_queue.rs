//! The questions that wait for the person: which one is in front, which are put off, what was shown of each.
//!
//! A question has a number for as long as the session lasts, so that an answer by number never means another one.

use crate::tools::approval_queue::QueuedRequest;
use crate::wire::permission::Question;

/// A question that waits for the person.
#[derive(Debug, Clone)]
pub(super) struct WaitingQuestion {
    pub(super) number: u64,
    pub(super) asked: QueuedRequest,
    /// The question as the person has changed it in an editor.
    pub(super) edited: Option<Question>,
    /// The number of rows that were left out when it was shown; `None` until it is shown.
    pub(super) omitted: Option<usize>,
    /// The whole subject as it was when it was shown; a file may change meanwhile.
    pub(super) whole: String,
    is_put_off: bool,
}

impl WaitingQuestion {
    pub(super) fn id(&self) -> &str {
        &self.asked.question.request_id
    }

    /// Returns the question with the changes of the person.
    pub(super) fn question(&self) -> &Question {
        self.edited.as_ref().unwrap_or(&self.asked.question)
    }
}

#[derive(Debug, Default)]
pub(super) struct QuestionQueue {
    waiting: Vec<WaitingQuestion>,
    last_number: u64,
}

impl QuestionQueue {
    pub(super) fn push(&mut self, asked: QueuedRequest) {
        self.last_number += 1;
        let number = self.last_number;
        let (edited, omitted, whole) = (None, None, String::new());
        let is_put_off = false;
        self.waiting.push(WaitingQuestion { number, asked, edited, omitted, whole, is_put_off });
    }

    pub(super) fn all(&self) -> &[WaitingQuestion] {
        &self.waiting
    }

    /// Returns the question that the person is asked: the oldest that is not put off.
    pub(super) fn front(&self) -> Option<&WaitingQuestion> {
        self.to_ask().next()
    }

    /// Returns the questions that are not put off, the oldest first.
    pub(super) fn to_ask(&self) -> impl Iterator<Item = &WaitingQuestion> {
        self.waiting.iter().filter(|waiting| !waiting.is_put_off)
    }

    /// Returns the place of a question among those that are not put off, from 1, and their number.
    pub(super) fn position(&self, id: &str) -> (usize, usize) {
        let place = self.to_ask().position(|waiting| waiting.id() == id).map_or(1, |at| at + 1);
        (place, self.to_ask().count())
    }

    pub(super) fn get(&mut self, id: &str) -> Option<&mut WaitingQuestion> {
        self.waiting.iter_mut().find(|waiting| waiting.id() == id)
    }

    pub(super) fn by_number(&self, number: u64) -> Option<&WaitingQuestion> {
        self.waiting.iter().find(|waiting| waiting.number == number)
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<WaitingQuestion> {
        let at = self.waiting.iter().position(|waiting| waiting.id() == id)?;
        Some(self.waiting.remove(at))
    }

    /// Puts a question off; it waits on, and is asked again by [`Self::ask_again`].
    pub(super) fn put_off(&mut self, id: &str) {
        if let Some(waiting) = self.get(id) {
            waiting.is_put_off = true;
        }
    }

    /// Asks the questions again that were put off; returns whether there was one.
    pub(super) fn ask_again(&mut self) -> bool {
        let had_some = self.waiting.iter().any(|waiting| waiting.is_put_off);
        for waiting in &mut self.waiting {
            if std::mem::take(&mut waiting.is_put_off) {
                waiting.omitted = None;
            }
        }
        had_some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AgentName;
    use serde_json::json;

    fn queue(ids: &[&str]) -> QuestionQueue {
        let mut queue = QuestionQueue::default();
        for id in ids {
            let question = json!({"request_id": id, "tool_use_id": "t", "about": "permission",
                "tool": "bash", "description": "ls", "input": {"command": "ls"}});
            let question = serde_json::from_value(question).unwrap();
            let owner = AgentName::member("alice").unwrap();
            queue.push(QueuedRequest { question, owner, incarnation: "i".into() });
        }
        queue
    }

    #[test]
    fn a_question_that_is_put_off_waits_and_comes_back() {
        let mut queue = queue(&["a", "b", "c"]);
        assert_eq!((queue.front().unwrap().id(), queue.position("a")), ("a", (1, 3)));
        queue.put_off("a");
        assert_eq!((queue.front().unwrap().id(), queue.position("b")), ("b", (1, 2)));
        queue.put_off("b");
        queue.put_off("c");
        assert!(queue.front().is_none() && queue.all().len() == 3);
        assert!(queue.ask_again() && !queue.ask_again());
        assert_eq!(queue.front().unwrap().id(), "a");
    }

    #[test]
    fn a_number_never_means_another_question() {
        let mut queue = queue(&["a", "b"]);
        assert_eq!(queue.by_number(2).unwrap().id(), "b");
        assert!(queue.remove("b").is_some() && queue.remove("b").is_none());
        assert!(queue.by_number(2).is_none());
        queue.push(queue.by_number(1).unwrap().asked.clone());
        assert_eq!(queue.all().last().unwrap().number, 3);
    }
}
