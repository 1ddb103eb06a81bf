//! Printing that survives a closed pipe or terminal: data to stdout, messages to stderr.

use serde_json::Value;
use std::io::{self, Write};

/// Prints data, with a newline at its end. `false` when nobody reads any more.
#[must_use]
pub(super) fn say(text: &str) -> bool {
    write_all(&mut io::stdout().lock(), text).is_ok()
}

/// Prints one JSON value on a line.
#[must_use]
pub(super) fn say_json(value: &Value) -> bool {
    say(&value.to_string())
}

/// Prints a message for the person.
pub(super) fn complain(text: &str) {
    // There is nowhere left to complain to when stderr is gone.
    let _unheard = write_all(&mut io::stderr().lock(), text);
}

fn write_all(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}
