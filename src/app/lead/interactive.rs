//! `team lead` at a terminal: the loop that feeds a [`Session`], and its orderly end.

use super::ending::{Closed, EndReason, EndedLoop, close, exit_code, stop_loop};
use super::lead_app::LeadApp;
use super::session::Session;
use super::user_mail::UserMail;
use crate::agent::progress::Progress;
use crate::app::context::Context;
use crate::app::signal_stream::SignalStream;
use crate::app::stop_members::outcome_line;
use crate::error::{Exit, Failure, OrFail};
use crate::os::signals::SignalEvent;
use crate::os::terminal::TerminalGuard;
use crate::os::{Clock, SystemClock};
use crate::protocol::ctrl_c::{CtrlC, CtrlCAction, LeadActivity};
use crate::protocol::ladder::Urgency;
use crate::supervise::stop::StopOutcome;
use crate::supervise::supervisor::Supervisor;
use crate::ui::console::{Console, ConsoleOptions, Input};
use crate::ui::help;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Interval at which roster, budgets and open questions are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the session until it ends, then stops the team.
pub(super) async fn run(context: &Context, app: LeadApp) -> Result<Exit, Failure> {
    // Restores the terminal on every way out, a panic included.
    let terminal = TerminalGuard::save();
    let (console, inputs) = Console::start(ConsoleOptions {
        palette: context.palette(),
        prompt: "team> ".into(),
        history_file: context.environment.config_home().map(|home| home.join("team/history")),
        completions: help::commands().map(ToOwned::to_owned).collect(),
    })
    .or_fail(
        "the terminal cannot be used",
        "run `team lead -p PROMPT` where there is no usable terminal",
    )?;
    let LeadApp { runtime, agent, progress, signals, budgets, opening, life: _life } = app;
    let (outcomes, outcomes_received) = unbounded_channel();
    let mut sources = Sources {
        user_mail: UserMail::open(context, runtime.team()).await,
        inputs,
        progress,
        signals,
        outcomes: outcomes_received,
    };
    let deadline = opening.timeout.map(|timeout| Instant::now() + timeout);
    let mut session = Session::new(context.view(), runtime, console, budgets, outcomes);
    session.open(opening);
    let (reason, ended) = sources.serve(&mut session, agent.spawn(), deadline).await?;
    let (supervisor, console, keys) = session.finish(reason);
    let closed = sources.close(&supervisor, keys, ended, reason).await;
    sources.show_last(console, &closed).await;
    drop(terminal);
    // A person who quits after a failed turn has seen the failure: the exit code is that of success.
    let is_orderly = reason == EndReason::Done && closed.end.broken.is_none();
    Ok(if is_orderly { Exit::Ok } else { exit_code(reason, &closed.end, false) })
}

/// The sources of a session's events.
struct Sources {
    user_mail: UserMail,
    inputs: UnboundedReceiver<Input>,
    progress: UnboundedReceiver<Progress>,
    signals: SignalStream,
    /// How the members ended that the person stopped.
    outcomes: UnboundedReceiver<StopOutcome>,
}

impl Sources {
    /// Feeds the session until it or the agent ends; the agent's loop has ended afterwards.
    async fn serve(
        &mut self,
        session: &mut Session,
        mut agent: JoinHandle<EndedLoop>,
        deadline: Option<Instant>,
    ) -> Result<(EndReason, EndedLoop), Failure> {
        let mut check: Interval = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let verdict = tokio::select! {
                ended = &mut agent => {
                    let ended = EndedLoop::of(ended)?;
                    return Ok((ended.reason(), ended));
                }
                Some(progress) = self.progress.recv() => session.on_progress(&progress),
                Some(input) = self.inputs.recv() => session.on_input(input).await,
                signal = self.signals.next() => session.on_signal(signal),
                Some(message) = self.user_mail.next() => {
                    session.console.show(&Progress::Mail(Box::new(message)));
                    None
                }
                Some(outcome) = self.outcomes.recv() => {
                    session.console.print(&outcome_line(&outcome));
                    None
                }
                notice = session.approvals.next_notice() => {
                    session.console.print(&notice);
                    None
                }
                _ = check.tick() => session.check(deadline),
            };
            session.show_question();
            if let Some(reason) = verdict {
                tracing::info!(?reason, "the session ends");
                return Ok((reason, stop_loop(&session.runtime, &mut agent).await?));
            }
        }
    }

    /// Stops the team. Each further Ctrl-C shortens the wait.
    async fn close(
        &mut self,
        supervisor: &Supervisor,
        mut keys: CtrlC,
        ended: EndedLoop,
        reason: EndReason,
    ) -> Closed {
        let closing = close(supervisor, ended, reason);
        tokio::pin!(closing);
        loop {
            tokio::select! {
                closed = &mut closing => return closed,
                // A hang-up is both a signal and a closed input, so only Ctrl-C counts.
                signal = self.signals.next() => if signal == SignalEvent::Interrupt {
                    hurry(supervisor, &mut keys);
                },
                Some(input) = self.inputs.recv() => if input == Input::Interrupt {
                    hurry(supervisor, &mut keys);
                },
            }
        }
    }

    /// Shows what arrived while the team was being stopped.
    async fn show_last(mut self, mut console: Console, closed: &Closed) {
        while let Ok(progress) = self.progress.try_recv() {
            console.show(&progress);
        }
        for message in &closed.last_mail {
            console.show(&Progress::Mail(Box::new(message.clone())));
        }
        for outcome in &closed.outcomes {
            console.print(&outcome_line(outcome));
        }
        for message in self.user_mail.close().await {
            console.show(&Progress::Mail(Box::new(message)));
        }
        if let Some(why) = &closed.end.broken {
            console.print(&format!("error: the lead could not go on: {why}"));
        }
        drop(console);
    }
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
