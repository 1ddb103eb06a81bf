//! The state machine of a member: what happens -> what to do. Pure: no files, no model, no clock.
//!
//! ```text
//!            mail, prompt                 drained            the turn ends
//!   Idle ───────────────────> TakingMail ─────────> InTurn ────────────────┐
//!    ^                          │  ^  ^                                    │
//!    └── nothing to do, Resting ┘  │  └────────────────────────────────────┘
//!        if hooks are asked        └── Claiming: the task comes as mail
//! ```
//!
//! A turn is a [`TurnMachine`] of the conversation. This machine adds what makes the conversation that of
//! a member: mail, the roster, shutdown requests, the loss of the lead, tasks.
//!
//! Mail is taken in before every model call and once more after a turn, so that no message waits for the
//! next one. Idle is a result of that, not an event.

mod exchange_limit;
mod shutdown;

use super::conversation::{
    Effect, HostAction, TurnAction, TurnEnd, TurnEvent, TurnMachine, TurnStep,
};
use super::event::{Action, Ending, MachineEvent, StopCause};
use super::identity::{AutoClaim, Identity, IdleHook};
use super::progress::Progress;
use crate::tools::Call;
use crate::wire::activity::Activity;
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::permission::{Decision, QuestionKind};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;
use exchange_limit::{ExchangeLimit, Reason};
use std::collections::VecDeque;

/// How often in a row the hooks may keep a member from being idle: each time costs a turn.
const MAX_KEPT: u32 = 5;

/// What the calls that come after the last one are told.
const LEAD_LOST: &str = "not run: the lead is gone";

/// What a member is doing.
#[derive(Debug)]
enum Phase {
    Idle,
    /// A task is being taken from the list.
    Claiming,
    /// The hooks are asked whether the member may be idle.
    Resting,
    /// Mail is being taken in between two turns.
    TakingMail,
    /// A turn is under way; with a cause, the member ends after it.
    InTurn(TurnMachine, Option<StopCause>),
    /// The lead is lost: the member ends after the running tool call.
    Leaving(TurnMachine),
    /// The loop ends.
    Over,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    me: Identity,
    phase: Phase,
    /// Prompts that the next turn begins with, or the current one goes on with.
    prompts: VecDeque<String>,
    /// Notes that the model is told with its next call.
    notices: VecDeque<String>,
    /// Mail was announced while mail was being taken in.
    mail_again: bool,
    /// How the last turn ended, for the lead's program; told when the member is idle.
    finished: Option<IdleReason>,
    published_idle: bool,
    /// How often in a row the hooks kept it from being idle.
    kept: u32,
    exchange_limit: ExchangeLimit,
}

impl Machine {
    /// Creates a machine that first takes in its mail. If the transcript ends within a turn, `resumed`
    /// holds the calls of that turn that are still to run.
    pub(crate) fn start(me: Identity, resumed: Option<VecDeque<Call>>) -> (Self, Vec<Action>) {
        let phase = match resumed {
            Some(calls) => Phase::InTurn(TurnMachine::new(me.max_rounds, calls), None),
            None => Phase::TakingMail,
        };
        let machine = Self {
            exchange_limit: ExchangeLimit::new(me.name.clone(), me.max_exchanges),
            me,
            phase,
            prompts: VecDeque::new(),
            notices: VecDeque::new(),
            mail_again: false,
            finished: None,
            published_idle: false,
            kept: 0,
        };
        (machine, vec![Action::Drain])
    }

    /// Performs one step. This is the only place that takes the phase out of the machine: every
    /// transition consumes it and returns its successor.
    pub(crate) fn step(&mut self, event: MachineEvent) -> Vec<Action> {
        let mut todo = Vec::new();
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if !matches!(phase, Phase::Over) {
            self.phase = self.transition(phase, event, &mut todo);
        }
        todo
    }

