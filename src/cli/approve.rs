//! `team approve ID`.

use super::args::Json;
use super::requests::answer;
use crate::app::context::Context;
use crate::app::requests::Answer;
use crate::error::{Exit, Failure};
use crate::wire::message::Scope;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The request's id
    #[arg(value_name = "ID")]
    id: String,
    /// Told to whoever asks
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// From now on, without asking
    #[arg(long)]
    always: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let scope = if args.always { Scope::Always } else { Scope::Once };
    answer(context, "approve", &args.id, Answer::Approve(scope), args.reason, args.json)
}
