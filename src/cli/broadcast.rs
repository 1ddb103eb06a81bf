//! `team broadcast`.

use super::args::{Json, read_stdin};
use super::send::sender;
use crate::app::{context::Context, output::print_result, send};
use crate::error::{Exit, Failure};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The text; `-` reads it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    /// The sender
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("broadcast")?;
    let bus = context.team_bus()?;
    let from = sender(context, bus.dir(), args.from.as_deref())?;
    let content = if args.text == "-" { read_stdin("the text")? } else { args.text };
    let sent = send::broadcast(&bus, &from, &content)?;
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
