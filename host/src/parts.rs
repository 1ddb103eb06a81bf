//! Parts of files on their way between hosts: the host that has a file gives it in parts, and the other one asks for them.
//! Nothing of it stays at the server.

use serde::{Deserialize, Serialize};

/// The most bytes of a part.
pub(crate) const MOST_BYTES: usize = 256 * 1024;

/// The fewest bytes to which a slow network brings a part down.
pub(crate) const FEWEST_BYTES: usize = 8 * 1024;

/// The first line of an answer; the bytes follow it.
#[derive(Debug, Serialize, Deserialize)]
struct PartHead {
    is_there: bool,
}

/// Returns the answer with a part; `None` if the file is not there.
pub(crate) fn answer(part: Option<Vec<u8>>) -> Vec<u8> {
    let head = PartHead { is_there: part.is_some() };
    let mut body = serde_json::to_vec(&head).unwrap_or_default();
    body.push(b'\n');
    body.extend(part.unwrap_or_default());
    body
}

/// The content of an answer.
pub(crate) enum GivenPart {
    Bytes(Vec<u8>),
    /// The file is not there.
    Missing,
    /// It is no answer that this version knows.
    Unclear,
}

/// Reads an answer.
pub(crate) fn read(answer: &[u8]) -> GivenPart {
    let mut halves = answer.splitn(2, |byte| *byte == b'\n');
    let head = halves.next().map(serde_json::from_slice::<PartHead>);
    match (head, halves.next()) {
        (Some(Ok(PartHead { is_there: true })), Some(bytes)) => GivenPart::Bytes(bytes.to_vec()),
        (Some(Ok(PartHead { is_there: false })), _) => GivenPart::Missing,
        _ => GivenPart::Unclear,
    }
}
