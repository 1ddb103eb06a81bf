//! The owner of a subagent's conversation: drives its turn machine, and asks the caller for what needs the caller.

use super::ending::{SubagentEnd, Used};
use super::link::{CallerLink, RETRY_AFTER};
use super::request::{Asker, SubagentRequest};
use crate::agent::conversation::{
    AfterRestart, CallVerdict, Conversation, DiskFullHandler, HostAction, Journal, ModelCaller,
    NextAttempt, RecordError, SyncFuture, TranscriptWriter, TurnAction, TurnEffect, TurnEnd,
    TurnEvent, TurnMachine, UsableModel, WorkId, WorkResult,
};
use crate::agent::model_chain::{AgentModels, ModelChain, ModelChange, ModelVerdict};
use crate::agent::progress::Progress;
use crate::os::failpoint::hit;
use crate::store::asynchronous::offload;
use crate::store::{StoreError, Transcript, subagents};
use crate::tools::skills::SkillsInPrompt;
use crate::tools::{Call, Registry, can_use_skills};
use crate::wire::WallTime;
use crate::wire::activity::Activity;
use crate::wire::chat::Usage;
use crate::wire::message::Outcome;
use crate::wire::permission::{Decision, DecisionOutcome, Question};
use crate::wire::role::Role;
use crate::wire::subagent::{SubagentId, SubagentStart};
use crate::wire::transcript::{Entry, Line, TurnReport};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A subagent that is about to work, or to go on.
pub(super) struct Runner {
    pub(super) link: Rc<CallerLink>,
    pub(super) id: SubagentId,
    pub(super) start: SubagentStart,
    pub(super) role: Role,
    pub(super) models: AgentModels,
    pub(super) tools: Rc<Registry>,
    pub(super) asker: Rc<Asker>,
}

/// The transcript of a subagent, which a sync uses on another thread.
struct OwnTranscript {
    file: Arc<Mutex<Transcript>>,
    link: Rc<CallerLink>,
}

impl OwnTranscript {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).append(line)
    }
}

impl TranscriptWriter for OwnTranscript {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        self.append(line)
    }

    fn sync(&self) -> SyncFuture<'_> {
        let (file, fsync) = (Arc::clone(&self.file), self.link.parts.bus.fsync());
        Box::pin(offload(move || file.lock().unwrap_or_else(PoisonError::into_inner).sync(fsync)))
    }
}

/// Waits while the disk is full: the end of the caller drops the subagent.
struct WaitForRoom;

impl DiskFullHandler for WaitForRoom {
    async fn wait(&mut self, why: &StoreError, is_first: bool) -> NextAttempt {
        if is_first {
            tracing::error!(%why, "the disk is full; the subagent waits");
        }
        tokio::time::sleep(RETRY_AFTER).await;
        NextAttempt::Again
    }

    fn has_room_again(&mut self) {
        tracing::info!("the disk has room again");
    }
}

/// Ends the transcript of a subagent that is dropped before its end.
struct EndWhenDropped {
    transcript: Rc<OwnTranscript>,
    number: u64,
    mail_id: String,
    /// The question that waits for its answer.
    asked: RefCell<Option<String>>,
    is_over: Cell<bool>,
}

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        let link = &self.transcript.link;
        if !self.is_over.get() {
            let reason = link.end_reason.get();
            let text = reason.text().to_owned();
            let report = (!text.is_empty()).then(|| TurnReport { id: self.mail_id.clone(), text });
            let withdrawn = self.asked.take().map(|id| {
                let outcome = DecisionOutcome::Withdrawn;
                Entry::Decision(Decision::by_program(&id, outcome, "the subagent was ended"))
            });
            let outcome = Outcome::Interrupted;
            let end = Entry::TurnEnd { outcome, rounds: 0, report, cut_off: false };
            for entry in withdrawn.into_iter().chain([end]) {
                let line = Line { at: link.parts.clock.now(), entry };
                if let Err(why) = self.transcript.append(&line) {
                    tracing::warn!(%why, "the end of a subagent was not recorded");
                }
            }
        }
        link.send(SubagentRequest::Ended(self.number));
        let id = format!("{}:{}", link.parts.caller, self.number);
        link.show(id, None);
    }
}

