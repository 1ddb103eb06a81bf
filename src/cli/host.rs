//! `team host …`: the hosts of the team.

use super::args::Json;
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::app::host_give_up;
use crate::app::host_keys;
use crate::app::host_relay::become_team_host;
use crate::app::host_view;
use crate::app::output::{exit_after, print, print_result};
use crate::app::stop_members::{ordered_on, outcome_lines, stop_with_progress};
use crate::app::work;
use crate::error::{Exit, Failure};
use crate::protocol::ladder::Urgency;
use crate::store::relay;
use crate::wire::roster::ExitCause;
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: HostVerb,
}

#[derive(Debug, clap::Subcommand)]
enum HostVerb {
    /// List the hosts: their state and their members
    Ls(Json),
    /// Add a host over ssh: `team host add gpu1`
    #[command(disable_help_flag = true)]
    Add(Passed),
    /// Print the code by which a host joins that ssh does not reach
    #[command(disable_help_flag = true)]
    Invite(Passed),
    /// Make this folder a host of a team, by a code of the first host
    #[command(disable_help_flag = true)]
    Join(Passed),
    /// Remove a host: its connection ends, and its keys count no more
    #[command(disable_help_flag = true)]
    Rm(Passed),
    /// Let a host have keys of models that are set here: `team host send-key gpu1 ANTHROPIC_API_KEY`
    SendKey(SendKey),
    /// Say that a host is gone for good, so that its members may be started anew elsewhere
    GiveUp(GiveUp),
}

#[derive(Debug, clap::Args)]
struct GiveUp {
    /// The name of the host in the team
    #[arg(value_name = "HOST")]
    host: String,
}

#[derive(Debug, clap::Args)]
struct SendKey {
    /// The name of the host in the team
    #[arg(value_name = "HOST")]
    host: String,
    /// The variables with the keys
    #[arg(value_name = "NAME", required_unless_present = "none")]
    names: Vec<String>,
    /// It gets none any more
    #[arg(long, conflicts_with = "names")]
    none: bool,
}

/// Arguments for `team-host`; `--help` lists them.
#[derive(Debug, clap::Args)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "HOST")]
    args: Vec<OsString>,
}

/// Ends the teammates that a lead has started on the host which is removed, and brings the work of clones there here.
fn end_members(context: &Context, args: &[OsString]) -> Result<(), Failure> {
    context.refuse_inside_agent("host rm")?;
    // Other arguments are for team-host to refuse.
    let [host] = args else { return Ok(()) };
    let host = host.to_str().unwrap_or_default();
    if !context.team_path.exists() {
        return Ok(());
    }
    let bus = context.team_bus()?;
    let is_added = relay::ssh_hosts(bus.dir())?.iter().any(|added| added.host.as_str() == host);
    let trusted = relay::trusted_hosts(bus.dir())?;
    if !is_added && !trusted.signed_in.iter().any(|known| known.host.as_str() == host) {
        return Ok(());
    }
    let names = ordered_on(bus.dir(), host)?;
    if !names.is_empty() {
        let stopped = stop_with_progress(&bus, ExitCause::Stopped, Urgency::Polite, names);
        let outcomes = block_on(stopped)?;
        print_result(false, || json!({}), || outcome_lines(&outcomes));
    }
    work::collect_from(context, bus.dir(), host)
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let json = match args.verb {
        HostVerb::Ls(json) => json,
        HostVerb::Add(passed) => return Err(become_team_host(context, "add", &passed.args)),
        HostVerb::Invite(passed) => return Err(become_team_host(context, "invite", &passed.args)),
        HostVerb::Join(passed) => return Err(become_team_host(context, "join", &passed.args)),
        HostVerb::GiveUp(GiveUp { host }) => {
            return Ok(exit_after(print(&host_give_up::give_up(context, &host)?)));
        }
        HostVerb::SendKey(SendKey { host, names, none: _ }) => {
            let names: BTreeSet<_> = names.into_iter().collect();
            return Ok(exit_after(print(&host_keys::send_keys(context, &host, &names)?)));
        }
        HostVerb::Rm(passed) => {
            end_members(context, &passed.args)?;
            return Err(become_team_host(context, "rm", &passed.args));
        }
    };
    let found = host_view::list(context)?;
    let text = || host_view::table(&found, context.palette());
    Ok(print_result(json.json, || host_view::list_json(&found), text))
}
