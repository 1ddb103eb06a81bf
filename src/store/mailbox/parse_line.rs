//! Is this line a message? Pure: no file, no clock.

use crate::store::file::jsonl::{Framed, Piece};
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// What a line turned out to be.
#[derive(Debug)]
pub(crate) enum ParsedLine<'a> {
    /// Nothing.
    Blank,
    /// A message.
    Good(Good<'a>),
    /// Not a message, and why.
    Bad(String),
    /// The beginning of a line whose writer has not finished.
    Unfinished,
}

/// A message that can be delivered.
#[derive(Debug)]
pub(crate) struct Good<'a> {
    /// What it says. Its id is its own, or one made from its place.
    pub(crate) message: Box<Message>,
    /// As it was received, with its id; the sender's own text wherever possible.
    pub(crate) text: Cow<'a, str>,
}

/// Judges a piece of a claim; `max_content` is the longest content in bytes.
pub(crate) fn judge<'a>(framed: &Framed<'a>, batch_id: &str, max_content: usize) -> ParsedLine<'a> {
    if framed.piece == Piece::Chunk {
        let limit = MAX_LINE_BYTES;
        return ParsedLine::Bad(format!("part of a line of more than {limit} bytes"));
    }
    let bytes = framed.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(framed.bytes);
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return ParsedLine::Blank;
    }
    match read(bytes, batch_id, framed.offset, max_content) {
        Ok(good) => ParsedLine::Good(good),
        Err(_) if framed.piece == Piece::Fragment => ParsedLine::Unfinished,
        Err(reason) => ParsedLine::Bad(reason),
    }
}

fn read<'a>(
    bytes: &'a [u8],
    batch_id: &str,
    offset: u64,
    max_content: usize,
) -> Result<Good<'a>, String> {
    let text = std::str::from_utf8(bytes).map_err(|why| format!("not UTF-8: {why}"))?;
    let has_id = |message: &Message| message.id.as_ref().is_some_and(|id| !id.is_empty());
    if let Some(message) = Message::read_plain(text).map(Box::new)
        && has_id(&message)
    {
        check_length(&message, max_content)?;
        return Ok(Good { message, text: Cow::Borrowed(text) });
    }
    let mut object: Map<String, Value> =
        serde_json::from_str(text).map_err(|why| format!("not a JSON object: {why}"))?;
    let message = Message::read(&object).map_err(|why| format!("not a message: {why}"))?;
    let mut message = Box::new(message);
    check_length(&message, max_content)?;
    if has_id(&message) {
        return Ok(Good { message, text: Cow::Borrowed(text) });
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
    Ok(Good { message, text: Cow::Owned(text) })
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

    fn judged(bytes: &[u8], piece: Piece) -> ParsedLine<'_> {
        judge(&Framed { piece, offset: 7, bytes }, "g", 10)
    }

    #[test]
    fn what_is_no_message_says_why() {
        let deep = "[".repeat(100_000);
        let cases: [(&[u8], &str); 12] = [
            (b"hello", "not a JSON object"),
            (b"[1]", "not a JSON object"),
            (b"7", "not a JSON object"),
            (b"null", "not a JSON object"),
            (b"\0\0\0", "not a JSON object"),
            (deep.as_bytes(), "not a JSON object"),
            (br#"{"content":"x","n":1e400}"#, "not a JSON object"),
            (br#"{"content":"\ud800"}"#, "not a JSON object"),
            (b"{\"content\":\"\xff\"}", "not UTF-8"),
            (b"{}", "no content"),
            (br#"{"from":[],"content":"x"}"#, "\"from\" is not a string"),
            (br#"{"content":"12345678901"}"#, "11 bytes is longer than 10"),
        ];
        for (bytes, reason) in cases {
            let verdict = judged(bytes, Piece::Line);
            let ParsedLine::Bad(why) = verdict else { panic!("{verdict:?}, not {reason:?}") };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn hand_written_lines_get_an_id_from_their_place_and_keep_their_text() {
        for (line, text) in [
            (r#"{"content":"x"}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            ("\u{feff}{ \"content\" : \"x\" }\r", r#"{"id":"raw-g-7", "content" : "x" }"#),
            (r#"{"id":null,"content":"x"}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            (r#"{"content":"x","id":""}"#, r#"{"id":"raw-g-7","content":"x"}"#),
            (r#"{"content":"x","id":5}"#, r#"{"content":"x","id":5}"#),
        ] {
            let verdict = judged(line.as_bytes(), Piece::Line);
            let ParsedLine::Good(good) = verdict else { panic!("{verdict:?} for {line:?}") };
            assert_eq!(good.text, text);
        }
    }

    #[test]
    fn a_fragment_is_a_message_once_it_is_complete() {
        assert!(matches!(judged(br#"{"content":"x"#, Piece::Fragment), ParsedLine::Unfinished));
        assert!(matches!(judged(br#"{"content":"x"}"#, Piece::Fragment), ParsedLine::Good(_)));
        assert!(matches!(judged(b"", Piece::Line), ParsedLine::Blank));
        assert!(matches!(judged(br#"{"content":"x"}"#, Piece::Chunk), ParsedLine::Bad(_)));
    }

    proptest! {
        #[test]
        fn the_text_is_one_line_that_says_what_was_understood(
            content in "\\PC{0,8}", id in proptest::option::of("[a-z]{0,3}"), key in "[a-z]{1,4}",
        ) {
            let mut line = serde_json::json!({"content": content, key: [1]});
            if let Some(id) = id {
                line["id"] = id.into();
            }
            let original = line.clone();
            let line = line.to_string();
            let framed = Framed { piece: Piece::Line, offset: 7, bytes: line.as_bytes() };
            if let ParsedLine::Good(good) = judge(&framed, "g", 1000) {
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
