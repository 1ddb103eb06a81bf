//! Results that a later call has made useless.

use crate::tools::find;
use crate::wire::limits::OUTPUT_CHARS;
use crate::wire::tool::{SubjectArgument, Supersedes, ToolSpec};
use serde_json::Value;

/// The least size of a result that is left out, in bytes.
const MIN_BYTES: usize = 500;

/// The text in the place of a result.
pub(super) const LEFT_OUT: &str =
    "[team: left out to save room: a later call shows the same anew, or has replaced it]";

/// A call with its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) input: &'a Value,
    /// The number of bytes of the result.
    pub(super) bytes: usize,
    pub(super) is_error: bool,
}

impl AnsweredCall<'_> {
    fn spec(&self) -> Option<&'static ToolSpec> {
        find(self.name)
    }

    /// Returns the path of the file that the call reads or writes.
    fn file(&self) -> Option<&str> {
        let SubjectArgument::File(argument) = self.spec()?.subject else { return None };
        let path = self.input.get(argument)?.as_str()?;
        Some(path.strip_prefix("./").unwrap_or(path))
    }

    /// Whether the call has no argument beside its file.
    fn has_file_alone(&self) -> bool {
        self.input.as_object().is_some_and(|input| input.len() == 1)
    }

    /// Whether this later call makes the result of an earlier one useless.
    fn replaces(&self, earlier: &Self) -> bool {
        let (Some(own), Some(of_earlier)) = (self.spec(), earlier.spec()) else { return false };
        let is_same = self.name == earlier.name && self.input == earlier.input;
        let is_read_of_file = of_earlier.supersedes == Supersedes::WholeRead
            && self.file().is_some()
            && self.file() == earlier.file()
            // A longer result has lost its middle.
            && self.bytes < OUTPUT_CHARS;
        match own.supersedes {
            Supersedes::Nothing => false,
            Supersedes::SameCall => is_same,
            Supersedes::WholeRead => is_same || (is_read_of_file && self.has_file_alone()),
            Supersedes::WholeWrite => is_read_of_file,
        }
    }
}

/// Returns the calls with large results that a later successful call has made useless.
pub(super) fn stale<'a>(
    calls: &'a [AnsweredCall<'a>],
) -> impl Iterator<Item = &'a AnsweredCall<'a>> {
    let is_stale = |at: usize, call: &AnsweredCall<'_>| {
        calls.iter().skip(at + 1).any(|later| !later.is_error && later.replaces(call))
    };
    let large = calls.iter().enumerate().filter(|(_, call)| call.bytes >= MIN_BYTES);
    large.filter(move |(at, call)| is_stale(*at, call)).map(|(_, call)| call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_stale_once_a_later_call_has_replaced_it() {
        let read = |path: &str| ("read_file", json!({ "path": path }), false);
        let part = || ("read_file", json!({ "path": "a", "offset": 5 }), false);
        let write = ("write_file", json!({ "path": "./a", "content": "c" }), false);
        let edit = ("edit_file", json!({ "path": "a", "old_text": "c", "new_text": "d" }), false);
        let bash = |command: &str, is_error| ("bash", json!({ "command": command }), is_error);
        let other = |name| (name, json!({}), false);
        for (calls, stale) in [
            (vec![read("a"), read("a"), read("b")], &[0][..]),
            (vec![part(), read("a")], &[0]),
            (vec![read("a"), part()], &[]),
            (vec![part(), part()], &[0]),
            (vec![read("a"), part(), write], &[0, 1]),
            (vec![read("a"), edit], &[]),
            (vec![bash("make", false), bash("make", false), bash("make all", false)], &[0]),
            (vec![bash("make", true), bash("make", false)], &[0]),
            (vec![bash("make", false), bash("make", true)], &[]),
            (vec![other("send_message"), other("send_message")], &[]),
            (vec![other("mcp__a__b"), other("mcp__a__b")], &[]),
        ] {
            let answered = |bytes| {
                let calls = calls.iter().map(move |(name, input, is_error)| AnsweredCall {
                    id: name,
                    name,
                    input,
                    bytes,
                    is_error: *is_error,
                });
                calls.collect::<Vec<_>>()
            };
            let large = answered(MIN_BYTES);
            let found: Vec<_> = super::stale(&large).map(std::ptr::from_ref).collect();
            let expected: Vec<_> = stale.iter().map(|at| std::ptr::from_ref(&large[*at])).collect();
            assert_eq!(found, expected, "{calls:?}");
            assert_eq!(super::stale(&answered(MIN_BYTES - 1)).count(), 0, "small results stay");
        }
    }
}
