//! `config.json`: read without a lock, changed under its side lock, replaced as a whole.
//!
//! An unreadable roster never blocks a team: it is quarantined and rebuilt from the last good copy, or
//! else from the life locks. `protocol::lifecycle` decides which statuses follow each other.

mod cached;
mod found_entry;
mod parts;
mod reading;

pub(crate) use cached::Cached;
pub use parts::{KnownLeadPlace, LeadPlace};
pub(crate) use parts::{MemberStandings, OwnAgents, Standing};
pub use reading::read;

use super::file::atomic::{Fsync, pretty_json, replace, sync_data, sync_parent};
use super::file::lock::{Held, exclusive};
use super::file::read::quarantine;
use super::process::liveness::{Liveness, probe};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, open};
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::roster::{Member, Roster, Status};
use crate::wire::{AgentName, FORMAT_VERSION, WithUnknownFields};
use found_entry::FoundEntry;
use reading::{Loaded, copy, fresh, load, repaired};

/// Returns the status of a member as readers show it: that of `LifecycleEvent::FoundDead` if its life
/// lock is free, unless a live lead is about to start it.
pub fn effective_status(member: &Member, life: &Liveness, lead: &Liveness) -> Status {
    let mut status = member.status;
    let is_expected = status == Status::Starting && lead.is_alive();
    if !life.is_alive() && !is_expected {
        let _refused = lifecycle::apply(&mut status, LifecycleEvent::FoundDead);
    }
    status
}

/// Whether a person is at the terminal of the lead that is alive, so that no question to it expires.
pub(crate) fn is_attended(dir: &TeamDir) -> bool {
    let Ok(Liveness::Alive(Some(record))) = probe(dir, &AgentName::lead()) else {
        return false;
    };
    let lead = read(dir).ok().and_then(|roster| roster.lead.clone());
    lead.is_some_and(|lead| lead.person && lead.incarnation == record.incarnation)
}

/// Whether the file exists and cannot be parsed. Fails if it was written by a newer version.
pub fn is_damaged(dir: &TeamDir) -> Result<bool, StoreError> {
    Ok(matches!(load::<WithUnknownFields<Roster>>(&dir.config())?, Loaded::Damaged))
}

/// Applies `change` to the current roster under its lock, and stores the result before it returns if it differs.
/// On an error, such as a file of a newer version, the roster is unchanged.
pub fn update<R>(
    dir: &TeamDir,
    fsync: Fsync,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R,
) -> Result<R, StoreError> {
    let _held = lock(dir)?;
    update_locked(dir, fsync, change)
}

/// Like [`update`], for the entry of one member; `None` if it has none. A large team is changed often: the entries of the
/// others are not parsed.
pub(crate) fn update_member<R>(
    dir: &TeamDir,
    name: &AgentName,
    fsync: Fsync,
    change: impl FnOnce(Option<&mut WithUnknownFields<Member>>) -> R,
) -> Result<R, StoreError> {
    let _held = lock(dir)?;
    let path = dir.config();
    let Some(mut found) = FoundEntry::load(&path, name)? else {
        return update_locked(dir, fsync, |roster| change(roster.member_mut(name.as_str())));
    };
    let incarnation = incarnation_of(&found.entry);
    let answer = change(Some(&mut found.entry));
    let is_other = incarnation != incarnation_of(&found.entry);
    let (before, after) = found.texts().at(&path)?;
    store(dir, fsync, &before, &after, is_other)?;
    Ok(answer)
}

fn lock(dir: &TeamDir) -> Result<Held, StoreError> {
    dir.is_still_there()?;
    let held = exclusive(&dir.config_lock(), LOCK_TIMEOUT)?;
    crate::store::failpoint::hit("config.locked");
    Ok(held)
}

fn update_locked<R>(
    dir: &TeamDir,
    fsync: Fsync,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R,
) -> Result<R, StoreError> {
    let path = dir.config();
    let (mut roster, before) = match load::<WithUnknownFields<Roster>>(&path)? {
        Loaded::Missing => (fresh(dir), Vec::new()),
        Loaded::Good { roster, text } => {
            if roster.version > FORMAT_VERSION {
                return Err(StoreError::Newer { path, found: roster.version.into() });
            }
            (*roster, text)
        }
        Loaded::Damaged => {
            quarantine(&path)?;
            (repaired(dir)?, Vec::new())
        }
    };
    let incarnations_before = incarnations(&roster);
    let answer = change(&mut roster);
    let after = pretty_json(&roster, &path)?;
    store(dir, fsync, &before, &after, incarnations(&roster) != incarnations_before)?;
    Ok(answer)
}

/// Replaces the roster if it has changed, and its copy if the incarnations have.
fn store(
    dir: &TeamDir,
    fsync: Fsync,
    before: &[u8],
    after: &[u8],
    has_new_incarnations: bool,
) -> Result<(), StoreError> {
    if after == before {
        return Ok(());
    }
    let path = dir.config();
    if has_new_incarnations {
        // Not synced: the copy is for damage by hand edits. After a power cut the life locks suffice for a
        // repair.
        replace(&copy(&path), after, Fsync::Never)?;
    }
    crate::store::failpoint::hit("config.copied");
    replace(&path, after, fsync)?;
    crate::store::failpoint::hit("config.replaced");
    Ok(())
}

/// Makes the current roster durable. Takes no lock: a process that replaces the file meanwhile has read this
/// version, so its file contains the same changes.
pub fn sync(dir: &TeamDir, fsync: Fsync) -> Result<(), StoreError> {
    if fsync == Fsync::Always {
        let path = dir.config();
        sync_data(&open(&path, Access::Read)?, &path, fsync)?;
        sync_parent(&path, fsync)?;
    }
    Ok(())
}

/// The name and the incarnation of an entry, and whether it is over.
type Incarnation = (String, String, bool);

/// Returns the incarnation of each entry. The copy of the roster is renewed only if these change.
pub(super) fn incarnations(roster: &Roster) -> Vec<Incarnation> {
    let lead = roster
        .lead
        .iter()
        .map(|lead| (lead.name.clone(), lead.incarnation.clone(), lead.status.is_over()));
    lead.chain(roster.members.iter().map(|member| incarnation_of(member))).collect()
}

fn incarnation_of(member: &Member) -> Incarnation {
    (member.name.clone(), member.incarnation.clone(), member.status.is_over())
}
