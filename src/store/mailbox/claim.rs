//! Claims on disk: batches of mail that their owner took from the inbox and still keeps.
//!
//! A batch id names a claim; batch ids sort by age and never repeat. A claim that was acted on is removed only
//! after all of it was read and no process can write to it any more. The programs of a team write under the side
//! lock and never to a claim. A shell that runs `echo >>` may hold the file open, or may have resolved its old
//! name and open it later; the latter is impossible after a second.

use super::SettleResult;
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::os::lease::{OpenWriters, writers};
use crate::os::watch::WatchId;
use crate::store::file::read::{known_if_there, names_in, open_if_there};
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::limits::{LATE_WRITER_DELAY, LATE_WRITER_DELAY_WITHOUT_LEASES};
use crate::wire::{AgentName, WallTime};
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The number of digits of the counter in a batch id.
const DIGITS: usize = 12;

/// The number of batch ids that are used between two writes of the counter. A later process leaves out those that are not used.
const RESERVED_IDS: u64 = 64;

/// The suffix of a claim whose mail was acted on.
const TAKEN: &str = ".taken";

/// The generator of batch ids of one mailbox. The counter has a fixed number of digits, so that it can be
/// rewritten in place.
#[derive(Debug)]
pub(crate) struct BatchIds {
    /// The file of a counter that no id has passed; `None` if the owner's record of its mail has that.
    stored: Option<(PathBuf, File)>,
    last: u64,
    /// The counter in the file, up to which ids are used without another write.
    reserved: u64,
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
        Ok(Self { stored: Some((path, file)), last, reserved: last, keys: RandomState::new() })
    }

    /// Continues after every `known` batch id. The owner knows the newest one, and stores it itself.
    pub(crate) fn after<'a>(known: impl Iterator<Item = &'a str>) -> Self {
        let last = known.filter_map(counter).max().unwrap_or(0);
        Self { stored: None, last, reserved: u64::MAX, keys: RandomState::new() }
    }

    /// Continues after a batch id that became known later.
    pub(crate) fn continue_after(&mut self, known: &str) {
        self.last = self.last.max(counter(known).unwrap_or_default());
    }

    pub(crate) fn next(&mut self) -> Result<String, FileError> {
        self.last += 1;
        if let Some((path, file)) = &self.stored
            && self.last > self.reserved
        {
            let reserved = self.last + RESERVED_IDS;
            file.write_all_at(format!("{reserved:0DIGITS$}").as_bytes(), 0).at(path)?;
            self.reserved = reserved;
        }
        let digits = format!("{:0DIGITS$}", self.last);
        // The keys are random and differ in each process; a system call for each id would take longer.
        let random = self.keys.hash_one(self.last) & u64::from(u32::MAX);
        Ok(format!("{digits}-{random:08x}"))
    }
}

/// Returns the counter of a batch id, or `None` if the text is not one.
fn counter(batch_id: &str) -> Option<u64> {
    let (digits, random) = batch_id.split_once('-')?;
    let is_name = digits.len() == DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| digits.parse().ok())?
}

/// A claim as its owner tracks it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) batch_id: String,
    pub(crate) stage: Stage,
    /// The path without the suffix.
    path: PathBuf,
    /// Whether its file has the suffix at every stage, so that it is renamed at none.
    pub(super) is_marked: bool,
    /// Its file, until it is read for the first time.
    pub(crate) unread: Option<File>,
    /// The watch on its file; without one, only the size of the file shows late writers.
    pub(crate) watch_id: Option<WatchId>,
    /// Every byte before this offset is in the transcript or the dead letters.
    pub(crate) read_to: u64,
    /// The size of the file when it was read.
    pub(crate) size: u64,
    /// The last offsets that earlier processes recorded.
    pub(crate) recorded: Recorded,
    /// The time at which this process first saw the claim.
    since: Instant,
    /// The time at which it was last seen to grow.
    pub(crate) grown: Instant,
    /// The pause before the next check for late writers.
    pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Made by this process.
    Fresh,
    /// Left by an earlier process that did not act on it.
    Inherited,
    /// Left by an earlier process that acted on it.
    InheritedTaken,
    /// Its mail is acknowledged and not yet acted on.
    Acknowledged,
    /// Its mail was acted on; the file is kept for late writers.
    Taken,
}

/// The highest offsets of one claim in the transcript and in the dead letters. The files are written one after the
/// other, so neither offset implies the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) mail: Option<u64>,
    pub(crate) dead: Option<u64>,
}

