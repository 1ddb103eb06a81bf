//! The event loop of a session in an editor, and its orderly end.

use super::client::Client;
use super::commands::Commands;
use super::opening::{OpenedLead, Opening, OpeningKind, modes};
use super::prompts::HeldAnswers;
use super::requests::AfterMessage;
use super::session::EditorSession;
use crate::acp::served::incoming::ClientMessage;
use crate::agent::progress::Progress;
use crate::app::context::Context;
use crate::app::event_loop::SignalStream;
use crate::app::lead::ending::{
    ALL_DONE, Closed, EndReason, EndedLoop, TimeLimit, close, exit_code, stop_loop,
};
use crate::app::lead::lead_app::LeadApp;
use crate::app::lead::model_switch::ModelSwitch;
use crate::app::lead::takeover_words::taken_over;
use crate::app::lead::user_mail::UserMail;
use crate::app::output::warn;
use crate::app::permissions::settings_in_force;
use crate::app::stop_members::outcome_lines;
use crate::error::{Exit, Failure};
use crate::os::signals::SignalEvent;
use crate::protocol::ladder::Urgency;
use crate::store::conversations::id_of;
use crate::store::takeover;
use crate::ui::style::{ColorChoice, Palette};
use crate::ui::view::View;
use serde_json::{Value, json};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which the roster, the transcripts of teammates, budgets and open questions are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The connection to the editor, for all sessions of the process.
pub(super) struct Link {
    pub(super) client: Rc<Client>,
    pub(super) messages: Receiver<ClientMessage>,
    pub(super) signals: SignalStream,
    /// Whether a prompt is answered only when the whole team is at rest.
    pub(super) waits_for_team: bool,
}

/// The state of the process after a session.
pub(super) enum AfterSession {
    /// The editor may open another session.
    Closed,
    /// The editor has opened this session.
    Next(Box<Opening>),
    /// The process ends.
    Over(Exit),
}

/// The end of a session, as its event loop found it.
enum Ending {
    /// For this reason the process ends.
    Over(EndReason),
    Close(Value),
    Next(Box<Opening>),
}

/// Runs a session until it ends, and stops its team.
pub(super) async fn serve(
    base: &Context,
    link: &mut Link,
    opened: OpenedLead,
    opening: &Opening,
) -> Result<AfterSession, Failure> {
    let OpenedLead { context, app } = opened;
    let LeadApp {
        runtime, mut agent, mut progress, budgets, options, startup, unshown_mail, ..
    } = app;
    let _life = app.life;
    let id = opening.conversation().map_or_else(|| id_of(&runtime.incarnation), ToOwned::to_owned);
    let (outcomes, mut results) = unbounded_channel();
    let commands = Commands {
        runtime: runtime.clone(),
        models: ModelSwitch::new(&options, startup.conversation.clone()),
        rules_of_settings: settings_in_force(&context, &options.settings),
        view: View::new(Palette::new(ColorChoice::Never, false), None),
        outcomes,
    };
    let (client, held) = (Rc::clone(&link.client), HeldAnswers::new(link.waits_for_team));
    let mut session = EditorSession::new(client, id, runtime, budgets, commands, held);
    open(&mut session, opening, startup.found.as_deref());
    for message in &unshown_mail {
        session.tell_mail(message);
    }
    let mut user_mail = UserMail::open(&context, session.runtime.team()).await;
    let mut check = interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (ending, ended) = loop {
        let verdict = tokio::select! {
            ended = &mut agent => {
                let ended = EndedLoop::of(ended)?;
                break (Ending::Over(ended.reason()), Some(ended));
            }
            Some(progress) = progress.recv() => session.on_progress(progress).map(Ending::Over),
            message = link.messages.recv() => match message {
                None => Some(Ending::Over(EndReason::Done)),
                Some(message) => match session.on_message(base, message).await {
                    AfterMessage::GoOn => None,
                    AfterMessage::Close(request) => Some(Ending::Close(request)),
                    AfterMessage::Next(opening) => Some(Ending::Next(opening)),
                },
            },
            () = link.client.gone() => Some(Ending::Over(EndReason::Done)),
            signal = link.signals.next() => Some(Ending::Over(signal.into())),
            Some(message) = async { user_mail.as_mut()?.messages.recv().await } => {
                session.tell_mail(&message);
                None
            }
            Some(outcome) = results.recv() => {
                session.tell(&outcome);
                None
            }
            notice = session.approvals.next_notice() => {
                session.tell(&notice);
                None
            }
            _ = check.tick() => session.check().map(Ending::Over),
        };
        session.ask_questions();
        if let Some(ending) = verdict {
            session.is_ending = true;
            let stopped = stop_loop(&session.runtime, &mut agent, TimeLimit(None)).await?;
            break (ending, stopped);
        }
    };
    let reason = match &ending {
        Ending::Over(reason) => *reason,
        Ending::Close(_) | Ending::Next(_) => EndReason::Done,
    };
    tracing::info!(%reason, "the session ends");
    session.questions.take_back(&link.client, |_| false);
    let closed = stop_team(&session, link, ended, reason).await;
    show_rest(&mut session, progress, user_mail, &closed).await;
    let why = last_words(&session, reason, &closed);
    session.answer_last(&why);
    Ok(match ending {
        Ending::Over(_) => {
            // The person has seen a failed turn, so the exit code is still that of success.
            let is_orderly = closed.is_orderly(reason);
            let exit = if is_orderly { Exit::Ok } else { exit_code(reason, &closed.end, ALL_DONE) };
            AfterSession::Over(exit)
        }
        Ending::Close(request) => {
            link.client.answer(&request, Ok(json!({})));
            AfterSession::Closed
        }
        Ending::Next(opening) => AfterSession::Next(opening),
    })
}

