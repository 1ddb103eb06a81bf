//! `team lead -p`: runs until the team is at rest, then stops the team and prints the last text.

use super::approvals::{Answerer, Approvals};
use super::ending::{
    Closed, EndReason, EndedLoop, TimeLimit, WorkState, close, exit_code, stop_loop,
};
use super::lead_app::LeadApp;
use super::quiescence::{
    failed_tasks, is_at_rest, open_tasks, reminders_until, retry_of, timers_left, waiting_for,
};
use super::spawn_requests;
use crate::agent::{event::MachineEvent, progress::Progress, replay::Player};
use crate::app::progress_line::{ProgressLine, during};
use crate::app::{context::Context, names::member_names, output, stop_members::still_alive};
use crate::error::{Exit, Failure};
use crate::os::blocking_output::BlockingOutput;
use crate::os::{Clock, SystemClock, signals::SignalEvent};
use crate::protocol::ladder::Urgency;
use crate::store::{roster, transcript};
use crate::tools::approval_decision::ApprovalDecision;
use crate::ui::headless_output::{Format, Headless, Summary};
use crate::ui::live::Live;
use crate::wire::{AgentName, WallTime, message::Outcome, roster::Status, task::TaskId};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Stderr, Stdout};
use std::pin::pin;
use std::time::{Duration, Instant};

/// The interval of the checks for rest and budgets after an event, and between the two checks in a row that find rest at the end of a
/// run. It is doubled after each other check.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(5);
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);

/// The length to which a denied call is cut in a message, in characters.
const BRIEF_CHARS: usize = 120;

pub(super) async fn run(context: &Context, app: LeadApp, output: Format) -> Result<Exit, Failure> {
    let narration = io::stderr().is_terminal().then(|| (io::stderr(), context.palette_for(true)));
    let reason = "a headless run (-p) cannot ask, and no rule allows it";
    let answerer = match app.player.clone() {
        Some(player) => Answerer::Record(player, reason),
        None => Answerer::NoOne(reason),
    };
    let mut headless = HeadlessRun {
        approvals: Approvals::new(app.runtime.clone(), answerer),
        screen: Headless::new(output, BlockingOutput(io::stdout()), narration),
        began: Instant::now(),
        began_at: SystemClock.now(),
        last_text: String::new(),
        last_error: None,
        last_turn: Outcome::Done,
        was_at_rest: false,
        interval: SHORTEST_INTERVAL,
        failed_before: failed_tasks(&app.runtime.tasks),
        notices: Live::default(),
        retries: BTreeMap::new(),
        app,
    };
    headless.open();
    let (reason, ended) = headless.serve().await?;
    let closed = headless.close(ended, reason).await;
    Ok(headless.report(reason, &closed))
}

/// Writes the result of a run that could not start, for a program that reads the output.
pub(super) fn show_failed_start(format: Format, failure: &Failure) {
    let summary = Summary {
        outcome: "not_started".into(),
        exit_code: failure.exit as u8,
        error: Some(format!("{}: {}", failure.what, failure.why)),
        ..Summary::default()
    };
    let screen: Headless<_, Stderr> = Headless::new(format, BlockingOutput(io::stdout()), None);
    // The failure is also printed on stderr, and the exit code tells it.
    let _unread = screen.finish(&summary);
}

/// The work of a run that was not done.
struct WorkLeft {
    /// The tasks that failed in the run.
    failed: Vec<TaskId>,
    open: Vec<TaskId>,
    /// The denied calls, each with the name of its member.
    denied: Vec<String>,
}

impl WorkLeft {
    fn state(&self, last_turn: Outcome) -> WorkState {
        WorkState {
            last_turn,
            has_task_failed: !self.failed.is_empty(),
            has_tasks_left: !self.open.is_empty(),
            was_call_denied: !self.denied.is_empty(),
        }
    }

