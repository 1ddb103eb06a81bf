//! `team`: the command people type.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::main(agent_team::cli::Program::Team)
}
