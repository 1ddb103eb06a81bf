//! `team mcp`: a member whose model runs in another program, such as Claude Code, which starts this process as an MCP
//! server. The member joins at the handshake and leaves at the end of the input.
//!
//! *Invariant:* the process that starts this one is the user's: it is never signalled. A member that is asked to leave
//! leaves at once, and its process answers each further call with the reason.

mod claude_inbox;
mod hook_server;
pub(crate) mod install;
mod install_hooks;
mod joining;
pub(crate) mod mail_hook;
mod mailbag;
mod membership;
mod place;
mod program;
mod served_mail;
mod session;
mod status_task;

pub(super) use membership::{MemberParts, Membership};
pub(super) use place::{Place, PlacedMember, TakenPlace};
pub(super) use program::{is_of_program, model_of_program};
pub(super) use served_mail::MailWatch;
pub(super) use session::Session;

use super::context::Context;
use super::event_loop::block_on;
use super::names::member_name;
use super::output::warn;
use crate::error::{Exit, Failure};
use joining::Joining;

pub(crate) struct McpRequest {
    pub(crate) name: Option<String>,
    pub(crate) role: String,
    /// Whether it serves HTTP; it then leaves at the end of its input, too.
    pub(crate) http: bool,
}

pub(crate) fn run(context: &Context, request: McpRequest) -> Result<Exit, Failure> {
    context.refuse_inside_agent("mcp")?;
    let name = request.name.as_deref().map(member_name).transpose()?;
    let settings = context.settings()?;
    settings.ignored.iter().for_each(|ignored| warn(ignored));
    let joining = Joining {
        team: context.team()?,
        environment: context.environment.clone(),
        settings,
        cwd: context.cwd.display().to_string(),
        name,
        role: request.role,
    };
    block_on(async move { Session::new(Box::new(joining)).run(request.http).await })?
}
