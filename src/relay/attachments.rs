//! The attachments of lines that come from other hosts: a line waits until they are on this one.

use crate::store::relay::Link;
use crate::store::{StoreError, TeamDir, attachments};
use crate::wire::attachment::{ATTACHMENTS, Attachment, set_attachments};
use crate::wire::carried::HostName;
use crate::wire::file_view::ContentHash;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The outcome of the transfer of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentOutcome {
    /// It is on this host.
    Here,
    /// Its host has it no more, or it is not what the line says: the line comes without it.
    Missing,
    /// Its host did not answer, or the disk of this one refuses: it is asked for again with the line.
    Later,
}

/// A file that a host is to give. The word of one host about a file says nothing of that of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AwaitedFile {
    host: HostName,
    hash: ContentHash,
    bytes: u64,
    name: String,
}

impl AwaitedFile {
    fn of(host: &HostName, attachment: &Attachment) -> Self {
        let Attachment { bytes, hash, .. } = attachment;
        let name = attachment.name().to_owned();
        Self { host: host.clone(), hash: hash.clone(), bytes: *bytes, name }
    }
}

/// The attachments for which lines wait.
#[derive(Debug, Default)]
pub(super) struct AwaitedAttachments {
    links: BTreeMap<AwaitedFile, BTreeSet<Link>>,
    /// Those that nobody was told of yet.
    new: Vec<(HostName, Attachment)>,
    /// Those that are not to be had. Their lines come without them; one that comes later asks again.
    missing: BTreeMap<AwaitedFile, BTreeSet<Link>>,
}

impl AwaitedAttachments {
    /// Returns those attachments of a line of a link for which it must wait.
    pub(super) fn lacking(&self, dir: &TeamDir, link: &Link, line: &str) -> Vec<Attachment> {
        let is_lacking = |attachment: &Attachment| {
            let file = AwaitedFile::of(&link.host, attachment);
            let is_missing = self.missing.get(&file).is_some_and(|links| links.contains(link));
            let is_here = || {
                attachments::is_here(dir, attachment).unwrap_or_else(|why| {
                    tracing::warn!(%why, "the attachments cannot be read");
                    false
                })
            };
            !is_missing && !is_here()
        };
        attachments_in(line).into_iter().filter(is_lacking).collect()
    }

    /// Notes that a line of a link waits for an attachment.
    pub(super) fn wait(&mut self, link: &Link, attachment: Attachment) {
        let links = self.links.entry(AwaitedFile::of(&link.host, &attachment)).or_default();
        if links.is_empty() {
            self.new.push((link.host.clone(), attachment));
        }
        links.insert(link.clone());
    }

    /// Whether a line of a link waits.
    pub(super) fn holds_up(&self, link: &Link) -> bool {
        self.links.values().any(|links| links.contains(link))
    }

    /// Notes that a line of a link was appended.
    pub(super) fn appended(&mut self, link: &Link) {
        self.missing.retain(|_, links| {
            links.remove(link);
            !links.is_empty()
        });
    }

    /// Returns the attachments that have been awaited since the last call.
    pub(super) fn take_new(&mut self) -> Vec<(HostName, Attachment)> {
        std::mem::take(&mut self.new)
    }

    /// Notes the outcome of a transfer. Returns the links whose lines go on.
    pub(super) fn came(
        &mut self,
        (host, attachment): (&HostName, &Attachment),
        outcome: AttachmentOutcome,
    ) -> BTreeSet<Link> {
        let file = AwaitedFile::of(host, attachment);
        let links = self.links.remove(&file).unwrap_or_default();
        match outcome {
            AttachmentOutcome::Here => links,
            AttachmentOutcome::Missing => {
                self.missing.entry(file).or_default().extend(links.iter().cloned());
                links
            }
            AttachmentOutcome::Later => BTreeSet::new(),
        }
    }
}

/// Returns the attachments of a line.
fn attachments_in(line: &str) -> Vec<Attachment> {
    // Most lines have none, and need no second parse.
    if !line.contains(ATTACHMENTS) {
        return Vec::new();
    }
    let object: Option<Map<String, Value>> = serde_json::from_str(line).ok();
    object.map(|object| Attachment::all_of(&object)).unwrap_or_default()
}

/// Returns a line with the paths that its attachments have on this host.
pub(super) fn with_own_paths<'a>(
    dir: &TeamDir,
    object: &Map<String, Value>,
    line: &'a str,
) -> Result<Cow<'a, str>, StoreError> {
    let mut all = Attachment::all_of(object);
    if all.is_empty() {
        return Ok(line.into());
    }
    for attachment in &mut all {
        attachment.missing = !attachments::is_here(dir, attachment)?;
        attachment.path = attachments::path_of(dir, attachment).to_string_lossy().into_owned();
    }
    let mut object = object.clone();
    set_attachments(&mut object, &all);
    Ok(Value::Object(object).to_string().into())
}
