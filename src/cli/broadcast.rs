//! `team broadcast`.

use super::args::{Json, read_stdin};
use super::send::{sender, text_or_names};
use crate::app::{context::Context, output::print_result, send};
use crate::bus::Outgoing;
use crate::error::{Exit, Failure};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The text; `-` reads it from standard input. With --attach it may be left out
    #[arg(value_name = "TEXT", allow_hyphen_values = true, required_unless_present = "attach")]
    text: Option<String>,
    /// The sender
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// A file to send with the text; repeatable. Each recipient gets a copy, on its own host
    #[arg(long = "attach", value_name = "PATH")]
    attach: Vec<PathBuf>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("broadcast")?;
    let bus = context.team_bus()?;
    let from = sender(context, bus.dir(), args.from.as_deref())?;
    let text = text_or_names(args.text, &args.attach).unwrap_or_default();
    let content = if text == "-" { read_stdin("the text")? } else { text };
    let outgoing = Outgoing::broadcast(content);
    let outgoing = outgoing.with_attachments(&send::attached_for_all(&bus, &from, &args.attach)?);
    let sent = send::broadcast(&bus, &from, &outgoing)?;
    let failed = send::unreached(&sent);
    let ids: Vec<_> =
        sent.iter().filter_map(|(name, outcome)| Some((name, outcome.as_ref().ok()?))).collect();
    let exit = print_result(
        args.json.json,
        || {
            let sent = ids.iter().map(|(name, id)| json!({ "to": name.as_str(), "id": id }));
            json!({ "schema": 1, "sent": sent.collect::<Vec<Value>>(), "failed": failed })
        },
        || ids.iter().map(|(name, id)| format!("{name} {id}")).collect::<Vec<_>>().join("\n"),
    );
    send::require_all(&failed)?;
    Ok(exit)
}
