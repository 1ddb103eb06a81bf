//! `team doctor`: checks everything that a team relies on.

pub(super) use super::args::Json as Args;
use crate::app::{context::Context, doctor, output::print_result};
use crate::error::{Exit, Failure};

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let report = doctor::check(context)?;
    let exit = print_result(args.json, || report.json(), || report.text(context.palette()));
    Ok(if report.is_healthy() { exit } else { Exit::Failure })
}
