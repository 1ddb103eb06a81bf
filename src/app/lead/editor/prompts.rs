//! The prompts of the editor that are not answered yet. Pure.
//!
//! A prompt is *taken* when it is in the conversation, and is answered at the end of the turn that has taken it. Several
//! prompts can be part of one turn.

use crate::acp::served::incoming::{INTERNAL_ERROR, RpcError};
use crate::wire::message::Outcome;
use serde_json::{Value, json};

type Answer = Result<Value, RpcError>;

/// The id of the editor's request, and the answer to it.
pub(super) type PromptAnswer = (Value, Answer);

#[derive(Debug, Default)]
pub(super) struct OpenPrompts {
    /// The oldest first.
    open: Vec<OpenPrompt>,
}

#[derive(Debug)]
struct OpenPrompt {
    /// The id of the editor's request.
    id: Value,
    is_taken: bool,
    is_cancelled: bool,
}

impl OpenPrompts {
    /// Adds a prompt that was sent to the lead's agent.
    pub(super) fn add(&mut self, id: Value) {
        self.open.push(OpenPrompt { id, is_taken: false, is_cancelled: false });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn contains(&self, id: &Value) -> bool {
        self.open.iter().any(|prompt| prompt.id == *id)
    }

    /// Notes that the oldest prompts which were not taken are in the conversation now.
    pub(super) fn take(&mut self, count: usize) {
        let waiting = self.open.iter_mut().filter(|prompt| !prompt.is_taken);
        waiting.take(count).for_each(|prompt| prompt.is_taken = true);
    }

    /// Marks all prompts as cancelled. They are answered when the agent has dropped them, or has ended their turn.
    pub(super) fn cancel(&mut self) {
        self.open.iter_mut().for_each(|prompt| prompt.is_cancelled = true);
    }

    /// Removes the cancelled prompts that the agent has dropped, and returns their answers.
    pub(super) fn dropped(&mut self) -> Vec<PromptAnswer> {
        self.remove(|prompt| prompt.is_cancelled && !prompt.is_taken, |_| Ok(stop(CANCELLED)))
    }

    /// Removes the prompts whose turn has ended, and returns their answers. `text` is the reason of a failed turn.
    pub(super) fn end_turn(&mut self, outcome: Outcome, text: &str) -> Vec<PromptAnswer> {
        self.remove(
            |prompt| prompt.is_taken,
            |prompt| match outcome {
                _ if prompt.is_cancelled => Ok(stop(CANCELLED)),
                Outcome::Done => Ok(stop("end_turn")),
                // Without an interrupt of the person, only a limit ends a turn early.
                Outcome::Interrupted => Ok(stop("max_turn_requests")),
                Outcome::Failed => Err(RpcError::new(INTERNAL_ERROR, text)),
            },
        )
    }

    /// Removes all prompts, because the session is over for this reason, and returns their answers.
    pub(super) fn end(&mut self, why: &str) -> Vec<PromptAnswer> {
        self.remove(
            |_| true,
            |prompt| {
                let is_cancelled = prompt.is_cancelled;
                if is_cancelled {
                    Ok(stop(CANCELLED))
                } else {
                    Err(RpcError::new(INTERNAL_ERROR, why))
                }
            },
        )
    }

    fn remove(
        &mut self,
        is_over: impl Fn(&OpenPrompt) -> bool,
        answer: impl Fn(&OpenPrompt) -> Answer,
    ) -> Vec<PromptAnswer> {
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(is_over);
        self.open = open;
        let over: Vec<OpenPrompt> = over;
        over.into_iter().map(|prompt| (prompt.id.clone(), answer(&prompt))).collect()
    }
}

/// The answers to prompts whose turns have ended, which wait for the rest of the team if the person wants that.
#[derive(Debug, Default)]
pub(super) struct HeldAnswers {
    waits_for_team: bool,
    answers: Vec<PromptAnswer>,
    was_at_rest: bool,
}

impl HeldAnswers {
    pub(super) fn new(waits_for_team: bool) -> Self {
        Self { waits_for_team, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Takes the answers that are to wait, and returns the others. An error waits for nothing.
    pub(super) fn hold(&mut self, answers: Vec<PromptAnswer>) -> Vec<PromptAnswer> {
        let waits = |(_, answer): &PromptAnswer| {
            self.waits_for_team && answer.as_ref().is_ok_and(|it| *it != stop(CANCELLED))
        };
        let (held, now): (Vec<PromptAnswer>, Vec<PromptAnswer>) =
            answers.into_iter().partition(waits);
        self.answers.extend(held);
        now
    }

    /// Takes the finding whether the team is at rest. Returns the answers if it was at rest twice in a row.
    pub(super) fn check(&mut self, is_at_rest: bool) -> Vec<PromptAnswer> {
        let is_due = is_at_rest && self.was_at_rest;
        self.was_at_rest = is_at_rest;
        if is_due { self.take() } else { Vec::new() }
    }

    /// Returns all answers, since their prompts are cancelled.
    pub(super) fn cancel(&mut self) -> Vec<PromptAnswer> {
        self.take().into_iter().map(|(id, _)| (id, Ok(stop(CANCELLED)))).collect()
    }

    /// Returns all answers.
    pub(super) fn take(&mut self) -> Vec<PromptAnswer> {
        self.was_at_rest = false;
        std::mem::take(&mut self.answers)
    }
}

/// The reason of a prompt that the person has cancelled.
const CANCELLED: &str = "cancelled";

fn stop(reason: &str) -> Value {
    json!({ "stopReason": reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(ids: &[u64]) -> OpenPrompts {
        let mut prompts = OpenPrompts::default();
        for id in ids {
            prompts.add(json!(id));
        }
        prompts
    }

    fn told(answers: Vec<PromptAnswer>) -> Vec<(u64, String)> {
        let word = |answer: Answer| match answer {
            Ok(value) => value["stopReason"].as_str().unwrap().to_owned(),
            Err(error) => error.message,
        };
        answers.into_iter().map(|(id, answer)| (id.as_u64().unwrap(), word(answer))).collect()
    }

    #[test]
    fn a_prompt_that_came_during_a_turn_is_answered_with_the_turn_that_takes_it() {
        let mut prompts = open(&[1]);
        prompts.take(1);
        prompts.add(json!(2));
        prompts.add(json!(3));
        prompts.take(1);
        let ended = told(prompts.end_turn(Outcome::Done, ""));
        assert_eq!(ended, [(1, "end_turn".into()), (2, "end_turn".into())]);
        assert!(prompts.end_turn(Outcome::Done, "").is_empty() && prompts.contains(&json!(3)));
        prompts.take(1);
        assert_eq!(told(prompts.end_turn(Outcome::Failed, "no key")), [(3, "no key".into())]);
        assert!(prompts.is_empty());
    }

    #[test]
    fn an_answer_waits_until_the_team_was_at_rest_twice() {
        let done = |id: u64| (json!(id), Ok(stop("end_turn")));
        let failed = || (json!(9), Err(RpcError::new(INTERNAL_ERROR, "no key")));
        let mut held = HeldAnswers::new(false);
        assert_eq!(told(held.hold(vec![done(1)])), [(1, "end_turn".into())]);
        let mut held = HeldAnswers::new(true);
        let cancelled = (json!(8), Ok(stop(CANCELLED)));
        let now = told(held.hold(vec![done(1), failed(), cancelled]));
        assert_eq!(now, [(9, "no key".into()), (8, "cancelled".into())]);
        for is_at_rest in [true, false, true] {
            assert!(held.check(is_at_rest).is_empty());
        }
        assert_eq!(told(held.check(true)), [(1, "end_turn".into())]);
        assert!(held.hold(vec![done(2)]).is_empty() && held.check(true).is_empty());
        assert_eq!(told(held.cancel()), [(2, "cancelled".into())]);
        assert!(held.is_empty());
    }

    #[test]
    fn a_cancelled_prompt_is_answered_as_such_and_a_later_one_is_not() {
        let mut prompts = open(&[1, 2]);
        prompts.take(1);
        prompts.cancel();
        prompts.add(json!(3));
        assert_eq!(told(prompts.dropped()), [(2, "cancelled".into())]);
        assert_eq!(told(prompts.end_turn(Outcome::Interrupted, "")), [(1, "cancelled".into())]);
        prompts.take(1);
        let ended = told(prompts.end_turn(Outcome::Interrupted, ""));
        assert_eq!(ended, [(3, "max_turn_requests".into())]);
    }

    #[test]
    fn a_turn_that_ended_before_the_cancel_still_answers_cancelled() {
        let mut prompts = open(&[1, 2]);
        prompts.take(1);
        prompts.cancel();
        assert_eq!(told(prompts.end_turn(Outcome::Done, "")), [(1, "cancelled".into())]);
        assert_eq!(told(prompts.end("over")), [(2, "cancelled".into())]);
        assert_eq!(told(open(&[4]).end("over")), [(4, "over".into())]);
    }
}