    fn transition(&mut self, phase: Phase, event: MachineEvent, todo: &mut Vec<Action>) -> Phase {
        match event {
            MachineEvent::Mail => self.on_mail(phase, todo),
            MachineEvent::Drained(mail) => self.on_drained(phase, &mail, todo),
            MachineEvent::DrainFailed(why) => self.on_drain_failed(phase, &why, todo),
            MachineEvent::DiskFull => {
                self.published_idle = false;
                todo.push(Action::Publish(Status::Waiting, Some(Activity::DiskFull)));
                phase
            }
            MachineEvent::TeamGone(why) => {
                todo.push(Effect::Cancel.into());
                todo.push(Action::CancelIdleHook);
                todo.push(Action::Exit(Ending::Broken(why)));
                Phase::Over
            }
            MachineEvent::Prompt(text) => self.on_prompt(phase, text, todo),
            MachineEvent::Notice(text) => {
                self.notices.push_back(text);
                phase
            }
            MachineEvent::Work(result) => self.on_turn_event(phase, TurnEvent::Work(result), todo),
            MachineEvent::Judged(verdict) => {
                self.on_turn_event(phase, TurnEvent::Judged(verdict), todo)
            }
            MachineEvent::Settled(decision) => self.on_settled(phase, decision, todo),
            MachineEvent::Interrupt => self.on_interrupt(phase, todo),
            MachineEvent::Stop(cause) => self.on_stop(phase, cause, todo),
            MachineEvent::TaskInSight => self.on_task_in_sight(phase, todo),
            MachineEvent::TaskTaken => on_task_taken(phase, todo),
            MachineEvent::IdleHookAnswered(answer) => self.on_idle_hook(phase, answer, todo),
            MachineEvent::LastCallTimeout => self.on_last_call_timeout(phase, todo),
        }
    }

