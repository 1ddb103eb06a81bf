//! `team mcp --lead`: a lead whose model runs in another program, such as Claude Code, which starts this process as an MCP
//! server. The client takes the lead's place at the handshake. The end of the input is the end of the lead, as Ctrl-D is
//! at a terminal: its team is stopped.
//!
//! *Invariant:* this process runs no model. What the lead's model does, it does by the tools of [`crate::tools`], and the
//! person is asked by the client before such a call runs, or by `team requests`.

mod served_lead;

use super::conversation::ConversationChoice;
use super::lead_core::LeadCore;
use super::options::{Front, LeadOptions, LeadRequest};
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::app::mcp_member::{Place, Session, TakenPlace};
use crate::error::{Exit, Failure};
use crate::os::program;
use crate::settings::Flags;
use crate::store::asynchronous::offload;
use crate::tool_server::LocalFuture;
use crate::wire::budget::Budget;
use served_lead::ServedLead;

/// Serves a client that leads the team, until the end of the input or a signal. Settings and flags that are not
/// understood are the error of its handshake.
pub(crate) fn run(context: &Context, flags: &Flags, is_http: bool) -> Result<Exit, Failure> {
    context.refuse_inside_agent("mcp --lead")?;
    program::name_this_process("lead");
    let place = LeadPlace { context: context.clone(), flags: flags.clone() };
    block_on(async move { Session::new(Box::new(place)).run(is_http).await })?
}

/// The lead's place in the folder, which a client takes.
struct LeadPlace {
    context: Context,
    flags: Flags,
}

impl Place for LeadPlace {
    fn take<'a>(&'a self, program: &'a str) -> LocalFuture<'a, Result<TakenPlace, Failure>> {
        Box::pin(self.lead(program))
    }
}

impl LeadPlace {
    async fn lead(&self, program: &str) -> Result<TakenPlace, Failure> {
        let request = LeadRequest {
            prompt: None,
            front: Front::Program(program.to_owned()),
            flags: self.flags.clone(),
            timeout: None,
            budget: Budget::default(),
            conversation: ConversationChoice::OfProgram,
            takeover: false,
        };
        let context = self.context.clone();
        // The disk is read, and a model's server may be asked for its models.
        let (options, team) = offload(move || {
            let options = LeadOptions::resolve(&context, request)?;
            Ok::<_, Failure>((options, context.make_team()?))
        })
        .await?;
        let started = LeadCore::start(&self.context, &team, options, None);
        let (core, entry) = Box::pin(started).await?;
        match ServedLead::begin(&self.context, core).await {
            Ok(taken) => Ok(taken),
            Err(why) => {
                entry.give_back(&team).await;
                Err(why)
            }
        }
    }
}
