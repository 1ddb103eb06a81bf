//! The attachments of messages, which come from the host that has sent the line.

use super::CopyQuestion;
use super::fetch::{CopyFailure, ask_for_part};
use crate::carrier::Carrier;
use crate::offload::offload;
use crate::parts::MOST_BYTES;
use agent_team::relay::AttachmentOutcome;
use agent_team::store::{StoreError, TeamDir, attachments};
use agent_team::wire::attachment::Attachment;
use agent_team::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most contents of one attachment that are fetched: what a host gives may be another one.
const MOST_TRIES: usize = 3;

/// The most transfers from one host at a time. One that gives little and slowly holds up its own alone.
const MOST_OF_A_HOST: usize = 4;

type Running = Arc<Mutex<BTreeSet<(HostName, Attachment)>>>;

/// The transfers that run. No two of them get the same.
#[derive(Default)]
pub(crate) struct Transfers {
    running: Running,
    places: Mutex<BTreeMap<HostName, Arc<Semaphore>>>,
}

/// One transfer, until the drop.
pub(crate) struct Transfer {
    of: (HostName, Attachment),
    running: Running,
    places: Arc<Semaphore>,
}

impl Transfers {
    /// Notes a transfer; `None` if it runs.
    pub(crate) fn begin(&self, host: &HostName, attachment: &Attachment) -> Option<Transfer> {
        let of = (host.clone(), attachment.clone());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.entry(host.clone());
        let places = places.or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_A_HOST)));
        let places = Arc::clone(places);
        let running = Arc::clone(&self.running);
        let is_new = running.lock().unwrap_or_else(PoisonError::into_inner).insert(of.clone());
        is_new.then_some(Transfer { of, running, places })
    }
}

impl Transfer {
    /// Waits until it may begin: as long as it holds the result, it counts.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.of);
    }
}

/// Gets an attachment from a host. It goes on with what came before.
pub(crate) async fn fetch_attachment(
    carrier: &Carrier,
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
) -> AttachmentOutcome {
    let name = attachment.name();
    match fetch(carrier, dir, host, attachment).await {
        Ok(true) => AttachmentOutcome::Here,
        Ok(false) => {
            tracing::warn!(name, %host, "an attachment is not to be had: its host has it no more");
            AttachmentOutcome::Missing
        }
        Err(why) => {
            tracing::info!(name, %host, %why, "an attachment has not come yet");
            AttachmentOutcome::Later
        }
    }
}

/// Returns whether the attachment is here; it is not if the host does not have it.
async fn fetch(
    carrier: &Carrier,
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
) -> Result<bool, CopyFailure> {
    let (mut most, mut tries) = (MOST_BYTES, 0);
    loop {
        let (team, from, wanted) = (dir.clone(), host.clone(), attachment.clone());
        let offset = match offload(move || state(&team, &from, &wanted)).await? {
            TransferState::Here => return Ok(true),
            TransferState::Spoiled if tries == MOST_TRIES => return Ok(false),
            TransferState::Spoiled => 0,
            TransferState::From(offset) => offset,
        };
        tries += usize::from(offset == 0);
        let question = |most| {
            let attachment = attachment.clone();
            CopyQuestion::Attachment { attachment, offset, most }
        };
        let part = ask_for_part(carrier, host, question, &mut most).await?;
        let Some(part) = part.filter(|part| !part.is_empty() || attachment.bytes == 0) else {
            // It is gone there, or its copy is shorter than the line says.
            return Ok(false);
        };
        let (team, from, wanted) = (dir.clone(), host.clone(), attachment.clone());
        offload(move || attachments::write_part(&team, &from, &wanted, (offset, &part))).await?;
    }
}

/// The state of a transfer.
enum TransferState {
    Here,
    /// The next part begins at this byte.
    From(u64),
    /// All bytes had come, and were something else.
    Spoiled,
}

/// Returns the state of a transfer. What has come whole gets its name.
fn state(
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
) -> Result<TransferState, StoreError> {
    if attachments::is_here(dir, attachment)? {
        return Ok(TransferState::Here);
    }
    Ok(match attachments::bytes_that_came(dir, host, attachment)? {
        None => TransferState::From(0),
        Some(came) if came < attachment.bytes => TransferState::From(came),
        Some(_) if attachments::finish(dir, host, attachment)? => TransferState::Here,
        Some(_) => TransferState::Spoiled,
    })
}
