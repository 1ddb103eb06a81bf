//! The lines of a transcript from which the tools of an agent that starts again take up what it has seen.

use super::mcp;
use memchr::memmem::{Finder, FinderRev};
use std::sync::LazyLock;

/// The begin of the line of a result that this program has written.
const OWN_RESULT: &[u8] = br#"{"kind":"tool_result""#;

struct Parts {
    /// The field behind the output of a result, in which no quote is without a backslash, and before its files.
    is_error: FinderRev<'static>,
    files: [Finder<'static>; 2],
    found_tools: Finder<'static>,
}

static PARTS: LazyLock<Parts> = LazyLock::new(|| Parts {
    is_error: FinderRev::new("\"is_error\":"),
    files: ["\"file\":", "\"more_files\":"].map(Finder::new),
    found_tools: Finder::new(mcp::FOUND),
});

/// Whether the line of a result may have what a registry restores: the view of a file, or tools that were found.
pub(crate) fn may_restore(line: &[u8]) -> bool {
    let begin = if line.starts_with(OWN_RESULT) { PARTS.is_error.rfind(line) } else { None };
    let fields = line.get(begin.unwrap_or_default()..).unwrap_or_default();
    PARTS.files.iter().any(|part| part.find(fields).is_some())
        || PARTS.found_tools.find(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_files_of_a_result_and_tools_that_were_found_are_seen_and_its_output_is_not() {
        let output = r#"{"file": 1, "is_error": false, "more_files": []}"#;
        let result = |more: &str, output: &str| {
            let output = serde_json::Value::from(output);
            format!(r#"{{"kind":"tool_result","at":1,"content":{output},"is_error":false{more}}}"#)
        };
        let foreign =
            json!({"at": 1, "file": {"path": "a"}, "is_error": true, "kind": "tool_result"});
        for (line, expected) in [
            (result("", output), false),
            (result(r#","file":{"path":"a"}"#, output), true),
            (result(r#","more_files":[{"path":"\"is_error\":"}]"#, output), true),
            (result("", &format!("{} git", mcp::FOUND)), true),
            (foreign.to_string(), true),
        ] {
            assert_eq!(may_restore(line.as_bytes()), expected, "{line}");
        }
    }
}
