//! Files as agents see them: content hashes.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_begin_of_sha_256() {
        assert_eq!(ContentHash::of(b"abc").as_str(), "ba7816bf8f01cfea414140de5dae2223");
    }
}