    /// Describes the work in one line; `None` if all of it was done.
    fn words(&self) -> Option<String> {
        let list = |ids: &[TaskId], what: &str| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            (!ids.is_empty()).then(|| format!("task {} {what}", ids.join(", task ")))
        };
        let denied = match self.denied.as_slice() {
            [] => None,
            [one] => Some(format!("a call was denied ({})", in_brief(one))),
            [first, rest @ ..] => {
                Some(format!("{} calls were denied ({}, ...)", rest.len() + 1, in_brief(first)))
            }
        };
        let parts = [list(&self.failed, "failed"), list(&self.open, "is left open"), denied];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Returns the beginning of a denied call, on one line.
fn in_brief(what: &str) -> String {
    let line = what.lines().next().unwrap_or_default();
    if line.chars().count() <= BRIEF_CHARS {
        return line.to_owned();
    }
    line.chars().take(BRIEF_CHARS).chain(['…']).collect()
}

fn outcome_word(exit: Exit) -> &'static str {
    match exit {
        Exit::Ok => "done",
        Exit::TasksLeft => "tasks_left",
        Exit::CallDenied => "denied",
        Exit::Timeout => "timeout",
        Exit::Budget => "budget",
        Exit::Interrupted | Exit::Terminated => "interrupted",
        Exit::Failure
        | Exit::Usage
        | Exit::TurnFailed
        | Exit::NoModel
        | Exit::InUse
        | Exit::ModelUnavailable => "failed",
    }
}

/// Returns the next answer of the person in the record that the team plays, with the id of its question.
async fn recorded_answer(player: Option<&Player>) -> (String, ApprovalDecision) {
    match player {
        Some(player) => player.next_answer().await,
        None => std::future::pending().await,
    }
}

struct HeadlessRun {
    app: LeadApp,
    approvals: Approvals,
    screen: Headless<BlockingOutput<Stdout>, Stderr>,
    began: Instant,
    began_at: WallTime,
    /// The last text that the model gave.
    last_text: String,
    /// The error of the last turn, if that failed.
    last_error: Option<String>,
    last_turn: Outcome,
    was_at_rest: bool,
    /// The time until the next check for rest and budgets.
    interval: Duration,
    failed_before: Vec<TaskId>,
    /// The notices about model calls for a stderr that is no terminal.
    notices: Live,
    /// The reason for which the model call of each teammate is late or is tried again, as it was shown.
    retries: BTreeMap<String, String>,
}

impl HeadlessRun {
    fn open(&mut self) {
        if let Some(found) = &self.app.startup.found {
            output::warn(found);
        }
        for message in std::mem::take(&mut self.app.unshown_mail) {
            self.show(&Progress::Mail(Box::new(message)));
        }
        if let Some(prompt) = &self.app.options.request.prompt {
            self.app.runtime.send(MachineEvent::Prompt(prompt.clone()).into());
        }
        if let Some(notice) = self.app.options.model.spec().notice {
            output::warn(notice);
        }
    }

    /// Watches the run until the run or the agent ends. When this returns, the agent's loop has ended.
    async fn serve(&mut self) -> Result<(EndReason, Option<EndedLoop>), Failure> {
        let line = ProgressLine::begin("waiting for");
        let deadline = self.app.deadline;
        let player = self.app.player.clone();
        loop {
            let verdict = tokio::select! {
                ended = &mut self.app.agent => {
                    let ended = EndedLoop::of(ended)?;
                    return Ok((ended.reason(), Some(ended)));
                }
                Some(progress) = self.app.progress.recv() => {
                    line.hide();
                    self.on_progress(&progress)
                }
                notice = self.approvals.next_notice() => {
                    tracing::info!(notice, "decided");
                    None
                }
                (id, decision) = recorded_answer(player.as_deref()) => {
                    if self.approvals.decide_for_person(&id, decision)
                        && let Some(player) = &player
                    {
                        player.give(id);
                    }
                    None
                }
                signal = self.app.signals.next() => Some(signal.into()),
                () = tokio::time::sleep_until(deadline.unwrap_or(self.began).into()),
                    if deadline.is_some() => Some(EndReason::Timeout),
                () = tokio::time::sleep(self.interval) => self.check(&line),
            };
            if let Some(reason) = verdict {
                tracing::info!(%reason, "the run ends");
                let limit = TimeLimit(deadline);
                let stopped = stop_loop(&self.app.runtime, &mut self.app.agent, limit).await?;
                return Ok((reason, stopped));
            }
        }
    }

