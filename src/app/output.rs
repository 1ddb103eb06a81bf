//! Output that tolerates a closed pipe or terminal: data to stdout, messages to stderr.

use crate::error::{Exit, Failure};
use crate::os::blocking_output::BlockingOutput;
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::sync::Once;

/// Prints data, with a newline at its end. Returns `false` when stdout has no reader any more, or after it has
/// reported a failed write.
#[must_use]
pub(crate) fn print(text: &str) -> bool {
    write_line(BlockingOutput(io::stdout().lock()), text)
        .map_err(|error| report_if_lost(&error))
        .is_ok()
}

/// Reports lost data, once per process; a reader that has left wants no more data. Returns whether data is lost.
pub(crate) fn report_if_lost(error: &io::Error) -> bool {
    static REPORTED: Once = Once::new();
    let is_lost = error.kind() != ErrorKind::BrokenPipe;
    if is_lost {
        let hint = "the command has done its work; look at the result with another command";
        let failure =
            Failure::new(Exit::Failure, "stdout cannot be written", error.to_string(), hint);
        REPORTED.call_once(|| warn(&failure.to_string()));
    }
    is_lost
}

pub(crate) fn print_result(
    as_json: bool,
    json: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Exit {
    exit_after(print(&if as_json { json().to_string() } else { text() }))
}

/// Returns the exit code of a command whose only remaining step was printing.
pub(crate) fn exit_after(printed: bool) -> Exit {
    if printed { Exit::Ok } else { Exit::Failure }
}

/// Prints a question to stderr. The answer is typed on the same line.
pub(crate) fn ask(question: &str) {
    let mut out = BlockingOutput(io::stderr().lock());
    // A terminal that is gone gives no answer either.
    let _lost = out.write_all(question.as_bytes()).and_then(|()| out.flush());
}

pub(crate) fn warn(text: &str) {
    // A closed stderr leaves no other place to report to.
    let _lost = write_line(BlockingOutput(io::stderr().lock()), text);
}

fn write_line(mut out: impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}
