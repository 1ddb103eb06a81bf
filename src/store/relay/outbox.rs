//! The outbox of a recipient on another host: its mail, numbered, until its home has acknowledged it.
//!
//! ```text
//! {"base":9,"recorded":[["GEN",120],…]}      the first line of a compacted file: what was acknowledged and dropped
//! {"seq":10,"gen":"GEN","offset":240,"term":1,"line":{…the line of the inbox…}}      `term` is its sender's
//! {"acknowledged":10}                            all up to this number is acknowledged
//! ```
//!
//! *Invariants:* numbers are dense, and durable before a line leaves the host. The first line has the position of every claim
//! whose lines were dropped: without it, a claim that is still there would be delivered again under new numbers.

use super::terms::OwnTerms;
use crate::os::file::{Access, At, FileError, open};
use crate::store::file::atomic::{Fsync, json_line, replace, sync_data, sync_folder};
use crate::store::file::jsonl::{Framed, LONGEST_LINE, Lines, Log, Piece};
use crate::store::file::read::open_if_there;
use crate::store::mailbox::claim::{ClaimFile, list_all};
use crate::store::mailbox::dead::{self, DeadLetter, DeadLetters};
use crate::store::mailbox::{Delivered, Delivery, KnownPart, MailSink};
use crate::store::transcript::{TakenIn, each_mail, latest_archives};
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::carried::{FRAME_BYTES, FrameLine, Via};
use crate::wire::seal::{Verification, without_seal};
use crate::wire::{AgentName, WallTime};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file name ending of outboxes.
pub(super) const ENDING: &str = ".jsonl";

/// The size of acknowledged lines from which a file is compacted, in bytes.
const COMPACT_BYTES: u64 = 256 * 1024;

/// The first line of a compacted file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Base {
    /// The highest acknowledged number.
    base: u64,
    /// The last delivered offset of each claim whose lines were dropped.
    recorded: BTreeMap<String, u64>,
}

/// A line of an outbox.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    seq: u64,
    #[serde(rename = "gen")]
    batch_id: String,
    offset: u64,
    #[serde(default)]
    term: u64,
    #[serde(default = "yes")]
    verified: bool,
    line: Box<RawValue>,
}

fn yes() -> bool {
    true
}

/// A line that says up to which number all is acknowledged. It is not synced: after a power cut, lines are sent again.
#[derive(Debug, Serialize, Deserialize)]
struct Acknowledged {
    acknowledged: u64,
}

/// The place of a line that is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Unacknowledged {
    begin: u64,
    bytes: usize,
}

/// A refused message, with its number.
pub type RefusedMessage = (u64, Map<String, Value>);

/// An open outbox.
#[derive(Debug)]
pub struct Outbox {
    dir: TeamDir,
    name: AgentName,
    terms: OwnTerms,
    path: PathBuf,
    /// `None` while its descriptor is given back.
    log: Option<Log>,
    /// Whether all that was written is durable.
    is_synced: bool,
    /// The highest acknowledged number.
    base: u64,
    /// The same, as the file says.
    noted: u64,
    /// The lines after it, in order.
    waiting: VecDeque<Unacknowledged>,
    /// The sizes of composed lines that are not written yet.
    composed: Vec<usize>,
    /// The last delivered offset of each claim, of all lines that are or were in the file.
    recorded: BTreeMap<String, u64>,
    /// The positions among composed lines.
    composed_at: Vec<(String, u64)>,
    dead: DeadLetters,
    /// The size of the file.
    size: u64,
}

impl Outbox {
    /// Opens or creates the outbox of a recipient. Lines get the terms of their senders. A tail that was never made durable is removed.
    ///
    /// # Errors
    /// The file cannot be opened, or is damaged before its end.
    pub fn open(dir: &TeamDir, name: &AgentName, terms: &OwnTerms) -> Result<Self, StoreError> {
        let path = dir.relay_outbox(name);
        let (log, size, contents) = match read(&path)? {
            None => (Log::create(path.clone())?, 0, Contents::default()),
            Some(contents) => {
                if let Some(end) = contents.torn_at {
                    let file = open(&path, Access::Update)?;
                    file.set_len(end).at(&path)?;
                    sync_data(&file, &path, Fsync::Always)?;
                }
                let log = Log::open(path.clone())?;
                let size = log.size()?;
                (log, size, contents)
            }
        };
        let Contents { base, waiting, recorded, .. } = contents;
        let (log, is_synced) = (Some(log), false);
        let (composed, composed_at) = (Vec::new(), Vec::new());
        let (dir, name, terms) = (dir.clone(), name.clone(), terms.clone());
        let dead = DeadLetters::of(&dir, &name);
        Ok(Self {
            dir,
            name,
            terms,
            path,
            log,
            is_synced,
            base,
            noted: base,
            waiting,
            composed,
            recorded,
            composed_at,
            dead,
            size,
        })
    }

