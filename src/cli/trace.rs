//! `team trace ID`: a message's whole life, as a story or as JSON.

use super::args::TraceArgs;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::ui;
use crate::view::trace::{self, Step, Trace};
use crate::wire::message::Message;
use serde_json::{Value, json};

pub(super) fn run(context: &Context, args: &TraceArgs) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let Trace { message, steps } = trace::of(&team, &args.id).map_err(store_failure)?;
    if steps.is_empty() {
        return Err(Failure::new(
            Exit::Failure,
            format!("no message {:?} is known here", args.id),
            "no inbox, claim, transcript, dead progress or log of this team tells of it",
            "`team log --type mail --json` shows messages with their ids",
        ));
    }
    let printed = if args.show.json {
        let events: Vec<Value> = steps.iter().map(as_json).collect();
        out::say_json(&json!({
            "schema": 1, "id": args.id, "message": message, "events": events,
        }))
    } else {
        let message = message.as_ref().and_then(|message| Message::read(message).ok());
        out::say(&ui::trace::story(&args.id, message.as_ref(), &steps, &context.view()))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

fn as_json(step: &Step) -> Value {
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
