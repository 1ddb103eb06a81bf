//! An index of the archived conversations: the facts for their list, and the ids that they name, so that neither the
//! list nor a search reads them whole.
//!
//! Each file `NAME-N` of the index describes `NAME-N.jsonl`: the first line has the facts, the second one the
//! hashes of the calls in their order, the third one the subagents, each further line an id.
//!
//! *Invariant:* the index is never trusted over the transcript. It counts only if the transcript has the size and the time
//! of change that it was made from; without it, the transcript is read. It can be removed at any time.

use super::facts::Facts;
use crate::os::file::{At, FileError};
use crate::store::file::atomic::{Fsync, json_line, remove, replace};
use crate::store::file::jsonl::each_line;
use crate::store::file::read::{known_if_there, names_in, open_if_there};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::chat::Block;
use crate::wire::transcript::{Entry, Line};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The version of the form. An index of another version is made again.
const VERSION: u32 = 2;

/// The maximum size of the first line that is read, in bytes.
const FACTS_BYTES: u64 = 64 * 1024;

/// The number of bytes that are read at once for the facts.
const HEAD_BYTES: u64 = 8 * 1024;

/// The maximum size of an index that is read for a search, in bytes. The transcript of a larger one is read instead.
const LARGEST: u64 = 16 * 1024 * 1024;

/// The length of the hash of a call, in bytes.
const CALL_HASH: usize = 8;

/// The first line of an index.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    /// The size and the time of change of the transcript.
    bytes: u64,
    changed: (i64, i64),
    facts: Facts,
}

impl Head {
    fn is_of(&self, known: &Metadata) -> bool {
        self.version == VERSION
            && (self.bytes, self.changed) == (known.len(), (known.mtime(), known.mtime_nsec()))
    }
}

/// A subagent that a conversation has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartedSubagent {
    pub(crate) id: String,
    /// The id of the call that started it.
    pub(crate) tool_use_id: String,
}

impl StartedSubagent {
    /// Reads the line of a transcript at which a subagent starts; `None` if it is another line.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let line = Line::may_be(line, "subagent").then(|| Line::read(line))?;
        Self::of(&line?.entry)
    }

    fn of(entry: &Entry) -> Option<Self> {
        let Entry::Subagent(start) = entry else { return None };
        Some(Self { id: start.id.clone(), tool_use_id: start.tool_use_id.clone() })
    }
}

/// A word for which the files of an agent are searched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sought<'a> {
    /// A part of the id of a message, or of a request.
    Part(&'a str),
    /// The id of a tool call.
    Call(&'a str),
}

impl Sought<'_> {
    /// Returns the word as it is, and as JSON writes it if that differs.
    pub(crate) fn written(&self) -> Vec<String> {
        let (Self::Part(word) | Self::Call(word)) = self;
        let escaped = escaped(word);
        let is_same = escaped == *word;
        let plain = (*word).to_owned();
        if is_same { vec![plain] } else { vec![plain, escaped] }
    }
}

/// Returns the path of the index of an archived transcript; `None` if the file is elsewhere.
fn index_of(dir: &TeamDir, transcript: &Path) -> Option<PathBuf> {
    let is_archived = transcript.parent() == Some(dir.archive().as_path());
    let stem = transcript.file_stem().filter(|_| is_archived)?;
    Some(dir.archive_index().join(stem))
}

/// Opens the index of a transcript, if it is of the transcript as it is now; the facts are read, and at most `at_once` bytes
/// with them.
fn open_index(
    dir: &TeamDir,
    transcript: &Path,
    at_once: u64,
) -> Result<Option<(Head, BufReader<std::fs::File>, u64)>, FileError> {
    let Some(path) = index_of(dir, transcript) else { return Ok(None) };
    let Some((file, size)) = open_if_there(&path)? else { return Ok(None) };
    let room = usize::try_from(size.len().min(at_once)).unwrap_or(usize::MAX);
    let mut reader = BufReader::with_capacity(room.max(1), file);
    let mut line = Vec::new();
    (&mut reader).take(FACTS_BYTES).read_until(b'\n', &mut line).at(&path)?;
    let Ok(head) = serde_json::from_slice::<Head>(&line) else { return Ok(None) };
    let Some(known) = known_if_there(transcript)? else { return Ok(None) };
    Ok(head.is_of(&known).then_some((head, reader, size.len())))
}

