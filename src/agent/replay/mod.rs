//! A member that plays a record again. Its model's replies come from the record ([`model`]), and it gets each message
//! and prompt at the same place of its conversation as in the record.
//!
//! ```text
//!   senders ──> held mail ──── Player ────> inbox ──> the member's drain
//!               (store::replay)    ^ the script says what is due here; the order says whether the others are so far
//! ```
//!
//! The member itself is the same as ever: it asks its [`Stage`] around a drain and around a tool call, and shows when it
//! is idle. If the record cannot go on, because something in it does not happen again, nothing is held any more.

mod answers;
mod delivery;
mod end;
pub(crate) mod list;
pub(crate) mod model;
mod moved;
mod order;
mod place;
mod recorded_answers;
mod recorded_mail;
mod script;
mod shared;
mod waiting;

use super::conversation::without_note;
use super::event::{Events, MachineEvent};
use super::progress::Progress as Shown;
use crate::bus::{Bus, Outgoing, lock};
use crate::os::SystemClock;
use crate::os::program::kill_this_process;
use crate::os::spawn::spawn_local;
use crate::protocol::tasks::NewTask;
use crate::store::asynchronous::offload;
use crate::store::replay::{each_entry, follow_held, plan, recorded_agents};
use crate::store::{StoreError, TeamDir};
use crate::tasks::Tasks;
use crate::tools::can_complete_tasks;
use crate::tools::replay::{Stage, StageFuture};
use crate::tools::{Call, ToolError, ToolOutput};
use crate::wire::message::{Correlation, Message};
use crate::wire::replay::{Pace, ReplayPlan, ToolSource};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use delivery::{Delivered, Delivery};
use list::RecordedList;
use order::Progress;
use recorded_answers::{RecordedAnswer, recorded_answers};
use script::{Crash, Script};
use shared::{Shared, Step, Window, stalled_after};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The interval at which a waiting member looks at the files. File events of five folders would cost more.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The interval for a member that may wait for long.
const SLOW_INTERVAL: Duration = Duration::from_millis(50);

/// A member that plays its part of the record.
pub(crate) struct Player {
    me: AgentName,
    plan: ReplayPlan,
    script: Arc<Script>,
    shared: Arc<Mutex<Shared>>,
    /// The tasks that the person adds; the lead adds them again.
    of_person: RefCell<Vec<(WallTime, NewTask)>>,
    /// The answers of the person; the lead gives them again.
    answers: Arc<[RecordedAnswer]>,
    /// The questions whose answers were given.
    given: RefCell<BTreeSet<String>>,
    agent: OnceCell<Agent>,
    /// The task that wakes the idle member.
    prompter: RefCell<Option<JoinHandle<()>>>,
    /// Whether the record is played to its end.
    is_played: Cell<bool>,
    /// Whether the record is no longer followed.
    has_strayed: Cell<bool>,
}

/// The agent to which the record is delivered.
struct Agent {
    bus: Arc<Bus>,
    events: Events,
    incarnation: String,
}

impl Player {
    /// Opens the record for a member; `None` if its team plays none.
    pub(crate) fn open(team: &TeamDir, me: &AgentName) -> Result<Option<Rc<Self>>, StoreError> {
        let Some(plan) = plan(team)? else { return Ok(None) };
        let record = TeamDir::look(&plan.record)?;
        let agents = recorded_agents(&record)?;
        let end = plan.end.unwrap_or_else(|| WallTime::from_secs(f64::MAX));
        let mut rests = Vec::new();
        if !me.is_lead() {
            each_entry(&record, &AgentName::lead(), |line| rests.extend(rest_of(me, &line)))?;
        }
        let mut lines = Vec::new();
        each_entry(&record, me, |line| lines.push(line))?;
        let has = |time| plan.has(time);
        let script = Script::new(lines.into_iter(), has, (!me.is_lead()).then_some(&rests));
        let script = Arc::new(script);
        let list = RecordedList::read(&record)?;
        let answers = if me.is_lead() {
            recorded_answers(&record, &agents, &plan, team)?
        } else {
            Vec::new()
        };
        let members = agents.iter().map(|name| Progress::open((&record, &list), has, team, name));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let shared = Shared {
            me: me.clone(),
            dir: team.clone(),
            record,
            script: Arc::clone(&script),
            end,
            ending: plan.ending,
            stalled_after: stalled_after(&plan, &members),
            with_notes: plan.tools == ToolSource::Real,
            has_no_reply: false,
            members,
            held_tail: follow_held(team, me),
            held: Vec::new(),
            seen: BTreeSet::new(),
            place: None,
            released: 0,
            ahead: 0,
            grew_at: Instant::now(),
            strayed: None,
            of_person: list.of_person.iter().map(|(at, _)| *at).collect(),
            added: Cell::default(),
            request_ids: BTreeMap::new(),
        };
        let shared = Arc::new(Mutex::new(shared));
        let (agent, prompter) = (OnceCell::new(), RefCell::default());
        let mut of_person = if me.is_lead() { list.of_person } else { Vec::new() };
        of_person.retain(|(at, _)| plan.has(*at));
        // Those that an earlier lead has added are there.
        of_person.drain(..RecordedList::read(team)?.of_person.len().min(of_person.len()));
        let of_person = RefCell::new(of_person);
        Ok(Some(Rc::new(Self {
            me: me.clone(),
            plan,
            script,
            shared,
            of_person,
            answers: answers.into(),
            given: RefCell::default(),
            agent,
            prompter,
            is_played: Cell::default(),
            has_strayed: Cell::default(),
        })))
    }

