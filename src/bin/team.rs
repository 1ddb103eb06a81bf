//! `team`: the command people type.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::main(None)
}
