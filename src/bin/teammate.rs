//! `teammate`: the same as `team teammate`. A lead spawns this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_team::cli::teammate_main()
}
