//! Parses a line of an inbox, without file or clock.

use crate::store::file::jsonl::{Framed, Piece};
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) enum ParsedLine<'a> {
    Blank,
    Valid(ValidLine<'a>),
    /// The line is not a message, for this reason.
    Invalid(String),
    /// The line is incomplete, and its writer may complete it.
    Unfinished,
}

#[derive(Debug)]
pub(crate) struct ValidLine<'a> {
    /// The message. Its id is that of the line, or is made from batch id and offset.
    pub(crate) message: Box<Message>,
    /// The line as it was received, with its id; the sender's own text wherever possible.
    pub(crate) text: Cow<'a, str>,
}

/// Parses a piece of a claim; `max_content` is the longest content in bytes.
pub(crate) fn parse<'a>(framed: &Framed<'a>, batch_id: &str, max_content: usize) -> ParsedLine<'a> {
    if framed.piece == Piece::Chunk {
        let limit = MAX_LINE_BYTES;
        return ParsedLine::Invalid(format!("part of a line of more than {limit} bytes"));
    }
    let bytes = framed.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(framed.bytes);
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return ParsedLine::Blank;
    }
    match read(bytes, batch_id, framed.offset, max_content) {
        Ok(good) => ParsedLine::Valid(good),
        Err(_) if framed.piece == Piece::Fragment => ParsedLine::Unfinished,
        Err(reason) => ParsedLine::Invalid(reason),
    }
}

fn read<'a>(
    bytes: &'a [u8],
    batch_id: &str,
    offset: u64,
    max_content: usize,
) -> Result<ValidLine<'a>, String> {
    let text = std::str::from_utf8(bytes).map_err(|why| format!("not UTF-8: {why}"))?;
    let has_id = |message: &Message| message.id.as_ref().is_some_and(|id| !id.is_empty());
    if let Some(message) = Message::read_plain(text).map(Box::new)
        && has_id(&message)
    {
        check_length(&message, max_content)?;
        return Ok(ValidLine { message, text: Cow::Borrowed(text) });
    }
    let mut object: Map<String, Value> =
        serde_json::from_str(text).map_err(|why| format!("not a JSON object: {why}"))?;
    let message = Message::read(&object).map_err(|why| format!("not a message: {why}"))?;
    let mut message = Box::new(message);
    check_length(&message, max_content)?;
    if has_id(&message) {
        return Ok(ValidLine { message, text: Cow::Borrowed(text) });
    }
    let id = format!("raw-{batch_id}-{offset}");
    message.id = Some(id.clone());
    let text = match text.strip_prefix('{') {
        Some(rest) if !object.contains_key("id") => format!(r#"{{"id":"{id}",{rest}"#),
        _ => {
            object.shift_insert(0, "id".into(), id.as_str().into());
            Value::Object(object).to_string()
        }
    };
    Ok(ValidLine { message, text: Cow::Owned(text) })
}

fn check_length(message: &Message, max_content: usize) -> Result<(), String> {
    let found = message.content.len();
    if found > max_content {
        return Err(format!("content of {found} bytes is longer than {max_content}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(bytes: &[u8], piece: Piece) -> ParsedLine<'_> {
        parse(&Framed { piece, offset: 7, bytes }, "g", 10)
    }

    #[test]
    fn a_line_that_is_no_message_has_a_reason() {
        for (line, piece, reason) in [
            ("{}", Piece::Line, "no content"),
            (r#"{"from":[],"content":"x"}"#, Piece::Line, "\"from\" is not a string"),
            (r#"{"content":"12345678901"}"#, Piece::Line, "11 bytes is longer than 10"),
            (r#"{"content":"x"}"#, Piece::Chunk, "part of a line"),
        ] {
            let verdict = parsed(line.as_bytes(), piece);
            let ParsedLine::Invalid(why) = verdict else { panic!("{verdict:?}, not {reason:?}") };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn a_line_without_an_id_gets_one_from_its_offset() {
        for (line, text) in [
            (r#"{"content":"x"}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            ("\u{feff}{ \"content\" : \"x\" }\r", r#"{"id":"raw-g-7", "content" : "x" }"#),
            (r#"{"id":null,"content":"x"}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            (r#"{"content":"x","id":""}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            (r#"{"content":"x","id":5}"#, r#"{"content":"x","id":5}"#),
        ] {
            let verdict = parsed(line.as_bytes(), Piece::Line);
            let ParsedLine::Valid(good) = verdict else { panic!("{verdict:?} for {line:?}") };
            assert_eq!(good.text, text);
        }
    }

    #[test]
    fn a_fragment_is_a_message_once_it_is_complete() {
        assert!(matches!(parsed(br#"{"content":"x"#, Piece::Fragment), ParsedLine::Unfinished));
        assert!(matches!(parsed(br#"{"content":"x"}"#, Piece::Fragment), ParsedLine::Valid(_)));
        assert!(matches!(parsed(b"", Piece::Line), ParsedLine::Blank));
    }

    proptest! {
        #[test]
        fn the_text_of_a_message_parses_to_the_same_message(
            content in "\\PC{0,8}", id in proptest::option::of("[a-z]{0,3}"), key in "[a-z]{1,4}",
        ) {
            let mut line = serde_json::json!({"content": content, key: [1]});
            if let Some(id) = id {
                line["id"] = id.into();
            }
            let original = line.clone();
            let line = line.to_string();
            let framed = Framed { piece: Piece::Line, offset: 7, bytes: line.as_bytes() };
            if let ParsedLine::Valid(good) = parse(&framed, "g", 1000) {
                let again: Map<String, Value> = serde_json::from_str(&good.text).unwrap();
                prop_assert!(!good.text.contains('\n'));
                prop_assert_eq!(&Message::read(&again).unwrap(), &*good.message);
                for (key, value) in original.as_object().unwrap() {
                    prop_assert!(key == "id" || again.get(key) == Some(value), "{}", good.text);
                }
            }
        }
    }
}
