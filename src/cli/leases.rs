//! `team leases …`: the files and folders that agents have leased.

use super::args::Json;
use crate::app::context::Context;
use crate::app::lease_view;
use crate::app::output::{exit_after, print, print_result, warn};
use crate::error::{Exit, Failure};
use crate::ui::sanitize::sanitize;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<LeasesVerb>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Subcommand)]
enum LeasesVerb {
    /// Release a lease, or one path of it; its owner is told
    Release(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the lease, or a leased path
    #[arg(value_name = "ID|PATH")]
    what: String,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    if let Some(LeasesVerb::Release(One { what })) = args.verb {
        let text = lease_view::release(context, &what)?;
        return Ok(exit_after(print(&sanitize(&text))));
    }
    let found = lease_view::list(context)?;
    if !args.json.json {
        for problem in &found.problems {
            warn(&format!("warning: {}: {}", problem.file, problem.why));
        }
    }
    let text = || lease_view::table(&found, context.palette());
    Ok(print_result(args.json.json, || lease_view::list_json(&found), text))
}
