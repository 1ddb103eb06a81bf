//! `team lead -p`: runs until everybody is done, then stops the team and prints the last text.

use super::super::context::Context;
use super::super::out;
use super::super::progress_line::{ProgressLine, still_there};
use super::super::signal_stream::SignalStream;
use super::questions::{ApprovalContext, Present, Questions};
use super::watchdog::{Watchdog, at_rest, awaited_words, failed_tasks};
use super::{
    Closed, Ended, LeadRuntime, REHEARSAL_BANNER, Reason, close, end_loop, exit_code, run_agent,
};
use crate::agent::event::Event;
use crate::agent::progress::Progress;
use crate::error::{Exit, Failure};
use crate::os::signals::SignalEvent;
use crate::os::{Clock, SystemClock};
use crate::protocol::ladder::Urgency;
use crate::settings::model::ModelChoice;
use crate::store::{TeamDir, roster};
use crate::supervise::supervisor::Supervisor;
use crate::ui::headless_output::{Format, Headless, MemberSummary, Summary};
use crate::wire::AgentName;
use crate::wire::message::Outcome;
use crate::wire::task::TaskId;
use std::io::{self, IsTerminal, Stderr, Stdout};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// How often rest and budgets are looked at while nothing happens, and how far apart the two looks
/// are that must agree before a run is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The last turn of the lead.
#[derive(Default)]
struct LastTurn {
    text: String,
    failed: bool,
}

pub(super) async fn run(
    context: &Context,
    runtime: LeadRuntime,
    mut progress: UnboundedReceiver<Progress>,
    output: Format,
) -> Result<Exit, Failure> {
    let began = Instant::now();
    let stderr = io::stderr();
    let palette = context.palette_for(true);
    let narration = stderr.is_terminal().then_some((stderr, palette));
    let mut screen = Headless::new(output, io::stdout(), narration);
    let mut questions = Questions::new(
        ApprovalContext {
            team: runtime.team.clone(),
            approval_queue: runtime.approval_queue,
            supervisor: Rc::clone(&runtime.supervisor),
            events: runtime.events.clone(),
            incarnation: runtime.agent.me.incarnation.clone(),
        },
        Present::Nobody("in a headless run (-p) nobody can be asked, and no rule allows it"),
    );
    let mut watchdog = Watchdog::new(runtime.team.clone(), runtime.limits, runtime.standing);
    let failed_before = failed_tasks(&runtime.tasks);
    let deadline = runtime.limits.timeout.map(|timeout| began + timeout);
    let mut signals = runtime.signals;
    if let Some(found) = &runtime.found {
        out::complain(found);
    }
    for message in runtime.before {
        show(&mut screen, &Progress::Mail(Box::new(message)));
    }
    // A team that goes on may have nothing left to do.
    let may_rest_at_once = runtime.prompt.is_none();
    if let Some(prompt) = runtime.prompt {
        let _received = runtime.events.send(Event::Prompt(prompt));
    }
    if runtime.model == ModelChoice::Rehearsal {
        out::complain(REHEARSAL_BANNER);
    }
    let events = runtime.events.clone();
    let agent = tokio::task::spawn_local(run_agent(runtime.agent, runtime.events, runtime.inbound));
    tokio::pin!(agent);
    let mut last = LastTurn { text: runtime.last_words, failed: false };
    let mut rested = false;
    let mut reason = None;
    let waiting = ProgressLine::begin("waiting for");
    let ended = loop {
        let verdict = tokio::select! {
            ended = &mut agent => break ended,
            Some(progress) = progress.recv() => {
                rested = false;
                waiting.hide();
                show(&mut screen, &progress);
                if let Progress::Mail(message) = &progress {
                    questions.on_mail(message);
                }
                note(&progress, &mut last, &mut watchdog)
            }
            word = questions.next_word() => {
                tracing::info!(word, "decided");
                None
            }
            signal = signals.next() => Some(signal_reason(signal)),
            () = past(deadline) => Some(Reason::Timeout),
            () = tokio::time::sleep(LOOK_EVERY) => {
                questions.look();
                let rests = (watchdog.turns() > 0 || may_rest_at_once)
                    && at_rest(&runtime.team, &runtime.source);
                let twice = rests && std::mem::replace(&mut rested, rests);
                waiting.say(|| awaited_words(&runtime.team, SystemClock.now()));
                if let Some(warning) = watchdog.warning() {
                    waiting.hide();
                    show(&mut screen, &Progress::Warning(warning.clone()));
                    let _ended = events.send(Event::Notice(warning));
                }
                watchdog.spent().or(twice.then_some(Reason::Done))
            }
        };
        if let Some(verdict) = verdict {
            tracing::info!(reason = ?verdict, "the run ends");
            reason = Some(verdict);
            end_loop(&events);
            break agent.await;
        }
    };
    drop(waiting);
    let ended: Ended = ended.map_err(|why| {
        let hint = "`team log lead` tells more; please report this";
        Failure::new(Exit::Failure, "the lead broke down", why.to_string(), hint)
    })?;
    let reason = reason.unwrap_or_else(|| ended.reason());
    let closing = close(&runtime.supervisor, ended, reason);
    let closing = with_signals(closing, &runtime.supervisor, &mut signals);
    let team = team_of(&runtime.team);
    let closed =
        ProgressLine::begin("stopping").during(closing, || still_there(&runtime.team, &team)).await;
    while let Ok(progress) = progress.try_recv() {
        show(&mut screen, &progress);
        note(&progress, &mut last, &mut watchdog);
    }
    let mut failed_tasks = failed_tasks(&runtime.tasks);
    failed_tasks.retain(|id| !failed_before.contains(id));
    let exit = exit_code(reason, &closed, last.failed || !failed_tasks.is_empty());
    let summary = Summary {
        outcome: outcome(reason, exit).into(),
        exit_code: exit as u8,
        error: error(reason, &closed, &last).or_else(|| tasks_failed(&failed_tasks)),
        result: last.text,
        seconds: began.elapsed().as_secs_f64(),
        usage: watchdog.used(),
        members: member_summaries(&runtime.team),
    };
    if watchdog.turns() == 0 && summary.error.is_none() {
        out::complain("nothing was left to do");
    }
    if let Some(error) = &summary.error {
        out::complain(&format!("error: {error}"));
    }
    // Nobody reads any more: the exit code still tells.
    let _unread = screen.finish(&summary);
    Ok(exit)
}

