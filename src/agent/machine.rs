//! The state machine of a member: it turns events into actions. Pure: no files, no model, no clock.
//!
//! ```text
//!            mail, prompt                 drained            the turn ends
//!   Idle ───────────────────> TakingMail ─────────> InTurn ────────────────┐
//!    ^                          │  ^  ^                                    │
//!    └── nothing to do, Resting ┘  │  └────────────────────────────────────┘
//!        while that is checked     └── Claiming: the task comes as mail
//! ```
//!
//! A turn is a [`TurnMachine`](crate::agent::conversation::TurnMachine) of the conversation. This machine adds what a member needs besides: mail, the
//! roster, shutdown requests, the loss of the lead, tasks.
//!
//! Mail is drained before every model call and once more after a turn, so that no message waits for the next turn.
//! No event makes a member idle: it becomes idle when that drain leaves nothing to do.

mod exchange_limit;
mod foreign_steps;
mod shutdown;
mod turn;

use super::conversation::{HostAction, TurnEffect, TurnEnd, TurnEvent, WorkResult};
use super::event::{Action, Ending, InterruptRequest, MachineEvent, StopCause};
use super::identity::Identity;
use super::interrupt;
use super::progress::Progress;
use crate::tools::Call;
use crate::wire::activity::Activity;
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::roster::Status;
use crate::wire::transcript::{Entry, InterruptOutcome};
use exchange_limit::{ExchangeLimit, Reason};
use shutdown::ShutdownRequest;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use turn::{Tally, Turn};

/// The number of times in a row that hooks and open tasks may keep a member from being idle. Each time costs a turn.
const MAX_KEPT: u32 = 5;

const LEAD_LOST: &str = "not run: the lead is gone";

/// The report of a turn that the end of the lead cut off.
const CUT_OFF_BY_LEAD: &str =
    "the lead's process ended in the middle of this turn; a resumed team continues it";

#[derive(Debug)]
enum Phase {
    Idle,
    /// A task is being claimed from the list.
    Claiming,
    /// The hooks and the task list are being asked whether the member may be idle.
    Resting,
    /// Mail is being drained between two turns.
    TakingMail,
    /// A turn is under way. With a cause, the member ends after the turn.
    InTurn(Turn, Option<StopCause>),
    /// The lead is lost: the member ends after the running tool call.
    Leaving(Turn),
    Over,
}

#[derive(Debug)]
pub(crate) struct Machine {
    me: Identity,
    phase: Phase,
    todo: Vec<Action>,
    /// Prompts for the current turn or, between two turns, for the next one.
    prompts: VecDeque<String>,
    /// Notes that go to the model with its next call.
    notices: VecDeque<String>,
    /// Whether mail was announced during a drain.
    mail_again: bool,
    /// The outcome of the last turn. The lead's program is notified of it when the member becomes idle.
    finished: Option<IdleReason>,
    published_idle: bool,
    /// The number of times in a row that the member was kept from being idle.
    kept: u32,
    exchange_limit: ExchangeLimit,
    /// The tools of the running calls.
    running: Vec<String>,
    /// The ids of the interrupt requests that were acted on: a request is found before and by the drain.
    known_interrupts: BTreeSet<String>,
    /// Interrupt requests whose effect is recorded at the end of the turn, or of the drain between two turns.
    interrupts: Vec<InterruptRequest>,
    /// Whether the last turn was interrupted. The member claims no task by itself until the next turn.
    was_interrupted: bool,
    /// The state of the foreign agent after its last step.
    foreign: Tally,
}

impl Machine {
    /// Creates a machine, and returns its first actions, which end in a drain. If the transcript ends within a turn,
    /// that turn goes on, and `resumed` holds its calls that are still to run.
    pub(crate) fn start(me: Identity, resumed: Option<VecDeque<Call>>) -> (Self, Vec<Action>) {
        let mut machine = Self {
            exchange_limit: ExchangeLimit::new(me.name.clone(), me.max_exchanges),
            me,
            phase: Phase::TakingMail,
            todo: Vec::new(),
            prompts: VecDeque::new(),
            notices: VecDeque::new(),
            mail_again: false,
            finished: None,
            published_idle: false,
            kept: 0,
            running: Vec::new(),
            known_interrupts: BTreeSet::new(),
            interrupts: Vec::new(),
            was_interrupted: false,
            foreign: Tally::default(),
        };
        if let Some(calls) = resumed {
            machine.push(TurnEffect::Show(Progress::TurnStarted { by_mail: false }));
            machine.phase = Phase::InTurn(machine.new_turn(calls), None);
        }
        machine.push(HostAction::TakeInput);
        let first = std::mem::take(&mut machine.todo);
        (machine, first)
    }

