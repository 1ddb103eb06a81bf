//! Decodes server-sent events from chunks of bytes.
//!
//! *Invariant:* the chunk boundaries never change the events, and the buffer between two chunks never exceeds
//! [`LONGEST`]. The decoder does not know the meaning of events. It ignores ids and reconnection times, which no
//! supported endpoint uses.

use std::mem;

/// The longest accepted event or line, in bytes.
pub(crate) const LONGEST: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// The `event` field, empty if absent.
    pub(crate) name: String,
    /// The `data` lines, joined by newlines.
    pub(crate) data: String,
}

/// A line or an event is longer than [`LONGEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {LONGEST} bytes")]
pub(crate) struct TooLong;

/// The state between two chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// Whether the last byte was a CR: a directly following LF belongs to the same line end.
    after_cr: bool,
    past_first_line: bool,
}

impl Decoder {
    /// Adds a chunk and returns the events that it completes, up to one that is too long. An event without its
    /// closing blank line is never returned.
    pub(crate) fn push(&mut self, piece: &[u8]) -> (Vec<Event>, Result<(), TooLong>) {
        let mut events = Vec::new();
        let mut rest = piece;
        while let Some((&first, behind)) = rest.split_first() {
            if mem::take(&mut self.after_cr) && first == b'\n' {
                rest = behind;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
            let known = self.data.as_ref().map_or(0, String::len);
            if self.line.len() + part.len() + known > LONGEST {
                return (events, Err(TooLong));
            }
            self.line.extend_from_slice(part);
            rest = behind;
            if let Some((&end, behind)) = rest.split_first() {
                self.after_cr = end == b'\r';
                rest = behind;
                events.extend(self.line_end());
            }
        }
        (events, Ok(()))
    }

    fn line_end(&mut self) -> Option<Event> {
        let bytes = mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if !mem::replace(&mut self.past_first_line, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            let name = mem::take(&mut self.name);
            return self.data.take().map(|data| Event { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (field, &mut self.data) {
            ("event", _) => value.clone_into(&mut self.name),
            ("data", Some(data)) => {
                data.push('\n');
                data.push_str(value);
            }
            ("data", none) => *none = Some(value.to_owned()),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::stream_parser::tests::cut;
    use proptest::prelude::*;

    /// Returns the events of a stream, as `name=data`.
    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::default();
        let events = pieces.iter().flat_map(|piece| decoder.push(piece).0);
        events.map(|Event { name, data }| format!("{name}={data}")).collect()
    }

    #[test]
    fn every_line_ending_and_field_form_is_decoded() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = "\u{feff}: comment|event: a|data: 1|data:2|id: 7|retry: 5||data||event: x||data: z||"
                .replace('|', end);
            assert_eq!(events(&[stream.as_bytes()]), ["a=1\n2", "=", "=z"], "{end:?}");
        }
    }

    #[test]
    fn an_event_without_its_blank_line_is_not_returned() {
        for (stream, count) in [("data: 1\n", 0), ("data: 1\r\n", 0), ("data: 1\r\n\r", 1)] {
            assert_eq!(events(&[stream.as_bytes()]), vec!["=1"; count], "{stream:?}");
        }
    }

    #[test]
    fn an_endless_line_or_event_is_refused() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(&vec![b'x'; LONGEST]), (vec![], Ok(())));
        assert_eq!(decoder.push(b"x").1, Err(TooLong));

        let mut decoder = Decoder::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; LONGEST / 16], b"\n"].concat();
        let taken = (0..100).take_while(|_| decoder.push(&line).1.is_ok()).count();
        assert_eq!(taken, 15, "the lines of an event are bounded in sum");
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_change_the_events(
            lines in proptest::collection::vec("(event: ?[a-z]{0,3}|data: ?[a-zäß€🦀 :]{0,6}|:[a-z]|)", 0..20),
            ends in proptest::collection::vec(proptest::sample::select(vec!["\n", "\r\n", "\r"]), 20),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let stream: String = lines.iter().zip(&ends).flat_map(|(line, end)| [line, *end]).collect();
            let bytes = stream.as_bytes();
            let whole = events(&[bytes]);
            prop_assert_eq!(&events(&cut(bytes, &cuts)), &whole);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&events(&single), &whole);
        }
    }
}