/// A subagent that works.
struct Working {
    link: Rc<CallerLink>,
    number: u64,
    asker: Rc<Asker>,
    conversation: Conversation,
    models: ModelChain,
    /// Whether the model was last asked for a summary.
    is_compacting: bool,
    used: Used,
    end: EndWhenDropped,
    ended: UnboundedReceiver<(WorkId, WorkResult)>,
}

impl Runner {
    /// Runs the subagent to its end. One that has ended before gives its result again.
    pub(super) async fn run(self) -> SubagentEnd {
        let failed = |text: String| {
            let (outcome, calls, tokens) = (Outcome::Failed, 0, 0);
            SubagentEnd { outcome, text, calls, tokens }
        };
        let (dir, id) = (self.link.parts.bus.dir().clone(), self.id.clone());
        let (transcript, lines) = match offload(move || subagents::open(&dir, &id)).await {
            Ok(opened) => opened,
            Err(why) => return failed(why.to_string()),
        };
        if let Some(end) = SubagentEnd::in_lines(&lines) {
            return end;
        }
        if !lines.is_empty() && !subagents::are_of(&lines, &self.start) {
            return failed("its transcript is that of another one; start a new subagent".into());
        }
        let (max_rounds, skills) = (self.max_rounds(), self.skills().await);
        let (mut working, first) = self.open(transcript, &lines, &skills);
        let done = match working.begin(first, &lines).await {
            Ok(calls) => working.live(TurnMachine::new(max_rounds, calls)).await,
            Err(why) => Err(why),
        };
        match done {
            Ok(end) => working.finish(end).await,
            Err(why) => failed(in_words(why)),
        }
    }

    fn max_rounds(&self) -> u32 {
        let most = self.link.parts.max_rounds;
        self.role.max_turns.map_or(most, |turns| turns.min(most))
    }

    /// Returns the skills of the subagent for its prompt.
    async fn skills(&self) -> SkillsInPrompt {
        let ((skills, within), role) = (self.tools.skills(), self.role.clone());
        let most = self.link.parts.briefing.skill_bytes;
        offload(move || skills.in_prompt(&role, can_use_skills(&within), most)).await
    }

    /// Opens the conversation with the lines of an earlier process. Returns the entries that are still to be recorded.
    fn open(
        self,
        transcript: Transcript,
        lines: &[Line],
        skills: &SkillsInPrompt,
    ) -> (Working, Vec<Entry>) {
        let Self { link, id, start, role, models, tools, asker } = self;
        let parts = &link.parts;
        let transcript = Rc::new(OwnTranscript {
            file: Arc::new(Mutex::new(transcript)),
            link: Rc::clone(&link),
        });
        let end = EndWhenDropped {
            transcript: Rc::clone(&transcript),
            number: id.number,
            mail_id: link.mail_id(&start),
            asked: RefCell::default(),
            is_over: Cell::new(false),
        };
        let situation = format!("You are {}, a helper of {}", start.id, parts.caller);
        let label = models.own.provider.label();
        let in_role = (&role, start.role.as_deref());
        let caller = ModelCaller {
            model: models.own.clone(),
            system: parts.briefing.prompt(&start.id, &parts.caller, in_role, skills),
            max_answer_tokens: parts.max_answer_tokens,
            thinking: parts.thinking,
            secrets: Rc::clone(&parts.secrets),
            situation: Box::new(move || situation.clone()),
            show: Rc::new(|_| {}),
        };
        let journal = Journal::new(transcript, Rc::clone(&parts.clock));
        let (report, ended) = unbounded_channel();
        let report = move |id, result| {
            // A subagent that was dropped has no work.
            let _dropped = report.send((id, result));
        };
        let mut conversation = Conversation::new(journal, caller, tools, report);
        for Line { entry, .. } in lines {
            conversation.remember(entry);
        }
        let task = start.task.clone();
        let mut first = vec![Entry::Session {
            incarnation: parts.incarnation.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            model: label,
            foreign: None,
        }];
        if lines.is_empty() {
            first.insert(0, Entry::Subagent(start));
        }
        if !lines.iter().any(|line| matches!(line.entry, Entry::User { .. })) {
            first.push(Entry::User { content: task });
        }
        let (number, used) = (id.number, Used::in_lines(lines));
        let models = ModelChain::new(models, link.parts.fallback_pause);
        let is_compacting = false;
        let working =
            Working { link, number, asker, conversation, models, is_compacting, used, end, ended };
        (working, first)
    }
}

