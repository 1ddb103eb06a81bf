//! `team deny ID`.

use super::args::Json;
use super::requests::answer;
use crate::app::context::Context;
use crate::app::requests::Answer;
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The request's id
    #[arg(value_name = "ID")]
    id: String,
    /// Told to whoever asks
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    answer(context, "deny", &args.id, Answer::Deny, args.reason, args.json)
}
