//! The program `teammate`: `team teammate` alone. It has no code of other verbs, so that a teammate costs less memory.

use super::args::PlaceArgs;
use super::program::carry_out;
use super::teammate;
use crate::settings::environment::Environment;
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Start one teammate in the foreground, joined to the team in this folder
#[derive(Debug, Parser)]
#[command(name = "team-teammate", bin_name = "team teammate", version)]
struct Arguments {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    args: teammate::Args,
}

/// Runs the program with the process's arguments and environment.
pub fn main() -> ExitCode {
    if let Some(code) = crate::intercept() {
        return code;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    carry_out(&words, |Arguments { place, args }| {
        let context = place.context(&args.name, Environment::read())?;
        teammate::run(&context, args)
    })
}
