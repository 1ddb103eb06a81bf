//! `teammate`: the same as `team teammate`; what a lead spawns.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::main(Some("teammate"))
}
