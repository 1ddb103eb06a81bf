//! The attachments of messages, which come from the host that has sent the line.

use super::CopyQuestion;
use super::fetch::{CopyFailure, ask_for_part};
use crate::carrier::Carrier;
use crate::offload::offload;
use agent_team::relay::AttachmentOutcome;
use agent_team::store::{TeamDir, attachments};
use agent_team::wire::attachment::Attachment;
use agent_team::wire::carried::HostName;

/// The most contents of one attachment that are fetched: what a host gives may be another one.
const MOST_TRIES: usize = 3;

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
    let mut offset = came_so_far(dir, attachment).await?;
    let mut tries = 0;
    loop {
        let (team, wanted) = (dir.clone(), attachment.clone());
        if offload(move || attachments::is_here(&team, &wanted)).await? {
            return Ok(true);
        }
        let question = |most| {
            let attachment = attachment.clone();
            CopyQuestion::Attachment { attachment, offset, most }
        };
        let Some(part) = ask_for_part(carrier, host, question).await? else { return Ok(false) };
        if part.is_empty() && attachment.bytes > 0 {
            // Its copy is shorter than the line says.
            return Ok(false);
        }
        let (team, wanted, at) = (dir.clone(), attachment.clone(), offset);
        offset += part.len() as u64;
        offload(move || attachments::write_part(&team, &wanted, (at, &part))).await?;
        if offset >= attachment.bytes {
            tries += 1;
            if tries == MOST_TRIES {
                let (team, wanted) = (dir.clone(), attachment.clone());
                return Ok(offload(move || attachments::is_here(&team, &wanted)).await?);
            }
            offset = came_so_far(dir, attachment).await?;
        }
    }
}

/// Returns the number of bytes that have come. More than there can be are of something else.
async fn came_so_far(dir: &TeamDir, attachment: &Attachment) -> Result<u64, CopyFailure> {
    let (team, wanted) = (dir.clone(), attachment.clone());
    let came = offload(move || attachments::bytes_that_came(&team, &wanted)).await?;
    Ok(if came < attachment.bytes { came } else { 0 })
}
