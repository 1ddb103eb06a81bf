//! The lead's program: `team lead`, interactive or headless.
//!
//! [`run`] goes through the stages in order: `past::settle` (the conversation), `LeadOptions::resolve` (request and
//! settings), `LeadApp::start` (the life lock, the roster, recovery, the agent and the supervisor), then a session, which
//! stops the team at its end (`ending`). Another session may follow.

mod approvals;
mod background_view;
mod budget_watch;
mod conversation;
mod editor;
mod ending;
mod granted_rules;
mod headless;
mod interactive;
mod late_statuses;
mod lead_app;
mod lead_core;
mod model_switch;
mod options;
mod past;
mod program;
mod question_queue;
mod quiescence;
mod returning;
mod running_calls;
mod runtime;
mod session;
mod session_commands;
mod shell_command;
mod slash_command;
mod spawn_requests;
mod startup;
mod takeover_words;
mod team_view;
mod turn_changes;
mod typed_answers;
mod upkeep;
mod user_mail;

pub(crate) use conversation::ConversationChoice;
pub(crate) use editor::run as run_for_editor;
pub(crate) use ending::TEAM_STOPS;
pub(crate) use options::{Front, LeadRequest};
pub(crate) use program::run as run_for_program;
pub(crate) use upkeep::limits as retention_limits;

use super::output::{print, warn};
use super::{context::Context, event_loop::block_on};
use crate::error::{Exit, Failure};
use crate::os::program::name_this_process;
use crate::os::{Clock, SystemClock};
use crate::store::takeover;
use conversation::NextSession;
use lead_app::LeadApp;
use options::LeadOptions;
use std::cell::Cell;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Instant;
use takeover_words::taken_over;

/// Runs a lead, and then each session that the one before has asked for ([`NextSession`]), in the same process and
/// terminal. Returns the exit code of the last one.
pub(crate) fn run(context: &Context, mut request: LeadRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("lead")?;
    name_this_process("lead");
    let mut deadline = None;
    let mut next = None;
    loop {
        let has_started = Cell::new(false);
        let outcome = past::settle(context, &mut request).and_then(|left| {
            if let Some(exit) = left {
                return Ok(exit);
            }
            // The time in which a person answers does not count.
            let end = request.timeout.map(|timeout| SystemClock.monotonic() + timeout);
            deadline = deadline.or(end);
            run_session(context, request.clone(), deadline, &has_started, &mut next)
        });
        if let (Err(failure), Some(output), false) =
            (&outcome, request.front.output(), has_started.get())
        {
            headless::show_failed_start(output, failure);
        }
        match next.take().filter(|_| outcome == Ok(Exit::Ok)) {
            Some(next) => request.follow(next),
            None => return outcome,
        }
    }
}

fn run_session(
    context: &Context,
    request: LeadRequest,
    deadline: Option<Instant>,
    has_started: &Cell<bool>,
    next: &mut Option<NextSession>,
) -> Result<Exit, Failure> {
    let output = request.front.output();
    let options = LeadOptions::resolve(context, request)?;
    let team = context.make_team()?;
    block_on(async {
        let started = Box::pin(LeadApp::start(context, &team, options, deadline));
        let (app, entry) = started.await?;
        has_started.set(true);
        let wanted = Rc::clone(&app.runtime.next_session);
        let incarnation = app.runtime.incarnation.clone();
        let exit = match output {
            Some(output) => Box::pin(headless::run(context, app, output)).await,
            None => Box::pin(interactive::run(context, app, entry)).await,
        };
        *next = wanted.take();
        if let Some(note) = takeover::take(&team, &incarnation) {
            warn(&taken_over(&note));
        }
        // A terminal that is gone, or belongs to the next session, gets no last line.
        let is_left = next.is_none() && !matches!(exit, Ok(Exit::Terminated) | Err(_));
        let is_read = output.is_none() && std::io::stdout().is_terminal();
        if let Some(hint) = past::resume_hint(context, &team).filter(|_| is_left && is_read) {
            // The session is over, whether the line is read or not.
            let _printed = print(&hint);
        }
        exit
    })?
}
