//! The parts of a reply that only this API understands, as the transcript keeps them. Pure.
//!
//! A signature belongs to one part and to one model. The transcript has it in an opaque block right before the block of
//! that part; a request for the same model puts it back. A part without a block of its own is kept as a whole.

use serde_json::{Value, json};
use std::ops::Range;

/// The `type` of these blocks.
const KIND: &str = "gemini";

/// A kept part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kept<'a> {
    /// A whole part.
    Part(&'a Value),
    /// The signature of the next block. That of a text belongs to the part with these bytes of the text.
    Signature(&'a str, Option<Range<usize>>),
}

pub(super) fn part(model: &str, part: &Value) -> Value {
    json!({"type": KIND, "model": model, "part": part})
}

pub(super) fn signature(model: &str, signature: &str, bytes: Option<Range<usize>>) -> Value {
    let mut value = json!({"type": KIND, "model": model, "signature": signature});
    if let (Some(bytes), Some(fields)) = (bytes, value.as_object_mut()) {
        fields.insert("bytes".into(), json!([bytes.start, bytes.end]));
    }
    value
}

/// Reads an opaque block; `None` for one of another provider or another model.
pub(super) fn read<'a>(value: &'a Value, model: &str) -> Option<Kept<'a>> {
    let field = |key: &str| value.get(key);
    if field("type")? != KIND || field("model")? != model {
        return None;
    }
    if let Some(part) = field("part") {
        return Some(Kept::Part(part));
    }
    let end = |at: usize| usize::try_from(field("bytes")?.get(at)?.as_u64()?).ok();
    let bytes = end(0).zip(end(1)).map(|(start, end)| start..end);
    Some(Kept::Signature(field("signature")?.as_str()?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_for_the_same_model_only() {
        let thought = json!({"text": "hm", "thought": true, "thoughtSignature": "s"});
        let table = [
            (part("m", &thought), Kept::Part(&thought)),
            (signature("m", "s+/=", None), Kept::Signature("s+/=", None)),
            (signature("m", "s", Some(2..5)), Kept::Signature("s", Some(2..5))),
        ];
        for (value, kept) in table {
            assert_eq!(read(&value, "m"), Some(kept), "{value}");
            assert_eq!(read(&value, "n"), None, "{value}");
        }
        for foreign in [json!({"type": "thinking", "signature": "s"}), json!({"model": "m"})] {
            assert_eq!(read(&foreign, "m"), None, "{foreign}");
        }
    }
}
