//! The work of clones, for people: its extent, and its differences from the start of the clone.

use super::error::WorkError;
use super::repository::{Repository, reference};
use super::take::stat;
use crate::os::git::GitError;
use crate::wire::AgentName;
use crate::wire::isolation::ClonePlace;
use std::path::Path;

/// The work of one clone as it was last saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkOverview {
    /// The last line of the list of changes; empty without any.
    pub(crate) changes: String,
    pub(crate) offer: OfferState,
    /// Whether the clone is where it was made.
    pub(crate) is_there: bool,
}

/// The way of saved work to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferState {
    /// Nothing was offered.
    None,
    /// The last save is offered.
    Offered,
    /// Work that was saved later is not offered yet.
    Earlier,
    /// The last save was taken.
    Taken,
}

/// Returns the state of a clone's saved work.
pub(crate) fn overview(
    name: &AgentName,
    place: &ClonePlace,
    environment: &[(String, String)],
) -> Result<WorkOverview, WorkError> {
    let is_there = super::clone::check(name, place).is_ok();
    let repository = Repository::find(Path::new(&place.repository), environment)?;
    let wip = repository.reference(name, "wip");
    let offer = repository.reference(name, "offer");
    let taken = format!("{}^1", reference(name.as_str(), "taken"));
    let taken = repository.git.run(&["rev-parse", "--quiet", "--verify", &taken]).ok();
    let offer = match (&wip, &offer) {
        (Some(wip), _) if taken.as_ref() == Some(wip) => OfferState::Taken,
        (_, None) => OfferState::None,
        (wip, offer) if wip == offer => OfferState::Offered,
        _ => OfferState::Earlier,
    };
    let changes = wip.map(|wip| stat(&repository, &place.base, &wip)).transpose();
    let what = format!("the work of {name} cannot be read");
    let changes = changes.map_err(|why: GitError| WorkError::git(&what, &why))?;
    let changes = changes.unwrap_or_default();
    let changes = changes.lines().last().unwrap_or_default().trim().to_owned();
    Ok(WorkOverview { changes, offer, is_there })
}

/// Returns the last save of a clone that is known here, in words; `None` if there is none.
pub(crate) fn last_save(
    name: &AgentName,
    place: &ClonePlace,
    environment: &[(String, String)],
) -> Result<Option<String>, WorkError> {
    let repository = Repository::find(Path::new(&place.repository), environment)?;
    let Some(wip) = repository.reference(name, "wip") else { return Ok(None) };
    let words = ["log", "-1", "--no-color", "--format=%h, %cr", &wip];
    let what = format!("the work of {name} cannot be read");
    repository.git.run(&words).map(Some).map_err(|why| WorkError::git(&what, &why))
}

/// Returns the differences between the start of a clone and its last save.
pub(crate) fn diff(
    name: &AgentName,
    place: &ClonePlace,
    environment: &[(String, String)],
) -> Result<String, WorkError> {
    let repository = Repository::find(Path::new(&place.repository), environment)?;
    let Some(wip) = repository.reference(name, "wip") else { return Ok(String::new()) };
    let words = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", &place.base, &wip];
    let what = format!("the work of {name} cannot be read");
    repository.git.run(&words).map_err(|why| WorkError::git(&what, &why))
}
