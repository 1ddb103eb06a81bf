//! The attachments of lines that come from other hosts: a line waits until they are on this one.

use crate::store::relay::Link;
use crate::store::{StoreError, TeamDir, attachments};
use crate::wire::attachment::{ATTACHMENTS, Attachment, set_attachments};
use crate::wire::carried::HostName;
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

/// The attachments for which lines wait.
#[derive(Debug, Default)]
pub(super) struct AwaitedAttachments {
    links: BTreeMap<Attachment, BTreeSet<Link>>,
    /// Those that nobody was told of yet.
    new: Vec<(HostName, Attachment)>,
    missing: BTreeSet<Attachment>,
}

impl AwaitedAttachments {
    /// Whether a line of a link must wait for an attachment.
    pub(super) fn must_wait(&mut self, dir: &TeamDir, link: &Link, line: &str) -> bool {
        let mut must_wait = false;
        for attachment in attachments_in(line) {
            let is_here = || {
                attachments::is_here(dir, &attachment).unwrap_or_else(|why| {
                    tracing::warn!(%why, "the attachments cannot be read");
                    false
                })
            };
            if self.missing.contains(&attachment) || is_here() {
                continue;
            }
            must_wait = true;
            let links = self.links.entry(attachment.clone()).or_default();
            if links.is_empty() {
                self.new.push((link.host.clone(), attachment));
            }
            links.insert(link.clone());
        }
        must_wait
    }

    /// Returns the attachments that have been awaited since the last call.
    pub(super) fn take_new(&mut self) -> Vec<(HostName, Attachment)> {
        std::mem::take(&mut self.new)
    }

    /// Notes what has become of an attachment. Returns the links whose lines go on.
    pub(super) fn came(
        &mut self,
        attachment: &Attachment,
        outcome: AttachmentOutcome,
    ) -> BTreeSet<Link> {
        let links = self.links.remove(attachment).unwrap_or_default();
        match outcome {
            AttachmentOutcome::Here => links,
            AttachmentOutcome::Missing => {
                self.missing.insert(attachment.clone());
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
