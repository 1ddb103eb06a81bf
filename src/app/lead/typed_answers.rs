//! The person's answers to questions at the lead's terminal.
//!
//! *Invariant:* an answer is for the question that was on the screen when it was typed, and an approval counts only after
//! all of the question was shown.

use super::question_queue::WaitingQuestion;
use crate::app::requests::{decision_of, editable_text, with_text};
use crate::protocol::request::RequestVerdict;
use crate::tools::approval_decision::Decider;
use crate::ui::question::{NOT_AN_ANSWER, TypedAnswer, look_first, summary, understand, whole};
use crate::view::requests::visible;
use crate::wire::permission::{Question, QuestionKind, RuleScope};
use std::time::Duration;

use super::approvals::Approvals;

/// The time for which answers are ignored after the question in front was withdrawn: they were meant for that one.
const IGNORE_AFTER_REPLACEMENT: Duration = Duration::from_secs(1);

impl Approvals {
    /// Puts a question off, so that the input is free.
    pub(super) fn put_off(&mut self, id: &str) {
        self.queue.put_off(id);
        self.notify("postponed: Enter shows it again, /requests lists open questions".into());
    }

    /// Asks the questions again that were put off; returns whether there was one.
    pub(super) fn ask_again(&mut self) -> bool {
        self.queue.ask_again()
    }

    /// Lists what waits, with the numbers for an answer.
    pub(super) fn list(&self) -> String {
        if self.count() == 0 {
            return "No open questions.".into();
        }
        let row = |waiting: &WaitingQuestion| {
            let what = summary(waiting.question());
            let asker = self.label_of(&waiting.asked.owner, waiting.question());
            format!("  {}  {asker} asks to {what}\n", waiting.number)
        };
        let rows: String = self.queue.all().iter().map(row).collect();
        format!("{rows}/requests N shows all of one; /approve N, /deny N WHY answer it")
    }

    /// Renders all of the question with this number.
    pub(super) fn show_all(&mut self, number: u64) -> String {
        let Some(waiting) = self.queue.by_number(number) else { return no_question(number) };
        let id = waiting.id().to_owned();
        let text = format!("{} asks to {}\n", waiting.asked.owner, summary(waiting.question()));
        let text = text + &whole(waiting.question());
        if let Some(waiting) = self.queue.get(&id) {
            waiting.omitted = Some(0);
        }
        text
    }

    /// Answers the question with this number.
    pub(super) fn answer_number(&mut self, number: u64, said: TypedAnswer) {
        match self.queue.by_number(number).map(|waiting| waiting.id().to_owned()) {
            Some(id) => self.answer(&id, said),
            None => self.notify(no_question(number)),
        }
    }

    /// Takes the end of the person's editor. A changed question is asked again.
    pub(super) fn on_edited(&mut self, id: &str, text: Result<String, String>) {
        let text = match text {
            Ok(text) => text,
            Err(why) => return self.notify(why),
        };
        let waiting = self.queue.get(id);
        let changed = waiting.and_then(|it| Some((with_text(it.question(), &text)?, it)));
        let Some((changed, waiting)) = changed else {
            let text = visible(&text);
            return self.notify(format!("the question is no longer open; your text was:\n{text}"));
        };
        (waiting.edited, waiting.omitted) = (Some(changed), None);
        self.notify("changed; y runs the changed version:".into());
    }

    /// Takes a line that was typed without a pane as the answer to the question in front. Returns `false` if there is
    /// no question, or the line is a command of the prompt.
    pub(super) fn answer_line(&mut self, line: &str) -> bool {
        let Some(front) = self.queue.front() else { return false };
        let id = front.id().to_owned();
        let line = line.trim();
        if line.is_empty() || line.starts_with(['/', '@']) {
            return false;
        }
        if self.is_replaced() {
            return true;
        }
        self.reply(&id, line);
        true
    }

    /// Takes a line that was typed under the question with this id.
    pub(super) fn reply(&mut self, id: &str, line: &str) {
        if self.queue.get(id).is_none() {
            return self.notify("that question is no longer open; nothing was answered".into());
        }
        match understand(line) {
            Some(said) => self.answer(id, said),
            None if line.trim().is_empty() => {}
            None => self.notify(NOT_AN_ANSWER.into()),
        }
    }

    /// Takes a key that answers the question on the screen.
    pub(super) fn answer_key(&mut self, key: char, question: Option<&str>) {
        let front = self.queue.front().map(|front| front.id().to_owned());
        let Some(id) = front else { return self.notify("there is no open question".into()) };
        if self.is_replaced() || question.is_none_or(|shown| shown != id) {
            return self.notify("the question has just changed: read it again, then answer".into());
        }
        self.answer(
            &id,
            match key {
                'y' => TypedAnswer::Yes,
                'a' => TypedAnswer::Always(RuleScope::Team),
                _ => TypedAnswer::No(None),
            },
        );
    }

    /// Whether the question in front came just now in place of another, for which the answer was meant.
    fn is_replaced(&mut self) -> bool {
        self.replaced_at.take().is_some_and(|at| at.elapsed() < IGNORE_AFTER_REPLACEMENT)
    }

    fn answer(&mut self, id: &str, said: TypedAnswer) {
        use TypedAnswer::{Always, Instead, No, Yes};
        let Some(waiting) = self.queue.get(id) else { return };
        let question = waiting.question().clone();
        let said = match said {
            TypedAnswer::ShowWhole => {
                waiting.omitted = Some(0);
                let shown = waiting.whole.clone();
                return self.notify(if shown.is_empty() { whole(&question) } else { shown });
            }
            TypedAnswer::Edit => return self.notify(no_editor(&question).into()),
            Yes | Always(_) => match waiting.omitted {
                None => {
                    return self.notify("a new question has just appeared: read it first".into());
                }
                Some(omitted) if omitted > 0 => return self.notify(look_first(omitted)),
                // The person reads each plan, so this answer covers one plan only.
                Some(_) if question.about == QuestionKind::Plan => Yes,
                Some(_) => said,
            },
            No(_) | Instead(_) => said,
        };
        let Some(mut decision) = decision_of(&question, said) else {
            return self.notify(
                "only a command can be retyped here; e alone opens a file in your editor".into(),
            );
        };
        if let Some(WaitingQuestion { asked, .. }) = self.queue.remove(id) {
            let is_yes = decision.verdict == RequestVerdict::Approve;
            if is_yes && asked.question.input != question.input {
                decision.updated_input.get_or_insert(question.input);
            }
            self.decide(asked, Decider::Person, decision);
        }
    }
}

fn no_question(number: u64) -> String {
    format!("no question has the number {number}; /requests lists open questions")
}

/// The reason for which the line `e` opens no editor.
fn no_editor(question: &Question) -> &'static str {
    if editable_text(question).is_some() {
        "this terminal cannot be handed to an editor; write e and the command, or n and why"
    } else {
        "this question has nothing to edit; say y, or n and why"
    }
}