fn show(screen: &mut Headless<Stdout, Stderr>, progress: &Progress) {
    if screen.show(progress).is_err() {
        tracing::info!("nobody reads the output any more");
    }
    if let Progress::Warning(text) = progress
        && !io::stderr().is_terminal()
    {
        out::complain(text);
    }
}

/// Keeps the last turn; tells when a turn too many begins.
fn note(progress: &Progress, last: &mut LastTurn, watchdog: &mut Watchdog) -> Option<Reason> {
    match progress {
        Progress::TurnStarted { .. } => watchdog.turn_begins(),
        Progress::TurnEnded { outcome, text } => {
            watchdog.turn_ended();
            *last = LastTurn { text: text.clone(), failed: *outcome == Outcome::Failed };
            watchdog.spent()
        }
        Progress::Mail(_)
        | Progress::Asked(_)
        | Progress::Text(_)
        | Progress::Retry { .. }
        | Progress::ToolStarted { .. }
        | Progress::ToolEnded { .. }
        | Progress::Idle
        | Progress::Warning(_)
        | Progress::Note(_) => None,
    }
}

fn signal_reason(signal: SignalEvent) -> Reason {
    match signal {
        SignalEvent::Interrupt => Reason::Interrupted,
        SignalEvent::Terminate | SignalEvent::Hangup => Reason::Terminated,
    }
}

/// Sees the team out while further SIGINTs shorten the ladder.
async fn with_signals<T>(
    closing: impl Future<Output = T>,
    supervisor: &Supervisor,
    signals: &mut SignalStream,
) -> T {
    tokio::pin!(closing);
    let mut urgency = Urgency::Polite;
    loop {
        tokio::select! {
            done = &mut closing => return done,
            // A storm of SIGTERM is one SIGTERM; only SIGINT loses patience.
            signal = signals.next() => if signal == SignalEvent::Interrupt {
                urgency = if urgency == Urgency::Polite { Urgency::Now } else { Urgency::AtOnce };
                supervisor.hurry(urgency);
            }
        }
    }
}

async fn past(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn outcome(reason: Reason, exit: Exit) -> &'static str {
    match reason {
        Reason::Done if exit == Exit::Ok => "done",
        Reason::Done => "failed",
        Reason::Interrupted | Reason::Terminated => "interrupted",
        Reason::Timeout => "timeout",
        Reason::Budget(_) => "budget",
    }
}

fn error(reason: Reason, closed: &Closed, last: &LastTurn) -> Option<String> {
    match reason {
        Reason::Timeout => Some("--timeout passed before everybody was done".into()),
        Reason::Budget(limit) => Some(format!("{limit} are used: the team was stopped")),
        Reason::Interrupted => Some("interrupted".into()),
        Reason::Terminated => Some("terminated".into()),
        Reason::Done => closed.why.clone().or_else(|| last.failed.then(|| last.text.clone())),
    }
}

fn tasks_failed(failed: &[TaskId]) -> Option<String> {
    let ids: Vec<String> = failed.iter().map(ToString::to_string).collect();
    (!ids.is_empty()).then(|| format!("task {} failed", ids.join(", task ")))
}

/// Everybody on the roster but the lead.
fn team_of(team: &TeamDir) -> Vec<AgentName> {
    let roster = roster::read(team).unwrap_or_default();
    roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok()).collect()
}

fn member_summaries(team: &TeamDir) -> Vec<MemberSummary> {
    let Ok(roster) = roster::read(team) else { return Vec::new() };
    let members = roster.members.iter().map(|member| MemberSummary {
        name: member.name.clone(),
        role: member.role.clone(),
        status: member.status.word().into(),
        model: member.model.clone(),
        usage: member.usage,
    });
    members.collect()
}
