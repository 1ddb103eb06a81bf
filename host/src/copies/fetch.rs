//! Asks another host for files.

use super::{CarriedQuestion, CopyQuestion, FilesAnswer};
use crate::carrier::{Carrier, CarrierError};
use crate::parts::{self, FEWEST_BYTES, GivenPart, MOST_BYTES};
use agent_team::store::StoreError;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_copy::{CopyPath, CopySelection, ListedFile};

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

/// Asks for a part of a file. `None` if another file is there now.
pub(super) async fn part(
    carrier: &Carrier,
    host: &HostName,
    (path, id): (&CopyPath, &str),
    offset: u64,
) -> Result<Option<Vec<u8>>, CopyFailure> {
    let question = |most| CopyQuestion::Part { path: path.clone(), id: id.into(), offset, most };
    let mut most = MOST_BYTES;
    ask_for_part(carrier, host, question, &mut most).await
}

/// Asks for a part of at most so many bytes, with smaller ones if a large one does not come. `None` if the file is not there.
pub(super) async fn ask_for_part(
    carrier: &Carrier,
    host: &HostName,
    question: impl Fn(usize) -> CopyQuestion,
    most: &mut usize,
) -> Result<Option<Vec<u8>>, CopyFailure> {
    let answer = loop {
        match ask(carrier, host, question(*most)).await {
            Err(CopyFailure::Carrier(CarrierError::Timeout { .. })) if *most > FEWEST_BYTES => {
                *most = (*most / 4).max(FEWEST_BYTES);
            }
            answer => break answer?,
        }
    };
    *most = most.saturating_mul(2).min(MOST_BYTES);
    match parts::read(&answer) {
        GivenPart::Bytes(bytes) => Ok(Some(bytes)),
        GivenPart::Missing => Ok(None),
        GivenPart::Unclear => Err(CopyFailure::Unclear),
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