    /// Connects the member with its agent, whose progress it follows: returns the function that receives it.
    fn play_for(
        self: &Rc<Self>,
        bus: &Arc<Bus>,
        events: Events,
        incarnation: &str,
        show: Rc<dyn Fn(&Shown)>,
    ) -> Rc<dyn Fn(&Shown)> {
        let (bus, incarnation) = (Arc::clone(bus), incarnation.to_owned());
        let is_first = self.agent.set(Agent { bus, events, incarnation }).is_ok();
        debug_assert!(is_first, "a member has one agent");
        spawn_local(Rc::clone(self).add_tasks_of_person());
        if self.me.is_lead() {
            spawn_local(Rc::clone(self).watch_for_end());
        }
        let player = Rc::clone(self);
        Rc::new(move |progress| {
            if *progress == Shown::Idle {
                player.rest();
            }
            show(progress);
        })
    }

    /// Adds the tasks that the person has added in the record.
    async fn add_tasks_of_person(self: Rc<Self>) {
        let Some(Agent { bus, .. }) = self.agent.get() else { return };
        let tasks = Tasks::new(Arc::clone(bus), Arc::new(SystemClock), can_complete_tasks);
        let tasks = Arc::new(tasks);
        for (at, new) in self.of_person.take() {
            self.wait_for_others(at).await;
            self.wait_until(SLOW_INTERVAL, move |shared| shared.have_all_reached(at)).await;
            let tasks = Arc::clone(&tasks);
            let added = offload(move || tasks.create(&new, &AgentName::user()).map(drop)).await;
            if let Err(why) = added {
                self.look(move |shared| shared.stray(format!("a task cannot be added: {why}")))
                    .await;
            }
        }
    }

    /// Kills this process where it crashed in the record.
    async fn crash_if_recorded(&self) {
        if let Some(crash) = self.recorded_crash().await {
            self.crash(crash).await;
        }
    }

    /// Returns the crash of this process in the record, if it has come as far.
    async fn recorded_crash(&self) -> Option<Crash> {
        let crash = self.look(|shared| shared.script.crash(&shared.place())).await;
        let is_played = |at| self.plan.end.is_none_or(|end| at < end);
        crash.filter(|crash| is_played(crash.came_back_at))
    }

    /// Kills this process. Mail that waited for the next process waits for it again.
    async fn crash(&self, crash: Crash) {
        self.wait_for_others(crash.crashed_at()).await;
        loop {
            let step = self.look(move |shared| {
                let step = shared.step(&shared.mail_of_crash(crash), Window::Now);
                if let Step::Go(_) = step {
                    // Nothing is drained any more.
                    kill_this_process();
                }
                step
            });
            match step.await {
                Step::Send(delivery) => self.send_again(*delivery).await,
                Step::Wait => tokio::time::sleep(LOOK_INTERVAL).await,
                Step::Go(_) => return,
            }
        }
    }

    /// Wakes the idle member by what comes next.
    fn rest(self: &Rc<Self>) {
        let player = Rc::clone(self);
        let task = spawn_local(async move {
            player.crash_if_recorded().await;
            // A message that starts a turn comes together with all that follow it, since the turn takes in no more.
            let next = |shared: &Shared| {
                let due = shared.due(true);
                let is_turn = due.first().is_some_and(Delivery::wakes);
                // Mail of the end comes only once the rest of the record is played.
                let before_end = due.iter().take_while(|it| it.at < shared.end).count();
                let count = if is_turn { before_end.max(1) } else { 1 }.min(due.len());
                due.get(..count).unwrap_or_default().to_vec()
            };
            let prompts = player.deliver_some(next).await;
            player.prompt(prompts);
        });
        if let Some(before) = self.prompter.borrow_mut().replace(task) {
            before.abort();
        }
    }

