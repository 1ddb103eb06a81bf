//! `team`: the program with all commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::main()
}
