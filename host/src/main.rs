//! `team-host`: the relay of this host.

use std::process::ExitCode;

fn main() -> ExitCode {
    team_host::main()
}
