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

use super::{context::Context, event_loop::block_on, output::warn};
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock, local_time, program};
use crate::store::takeover::{self, Takeover};
use crate::ui::sanitize::sanitize;
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
            let incarnation = app.runtime.incarnation.clone();
            let ended = match output {
                Some(output) => Box::pin(headless::run(context, app, output)).await,
                None => Box::pin(interactive::run(context, app, entry)).await,
            };
            if let Some(note) = takeover::take(&team, &incarnation) {
                warn(&taken_over(&note));
            }
            ended
        })?
    };
    let outcome = run();
    if let (Err(failure), Some(output), false) = (&outcome, output, has_started.get()) {
        headless::show_failed_start(output, failure);
    }
    outcome
}

/// Returns the last words of a lead whose place another one has taken.
fn taken_over(note: &Takeover) -> String {
    let Takeover { pid, user, terminal, at, .. } = note;
    let user = if user.is_empty() { String::new() } else { format!(" of {user}") };
    let terminal = if terminal.is_empty() { String::new() } else { format!(" on {terminal}") };
    let at = local_time(*at);
    let words =
        format!("another lead took over at {at}: process {pid}{user}{terminal} (--takeover)");
    sanitize(&words).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_name_what_is_known_of_the_other_lead() {
        let note = Takeover { pid: 7, user: "ann".into(), ..Takeover::default() };
        let words = taken_over(&Takeover { terminal: "/dev/pts/3".into(), ..note.clone() });
        assert!(words.ends_with(": process 7 of ann on /dev/pts/3 (--takeover)"), "{words}");
        let words = taken_over(&Takeover { user: "\u{1b}[2J".into(), ..note });
        assert!(!words.contains('\u{1b}'), "{words:?}");
    }
}