impl Claim {
    pub(crate) fn new(dir: &TeamDir, name: &AgentName, batch_id: String, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            path: dir.claims().join(format!("{name}.{batch_id}")),
            is_marked: false,
            batch_id,
            stage,
            unread: None,
            watch_id: None,
            read_to: 0,
            size: 0,
            recorded: Recorded::default(),
            since: now,
            grown: now,
            pause: Duration::from_millis(1),
        }
    }

    /// Tracks a claim that an earlier process left.
    pub(crate) fn inherited(dir: &TeamDir, file: ClaimFile) -> Self {
        let stage = if file.is_taken { Stage::InheritedTaken } else { Stage::Inherited };
        Self::new(dir, &file.owner, file.batch_id, stage)
    }

    /// Tracks a claim that an earlier process left, for an owner that marks claims before it has read them.
    pub(crate) fn inherited_unread(dir: &TeamDir, file: ClaimFile) -> Self {
        let is_marked = file.is_taken;
        Self { is_marked, ..Self::new(dir, &file.owner, file.batch_id, Stage::Inherited) }
    }

    /// Counts the time since an earlier process renamed the file. If the clock was set, a check for late writers may
    /// be early; it still finds a writer that has the file open.
    pub(crate) fn note_age(&mut self, now: WallTime) {
        let Ok(known) = fs::symlink_metadata(self.path()) else { return };
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in a double")]
        let renamed = known.ctime() as f64 + known.ctime_nsec() as f64 / 1e9;
        let age = now.since(WallTime::from_secs(renamed)).min(LATE_WRITER_DELAY);
        self.since = self.since.checked_sub(age).unwrap_or(self.since);
    }

    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.path.clone();
        if self.is_marked || matches!(self.stage, Stage::Taken | Stage::InheritedTaken) {
            path.as_mut_os_string().push(TAKEN);
        }
        path
    }

    /// Whether all of its known mail is acknowledged.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.stage, Stage::Acknowledged | Stage::Taken)
    }

    /// Whether the size of the file has changed since it was read.
    pub(crate) fn has_grown(&self) -> bool {
        fs::symlink_metadata(self.path()).is_ok_and(|known| known.len() != self.size)
    }

    /// Enters a stage and renames the file accordingly. A file that was removed is no error.
    pub(crate) fn enter(&mut self, stage: Stage) -> Result<(), FileError> {
        let old = self.path();
        let before = std::mem::replace(&mut self.stage, stage);
        let new = self.path();
        if old == new {
            return Ok(());
        }
        match fs::rename(&old, &new).at(&old) {
            Err(why) if why.is_missing() => Ok(()),
            moved => moved.inspect_err(|_| self.stage = before),
        }
    }

    /// Returns the rest of [`LATE_WRITER_DELAY`], before which a check for late writers proves nothing; `None`
    /// afterwards.
    pub(crate) fn too_early(&self) -> Option<Duration> {
        LATE_WRITER_DELAY.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Tells whether the claim can be removed: it was acted on, and no process can write to it any more.
    pub(crate) fn settle(&mut self) -> Result<ClaimEnd, StoreError> {
        if self.stage != Stage::Taken {
            return Ok(ClaimEnd::Later(SettleResult::Again { after: LATE_WRITER_DELAY }));
        }
        if let Some(after) = self.too_early() {
            return Ok(ClaimEnd::Later(SettleResult::Again { after }));
        }
        let path = self.path();
        let Some((file, _)) = open_if_there(&path)? else { return Ok(ClaimEnd::Gone) };
        let settled = self.late_writers(&file).at(&path)?;
        if settled != SettleResult::Done {
            return Ok(ClaimEnd::Later(settled));
        }
        if self.read_to >= self.size {
            return Ok(ClaimEnd::Whole);
        }
        let mut bytes = vec![0; usize::try_from(self.size - self.read_to).unwrap_or(0)];
        file.read_exact_at(&mut bytes, self.read_to).at(&path)?;
        Ok(ClaimEnd::Fragment(bytes))
    }

    /// Removes the file of a claim that is settled.
    pub(crate) fn remove(&self) -> Result<(), StoreError> {
        let path = self.path();
        failpoint::hit("drain.before_unlink");
        fs::remove_file(&path).at(&path)?;
        failpoint::hit("drain.unlinked");
        Ok(())
    }

    /// Checks for late writers. If none is possible, the size of the file is final.
    pub(crate) fn late_writers(&mut self, file: &File) -> io::Result<SettleResult> {
        let after = match writers(file) {
            OpenWriters::Absent => Duration::ZERO,
            // The pauses are 1, 10 and 100 ms, then always 1 s.
            OpenWriters::Present => {
                let next = (self.pause * 10).min(Duration::from_secs(1));
                std::mem::replace(&mut self.pause, next)
            }
            OpenWriters::Unknown => {
                LATE_WRITER_DELAY_WITHOUT_LEASES.saturating_sub(self.grown.elapsed())
            }
        };
        // The size is read after the check, so that bytes of the last writer are not missed.
        if file.metadata()?.len() != self.size {
            // The event of the write may be missing; without a watch the next drain reads the claim in any case.
            self.watch_id = None;
            return Ok(SettleResult::Grown);
        }
        Ok(if after.is_zero() { SettleResult::Done } else { SettleResult::Again { after } })
    }
}

