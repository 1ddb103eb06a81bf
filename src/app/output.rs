//! Output that tolerates a closed pipe or terminal: data to stdout, messages to stderr.

use crate::error::Exit;
use serde_json::Value;
use std::io::{self, Write};

/// Prints data, with a newline at its end. Returns `false` when stdout has no reader any more.
#[must_use]
pub(crate) fn print(text: &str) -> bool {
    write_line(&mut io::stdout().lock(), text).is_ok()
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

pub(crate) fn warn(text: &str) {
    // A closed stderr leaves no other place to report to.
    let _lost = write_line(&mut io::stderr().lock(), text);
}

fn write_line(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}