/// Returns the facts of an archived conversation from its index; `None` without a valid one.
pub(super) fn facts(dir: &TeamDir, transcript: &Path) -> Option<Facts> {
    open_index(dir, transcript, HEAD_BYTES).ok()?.map(|(head, ..)| head.facts)
}

/// The mail of an archived transcript, as its index tells it.
#[derive(Debug)]
pub(crate) enum IndexedMail {
    None,
    /// There is mail, the newest of this batch.
    Newest(String),
    /// There is no valid index.
    Unknown,
}

/// Returns what the index of an archived transcript tells of its mail.
pub(crate) fn mail(dir: &TeamDir, transcript: &Path) -> IndexedMail {
    match facts(dir, transcript).map(|facts| facts.newest_batch) {
        Some(Some(newest)) => IndexedMail::Newest(newest),
        Some(None) => IndexedMail::None,
        None => IndexedMail::Unknown,
    }
}

/// Returns the subagents of an archived conversation from its index; `None` without a valid one.
pub(crate) fn subagents(dir: &TeamDir, transcript: &Path) -> Option<Vec<StartedSubagent>> {
    let (_, reader, _) = open_index(dir, transcript, HEAD_BYTES).ok()??;
    let third = reader.lines().nth(1)?.ok()?;
    serde_json::from_str(&third).ok()
}

