//! `team acp`.

use super::args::ModelArgs;
use crate::app::context::Context;
use crate::app::lead::run_for_editor;
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Answer a prompt only when the whole team is at rest, not when the lead's turn ends
    #[arg(long)]
    wait: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    run_for_editor(context, &args.model.flags(), args.wait)
}
