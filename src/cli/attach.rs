//! `team attach NAME`: follows an agent's conversation and sends it the typed lines.

use crate::app::{attach, context::Context, names::mailbox_name};
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the agent
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: String,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    attach::run(context, &mailbox_name(&args.name)?)
}
