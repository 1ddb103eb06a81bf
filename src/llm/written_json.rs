//! The JSON objects and lists in a text of a model, also those with the usual mistakes: line breaks and tabs inside a
//! string, a comma before a closing bracket, missing brackets at the end. Pure.

use serde_json::{Deserializer, Value};
use std::ops::Range;

/// The maximum number of places in a text that are tried, so that a hostile text costs no time.
const MAX_PLACES: usize = 256;

/// The maximum number of brackets that are open at the same time.
const MAX_DEPTH: usize = 64;

/// Returns the values in a text with their places, from the first to the last, none inside another.
pub(super) fn values(text: &str) -> impl Iterator<Item = (Range<usize>, Value)> {
    let (mut at, mut places) = (0, 0);
    std::iter::from_fn(move || {
        while places < MAX_PLACES {
            let rest = text.get(at..)?;
            let begin = at + rest.find(['{', '['])?;
            places += 1;
            let Some((value, length)) = value(text.get(begin..)?) else {
                at = begin + 1;
                continue;
            };
            at = begin + length;
            return Some((begin..at, value));
        }
        None
    })
}

/// Returns the value at the beginning of a text, and its length there.
fn value(text: &str) -> Option<(Value, usize)> {
    let mut strict = Deserializer::from_str(text).into_iter();
    if let Some(Ok(value)) = strict.next() {
        return Some((value, strict.byte_offset()));
    }
    let (mended, length) = mended(text)?;
    Some((serde_json::from_str(&mended).ok()?, length))
}

/// Returns the value at the beginning of a text without the usual mistakes, and its length there; `None` if the text ends
/// inside a string, since nobody knows the rest of that.
fn mended(text: &str) -> Option<(String, usize)> {
    let (mut made, mut open) = (String::new(), Vec::new());
    let mut chars = text.char_indices();
    let mut is_string = false;
    while let Some((at, c)) = chars.next() {
        if is_string {
            match c {
                '"' => {
                    is_string = false;
                    made.push(c);
                }
                '\n' => made.push_str("\\n"),
                '\r' => made.push_str("\\r"),
                '\t' => made.push_str("\\t"),
                '\\' => match chars.next()?.1 {
                    '\n' => made.push_str("\\n"),
                    next @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') => {
                        made.extend(['\\', next]);
                    }
                    '\'' => made.push('\''),
                    next => made.extend(['\\', '\\', next]),
                },
                c => made.push(c),
            }
            continue;
        }
        match c {
            '"' => is_string = true,
            '{' if open.len() < MAX_DEPTH => open.push('}'),
            '[' if open.len() < MAX_DEPTH => open.push(']'),
            '{' | '[' => return None,
            '}' | ']' => {
                drop_comma(&mut made);
                if open.pop() != Some(c) {
                    return None;
                }
            }
            _ => {}
        }
        made.push(c);
        if open.is_empty() {
            return Some((made, at + c.len_utf8()));
        }
        // A code fence ends the value that it holds.
        if made.ends_with("```") {
            made.truncate(made.len() - 3);
            return Some((closed(made, open), at - 2));
        }
    }
    (!is_string).then(|| (closed(made, open), text.len()))
}

fn closed(mut made: String, open: Vec<char>) -> String {
    drop_comma(&mut made);
    made.extend(open.into_iter().rev());
    made
}

fn drop_comma(made: &mut String) {
    let kept = made.trim_end();
    let kept = kept.strip_suffix(',').unwrap_or(kept).len();
    made.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(text: &str) -> Vec<Value> {
        values(text).map(|(_, value)| value).collect()
    }

    #[test]
    fn values_are_found_between_words_and_none_inside_another() {
        let text = "First {\"a\": {\"b\": 1}}, then [{\"c\": 2}] and {no json}.";
        assert_eq!(found(text), [json!({"a": {"b": 1}}), json!([{"c": 2}])]);
        let places: Vec<&str> = values(text).map(|(span, _)| &text[span]).collect();
        assert_eq!(places, ["{\"a\": {\"b\": 1}}", "[{\"c\": 2}]"]);
    }

    #[test]
    fn usual_mistakes_are_mended() {
        for (text, value) in [
            ("{\"a\": \"one\ntwo\tthree\"}", json!({"a": "one\ntwo\tthree"})),
            ("{\"a\": [1, 2, ], }", json!({"a": [1, 2]})),
            ("{\"a\": {\"b\": 1}", json!({"a": {"b": 1}})),
            ("```json\n{\"a\": {\"b\": 1}\n```", json!({"a": {"b": 1}})),
            ("{\"a\": \"it\\'s \\d+\"}", json!({"a": "it's \\d+"})),
        ] {
            assert_eq!(found(text), [value], "{text}");
        }
        for text in ["{\"a\": \"cut off", "{\"a\": ]", "{a: 1}", "{'a': 1}", "}"] {
            assert_eq!(found(text), Vec::<Value>::new(), "{text}");
        }
    }

    #[test]
    fn a_hostile_text_costs_little_and_breaks_nothing() {
        for piece in ["{", "[", "{\"a\":", "[{\"", "\\", "\"{", "é{\"ü\n"] {
            let _found = found(&piece.repeat(50_000));
        }
    }
}
