//! `team replay`: plays a recorded team again, and says where it first differs.

use super::args::Json;
use crate::app::context::Context;
use crate::app::output::print_result;
use crate::app::replay::{self, ReplayRequest, report};
use crate::error::{Exit, Failure};
use crate::wire::replay::{Fault, Pace, ToolSource};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder in which the team has run, or its team folder; it is only read
    #[arg(value_name = "FOLDER")]
    record: PathBuf,
    /// Play in this folder, which must not exist or be empty, instead of a temporary one
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Begin with the files of this folder, instead of none
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// Run the tools of the work, or answer them from the record; tools of the team always run
    #[arg(long, value_name = "WAY", default_value = "real", value_parser = tool_source)]
    tools: ToolSource,
    /// Let each reply and each recorded result take as long as in the record
    #[arg(long)]
    real_time: bool,
    /// End after this turn of the lead
    #[arg(long, value_name = "TURN")]
    until: Option<u64>,
    /// Leave the new team so that `team lead --resume` goes on there, with the models of the record
    #[arg(long, requires = "until")]
    fork: bool,
    /// Make faults: kill:NAME@N (at its Nth model call), slow:model=SECONDS
    #[arg(long, value_name = "FAULT", value_delimiter = ',', value_parser = Fault::parse)]
    fault: Vec<Fault>,
    #[command(flatten)]
    json: Json,
}

fn tool_source(text: &str) -> Result<ToolSource, String> {
    let found = ToolSource::ALL.into_iter().find(|source| source.word() == text);
    found.ok_or_else(|| "it is real or recorded".to_owned())
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let Args { record, into, from, tools, real_time, until, fork, fault: faults, json } = args;
    let pace = if real_time { Pace::RealTime } else { Pace::Full };
    let (record, from) = (context.cwd.join(record), from.map(|from| context.cwd.join(from)));
    let request = ReplayRequest { record, into, from, tools, pace, until, fork, faults };
    let replayed = replay::run(context, &request)?;
    let (as_json, as_text) = (|| report::json(&replayed), || report::text(&replayed, &request));
    let printed = print_result(json.json, as_json, as_text);
    let is_alike = replayed.first().is_none();
    Ok(if is_alike { printed } else { Exit::Failure })
}
