//! Becomes `team` with one verb. So the code of all commands is installed once.

use std::env::{args_os, current_exe};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Replaces this process by the program `team` in the same folder, with the verb and the arguments of this process. Returns only if
/// that fails.
pub(crate) fn start(verb: &str) -> ExitCode {
    let why = match current_exe() {
        Ok(path) => {
            let team = path.with_file_name("team");
            let why = Command::new(&team).arg0("team").arg(verb).args(args_os().skip(1)).exec();
            format!("cannot start {}: {why}; `{verb}` needs `team` beside it", team.display())
        }
        Err(why) => format!("cannot find the folder of this program: {why}"),
    };
    #[expect(clippy::print_stderr, reason = "a program of its own, without the library")]
    {
        eprintln!("{verb}: {why}");
    }
    ExitCode::FAILURE
}