/// Answers the request that opened the session, and tells its state.
fn open(session: &mut EditorSession, opening: &Opening, found: Option<&str>) {
    let modes = modes(session.told_mode);
    let answer = match opening.kind {
        OpeningKind::New => json!({ "sessionId": session.id, "modes": modes }),
        OpeningKind::Load(_) => {
            session.replay();
            json!({ "modes": modes })
        }
        OpeningKind::Resume(_) => json!({ "modes": modes }),
    };
    session.has_title = opening.kind != OpeningKind::New;
    session.client.answer(&opening.request, Ok(answer));
    session.tell_commands();
    let servers = &opening.place.mcp_servers;
    if !servers.is_empty() {
        let servers = servers.join(", ");
        session.tell(&format!(
            "The editor's MCP servers are not used here ({servers}): list those for the team in `.mcp.json` or the settings."
        ));
    }
    session.tell(found.unwrap_or_default());
}

/// Stops the team. A first SIGINT skips the polite request, a second one kills.
async fn stop_team(
    session: &EditorSession,
    link: &mut Link,
    ended: Option<EndedLoop>,
    reason: EndReason,
) -> Closed {
    let supervisor = Rc::clone(&session.runtime.supervisor);
    let mut closing = pin!(close(&supervisor, ended, reason, TimeLimit(None)));
    let mut urgency = Urgency::Now;
    loop {
        tokio::select! {
            closed = &mut closing => return closed,
            signal = link.signals.next() => if signal == SignalEvent::Interrupt {
                supervisor.raise_urgency(urgency);
                urgency = Urgency::AtOnce;
            },
        }
    }
}

/// Tells what happened while the team was being stopped.
async fn show_rest(
    session: &mut EditorSession,
    mut progress: UnboundedReceiver<Progress>,
    user_mail: Option<UserMail>,
    closed: &Closed,
) {
    while let Ok(progress) = progress.try_recv() {
        // The session is over already.
        let _over = session.on_progress(progress);
    }
    session.tell_members();
    for message in &closed.last_mail {
        session.tell_mail(message);
    }
    for outcome in closed.outcomes.iter().filter(|outcome| outcome.is_stuck()) {
        session.tell(&outcome_lines(std::slice::from_ref(outcome)));
    }
    if let Some(user_mail) = user_mail {
        for message in user_mail.close().await {
            session.tell_mail(&message);
        }
    }
}

/// Returns the reason for the end, for the prompts that are not answered.
fn last_words(session: &EditorSession, reason: EndReason, closed: &Closed) -> String {
    let runtime = &session.runtime;
    if let Some(note) = takeover::take(runtime.team(), &runtime.incarnation) {
        let words = taken_over(&note);
        warn(&words);
        return words;
    }
    match (&closed.end.broken, reason) {
        (Some(why), _) => format!("the lead could not continue: {why}"),
        (None, EndReason::Budget(limit)) => format!("{limit} are used: the team was stopped"),
        (None, EndReason::Done) => "the session was closed".into(),
        (None, EndReason::Interrupted | EndReason::Terminated | EndReason::Timeout) => {
            "the lead was stopped by a signal".into()
        }
    }
}
