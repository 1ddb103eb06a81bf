//! Batch ids: the names of claims, which sort by age and never repeat.

use crate::os::file::{Access, At, FileError, open_or_create};
use crate::store::TeamDir;
use crate::wire::AgentName;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The digits of the counter.
const DIGITS: usize = 12;

/// The counter of one mailbox. On disk it has a fixed number of digits, so that it is rewritten in place.
#[derive(Debug)]
pub(crate) struct BatchIds {
    path: PathBuf,
    file: File,
    last: u64,
    keys: RandomState,
}

impl BatchIds {
    /// Continues after the stored value and after every `known` batch id.
    pub(crate) fn open<'a>(
        dir: &TeamDir,
        name: &AgentName,
        known: impl Iterator<Item = &'a str>,
    ) -> Result<Self, FileError> {
        let path = dir.state(&format!("{name}.gen"));
        let file = open_or_create(&path, Access::Update)?;
        let mut digits = [0; DIGITS];
        let stored = file.read_exact_at(&mut digits, 0).ok().and_then(|()| {
            std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse::<u64>().ok())
        });
        let last = known.filter_map(counter).chain(stored).max().unwrap_or(0);
        Ok(Self { path, file, last, keys: RandomState::new() })
    }

    /// Returns the next batch id.
    pub(crate) fn next(&mut self) -> Result<String, FileError> {
        self.last += 1;
        let digits = format!("{:0DIGITS$}", self.last);
        self.file.write_all_at(digits.as_bytes(), 0).at(&self.path)?;
        // The keys are random and of this process; a system call for each id takes longer.
        let random = self.keys.hash_one(self.last) & u64::from(u32::MAX);
        Ok(format!("{digits}-{random:08x}"))
    }
}

/// Returns the counter of a batch id, or `None` if the text is not one.
pub(crate) fn counter(batch_id: &str) -> Option<u64> {
    let (digits, random) = batch_id.split_once('-')?;
    let is_name = digits.len() == DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn batch_ids_grow_across_restarts_and_known_claims() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let open = |known: &[&str]| {
            BatchIds::open(&dir, &alice, known.iter().copied()).unwrap().next().unwrap()
        };
        let names =
            [open(&[]), open(&[]), open(&["000000000041-0123abcd", "junk", "41-0"]), open(&[])];
        let counters: Vec<_> = names.iter().map(|name| counter(name).unwrap()).collect();
        assert_eq!(counters, [1, 2, 42, 43]);
    }
}
