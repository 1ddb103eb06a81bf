//! `team requests`: what waits for a decision.

use super::args::Json;
pub(super) use super::args::Json as Args;
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::app::output::print_result;
use crate::app::requests::{self, Answer};
use crate::error::{Exit, Failure};
use serde_json::{Value, json};

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let found = requests::find(&context.team_to_view()?)?;
    let as_json = || {
        let requests: Vec<Value> = found.iter().map(requests::json).collect();
        json!({ "schema": 1, "requests": requests })
    };
    let as_text = || match found.as_slice() {
        [] => "nothing waits for a decision".into(),
        found => found.iter().map(requests::line).collect::<Vec<_>>().join("\n"),
    };
    Ok(print_result(args.json, as_json, as_text))
}

/// Answers a request and prints the outcome.
pub(super) fn answer(
    context: &Context,
    verb: &str,
    id: &str,
    answer: Answer,
    reason: Option<String>,
    json: Json,
) -> Result<Exit, Failure> {
    context.refuse_inside_agent(verb)?;
    let bus = context.team_bus()?;
    let outcome = block_on(requests::decide(&bus, id, answer, reason))??;
    let as_json = || json!({ "schema": 1, "request_id": id, "outcome": outcome });
    Ok(print_result(json.json, as_json, || format!("{id} {outcome}")))
}
