//! The lines that have arrived from other hosts: for each link, the number that is expected next (`in.log`).
//!
//! ```text
//! {"links":[{"host":"a","epoch":"…","to":"carol","next":13,"refused":{"7":"why"}}]}     the first line
//! {"i":[{"host":"a","epoch":"…","to":"carol","first":13,"last":20,"refused":{}}]}       the intent, synced
//! {"d":[21]}                                                                            done: the next numbers
//! ```
//!
//! *Invariant:* an intent is durable before one of its lines is in an inbox. An intent without its `d` is in doubt: the lines
//! themselves tell how far it came ([`super::highest_arrived`]).

use super::search::highest_arrived;
use crate::os::file::FileError;
use crate::store::file::atomic::{Fsync, json_line, replace};
use crate::store::file::jsonl::{Log, each_line};
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::carried::{Epoch, HostName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The size from which the file is compacted, in bytes.
const COMPACT_BYTES: u64 = 1024 * 1024;

/// The lines from one relay to one recipient.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The host of the senders.
    pub host: HostName,
    /// The epoch of its relay.
    pub epoch: Epoch,
    /// The recipient.
    pub to: String,
}

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// The number that is expected next. All before it stand in the inbox, synced, or were refused.
    pub next: u64,
    /// The refused numbers of which the source may not know, each with the reason.
    pub refused: BTreeMap<u64, String>,
}

impl Default for LinkState {
    fn default() -> Self {
        Self { next: 1, refused: BTreeMap::new() }
    }
}

/// The lines of one link that are about to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The link.
    pub link: Link,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// The numbers among them that are refused, each with the reason.
    pub refused: BTreeMap<u64, String>,
}

