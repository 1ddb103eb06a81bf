//! `team lead` from its request to its exit code.

use super::lead_app::LeadApp;
use super::options::LeadOptions;
use super::{headless, interactive};
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::error::{Exit, Failure};
use crate::os::program;
use crate::settings::Flags;
use crate::ui::headless_output::Format;
use std::time::Duration;

/// What `team lead` is asked for on its command line.
pub(crate) struct LeadRequest {
    pub(crate) prompt: Option<String>,
    /// The output of a headless run; `None` for an interactive session.
    pub(crate) output: Option<Format>,
    pub(crate) flags: Flags,
    pub(crate) limits: RunLimits,
    /// Continue with the last team.
    pub(crate) resume: bool,
    /// Stop the lead that runs in this folder first.
    pub(crate) takeover: bool,
}

/// The limits at which a run is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_turns: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
}

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
