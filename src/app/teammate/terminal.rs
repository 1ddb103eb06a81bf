//! The terminal of a teammate: the progress that it shows, and the person's answers to its questions.

use crate::agent::event::{ApprovalEvent, MachineEvent, StopCause};
use crate::agent::{Events, progress::Progress};
use crate::app::requests::{decision_of, editable_text, own_decision, with_text};
use crate::app::{context::Context, output};
use crate::error::{Failure, OrFail};
use crate::os::terminal_size;
use crate::store::last_output::LastOutput;
use crate::tools::approval_decision::Decider;
use crate::ui::console::EditableText;
use crate::ui::external_editor::ExternalEditor;
use crate::ui::live::Live;
use crate::ui::question::{self, TypedAnswer};
use crate::ui::{style::Palette, view::View};
use crate::view::requests::visible;
use crate::wire::permission::{Decision, DecisionOutcome, PermissionMode, Question, QuestionKind};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::io::{self, BufRead};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The terminal of a teammate that was started by hand: its open question, and the person's editor.
#[derive(Debug, Clone)]
pub(super) struct OwnTerminal {
    palette: Palette,
    state: Arc<Mutex<TerminalState>>,
    editor: ExternalEditor,
}

#[derive(Debug, Default)]
struct TerminalState {
    question: Option<Question>,
    /// The arguments of the call, if the person has changed them in the editor.
    changed: Option<Value>,
    /// The number of rows of the question that are not shown.
    omitted: usize,
    /// The rows that arrived while the editor has the terminal.
    held: String,
}

impl OwnTerminal {
    pub(super) fn new(context: &Context) -> Self {
        let (palette, editor) = (context.palette(), context.external_editor());
        Self { palette, state: Arc::default(), editor }
    }

    fn state(&self) -> MutexGuard<'_, TerminalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> View {
        View::new(self.palette, terminal_size::columns())
    }

    fn print(&self, rows: &str) {
        if rows.is_empty() {
            return;
        }
        if self.editor.is_running() {
            self.state().held.push_str(rows);
        } else {
            // The agent continues if stdout is closed.
            let _printed = output::print(rows);
        }
    }
}

/// Returns a handler that shows progress on the teammate's own terminal. With `once`, the handler stops the agent
/// when it is idle after a turn.
pub(super) fn progress_handler(
    context: &Context,
    is_by_hand: bool,
    once: bool,
    terminal: OwnTerminal,
    events: Events,
) -> Rc<dyn Fn(&Progress)> {
    let had_turn = Cell::new(false);
    let live = RefCell::new(Live::new(context.palette()));
    Rc::new(move |progress| {
        if let Progress::Asked(question) = progress {
            let omitted = question::omitted_rows(question, &terminal.view());
            let mut state = terminal.state();
            (state.question, state.changed) = (Some((**question).clone()), None);
            state.omitted = omitted;
        }
        if is_by_hand {
            terminal.print(&live.borrow_mut().rows(progress, terminal_size::columns()));
        }
        if matches!(progress, Progress::TurnEnded { .. }) {
            had_turn.set(true);
        }
        if *progress == Progress::Idle && once && had_turn.get() {
            let _ended = events.send(MachineEvent::Stop(StopCause::AtOnce).into());
        }
    })
}

/// Returns a handler of progress that also shows the newest line of output to the lead. Without the file it does nothing
/// more.
pub(super) fn with_last_output(
    show: Rc<dyn Fn(&Progress)>,
    output: io::Result<LastOutput>,
) -> Rc<dyn Fn(&Progress)> {
    let output = match output {
        Ok(output) => output,
        Err(why) => {
            tracing::warn!(%why, "the lead does not see the output of running commands");
            return show;
        }
    };
    Rc::new(move |progress| {
        if let Progress::ToolOutput(line) = progress {
            output.set(line);
        } else if let Progress::ToolStarted { .. } | Progress::ToolEnded(_) = progress {
            output.set("");
        }
        show(progress);
    })
}

/// Reads the person's answers on a thread, which ends with the process.
pub(super) fn read_answers(terminal: OwnTerminal, events: Events) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(move || forward_answers(&terminal, &events))
        .or_fail("the terminal cannot be read", "close other programs, and start it again")?;
    Ok(())
}

fn forward_answers(terminal: &OwnTerminal, events: &Events) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut state = terminal.state();
        let (asked, said) = (state.question.clone(), question::understand(&line));
        let (Some(question), Some(said)) = (asked, said) else {
            output::warn(
                "(answer with y, n, n WHY, always, e COMMAND or e when something is asked)",
            );
            continue;
        };
        match &said {
            TypedAnswer::ShowWhole => {
                state.omitted = 0;
                output::warn(&question::whole(&question));
                continue;
            }
            TypedAnswer::Edit => {
                drop(state);
                edit(terminal, &question);
                continue;
            }
            TypedAnswer::Yes | TypedAnswer::Always(_) if state.omitted > 0 => {
                output::warn(&question::look_first(state.omitted));
                continue;
            }
            TypedAnswer::Yes
            | TypedAnswer::Always(_)
            | TypedAnswer::No(_)
            | TypedAnswer::Instead(_) => {}
        }
        let Some(mut decision) = decision(&question, said) else {
            output::warn(
                "(only a command can be retyped here; e alone opens a file in your editor)",
            );
            continue;
        };
        if decision.outcome == DecisionOutcome::Approved && decision.updated_input.is_none() {
            decision.updated_input = state.changed.take();
        }
        state.question = None;
        drop(state);
        if events.send(ApprovalEvent::Answered(decision).into()).is_err() {
            return;
        }
    }
}

/// Opens the question in the person's editor, and asks again what the person has changed.
fn edit(terminal: &OwnTerminal, question: &Question) {
    let Some(EditableText { name, text, .. }) = editable_text(question) else {
        return output::warn("(this question has nothing to edit; say y, or n and why)");
    };
    let edited = terminal.editor.edit(&name, &text);
    let view = terminal.view();
    let mut state = terminal.state();
    // The agent continues if stdout is closed.
    let _printed = output::print(&std::mem::take(&mut state.held));
    let is_open = state.question.as_ref() == Some(question);
    match edited.map(|text| (with_text(question, &text).filter(|_| is_open), text)) {
        Err(why) => output::warn(&why),
        Ok((Some(changed), _)) => {
            state.omitted = question::omitted_rows(&changed, &view);
            let _printed = output::print(&question::ask("the agent", "", 0, &changed, &view));
            state.changed = Some(changed.input.clone());
            state.question = Some(changed);
        }
        Ok((None, text)) => {
            let text = visible(&text);
            output::warn(&format!("the question is no longer open; your text was:\n{text}"));
        }
    }
}

/// Turns an answer into a decision; `None` if it does not fit the question.
fn decision(question: &Question, said: TypedAnswer) -> Option<Decision> {
    let decision = decision_of(question, said)?;
    let decision = own_decision(&question.request_id, Decider::Person, decision);
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
            subagent: None,
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
            let decides = |said| decision(&ask(about, "bash"), said);
            let said = question::understand(line);
            assert_eq!(said.and_then(decides).map(of), decided, "{about:?} {line}");
        }
        let instead = || question::understand("e ls -a").unwrap();
        let other = decision(&ask(call, "bash"), instead()).unwrap();
        assert_eq!(other.updated_input, Some(json!({ "command": "ls -a" })));
        assert_eq!(decision(&ask(call, "read_file"), instead()), None);
    }
}