/// The result of a look at a claim that was acted on.
#[derive(Debug)]
pub(crate) enum ClaimEnd {
    /// It is kept: late writers have appended to it, or may do so.
    Later(SettleResult),
    /// All of it was read, and nobody can write to it.
    Whole,
    /// The same, but for a line that was never finished.
    Fragment(Vec<u8>),
    /// An outsider has removed it.
    Gone,
}

/// The claims of a mailbox that was closed. They were acted on, and are kept for late writers, without a descriptor.
#[derive(Debug, Default)]
pub(crate) struct KeptClaims(pub(super) Vec<Claim>);

impl KeptClaims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the claims to which no process can write any more. With [`SettleResult::Grown`], a mailbox has to take them
    /// back: something was written, or a line was never finished.
    pub(crate) fn settle(&mut self) -> Result<SettleResult, StoreError> {
        let mut settled = SettleResult::Done;
        let mut kept = Vec::new();
        let mut claims = std::mem::take(&mut self.0).into_iter();
        for mut claim in claims.by_ref() {
            let end = match claim.settle() {
                Ok(ClaimEnd::Later(later)) => Ok(later),
                Ok(ClaimEnd::Fragment(_)) => Ok(SettleResult::Grown),
                Ok(ClaimEnd::Whole) => claim.remove().map(|()| SettleResult::Done),
                Ok(ClaimEnd::Gone) => Ok(SettleResult::Done),
                Err(why) => Err(why),
            };
            match end {
                Ok(SettleResult::Done) => {}
                Ok(later @ (SettleResult::Grown | SettleResult::Again { .. })) => {
                    settled = settled.min(later);
                    kept.push(claim);
                }
                Err(why) => {
                    kept.push(claim);
                    self.0 = kept.into_iter().chain(claims).collect();
                    return Err(why);
                }
            }
        }
        self.0 = kept;
        Ok(settled)
    }
}

/// A claim as its file name describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimFile {
    pub(crate) owner: AgentName,
    pub(crate) batch_id: String,
    /// Whether the owner has acted on the mail; the file is then kept for late writers.
    pub(crate) is_taken: bool,
    pub(crate) path: PathBuf,
}

/// Lists the claims of one mailbox, oldest first.
pub(crate) fn list(dir: &TeamDir, name: &AgentName) -> Result<Vec<ClaimFile>, FileError> {
    listed(dir, |owner| owner == name.as_str())
}

/// Lists the claims of all mailboxes, by owner and age.
pub(crate) fn list_all(dir: &TeamDir) -> Result<Vec<ClaimFile>, FileError> {
    listed(dir, |_| true)
}

