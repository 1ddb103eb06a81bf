//! Files as agents see them: content hashes, and the lines that an agent has seen.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt::Write as _;

/// The number of bytes of the digest that a hash keeps.
const HASH_BYTES: usize = 16;

/// The hash of a content: the first 128 bits of its SHA-256, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// Returns the hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(2 * HASH_BYTES);
        for byte in digest(&SHA256, bytes).as_ref().iter().take(HASH_BYTES) {
            let _infallible = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file as an agent has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// The real path, relative to the workspace; absolute outside of it.
    pub path: String,
    /// The hash of the whole content.
    pub hash: ContentHash,
    /// The lines that the agent has seen: first and last line of each range, from 1.
    pub lines: Vec<(usize, usize)>,
}

/// Deserializes a view; one of another form counts as absent, so that the line around it stays readable.
pub(super) fn if_understood<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<FileView>>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_begin_of_sha_256() {
        assert_eq!(ContentHash::of(b"abc").as_str(), "ba7816bf8f01cfea414140de5dae2223");
    }
}
