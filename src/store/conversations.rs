//! The conversations of an agent: the current one and the archived ones, and the change from one to another.
//!
//! A conversation is *empty* if nobody has said anything in it: no prompt, no reply, and no mail that starts a turn.
//! Empty conversations are not listed, and none takes the place of another one.
//!
//! *Invariant:* a conversation moves between `transcript/` and `transcript/archive/` by one rename, and the current one
//! leaves before another one comes. A crash between the two leaves both in the archive, where they are listed.

mod facts;
pub(crate) mod index;

pub(crate) use facts::PriceOf;

use super::file::atomic::{Fsync, remove, sync_folder, sync_parent};
use super::file::jsonl::lines_between;
use super::file::read::known_if_there;
use super::transcript::{archive, conversations, each_mail};
use super::{StoreError, TeamDir, failpoint};
use crate::os::file::{At, FileError};
use crate::wire::chat::Block;
use crate::wire::message::{Body, Message};
use crate::wire::roster::UsageCount;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use facts::{Facts, waking};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The size up to which a transcript is read whole for the list, in bytes.
const WHOLE_BYTES: u64 = 1024 * 1024;

/// The number of bytes that are read at the beginning and at the end of a larger transcript.
const END_BYTES: u64 = 256 * 1024;

/// The number of characters of an id: the last ones of the incarnation, which are random.
const ID_CHARS: usize = 8;

/// A conversation, as its transcript tells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conversation {
    /// The id, which stays the same when the conversation is archived or resumed.
    pub(crate) id: String,
    /// The file of its transcript at the time of the listing.
    pub(crate) path: PathBuf,
    /// Whether the file is the current transcript.
    pub(crate) is_current: bool,
    /// Whether `team lead --resume` goes on with it.
    pub(crate) is_last: bool,
    /// The incarnation in which it began; `None` if the transcript does not tell.
    pub(crate) incarnation: Option<String>,
    /// The first line of the first prompt, or of the first mail if that came first.
    pub(crate) title: String,
    pub(crate) began_at: WallTime,
    pub(crate) last_used_at: WallTime,
    /// The number of prompts of the person.
    pub(crate) prompts: u64,
    /// The turns and tokens of the agent, and the cost as far as prices are known.
    pub(crate) usage: UsageCount,
    pub(crate) bytes: u64,
    /// Whether `prompts` and `usage` were counted. Else they are estimated from the beginning and the end of a large
    /// transcript.
    pub(crate) is_exact: bool,
}

/// The reason for which no conversation was found.
#[derive(Debug)]
pub(crate) enum NotFound {
    None,
    /// Several conversations have ids that begin so: these.
    Ambiguous(Vec<String>),
    Store(StoreError),
}

/// The part of a transcript that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The beginning, up to the id.
    Id,
    /// All of it, or the two ends of a large one.
    Ends,
    Whole,
}

/// Lists the conversations of an agent that are not empty, the last used one first. A transcript that cannot be read is
/// left out. Fails if the folder cannot be read.
pub(crate) fn list(
    dir: &TeamDir,
    name: &AgentName,
    price: PriceOf<'_>,
) -> Result<Vec<Conversation>, StoreError> {
    let mut found = read_all(dir, name, Depth::Ends, price)?;
    found.sort_by(|a, b| b.last_used_at.as_secs().total_cmp(&a.last_used_at.as_secs()));
    Ok(found)
}

/// Reads the conversations that are not empty, archived ones first.
fn read_all(
    dir: &TeamDir,
    name: &AgentName,
    depth: Depth,
    price: PriceOf<'_>,
) -> Result<Vec<Conversation>, StoreError> {
    let mut found = Vec::new();
    for path in conversations(dir, name)? {
        match read(dir, name, &path, depth, price) {
            Ok(conversation) => found.extend(conversation),
            Err(why) => tracing::warn!(%why, "a conversation is not listed"),
        }
    }
    if let Some(last) = found.last_mut() {
        last.is_last = true;
    }
    let mut ids = BTreeSet::new();
    for conversation in &mut found {
        // A file that was copied by hand has the id of its original.
        let own = conversation.id.clone();
        for number in 2.. {
            if ids.insert(conversation.id.clone()) {
                break;
            }
            conversation.id = format!("{own}-{number}");
        }
    }
    Ok(found)
}

