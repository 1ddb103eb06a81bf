//! `lead`: the same as `team lead`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::main(Some("lead"))
}
