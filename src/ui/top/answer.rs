//! The person's answer to a question: it binds to the question that is open, and an approval counts only after all of the
//! question was shown.

use super::super::question::TypedAnswer;
use super::items::waiting;
use super::keys::Key;
use super::question::OpenQuestion;
use super::{Action, Mode, Notice, Opened, Top};
use crate::view::Snapshot;
use crate::view::change::PendingQuestion;
use crate::wire::permission::RuleScope;

/// The keys of the scopes.
pub(super) const SCOPE_KEYS: [(char, RuleScope); 4] = [
    ('a', RuleScope::Agent),
    ('s', RuleScope::Session),
    ('t', RuleScope::Team),
    ('g', RuleScope::Good),
];

impl Top {
    pub(super) fn open_question(&mut self, asked: &PendingQuestion) {
        self.open_text(Opened::Question(Box::new(OpenQuestion::of(asked))));
    }

    /// Opens the question after the open one; else one of the selected agent, or the first one.
    pub(super) fn open_next_question(&mut self, snapshot: &Snapshot) {
        let all: Vec<_> = waiting(snapshot).collect();
        let after = match &self.opened {
            Some(Opened::Question(open)) => all
                .iter()
                .position(|it| it.question.request_id == open.asked.question.request_id)
                .and_then(|at| all.get(at + 1).or(all.first())),
            _ => all.iter().find(|it| it.from == self.selected_agent()),
        };
        match after.or(all.first()) {
            None => self.fail("No open questions"),
            Some(asked) => {
                let is_open = matches!(&self.opened, Some(Opened::Question(open))
                    if open.asked.question == asked.question);
                if is_open {
                    self.notify(Notice::Fine("No other open question".into()));
                } else {
                    self.open_question(asked);
                }
            }
        }
    }

    /// Asks for the reason of a no.
    pub(super) fn refuse(&mut self, snapshot: &Snapshot) {
        let Some(Opened::Question(open)) = &self.opened else { return };
        match open.refusal(snapshot) {
            None => self.mode = Some(Mode::Reason { text: String::new() }),
            Some(why) => self.fail(why),
        }
    }

    /// Approves the open question, if it still waits and all of it was shown.
    pub(super) fn approve(&mut self, answer: TypedAnswer, snapshot: &Snapshot) -> Option<Action> {
        let Some(Opened::Question(open)) = &self.opened else { return None };
        let is_always = matches!(answer, TypedAnswer::Always(_));
        match open.refusal(snapshot).or_else(|| open.objection(is_always)) {
            None => self.answer(answer),
            Some(why) => {
                self.fail(why);
                None
            }
        }
    }

    /// Asks for whom and how long the call of the open question is allowed from now on.
    pub(super) fn ask_for_scope(&mut self, snapshot: &Snapshot) {
        let Some(Opened::Question(open)) = &self.opened else { return };
        match open.refusal(snapshot).or_else(|| open.objection(true)) {
            None => self.mode = Some(Mode::Scope),
            Some(why) => self.fail(why),
        }
    }

    pub(super) fn choose_scope(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        let scope = SCOPE_KEYS.into_iter().find(|(meant, _)| Key::Char(*meant) == key);
        match scope {
            Some((_, scope)) => self.approve(TypedAnswer::Always(scope), snapshot),
            None => {
                self.notify(Notice::Fine("Nothing was answered".into()));
                None
            }
        }
    }

    /// Answers the open question, and closes it.
    fn answer(&mut self, answer: TypedAnswer) -> Option<Action> {
        let Some(Opened::Question(open)) = self.opened.take() else { return None };
        let PendingQuestion { from, question, .. } = open.asked;
        Some(Action::Answer { from, question: Box::new(question), answer })
    }

    pub(super) fn type_reason(
        &mut self,
        key: Key,
        mut text: String,
        snapshot: &Snapshot,
    ) -> Option<Action> {
        if key == Key::Esc {
            return None;
        }
        let Some(Opened::Question(open)) = &self.opened else { return None };
        if key != Key::Enter {
            key.edit(&mut text);
            self.mode = Some(Mode::Reason { text });
        } else if let Some(why) = open.refusal(snapshot) {
            self.fail(why);
        } else {
            let reason = text.trim().to_owned();
            return self.answer(TypedAnswer::No((!reason.is_empty()).then_some(reason)));
        }
        None
    }
}
