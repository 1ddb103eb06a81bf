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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The most contents of one attachment that are fetched: what a host gives may be another one.
const MOST_TRIES: usize = 3;

/// The most transfers from one host at a time. One that gives little and slowly holds up its own alone.
const MOST_OF_A_HOST: usize = 4;

/// The pause after a transfer that has failed.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// An attachment that a host is to give.
type Wanted = (HostName, Attachment);

#[derive(Default)]
struct TransferState {
    running: BTreeSet<Wanted>,
    /// Those of which it was logged that they have not come.
    late: BTreeSet<Wanted>,
    places: BTreeMap<HostName, Arc<Semaphore>>,
}

/// The transfers that run. No two of them get the same.
#[derive(Default)]
pub(crate) struct Transfers(Arc<Mutex<TransferState>>);

/// One transfer, until the drop.
pub(crate) struct Transfer {
    of: Wanted,
    state: Arc<Mutex<TransferState>>,
    places: Arc<Semaphore>,
}

impl Transfers {
    /// Notes a transfer; `None` if it runs.
    pub(crate) fn begin(&self, host: &HostName, attachment: &Attachment) -> Option<Transfer> {
        let of = (host.clone(), attachment.clone());
        let mut state = lock(&self.0);
        let places = state.places.entry(host.clone());
        let places = places.or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_A_HOST)));
        let places = Arc::clone(places);
        let is_new = state.running.insert(of.clone());
        is_new.then(|| Transfer { of, state: Arc::clone(&self.0), places })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        lock(&self.state).running.remove(&self.of);
    }
}

impl Transfer {
    /// Gets the attachment. It goes on with what came before.
    pub(crate) async fn run(&self, carrier: &Carrier, dir: &TeamDir) -> AttachmentOutcome {
        let (host, attachment) = &self.of;
        let name = attachment.name();
        let _place = self.places.acquire().await;
        match fetch(carrier, dir, host, attachment).await {
            Ok(is_here) => {
                lock(&self.state).late.remove(&self.of);
                if is_here {
                    return AttachmentOutcome::Here;
                }
                tracing::warn!(name, %host, "an attachment is not to be had: its host has it no more");
                AttachmentOutcome::Missing
            }
            Err(why) => {
                if lock(&self.state).late.insert(self.of.clone()) {
                    tracing::info!(name, %host, %why, "an attachment has not come yet");
                }
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                AttachmentOutcome::Later
            }
        }
    }
}

fn lock(state: &Mutex<TransferState>) -> MutexGuard<'_, TransferState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let offset = match offload(move || progress(&team, &from, &wanted)).await? {
            Progress::Here => return Ok(true),
            Progress::Spoiled if tries == MOST_TRIES => return Ok(false),
            Progress::Spoiled => 0,
            Progress::From(offset) => offset,
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

/// The part of an attachment that is here.
enum Progress {
    Here,
    /// The next part begins at this byte.
    From(u64),
    /// All bytes had come, and were something else.
    Spoiled,
}

/// Returns how much of an attachment is here. What has come whole gets its name.
fn progress(
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
) -> Result<Progress, StoreError> {
    if attachments::is_here(dir, attachment)? {
        return Ok(Progress::Here);
    }
    Ok(match attachments::bytes_that_came(dir, host, attachment)? {
        None => Progress::From(0),
        Some(came) if came < attachment.bytes => Progress::From(came),
        Some(_) if attachments::finish(dir, host, attachment)? => Progress::Here,
        Some(_) => Progress::Spoiled,
    })
}