    fn on_progress(&mut self, progress: &Progress) -> Option<EndReason> {
        (self.was_at_rest, self.interval) = (false, SHORTEST_INTERVAL);
        self.show(progress);
        if let Progress::Asked(question) = progress {
            self.approvals.on_own((**question).clone());
        } else if let Progress::Mail(message) = progress {
            self.approvals.on_mail(message);
            spawn_requests::on_mail(&self.app.runtime, message);
        }
        self.count_turn(progress)
    }

    /// Denies questions, shows warnings, and checks for the end. A run without a prompt may end without a turn.
    fn check(&mut self, line: &ProgressLine) -> Option<EndReason> {
        self.approvals.refresh();
        self.show_retries(line);
        let until = reminders_until(self.app.deadline);
        let LeadApp { runtime, budgets, options, .. } = &self.app;
        let has_begun = budgets.turns > 0 || options.request.prompt.is_none();
        // Progress that was not seen yet may begin work.
        let may_rest = has_begun && self.app.progress.is_empty();
        let is_at_rest = may_rest && is_at_rest(runtime, until);
        let is_over = match &self.app.player {
            Some(player) => player.is_over(is_at_rest && self.was_at_rest),
            None => is_at_rest && self.was_at_rest,
        };
        self.was_at_rest = is_at_rest;
        self.interval =
            if is_at_rest { SHORTEST_INTERVAL } else { LONGEST_INTERVAL.min(self.interval * 2) };
        line.update(|| waiting_for(runtime.team(), SystemClock.now(), until));
        if let Some(warning) = budgets.warning() {
            line.hide();
            self.show(&Progress::Warning(warning.clone()));
            self.app.runtime.send(MachineEvent::Notice(warning).into());
        }
        self.app.budgets.spent().or(is_over.then_some(EndReason::Done))
    }

    /// Stops the team, then shows the progress that arrived meanwhile. The first SIGINT skips the polite request, the
    /// second one kills.
    async fn close(&mut self, ended: Option<EndedLoop>, reason: EndReason) -> Closed {
        let limit = TimeLimit(self.app.deadline);
        let is_cut = self.app.player.as_ref().is_some_and(|player| player.is_cut());
        let LeadApp { runtime, signals, .. } = &mut self.app;
        let (team, supervisor) = (runtime.team(), &runtime.supervisor);
        let members = supervisor.its_own();
        let closed = {
            let alive = || still_alive(team, &members);
            let mut closing =
                pin!(during("stopping", close(supervisor, ended, reason, limit), alive));
            let mut urgency = Urgency::Now;
            if is_cut {
                // Their turns are cut off, and a resumed team continues them.
                supervisor.raise_urgency(urgency);
            }
            loop {
                tokio::select! {
                    closed = &mut closing => break closed,
                    // Repeated SIGTERMs count as one; only SIGINT shortens the wait.
                    signal = signals.next() => if signal == SignalEvent::Interrupt {
                        supervisor.raise_urgency(urgency);
                        urgency = Urgency::AtOnce;
                    }
                }
            }
        };
        while let Ok(progress) = self.app.progress.try_recv() {
            self.show(&progress);
            self.count_turn(&progress);
        }
        closed
    }

