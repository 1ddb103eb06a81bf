//! The `teammate` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = agent_team::intercept() {
        return code;
    }
    ExitCode::SUCCESS
}
