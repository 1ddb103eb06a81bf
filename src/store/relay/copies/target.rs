//! The copy of the files of one host.

use super::{at, copy_of, kind_of, make_copy_folders};
use crate::os::file::{Access, At, open_or_create};
use crate::store::file::atomic::{Fsync, pretty_json, remove, replace};
use crate::store::file::read::{known_if_there, read_json};
use crate::store::relay::MOST_NAME_BYTES;
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::HostName;
use crate::wire::host_copy::{CopyPath, CopySelection, ListedFile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The most bytes of a file that are copied, from its end. The copy of a longer one begins with a whole line.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The copy of the files of a host.
#[derive(Debug)]
pub struct HostCopy {
    dir: TeamDir,
    state_path: PathBuf,
    state: CopyState,
}

/// The state of a copy: `copies/HOST/copy.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CopyState {
    /// The time at which all wanted files were copied last.
    as_of: WallTime,
    files: BTreeMap<CopyPath, CopiedFile>,
}

/// A file of which there is a copy. What it has is what the copy has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopiedFile {
    id: String,
    /// The place in the file at which the copy begins.
    #[serde(default)]
    start: u64,
    /// Whether the rest of the line at that place was left out, or is none.
    begins_with_line: bool,
}

/// A part of a file that a copy lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPart {
    /// The file.
    pub path: CopyPath,
    /// The text that another file at the path does not have.
    pub id: String,
    /// The first byte that is missing.
    pub offset: u64,
    /// The size of the file.
    pub until: u64,
}

impl HostCopy {
    /// Opens the copy of the files of a host, which is made if there is none.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn open(dir: &TeamDir, host: &HostName) -> Result<Self, StoreError> {
        make_copy_folders(dir)?;
        let root = dir.relay_copy(host);
        make_folder(&root)?;
        let state_path = dir.relay_copy_state(host);
        // A list that cannot be understood is one of no files: they are copied again.
        let state = read_json(&state_path, MOST_NAME_BYTES).ok().flatten().unwrap_or_default();
        Ok(Self { dir: copy_of(dir, host), state_path, state })
    }

    /// Returns what is missing of the files that the host has. Copies of files that it has no more are removed, of the kinds
    /// that were asked for.
    ///
    /// # Errors
    /// A file cannot be read, written or removed.
    pub fn missing(
        &mut self,
        asked: &CopySelection,
        listed: &[ListedFile],
    ) -> Result<Vec<MissingPart>, StoreError> {
        let there: BTreeSet<&CopyPath> = listed.iter().map(|file| &file.path).collect();
        let is_asked = |path: &CopyPath| {
            kind_of(path).is_some_and(|(part, owner)| {
                let is_meant = |name: &str| asked.agents.iter().any(|it| it == name);
                asked.parts.contains(&part)
                    && (asked.agents.is_empty()
                        || owner.agent().is_none_or(|owner| is_meant(owner.as_str())))
            })
        };
        let mut gone: Vec<CopyPath> = Vec::new();
        for path in self.state.files.keys() {
            if is_asked(path) && !there.contains(path) {
                gone.push(path.clone());
            }
        }
        let mut missing = Vec::new();
        let mut has_changed = !gone.is_empty();
        for path in &gone {
            self.forget(path)?;
        }
        for file in listed.iter().filter(|file| is_asked(&file.path)) {
            let has = self.bytes_of(&file.path)?;
            let begun = self.state.files.get(&file.path).filter(|known| {
                known.id == file.id && known.start.saturating_add(has) <= file.bytes
            });
            let begun = match begun {
                Some(begun) => begun.clone(),
                None => {
                    self.forget(&file.path)?;
                    has_changed = true;
                    let start = file.bytes.saturating_sub(MOST_BYTES);
                    let begun =
                        CopiedFile { id: file.id.clone(), start, begins_with_line: start == 0 };
                    self.state.files.insert(file.path.clone(), begun.clone());
                    begun
                }
            };
            let offset = begun.start + self.bytes_of(&file.path)?;
            if offset < file.bytes {
                let (path, id, until) = (file.path.clone(), file.id.clone(), file.bytes);
                missing.push(MissingPart { path, id, offset, until });
            } else {
                self.touch(&file.path)?;
            }
        }
        if has_changed {
            self.record()?;
        }
        Ok(missing)
    }

    /// Appends bytes that were missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(
        &mut self,
        path: &CopyPath,
        (offset, bytes): (u64, &[u8]),
    ) -> Result<(), StoreError> {
        let has = self.bytes_of(path)?;
        let Some(known) = self.state.files.get_mut(path) else { return Ok(()) };
        if known.start + has != offset {
            return Ok(());
        }
        let mut bytes = bytes;
        if !known.begins_with_line {
            // The first line is not whole.
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            known.start += end as u64;
            known.begins_with_line = bytes.get(end.saturating_sub(1)) == Some(&b'\n');
            bytes = bytes.get(end..).unwrap_or_default();
            self.record()?;
        }
        let target = self.made(path)?;
        let file = open_or_create(&target, Access::Update)?;
        Ok(file.write_all_at(bytes, has).at(&target)?)
    }

    /// Notes that all wanted files are copied.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_complete(&mut self, now: WallTime) -> Result<(), StoreError> {
        self.state.as_of = now;
        self.record()
    }

    /// Returns the time at which all wanted files were copied last; `None` if that has not been.
    pub fn as_of(&self) -> Option<WallTime> {
        self.state.complete_at()
    }

    fn bytes_of(&self, path: &CopyPath) -> Result<u64, StoreError> {
        Ok(known_if_there(&at(&self.dir, path))?.map_or(0, |known| known.len()))
    }

    /// Makes an empty file empty here, too.
    fn touch(&self, path: &CopyPath) -> Result<(), StoreError> {
        let target = at(&self.dir, path);
        if known_if_there(&target)?.is_none() {
            open_or_create(&self.made(path)?, Access::Update)?;
        }
        Ok(())
    }

    /// Makes the folders of a file; returns its path.
    fn made(&self, path: &CopyPath) -> Result<PathBuf, StoreError> {
        let mut folder = self.dir.root().to_owned();
        if let Some((folders, _)) = path.as_str().rsplit_once('/') {
            for name in folders.split('/') {
                folder.push(name);
                make_folder(&folder)?;
            }
        }
        Ok(at(&self.dir, path))
    }

    fn forget(&mut self, path: &CopyPath) -> Result<(), StoreError> {
        self.state.files.remove(path);
        Ok(remove(&at(&self.dir, path))?)
    }

    fn record(&self) -> Result<(), StoreError> {
        let text = pretty_json(&self.state, &self.state_path)?;
        Ok(replace(&self.state_path, &text, Fsync::Never)?)
    }
}

