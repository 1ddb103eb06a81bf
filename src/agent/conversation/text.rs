//! The size of texts: how many bytes count as one token, and how a long text is cut.

/// Bytes that count as one token where no tokenizer is at hand.
pub(super) const BYTES_PER_TOKEN: usize = 4;

/// Cuts a text to about `room` bytes: keeps its beginning, which names the subject, and a longer end.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let (head, tail) = (room / 4, room - room / 4);
    let head = text.get(..text.floor_char_boundary(head)).unwrap_or_default();
    let tail = text.get(text.ceil_char_boundary(text.len() - tail)..).unwrap_or_default();
    format!("{head}\n[… left out …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_keeps_its_beginning_and_a_longer_end() {
        let text = format!("begin {} end", "ä".repeat(500));
        let short = cut(&text, 100);
        assert!(short.starts_with("begin ") && short.ends_with(" end"), "{short}");
        assert!(short.contains("left out") && short.len() < 130, "{short}");
        assert_eq!(cut(&text, text.len()), text);
        assert!(cut("äöü", 1).contains("left out"));
    }
}
