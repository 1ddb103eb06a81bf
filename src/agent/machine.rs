//! The agent's state machine: what happens -> what to do. Pure: no files, no model, no clock.
//!
//! ```text
//!            mail, prompt               drained             reply with calls
//!   Idle ───────────────────> Taking ───────────> Thinking ──────────────────> Acting
//!    ^                          │ ^ ^                │  text: the turn is over    │
//!    └──── nothing to do ───────┘ │ └────────────────┘                            │
//!                                 └──────────── all calls answered ───────────────┘
//! ```
//!
//! An idle teammate that takes tasks by itself goes through `Claiming` to `Taking`: the task is mail.
//!
//! Mail is taken in before every model call and once more after a turn, so that nothing that arrived
//! meanwhile is slept upon. Being idle is computed from that, it is not an event.

mod exchange_limit;
mod idle;
mod loop_detector;
mod stop;
mod turn;
mod waiting;

use super::compact::Compacted;
use super::event::{Action, Ending, Event, StopCause};
use super::progress::Progress;
use crate::llm::ModelError;
use crate::tools::{Call, ToolError, signal};
use crate::wire::AgentName;
use crate::wire::activity::Activity;
use crate::wire::chat::{Reply, StopReason};
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::roster::Status;
use crate::wire::tool::Signal;
use crate::wire::transcript::Entry;
use exchange_limit::{ExchangeLimit, Reason};
use std::collections::VecDeque;
use turn::{
    CONTEXT_FULL, CUT_OFF, Extension, Room, Turn, WINDING_DOWN, WindDown, answer, call_of,
    is_message_to_lead, refusal, show_mail, wants_shutdown,
};
use waiting::Wait;

#[derive(Debug)]
enum Phase {
    Idle,
    /// A task is being taken from the list.
    Claiming,
    /// Whether it may rest is being asked.
    Resting,
    Taking(Option<Turn>),
    Thinking(Turn),
    /// A call is judged, or somebody is asked about it.
    Waiting(Turn, Wait),
    Acting(Turn, Call),
    /// The lead is gone; only the running tool is waited for.
    Leaving(Turn, Call),
    Over,
}

/// The turn for which mail is taken in, if there is one.
struct TakenFor(Option<Turn>);

/// Whose machine it is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The agent.
    pub(crate) name: AgentName,
    /// This life of it; requests for another one are not acted on.
    pub(crate) incarnation: String,
    /// Model calls that one turn may take.
    pub(crate) max_rounds: u32,
    /// Turns that colleagues may give each other without anything being done.
    pub(crate) max_exchanges: u32,
    /// Where its work comes from.
    pub(crate) auto_claim: AutoClaim,
    /// What must be asked before it rests.
    pub(crate) idle_hook: IdleHook,
}

/// Where an agent's work comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AutoClaim {
    /// From mail and prompts only.
    Asked,
    /// When it is idle, from the task list too.
    TakesTasks,
}

/// What must be asked before an agent rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleHook {
    /// Nothing.
    Free,
    /// The hooks, when a turn was completed.
    Asked,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    me: Identity,
    phase: Phase,
    prompts: VecDeque<String>,
    /// What the model is told with its next call.
    notices: VecDeque<String>,
    /// Mail was announced while a drain or a tool was under way.
    mail_again: bool,
    /// What to tell the lead's program when idle is reached.
    finished: Option<IdleReason>,
    published_idle: bool,
    /// How often in a row it was not allowed to rest.
    kept: u32,
    exchange_limit: ExchangeLimit,
}

impl Machine {
    /// A machine that first takes in its mail; `resumed` when the transcript ends within a turn:
    /// its calls that are still to run.
    pub(crate) fn start(me: Identity, resumed: Option<VecDeque<Call>>) -> (Self, Vec<Action>) {
        let turn = resumed.map(|calls| Turn { calls, ..Turn::default() });
        let exchange_limit = ExchangeLimit::new(me.name.clone(), me.max_exchanges);
        let machine = Self {
            me,
            exchange_limit,
            phase: Phase::Taking(turn),
            prompts: VecDeque::new(),
            notices: VecDeque::new(),
            mail_again: false,
            finished: None,
            published_idle: false,
            kept: 0,
        };
        (machine, vec![Action::Drain])
    }

