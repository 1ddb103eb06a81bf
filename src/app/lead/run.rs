//! `team lead` from its request to its exit code.

use super::lead_app::LeadApp;
use super::options::LeadOptions;
use super::request::LeadRequest;
use super::{headless, interactive};
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::error::{Exit, Failure};
use crate::os::program;

/// Runs a lead until its session ends and its team is stopped.
pub(crate) fn run(context: &Context, request: LeadRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("lead")?;
    program::name_this_process("lead");
    let options = LeadOptions::resolve(context, request)?;
    let team = context.make_team()?;
    block_on(async {
        let output = options.output;
        let app = LeadApp::start(context, &team, options).await?;
        match output {
            Some(output) => headless::run(context, app, output).await,
            None => interactive::run(context, app).await,
        }
    })?
}
