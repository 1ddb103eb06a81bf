//! The terminal of a teammate: the progress that it shows, and the person's answers to its questions.

use crate::agent::event::{ApprovalEvent, MachineEvent, StopCause};
use crate::agent::{Events, progress::Progress};
use crate::app::requests::{decision_of, own_decision};
use crate::app::{context::Context, output};
use crate::error::{Failure, OrFail};
use crate::os::terminal_size;
use crate::ui::live::Live;
use crate::ui::question::{self, TypedAnswer};
use crate::wire::permission::{Decision, DecisionOutcome, PermissionMode, Question, QuestionKind};
use std::cell::{Cell, RefCell};
use std::io::BufRead;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) type OpenQuestion = Arc<Mutex<Option<Question>>>;

/// Returns a handler that shows progress on the teammate's own terminal. With `once`, the handler stops the agent
/// when it is idle after a turn.
pub(super) fn progress_handler(
    context: &Context,
    is_by_hand: bool,
    once: bool,
    open: OpenQuestion,
    events: Events,
) -> Rc<dyn Fn(&Progress)> {
    let had_turn = Cell::new(false);
    let live = RefCell::new(Live::new(context.palette()));
    Rc::new(move |progress| {
        if is_by_hand {
            let rows = live.borrow_mut().rows(progress, terminal_size::columns());
            if !rows.is_empty() {
                // The agent continues if stdout is closed.
                let _printed = output::print(&rows);
            }
        }
        if let Progress::Asked(question) = progress {
            *open.lock().unwrap_or_else(PoisonError::into_inner) = Some((**question).clone());
        }
        if matches!(progress, Progress::TurnEnded { .. }) {
            had_turn.set(true);
        }
        if *progress == Progress::Idle && once && had_turn.get() {
            let _ended = events.send(MachineEvent::Stop(StopCause::AtOnce).into());
        }
    })
}

/// Reads the person's answers on a thread, which ends with the process.
pub(super) fn read_answers(open: OpenQuestion, events: Events) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(move || forward_answers(&open, &events))
        .or_fail(
            "the terminal cannot be listened to",
            "close other programs, and start it again",
        )?;
    Ok(())
}

fn forward_answers(open: &OpenQuestion, events: &Events) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if question::understand(&line) == Some(TypedAnswer::ShowWhole)
            && let Some(question) = open.as_ref()
        {
            output::warn(&question::whole(question));
            continue;
        }
        let Some(decision) = open.as_ref().and_then(|question| decision(question, &line)) else {
            output::warn("(answer with y, n, n WHY, always or e COMMAND when something is asked)");
            continue;
        };
        *open = None;
        if events.send(ApprovalEvent::Answered(decision).into()).is_err() {
            return;
        }
    }
}

/// Turns a typed line into a decision; `None` if the line is no answer.
fn decision(question: &Question, line: &str) -> Option<Decision> {
    let decision = decision_of(question, question::understand(line)?)?;
    let decision = own_decision(&question.request_id, decision);
    let is_approved_plan =
        question.about == QuestionKind::Plan && decision.outcome == DecisionOutcome::Approved;
    Some(Decision { mode: is_approved_plan.then_some(PermissionMode::AcceptEdits), ..decision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::Scope;
    use serde_json::json;

    #[test]
    fn a_typed_line_decides_the_open_question() {
        let ask = |about, tool: &str| Question {
            request_id: "r1".into(),
            about,
            tool_use_id: "t1".into(),
            tool: tool.into(),
            input: json!({ "command": "ls" }),
            description: "ls".into(),
        };
        let (call, plan) = (QuestionKind::Permission, QuestionKind::Plan);
        let (yes, no) = (DecisionOutcome::Approved, DecisionOutcome::Rejected);
        // An approved plan lets the teammate edit.
        let edits = Some(PermissionMode::AcceptEdits);
        for (about, line, decided) in [
            (call, "y", Some((yes, Scope::Once, None, None))),
            (call, "always", Some((yes, Scope::Always, None, None))),
            (call, "n too slow", Some((no, Scope::Once, Some("too slow".to_owned()), None))),
            (call, "perhaps", None),
            (plan, "y", Some((yes, Scope::Once, None, edits))),
            (plan, "n", Some((no, Scope::Once, None, None))),
        ] {
            let of = |it: Decision| (it.outcome, it.scope, it.reason, it.mode);
            assert_eq!(decision(&ask(about, "bash"), line).map(of), decided, "{about:?} {line}");
        }
        let other = decision(&ask(call, "bash"), "e ls -a").unwrap();
        assert_eq!(other.updated_input, Some(json!({ "command": "ls -a" })));
        assert_eq!(decision(&ask(call, "read_file"), "e ls -a"), None);
    }
}
