//! `team lead -p`: runs until the team is at rest, then stops the team and prints the last text.

use super::approvals::{Answerer, Approvals};
use super::budget_watch::BudgetWatch;
use super::ending::{Closed, EndReason, EndedLoop, close, exit_code, stop_loop};
use super::lead_app::{LeadApp, Opening};
use super::quiescence::{failed_tasks, is_at_rest, waiting_for};
use super::runtime::LeadRuntime;
use crate::agent::event::MachineEvent;
use crate::agent::progress::Progress;
use crate::app::context::Context;
use crate::app::names::member_names;
use crate::app::output;
use crate::app::progress_line::{ProgressLine, still_alive};
use crate::app::signal_stream::SignalStream;
use crate::error::{Exit, Failure};
use crate::os::signals::SignalEvent;
use crate::os::{Clock, SystemClock};
use crate::protocol::ladder::Urgency;
use crate::store::roster;
use crate::supervise::supervisor::Supervisor;
use crate::ui::headless_output::{Format, Headless, Summary};
use crate::wire::message::Outcome;
use crate::wire::task::TaskId;
use std::io::{self, IsTerminal, Stderr, Stdout};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// Interval of the checks for rest and budgets. A run is over when two checks in a row find rest.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The last turn of the lead.
struct LastTurn {
    text: String,
    has_failed: bool,
}

/// Runs the lead until the team is at rest or a limit is reached, then stops the team.
pub(super) async fn run(context: &Context, app: LeadApp, output: Format) -> Result<Exit, Failure> {
    let LeadApp { runtime, agent, progress, mut signals, budgets, opening, life: _life } = app;
    let mut headless = HeadlessRun::new(context, runtime, budgets, progress, output, &opening);
    headless.open(opening);
    let (reason, ended) = headless.serve(agent.spawn(), &mut signals).await?;
    let closed = headless.close(ended, reason, &mut signals).await;
    Ok(headless.report(reason, &closed))
}

/// A headless run.
struct HeadlessRun {
    runtime: LeadRuntime,
    approvals: Approvals,
    budgets: BudgetWatch,
    progress: UnboundedReceiver<Progress>,
    screen: Headless<Stdout, Stderr>,
    last_turn: LastTurn,
    began: Instant,
    deadline: Option<Instant>,
    /// A team that continues without a prompt may have nothing left to do.
    may_rest_at_once: bool,
    was_at_rest: bool,
    /// Failed tasks of earlier runs.
    failed_before: Vec<TaskId>,
}

impl HeadlessRun {
    fn new(
        context: &Context,
        runtime: LeadRuntime,
        budgets: BudgetWatch,
        progress: UnboundedReceiver<Progress>,
        output: Format,
        opening: &Opening,
    ) -> Self {
        let began = Instant::now();
        let stderr = io::stderr();
        let palette = context.palette_for(true);
        let narration = stderr.is_terminal().then_some((stderr, palette));
        let reason = "in a headless run (-p) nobody can be asked, and no rule allows it";
        Self {
            approvals: Approvals::new(runtime.clone(), Answerer::Nobody(reason)),
            budgets,
            progress,
            screen: Headless::new(output, io::stdout(), narration),
            last_turn: LastTurn { text: opening.last_text.clone(), has_failed: false },
            began,
            deadline: opening.timeout.map(|timeout| began + timeout),
            may_rest_at_once: opening.prompt.is_none(),
            was_at_rest: false,
            failed_before: failed_tasks(&runtime.tasks),
            runtime,
        }
    }

    /// Shows what was found, and sends the prompt.
    fn open(&mut self, opening: Opening) {
        if let Some(found) = &opening.found {
            output::warn(found);
        }
        for message in opening.unshown_mail {
            self.show(&Progress::Mail(Box::new(message)));
        }
        if let Some(prompt) = opening.prompt {
            self.runtime.send(MachineEvent::Prompt(prompt).into());
        }
        if let Some(notice) = opening.model.spec().notice {
            output::warn(notice);
        }
    }

    /// Watches the run until it or the agent ends; the agent's loop has ended afterwards.
    async fn serve(
        &mut self,
        mut agent: JoinHandle<EndedLoop>,
        signals: &mut SignalStream,
    ) -> Result<(EndReason, EndedLoop), Failure> {
        let line = ProgressLine::begin("waiting for");
        let deadline = self.deadline;
        loop {
            let verdict = tokio::select! {
                ended = &mut agent => {
                    let ended = EndedLoop::of(ended)?;
                    return Ok((ended.reason(), ended));
                }
                Some(progress) = self.progress.recv() => {
                    line.hide();
                    self.on_progress(&progress)
                }
                notice = self.approvals.next_notice() => {
                    tracing::info!(notice, "decided");
                    None
                }
                signal = signals.next() => Some(signal.into()),
                () = wait_until(deadline) => Some(EndReason::Timeout),
                () = tokio::time::sleep(CHECK_INTERVAL) => self.check(&line),
            };
            if let Some(reason) = verdict {
                tracing::info!(?reason, "the run ends");
                return Ok((reason, stop_loop(&self.runtime, &mut agent).await?));
            }
        }
    }

    fn on_progress(&mut self, progress: &Progress) -> Option<EndReason> {
        self.was_at_rest = false;
        self.show(progress);
        if let Progress::Mail(message) = progress {
            self.approvals.on_mail(message);
        }
        self.count_turn(progress)
    }

