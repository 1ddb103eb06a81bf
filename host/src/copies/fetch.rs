//! Asks another host for files.

use super::{CarriedQuestion, CopyQuestion, FilesAnswer, MOST_BYTES, PartHead};
use crate::carrier::{Carrier, CarrierError};
use agent_team::store::StoreError;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_copy::{CopyPath, CopySelection, ListedFile};

/// The fewest bytes of a part to which a slow network brings it down.
const FEWEST_BYTES: usize = 8 * 1024;

/// The reason for which files of another host are not here.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyFailure {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    #[error("it was changed meanwhile")]
    Changed,
    #[error("its answer is not understood: use the same version on both hosts")]
    Unclear,
    #[error("its files cannot be kept here: {0}")]
    Store(#[from] StoreError),
}

/// Asks for the files that a host has.
pub(super) async fn files(
    carrier: &Carrier,
    host: &HostName,
    selection: &CopySelection,
) -> Result<Vec<ListedFile>, CopyFailure> {
    let answer = ask(carrier, host, CopyQuestion::Files(selection.clone())).await?;
    match serde_json::from_slice(&answer) {
        Ok(FilesAnswer::Files(files)) => Ok(files),
        Ok(FilesAnswer::Refused(why)) => Err(CopyFailure::Refused(why)),
        Err(_) => Err(CopyFailure::Unclear),
    }
}

/// Asks for a part of a file, with smaller parts if a large one does not come. `None` if another file is there now.
pub(super) async fn part(
    carrier: &Carrier,
    host: &HostName,
    (path, id): (&CopyPath, &str),
    offset: u64,
) -> Result<Option<Vec<u8>>, CopyFailure> {
    let mut most = MOST_BYTES;
    let answer = loop {
        let question = CopyQuestion::Part { path: path.clone(), id: id.into(), offset, most };
        match ask(carrier, host, question).await {
            Err(CopyFailure::Carrier(CarrierError::Timeout { .. })) if most > FEWEST_BYTES => {
                most = (most / 4).max(FEWEST_BYTES);
            }
            answer => break answer?,
        }
    };
    let mut halves = answer.splitn(2, |byte| *byte == b'\n');
    let head = halves.next().map(serde_json::from_slice::<PartHead>);
    match (head, halves.next()) {
        (Some(Ok(PartHead { is_there: true })), Some(bytes)) => Ok(Some(bytes.to_vec())),
        (Some(Ok(PartHead { is_there: false })), _) => Ok(None),
        _ => Err(CopyFailure::Unclear),
    }
}

async fn ask(
    carrier: &Carrier,
    host: &HostName,
    question: CopyQuestion,
) -> Result<bytes::Bytes, CopyFailure> {
    let question = CarriedQuestion { v: RELAY_PROTOCOL, question };
    let body = serde_json::to_vec(&question).map_err(|_| CopyFailure::Unclear)?;
    Ok(carrier.request_copy(host.as_str(), body.into()).await?)
}
