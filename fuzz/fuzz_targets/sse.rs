//! The decoder of server-sent events, on any bytes in pieces of any size: it never panics, gives the same
//! events however the stream is cut, and gives out no more than came in.

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
    // A byte that is no UTF-8 becomes the three of the replacement character.
    assert!(given <= 3 * stream.len());
});
