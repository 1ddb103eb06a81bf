//! `team doctor`: checks everything that a team relies on.

use super::args::Json;
use crate::app::{context::Context, doctor, output::print_result};
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Call the model once, for a few tokens, instead of asking its endpoint for the list of models
    #[arg(long)]
    call: bool,
    #[command(flatten)]
    format: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let report = doctor::check(context, args.call)?;
    let exit = print_result(args.format.json, || report.json(), || report.text(context.palette()));
    Ok(if report.is_healthy() { exit } else { Exit::Failure })
}