impl Working {
    /// Records the first entries, and answers the calls that an earlier process did not finish. Returns those that are
    /// still to run.
    async fn begin(
        &mut self,
        first: Vec<Entry>,
        lines: &[Line],
    ) -> Result<VecDeque<Call>, RecordError> {
        let asked: BTreeSet<String> = lines
            .iter()
            .filter_map(|line| {
                let Entry::Request { question, .. } = &line.entry else { return None };
                Some(question.tool_use_id.clone())
            })
            .collect();
        for entry in first {
            self.conversation.journal.record(entry, &mut WaitForRoom).await?;
        }
        self.conversation.journal.sync().await?;
        hit("sub.created");
        let cut_off = self
            .conversation
            .answer_open_calls(&asked, AfterRestart::GoOn, &mut WaitForRoom)
            .await?;
        if !lines.is_empty() {
            let during = cut_off.tool.map(|tool| format!(" (during {tool})")).unwrap_or_default();
            let content = format!(
                "the program was restarted in the middle of your work{during}; go on from here"
            );
            self.conversation.journal.record(Entry::Note { content }, &mut WaitForRoom).await?;
        }
        Ok(cut_off.turn.unwrap_or_default())
    }

    async fn live(&mut self, machine: TurnMachine) -> Result<TurnEnd, RecordError> {
        let mut machine = machine;
        let mut events = VecDeque::from([TurnEvent::InputTaken { unseen: 0 }]);
        loop {
            while let Some(event) = events.pop_front() {
                let (next, todo) = machine.step(event);
                for action in todo {
                    if let Some(answer) = self.perform(action).await? {
                        events.push_front(answer);
                    }
                }
                match next {
                    ControlFlow::Continue(next) => machine = next,
                    ControlFlow::Break(end) => return Ok(end),
                }
            }
            let Some((id, result)) = self.ended.recv().await else {
                return Err(RecordError::Broken("its event channel closed".into()));
            };
            if let Some(result) = self.conversation.end_work(id, result) {
                events.extend(self.after_work(result).await?);
            }
        }
    }

    /// Performs an action. Returns the immediate answer, if there is one.
    async fn perform(&mut self, action: TurnAction) -> Result<Option<TurnEvent>, RecordError> {
        match action {
            TurnAction::Effect(effect) => {
                self.is_compacting = effect == TurnEffect::Compact;
                if effect == TurnEffect::CallModel {
                    self.return_to_first().await?;
                }
                self.perform_effect(effect).await
            }
            TurnAction::Host(action) => self.perform_for_turn(action).await,
        }
    }

    /// Performs an effect. Returns the stop if a budget forbids another model call.
    async fn perform_effect(
        &mut self,
        effect: TurnEffect,
    ) -> Result<Option<TurnEvent>, RecordError> {
        if effect == TurnEffect::CallModel
            && let Some(limit) = self.link.ask(SubagentRequest::CheckBudget).await
        {
            let limit = Some(format!("{limit} are used"));
            return Ok(Some(TurnEvent::Stop { limit }));
        }
        self.show(&effect);
        self.conversation.perform(effect, &mut WaitForRoom).await?;
        Ok(None)
    }

    /// Returns to the subagent's own model when its rest is over.
    async fn return_to_first(&mut self) -> Result<(), RecordError> {
        let now = self.link.parts.clock.monotonic();
        if let Some(ModelChange { model, why }) = self.models.return_to_first(now) {
            tracing::info!(id = self.asker.id, why, "the model of this subagent");
            self.tell(Progress::Note, &why);
            self.use_model(model).await?;
        }
        Ok(())
    }

    /// Handles the result of a piece of work: a call that another model can make is repeated with that one.
    async fn after_work(&mut self, result: WorkResult) -> Result<Option<TurnEvent>, RecordError> {
        let now = self.link.parts.clock.monotonic();
        match self.models.judge(result, now) {
            ModelVerdict::Stands { result, is_back } => {
                if is_back {
                    self.tell(Progress::Note, &format!("{} answers again", self.models.label()));
                }
                Ok(Some(TurnEvent::Work(result)))
            }
            ModelVerdict::Repeat { change: ModelChange { model, why }, usage } => {
                if usage != Usage::default() {
                    self.count(usage);
                }
                tracing::warn!(id = self.asker.id, why, "another model goes on");
                self.tell(Progress::Warning, &why);
                self.link.send(SubagentRequest::CountSwitch(self.number, why));
                self.use_model(model).await?;
                let repeated =
                    if self.is_compacting { TurnEffect::Compact } else { TurnEffect::CallModel };
                self.perform_effect(repeated).await
            }
            // The subagent ends with the error.
            ModelVerdict::Failed { result, .. } => Ok(Some(TurnEvent::Work(result))),
        }
    }