/// Returns the conversation with this id, or with the only id that begins so. Its title, times and counts are not read.
pub(crate) fn find(dir: &TeamDir, name: &AgentName, id: &str) -> Result<Conversation, NotFound> {
    let list = read_all(dir, name, Depth::Id, &|_| None).map_err(NotFound::Store)?;
    let is_exact =
        |it: &Conversation| it.id == id || it.incarnation.as_deref().is_some_and(|it| it == id);
    if let Some(found) = list.iter().find(|it| is_exact(it)) {
        return Ok(found.clone());
    }
    let mut matches: Vec<_> = list.into_iter().filter(|it| it.id.starts_with(id)).collect();
    match matches.pop() {
        Some(found) if matches.is_empty() && !id.is_empty() => Ok(found),
        Some(found) if !id.is_empty() => {
            matches.push(found);
            Err(NotFound::Ambiguous(matches.into_iter().map(|it| it.id).collect()))
        }
        Some(_) | None => Err(NotFound::None),
    }
}

/// Returns the conversation that a resumed agent goes on with: the current one or, if that is empty or missing, the one
/// that was archived last. `None` if nothing was ever said.
pub(crate) fn last(dir: &TeamDir, name: &AgentName) -> Result<Option<Conversation>, StoreError> {
    last_read(dir, name, Depth::Ends)
}

/// Like [`last`], but title, times and counts are not read.
pub(crate) fn last_place(
    dir: &TeamDir,
    name: &AgentName,
) -> Result<Option<Conversation>, StoreError> {
    last_read(dir, name, Depth::Id)
}

