//! `team lead` at a terminal: a person types, the lead and its team are watched.

use super::super::context::Context;
use super::commands::{self, Show, Typed};
use super::questions::{ApprovalContext, Present, Questions};
use super::user_mail::UserMail;
use super::watchdog::{Source, Watchdog, at_rest};
use super::{Ended, LeadRuntime, REHEARSAL_BANNER, Reason, close, end_loop, exit_code, run_agent};
use crate::agent::event::Event;
use crate::agent::progress::Progress;
use crate::error::{Exit, Failure};
use crate::os::signals::SignalEvent;
use crate::os::terminal::TerminalGuard;
use crate::os::{Clock, SystemClock};
use crate::protocol::ctrl_c::{CtrlC, CtrlCAction, LeadActivity};
use crate::protocol::ladder::Urgency;
use crate::settings::model::ModelChoice;
use crate::store::{TeamDir, roster};
use crate::supervise::stop::StopOutcome;
use crate::supervise::supervisor::Supervisor;
use crate::tasks::Tasks;
use crate::ui::console::{Console, ConsoleOptions, Input, MemberLabel};
use crate::ui::help;
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::activity::Activity;
use crate::wire::roster::{Member, Status};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often the roster is looked at for the activity of teammates.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The conversation with the person.
struct Session {
    context_view: View,
    team: TeamDir,
    tasks: Arc<Tasks>,
    source: Source,
    console: Console,
    supervisor: Rc<Supervisor>,
    events: crate::agent::Events,
    bus: std::sync::Arc<crate::bus::Bus>,
    watchdog: Watchdog,
    keys: CtrlC,
    busy: bool,
    /// Input has ended without anybody having quit: the session ends when all work is done.
    ends_at_rest: bool,
    questions: Questions,
    /// The question that is on the screen.
    shown: Option<String>,
    /// How members went that the person stopped.
    departures: UnboundedSender<StopOutcome>,
    /// What the roster said when it was last shown.
    seen: BTreeMap<String, (Status, Option<Activity>)>,
}

