//! Gives other hosts files of this one.

use super::{CarriedQuestion, CopyQuestion, FilesAnswer};
use crate::carrier::Reply;
use crate::offload::offload;
use crate::parts::{self, MOST_BYTES};
use agent_team::relay::KnownPlacements;
use agent_team::store::relay::{copy_part, copyable_files, read_copy_part};
use agent_team::store::{StoreError, TeamDir, attachments};
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_copy::CopyPart;

/// Answers a host that asks for files.
pub(crate) fn asked(
    dir: &TeamDir,
    placements: &KnownPlacements,
    from: HostName,
    body: &[u8],
    reply: Reply,
) {
    let Ok(CarriedQuestion { v: RELAY_PROTOCOL, question }) = serde_json::from_slice(body) else {
        tracing::warn!(%from, "what came is no question for files that this version knows");
        return;
    };
    let (dir, may_lead) = (dir.clone(), placements.may_lead(&from));
    tokio::spawn(async move {
        match offload(move || answer(&dir, &from, may_lead, question)).await {
            Ok(body) => drop(reply.answer(body.into()).await),
            Err(why) => tracing::warn!(%why, "a file is not given to another host"),
        }
    });
}

fn answer(
    dir: &TeamDir,
    from: &HostName,
    may_lead: bool,
    question: CopyQuestion,
) -> Result<Vec<u8>, StoreError> {
    // The tasks are for all hosts; what agents think and write is for those that may have the lead.
    let may_see = |part: &CopyPart| may_lead || *part == CopyPart::Tasks;
    match question {
        CopyQuestion::Files(selection) => {
            let answer = if selection.parts.iter().all(may_see) {
                FilesAnswer::Files(copyable_files(dir, &selection)?)
            } else {
                FilesAnswer::Refused(format!(
                    "it shows its agents to no lead on {from}: `leads` in its host.toml"
                ))
            };
            Ok(serde_json::to_vec(&answer).unwrap_or_default())
        }
        CopyQuestion::Part { path, id, offset, most } => {
            let may_see = copy_part(&path).is_some_and(|part| may_see(&part));
            let bytes = if may_see {
                read_copy_part(dir, (&path, &id), (offset, most.min(MOST_BYTES)))?
            } else {
                None
            };
            Ok(parts::answer(bytes))
        }
        // It is for all hosts: that of the recipient knows its hash by the line.
        CopyQuestion::Attachment { attachment, offset, most } => {
            let part = (offset, most.min(MOST_BYTES));
            let read = || {
                attachments::read_part(dir, &attachment, part).unwrap_or_else(|why| {
                    // The message must not wait for a file that cannot be read.
                    tracing::warn!(%why, "an attachment is not given to another host");
                    None
                })
            };
            Ok(parts::answer(attachment.is_sound().then(read).flatten()))
        }
    }
}
