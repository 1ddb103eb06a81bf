//! `team export`: the whole run of a team in one file.

use crate::app::context::Context;
use crate::app::export::{ExportForm, export};
use crate::error::{Exit, Failure};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a page for a browser instead of JSON Lines
    #[arg(long)]
    html: bool,
    /// Include the earlier conversations of the agents
    #[arg(long)]
    all: bool,
    /// The file, which must not exist; `-` for stdout (default: team-export-TIME in this folder)
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let form = if args.html { ExportForm::Page } else { ExportForm::Lines };
    export(context, form, args.all, args.output.as_deref())
}
