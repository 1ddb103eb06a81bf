//! The lead's program: `team lead`, interactive or headless.
//!
//! [`run`] goes through the stages in their order: `LeadOptions::resolve` (what was asked for),
//! `LeadPlace::take` (the life lock), `LeadPlace::enter` (roster, recovery), `LeadApp::start` (the
//! agent and the supervisor), then a session, which stops the team at its end (`ending`).

mod approvals;
mod budget_watch;
mod ending;
mod headless;
mod interactive;
mod lead_app;
mod options;
mod quiescence;
pub(crate) mod request;
mod returning;
pub(crate) mod run;
mod runtime;
mod session;
mod slash_command;
mod slash_output;
mod startup;
mod team_changes;
mod user_mail;