fn last_read(
    dir: &TeamDir,
    name: &AgentName,
    depth: Depth,
) -> Result<Option<Conversation>, StoreError> {
    for path in conversations(dir, name)?.into_iter().rev() {
        if let Some(found) = read(dir, name, &path, depth, &|_| None)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Reads one conversation and counts exactly; `None` if it is empty or missing.
pub(crate) fn exactly(
    dir: &TeamDir,
    name: &AgentName,
    path: &Path,
    price: PriceOf<'_>,
) -> Result<Option<Conversation>, StoreError> {
    read(dir, name, path, Depth::Whole, price)
}

/// Archives the current conversation. Removes it instead if it is empty and has taken in no mail. On an error it stays.
pub(crate) fn put_away(dir: &TeamDir, name: &AgentName, fsync: Fsync) -> Result<(), StoreError> {
    let current = dir.transcript(name);
    if is_without_trace(&current)? {
        remove(&current)?;
    } else {
        archive(dir, name, fsync)?;
    }
    failpoint::hit("recover.archived");
    Ok(())
}

/// Makes an archived conversation the current one, which is put away before. On an error both are in the archive, or
/// as before.
pub(crate) fn bring_back(
    dir: &TeamDir,
    name: &AgentName,
    archived: &Path,
    fsync: Fsync,
) -> Result<(), StoreError> {
    if known_if_there(archived)?.is_none() {
        return Err(StoreError::Gone(archived.to_owned()));
    }
    put_away(dir, name, fsync)?;
    let current = dir.transcript(name);
    fs::rename(archived, &current).at(archived)?;
    sync_parent(&current, fsync)?;
    sync_folder(&dir.archive(), fsync)?;
    Ok(())
}

/// Returns the names that a conversation has given to teammates: `spawned` finds the name in a tool call, and the orders
/// of the person are mail.
pub(crate) fn teammates(
    path: &Path,
    spawned: impl Fn(&str, &Value) -> Option<String>,
) -> Result<BTreeSet<String>, StoreError> {
    let mut names = BTreeSet::new();
    lines_between(path, 0, u64::MAX, |_, line| {
        if !["assistant", "mail"].iter().any(|kind| Line::may_be(line, kind)) {
            return ControlFlow::Continue(());
        }
        match Line::read(line).map(|line| line.entry) {
            Some(Entry::Assistant { blocks, .. }) => {
                names.extend(blocks.iter().filter_map(|block| match block {
                    Block::ToolUse { name, input, .. } => spawned(name, input),
                    Block::Text { .. }
                    | Block::ToolResult { .. }
                    | Block::Image { .. }
                    | Block::Opaque { .. } => None,
                }));
            }
            Some(Entry::Mail { message, .. }) => {
                if let Ok(Body::SpawnRequest { name, .. }) =
                    Message::read(&message).map(|it| it.body)
                {
                    names.insert(name);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// Whether a conversation is empty and has taken in no mail.
fn is_without_trace(path: &Path) -> Result<bool, StoreError> {
    let mut has_trace = has_content(path)?;
    if !has_trace {
        each_mail(path, |_| has_trace = true)?;
    }
    Ok(!has_trace)
}

/// Whether a conversation is not empty. Reads no further than necessary.
fn has_content(path: &Path) -> Result<bool, FileError> {
    let mut has_content = false;
    lines_between(path, 0, u64::MAX, |_, line| {
        has_content = is_content(line);
        if has_content { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(has_content)
}

fn is_content(line: &[u8]) -> bool {
    if !["user", "assistant", "mail"].iter().any(|kind| Line::may_be(line, kind)) {
        return false;
    }
    match Line::read(line).map(|line| line.entry) {
        Some(Entry::User { .. } | Entry::Assistant { .. }) => true,
        Some(Entry::Mail { message, .. }) => waking(&message).is_some(),
        _ => false,
    }
}

/// Reads a conversation as far as `depth` says; `None` if it is empty or missing.
fn read(
    dir: &TeamDir,
    name: &AgentName,
    path: &Path,
    depth: Depth,
    price: PriceOf<'_>,
) -> Result<Option<Conversation>, StoreError> {
    let bytes = known_if_there(path)?.map_or(0, |known| known.len());
    if bytes == 0 {
        return Ok(None);
    }
    // An index has exact counts.
    let indexed = index::facts(dir, path);
    let is_exact = indexed.is_some() || depth == Depth::Whole || bytes <= WHOLE_BYTES;
    let facts = match indexed {
        Some(facts) if facts.has_content => facts,
        None if has_content(path)? => read_facts(path, bytes, depth)?,
        Some(_) | None => return Ok(None),
    };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_long = |it: &&String| it.chars().count() >= ID_CHARS;
    let id = facts.incarnation.as_ref().filter(is_long).map(|it| id_of(it));
    Ok(Some(Conversation {
        id: id.or(stem).unwrap_or_default(),
        path: path.to_owned(),
        is_current: path == dir.transcript(name),
        is_last: false,
        title: facts.title(),
        began_at: facts.began_at.unwrap_or_default(),
        last_used_at: facts.last_used_at.unwrap_or_default(),
        prompts: facts.prompts,
        usage: facts.usage(price),
        incarnation: facts.incarnation,
        bytes,
        is_exact: is_exact && depth != Depth::Id,
    }))
}

/// Reads the facts from a transcript that is not empty, as far as `depth` says.
fn read_facts(path: &Path, bytes: u64, depth: Depth) -> Result<Facts, FileError> {
    let mut facts = Facts::default();
    let is_whole = depth == Depth::Whole || bytes <= WHOLE_BYTES;
    let ends = match depth {
        Depth::Id => vec![(0, END_BYTES)],
        Depth::Ends | Depth::Whole if is_whole => vec![(0, bytes)],
        Depth::Ends | Depth::Whole => {
            vec![(0, END_BYTES), (bytes.saturating_sub(END_BYTES), bytes)]
        }
    };
    for (begin, end) in ends {
        lines_between(path, begin, end, |_, line| {
            facts.count(line);
            let is_enough = depth == Depth::Id && facts.incarnation.is_some();
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    if depth == Depth::Ends && !is_whole {
        facts.scale_to(bytes);
    }
    Ok(facts)
}

/// Returns the id of the conversation that begins in this incarnation.
pub(crate) fn id_of(incarnation: &str) -> String {
    let chars = incarnation.chars().count();
    incarnation.chars().skip(chars.saturating_sub(ID_CHARS)).collect()
}

#[cfg(test)]
mod tests;
