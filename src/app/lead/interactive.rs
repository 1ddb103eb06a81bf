//! `team lead` at a terminal: the event loop of a session, the handlers of its events, and the orderly end.

use super::ending::{ALL_DONE, Closed, EndedLoop, TimeLimit, close, exit_code, stop_loop};
use super::lead_app::LeadApp;
use super::options::{Front, LeadOptions};
use super::session::Session;
use super::startup::RosterPlace;
use super::user_mail::UserMail;
use crate::agent::progress::Progress;
use crate::app::stop_members::outcome_lines;
use crate::app::{context::Context, file_list};
use crate::error::{Exit, Failure, OrFail};
use crate::os::{signals::SignalEvent, terminal::TerminalGuard};
use crate::store::TeamDir;
use crate::ui::console::{Console, ConsoleOptions, FileList, Input};
use crate::ui::help;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which roster, budgets and open questions are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn run(
    context: &Context,
    app: LeadApp,
    entry: RosterPlace,
) -> Result<Exit, Failure> {
    // Restores the terminal on every exit path, including a panic.
    let terminal = TerminalGuard::save();
    let (console, mut inputs) = match open_console(context, app.runtime.team(), &app.options) {
        Ok(opened) => opened,
        Err(why) => {
            entry.give_back(app.runtime.team()).await;
            return Err(why);
        }
    };
    let LeadApp { runtime, mut agent, mut progress, mut signals, budgets, .. } = app;
    let LeadApp { options, startup, unshown_mail, life: _life, deadline, .. } = app;
    let (mut session, mut results) =
        Session::new(context, runtime, console, budgets, &options, startup.conversation.clone());
    // The agent's loop begins at the next wait, which must come after the first prompt.
    session.open(options, &startup, unshown_mail);
    let mut user_mail = UserMail::open(context, session.runtime.team()).await;
    let mut check = interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (reason, ended) = loop {
        let verdict = tokio::select! {
            ended = &mut agent => {
                let ended = EndedLoop::of(ended)?;
                break (ended.reason(), Some(ended));
            }
            Some(progress) = progress.recv() => session.on_progress(progress),
            Some(input) = inputs.recv() => session.on_input(input).await,
            signal = signals.next() => session.on_signal(signal),
            Some(message) = async { user_mail.as_mut()?.messages.recv().await } => {
                session.console.show(Progress::Mail(Box::new(message)));
                None
            }
            Some(outcome) = results.recv() => {
                session.console.print(&outcome);
                None
            }
            event = session.shell.next() => {
                session.on_shell(event);
                None
            }
            diff = session.turn_changes.next() => {
                session.show_changes(diff);
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
            tracing::info!(%reason, "the session ends");
            let limit = TimeLimit(deadline);
            break (reason, stop_loop(&session.runtime, &mut agent, limit).await?);
        }
    };
    session.shell.kill();
    session.show_end(reason);
    let supervisor = Rc::clone(&session.runtime.supervisor);
    let limit = TimeLimit(deadline);
    let mut closing = pin!(close(&supervisor, ended, reason, limit));
    let closed = loop {
        // Each further Ctrl-C shortens the wait. A hang-up is both a signal and a closed input, so it does not count.
        tokio::select! {
            closed = &mut closing => break closed,
            signal = signals.next() => if signal == SignalEvent::Interrupt {
                session.raise_urgency();
            },
            Some(input) = inputs.recv() => if input == Input::Interrupt {
                session.raise_urgency();
            },
            _ = check.tick() => session.show_awaited(),
        }
    };
    // The person has seen a failed turn before quitting, so the exit code is still that of success.
    let is_orderly = closed.is_orderly(reason);
    let exit = if is_orderly { Exit::Ok } else { exit_code(reason, &closed.end, ALL_DONE) };
    show_rest(session.console, progress, user_mail, closed).await;
    drop(terminal);
    Ok(exit)
}

fn open_console(
    context: &Context,
    team: &TeamDir,
    options: &LeadOptions,
) -> Result<(Console, UnboundedReceiver<Input>), Failure> {
    let hint = "run `team lead -p PROMPT` where there is no usable terminal";
    Console::start(ConsoleOptions {
        palette: context.palette(),
        prompt: "team> ".into(),
        history_file: context.environment.config_home().map(|home| home.join("team/history")),
        commands: help::COMMANDS,
        files: Some(file_list(team)),
        external_editor: context.external_editor(),
        is_plain: options.request.front == Front::Terminal { is_plain: true },
        notifies: options.settings.notify.value,
    })
    .or_fail("the terminal cannot be used", hint)
}

fn file_list(team: &TeamDir) -> FileList {
    let workspace = team.workspace().to_owned();
    Arc::new(move || file_list::list(&workspace))
}

/// Shows progress and mail that arrived while the team was being stopped, and closes the console.
async fn show_rest(
    console: Console,
    mut progress: UnboundedReceiver<Progress>,
    user_mail: Option<UserMail>,
    closed: Closed,
) {
    while let Ok(progress) = progress.try_recv() {
        console.show(progress);
    }
    for message in closed.last_mail {
        console.show(Progress::Mail(Box::new(message)));
    }
    for outcome in closed.outcomes {
        console.print(&outcome_lines(&[outcome]));
    }
    if let Some(user_mail) = user_mail {
        for message in user_mail.close().await {
            console.show(Progress::Mail(Box::new(message)));
        }
    }
    if let Some(why) = &closed.end.broken {
        console.print(&format!("error: the lead could not continue: {why}"));
    }
}
