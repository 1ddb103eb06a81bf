//! `team trace ID`: the history of a message, as text or as JSON.

use super::args::Json;
use crate::app::{context::Context, host_copies::HostCopies, output::print_result};
use crate::error::{Exit, Failure};
use crate::ui;
use crate::ui::sanitize::one_line;
use crate::view::trace::{self, Step, Trace};
use crate::wire::host_copy::CopyPart;
use crate::wire::message::Message;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Id of the message, as `team send` prints it, or the beginning of one
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let parts = [CopyPart::Transcripts, CopyPart::Mail, CopyPart::Logs];
    HostCopies::of(&team, &[], &parts)?.wait();
    let exact = if args.id.is_empty() { Trace::default() } else { trace::of(&team, &args.id)? };
    let (id, Trace { message, steps }) = if exact.message.is_some() {
        (args.id, exact)
    } else {
        // No message was received under this id; it may be the beginning of one.
        let id = one_id(trace::ids(&team, &args.id)?, &args.id)?;
        let found = trace::of(&team, &id)?;
        (id, found)
    };
    let as_json = || {
        let events: Vec<Value> = steps.iter().map(step_json).collect();
        json!({ "schema": 1, "id": id, "message": message, "events": events })
    };
    let as_text = || {
        let message = message.as_ref().and_then(|message| Message::read(message).ok());
        ui::messages::trace_text(&id, message.as_ref(), &steps, &context.view())
    };
    Ok(print_result(args.json.json, as_json, as_text))
}

/// The most ids that an ambiguous beginning lists.
const SHOWN_IDS: usize = 5;

/// Returns the one id that was meant. Fails if there is none, or more than one.
fn one_id(mut ids: Vec<String>, given: &str) -> Result<String, Failure> {
    let hint = "`team log --type mail --json` shows messages with their ids";
    if given.is_empty() || ids.is_empty() {
        let what = format!("no message {given:?} is known here");
        let why = "no inbox, claim, transcript or dead letter of this team has a message whose id \
                   begins with it";
        return Err(Failure::new(Exit::Failure, what, why, hint));
    }
    if ids.len() == 1 {
        return Ok(ids.remove(0));
    }
    let mut shown: Vec<String> =
        ids.iter().take(SHOWN_IDS).map(|id| one_line(id, ID_COLUMNS)).collect();
    let more = ids.len().saturating_sub(SHOWN_IDS);
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    let what =
        format!("ambiguous: {} messages begin with {}", ids.len(), one_line(given, ID_COLUMNS));
    Err(Failure::new(Exit::Failure, what, shown.join(", "), "give more of the id"))
}

/// The most columns of an id in a list; an id of another program may be of any length.
const ID_COLUMNS: usize = 100;

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