    fn prompt(&self, prompts: Vec<String>) {
        let Some(agent) = self.agent.get() else { return };
        for prompt in prompts {
            let _ended = agent.events.send(MachineEvent::Prompt(prompt).into());
        }
    }

    /// Delivers what is due, and returns the prompts.
    async fn deliver(
        &self,
        window: Window,
        due: impl Fn(&Shared) -> Vec<Delivery> + Clone + Send + 'static,
    ) -> Vec<String> {
        loop {
            let due = due.clone();
            match self.look(move |shared| shared.step(&due(shared), window)).await {
                Step::Go(prompts) => return prompts,
                Step::Send(delivery) => self.send_again(*delivery).await,
                Step::Wait => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// Delivers mail that is drained before the next call of a tool.
    async fn deliver_before_next_call(
        &self,
        window: Window,
        due: impl Fn(&Shared) -> Vec<Delivery> + Clone + Send + 'static,
    ) {
        let is_any_due = due.clone();
        if !self.look(move |shared| !is_any_due(shared).is_empty()).await {
            return;
        }
        let prompts = self.deliver(window, due).await;
        self.prompt(prompts);
        if let Some(agent) = self.agent.get() {
            // This event comes before the result for which the agent waits.
            let _ended = agent.events.send(MachineEvent::Mail.into());
        }
    }

    /// Like [`Self::deliver`], and waits until something is due.
    async fn deliver_some(
        &self,
        due: impl Fn(&Shared) -> Vec<Delivery> + Clone + Send + 'static,
    ) -> Vec<String> {
        loop {
            let is_any_due = due.clone();
            let is_due = move |shared: &mut Shared| {
                let is_due = !is_any_due(shared).is_empty();
                if !is_due {
                    shared.release_unexpected();
                }
                is_due || shared.strayed.is_some()
            };
            if self.look(is_due).await {
                let prompts = self.deliver(Window::Now, due.clone()).await;
                if self.look(|shared| shared.strayed.is_none()).await || !prompts.is_empty() {
                    return prompts;
                }
            }
            tokio::time::sleep(SLOW_INTERVAL).await;
        }
    }

    /// Waits until the others have done again what they did before this time, or the record is no longer followed.
    async fn wait_for_others(&self, time: WallTime) {
        let missing = || "another member has not come as far as in the record".to_owned();
        let is_time =
            move |shared: &mut Shared| shared.is_time(time) || shared.has_strayed(missing);
        self.wait_until(LOOK_INTERVAL, is_time).await;
    }

    /// Waits until the shared lists are as they were before a call.
    async fn wait_for_list(&self, id: &str) {
        let id: Arc<str> = id.into();
        let missing = || "a call of another member has not ended".to_owned();
        let is_ready =
            move |shared: &mut Shared| shared.is_list_ready(&id) || shared.has_strayed(missing);
        self.wait_until(LOOK_INTERVAL, is_ready).await;
    }

    async fn wait_until(
        &self,
        interval: Duration,
        is_met: impl Fn(&mut Shared) -> bool + Clone + Send + 'static,
    ) {
        while !self.look(is_met.clone()).await {
            tokio::time::sleep(interval).await;
        }
    }

    async fn look<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Shared) -> T + Send + 'static,
    ) -> T {
        let shared = Arc::clone(&self.shared);
        offload(move || {
            let mut shared = lock(&shared);
            shared.look();
            act(&mut shared)
        })
        .await
    }

    /// Sends a message that came from outside the team, such as one of the person, for this process.
    async fn send_again(&self, delivery: Delivery) {
        let Delivered::Mail { message, verified } = delivery.what else { return };
        let Some(Agent { bus, incarnation, .. }) = self.agent.get() else { return };
        let (bus, me, incarnation) = (Arc::clone(bus), self.me.clone(), incarnation.clone());
        let sent = offload(move || {
            let read = Message::read(&message).map_err(|why| why.to_string())?;
            let from = AgentName::mailbox(&read.from).map_err(|why| why.to_string())?;
            let correlation =
                read.request_id.map(|request_id| Correlation { request_id, incarnation });
            let content = read.content;
            let outgoing =
                Outgoing { id: read.id, correlation, ..Outgoing::of(read.body, content) };
            let sent = if verified {
                bus.send(&from, me.as_str(), outgoing)
            } else {
                bus.send_unsealed(&from, &me, outgoing)
            };
            sent.map_err(|why| why.to_string())
        });
        if let Err(why) = sent.await {
            self.look(move |shared| shared.stray(format!("a message cannot be sent again: {why}")))
                .await;
        }
    }

    /// Waits as long as the record says, if the replay is in real time.
    async fn keep_pace(&self, began: Instant, takes: Duration) {
        if self.plan.pace == Pace::RealTime {
            tokio::time::sleep_until((began + takes).into()).await;
        }
    }
}

/// Connects the player of an agent, if it plays a record, with the agent. Returns the function for its progress.
pub(crate) fn played(
    player: Option<&Rc<Player>>,
    bus: &Arc<Bus>,
    events: &Events,
    incarnation: &str,
    show: Rc<dyn Fn(&Shown)>,
) -> Rc<dyn Fn(&Shown)> {
    match player {
        Some(player) => player.play_for(bus, events.clone(), incarnation, show),
        None => show,
    }
}

impl Stage for Player {
    fn before_drain(&self) -> StageFuture<'_, ()> {
        Box::pin(async move {
            // Mail for one that asks has come already, and an answer may not be there for long.
            if self.look(|shared| shared.is_asking()).await {
                return;
            }
            let prompts =
                self.deliver(Window::Now, |shared: &Shared| shared.due(false).to_vec()).await;
            self.prompt(prompts);
        })
    }