    fn on_mail(&mut self, phase: Phase, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::Idle => take_mail(todo),
            Phase::Resting => leave_rest(todo),
            Phase::TakingMail => {
                self.mail_again = true;
                Phase::TakingMail
            }
            Phase::InTurn(turn, stop) => self.in_turn(turn, stop, TurnEvent::InputWaits, todo),
            // A claim, too, ends in a drain.
            phase @ (Phase::Claiming | Phase::Leaving(_) | Phase::Over) => phase,
        }
    }

    fn on_prompt(&mut self, phase: Phase, text: String, todo: &mut Vec<Action>) -> Phase {
        self.prompts.push_back(text);
        match phase {
            Phase::Idle => take_mail(todo),
            Phase::Resting => leave_rest(todo),
            // The prompt is recorded with the mail that is taken in next.
            phase @ (Phase::Claiming
            | Phase::TakingMail
            | Phase::InTurn(..)
            | Phase::Leaving(_)
            | Phase::Over) => phase,
        }
    }

    /// The roster says "working" before the task is claimed, so that the team never looks as if all work
    /// were done.
    fn on_task_in_sight(&mut self, phase: Phase, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::Idle => {
                self.published_idle = false;
                todo.push(Action::Publish(Status::Working, Some(Activity::Task)));
                todo.push(Action::TakeTask);
                Phase::Claiming
            }
            // The watch may report while the member has found other work.
            phase @ (Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::InTurn(..)
            | Phase::Leaving(_)
            | Phase::Over) => phase,
        }
    }

    fn on_drained(&mut self, phase: Phase, mail: &[Message], todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::TakingMail => self.on_drained_between_turns(mail, todo),
            Phase::InTurn(turn, stop) => self.on_drained_in_turn(turn, stop, mail, todo),
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Leaving(_)
            | Phase::Over) => unexpected("mail", phase, todo),
        }
    }

    fn on_drained_between_turns(&mut self, mail: &[Message], todo: &mut Vec<Action>) -> Phase {
        show_mail(mail, todo);
        let stop = shutdown::find(&self.me, mail, todo);
        let is_prompted = self.record_prompts(todo);
        let is_woken = stop.is_none() && self.is_reason_for_a_turn(mail, todo);
        if is_woken {
            self.kept = 0;
        }
        let again = std::mem::take(&mut self.mail_again);
        if let Some(stop) = stop {
            todo.push(Action::MarkTaken);
            shutdown::open(&stop, todo);
            leave(stop, todo)
        } else if is_woken || is_prompted {
            self.begin_turn(!is_prompted, todo)
        } else {
            todo.push(Action::MarkTaken);
            if again { take_mail(todo) } else { self.rest(todo) }
        }
    }

    fn on_drained_in_turn(
        &mut self,
        turn: TurnMachine,
        stop: Option<StopCause>,
        mail: &[Message],
        todo: &mut Vec<Action>,
    ) -> Phase {
        show_mail(mail, todo);
        let asked = shutdown::find(&self.me, mail, todo);
        if turn.takes_prompts() {
            self.record_prompts(todo);
        }
        if let Some(cause) = asked {
            shutdown::open(&cause, todo);
            let note = TurnEvent::WindDown(shutdown::note(&cause));
            return self.in_turn(turn, Some(cause), note, todo);
        }
        let unseen = mail.iter().filter(|message| message.body.wakes()).count();
        self.in_turn(turn, stop, TurnEvent::InputTaken { unseen }, todo)
    }

    /// Records the prompts and the notes that wait. Whether there was a prompt.
    fn record_prompts(&mut self, todo: &mut Vec<Action>) -> bool {
        let is_prompted = !self.prompts.is_empty();
        if is_prompted {
            self.exchange_limit.progress();
            self.kept = 0;
        }
        let prompt = |content| Effect::Record(Entry::User { content }).into();
        let note = |content| Effect::Record(Entry::Note { content }).into();
        todo.extend(self.prompts.drain(..).map(prompt));
        todo.extend(self.notices.drain(..).map(note));
        is_prompted
    }

    /// Whether mail begins a turn. Where it no longer does, the model, the viewer and the lead are told
    /// once.
    fn is_reason_for_a_turn(&mut self, mail: &[Message], todo: &mut Vec<Action>) -> bool {
        let notes = match self.exchange_limit.weigh(mail) {
            Reason::Turn => return true,
            Reason::None => return false,
            Reason::Talk(notes) => notes,
        };
        for content in notes {
            todo.push(Effect::Record(Entry::Note { content: content.clone() }).into());
            todo.push(Effect::Show(Progress::Note(content.clone())).into());
            if !self.me.name.is_lead() {
                todo.push(Action::TellLead(content));
            }
        }
        false
    }

    fn on_drain_failed(&mut self, phase: Phase, why: &str, todo: &mut Vec<Action>) -> Phase {
        let text = format!("mail could not be taken in, it stays in the inbox: {why}");
        todo.push(Effect::Log(text.clone()).into());
        match phase {
            // A prompt, and rest, do not wait for mail that cannot be taken in.
            Phase::TakingMail => {
                todo.push(Effect::Show(Progress::Note(text)).into());
                self.on_drained_between_turns(&[], todo)
            }
            Phase::InTurn(turn, stop) => {
                self.in_turn(turn, stop, TurnEvent::InputFailed(text), todo)
            }
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Leaving(_)
            | Phase::Over) => unexpected("failed mail", phase, todo),
        }
    }

    fn on_turn_event(&mut self, phase: Phase, event: TurnEvent, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::InTurn(turn, stop) => self.in_turn(turn, stop, event, todo),
            Phase::Leaving(turn) => self.leaving(turn, event, todo),
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::Over) => unexpected("an event of a turn", phase, todo),
        }
    }

    fn on_settled(&mut self, phase: Phase, decision: Decision, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::InTurn(turn, stop) => {
                self.in_turn(turn, stop, TurnEvent::Settled(decision), todo)
            }
            // The turn that asked is over, or ends after its call.
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::Leaving(_)
            | Phase::Over) => phase,
        }
    }

    fn on_interrupt(&mut self, phase: Phase, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::InTurn(turn, stop) => self.in_turn(turn, stop, TurnEvent::Interrupt, todo),
            // There is no turn to interrupt, or it is ending.
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::Leaving(_)
            | Phase::Over) => phase,
        }
    }

    fn on_stop(&mut self, phase: Phase, cause: StopCause, todo: &mut Vec<Action>) -> Phase {
        let limit = match &cause {
            StopCause::Budget(limit) => Some(format!("{limit} are used")),
            StopCause::Requested { .. } | StopCause::LeadLost | StopCause::AtOnce => None,
        };
        match phase {
            Phase::Over => Phase::Over,
            Phase::Resting => {
                todo.push(Action::CancelIdleHook);
                leave(cause, todo)
            }
            Phase::Idle | Phase::Claiming | Phase::TakingMail => leave(cause, todo),
            // The question stays open in the transcript: a later life asks it again.
            Phase::InTurn(turn, _) if cause == StopCause::LeadLost && turn.is_asking() => {
                leave(cause, todo)
            }
            Phase::InTurn(turn, _) if cause == StopCause::LeadLost && turn.is_acting() => {
                todo.push(Action::StartLastCallTimeout);
                self.leaving(turn, TurnEvent::EndAfterCall(LEAD_LOST), todo)
            }
            Phase::InTurn(turn, _) | Phase::Leaving(turn) => {
                self.in_turn(turn, Some(cause), TurnEvent::Stop { limit }, todo)
            }
        }
    }

    fn on_last_call_timeout(&mut self, phase: Phase, todo: &mut Vec<Action>) -> Phase {
        match phase {
            Phase::Leaving(turn) => self.leaving(turn, TurnEvent::Stop { limit: None }, todo),
            // The timer is not cancelled when the call ends in time.
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::InTurn(..)
            | Phase::Over) => phase,
        }
    }

    fn on_idle_hook(
        &mut self,
        phase: Phase,
        answer: Result<(), String>,
        todo: &mut Vec<Action>,
    ) -> Phase {
        match (phase, answer) {
            (Phase::Resting, Ok(())) => self.be_idle(todo),
            (Phase::Resting, Err(content)) => {
                self.kept += 1;
                self.finished = None;
                todo.push(Effect::Record(Entry::Note { content }).into());
                self.begin_turn(true, todo)
            }
            (
                phase @ (Phase::Idle
                | Phase::Claiming
                | Phase::TakingMail
                | Phase::InTurn(..)
                | Phase::Leaving(_)
                | Phase::Over),
                _,
            ) => unexpected("the answer of the hooks", phase, todo),
        }
    }

    fn begin_turn(&mut self, by_mail: bool, todo: &mut Vec<Action>) -> Phase {
        todo.push(Effect::Show(Progress::TurnStarted { by_mail }).into());
        let turn = TurnMachine::new(self.me.max_rounds, VecDeque::new());
        self.in_turn(turn, None, TurnEvent::InputTaken { unseen: 0 }, todo)
    }

    fn in_turn(
        &mut self,
        turn: TurnMachine,
        stop: Option<StopCause>,
        event: TurnEvent,
        todo: &mut Vec<Action>,
    ) -> Phase {
        match self.step_turn(turn, event, todo) {
            TurnStep::Running(turn) => Phase::InTurn(turn, stop),
            TurnStep::Ended(end) => self.end_turn(end, stop, todo),
        }
    }

    fn leaving(&mut self, turn: TurnMachine, event: TurnEvent, todo: &mut Vec<Action>) -> Phase {
        match self.step_turn(turn, event, todo) {
            TurnStep::Running(turn) => Phase::Leaving(turn),
            TurnStep::Ended(end) => self.end_turn(end, Some(StopCause::LeadLost), todo),
        }
    }

    fn step_turn(
        &mut self,
        turn: TurnMachine,
        event: TurnEvent,
        todo: &mut Vec<Action>,
    ) -> TurnStep {
        let mut wanted = Vec::new();
        let step = turn.step(event, &mut wanted);
        for action in wanted {
            match action {
                TurnAction::Effect(effect) => {
                    if let Effect::RunTool(call) = &effect {
                        self.exchange_limit.call(&call.name);
                    }
                    todo.push(effect.into());
                }
                TurnAction::Host(wish) => self.host_action(wish, todo),
            }
        }
        step
    }

    /// Translates what a turn asks of its host into what a member does.
    fn host_action(&mut self, wish: HostAction, todo: &mut Vec<Action>) {
        let action = match wish {
            HostAction::TakeInput => Action::Drain,
            HostAction::InputUsed => Action::MarkTaken,
            HostAction::Doing(activity) => {
                self.published_idle = false;
                Action::Publish(Status::Working, Some(activity))
            }
            HostAction::Judge(call) => Action::Judge(call),
            HostAction::Ask(question) => {
                self.published_idle = false;
                let activity = match question.about {
                    QuestionKind::Permission => Activity::Permission(question.tool.clone()),
                    QuestionKind::Plan => Activity::Plan,
                    QuestionKind::Sandbox => Activity::Sandbox(question.tool.clone()),
                };
                todo.push(Action::Publish(Status::Waiting, Some(activity)));
                Action::Ask(question)
            }
            HostAction::Withdraw(request_id) => Action::Withdraw(request_id),
            HostAction::Count(usage) => Action::Count(usage),
            HostAction::EndRefused(why) => Action::PublishRefusal(why),
        };
        todo.push(action);
    }

    /// The turn ended: it is recorded and reported, and mail is taken in once more.
    fn end_turn(&mut self, end: TurnEnd, stop: Option<StopCause>, todo: &mut Vec<Action>) -> Phase {
        let TurnEnd { outcome, rounds, text, told_lead, fatal } = end;
        let is_told = text.is_empty() || told_lead || self.me.name.is_lead();
        let report = (!is_told).then(|| text.clone());
        todo.push(Action::EndTurn { outcome, rounds, report });
        todo.push(Effect::Show(Progress::TurnEnded { outcome, text }).into());
        if let Some(why) = fatal {
            todo.push(Action::Exit(Ending::Broken(why)));
            return Phase::Over;
        }
        if let Some(cause) = stop {
            return leave(cause, todo);
        }
        self.finished = Some(match outcome {
            Outcome::Done => IdleReason::Available,
            Outcome::Failed => IdleReason::Failed,
            Outcome::Interrupted => IdleReason::Interrupted,
        });
        self.mail_again = false;
        take_mail(todo)
    }

    /// There is nothing to do: the member is idle, unless the hooks object.
    fn rest(&mut self, todo: &mut Vec<Action>) -> Phase {
        let has_worked = self.finished == Some(IdleReason::Available);
        if self.me.idle_hook == IdleHook::Asked && has_worked {
            if self.kept < MAX_KEPT {
                todo.push(Action::AskIdleHook(self.kept));
                return Phase::Resting;
            }
            let told = format!("the hooks refused to let it rest {MAX_KEPT} times: it rests now");
            todo.push(Effect::Log(told.clone()).into());
            todo.push(Effect::Show(Progress::Note(told)).into());
        }
        self.be_idle(todo)
    }

    /// The member is idle, and the roster and the lead's program are told so once.
    fn be_idle(&mut self, todo: &mut Vec<Action>) -> Phase {
        if !self.published_idle {
            todo.push(Action::Publish(Status::Idle, None));
            self.published_idle = true;
        }
        if let Some(reason) = self.finished.take() {
            todo.push(Action::NotifyIdle(reason));
        }
        todo.push(Effect::Show(Progress::Idle).into());
        if self.me.auto_claim == AutoClaim::TakesTasks {
            todo.push(Action::FindTask);
        }
        Phase::Idle
    }
}