pub(super) async fn run(
    context: &Context,
    runtime: LeadRuntime,
    mut progress: UnboundedReceiver<Progress>,
) -> Result<Exit, Failure> {
    // Restores the terminal on every way out, a panic included.
    let terminal = TerminalGuard::save();
    let (console, mut inputs) = Console::start(ConsoleOptions {
        palette: context.palette(),
        prompt: "team> ".into(),
        history_file: context.environment.config_home().map(|home| home.join("team/history")),
        completions: help::commands().map(ToOwned::to_owned).collect(),
    })
    .map_err(|why| {
        let hint = "run `team lead -p PROMPT` where there is no usable terminal";
        Failure::new(Exit::Failure, "the terminal cannot be used", why.to_string(), hint)
    })?;
    let mut signals = runtime.signals;
    let mut user_mail = UserMail::open(context, &runtime.team);
    let (departures, mut departed) = unbounded_channel();
    let office = ApprovalContext {
        team: runtime.team.clone(),
        approval_queue: runtime.approval_queue,
        supervisor: Rc::clone(&runtime.supervisor),
        events: runtime.events.clone(),
        incarnation: runtime.agent.me.incarnation.clone(),
    };
    let present = if std::io::stdin().is_terminal() {
        Present::Person
    } else {
        Present::Nobody("standard input is no terminal, so nobody can be asked")
    };
    let mut session = Session {
        questions: Questions::new(office, present),
        shown: None,
        context_view: context.view(),
        console,
        supervisor: Rc::clone(&runtime.supervisor),
        events: runtime.events.clone(),
        bus: Arc::clone(&runtime.bus),
        watchdog: Watchdog::new(runtime.team.clone(), runtime.limits, runtime.standing),
        team: runtime.team,
        tasks: runtime.tasks,
        source: runtime.source,
        keys: CtrlC::default(),
        busy: false,
        ends_at_rest: false,
        departures,
        seen: BTreeMap::new(),
    };
    session.greet(&runtime.model, runtime.fallback, runtime.found.as_deref());
    for message in runtime.before {
        session.console.show(&Progress::Mail(Box::new(message)));
    }
    if let Some(prompt) = runtime.prompt {
        session.prompt(prompt);
    }
    let deadline = runtime.limits.timeout.map(|timeout| Instant::now() + timeout);
    let agent = tokio::task::spawn_local(run_agent(runtime.agent, runtime.events, runtime.inbound));
    tokio::pin!(agent);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (reason, ended) = loop {
        let verdict = tokio::select! {
            ended = &mut agent => {
                break (ended.as_ref().map_or(Reason::Done, Ended::reason), ended);
            }
            Some(progress) = progress.recv() => session.on_progress(&progress),
            Some(input) = inputs.recv() => session.on_input(input),
            signal = signals.next() => session.on_signal(signal),
            Some(message) = user_mail.next() => {
                session.console.show(&Progress::Mail(Box::new(message)));
                None
            }
            Some(departure) = departed.recv() => {
                session.say_departed(&departure);
                None
            }
            word = session.questions.next_word() => {
                session.console.print(&word);
                None
            }
            _ = look.tick() => {
                session.show_team();
                session.warn();
                session.questions.look();
                let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                late.then_some(Reason::Timeout)
                    .or_else(|| session.watchdog.spent())
                    .or_else(|| session.work_is_done())
            }
        };
        session.show_question();
        if let Some(reason) = verdict {
            tracing::info!(?reason, "the session ends");
            end_loop(&session.events);
            break (reason, agent.await);
        }
    };
    let ended: Ended = ended.map_err(|why| {
        let hint = "`team log lead` tells more; please report this";
        Failure::new(Exit::Failure, "the lead broke down", why.to_string(), hint)
    })?;
    if let Reason::Budget(limit) = reason {
        session.console.print(&format!("{limit} are used: the team is stopped"));
    }
    session.console.print(&session.farewell());
    let Session { supervisor, mut console, mut keys, .. } = session;
    let closed = {
        let closing = close(&supervisor, ended, reason);
        tokio::pin!(closing);
        loop {
            tokio::select! {
                done = &mut closing => break done,
                // Only Ctrl-C loses patience: one hang-up is both a closed input and a signal.
                signal = signals.next() => if signal == SignalEvent::Interrupt {
                    hurry(&supervisor, &mut keys);
                },
                Some(input) = inputs.recv() => if input == Input::Interrupt {
                    hurry(&supervisor, &mut keys);
                },
            }
        }
    };
    while let Ok(progress) = progress.try_recv() {
        console.show(&progress);
    }
    for message in &closed.last_mail {
        console.show(&Progress::Mail(Box::new(message.clone())));
    }
    for departure in &closed.departures {
        console.print(&format!("{} {}", departure.name, departure.words()));
    }
    for message in user_mail.close().await {
        console.show(&Progress::Mail(Box::new(message)));
    }
    if let Some(why) = &closed.why {
        console.print(&format!("error: the lead could not go on: {why}"));
    }
    console.close();
    drop(terminal);
    // A person who quits after a failed turn has seen it: leaving in order is a success.
    let fine = reason == Reason::Done && closed.why.is_none();
    Ok(if fine { Exit::Ok } else { exit_code(reason, &closed, false) })
}

fn hurry(supervisor: &Supervisor, keys: &mut CtrlC) {
    supervisor.hurry(match keys.pressed(LeadActivity::Stopping, SystemClock.monotonic()) {
        CtrlCAction::StopAtOnce => Urgency::AtOnce,
        CtrlCAction::StopNow
        | CtrlCAction::StopTeam
        | CtrlCAction::InterruptTurn
        | CtrlCAction::SayHowToQuit => Urgency::Now,
    });
}

