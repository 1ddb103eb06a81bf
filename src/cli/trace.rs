//! `team trace ID`: the history of a message, as text or as JSON.

use super::args::Json;
use crate::app::{context::Context, output::print_result};
use crate::error::{Exit, Failure};
use crate::ui;
use crate::view::trace::{self, Step, Trace};
use crate::wire::message::Message;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Id of the message, as `team send` prints it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let Trace { message, steps } = trace::of(&team, &args.id)?;
    if steps.is_empty() {
        let what = format!("no message {:?} is known here", args.id);
        let why = "no inbox, claim, transcript, dead letter or log of this team tells of it";
        let hint = "`team log --type mail --json` shows messages with their ids";
        return Err(Failure::new(Exit::Failure, what, why, hint));
    }
    let as_json = || {
        let events: Vec<Value> = steps.iter().map(step_json).collect();
        json!({ "schema": 1, "id": args.id, "message": message, "events": events })
    };
    let as_text = || {
        let message = message.as_ref().and_then(|message| Message::read(message).ok());
        ui::messages::trace_text(&args.id, message.as_ref(), &steps, &context.view())
    };
    Ok(print_result(args.json.json, as_json, as_text))
}

fn step_json(step: &Step) -> Value {
    let proof = step.proof.as_ref();
    json!({
        "at": step.at,
        "agent": step.agent,
        "event": step.what,
        "file": proof.map(|proof| &proof.file),
        "offset": proof.map(|proof| proof.offset),
        "text": step.text,
    })
}
