//! Files as agents see and write them: content hashes, the lines that an agent has seen, and the record of the
//! writes of a team.

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt::Write as _;

/// The number of bytes of the digest that a hash keeps.
const HASH_BYTES: usize = 16;

/// The maximum number of writes in a [`FileRecord`].
const MOST_WRITES: usize = 32;

/// The hash of a content: the first 128 bits of its SHA-256, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// Returns the hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has the form of a hash. One that was read from a file or came from elsewhere may be any text.
    pub fn is_sound(&self) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        self.0.len() == 2 * HASH_BYTES && self.0.bytes().all(is_digit)
    }
}

/// The hash of a content that comes in pieces.
pub struct ContentHasher(Context);

impl Default for ContentHasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl ContentHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes.
    pub fn finish(self) -> ContentHash {
        let mut text = String::with_capacity(2 * HASH_BYTES);
        for byte in self.0.finish().as_ref().iter().take(HASH_BYTES) {
            let _infallible = write!(text, "{byte:02x}");
        }
        ContentHash(text)
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

/// A write of a file by a member of the team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWrite {
    /// The name of the member.
    pub by: String,
    /// The hash of the new content.
    pub hash: ContentHash,
    /// The hash of the content that was replaced; `None` for a new file.
    pub base: Option<ContentHash>,
}

impl FileWrite {
    /// Whether the write may be a removal, which looks like a write of an empty content.
    pub(crate) fn may_remove(&self) -> bool {
        self.base.is_some() && self.hash == ContentHash::of(b"")
    }
}

/// The last writes of a file by the team.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileRecord {
    /// The real path of the file.
    pub path: String,
    /// The number of writes so far.
    pub count: u64,
    /// Whether the last write may not have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// The last writes, oldest first.
    pub writes: Vec<FileWrite>,
}

impl FileRecord {
    /// Adds a write that begins now, and drops the oldest one if there are too many.
    pub fn push(&mut self, write: FileWrite) {
        self.writes.push(write);
        let surplus = self.writes.len().saturating_sub(MOST_WRITES);
        self.writes.drain(..surplus);
        self.count += 1;
        self.pending = true;
    }

    /// Removes the last write, which did not take place.
    pub fn withdraw(&mut self) {
        if self.writes.pop().is_some() {
            self.count -= 1;
        }
        self.pending = false;
    }

    /// Returns the first write after the first `count` ones; `None` if there is none, or if it was dropped.
    pub fn after(&self, count: u64) -> Option<&FileWrite> {
        let newer = usize::try_from(self.count.checked_sub(count)?).ok()?;
        self.writes.get(self.writes.len().checked_sub(newer)?)
    }

    /// Returns the member that wrote this content last.
    pub fn writer_of(&self, hash: &ContentHash) -> Option<&str> {
        let write = self.writes.iter().rev().find(|write| write.hash == *hash);
        write.map(|write| write.by.as_str())
    }
}

/// Deserializes a view; one of another form counts as absent, so that the line around it stays readable.
pub(super) fn if_understood<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<FileView>>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// Deserializes a list of views without those of another form.
pub(super) fn those_understood<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<FileView>, D::Error> {
    let values = Value::deserialize(deserializer)?;
    let values = values.as_array().cloned().unwrap_or_default();
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_begin_of_sha_256() {
        assert_eq!(ContentHash::of(b"abc").as_str(), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn a_record_knows_the_last_writes_by_their_number() {
        let write = |n: u32| FileWrite {
            by: format!("m{n}"),
            hash: ContentHash::of(&n.to_le_bytes()),
            base: None,
        };
        let mut record = FileRecord::default();
        for n in 0..40 {
            record.push(write(n));
        }
        assert_eq!((record.count, record.writes.len()), (40, MOST_WRITES));
        assert_eq!(record.after(39), Some(&write(39)));
        assert_eq!(record.after(8), Some(&write(8)));
        assert_eq!((record.after(7), record.after(40), record.after(41)), (None, None, None));
        assert_eq!(record.writer_of(&write(9).hash), Some("m9"));
        record.withdraw();
        assert_eq!((record.count, record.pending), (39, false));
        assert_eq!((record.after(38), record.after(39)), (Some(&write(38)), None));
    }
}