/// Returns the time at which the copy of a host's files was complete last; `None` if it has not been.
pub(crate) fn as_of(dir: &TeamDir, host: &HostName) -> Option<WallTime> {
    let state = read_json::<CopyState>(&dir.relay_copy_state(host), MOST_NAME_BYTES).ok()??;
    state.complete_at()
}

impl CopyState {
    fn complete_at(&self) -> Option<WallTime> {
        Some(self.as_of).filter(|at| *at > WallTime::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{copyable_files, read_part};
    use super::*;
    use crate::store::test_team;
    use crate::wire::AgentName;
    use crate::wire::host_copy::CopyPart;
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    fn put(path: &Path, text: &str) {
        File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    struct Hosts {
        _folders: [tempfile::TempDir; 2],
        from: TeamDir,
        to: TeamDir,
    }

    fn hosts() -> Hosts {
        let ((one, from), (other, to)) = (test_team(), test_team());
        Hosts { _folders: [one, other], from, to }
    }

    fn wanted() -> CopySelection {
        CopySelection { parts: vec![CopyPart::Transcripts], agents: Vec::new() }
    }

    fn host() -> HostName {
        HostName::parse("gpu1").unwrap()
    }

    impl Hosts {
        /// Copies all that is missing, in parts of so many bytes; returns their number.
        fn copy(&self, most: usize) -> usize {
            let mut copy = HostCopy::open(&self.to, &host()).unwrap();
            let listed = copyable_files(&self.from, &wanted()).unwrap();
            let mut parts = 0;
            for MissingPart { path, id, mut offset, until } in
                copy.missing(&wanted(), &listed).unwrap()
            {
                while offset < until {
                    let bytes =
                        read_part(&self.from, (&path, &id), (offset, most)).unwrap().unwrap();
                    copy.append(&path, (offset, &bytes)).unwrap();
                    offset += bytes.len() as u64;
                    parts += 1;
                }
            }
            parts
        }

        fn original(&self) -> PathBuf {
            self.from.transcript(&AgentName::member("carol").unwrap())
        }

        fn copied(&self) -> Option<String> {
            let copy = copy_of(&self.to, &host());
            fs::read_to_string(copy.transcript(&AgentName::member("carol").unwrap())).ok()
        }
    }

    #[test]
    fn a_file_that_grows_is_copied_part_by_part_and_goes_on_after_a_restart() {
        let hosts = hosts();
        put(&hosts.original(), "one\ntwo\n");
        assert_eq!(hosts.copy(3), 3);
        assert_eq!(hosts.copied().as_deref(), Some("one\ntwo\n"));
        assert_eq!(hosts.copy(3), 0, "nothing is missing");
        put(&hosts.original(), "one\ntwo\nthree\n");
        assert_eq!(hosts.copy(100), 1, "what is there is not copied again");
        assert_eq!(hosts.copied().as_deref(), Some("one\ntwo\nthree\n"));
    }

    #[test]
    fn another_file_at_the_same_path_takes_the_place_of_the_copy() {
        let hosts = hosts();
        put(&hosts.original(), "the first conversation\n");
        hosts.copy(100);
        let archived = hosts.from.archive().join("carol-1.jsonl");
        fs::rename(hosts.original(), archived).unwrap();
        hosts.copy(100);
        assert_eq!(hosts.copied(), None, "it has no conversation now");
        put(&hosts.original(), "the second one, which is longer\n");
        hosts.copy(100);
        assert_eq!(hosts.copied().as_deref(), Some("the second one, which is longer\n"));
    }

    #[test]
    fn a_file_is_not_read_under_the_id_of_another_one() {
        let hosts = hosts();
        put(&hosts.original(), "one\n");
        let listed = copyable_files(&hosts.from, &wanted()).unwrap().remove(0);
        put(&hosts.from.root().join("new"), "another\n");
        fs::rename(hosts.from.root().join("new"), hosts.original()).unwrap();
        assert_eq!(read_part(&hosts.from, (&listed.path, &listed.id), (0, 9)).unwrap(), None);
        let other = CopyPath::parse("config.json").unwrap();
        assert_eq!(read_part(&hosts.from, (&other, "x"), (0, 9)).unwrap(), None);
    }

    #[test]
    fn only_the_end_of_a_long_file_is_copied_from_a_whole_line_on() {
        let hosts = hosts();
        let line = "x".repeat(1023) + "\n";
        let lines = MOST_BYTES / 1024 + 1;
        let mut text = String::from("the first line\n");
        (0..lines).for_each(|_| text.push_str(&line));
        put(&hosts.original(), &text);
        hosts.copy(1024 * 1024);
        let copied = hosts.copied().unwrap();
        assert!(copied.len() as u64 <= MOST_BYTES && copied.len() as u64 > MOST_BYTES - 2048);
        assert!(copied.starts_with(&line) && text.ends_with(&copied));
        put(&hosts.original(), &(text + "the end\n"));
        assert_eq!(hosts.copy(100), 1);
        assert!(hosts.copied().unwrap().ends_with("x\nthe end\n"));
    }

    #[test]
    fn a_file_that_the_host_must_not_have_listed_is_not_copied() {
        let hosts = hosts();
        let mut copy = HostCopy::open(&hosts.to, &host()).unwrap();
        let evil = ListedFile {
            path: CopyPath::parse("run/.state/relay/keys.json").unwrap(),
            id: "1".into(),
            bytes: 9,
        };
        assert_eq!(copy.missing(&wanted(), std::slice::from_ref(&evil)).unwrap(), []);
        copy.append(&evil.path, (0, b"evil")).unwrap();
        assert!(!copy.dir.root().join("run").exists());
    }
}