/// A line of the file. Numbers as keys are read only without `flatten` and `untagged`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<Vec<KnownLink>>,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    intent: Option<Vec<KnownRange>>,
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    done: Option<Vec<u64>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownLink {
    host: HostName,
    epoch: Epoch,
    to: String,
    next: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<u64, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownRange {
    host: HostName,
    epoch: Epoch,
    to: String,
    first: u64,
    last: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<u64, String>,
}

impl From<Range> for KnownRange {
    fn from(Range { link: Link { host, epoch, to }, first, last, refused }: Range) -> Self {
        Self { host, epoch, to, first, last, refused }
    }
}

impl From<KnownRange> for Range {
    fn from(KnownRange { host, epoch, to, first, last, refused }: KnownRange) -> Self {
        Self { link: Link { host, epoch, to }, first, last, refused }
    }
}

/// The open record of arrived lines.
#[derive(Debug)]
pub struct Arrivals {
    log: Log,
    links: BTreeMap<Link, LinkState>,
    /// The ranges of the intent that is not done.
    open: Vec<Range>,
    size: u64,
}

impl Arrivals {
    /// Opens or creates the record. Ranges that are in doubt are resolved by the lines that have arrived, which are durable
    /// afterwards.
    ///
    /// # Errors
    /// A file cannot be read, written or synced.
    pub fn open(dir: &TeamDir) -> Result<Self, StoreError> {
        let path = dir.relay_arrivals();
        let (links, open) = read(dir)?;
        let log = Log::open(path)?;
        let mut arrivals = Self { log, links, open, size: 0 };
        arrivals.resolve(dir)?;
        arrivals.compact()?;
        Ok(arrivals)
    }

    fn resolve(&mut self, dir: &TeamDir) -> Result<(), StoreError> {
        let mut next = Vec::new();
        for range in &self.open {
            let Range { link, first, last, .. } = range;
            let highest = match AgentName::mailbox(&link.to) {
                Ok(name) => highest_arrived(dir, &name, &link.host, &link.epoch)?,
                Err(_) => None,
            };
            let arrived =
                highest.map_or(*first, |seq| seq.saturating_add(1).clamp(*first, last + 1));
            tracing::info!(link.host = %link.host, link.to, first, last, arrived, "lines in doubt are resolved");
            next.push(arrived);
        }
        failpoint::hit("arrivals.resolved");
        if next.is_empty() { Ok(()) } else { self.done(&next, Fsync::Always) }
    }

    /// Returns the state of a link.
    pub fn link(&self, link: &Link) -> LinkState {
        self.links.get(link).cloned().unwrap_or_default()
    }

    /// Returns the links from one relay.
    pub fn links_of<'a>(
        &'a self,
        host: &'a HostName,
        epoch: &'a Epoch,
    ) -> impl Iterator<Item = (&'a Link, &'a LinkState)> {
        self.links.iter().filter(move |(link, _)| link.host == *host && link.epoch == *epoch)
    }

    /// Notes the base of a link: its source knows the end of all lines up to it.
    pub fn note_base(&mut self, link: &Link, base: u64) {
        let state = self.links.entry(link.clone()).or_default();
        state.next = state.next.max(base.saturating_add(1));
        state.refused.retain(|seq, _| *seq > base);
    }

    /// Writes the intent to append these ranges, durably.
    ///
    /// # Errors
    /// It was not written, or may not be durable. No line may be appended.
    pub fn intend(&mut self, ranges: Vec<Range>) -> Result<(), StoreError> {
        let intent = ranges.iter().cloned().map(KnownRange::from).collect();
        self.write(&Record { intent: Some(intent), ..Record::default() })?;
        failpoint::hit("arrivals.intended");
        self.log.sync(Fsync::Always)?;
        failpoint::hit("arrivals.synced");
        self.open = ranges;
        Ok(())
    }

    /// Notes the next number of each range of the open intent. A refusal is told to its source, so it is made durable.
    ///
    /// # Errors
    /// It was not written: the ranges stay in doubt.
    pub fn done(&mut self, next: &[u64], fsync: Fsync) -> Result<(), StoreError> {
        let is_refused = self.open.iter().any(|range| !range.refused.is_empty());
        self.write(&Record { done: Some(next.to_vec()), ..Record::default() })?;
        failpoint::hit("arrivals.done");
        if is_refused || fsync == Fsync::Always {
            self.log.sync(Fsync::Always)?;
        }
        apply(&mut self.links, std::mem::take(&mut self.open), next);
        Ok(())
    }

    fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        let line = json_line(record, self.log.path())?;
        self.log.append(&line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Rewrites the file if it is long. Call it while no intent is open.
    ///
    /// # Errors
    /// The file cannot be written; then it stays as it is.
    pub fn compact_if_long(&mut self) -> Result<(), StoreError> {
        if self.size < COMPACT_BYTES || !self.open.is_empty() { Ok(()) } else { self.compact() }
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        let path = self.log.path().to_owned();
        let known = |(link, state): (&Link, &LinkState)| {
            let (Link { host, epoch, to }, LinkState { next, refused }) =
                (link.clone(), state.clone());
            KnownLink { host, epoch, to, next, refused }
        };
        let links = self.links.iter().map(known).collect();
        let record = Record { links: Some(links), ..Record::default() };
        let line = json_line(&record, &path)?;
        replace(&path, &line, Fsync::Always)?;
        failpoint::hit("arrivals.compacted");
        self.log = Log::open(path)?;
        self.size = 0;
        Ok(())
    }
}

/// Reads the links, and the ranges that are in doubt.
fn read(dir: &TeamDir) -> Result<(BTreeMap<Link, LinkState>, Vec<Range>), FileError> {
    let (mut links, mut open) = (BTreeMap::new(), Vec::new());
    let path = dir.relay_arrivals();
    each_line(&path, |line| {
        if line.is_empty() {
            return;
        }
        let Record { links: known, intent, done } = match serde_json::from_slice(line) {
            Ok(record) => record,
            // A torn line: what it would say was never told to another host.
            Err(why) => {
                tracing::warn!(path = %path.display(), %why, "a line is not read");
                return;
            }
        };
        for KnownLink { host, epoch, to, next, refused } in known.into_iter().flatten() {
            links.insert(Link { host, epoch, to }, LinkState { next, refused });
        }
        if let Some(intent) = intent {
            open = intent.into_iter().map(Range::from).collect();
        }
        if let Some(next) = done {
            apply(&mut links, std::mem::take(&mut open), &next);
        }
    })?;
    Ok((links, open))
}

fn apply(links: &mut BTreeMap<Link, LinkState>, ranges: Vec<Range>, next: &[u64]) {
    for (range, next) in ranges.into_iter().zip(next) {
        let state = links.entry(range.link).or_default();
        state.next = state.next.max(*next);
        state.refused.extend(range.refused.into_iter().filter(|(seq, _)| seq < next));
    }
}