    /// Gives the descriptor of the file back until it is needed again. Of one whose lines may not be durable it is kept: a failed
    /// sync must not be forgotten.
    pub fn close(&mut self) {
        if self.is_synced {
            self.log = None;
        }
    }

    fn log(&mut self) -> Result<&mut Log, StoreError> {
        let log = match self.log.take() {
            Some(log) => log,
            None => Log::open(self.path.clone())?,
        };
        Ok(self.log.insert(log))
    }

    /// Returns the highest acknowledged number.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the number that the next line gets.
    pub fn next(&self) -> u64 {
        self.base + 1 + self.waiting.len() as u64
    }

    /// Whether lines wait for an acknowledgement.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of bytes of the lines that wait for an acknowledgement.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|line| line.bytes as u64).sum()
    }

    /// Returns the lines from a number on, as lines of a frame: at most `most`, and together about [`FRAME_BYTES`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lines_from(&self, seq: u64, most: usize) -> Result<Vec<FrameLine>, StoreError> {
        let first = usize::try_from(seq.saturating_sub(self.base + 1)).unwrap_or(usize::MAX);
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for at in first..first.saturating_add(most).min(self.waiting.len()) {
            let Some(place) = self.waiting.get(at) else { break };
            if bytes > 0 && bytes + place.bytes > FRAME_BYTES {
                break;
            }
            bytes += place.bytes;
            let Entry { seq, term, verified, line, .. } = self.read_at(*place)?;
            lines.push(FrameLine {
                to: self.name.to_string(),
                seq,
                base: self.base,
                term,
                verified,
                line,
            });
        }
        Ok(lines)
    }

    /// Returns the term of the sender of a line. One that came from another host has that which it came with.
    fn term_of(&self, line: &str) -> u64 {
        let message: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
        match Via::of(&message) {
            Some(via) => via.term,
            None => message.get("from").and_then(Value::as_str).map_or(0, |it| self.terms.of(it)),
        }
    }

    fn read_at(&self, place: Unacknowledged) -> Result<Entry, StoreError> {
        let bytes = self.bytes_at(place.begin, place.bytes)?;
        Ok(serde_json::from_slice(&bytes).map_err(io::Error::from).at(&self.path)?)
    }

    fn bytes_at(&self, begin: u64, count: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; count];
        match &self.log {
            Some(log) => log.read_at(&mut bytes, begin)?,
            None => {
                open(&self.path, Access::Read)?.read_exact_at(&mut bytes, begin).at(&self.path)?;
            }
        }
        Ok(bytes)
    }

    /// Lets go of the lines before `next`, which the home of the recipient has. A refused one becomes a dead letter first;
    /// returns the refused messages with their numbers.
    ///
    /// # Errors
    /// A dead letter cannot be written, or the file cannot be read or compacted. The lines stay.
    pub fn acknowledge(
        &mut self,
        next: u64,
        refused: &BTreeMap<u64, String>,
        at: WallTime,
    ) -> Result<Vec<RefusedMessage>, StoreError> {
        let next = next.min(self.next());
        if next <= self.base + 1 {
            return Ok(Vec::new());
        }
        let messages = self.reject(next, refused, at)?;
        failpoint::hit("outbox.rejected");
        let count = usize::try_from(next - self.base - 1).unwrap_or(usize::MAX);
        self.waiting.drain(..count.min(self.waiting.len()));
        self.base = next - 1;
        if self.begin() >= COMPACT_BYTES {
            self.compact()?;
        }
        Ok(messages)
    }

    /// Notes in the file what was acknowledged since the last call. Without it, the next process would send these lines again:
    /// maybe to another host, which does not know their numbers.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_acknowledged(&mut self) -> Result<(), StoreError> {
        if self.noted < self.base {
            let line = json_line(&Acknowledged { acknowledged: self.base }, &self.path)?;
            self.size = self.log()?.append_at(&line)? + line.len() as u64;
            self.noted = self.base;
        }
        Ok(())
    }

    /// Returns the offset from which the lines are not acknowledged.
    fn begin(&self) -> u64 {
        self.waiting.front().map_or(self.size, |line| line.begin)
    }

    /// Writes the dead letters of refused lines before `next`, unless an earlier process has written them.
    fn reject(
        &mut self,
        next: u64,
        refused: &BTreeMap<u64, String>,
        at: WallTime,
    ) -> Result<Vec<RefusedMessage>, StoreError> {
        let (mut letters, mut messages) = (Vec::new(), Vec::new());
        for (seq, reason) in refused.range(self.base + 1..next) {
            let index = usize::try_from(seq - self.base - 1).unwrap_or(usize::MAX);
            let Some(place) = self.waiting.get(index) else { continue };
            let Entry { batch_id, offset, line, .. } = self.read_at(*place)?;
            let letter = DeadLetter::new(&batch_id, offset, reason.clone(), at);
            letters.push(letter.holding(line.get().as_bytes()));
            let message: Option<Map<String, Value>> = serde_json::from_str(line.get()).ok();
            messages.push((*seq, message.unwrap_or_default()));
        }
        if !letters.is_empty() {
            let known = dead::read_all(&self.dir, &self.name)?;
            letters.retain(|it| {
                !known.iter().any(|old| (&old.batch_id, old.offset) == (&it.batch_id, it.offset))
            });
            self.dead.append(&letters)?;
            self.dead.sync(Fsync::Always)?;
        }
        Ok(messages)
    }

    /// Rewrites the file without the acknowledged lines.
    ///
    /// # Errors
    /// The file cannot be written; then it stays as it is.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.compact_beside(&lasting_claims(&self.dir)?)
    }

    /// The same for one of many: these are the [`lasting_claims`].
    pub(crate) fn compact_beside(&mut self, there: &[ClaimFile]) -> Result<(), StoreError> {
        let path = self.path.clone();
        // A claim that is gone is never delivered again; the newest batch id continues the counter.
        let newest = self.recorded.keys().next_back().cloned();
        self.recorded.retain(|batch_id, _| {
            Some(batch_id) == newest.as_ref() || there.iter().any(|file| file.batch_id == *batch_id)
        });
        let base = Base { base: self.base, recorded: self.recorded.clone() };
        let mut text = json_line(&base, &path)?;
        let (begin, shift) = (self.begin(), text.len() as u64);
        text.extend(self.bytes_at(begin, usize::try_from(self.size - begin).unwrap_or(0))?);
        failpoint::hit("outbox.compacting");
        replace(&path, &text, Fsync::Always)?;
        failpoint::hit("outbox.compacted");
        self.log = Some(Log::open(path.clone())?);
        for line in &mut self.waiting {
            line.begin = line.begin - begin + shift;
        }
        self.size = text.len() as u64;
        self.noted = self.base;
        Ok(())
    }
}

