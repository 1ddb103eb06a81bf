//! `team host …`: the hosts of the team.

use super::args::Json;
use crate::app::context::Context;
use crate::app::host_view;
use crate::app::output::print_result;
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: HostVerb,
}

#[derive(Debug, clap::Subcommand)]
enum HostVerb {
    /// List the hosts: their state and their members
    Ls(Json),
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let HostVerb::Ls(json) = args.verb;
    let found = host_view::list(context)?;
    let text = || host_view::table(&found, context.palette());
    Ok(print_result(json.json, || host_view::list_json(&found), text))
}
