//! The lead's program: `team lead`, interactive or headless.
//!
//! [`run`] goes through the stages in order: `LeadOptions::resolve` (request and settings), `LeadApp::start`
//! (the life lock, the roster, recovery, the agent and the supervisor), then a session, which stops the team at
//! its end (`ending`).

mod approvals;
mod budget_watch;
mod ending;
mod granted_rules;
mod headless;
mod interactive;
mod lead_app;
mod options;
mod question_queue;
mod quiescence;
mod returning;
mod runtime;
mod session_commands;
mod shell_command;
mod slash_command;
mod spawn_requests;
mod startup;
mod team_view;
mod user_mail;

pub(crate) use options::LeadRequest;

use super::{context::Context, event_loop::block_on};
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, program};
use lead_app::LeadApp;
use options::LeadOptions;
use std::cell::Cell;

pub(crate) fn run(context: &Context, request: LeadRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("lead")?;
    program::name_this_process("lead");
    let deadline = request.timeout.map(|timeout| SystemClock.monotonic() + timeout);
    let output = request.output;
    let has_started = Cell::new(false);
    let run = || {
        let options = LeadOptions::resolve(context, request)?;
        let team = context.make_team()?;
        block_on(async {
            let started = Box::pin(LeadApp::start(context, &team, options, deadline));
            let (app, entry) = started.await?;
            has_started.set(true);
            match output {
                Some(output) => Box::pin(headless::run(context, app, output)).await,
                None => Box::pin(interactive::run(context, app, entry)).await,
            }
        })?
    };
    let outcome = run();
    if let (Err(failure), Some(output), false) = (&outcome, output, has_started.get()) {
        headless::show_failed_start(output, failure);
    }
    outcome
}
