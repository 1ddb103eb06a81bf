//! `team lead` at a terminal: the loop that feeds a [`Session`], and its orderly end.

use super::ending::{EndReason, EndedLoop, close, exit_code, stop_loop};
use super::{lead_app::LeadApp, session::Session, user_mail::UserMail};
use crate::agent::progress::Progress;
use crate::app::{context::Context, stop_members::outcome_lines};
use crate::error::{Exit, Failure, OrFail};
use crate::os::{signals::SignalEvent, terminal::TerminalGuard};
use crate::ui::console::{Console, ConsoleOptions, Input};
use crate::ui::help;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which roster, budgets and open questions are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the session until it ends, then stops the team.
pub(super) async fn run(context: &Context, app: LeadApp) -> Result<Exit, Failure> {
    // Restores the terminal on every way out, a panic included.
    let terminal = TerminalGuard::save();
    let (console, mut inputs) = Console::start(ConsoleOptions {
        palette: context.palette(),
        prompt: "team> ".into(),
        history_file: context.environment.config_home().map(|home| home.join("team/history")),
        completions: help::commands().map(ToOwned::to_owned).collect(),
    })
    .or_fail(
        "the terminal cannot be used",
        "run `team lead -p PROMPT` where there is no usable terminal",
    )?;
    let LeadApp { runtime, mut agent, mut progress, mut signals, budgets, .. } = app;
    let LeadApp { options, startup, unshown_mail, life: _life, .. } = app;
    // How the members ended that the person stopped.
    let (outcomes, mut stopped) = unbounded_channel();
    let mut user_mail = UserMail::open(context, runtime.team());
    let deadline = options.request.timeout.map(|timeout| Instant::now() + timeout);
    let mut session = Session::new(context.view(), runtime, console, budgets, outcomes);
    session.open(options, &startup, unshown_mail);
    let mut check = interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (reason, ended) = loop {
        let verdict = tokio::select! {
            ended = &mut agent => {
                let ended = EndedLoop::of(ended)?;
                break (ended.reason(), ended);
            }
            Some(progress) = progress.recv() => session.on_progress(&progress),
            Some(input) = inputs.recv() => session.on_input(input),
            signal = signals.next() => session.on_signal(signal),
            Some(message) = user_mail.next() => {
                session.console.show(&Progress::Mail(Box::new(message)));
                None
            }
            Some(outcome) = stopped.recv() => {
                session.console.print(&outcome_lines(&[outcome]));
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
            break (reason, stop_loop(&session.runtime, &mut agent).await?);
        }
    };
    session.say_goodbye(reason);
    let supervisor = Rc::clone(&session.runtime.supervisor);
    let mut closing = pin!(close(&supervisor, ended, reason));
    let closed = loop {
        // Each further Ctrl-C shortens the wait. A hang-up is both a signal and a closed input, so only Ctrl-C
        // counts.
        tokio::select! {
            closed = &mut closing => break closed,
            signal = signals.next() => if signal == SignalEvent::Interrupt {
                session.hurry();
            },
            Some(input) = inputs.recv() => if input == Input::Interrupt {
                session.hurry();
            },
        }
    };
    // What arrived while the team was being stopped.
    let mut console = session.console;
    while let Ok(progress) = progress.try_recv() {
        console.show(&progress);
    }
    for message in closed.last_mail {
        console.show(&Progress::Mail(Box::new(message)));
    }
    for outcome in closed.outcomes {
        console.print(&outcome_lines(&[outcome]));
    }
    for message in user_mail.close().await {
        console.show(&Progress::Mail(Box::new(message)));
    }
    if let Some(why) = &closed.end.broken {
        console.print(&format!("error: the lead could not go on: {why}"));
    }
    console.close();
    drop(terminal);
    // A person who quits after a failed turn has seen the failure: the exit code is that of success.
    let is_orderly = reason == EndReason::Done && closed.end.broken.is_none();
    Ok(if is_orderly { Exit::Ok } else { exit_code(reason, &closed.end, false) })
}
