//! The conversations of an agent: the current one and the archived ones, and the change from one to another.
//!
//! A conversation is *empty* if nobody has said anything in it: no prompt, no reply, and no mail that starts a turn.
//! Empty conversations are not listed, and none takes the place of another one.
//!
//! *Invariant:* a conversation moves between `transcript/` and `transcript/archive/` by one rename, and the current one
//! leaves before another one comes. A crash between the two leaves both in the archive, where they are listed.

use super::file::atomic::{Fsync, remove, sync_folder, sync_parent};
use super::file::jsonl::{Framed, LONGEST_LINE, Lines, Piece};
use super::file::read::{known_if_there, open_if_there};
use super::transcript::{archive, conversations, each_mail};
use super::{StoreError, TeamDir, failpoint};
use crate::os::file::{At, FileError};
use crate::wire::chat::Block;
use crate::wire::message::{Body, Message};
use crate::wire::money::{Money, Price};
use crate::wire::roster::UsageCount;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
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

/// The maximum length of a title, in bytes.
const TITLE_BYTES: usize = 400;

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

/// The price of a model, by its label in a transcript.
pub(crate) type PriceOf<'a> = &'a dyn Fn(&str) -> Option<Price>;

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
    for path in conversations(dir, name)?.into_iter().rev() {
        if let Some(found) = read(dir, name, &path, Depth::Ends, &|_| None)? {
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
    each(path, 0, u64::MAX, |line| {
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
    each(path, 0, u64::MAX, |line| {
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

fn waking(message: &Map<String, Value>) -> Option<Message> {
    Message::read(message).ok().filter(|message| message.body.wakes())
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
    if bytes == 0 || !has_content(path)? {
        return Ok(None);
    }
    let is_exact = match depth {
        Depth::Id => false,
        Depth::Ends => bytes <= WHOLE_BYTES,
        Depth::Whole => true,
    };
    let mut scan = Scan::new(price);
    let ends = match depth {
        Depth::Id => vec![(0, END_BYTES)],
        Depth::Ends | Depth::Whole if is_exact => vec![(0, bytes)],
        Depth::Ends | Depth::Whole => {
            vec![(0, END_BYTES), (bytes.saturating_sub(END_BYTES), bytes)]
        }
    };
    for (begin, end) in ends {
        each(path, begin, end, |line| {
            scan.count(line);
            let is_enough = depth == Depth::Id && scan.incarnation.is_some();
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    if depth == Depth::Ends && !is_exact {
        scan.scale_to(bytes);
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_long = |it: &&String| it.chars().count() >= ID_CHARS;
    let id = scan.incarnation.as_ref().filter(is_long).map(|it| id_of(it));
    Ok(Some(Conversation {
        id: id.or(stem).unwrap_or_default(),
        path: path.to_owned(),
        is_current: path == dir.transcript(name),
        is_last: false,
        incarnation: scan.incarnation,
        title: scan.title.or(scan.mail).unwrap_or_default(),
        began_at: scan.began_at.unwrap_or_default(),
        last_used_at: scan.last_used_at.unwrap_or_default(),
        prompts: scan.prompts,
        usage: scan.usage,
        bytes,
        is_exact,
    }))
}

/// Returns the id of the conversation that begins in this incarnation.
pub(crate) fn id_of(incarnation: &str) -> String {
    let chars = incarnation.chars().count();
    incarnation.chars().skip(chars.saturating_sub(ID_CHARS)).collect()
}

/// The facts that are collected from the lines of a conversation.
struct Scan<'a> {
    price: PriceOf<'a>,
    incarnation: Option<String>,
    title: Option<String>,
    /// The first line of the first mail.
    mail: Option<String>,
    began_at: Option<WallTime>,
    last_used_at: Option<WallTime>,
    prompts: u64,
    usage: UsageCount,
    /// The label of the model that the newest process used.
    model: Option<String>,
    bytes: u64,
}

impl<'a> Scan<'a> {
    fn new(price: PriceOf<'a>) -> Self {
        Self {
            price,
            incarnation: None,
            title: None,
            mail: None,
            began_at: None,
            last_used_at: None,
            prompts: 0,
            usage: UsageCount::default(),
            model: None,
            bytes: 0,
        }
    }

    fn count(&mut self, line: &[u8]) {
        self.bytes = self.bytes.saturating_add(line.len() as u64).saturating_add(1);
        let needs_mail = self.title.is_none() && self.mail.is_none();
        let kinds = ["session", "model", "user", "assistant", "compacted", "turn_end"];
        let is_counted = kinds.iter().any(|kind| Line::may_be(line, kind))
            || (needs_mail && Line::may_be(line, "mail"));
        if !is_counted {
            return;
        }
        let Some(Line { at, entry }) = Line::read(line) else { return };
        self.began_at = self.began_at.or(Some(at));
        match entry {
            Entry::Session { incarnation, model, .. } => {
                self.incarnation.get_or_insert(incarnation);
                self.model = Some(model);
                // A start is no use of the conversation.
                return;
            }
            Entry::Model { model } => {
                self.model = Some(model);
                return;
            }
            Entry::User { content } => {
                self.prompts += 1;
                self.title.get_or_insert_with(|| first_line(&content));
            }
            Entry::Mail { message, .. } => {
                let Some(message) = waking(&message).filter(|_| needs_mail) else { return };
                self.mail = Some(first_line(&format!("{}: {}", message.from, message.content)));
            }
            Entry::Assistant { usage, .. } | Entry::Compacted { usage, .. } => {
                let price = self.model.as_deref().and_then(self.price);
                self.usage.add_call(usage, price);
            }
            Entry::TurnEnd { .. } => self.usage.turns += 1,
            Entry::ToolStart { .. }
            | Entry::ToolResult { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Subagent(_)
            | Entry::Interrupt { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::Unknown => return,
        }
        self.last_used_at = Some(at);
    }

    /// Estimates the counts of the whole transcript from those of the part that was read.
    fn scale_to(&mut self, bytes: u64) {
        let read = u128::from(self.bytes.max(1));
        let scale = |count: u64| {
            u64::try_from(u128::from(count) * u128::from(bytes) / read).unwrap_or(u64::MAX)
        };
        self.prompts = scale(self.prompts);
        let usage = &mut self.usage;
        for count in [
            &mut usage.turns,
            &mut usage.input_tokens,
            &mut usage.output_tokens,
            &mut usage.cache_read_tokens,
            &mut usage.cache_write_tokens,
        ] {
            *count = scale(*count);
        }
        usage.cost = usage.cost.map(|cost| Money::of_billionths(scale(cost.billionths())));
    }
}

/// Returns the first line of a text that is not blank, shortened.
fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.get(..line.floor_char_boundary(TITLE_BYTES)).unwrap_or_default().to_owned()
}

/// Passes the whole lines that begin in a range of a file to `meet`, until it breaks. A line that begins before the
/// range is left out.
fn each(
    path: &Path,
    begin: u64,
    end: u64,
    mut meet: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), FileError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(()) };
    // The byte before the range tells whether a line begins with it.
    let mut lines = Lines::from(file, begin.saturating_sub(1), LONGEST_LINE).at(path)?;
    if begin > 0 {
        lines.next().at(path)?;
    }
    while lines.offset() < end
        && let Some(Framed { piece, bytes, .. }) = lines.next().at(path)?
    {
        if piece == Piece::Line && meet(bytes).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
