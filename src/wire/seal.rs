//! Seals: the proof that a message comes from a process that has a key of its recipient.
//!
//! A sealed line ends with `,"seal":"HEX"}`. The seal is the HMAC-SHA256 (RFC 2104) of the line's bytes without that
//! field, so that no JSON has to be brought into a canonical form.

use ring::{hmac, rand};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The size of a key and of a seal in bytes.
const BYTES: usize = 32;

/// The number of hexadecimal digits of a key and of a seal.
const DIGITS: usize = 2 * BYTES;

/// The beginning of the last field of a sealed line.
const FIELD: &str = r#","seal":""#;

/// The end of a sealed line.
const END: &str = r#""}"#;

/// A secret that a sender and a recipient share.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SealKey([u8; BYTES]);

/// A text that is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of {DIGITS} hexadecimal digits")]
pub struct NotAKey;

/// The evidence for the sender of a message, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verification {
    /// None: the sender is only the one that the line names.
    #[default]
    None,
    /// The line is sealed with the recipient's mailbox key, which lies in a private file.
    Mailbox,
    /// The line is sealed with the control key, which only the sender's and the recipient's processes have.
    Control,
}

impl SealKey {
    /// Creates a random key. Returns `None` if the system has no randomness.
    pub fn random(source: &dyn rand::SecureRandom) -> Option<Self> {
        let mut bytes = [0; BYTES];
        source.fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Parses the hexadecimal digits of a key.
    ///
    /// # Errors
    /// The text is not a key.
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        from_hex(text).map(Self).ok_or(NotAKey)
    }

    /// Returns the hexadecimal digits of the key.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }

    /// Returns what seals many lines with this key.
    pub fn sealer(&self) -> Sealer {
        Sealer(self.hmac())
    }

    /// Whether the line is sealed with this key.
    pub fn verifies(&self, line: &str) -> bool {
        let Some((before, seal)) = split(line.trim()) else { return false };
        hmac::verify(&self.hmac(), format!("{before}}}").as_bytes(), &seal).is_ok()
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// A key that is ready to seal lines.
#[derive(Debug)]
pub struct Sealer(hmac::Key);

impl Sealer {
    /// Seals a line of JSON, which may end with a newline. A text that is not an object stays as it is.
    pub fn seal(&self, line: &mut String) {
        let object = line.trim_end();
        if let Some(fields) = object.strip_suffix('}') {
            let seal = to_hex(hmac::sign(&self.0, object.as_bytes()).as_ref());
            let newline = line.get(object.len()..).unwrap_or_default();
            *line = [fields, FIELD, &seal, END, newline].concat();
        }
    }
}

/// Whether a line ends with a seal, of any key.
pub fn is_sealed(line: &str) -> bool {
    split(line.trim()).is_some()
}

/// Returns a sealed line without its seal; `None` if it has none.
pub fn without_seal(line: &str) -> Option<String> {
    split(line.trim()).map(|(before, _)| format!("{before}}}"))
}

/// Splits a line into the part before its seal and the seal.
fn split(line: &str) -> Option<(&str, [u8; BYTES])> {
    let line = line.strip_suffix(END)?;
    let digits = line.get(line.len().checked_sub(DIGITS)?..)?;
    let before = line.strip_suffix(digits)?.strip_suffix(FIELD)?;
    Some((before, from_hex(digits)?))
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
    let mut digits = vec![0; 2 * bytes.len()];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    String::from_utf8(digits).unwrap_or_default()
}

/// Reads lower-case digits; a seal has one spelling only.
fn from_hex(text: &str) -> Option<[u8; BYTES]> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect();
    pairs?.try_into().ok()
}

impl fmt::Debug for SealKey {
    /// Hides the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SealKey(…)")
    }
}

impl From<SealKey> for String {
    fn from(key: SealKey) -> Self {
        key.hex()
    }
}

impl TryFrom<String> for SealKey {
    type Error = NotAKey;

    fn try_from(text: String) -> Result<Self, NotAKey> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> SealKey {
        SealKey([byte; BYTES])
    }

    fn sealed(line: &str) -> String {
        let mut line = line.to_owned();
        key(7).sealer().seal(&mut line);
        line
    }

    /// Computed with `openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07`.
    #[test]
    fn the_seal_is_the_hmac_of_the_line_without_it() {
        let line = sealed("{\"from\":\"lead\",\"content\":\"hi\"}\n");
        let seal = "e7049a7e940d96da6d3289a67dd0d8d7b0ff05df74892f4a1b8fea3a108d312e";
        assert_eq!(line, format!("{{\"from\":\"lead\",\"content\":\"hi\",\"seal\":\"{seal}\"}}\n"));
        assert!(key(7).verifies(&line) && is_sealed(&line));
        assert!(!key(8).verifies(&line));
    }

    #[test]
    fn only_an_object_is_sealed() {
        for line in ["", "\n", "[1]\n", "\"x\"", "{\"a\":1"] {
            assert_eq!(sealed(line), line);
            assert!(!is_sealed(line));
        }
        assert!(!is_sealed(r#"{"seal":"00"}"#));
    }

    #[test]
    fn a_key_is_read_as_it_is_written_and_never_shown() {
        assert_eq!(SealKey::parse(&key(0xA5).hex()), Ok(key(0xA5)));
        for text in ["", "00", &"0".repeat(63), &"g".repeat(64), &"A".repeat(64), &"0".repeat(66)] {
            assert_eq!(SealKey::parse(text), Err(NotAKey));
        }
        assert!(!format!("{:?}", key(0xA5)).contains("a5"));
        let one = SealKey::random(&rand::SystemRandom::new());
        assert_ne!(one, SealKey::random(&rand::SystemRandom::new()));
    }

    proptest! {
        #[test]
        fn a_line_with_one_byte_changed_added_or_removed_is_not_sealed(
            content in "\\PC{0,20}", at in any::<prop::sample::Index>(), change in 0..3, byte in any::<u8>(),
        ) {
            let line = sealed(&serde_json::json!({ "content": content }).to_string());
            let mut bytes = line.clone().into_bytes();
            let at = at.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
            if let Ok(changed) = String::from_utf8(bytes)
                && changed.trim() != line
            {
                prop_assert!(!key(7).verifies(&changed), "{changed}");
            }
        }
    }
}