impl Session {
    fn greet(&mut self, model: &ModelChoice, fallback: bool, found: Option<&str>) {
        let mut text = String::new();
        if *model == ModelChoice::Rehearsal {
            text.push_str(REHEARSAL_BANNER);
            text.push('\n');
            if fallback {
                text.push_str(
                    "No model is configured: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or give \
                     --model PROVIDER/NAME.\n",
                );
            }
        }
        let workspace = self.team.workspace().display();
        let mode = self.questions.mode();
        let meaning = mode.meaning();
        let found = found.map(|found| format!("{found}\n")).unwrap_or_default();
        let rest = format!(
            "model {model}  workspace {workspace}\n\
             mode {mode}: {meaning}\n\
             {found}Type what you want done; /help explains, /quit ends the team.\n"
        );
        self.console.print(&(text + &rest));
    }

    fn farewell(&self) -> String {
        if self.supervisor.has_children() {
            "stopping the team (Ctrl-C: now) …".into()
        } else {
            "stopping …".into()
        }
    }

    fn prompt(&mut self, text: String) {
        // The machine says so again when the turn begins; until then Ctrl-C already means the turn.
        self.busy = true;
        let _ended = self.events.send(Event::Prompt(text));
    }

    /// Shows the question that is to be answered next, once.
    fn show_question(&mut self) {
        let id = self.questions.front().map(|asked| asked.question.request_id.clone());
        if self.shown != id {
            // What came of the last answer stands above the next question.
            while let Some(word) = self.questions.said() {
                self.console.print(&word);
            }
            if let Some(asked) = self.questions.front() {
                let view = View::new(self.context_view.palette, self.console.width());
                self.console.print(&self.questions.rows(asked, &view));
            }
            self.shown = id;
        }
    }

    fn on_progress(&mut self, progress: &Progress) -> Option<Reason> {
        if let Progress::Asked(question) = progress {
            self.questions.on_own((**question).clone());
            return None;
        }
        self.console.show(progress);
        match progress {
            Progress::Mail(message) => self.questions.on_mail(message),
            Progress::TurnStarted { .. } => {
                self.busy = true;
                return self.watchdog.turn_begins();
            }
            Progress::TurnEnded { .. } => {
                self.watchdog.turn_ended();
                return self.watchdog.spent();
            }
            Progress::Idle => self.busy = false,
            Progress::Asked(_)
            | Progress::Text(_)
            | Progress::Retry { .. }
            | Progress::ToolStarted { .. }
            | Progress::ToolEnded { .. }
            | Progress::Warning(_)
            | Progress::Note(_) => {}
        }
        None
    }

    fn on_input(&mut self, input: Input) -> Option<Reason> {
        match input {
            Input::Interrupt => self.on_ctrl_c(),
            Input::EndOfInput if std::io::stdin().is_terminal() => Some(Reason::Done),
            Input::EndOfInput => {
                self.ends_at_rest = true;
                None
            }
            Input::Closed => Some(Reason::Terminated),
            Input::Answer(key) => {
                self.questions.take_key(key);
                None
            }
            Input::Line(line) if self.questions.take_line(&line) => None,
            Input::Line(line) => {
                match commands::understand(&line) {
                    Typed::Nothing => {}
                    Typed::Prompt(text) => self.prompt(text),
                    Typed::Quit => return Some(Reason::Done),
                    Typed::Stop(name) => self.stop_one(name),
                    Typed::Direct { to, text } => {
                        let answer = commands::write_to(&self.bus, &to, text);
                        self.console.print(&answer);
                    }
                    Typed::Show(what) => {
                        let width = self.console.width().unwrap_or(120);
                        let text = commands::show(&what, &self.tasks, &self.context_view, width);
                        self.console.print(&text);
                        if what == Show::Cost {
                            self.console.print(&self.watchdog.standing().join("\n"));
                        }
                    }
                    Typed::Mode(mode) => {
                        self.questions.set_mode(mode);
                        self.console.print(&format!("mode {mode}: {}", mode.meaning()));
                    }
                    Typed::Wrong(why) => self.console.print(&why),
                }
                None
            }
        }
    }

    /// Prompts that were piped in are worked off before the session ends.
    fn work_is_done(&self) -> Option<Reason> {
        let done = self.ends_at_rest && !self.busy && at_rest(&self.team, &self.source);
        done.then_some(Reason::Done)
    }

