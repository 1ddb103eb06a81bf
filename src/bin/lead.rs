//! `lead`: the same as `team lead`.

mod starter;

use std::process::ExitCode;

fn main() -> ExitCode {
    starter::start("lead")
}