    fn asks(self: Rc<Self>) {
        spawn_local(self.deliver_to_asker());
    }

    fn after_drain(&self) -> StageFuture<'_, ()> {
        Box::pin(async move {
            if let Some(crash) = self.recorded_crash().await.filter(|crash| crash.is_before_rest) {
                self.crash(crash).await;
            }
            self.stay_in_last_drain().await;
        })
    }

    fn before_claim(&self) -> StageFuture<'_, ()> {
        Box::pin(async move {
            let is_next = |shared: &mut Shared| {
                let due = shared.due(true);
                let next = due.first().filter(|next| next.is_own_claim());
                next.is_some_and(|next| shared.is_time(next.at)) || shared.strayed.is_some()
            };
            self.wait_until(SLOW_INTERVAL, is_next).await;
        })
    }

    fn before_call<'a>(
        &'a self,
        call: &'a Call,
        is_of_team: bool,
    ) -> StageFuture<'a, Option<Result<ToolOutput, ToolError>>> {
        Box::pin(async move {
            let Some(tool) = self.script.tool(&call.id) else {
                self.stay_for_kill().await;
                return None;
            };
            let began = Instant::now();
            self.stay_at_cut(tool.started_at).await;
            self.wait_for_others(tool.started_at).await;
            self.wait_for_list(&call.id).await;
            if tool.result.is_none() {
                self.crash_if_recorded().await;
                self.stay_for_kill().await;
            }
            if is_of_team || self.plan.tools == ToolSource::Real {
                return None;
            }
            let Some((at, result)) = &tool.result else {
                self.stay_in_call().await;
                return Some(Err(ToolError::Reply("the record has no result of this call".into())));
            };
            self.keep_pace(began, at.since(tool.started_at)).await;
            recorded_result(result)
        })
    }

    fn after_call<'a>(&'a self, call: &'a Call) -> StageFuture<'a, ()> {
        Box::pin(async move {
            // Whatever the call has sent is there before its result is recorded.
            let id: Arc<str> = call.id.as_str().into();
            let due = move |shared: &Shared| shared.due_after_call(&id).to_vec();
            self.deliver_before_next_call(Window::Now, due).await;
        })
    }
}

/// Returns the recorded result of a call.
fn recorded_result(entry: &Entry) -> Option<Result<ToolOutput, ToolError>> {
    let Entry::ToolResult { content, is_error, file, more_files, images, .. } = entry else {
        return None;
    };
    // The note of the record would make each repetition another result.
    let content = without_note(content);
    if *is_error {
        return Some(Err(ToolError::Reply(content.into())));
    }
    let files = file.iter().map(|file| (**file).clone()).chain(more_files.iter().cloned());
    let (files, images) = (files.collect(), images.clone());
    Some(Ok(ToolOutput { files, images, ..ToolOutput::from(content.to_owned()) }))
}

/// Returns the time at which a member told the lead that it is idle, if the line of the lead's transcript says so.
fn rest_of(me: &AgentName, line: &Line) -> Option<WallTime> {
    let Entry::Mail { message, .. } = &line.entry else { return None };
    let message = Message::read(message).ok()?;
    let is_rest = message.body.kind() == "idle_notification" && message.from == me.as_str();
    message.timestamp.filter(|_| is_rest)
}
