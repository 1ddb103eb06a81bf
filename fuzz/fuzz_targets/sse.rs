//! Fuzzes the decoder of server-sent events with any bytes in pieces of any size: it must not panic, must
//! return the same events for every split, and must not return more bytes than it got.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/llm/sse.rs"]
mod sse;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<sse::Event> {
    let mut decoder = sse::Decoder::default();
    let mut events = Vec::new();
    for piece in pieces {
        let (more, end) = decoder.push(piece);
        events.extend(more);
        if end.is_err() {
            break;
        }
    }
    events
}

fuzz_target!(|input: &[u8]| {
    let Some((size, stream)) = input.split_first() else { return };
    let whole = decode([stream].into_iter());
    let pieces = stream.chunks(usize::from(*size).max(1));
    assert_eq!(decode(pieces), whole);
    let given: usize = whole.iter().map(|event| event.name.len() + event.data.len()).sum();
    // An invalid UTF-8 byte becomes the three bytes of the replacement character.
    assert!(given <= 3 * stream.len());
});