    /// Performs one step. Only this function takes the phase out of the machine: every transition consumes the
    /// phase and returns its successor.
    pub(crate) fn step(&mut self, event: MachineEvent) -> Vec<Action> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if !matches!(phase, Phase::Over) {
            self.phase = self.transition(phase, event);
        }
        std::mem::take(&mut self.todo)
    }

    /// Applies the table of phases and events: for each event the phases in which it has an effect, then all
    /// others.
    fn transition(&mut self, phase: Phase, event: MachineEvent) -> Phase {
        use MachineEvent as Event;
        match (phase, event) {
            (phase @ (Phase::Idle | Phase::Resting), Event::Mail) => self.wake(phase),
            (Phase::TakingMail, Event::Mail) => {
                self.mail_again = true;
                Phase::TakingMail
            }
            (Phase::InTurn(turn, stop), Event::Mail) => {
                self.in_turn(turn, stop, TurnEvent::InputWaits)
            }
            (Phase::TakingMail, Event::Drained(mail)) => self.on_drained_between_turns(&mail),
            (Phase::InTurn(turn, stop), Event::Drained(mail)) => {
                self.on_drained_in_turn(turn, stop, &mail)
            }
            // The drain of a foreign turn goes on while the lead is lost.
            (Phase::Leaving(turn), Event::Drained(_)) if turn.is_foreign() => {
                self.leaving(turn, TurnEvent::InputTaken { unseen: 0 })
            }
            (phase, Event::Drained(_)) => self.unexpected(phase, "mail"),
            (phase, Event::DrainFailed(why)) => self.on_drain_failed(phase, &why),
            (phase, Event::DiskFull) => {
                self.publish(Status::Waiting, Some(Activity::DiskFull));
                phase
            }
            (_, Event::TeamGone(why)) => {
                self.push(TurnEffect::Cancel);
                self.todo.push(Action::CancelIdleCheck);
                self.exit(Ending::Broken(why))
            }

            // During a turn, the prompt is recorded together with the next drained mail.
            (phase, Event::Prompt(text)) => {
                self.prompts.push_back(text);
                self.wake(phase)
            }
            (phase, Event::DropPrompts) => {
                self.prompts.clear();
                self.push(TurnEffect::Show(Progress::PromptsDropped));
                phase
            }
            (phase, Event::Notice(text)) => {
                self.notices.push_back(text);
                phase
            }

            (phase, Event::Work(result)) => self.on_turn_event(phase, TurnEvent::Work(result)),
            (phase, Event::Foreign(event)) => self.on_agent(phase, event),
            (phase, Event::Judged(verdict)) => {
                self.on_turn_event(phase, TurnEvent::Judged(verdict))
            }
            (Phase::InTurn(turn, stop), Event::Settled(decision)) => {
                self.in_turn(turn, stop, TurnEvent::Settled(decision))
            }
            (Phase::InTurn(turn, stop), Event::Interrupt) => self.interrupt(turn, stop),
            (phase, Event::InterruptAsked(asked)) => self.on_interrupt_asked(phase, asked),
            (phase, Event::Stop(cause)) => self.on_stop(phase, cause),
            (Phase::Leaving(turn), Event::LastCallTimeout) => {
                self.leaving(turn, TurnEvent::Stop { limit: None })
            }

            // The roster shows "working" before the claim, so that the team never looks as if all work were done.
            (Phase::Idle, Event::TaskInSight) if !self.was_interrupted => {
                self.publish(Status::Working, Some(Activity::Task));
                self.todo.push(Action::TakeTask);
                Phase::Claiming
            }
            (Phase::Claiming, Event::TaskTaken) => self.take_mail(),
            (phase, Event::TaskTaken) => self.unexpected(phase, "a claim"),

            (Phase::Resting, Event::IdleChecked(Ok(()))) => self.be_idle(),
            (Phase::Resting, Event::IdleChecked(Err(content))) => {
                self.kept += 1;
                self.finished = None;
                self.record(Entry::Note { content });
                self.begin_turn(true)
            }
            (phase, Event::IdleChecked(_)) => {
                self.unexpected(phase, "the answer of the idle check")
            }

            // These events may come too late to matter. `Mail`: a claim ends in a drain as well. `TaskInSight`:
            // the member has found other work. `Settled`, `Interrupt`: the turn is over, or ends after its call.
            // `LastCallTimeout`: the timer is not cancelled when the last call ends in time.
            (
                phase,
                Event::Mail
                | Event::TaskInSight
                | Event::Settled(_)
                | Event::Interrupt
                | Event::LastCallTimeout,
            ) => phase,
        }
    }

    /// Starts a drain in `Idle` and `Resting`; in `Resting` the idle check is cancelled. In other
    /// phases the mail or the prompt waits.
    fn wake(&mut self, phase: Phase) -> Phase {
        if matches!(phase, Phase::Resting) {
            self.todo.push(Action::CancelIdleCheck);
        }
        if matches!(phase, Phase::Idle | Phase::Resting) { self.take_mail() } else { phase }
    }

    fn on_drained_between_turns(&mut self, mail: &[Message]) -> Phase {
        let stop = self.look_through(mail);
        let found = self.interrupts_in(mail);
        self.interrupts.extend(found);
        self.record_interrupts(InterruptOutcome::NoTurn);
        let is_prompted = self.record_prompts();
        let has_unseen = std::mem::take(&mut self.foreign.has_unseen);
        let is_woken = stop.is_none() && (self.is_reason_for_a_turn(mail) || has_unseen);
        if is_woken {
            self.kept = 0;
        }
        let again = std::mem::take(&mut self.mail_again);
        if let Some(ShutdownRequest { cause, open, .. }) = stop {
            self.push(HostAction::InputUsed);
            self.todo.push(open);
            return self.leave(cause);
        }
        if is_woken || is_prompted {
            return self.begin_turn(!is_prompted);
        }
        self.push(HostAction::InputUsed);
        if again { self.take_mail() } else { self.rest() }
    }

    fn on_drained_in_turn(
        &mut self,
        turn: Turn,
        stop: Option<StopCause>,
        mail: &[Message],
    ) -> Phase {
        let asked = self.look_through(mail);
        let interrupts = self.interrupts_in(mail);
        let turn = if interrupts.is_empty() {
            turn
        } else {
            self.interrupts.extend(interrupts);
            self.was_interrupted = true;
            match self.step_turn(turn, TurnEvent::Interrupt) {
                ControlFlow::Continue(turn) => turn,
                ControlFlow::Break(end) => return self.end_turn(end, stop),
            }
        };
        if turn.takes_prompts() {
            self.record_prompts();
        }
        if let Some(ShutdownRequest { cause, open, note }) = asked {
            self.todo.push(open);
            return self.in_turn(turn, Some(cause), TurnEvent::WindDown(note));
        }
        let unseen = mail.iter().filter(|message| message.body.wakes()).count();
        self.in_turn(turn, stop, TurnEvent::InputTaken { unseen })
    }

    /// Shows mail, and returns the first shutdown request in it that binds this incarnation.
    fn look_through(&mut self, mail: &[Message]) -> Option<ShutdownRequest> {
        for message in mail {
            self.push(TurnEffect::Show(Progress::Mail(Box::new(message.clone()))));
        }
        let todo = &mut self.todo;
        ShutdownRequest::find(&self.me, mail, |why| todo.push(TurnEffect::Log(why).into()))
    }

    /// Returns the interrupt requests in mail that bind this incarnation and were not acted on before.
    fn interrupts_in(&mut self, mail: &[Message]) -> Vec<InterruptRequest> {
        let mut found = Vec::new();
        for message in mail {
            match interrupt::request_in(&self.me, message) {
                Some(Ok(asked)) if self.known_interrupts.insert(asked.request_id.clone()) => {
                    found.push(asked);
                }
                Some(Err(why)) => self.push(TurnEffect::Log(why)),
                Some(Ok(_)) | None => {}
            }
        }
        found
    }

    /// Acts on an interrupt request that was found before the drain. A request has an effect once.
    fn on_interrupt_asked(&mut self, phase: Phase, asked: InterruptRequest) -> Phase {
        if !self.known_interrupts.insert(asked.request_id.clone()) {
            return phase;
        }
        self.interrupts.push(asked);
        match phase {
            Phase::InTurn(turn, stop) => self.interrupt(turn, stop),
            // Nothing is recorded during a drain.
            Phase::TakingMail => phase,
            Phase::Idle | Phase::Claiming | Phase::Resting | Phase::Leaving(_) | Phase::Over => {
                self.record_interrupts(InterruptOutcome::NoTurn);
                phase
            }
        }
    }

    fn interrupt(&mut self, turn: Turn, stop: Option<StopCause>) -> Phase {
        self.was_interrupted = true;
        self.in_turn(turn, stop, TurnEvent::Interrupt)
    }

    /// Records the effect of the interrupt requests. The model learns of a reason with its next call.
    fn record_interrupts(&mut self, outcome: InterruptOutcome) {
        for InterruptRequest { request_id, by, reason } in std::mem::take(&mut self.interrupts) {
            self.record(Entry::Interrupt { request_id, by, outcome });
            if let Some(reason) = reason.filter(|_| outcome == InterruptOutcome::Interrupted) {
                let content = format!("the user interrupted your last turn, and says: {reason}");
                self.record(Entry::Note { content });
            }
        }
    }

    /// Records the waiting prompts and notes. Returns whether there was a prompt.
    fn record_prompts(&mut self) -> bool {
        let is_prompted = !self.prompts.is_empty();
        if is_prompted {
            self.push(TurnEffect::Show(Progress::PromptsTaken(self.prompts.len())));
        }
        if is_prompted {
            self.exchange_limit.progress();
            self.kept = 0;
        }
        while let Some(content) = self.prompts.pop_front() {
            self.record(Entry::User { content });
        }
        while let Some(content) = self.notices.pop_front() {
            self.record(Entry::Note { content });
        }
        is_prompted
    }

    /// Returns whether mail begins a turn. If the exchange limit forbids it, a note goes to the model, the viewer
    /// and the lead, once for each sender.
    fn is_reason_for_a_turn(&mut self, mail: &[Message]) -> bool {
        let notes = match self.exchange_limit.weigh(mail) {
            Reason::Turn => return true,
            Reason::None => return false,
            Reason::Talk(notes) => notes,
        };
        for content in notes {
            self.record(Entry::Note { content: content.clone() });
            self.push(TurnEffect::Show(Progress::Note(content.clone())));
            if !self.me.name.is_lead() {
                self.todo.push(Action::TellLead(content));
            }
        }
        false
    }

    fn on_drain_failed(&mut self, phase: Phase, why: &str) -> Phase {
        let text = format!("mail could not be delivered; it stays in the inbox: {why}");
        self.push(TurnEffect::Log(text.clone()));
        match phase {
            // A failed drain delays neither a prompt nor the idle state.
            Phase::TakingMail => {
                self.push(TurnEffect::Show(Progress::Note(text)));
                self.on_drained_between_turns(&[])
            }
            Phase::InTurn(turn, stop) => self.in_turn(turn, stop, TurnEvent::InputFailed(text)),
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Leaving(_)
            | Phase::Over) => self.unexpected(phase, "failed mail"),
        }
    }

    fn on_turn_event(&mut self, phase: Phase, event: TurnEvent) -> Phase {
        match phase {
            Phase::InTurn(turn, stop) => self.in_turn(turn, stop, event),
            Phase::Leaving(turn) => self.leaving(turn, event),
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::Over) => self.unexpected(phase, "an event of a turn"),
        }
    }

    fn on_stop(&mut self, phase: Phase, cause: StopCause) -> Phase {
        let is_lead_lost = cause == StopCause::LeadLost;
        match phase {
            Phase::Over => Phase::Over,
            Phase::Resting => {
                self.todo.push(Action::CancelIdleCheck);
                self.leave(cause)
            }
            Phase::Idle | Phase::Claiming | Phase::TakingMail => self.leave(cause),
            // The question stays open in the transcript: a later incarnation asks it again.
            Phase::InTurn(turn, _) if is_lead_lost && turn.is_asking() => self.leave(cause),
            Phase::InTurn(turn, _) if is_lead_lost && turn.is_acting() => {
                self.todo.push(Action::StartLastCallTimeout);
                self.leaving(turn, TurnEvent::EndAfterCall(LEAD_LOST))
            }
            Phase::InTurn(turn, _) | Phase::Leaving(turn) => {
                let limit = match &cause {
                    StopCause::Budget(limit) => Some(format!("{limit} are used")),
                    StopCause::Requested { .. } | StopCause::LeadLost | StopCause::AtOnce => None,
                };
                self.in_turn(turn, Some(cause), TurnEvent::Stop { limit })
            }
        }
    }

    fn begin_turn(&mut self, by_mail: bool) -> Phase {
        self.was_interrupted = false;
        self.push(TurnEffect::Show(Progress::TurnStarted { by_mail }));
        let turn = self.new_turn(VecDeque::new());
        self.in_turn(turn, None, TurnEvent::InputTaken { unseen: 0 })
    }

    fn in_turn(&mut self, turn: Turn, stop: Option<StopCause>, event: TurnEvent) -> Phase {
        match self.step_turn(turn, event) {
            ControlFlow::Continue(turn) => Phase::InTurn(turn, stop),
            ControlFlow::Break(end) => self.end_turn(end, stop),
        }
    }

    fn leaving(&mut self, turn: Turn, event: TurnEvent) -> Phase {
        match self.step_turn(turn, event) {
            ControlFlow::Continue(turn) => Phase::Leaving(turn),
            ControlFlow::Break(end) => self.end_turn(end, Some(StopCause::LeadLost)),
        }
    }

    fn step_turn(&mut self, turn: Turn, event: TurnEvent) -> ControlFlow<TurnEnd, Turn> {
        if let TurnEvent::Work(WorkResult::ToolsEnded(results)) = &event {
            for (tool, result) in std::mem::take(&mut self.running).iter().zip(results) {
                let has_sent_mail = result.as_ref().is_ok_and(|output| output.has_sent_mail);
                self.exchange_limit.call(tool, has_sent_mail);
            }
        }
        self.stepped(turn.step(event))
    }

    /// Records and reports the end of a turn. The member then ends because of a fatal failure or a stop cause, or
    /// it drains its mail once more.
    fn end_turn(&mut self, end: TurnEnd, stop: Option<StopCause>) -> Phase {
        let TurnEnd { outcome, rounds, text, told_lead, fatal } = end;
        let cut_off = stop.is_some() && outcome != Outcome::Failed;
        let is_told = text.is_empty() || told_lead;
        let report = match stop {
            _ if self.me.name.is_lead() => None,
            // The next lead must learn of the turn, even if the model has reported nothing yet.
            Some(StopCause::LeadLost) if is_told => Some(CUT_OFF_BY_LEAD.to_owned()),
            _ => (!is_told).then(|| text.clone()),
        };
        self.todo.push(Action::EndTurn { outcome, rounds, report, cut_off });
        self.record_interrupts(InterruptOutcome::Interrupted);
        self.push(TurnEffect::Show(Progress::TurnEnded { outcome, text }));
        if let Some(why) = fatal {
            return self.exit(Ending::Broken(why));
        }
        if let Some(cause) = stop {
            return self.leave(cause);
        }
        self.finished = Some(match outcome {
            Outcome::Done => IdleReason::Available,
            Outcome::Failed => IdleReason::Failed,
            Outcome::Interrupted => IdleReason::Interrupted,
        });
        self.mail_again = false;
        self.take_mail()
    }

    /// Makes a member without work idle, unless that must be checked first.
    fn rest(&mut self) -> Phase {
        let Some(reason) = self.finished.filter(|_| self.me.checks_idle) else {
            return self.be_idle();
        };
        let (refused, may_refuse) = (self.kept, self.kept < MAX_KEPT);
        if !may_refuse {
            let told =
                format!("it was kept from going idle {MAX_KEPT} times in a row: it goes idle now");
            self.push(TurnEffect::Log(told.clone()));
            self.push(TurnEffect::Show(Progress::Note(told)));
        }
        self.todo.push(Action::CheckIdle { reason, refused, may_refuse });
        Phase::Resting
    }

    /// Makes the member idle. The roster and the lead's program are notified once.
    fn be_idle(&mut self) -> Phase {
        if !self.published_idle {
            self.publish(Status::Idle, None);
            self.published_idle = true;
        }
        if let Some(reason) = self.finished.take() {
            self.todo.push(Action::NotifyIdle(reason));
        }
        self.push(TurnEffect::Show(Progress::Idle));
        if self.me.takes_tasks && !self.was_interrupted {
            self.todo.push(Action::FindTask);
        }
        Phase::Idle
    }

    fn take_mail(&mut self) -> Phase {
        self.push(HostAction::TakeInput);
        Phase::TakingMail
    }

    fn leave(&mut self, cause: StopCause) -> Phase {
        self.publish(Status::Stopping, None);
        self.exit(Ending::Stopped(cause))
    }

    fn exit(&mut self, ending: Ending) -> Phase {
        self.todo.push(Action::Exit(ending));
        Phase::Over
    }

    fn push(&mut self, action: impl Into<Action>) {
        self.todo.push(action.into());
    }

    fn record(&mut self, entry: Entry) {
        self.push(TurnEffect::Record(entry));
    }

    fn publish(&mut self, status: Status, activity: Option<Activity>) {
        self.published_idle = false;
        self.todo.push(Action::Publish(status, activity));
    }

    /// Ignores an event that no action requested in this phase, and logs it, because it is a bug.
    fn unexpected(&mut self, phase: Phase, event: &str) -> Phase {
        self.push(TurnEffect::Log(format!("unexpected: {event} while {}", phase.name())));
        phase
    }
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
