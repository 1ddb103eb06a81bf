//! `team models`: the models that are configured and reachable.

use super::args::Json;
use crate::app::{context::Context, models, output::print_result};
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Ask no endpoint
    #[arg(long)]
    offline: bool,
    /// Show also listed models of which nothing is known
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let report = models::collect(context, args.offline)?;
    let text = || report.text(context.palette(), args.all);
    let exit = print_result(args.format.json, || report.json(), text);
    Ok(if exit == Exit::Ok { report.exit() } else { exit })
}