impl MailSink for Outbox {
    const IS_WATCHED: bool = false;
    const IS_WHOLE: bool = true;

    fn each_delivered(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        part: KnownPart<'_>,
        meet: &mut dyn FnMut(&Delivered<'_>),
    ) -> Result<(), StoreError> {
        if let KnownPart::All(oldest @ Some(_)) = part {
            // The agent may have been on this host before, and have taken in lines of these claims.
            let archived = latest_archives(dir, name, oldest)?;
            for conversation in archived.into_iter().chain([dir.transcript(name)]) {
                each_mail(&conversation, |TakenIn { batch_id, offset, .. }| {
                    meet(&Delivered { batch_id: &batch_id, offset, message: None });
                })?;
            }
        }
        for (batch_id, offset) in &self.recorded {
            meet(&Delivered { batch_id, offset: *offset, message: None });
        }
        for place in &self.waiting {
            let Entry { batch_id, offset, line, .. } = self.read_at(*place)?;
            let message: Option<Map<String, Value>> = serde_json::from_str(line.get()).ok();
            meet(&Delivered { batch_id: &batch_id, offset, message: message.as_ref() });
        }
        Ok(())
    }

    fn forget_composed(&mut self) {
        self.composed.clear();
        self.composed_at.clear();
    }

    fn compose(&mut self, mail: &Delivery<'_>, lines: &mut Vec<u8>) {
        let Delivery { batch_id, offset, text, verification, .. } = mail;
        let seq = self.next() + self.composed.len() as u64;
        let term = self.term_of(text);
        // A seal that was verified is of a key of this host. Another one may be for the recipient.
        let (line, verified) = match verification {
            Verification::None => (text.trim(), r#""verified":false,"#),
            Verification::Mailbox | Verification::Control => (text.trim(), ""),
        };
        let bare = if verified.is_empty() { without_seal(line) } else { None };
        let line = bare.as_deref().unwrap_or(line);
        let entry = format!(
            r#"{{"seq":{seq},"gen":"{batch_id}","offset":{offset},"term":{term},{verified}"line":{line}}}"#
        );
        self.composed.push(entry.len());
        self.composed_at.push(((*batch_id).to_owned(), *offset));
        lines.extend_from_slice(entry.as_bytes());
        lines.push(b'\n');
    }

    fn append_mail(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        let composed = std::mem::take(&mut self.composed);
        let positions = std::mem::take(&mut self.composed_at);
        self.is_synced = false;
        let mut begin = self.log()?.append_at(lines)?;
        failpoint::hit("outbox.written");
        for bytes in composed {
            self.waiting.push_back(Unacknowledged { begin, bytes });
            begin += bytes as u64 + 1;
        }
        self.size = begin;
        for (batch_id, offset) in positions {
            let last = self.recorded.entry(batch_id).or_insert(offset);
            *last = offset.max(*last);
        }
        Ok(())
    }

    fn sync_mail(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        self.log()?.sync(fsync)?;
        self.is_synced = true;
        Ok(())
    }
}

/// Returns the claims that may be there after a power cut: those that are there, once the removal of all others is durable. Some
/// file systems do not make it durable with what is written later.
pub(crate) fn lasting_claims(dir: &TeamDir) -> Result<Vec<ClaimFile>, FileError> {
    let there = list_all(dir)?;
    sync_folder(&dir.claims(), Fsync::Always)?;
    Ok(there)
}

/// Makes the names of new outboxes durable, with one sync for all of them. If it fails, each of them syncs its own with its first
/// lines.
pub(crate) fn sync_names<'a>(dir: &TeamDir, outboxes: impl Iterator<Item = &'a mut Outbox>) {
    let logs = outboxes.filter_map(|outbox| outbox.log.as_mut());
    let new: Vec<_> = logs.filter(|log| log.is_unnamed()).collect();
    if !new.is_empty() && sync_folder(&dir.relay_outboxes(), Fsync::Always).is_ok() {
        new.into_iter().for_each(Log::note_named);
    }
}

#[derive(Default)]
struct Contents {
    base: u64,
    waiting: VecDeque<Unacknowledged>,
    recorded: BTreeMap<String, u64>,
    /// The offset of a tail that was never made durable.
    torn_at: Option<u64>,
}

/// Returns up to which number the lines of an outbox are acknowledged; 0 if the file is not there or cannot be read.
pub(crate) fn acknowledged_in(path: &Path) -> u64 {
    read(path).ok().flatten().map_or(0, |contents| contents.base)
}

/// Reads an outbox; `None` if there is no file.
fn read(path: &Path) -> Result<Option<Contents>, FileError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(None) };
    let (mut found, mut next) = (Contents::default(), 1);
    let mut lines = Lines::from(file, 0, LONGEST_LINE).at(path)?;
    while let Some(Framed { piece, offset, bytes }) = lines.next().at(path)? {
        if offset == 0
            && let Ok(Base { base, recorded }) = serde_json::from_slice(bytes)
        {
            (found.base, found.recorded, next) = (base, recorded, base + 1);
            continue;
        }
        let entry: Option<Entry> = serde_json::from_slice(bytes).ok();
        match entry.filter(|_| piece == Piece::Line) {
            Some(entry) if entry.seq == next => {
                found.torn_at = None;
                found.waiting.push_back(Unacknowledged { begin: offset, bytes: bytes.len() });
                let last = found.recorded.entry(entry.batch_id).or_insert(entry.offset);
                *last = entry.offset.max(*last);
                next += 1;
            }
            Some(_) => return Err(damaged(path, offset)),
            None if let Some(acknowledged) =
                acknowledged(bytes).filter(|_| piece == Piece::Line) =>
            {
                found.torn_at = None;
                let base = acknowledged.clamp(found.base, next - 1);
                let count = usize::try_from(base - found.base).unwrap_or(usize::MAX);
                found.waiting.drain(..count.min(found.waiting.len()));
                found.base = base;
            }
            None => {
                found.torn_at = found.torn_at.or(Some(offset));
                // A power cut left a hole: nothing from here on was durable, and its claims are still there.
                if bytes.contains(&0) {
                    break;
                }
            }
        }
    }
    Ok(Some(found))
}

fn acknowledged(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Acknowledged>(line).ok().map(|it| it.acknowledged)
}

fn damaged(path: &Path, offset: u64) -> FileError {
    let why = format!("damaged before byte {offset}");
    FileError::Io(PathBuf::from(path), io::Error::new(io::ErrorKind::InvalidData, why))
}