/// Lists the claims of the wanted mailboxes. A folder that does not exist yet has no claims.
fn listed(dir: &TeamDir, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<ClaimFile>, FileError> {
    let folder = dir.claims();
    let mut found = Vec::new();
    for file in names_in(&folder)? {
        let Some((owner, rest)) = file.split_once('.') else { continue };
        let (batch_id, is_taken) = rest.strip_suffix(TAKEN).map_or((rest, false), |id| (id, true));
        if is_wanted(owner)
            && counter(batch_id).is_some()
            && let Ok(owner) = AgentName::mailbox(owner)
        {
            let (batch_id, path) = (batch_id.to_owned(), folder.join(&file));
            found.push(ClaimFile { owner, batch_id, is_taken, path });
        }
    }
    found.sort();
    Ok(found)
}

/// Removes the second link of an inbox: its claimant was killed between the link and the rename, or, on btrfs, a power cut has
/// left the name from which the inbox was renamed. Fails if the inbox has further links. The caller holds the side lock, so
/// no process is between these steps.
pub(crate) fn undo_half_claim(
    dir: &TeamDir,
    name: &AgentName,
    inbox: &File,
    known: &Metadata,
) -> Result<(), StoreError> {
    if known.nlink() <= 1 {
        return Ok(());
    }
    let claims = list(dir, name)?.into_iter().map(|claim| claim.path);
    for path in claims.chain([dir.next_inbox(name)]) {
        if known_if_there(&path)?.is_some_and(|claim| claim.ino() == known.ino()) {
            failpoint::hit("recover.half_claim");
            fs::remove_file(&path).at(&path)?;
            failpoint::hit("recover.undone");
        }
    }
    let path = dir.inbox(name);
    let links = inbox.metadata().at(&path)?.nlink();
    if links > 1 { Err(StoreError::Linked(path, links)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn a_second_name_that_a_claimant_or_a_power_cut_has_left_is_removed_and_another_one_is_not() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let inbox = dir.inbox(&alice);
        drop(File::create(&inbox).unwrap());
        let undo = || {
            let file = File::open(&inbox).unwrap();
            undo_half_claim(&dir, &alice, &file, &file.metadata().unwrap())
        };
        let claim = Claim::new(&dir, &alice, "000000000001-0123abcd".into(), Stage::Fresh).path();
        for name in [claim, dir.next_inbox(&alice)] {
            fs::hard_link(&inbox, &name).unwrap();
            undo().unwrap();
            assert!(!name.exists() && inbox.exists(), "{}", name.display());
        }
        drop(File::create(dir.next_inbox(&alice)).unwrap());
        fs::hard_link(&inbox, dir.root().join("copy")).unwrap();
        assert!(matches!(undo(), Err(StoreError::Linked(_, 2))));
        assert!(dir.next_inbox(&alice).exists(), "it is another file");
    }

    #[test]
    fn batch_ids_grow_across_restarts_and_known_claims() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let open = |known: &[&str]| {
            let mut ids = BatchIds::open(&dir, &alice, known.iter().copied()).unwrap();
            (0..=RESERVED_IDS + 1)
                .map(|_| counter(&ids.next().unwrap()).unwrap())
                .collect::<Vec<_>>()
        };
        let mut last = 0;
        for known in [&[][..], &[], &["000000000941-0123abcd", "junk", "41-0"], &[]] {
            let ids = open(known);
            let first = ids[0];
            // None of an earlier process comes again, and those of one process follow one another.
            assert!(first > last && (known.is_empty() || first == 942), "{first} after {last}");
            assert!(ids.iter().copied().eq(first..=first + RESERVED_IDS + 1), "{ids:?}");
            last = first + RESERVED_IDS + 1;
        }
    }

    #[test]
    fn other_texts_are_no_batch_ids() {
        assert_eq!(counter("000000000041-0123abcd"), Some(41));
        for text in [
            "00000000041-0123abcd",
            "00000000004x-0123abcd",
            "+00000000041-0123abcd",
            "000000000041-0123abc",
            "000000000041-0123abcg",
            "000000000041",
        ] {
            assert_eq!(counter(text), None, "{text}");
        }
    }

    #[test]
    fn a_claim_that_cannot_be_renamed_stays_at_its_stage_unless_it_is_gone() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let mut claim =
            Claim::new(&dir, &alice, "000000000001-0123abcd".into(), Stage::Acknowledged);
        // Nothing can be below a file.
        fs::remove_dir(dir.claims()).unwrap();
        drop(File::create(dir.claims()).unwrap());
        claim.enter(Stage::Taken).unwrap_err();
        assert_eq!(claim.stage, Stage::Acknowledged);
        fs::remove_file(dir.claims()).unwrap();
        claim.enter(Stage::Taken).unwrap();
        assert_eq!(claim.stage, Stage::Taken);
    }

    #[test]
    fn a_claim_is_too_young_until_late_writers_had_their_time() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let mut claim = Claim::new(&dir, &alice, "000000000001-0123abcd".into(), Stage::Fresh);
        let left = claim.too_early().unwrap();
        assert!(!left.is_zero() && left <= LATE_WRITER_DELAY, "{left:?}");
        claim.since = Instant::now().checked_sub(LATE_WRITER_DELAY).unwrap();
        assert_eq!(claim.too_early(), None);
    }
}
