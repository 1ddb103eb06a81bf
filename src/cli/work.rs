//! `team work …`: the work of teammates in clones.

use super::args::Json;
use crate::app::context::Context;
use crate::app::output::{exit_after, print, print_result};
use crate::app::work;
use crate::error::{Exit, Failure};
use crate::ui::sanitize::sanitize;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<WorkVerb>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Subcommand)]
enum WorkVerb {
    /// Show the changes since the start of a clone, as they were last saved
    Diff(One),
    /// Take work into the workspace, without a commit; only into files without other changes
    Take(One),
    /// Remove a clone whose work is saved; its teammate must have ended
    Drop(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// The teammate
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let text = match args.verb {
        None => {
            let found = work::list(context)?;
            let as_json = || {
                let clones: Vec<Value> = found.iter().map(work::Work::json).collect();
                json!({ "schema": 1, "clones": clones })
            };
            let as_text = || match found.as_slice() {
                [] => "no teammate has a clone".into(),
                found => found.iter().map(work::Work::line).collect::<Vec<_>>().join("\n"),
            };
            return Ok(print_result(args.json.json, as_json, || sanitize(&as_text()).into_owned()));
        }
        Some(WorkVerb::Diff(One { name })) => {
            let text = work::show_diff(context, &name)?;
            return Ok(if text.is_empty() {
                Exit::Ok
            } else {
                exit_after(print(&sanitize(&text)))
            });
        }
        Some(WorkVerb::Take(One { name })) => work::take(context, &name)?,
        Some(WorkVerb::Drop(One { name })) => work::remove(context, &name)?,
    };
    Ok(exit_after(print(&sanitize(&text))))
}