    /// Whether a turn is under way or about to begin.
    #[cfg(test)]
    fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Over) || !self.prompts.is_empty()
    }

    /// What to do about an event.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Mail => self.on_mail(&mut todo),
            Event::Drained(mail) => self.on_drained(&mail, &mut todo),
            Event::DrainFailed(why) => self.on_drain_failed(&why, &mut todo),
            Event::DiskFull => {
                self.published_idle = false;
                todo.push(Action::Publish(Status::Waiting, Some(Activity::DiskFull)));
            }
            Event::TeamGone(why) => self.on_team_gone(why, &mut todo),
            Event::Prompt(text) => self.on_prompt(text, &mut todo),
            Event::Notice(text) => self.notices.push_back(text),
            Event::Replied(Ok(reply)) => self.on_reply(reply, &mut todo),
            Event::Compacted(Ok(compacted)) => self.on_compacted(compacted, &mut todo),
            Event::Replied(Err(why)) | Event::Compacted(Err(why)) => {
                self.on_model_error(&why, &mut todo);
            }
            Event::Judged(judgement) => self.on_judged(judgement, &mut todo),
            Event::Settled(decision) => self.on_settled(decision, &mut todo),
            // The approval's business.
            Event::Answered(_) | Event::SetMode(_) | Event::AddRules(_) => {}
            Event::ToolEnded(result) => self.on_tool_ended(result, &mut todo),
            Event::Interrupt => self.on_interrupt(&mut todo),
            Event::Stop(stop) => self.on_stop(stop, &mut todo),
            Event::TaskInSight => self.on_task_in_sight(&mut todo),
            Event::TaskTaken => self.on_task_taken(&mut todo),
            Event::IdleHookAnswered(leave) => self.on_idle_hook(leave, &mut todo),
            Event::PatienceOver => self.on_patience_over(&mut todo),
        }
        todo
    }

    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Over)
    }

    /// What mail is being taken in for.
    fn end_taking(&mut self) -> Option<TakenFor> {
        match self.take_phase() {
            Phase::Taking(turn) => Some(TakenFor(turn)),
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Thinking(_)
            | Phase::Waiting(..)
            | Phase::Acting(..)
            | Phase::Leaving(..)
            | Phase::Over) => {
                self.phase = other;
                None
            }
        }
    }

    /// The turn whose model call is over.
    fn end_thinking(&mut self) -> Option<Turn> {
        match self.take_phase() {
            Phase::Thinking(turn) => Some(turn),
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Taking(_)
            | Phase::Waiting(..)
            | Phase::Acting(..)
            | Phase::Leaving(..)
            | Phase::Over) => {
                self.phase = other;
                None
            }
        }
    }

    fn on_mail(&mut self, todo: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Idle => {
                self.phase = Phase::Taking(None);
                todo.push(Action::Drain);
            }
            Phase::Resting => self.leave_idle(todo),
            // The answer to what was asked comes by mail.
            Phase::Waiting(_, wait) if wait.may_drain() => {
                wait.draining = true;
                todo.push(Action::Drain);
            }
            Phase::Taking(_) | Phase::Thinking(_) | Phase::Waiting(..) | Phase::Acting(..) => {
                self.mail_again = true;
            }
            Phase::Claiming | Phase::Leaving(..) | Phase::Over => {}
        }
    }

    /// The roster says "working" before the task is claimed: at no moment does the team look as if
    /// everything were done.
    fn on_task_in_sight(&mut self, todo: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Claiming;
            self.published_idle = false;
            todo.push(Action::Publish(Status::Working, Some(Activity::Task)));
            todo.push(Action::TakeTask);
        }
    }

    fn on_task_taken(&mut self, todo: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Claiming) {
            self.phase = Phase::Taking(None);
            todo.push(Action::Drain);
        }
    }

    fn on_prompt(&mut self, text: String, todo: &mut Vec<Action>) {
        self.prompts.push_back(text);
        if matches!(self.phase, Phase::Resting) {
            self.leave_idle(todo);
        }
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Taking(None);
            todo.push(Action::Drain);
        }
    }

    fn on_drained(&mut self, mail: &[Message], todo: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Waiting(..)) {
            return self.on_drained_waiting(mail, todo);
        }
        let Some(TakenFor(turn)) = self.end_taking() else { return };
        show_mail(mail, todo);
        let stop = mail.iter().find_map(|message| self.shutdown_asked(message, todo));
        let prompted = !self.prompts.is_empty();
        if prompted {
            self.exchange_limit.progress();
        }
        let woken = turn.is_none() && stop.is_none() && self.is_reason_for_a_turn(mail, todo);
        if prompted || woken {
            self.kept = 0;
        }
        for content in self.prompts.drain(..) {
            todo.push(Action::Record(Entry::User { content }));
        }
        for content in self.notices.drain(..) {
            todo.push(Action::Record(Entry::Note { content }));
        }
        let again = std::mem::take(&mut self.mail_again);
        match (turn, stop) {
            (None, Some(stop)) => {
                todo.push(Action::MarkTaken);
                todo.push(Action::OpenShutdown(stop.clone()));
                self.leave(stop, todo);
            }
            (Some(mut turn), Some(stop)) => {
                todo.push(Action::OpenShutdown(stop.clone()));
                turn.winding_down = Some(WindDown::asked(stop));
                turn.refuse_calls(WINDING_DOWN, todo);
                self.think(turn, todo);
            }
            (Some(mut turn), None) if turn.interrupted => {
                turn.refuse_calls("not run: the user interrupted this turn", todo);
                self.finish(turn, Outcome::Interrupted, todo);
            }
            (Some(mut turn), None) if !turn.calls.is_empty() => {
                turn.unseen += mail.iter().filter(|message| message.body.wakes()).count();
                todo.push(Action::MarkTaken);
                self.act(turn, todo);
            }
            (Some(turn), None) => self.think(turn, todo),
            (None, None) if woken || prompted => {
                todo.push(Action::Show(Progress::TurnStarted { by_mail: !prompted }));
                self.think(Turn::default(), todo);
            }
            (None, None) if again => {
                todo.push(Action::MarkTaken);
                self.phase = Phase::Taking(None);
                todo.push(Action::Drain);
            }
            (None, None) => {
                todo.push(Action::MarkTaken);
                self.rest(todo);
            }
        }
    }

    /// Whether mail begins a turn; where it no longer does, everybody concerned is told once.
    fn is_reason_for_a_turn(&mut self, mail: &[Message], todo: &mut Vec<Action>) -> bool {
        let untold = match self.exchange_limit.weigh(mail) {
            Reason::Turn => return true,
            Reason::None => return false,
            Reason::Talk(untold) => untold,
        };
        for peer in untold {
            let (me, most) = (&self.me.name, self.me.max_exchanges);
            let content = format!(
                "{peer} and {me} have given each other {most} turns with nothing but messages \
                 (max_exchanges); mail of {peer} does not wake {me} any more until there is work, or \
                 the lead or the user writes"
            );
            todo.push(Action::Record(Entry::Note { content: content.clone() }));
            todo.push(Action::Show(Progress::Note(content.clone())));
            if !me.is_lead() {
                todo.push(Action::TellLead(content));
            }
        }
        false
    }

    fn think(&mut self, mut turn: Turn, todo: &mut Vec<Action>) {
        self.published_idle = false;
        todo.push(Action::Publish(Status::Working, Some(Activity::Model)));
        todo.push(Action::MarkTaken);
        turn.use_extension();
        if let Some(end) = turn.winding_down.as_mut()
            && end.count_call(todo).is_none()
        {
            return self.finish(turn, Outcome::Interrupted, todo);
        }
        if let Some(why) = turn.limit(self.me.max_rounds) {
            turn.text = why;
            todo.push(Action::Show(Progress::Note(turn.text.clone())));
            return self.finish(turn, Outcome::Interrupted, todo);
        }
        turn.rounds += 1;
        (turn.unseen, turn.wants_idle) = (0, false);
        todo.push(Action::CallModel);
        self.phase = Phase::Thinking(turn);
    }

    fn on_drain_failed(&mut self, why: &str, todo: &mut Vec<Action>) {
        let text = format!("mail could not be taken in, it stays in the inbox: {why}");
        let waiting = self.end_draining();
        match self.end_taking() {
            Some(TakenFor(Some(turn))) => {
                todo.push(Action::Log(text.clone()));
                self.fail(turn, text, todo);
            }
            // A prompt, or rest, does not wait for mail that cannot be had.
            Some(TakenFor(None)) => {
                todo.push(Action::Log(text.clone()));
                todo.push(Action::Show(Progress::Note(text)));
                self.phase = Phase::Taking(None);
                self.on_drained(&[], todo);
            }
            None => {
                if let Some(settled) = waiting {
                    self.on_settled(settled, todo);
                }
            }
        }
    }

    /// Whatever is written now reaches nobody.
    fn on_team_gone(&mut self, why: String, todo: &mut Vec<Action>) {
        self.phase = Phase::Over;
        todo.push(Action::Cancel);
        todo.push(Action::Exit(Ending::Broken(why)));
    }

    fn on_reply(&mut self, reply: Reply, todo: &mut Vec<Action>) {
        let Some(mut turn) = self.end_thinking() else { return };
        let room = std::mem::take(&mut turn.room);
        let text = reply.text();
        let Reply { blocks, stop_reason, usage, model } = reply;
        turn.calls = blocks.iter().filter_map(call_of).collect();
        todo.push(Action::Count(usage));
        let reason = stop_reason.clone();
        todo.push(Action::Record(Entry::Assistant { blocks, stop_reason, usage, model }));
        if !text.is_empty() {
            turn.text = text;
        }
        if !turn.calls.is_empty() {
            if reason == StopReason::MaxTokens {
                turn.refuse_calls(CUT_OFF, todo);
            } else if turn.winding_down.is_some() {
                turn.refuse_work(todo);
            }
            return self.act(turn, todo);
        }
        match reason {
            StopReason::PauseTurn => self.take_in(turn, todo),
            StopReason::ContextWindowExceeded if room == Room::Made => {
                self.fail(turn, CONTEXT_FULL.into(), todo);
            }
            StopReason::ContextWindowExceeded => self.make_room(turn, todo),
            StopReason::MaxTokens => {
                turn.text.push_str("\n[the answer was cut off at the token limit]");
                self.finish(turn, Outcome::Done, todo);
            }
            StopReason::Refusal if turn.text.is_empty() => {
                self.fail(turn, "the model declined to answer".into(), todo);
            }
            StopReason::EndTurn
            | StopReason::StopSequence
            | StopReason::ToolUse
            | StopReason::Refusal
            | StopReason::Other(_) => self.finish(turn, Outcome::Done, todo),
        }
    }

    fn on_model_error(&mut self, why: &ModelError, todo: &mut Vec<Action>) {
        let Some(turn) = self.end_thinking() else { return };
        let text = match why {
            ModelError::ContextFull(_) if turn.room == Room::AsItWas => {
                return self.make_room(turn, todo);
            }
            ModelError::ContextFull(_) => CONTEXT_FULL.into(),
            ModelError::Credentials(_)
            | ModelError::SpendCap(_)
            | ModelError::Rejected(_)
            | ModelError::Unavailable(_)
            | ModelError::Script(_) => why.to_string(),
        };
        self.fail(turn, text, todo);
    }

    fn make_room(&mut self, turn: Turn, todo: &mut Vec<Action>) {
        todo.push(Action::MakeRoom);
        self.phase = Phase::Thinking(Turn { room: Room::Made, ..turn });
    }

    /// The conversation is short again: the model is asked what it was to be asked.
    fn on_compacted(&mut self, compacted: Compacted, todo: &mut Vec<Action>) {
        let Some(turn) = self.end_thinking() else { return };
        todo.push(Action::Count(compacted.usage));
        todo.push(Action::Record(compacted.entry()));
        todo.push(Action::Sync);
        let note = "the conversation was long and is summarized now";
        todo.push(Action::Show(Progress::Note(note.into())));
        todo.push(Action::CallModel);
        self.phase = Phase::Thinking(Turn { room: Room::Made, ..turn });
    }

    /// Runs the next call, or goes on to the next model call when all are answered.
    fn act(&mut self, mut turn: Turn, todo: &mut Vec<Action>) {
        if self.mail_again && !turn.calls.is_empty() {
            return self.take_in(turn, todo);
        }
        let Some(call) = turn.calls.pop_front() else {
            if turn.wants_idle && turn.unseen == 0 {
                self.finish(turn, Outcome::Done, todo);
            } else {
                self.take_in(turn, todo);
            }
            return;
        };
        todo.push(Action::Judge(call.clone()));
        self.phase = Phase::Waiting(turn, Wait::of(call));
    }

    fn run_tool(&mut self, turn: Turn, call: Call, todo: &mut Vec<Action>) {
        self.exchange_limit.call(&call.name);
        let (tool_use_id, name) = (call.id.clone(), call.name.clone());
        todo.push(Action::Record(Entry::ToolStart { tool_use_id, name: name.clone() }));
        todo.push(Action::Sync);
        todo.push(Action::Publish(Status::Working, Some(Activity::Tool(name.clone()))));
        let summary = call.input.to_string();
        todo.push(Action::Show(Progress::ToolStarted { name, summary }));
        todo.push(Action::RunTool(call.clone()));
        self.phase = Phase::Acting(turn, call);
    }

    fn on_tool_ended(&mut self, result: Result<String, ToolError>, todo: &mut Vec<Action>) {
        let (mut turn, call, leaving) = match self.take_phase() {
            Phase::Acting(turn, call) => (turn, call, false),
            Phase::Leaving(turn, call) => (turn, call, true),
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Taking(_)
            | Phase::Thinking(_)
            | Phase::Waiting(..)
            | Phase::Over) => {
                self.phase = other;
                return;
            }
        };
        let succeeded = result.is_ok();
        match result {
            Ok(content) => turn.answer(&call, content, false, todo),
            Err(ToolError::Reply(why)) => turn.answer(&call, why, true, todo),
            Err(ToolError::Fatal(why)) => {
                answer(&call, why.clone(), true, todo);
                turn.refuse_calls("not run: the agent cannot go on", todo);
                turn.text.clone_from(&why);
                turn.told_lead = false;
                self.close_turn(turn, Outcome::Failed, todo);
                todo.push(Action::Exit(Ending::Broken(why)));
                self.phase = Phase::Over;
                return;
            }
        }
        if leaving {
            turn.refuse_calls("not run: the lead is gone", todo);
            return self.finish_leaving(turn, StopCause::LeadLost, todo);
        }
        turn.told_lead = succeeded && is_message_to_lead(&call);
        turn.wants_idle |= succeeded && signal(&call) == Signal::EndsTurn;
        if succeeded && signal(&call) == Signal::AnswersShutdown {
            // A refusal lets the turn go on; the ladder's deadlines stand all the same.
            if !wants_shutdown(&call) {
                todo.push(refusal(&call));
                turn.extension = turn.winding_down.take().map(|end| Extension::of(end.stop));
            } else if turn.winding_down.is_some() {
                turn.refuse_calls(WINDING_DOWN, todo);
                return self.finish(turn, Outcome::Interrupted, todo);
            }
        }
        self.act(turn, todo);
    }

    fn take_in(&mut self, turn: Turn, todo: &mut Vec<Action>) {
        self.mail_again = false;
        self.phase = Phase::Taking(Some(turn));
        todo.push(Action::Drain);
    }

    fn fail(&mut self, mut turn: Turn, why: String, todo: &mut Vec<Action>) {
        turn.text = why;
        turn.told_lead = false;
        self.finish(turn, Outcome::Failed, todo);
    }

    /// The turn is over: recorded, reported, and mail looked for once more.
    fn finish(&mut self, turn: Turn, outcome: Outcome, todo: &mut Vec<Action>) {
        let stop = turn.leaves_for();
        self.close_turn(turn, outcome, todo);
        if let Some(stop) = stop {
            return self.leave(stop, todo);
        }
        self.finished = Some(match outcome {
            Outcome::Done => IdleReason::Available,
            Outcome::Failed => IdleReason::Failed,
            Outcome::Interrupted => IdleReason::Interrupted,
        });
        self.mail_again = false;
        self.phase = Phase::Taking(None);
        todo.push(Action::Drain);
    }

    fn finish_leaving(&mut self, turn: Turn, stop: StopCause, todo: &mut Vec<Action>) {
        self.close_turn(turn, Outcome::Interrupted, todo);
        self.leave(stop, todo);
    }

    fn close_turn(&mut self, mut turn: Turn, outcome: Outcome, todo: &mut Vec<Action>) {
        turn.refuse_calls("not run: the turn was over", todo);
        let Turn { rounds, text, told_lead, .. } = turn;
        let untold = !text.is_empty() && !told_lead && !self.me.name.is_lead();
        let report = untold.then(|| text.clone());
        todo.push(Action::EndTurn { outcome, rounds, report });
        todo.push(Action::Show(Progress::TurnEnded { outcome, text }));
    }
}

#[cfg(test)]
mod tests;