fn on_task_taken(phase: Phase, todo: &mut Vec<Action>) -> Phase {
    match phase {
        Phase::Claiming => take_mail(todo),
        phase @ (Phase::Idle
        | Phase::Resting
        | Phase::TakingMail
        | Phase::InTurn(..)
        | Phase::Leaving(_)
        | Phase::Over) => unexpected("a claim", phase, todo),
    }
}

fn take_mail(todo: &mut Vec<Action>) -> Phase {
    todo.push(Action::Drain);
    Phase::TakingMail
}

/// Mail or a prompt came while the hooks were asked whether the member may be idle.
fn leave_rest(todo: &mut Vec<Action>) -> Phase {
    todo.push(Action::CancelIdleHook);
    take_mail(todo)
}

fn leave(cause: StopCause, todo: &mut Vec<Action>) -> Phase {
    todo.push(Action::Publish(Status::Stopping, None));
    todo.push(Action::Exit(Ending::Stopped(cause)));
    Phase::Over
}

fn show_mail(mail: &[Message], todo: &mut Vec<Action>) {
    let shown = mail.iter().map(|message| Progress::Mail(Box::new(message.clone())));
    todo.extend(shown.map(|progress| Effect::Show(progress).into()));
}

/// Ignores an event that no action asked for in this phase. That is a bug: it is logged.
fn unexpected(event: &str, phase: Phase, todo: &mut Vec<Action>) -> Phase {
    todo.push(Effect::Log(format!("unexpected: {event} while {}", phase.name())).into());
    phase
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Claiming => "Claiming",
            Self::Resting => "Resting",
            Self::TakingMail => "TakingMail",
            Self::InTurn(..) => "InTurn",
            Self::Leaving(_) => "Leaving",
            Self::Over => "Over",
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transition_tests;