/// Whether an archived transcript may name one of the words. Without a valid index it may.
pub(crate) fn may_name(dir: &TeamDir, transcript: &Path, words: &[Sought<'_>]) -> bool {
    let Ok(Some((_, mut reader, size))) = open_index(dir, transcript, LARGEST) else {
        return true;
    };
    let (mut calls, mut subagents, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    if size > LARGEST
        || reader.read_until(b'\n', &mut calls).is_err()
        || reader.read_until(b'\n', &mut subagents).is_err()
        || reader.read_to_end(&mut ids).is_err()
    {
        return true;
    }
    let (calls, _) = calls.as_chunks::<CALL_HASH>();
    words.iter().any(|word| match word {
        Sought::Part(_) => {
            word.written().iter().any(|part| memmem::find(&ids, part.as_bytes()).is_some())
        }
        Sought::Call(call) => calls.binary_search(&hashed(call)).is_ok(),
    })
}

/// Makes the index of each archived transcript that has none, and removes those of transcripts that are gone, until
/// `is_over`. `sends` tells whether the tool of this name sends messages. Returns the number that was made.
pub(crate) fn refresh(
    dir: &TeamDir,
    sends: &dyn Fn(&str) -> bool,
    is_over: &dyn Fn() -> bool,
) -> Result<usize, StoreError> {
    let mut stale: BTreeSet<String> = names_in(&dir.archive_index())?.into_iter().collect();
    let mut made = 0;
    for name in names_in(&dir.archive())? {
        let Some(stem) = name.strip_suffix(".jsonl") else { continue };
        stale.remove(stem);
        let transcript = dir.archive().join(&name);
        if is_over() {
            return Ok(made);
        }
        if open_index(dir, &transcript, HEAD_BYTES)?.is_none() {
            made += usize::from(make(dir, &transcript, sends, is_over)?);
        }
    }
    for name in stale {
        remove(&dir.archive_index().join(name))?;
    }
    Ok(made)
}

/// Returns the indexes of the archived transcripts of an agent, also those of transcripts that are gone.
pub(crate) fn files(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
    let folder = dir.archive_index();
    let mut files = names_in(&folder)?;
    files.retain(|file| file.rsplit_once('-').is_some_and(|(owner, _)| owner == name.as_str()));
    Ok(files.into_iter().map(|file| folder.join(file)).collect())
}

/// Makes the index of an archived transcript. Returns `false` if the transcript is gone or changes
/// meanwhile, or the work is over.
fn make(
    dir: &TeamDir,
    transcript: &Path,
    sends: &dyn Fn(&str) -> bool,
    is_over: &dyn Fn() -> bool,
) -> Result<bool, StoreError> {
    let before = known_if_there(transcript)?;
    let (Some(path), Some(before)) = (index_of(dir, transcript), before) else { return Ok(false) };
    let (mut facts, mut named) = (Facts::default(), Named::default());
    each_line(transcript, |line| {
        let kinds =
            ["session", "model", "user", "assistant", "compacted", "turn_end", "mail", "subagent"];
        if !is_over()
            && kinds.iter().any(|kind| Line::may_be(line, kind))
            && let Some(Line { at, entry }) = Line::read(line)
        {
            named.collect(&entry, sends);
            facts.count_entry(at, entry);
        }
    })?;
    let head = Head {
        version: VERSION,
        bytes: before.len(),
        changed: (before.mtime(), before.mtime_nsec()),
        facts,
    };
    if is_over() || !known_if_there(transcript)?.is_some_and(|now| head.is_of(&now)) {
        return Ok(false);
    }
    let mut text = json_line(&head, &path)?;
    text.extend(named.calls.into_iter().flatten());
    text.push(b'\n');
    text.extend(json_line(&named.subagents, &path)?);
    for id in named.ids {
        text.extend(id.bytes());
        text.push(b'\n');
    }
    make_folder(&dir.archive_index())?;
    replace(&path, &text, Fsync::Never)?;
    failpoint::hit("upkeep.indexed");
    Ok(true)
}

/// The ids for which a search may come to a transcript.
#[derive(Default)]
struct Named {
    /// The hashes of all calls.
    calls: BTreeSet<[u8; CALL_HASH]>,
    /// The ids of messages, and of the calls that send some.
    ids: BTreeSet<String>,
    subagents: Vec<StartedSubagent>,
}

impl Named {
    fn collect(&mut self, entry: &Entry, sends: &dyn Fn(&str) -> bool) {
        let ids = &mut self.ids;
        self.subagents.extend(StartedSubagent::of(entry));
        match entry {
            Entry::Mail { message, .. } => {
                for key in ["id", "request_id", "requestId"] {
                    ids.extend(message.get(key).and_then(Value::as_str).map(escaped));
                }
            }
            Entry::TurnEnd { report: Some(report), .. } => drop(ids.insert(escaped(&report.id))),
            Entry::Assistant { blocks, .. } => {
                for block in blocks {
                    let Block::ToolUse { id, name, .. } = block else { continue };
                    self.calls.insert(hashed(id));
                    if sends(name) {
                        ids.insert(escaped(id));
                    }
                }
            }
            Entry::Session { .. }
            | Entry::User { .. }
            | Entry::ToolStart { .. }
            | Entry::ToolResult { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Subagent(_)
            | Entry::Interrupt { .. }
            | Entry::Model { .. }
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::Compacted { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::TurnEnd { report: None, .. }
            | Entry::Unknown => {}
        }
    }
}

/// Returns a text as JSON writes it, without the quotes: it has no line break.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// Returns a short hash of the id of a call (FNV-1a), as hexadecimal digits. Two calls with the same one cost a search
/// some time.
fn hashed(call: &str) -> [u8; CALL_HASH] {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = call.bytes().fold(0x811c_9dc5, step);
    let mut digits = [b'0'; CALL_HASH];
    for (digit, byte) in digits.iter_mut().zip(format!("{hash:08x}").bytes()) {
        *digit = byte;
    }
    digits
}