    /// Does what is done at intervals: answers questions, warns, and checks whether the run is over.
    fn check(&mut self, line: &ProgressLine) -> Option<EndReason> {
        self.approvals.refresh();
        let is_at_rest =
            (self.budgets.turns() > 0 || self.may_rest_at_once) && is_at_rest(&self.runtime);
        let is_over = is_at_rest && self.was_at_rest;
        self.was_at_rest = is_at_rest;
        line.update(|| waiting_for(self.runtime.team(), SystemClock.now()));
        if let Some(warning) = self.budgets.warning() {
            line.hide();
            self.show(&Progress::Warning(warning.clone()));
            self.runtime.send(MachineEvent::Notice(warning).into());
        }
        self.budgets.spent().or(is_over.then_some(EndReason::Done))
    }

    /// Stops the team; each further SIGINT shortens the wait.
    async fn close(
        &mut self,
        ended: EndedLoop,
        reason: EndReason,
        signals: &mut SignalStream,
    ) -> Closed {
        let (team, supervisor) = (self.runtime.team(), &self.runtime.supervisor);
        let members = member_names(&roster::read(team).unwrap_or_default());
        let closing = hurried_by(signals, supervisor, close(supervisor, ended, reason));
        let line = ProgressLine::begin("stopping");
        let closed = line.during(closing, || still_alive(team, &members)).await;
        while let Ok(progress) = self.progress.try_recv() {
            self.show(&progress);
            self.count_turn(&progress);
        }
        closed
    }

    /// Prints the result and returns the exit code.
    fn report(self, reason: EndReason, closed: &Closed) -> Exit {
        let mut failed_tasks = failed_tasks(&self.runtime.tasks);
        failed_tasks.retain(|id| !self.failed_before.contains(id));
        let has_failed = self.last_turn.has_failed || !failed_tasks.is_empty();
        let exit = exit_code(reason, &closed.end, has_failed);
        let error = error(reason, closed, &self.last_turn).or_else(|| failed_words(&failed_tasks));
        let summary = Summary {
            outcome: outcome(reason, exit).into(),
            exit_code: exit as u8,
            error,
            result: self.last_turn.text,
            seconds: self.began.elapsed().as_secs_f64(),
            usage: self.budgets.used(),
            members: roster::read(self.runtime.team()).unwrap_or_default().members.clone(),
        };
        if self.budgets.turns() == 0 && summary.error.is_none() {
            output::warn("nothing was left to do");
        }
        if let Some(error) = &summary.error {
            output::warn(&format!("error: {error}"));
        }
        // With stdout closed, the exit code still tells the outcome.
        let _lost = self.screen.finish(&summary);
        exit
    }

    fn show(&mut self, progress: &Progress) {
        if self.screen.show(progress).is_err() {
            tracing::info!("stdout is closed");
        }
        if let Progress::Warning(text) = progress
            && !io::stderr().is_terminal()
        {
            output::warn(text);
        }
    }

    /// Remembers the last turn; returns the end of the run when a limit is reached.
    fn count_turn(&mut self, progress: &Progress) -> Option<EndReason> {
        if let Progress::TurnEnded { outcome, text } = progress {
            let has_failed = *outcome == Outcome::Failed;
            self.last_turn = LastTurn { text: text.clone(), has_failed };
        }
        self.budgets.count(progress)
    }
}

/// Waits for the team to be stopped. The first SIGINT skips the polite request, the second kills.
async fn hurried_by<T>(
    signals: &mut SignalStream,
    supervisor: &Supervisor,
    closing: impl Future<Output = T>,
) -> T {
    tokio::pin!(closing);
    let mut urgency = Urgency::Polite;
    loop {
        tokio::select! {
            closed = &mut closing => return closed,
            // Repeated SIGTERMs count as one; only SIGINT shortens the wait.
            signal = signals.next() => if signal == SignalEvent::Interrupt {
                urgency = if urgency == Urgency::Polite { Urgency::Now } else { Urgency::AtOnce };
                supervisor.hurry(urgency);
            }
        }
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn outcome(reason: EndReason, exit: Exit) -> &'static str {
    match reason {
        EndReason::Done if exit == Exit::Ok => "done",
        EndReason::Done => "failed",
        EndReason::Interrupted | EndReason::Terminated => "interrupted",
        EndReason::Timeout => "timeout",
        EndReason::Budget(_) => "budget",
    }
}

fn error(reason: EndReason, closed: &Closed, last_turn: &LastTurn) -> Option<String> {
    match reason {
        EndReason::Timeout => Some("--timeout passed before everybody was done".into()),
        EndReason::Budget(limit) => Some(format!("{limit} are used: the team was stopped")),
        EndReason::Interrupted => Some("interrupted".into()),
        EndReason::Terminated => Some("terminated".into()),
        EndReason::Done => {
            let failed = || last_turn.has_failed.then(|| last_turn.text.clone());
            closed.end.broken.clone().or_else(failed)
        }
    }
}

fn failed_words(failed: &[TaskId]) -> Option<String> {
    let ids: Vec<String> = failed.iter().map(ToString::to_string).collect();
    (!ids.is_empty()).then(|| format!("task {} failed", ids.join(", task ")))
}