    fn report(self, reason: EndReason, closed: &Closed) -> Exit {
        let LeadApp { runtime, budgets, .. } = &self.app;
        let work = self.work_left();
        let exit = exit_code(reason, &closed.end, work.state(self.last_turn));
        let failure = match reason {
            EndReason::Done => closed.end.broken.clone().or(self.last_error).or_else(|| {
                let cut = "a limit ended the lead's last turn before its work was done";
                (self.last_turn == Outcome::Interrupted)
                    .then(|| cut.to_owned())
                    .or_else(|| closed.end.left_running.clone())
            }),
            EndReason::Timeout => Some("--timeout passed before all agents were done".into()),
            EndReason::Budget(limit) => Some(format!("{limit} are used: the team was stopped")),
            EndReason::Interrupted => Some("interrupted".into()),
            EndReason::Terminated => Some("terminated".into()),
        };
        let error = failure.or_else(|| work.words());
        let summary = Summary {
            outcome: outcome_word(exit).into(),
            exit_code: exit as u8,
            error,
            tasks_left: work.open.iter().map(ToString::to_string).collect(),
            denied: work.denied,
            result: self.last_text,
            seconds: self.began.elapsed().as_secs_f64(),
            usage: budgets.used(),
            members: roster::read(runtime.team()).unwrap_or_default().members.clone(),
        };
        if budgets.turns == 0 && summary.error.is_none() {
            output::warn("nothing was left to do");
        }
        if let Some(error) = &summary.error {
            output::warn(&format!("error: {error}"));
        }
        if let Some(left) = timers_left(runtime.team()) {
            let when = "each reminder that is due comes when its member next runs";
            output::warn(&format!("timers are left: {left}; {when}"));
        }
        // If the reader of stdout has left, the exit code still shows the outcome.
        let printed = self.screen.finish(&summary);
        let is_lost = printed.is_err_and(|error| output::report_if_lost(&error));
        if is_lost && exit == Exit::Ok { Exit::Failure } else { exit }
    }

    fn work_left(&self) -> WorkLeft {
        let LeadApp { runtime, options, .. } = &self.app;
        let mut failed = failed_tasks(&runtime.tasks);
        failed.retain(|id| !self.failed_before.contains(id));
        // A run that works on the list, or continues an earlier run, is to leave no task open.
        let is_of_whole_list = runtime.auto_claim || options.request.resumes();
        let open = open_tasks(&runtime.tasks, (!is_of_whole_list).then_some(self.began_at));
        let roster = roster::read(runtime.team()).unwrap_or_default();
        let mut denied = Vec::new();
        for name in member_names(&roster).into_iter().chain([AgentName::lead()]) {
            let found = transcript::denied_since(runtime.team(), &name, self.began_at);
            let found = found.unwrap_or_else(|why| {
                tracing::warn!(%name, %why, "its denied calls are not known");
                Vec::new()
            });
            denied.extend(found.into_iter().map(|what| format!("{name}: {what}")));
        }
        WorkLeft { failed, open, denied }
    }

    fn show(&mut self, progress: &Progress) {
        if let Err(error) = self.screen.show(progress) {
            output::report_if_lost(&error);
        }
        if io::stderr().is_terminal() {
            return;
        }
        if matches!(progress, Progress::TurnEnded { .. }) {
            // The next turn tells of its own delays.
            self.notices = Live::default();
        }
        let is_notice = matches!(
            progress,
            Progress::Warning(_)
                | Progress::Retry { .. }
                | Progress::Silent { .. }
                | Progress::Answers
                | Progress::MemberRetry { .. }
        );
        let notice = if is_notice { self.notices.rows(progress, None) } else { String::new() };
        if !notice.is_empty() {
            output::warn(&notice);
        }
    }

    /// Shows each teammate whose model call is late or is tried again, once for each reason.
    fn show_retries(&mut self, line: &ProgressLine) {
        let Ok(roster) = roster::read(self.app.runtime.team()) else { return };
        for member in &roster.members {
            let name = member.name.clone();
            let is_working = member.status == Status::Working;
            match retry_of(member.activity.as_ref()).filter(|_| is_working) {
                Some(why) if self.retries.get(&name) != Some(&why) => {
                    self.retries.insert(name.clone(), why.clone());
                    line.hide();
                    self.show(&Progress::MemberRetry { name, why });
                }
                Some(_) => {}
                None => drop(self.retries.remove(&name)),
            }
        }
    }

    /// Records the last turn. Returns the end of the run if a limit is reached.
    fn count_turn(&mut self, progress: &Progress) -> Option<EndReason> {
        if let Progress::TurnEnded { outcome, text } = progress
            && !self.app.budgets.is_cut_off
        {
            let has_failed = *outcome == Outcome::Failed;
            self.last_turn = *outcome;
            self.last_error = has_failed.then(|| text.clone());
            // The text of a failed turn is its error, which is not an answer.
            if !has_failed && !text.is_empty() {
                self.last_text.clone_from(text);
            }
        }
        self.app.budgets.count(progress)
    }
}