    fn on_signal(&mut self, signal: SignalEvent) -> Option<Reason> {
        match signal {
            SignalEvent::Interrupt => self.on_ctrl_c(),
            SignalEvent::Terminate | SignalEvent::Hangup => Some(Reason::Terminated),
        }
    }

    fn on_ctrl_c(&mut self) -> Option<Reason> {
        let doing = if self.busy { LeadActivity::Turn } else { LeadActivity::Idle };
        match self.keys.pressed(doing, SystemClock.monotonic()) {
            CtrlCAction::InterruptTurn => {
                let _ended = self.events.send(Event::Interrupt);
                self.console.print("interrupted; Ctrl-C again within 2 s stops the team");
                None
            }
            CtrlCAction::SayHowToQuit => {
                self.console.print("to quit: /quit, or Ctrl-D");
                None
            }
            CtrlCAction::StopTeam | CtrlCAction::StopNow | CtrlCAction::StopAtOnce => {
                Some(Reason::Interrupted)
            }
        }
    }

    fn stop_one(&self, name: AgentName) {
        if !self.is_member(&name) {
            let hint =
                if name.is_lead() { "/quit ends the lead" } else { "/team shows who is there" };
            return self.console.print(&format!("there is no teammate {name}; {hint}"));
        }
        if self.supervisor.insist(&name) {
            return self.console.print(&format!("{name} is not waited for any longer"));
        }
        self.console.print(&format!("stopping {name} … (/stop {name} again does not wait)"));
        let (supervisor, departures) = (Rc::clone(&self.supervisor), self.departures.clone());
        tokio::task::spawn_local(async move {
            if let Some(departure) = supervisor.stop_named(name, "the user stops you").await {
                // A session that ends meanwhile waits for the same departure itself.
                let _unseen = departures.send(departure);
            }
        });
    }

    fn is_member(&self, name: &AgentName) -> bool {
        roster::read(&self.team).is_ok_and(|roster| roster.member(name.as_str()).is_some())
    }

    fn say_departed(&self, departure: &StopOutcome) {
        self.console.print(&format!("{} {}", departure.name, departure.words()));
    }

    /// Says when little of a budget is left, to the person and to the model.
    fn warn(&mut self) {
        if let Some(warning) = self.watchdog.warning() {
            self.console.show(&Progress::Warning(warning.clone()));
            let _ended = self.events.send(Event::Notice(warning));
        }
    }

    /// Shows what has changed about the teammates.
    fn show_team(&mut self) {
        let Ok(roster) = roster::read(&self.team) else { return };
        let faces: Vec<MemberLabel> = roster
            .members
            .iter()
            .map(|member| MemberLabel { name: member.name.clone(), color: member.color.clone() })
            .collect();
        let names_changed = faces.len() != self.seen.len();
        for (member, face) in roster.members.iter().zip(&faces) {
            let now = (member.status, member.activity.clone());
            let before = self.seen.insert(member.name.clone(), now.clone());
            if before.as_ref() != Some(&now)
                && let Some(text) = change(member, before.as_ref())
            {
                self.console.member(face, &text);
            }
        }
        if names_changed {
            self.console.set_members(&faces);
        }
    }
}

/// A change worth a line; steps between two model calls are not.
fn change(member: &Member, before: Option<&(Status, Option<Activity>)>) -> Option<String> {
    let same_status = before.is_some_and(|(status, _)| *status == member.status);
    match (&member.activity, member.status) {
        (Some(activity), Status::Working) if *activity != Activity::Model => {
            Some(format!("working: {activity}"))
        }
        _ if same_status && !member.status.is_over() => None,
        (Some(activity), Status::Starting) => {
            let exit = member.last_exit.as_ref().map(|exit| exit.cause.word());
            Some(format!("{activity} ({})", exit.unwrap_or("unknown")))
        }
        (_, status) if status.is_over() => {
            let exit = member.last_exit.as_ref().map(|exit| exit.cause.word());
            Some(format!("{} ({})", member.status.word(), exit.unwrap_or("unknown")))
        }
        (_, status) => Some(status.word().to_owned()),
    }
}
