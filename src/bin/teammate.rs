//! `teammate`: the same as `team teammate`.

mod starter;

use std::process::ExitCode;

fn main() -> ExitCode {
    starter::start("teammate")
}
