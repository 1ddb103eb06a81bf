//! The run of a program: its words become arguments, and a failure becomes text and an exit code.

use super::suggestion;
use crate::app::output;
use crate::error::{Exit, Failure};
use crate::ui::sanitize::sanitize;
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Parses the words and carries out what they say.
pub(super) fn carry_out<A: Parser>(
    words: &[OsString],
    run: impl FnOnce(A) -> Result<Exit, Failure>,
) -> ExitCode {
    let exit = match A::try_parse_from(words) {
        Ok(arguments) => run(arguments).unwrap_or_else(|failure| {
            // A text may name a folder, whose name may hold anything.
            output::warn(&sanitize(&failure.to_string()));
            failure.exit
        }),
        Err(mut usage) => {
            suggestion::suggest_nearest(&mut usage, A::command(), words);
            // The exit code does not depend on the reader of the help.
            let _printed = usage.print();
            if usage.use_stderr() { Exit::Usage } else { Exit::Ok }
        }
    };
    exit.into()
}
