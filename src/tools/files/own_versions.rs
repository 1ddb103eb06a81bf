//! The last version of each file that an agent wrote, until another member has built on it.
//!
//! A program that does not know the locks may replace such a version by one that lacks the agent's change. The version
//! is then kept in the team folder, and the agent is told its path.

use crate::wire::file_view::{ContentHash, FileRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of versions that an agent holds in memory, and the maximum size of each in bytes.
pub(super) const MOST_FILES: usize = 32;
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// A version that the agent wrote.
#[derive(Debug, Clone)]
pub(super) struct OwnVersion {
    /// The hash of the version on the disk that holds the agent's change.
    hash: ContentHash,
    /// The number of writes of the team up to that version.
    count: u64,
    /// The content that the agent wrote, and the one before its first change.
    bytes: Arc<[u8]>,
    base: Arc<[u8]>,
}

/// The fate of a version.
#[derive(Debug)]
pub(super) enum Fate {
    /// The change is still in the file.
    Present(OwnVersion),
    /// Another member has seen the version, and has written the next one.
    Continued,
    /// Another program has written a version without the change.
    Overwritten(Arc<[u8]>),
}

impl OwnVersion {
    /// Notes the version that the agent has just written; `None` if it is too large. `earlier` is the agent's version
    /// before it.
    pub(super) fn new(
        earlier: Option<&Self>,
        base: &[u8],
        bytes: &[u8],
        record: &FileRecord,
    ) -> Option<Self> {
        if base.len().max(bytes.len()) > MAX_BYTES {
            return None;
        }
        let base = earlier.map_or_else(|| base.into(), |earlier| Arc::clone(&earlier.base));
        let hash = ContentHash::of(bytes);
        Some(Self { hash, count: record.count, bytes: bytes.into(), base })
    }

    /// Whether the disk may hold another version than this one, if it holds the content of this hash.
    pub(super) fn differs_from(&self, hash: &ContentHash) -> bool {
        self.hash != *hash
    }

    /// Decides what has become of the version, by the content of the file and the writes of the team. The caller holds
    /// the lock of the file.
    pub(super) fn fate(self, current: &[u8], record: &FileRecord) -> Fate {
        let hash = ContentHash::of(current);
        if hash == self.hash {
            return Fate::Present(self);
        }
        let next = record.after(self.count).and_then(|next| next.base.as_ref());
        if next == Some(&self.hash) {
            return Fate::Continued;
        }
        if self.is_in(current) {
            return Fate::Present(Self { hash, count: record.count, ..self });
        }
        Fate::Overwritten(self.bytes)
    }

    /// Whether a content has at least the lines that the agent added, and at most those that it left of others.
    fn is_in(&self, current: &[u8]) -> bool {
        let [base, own, current] = [&self.base, &self.bytes, current].map(count_each);
        let of =
            |lines: &BTreeMap<&[u8], usize>, line: &[u8]| lines.get(line).copied().unwrap_or(0);
        base.keys().chain(own.keys()).all(|line| {
            let (before, after, now) = (of(&base, line), of(&own, line), of(&current, line));
            match after.cmp(&before) {
                std::cmp::Ordering::Less => now <= after,
                std::cmp::Ordering::Equal => true,
                std::cmp::Ordering::Greater => now >= after,
            }
        })
    }
}

/// Returns how often each line occurs.
fn count_each(text: &[u8]) -> BTreeMap<&[u8], usize> {
    let mut lines = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        *lines.entry(line).or_default() += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::file_view::FileWrite;

    fn write(record: &mut FileRecord, base: &str, text: &str) {
        let [base, hash] = [base, text].map(|text| ContentHash::of(text.as_bytes()));
        record.push(FileWrite { by: "x".into(), hash, base: Some(base) });
    }

    fn name(fate: &Fate) -> &'static str {
        match fate {
            Fate::Present(_) => "present",
            Fate::Continued => "continued",
            Fate::Overwritten(_) => "overwritten",
        }
    }

    #[test]
    fn a_change_is_followed_until_another_member_builds_on_it_or_it_is_overwritten() {
        let mut record = FileRecord::default();
        write(&mut record, "a\n", "a\nmine\n");
        let own = OwnVersion::new(None, b"a\n", b"a\nmine\n", &record).unwrap();
        let fate = |text: &str, record: &FileRecord| own.clone().fate(text.as_bytes(), record);
        for (text, expected) in [
            ("a\nmine\n", "present"),
            ("a\nmine\nforeign\n", "present"),
            ("a\nforeign\n", "overwritten"),
            ("", "overwritten"),
        ] {
            assert_eq!(name(&fate(text, &record)), expected, "{text:?}");
        }
        let mut continued = record.clone();
        write(&mut continued, "a\nmine\n", "a\nbob\n");
        assert_eq!(name(&fate("a\nbob\n", &continued)), "continued");
        let mut lost = record.clone();
        write(&mut lost, "a\nforeign\n", "a\nforeign\nbob\n");
        assert_eq!(name(&fate("a\nforeign\nbob\n", &lost)), "overwritten");
        // The change is followed through a foreign version, and through a second change of the agent.
        let Fate::Present(later) = fate("a\nmine\nforeign\n", &record) else { panic!() };
        let text = b"a\nmine\nforeign\nmore\n";
        let later = OwnVersion::new(Some(&later), b"a\nmine\nforeign\n", text, &record).unwrap();
        assert_eq!(name(&later.fate(b"a\nforeign\nmore\n", &record)), "overwritten");
        let removed = OwnVersion::new(None, b"a\nb\n", b"a\n", &record).unwrap();
        assert_eq!(name(&removed.clone().fate(b"a\nb\n", &record)), "overwritten");
        assert_eq!(name(&removed.fate(b"a\nc\n", &record)), "present");
    }
}