    /// Uses a model from now on, and records this.
    async fn use_model(&mut self, model: UsableModel) -> Result<(), RecordError> {
        let model_entry = Entry::Model { model: model.provider.label() };
        self.conversation.use_model(model);
        self.conversation.journal.record(model_entry, &mut WaitForRoom).await
    }

    /// Tells the viewer of the caller something about the subagent.
    fn tell(&self, kind: fn(String) -> Progress, text: &str) {
        (self.link.parts.show)(&kind(format!("{}: {text}", self.asker.id)));
    }

    fn count(&mut self, usage: Usage) {
        self.used.add(usage);
        let price = self.conversation.model.model.facts.price;
        self.link.send(SubagentRequest::Count(usage, price));
    }

    /// Shows the tool that begins as what the subagent does.
    fn show(&self, effect: &TurnEffect) {
        let TurnEffect::Show(Progress::ToolStarted { name, summary, .. }) = effect else { return };
        let doing = Some(format!("{name} {summary}"));
        self.link.show(self.asker.id.clone(), doing);
    }

    fn publish(&self, activity: Activity) {
        self.link.send(SubagentRequest::Doing(self.number, activity));
    }

    async fn perform_for_turn(
        &mut self,
        action: HostAction,
    ) -> Result<Option<TurnEvent>, RecordError> {
        Ok(match action {
            HostAction::TakeInput => Some(TurnEvent::InputTaken { unseen: 0 }),
            HostAction::InputUsed | HostAction::EndRefused(_) | HostAction::Withdraw(_) => None,
            HostAction::Doing(activity) => {
                if activity == Activity::Model {
                    self.link.show(self.asker.id.clone(), Some("thinks".into()));
                }
                self.publish(activity);
                None
            }
            HostAction::Judge(call) => {
                let asker = Rc::clone(&self.asker);
                let judge = |reply| SubagentRequest::Judge { asker, call, reply };
                Some(TurnEvent::Judged(self.link.ask::<CallVerdict>(judge).await))
            }
            HostAction::Ask(question) => Some(TurnEvent::Settled(self.ask(question).await?)),
            HostAction::Count(usage) => {
                self.count(usage);
                None
            }
        })
    }

    /// Records a question, lets the caller ask it, and waits for the decision.
    async fn ask(&mut self, question: Box<Question>) -> Result<Decision, RecordError> {
        let entry = Entry::Request {
            question: (*question).clone(),
            decider: self.link.parts.caller.to_string(),
            deadline: WallTime::default(),
        };
        self.conversation.journal.record(entry, &mut WaitForRoom).await?;
        self.conversation.journal.sync().await?;
        hit("sub.asked");
        self.end.asked.replace(Some(question.request_id.clone()));
        let number = self.number;
        let ask = |reply| SubagentRequest::Ask { number, question, reply };
        let decision = self.link.ask::<Decision>(ask).await;
        self.end.asked.take();
        Ok(decision)
    }

    /// Records the end.
    async fn finish(mut self, end: TurnEnd) -> SubagentEnd {
        let TurnEnd { outcome, rounds, text, .. } = end;
        let text = self.link.parts.bus.cut(&text);
        let report = Some(TurnReport { id: self.end.mail_id.clone(), text: text.clone() });
        let entry = Entry::TurnEnd { outcome, rounds, report, cut_off: false };
        let recorded = self.conversation.journal.record(entry, &mut WaitForRoom).await;
        let synced = match recorded {
            Ok(()) => self.conversation.journal.sync().await,
            Err(why) => Err(why),
        };
        if let Err(why) = synced {
            let (id, why) = (&self.asker.id, in_words(why));
            tracing::error!(id, why, "the end of a subagent was not recorded");
        }
        self.end.is_over.set(true);
        hit("sub.ended");
        let Used { calls, tokens } = self.used;
        SubagentEnd { outcome, text, calls, tokens }
    }
}

fn in_words(why: RecordError) -> String {
    match why {
        RecordError::Broken(why) => format!("its transcript is broken: {why}"),
        RecordError::GivenUp => "the disk is full".into(),
    }
}
