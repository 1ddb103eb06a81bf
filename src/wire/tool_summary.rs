//! A tool call in a few words for people: its subject, never its JSON.

use super::tool::{Parameter, ParameterType, SubjectArgument, ToolSpec};
use serde_json::Value;

/// Returns the subject of a call: its command, its path with the lines, or its arguments, those without which no call
/// is possible first. The text is not sanitized, and may have several lines.
pub(crate) fn summary(spec: Option<&ToolSpec>, input: &Value) -> String {
    let Some(spec) = spec else { return pairs(input) };
    let text = |argument: &str| input.get(argument).and_then(Value::as_str);
    let subject = match spec.subject {
        SubjectArgument::Command(argument) | SubjectArgument::Url(argument) => {
            text(argument).map(ToOwned::to_owned)
        }
        SubjectArgument::File(argument) => text(argument).map(|path| {
            let lines = text("content").map(|content| content.lines().count());
            match lines {
                Some(1) => format!("{path} (1 line)"),
                Some(lines) => format!("{path} ({lines} lines)"),
                None => format!("{path}{}", line_range(input)),
            }
        }),
        SubjectArgument::Patch(argument) => text(argument).map(patched_files),
        SubjectArgument::None => Some(arguments(spec.parameters, input)),
    };
    subject.unwrap_or_else(|| pairs(input))
}

/// Returns the files that a patch names, as far as its text tells.
fn patched_files(patch: &str) -> String {
    let heads = ["*** Add File: ", "*** Delete File: ", "*** Update File: "];
    let path = |line: &'_ str| {
        heads.iter().find_map(|head| line.trim().strip_prefix(head)).map(ToOwned::to_owned)
    };
    patch.lines().filter_map(path).collect::<Vec<String>>().join(", ")
}

/// Returns the lines that a call reads of a file, such as `:10-19`.
fn line_range(input: &Value) -> String {
    let number = |name: &str| input.get(name).and_then(Value::as_u64);
    match (number("offset"), number("limit")) {
        (None, None) => String::new(),
        (Some(first), None) => format!(":{first}-"),
        (first, Some(count)) => {
            let first = first.unwrap_or(1);
            format!(":{first}-{}", first.saturating_add(count).saturating_sub(1))
        }
    }
}

/// Returns the arguments in the order of their parameters. The texts that a call must have stand alone, the last of
/// them after a colon; the others have their names.
fn arguments(parameters: &[Parameter], input: &Value) -> String {
    let mut bare = Vec::new();
    let mut named = Vec::new();
    for parameter in parameters {
        let Some(value) = input.get(parameter.name).and_then(in_words) else { continue };
        let is_text = matches!(parameter.kind, ParameterType::Text | ParameterType::TextList);
        if is_text && parameter.is_required {
            bare.push(value);
        } else {
            named.push(format!("{}={value}", parameter.name));
        }
    }
    let last = if bare.len() > 1 { bare.pop() } else { None };
    bare.append(&mut named);
    let before = bare.join(" ");
    last.map_or(before.clone(), |last| format!("{before}: {last}"))
}

/// Returns the arguments of a call of an unknown tool.
fn pairs(input: &Value) -> String {
    let Some(fields) = input.as_object() else { return in_words(input).unwrap_or_default() };
    let pair = |(name, value): (&String, &Value)| Some(format!("{name}={}", in_words(value)?));
    fields.iter().filter_map(pair).collect::<Vec<_>>().join(" ")
}

/// Returns a value without the punctuation of JSON; `None` if it says nothing.
fn in_words(value: &Value) -> Option<String> {
    let words = match value {
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().filter_map(in_words).collect::<Vec<_>>().join(", "),
        Value::Object(_) => format!("({})", pairs(value)),
    };
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ParameterType::{Boolean, Count, Text, TextList};
    use serde_json::json;

    const SEND: &[Parameter] = &[
        Parameter::required("to", Text, ""),
        Parameter::optional("urgent", Boolean, ""),
        Parameter::required("content", Text, ""),
    ];
    const CLAIM: &[Parameter] = &[
        Parameter::required("paths", TextList, ""),
        Parameter::optional("why", Text, ""),
        Parameter::optional("count", Count { most: None }, ""),
    ];

    #[test]
    fn a_call_is_told_by_its_subject() {
        let of = |subject, parameters| ToolSpec { parameters, subject, ..ToolSpec::STRICT };
        let file = of(SubjectArgument::File("path"), &[]);
        let command = of(SubjectArgument::Command("line"), &[]);
        let (send, claim) = (of(SubjectArgument::None, SEND), of(SubjectArgument::None, CLAIM));
        for (spec, input, wanted) in [
            (Some(&command), json!({"line": "cargo test\nls", "timeout": 9}), "cargo test\nls"),
            (Some(&file), json!({"path": "a.rs"}), "a.rs"),
            (Some(&file), json!({"path": "a.rs", "offset": 10, "limit": 5}), "a.rs:10-14"),
            (Some(&file), json!({"path": "a.rs", "limit": 5}), "a.rs:1-5"),
            (Some(&file), json!({"path": "a.rs", "offset": 7}), "a.rs:7-"),
            (
                Some(&file),
                json!({"path": "a.rs", "offset": u64::MAX, "limit": u64::MAX}),
                "a.rs:18446744073709551615-18446744073709551614",
            ),
            (Some(&file), json!({"path": "a.rs", "content": "x\ny\n"}), "a.rs (2 lines)"),
            (Some(&file), json!({"path": "a.rs", "old_text": "x", "new_text": "y"}), "a.rs"),
            (Some(&file), json!({"paht": "a.rs"}), "paht=a.rs"),
            (
                Some(&send),
                json!({"to": "al", "content": "hi", "urgent": true}),
                "al urgent=true: hi",
            ),
            (Some(&send), json!({"to": "al"}), "al"),
            (Some(&claim), json!({"paths": ["a", "b"], "why": "", "count": 2}), "a, b count=2"),
            (Some(&claim), json!({}), ""),
            (
                None,
                json!({"a": "x y", "b": [1, null], "c": {"d": false}, "e": null}),
                "a=x y b=1 c=(d=false)",
            ),
            (None, json!("text"), "text"),
        ] {
            assert_eq!(summary(spec, &input), wanted, "{input}");
        }
    }
}
