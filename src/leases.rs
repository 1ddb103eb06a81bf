//! Leases on paths of the workspace: applies the rules of `protocol::leases` to the files of `store::leases`.
//!
//! A lease binds the file tools and the commands of the other agents that work in the workspace, not the person. A
//! write looks at the leases while it holds the lock of its file, and a claim waits for the writes that held such a
//! lock before it. So once a claim has succeeded, no write of another agent to its paths is under way or begins.

use crate::os::local_time;
use crate::os::{Clock, SystemClock};
use crate::protocol::leases::{
    self as rules, LeaseChange, LeaseConflict, LeaseRecord, LeaseRefusal, MOST_PATHS, NewLease,
    WHY_CHARS,
};
use crate::protocol::owner::OwnerLiveness;
use crate::store::leases::{LeaseFiles, change, read};
use crate::store::{StoreError, TeamDir, file_writes, liveness};
use crate::wire::AgentName;
use crate::wire::lease::Lease;
use crate::wire::limits::LOCK_TIMEOUT;
use std::path::Path;

/// The number of hexadecimal digits of an id. A person types it.
const ID_DIGITS: usize = 8;

/// The reason for which a claim or a release failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("{}", refusal(.0))]
    Refused(LeaseRefusal),
    #[error("{0} is not running, and a lease lasts only while its owner is running")]
    NotRunning(AgentName),
    #[error("none of these paths is leased by you: {}; {}", .given.join(", "), leased(.held))]
    NotHeld { given: Vec<String>, held: Vec<String> },
    #[error("nothing was claimed, because another agent is still writing there: {0}")]
    Busy(StoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LeaseError {
    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        if let Self::Store(why) | Self::Busy(why) = self { Some(why) } else { None }
    }

    /// Returns advice for models.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(LeaseRefusal::Conflicts(conflicts)) => {
                let owner = conflicts.first().map_or("the owner", |it| it.owner.as_str());
                format!("nothing was claimed: {}", way_out(owner))
            }
            Self::Refused(LeaseRefusal::NoPath) => "give the files or folders to claim".into(),
            Self::Refused(LeaseRefusal::NoReason | LeaseRefusal::LongReason(_)) => {
                "say in a few words what you will change there".into()
            }
            Self::Refused(LeaseRefusal::TooMany(_)) => {
                "claim the folder that contains the files, or release what you have finished".into()
            }
            Self::NotHeld { .. } => "give these paths, or none to release all of them".into(),
            Self::NotRunning(_) | Self::Busy(_) => "try again".into(),
            Self::Store(why) => why.hint().into(),
        }
    }
}

fn refusal(why: &LeaseRefusal) -> String {
    match why {
        LeaseRefusal::NoPath => "no path was given".into(),
        LeaseRefusal::NoReason => "the reason is empty".into(),
        LeaseRefusal::LongReason(count) => {
            format!("the reason has {count} characters, {WHY_CHARS} are allowed")
        }
        LeaseRefusal::TooMany(count) => {
            format!("you would have leased {count} paths, {MOST_PATHS} are allowed")
        }
        LeaseRefusal::Conflicts(conflicts) => {
            conflicts.iter().map(in_words).collect::<Vec<_>>().join("; ")
        }
    }
}

fn leased(paths: &[String]) -> String {
    if paths.is_empty() {
        return "you have leased nothing".into();
    }
    format!("you have leased {}", paths.join(", "))
}

/// Says who has leased a path, why and since when.
pub(crate) fn in_words(conflict: &LeaseConflict) -> String {
    let LeaseConflict { path, leased, owner, why, since } = conflict;
    let whole = if leased == path {
        String::new()
    } else if Path::new(path).starts_with(leased) {
        format!(" with {leased}")
    } else {
        format!(" in part ({leased})")
    };
    format!("{path} is leased{whole} by {owner} since {} ({why})", local_time(*since))
}

/// Says what an agent can do about the lease of another one.
pub(crate) fn way_out(owner: &str) -> String {
    format!("ask {owner} with send_message to release it, or work on something else")
}

/// Returns a fresh id. Random digits are not reused, so an id that a person has read means no later lease.
pub(crate) fn new_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id.chars().take(ID_DIGITS).collect()
}

/// Returns the leases of agents that run, and the files that are no leases.
pub(crate) fn list(dir: &TeamDir) -> Result<LeaseFiles, StoreError> {
    read(dir)
}

/// Returns the lease of another agent that excludes `who` from a path. Call it while the lock of the file is held.
pub(crate) fn conflict(
    dir: &TeamDir,
    who: &AgentName,
    path: &str,
) -> Result<Option<LeaseConflict>, StoreError> {
    Ok(rules::conflict(&read(dir)?.leases, who.as_str(), path))
}

/// Returns the leases of the other agents that run.
pub(crate) fn of_others(dir: &TeamDir, who: &AgentName) -> Result<Vec<LeaseRecord>, StoreError> {
    let mut leases = read(dir)?.leases;
    leases.retain(|lease| lease.owner != who.as_str());
    Ok(leases)
}

/// Returns the paths that `who` has leased.
pub(crate) fn of_agent(dir: &TeamDir, who: &AgentName) -> Result<Vec<String>, StoreError> {
    let leases = read(dir)?.leases.into_iter().filter(|lease| lease.owner == who.as_str());
    Ok(leases.flat_map(|lease| lease.paths.clone()).collect())
}

/// Claims all these paths or none for `who`, then waits for the writes of others that are under way there. Returns the
/// paths of the lease.
pub(crate) fn claim(
    dir: &TeamDir,
    who: &AgentName,
    id: String,
    paths: Vec<String>,
    why: String,
) -> Result<Vec<String>, LeaseError> {
    let OwnerLiveness::Running(incarnation) = liveness::of_owner(dir, who.as_str()) else {
        return Err(LeaseError::NotRunning(who.clone()));
    };
    let claimed = change(dir, |leases| {
        let now = SystemClock.now();
        let owner = who.clone();
        match rules::claim(leases, NewLease { id, owner, incarnation, paths, why, now }) {
            Ok(change) => {
                let lease = change.stored.first().cloned();
                (change, Ok(lease.map(|lease| lease.paths.clone()).unwrap_or_default()))
            }
            Err(why) => (LeaseChange::default(), Err(LeaseError::Refused(why))),
        }
    })??;
    let workspace = dir.workspace();
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let is_claimed = |real: &Path| {
        let path = real.strip_prefix(&workspace).unwrap_or(real);
        claimed.iter().any(|claimed| rules::overlaps(path, Path::new(claimed)))
    };
    if let Err(why) = file_writes::wait_for_writes(dir, is_claimed, LOCK_TIMEOUT) {
        release(dir, who, Some(&claimed))?;
        return Err(if why.is_lock_timeout() { LeaseError::Busy(why) } else { why.into() });
    }
    Ok(claimed)
}

/// Releases the leases of `who` at and below these paths; without paths, all. Returns the released paths. Fails if
/// paths are given and none of them is leased.
pub(crate) fn release(
    dir: &TeamDir,
    who: &AgentName,
    paths: Option<&[String]>,
) -> Result<Vec<String>, LeaseError> {
    if paths.is_none() && of_agent(dir, who)?.is_empty() {
        return Ok(Vec::new());
    }
    let is_given = |path: &str| {
        paths.is_none_or(|paths| paths.iter().any(|given| Path::new(path).starts_with(given)))
    };
    let (released, own) = change(dir, |leases| {
        let own = leases.iter().filter(|lease| lease.owner == who.as_str());
        let own: Vec<String> = own.flat_map(|lease| lease.paths.clone()).collect();
        let is_meant = |lease: &Lease, path: &str| lease.owner == who.as_str() && is_given(path);
        let (change, released) = rules::release(leases, is_meant);
        (change, (released, own))
    })?;
    match paths {
        Some(given) if released.is_empty() => {
            Err(LeaseError::NotHeld { given: given.to_vec(), held: own })
        }
        Some(_) | None => Ok(released.into_iter().map(|(_, path)| path).collect()),
    }
}

/// Releases the lease with this id, or this path of any lease, for the person. Returns the released paths, each with
/// its owner; none if there is no such lease.
pub(crate) fn release_by_hand(
    dir: &TeamDir,
    id: &str,
    path: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    change(dir, |leases| {
        let is_id = leases.iter().any(|lease| lease.id == id);
        rules::release(leases, |lease, leased| if is_id { lease.id == id } else { leased == path })
    })
}

/// Removes the leases of processes that have ended. Returns them.
pub(crate) fn release_abandoned(dir: &TeamDir) -> Result<Vec<LeaseRecord>, StoreError> {
    let found = read(dir)?;
    if found.is_any_over() {
        change(dir, |_| (LeaseChange::default(), ()))?;
    }
    Ok(found.abandoned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LifeLock, LifeRecord, test_team};
    use crate::wire::file_view::{ContentHash, FileWrite};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    fn name(name: &str) -> AgentName {
        AgentName::member(name).unwrap()
    }

    fn start(dir: &TeamDir, who: &str) -> LifeLock {
        let incarnation = format!("{who}-1");
        let record = LifeRecord { incarnation, ..LifeRecord::of_this_process() };
        LifeLock::take(dir, &name(who), record).unwrap()
    }

    fn claim_as(dir: &TeamDir, who: &str, paths: &[&str]) -> Result<Vec<String>, LeaseError> {
        let paths = paths.iter().map(|path| (*path).into()).collect();
        claim(dir, &name(who), new_id(), paths, "why".into())
    }

    #[test]
    fn once_a_claim_has_succeeded_no_write_is_under_way_or_begins() {
        let (_folder, dir) = test_team();
        let _alice = start(&dir, "alice");
        let real = dir.workspace().canonicalize().unwrap().join("src/a");
        let (is_over, is_writing) = (AtomicBool::new(false), AtomicBool::new(false));
        let writes = AtomicUsize::new(0);
        let write = || {
            let mut lock = file_writes::FileLock::take(&dir, &real, LOCK_TIMEOUT).unwrap();
            if conflict(&dir, &name("bob"), "src/a").unwrap().is_none() {
                is_writing.store(true, Ordering::SeqCst);
                let hash = ContentHash::of(b"text");
                lock.begin(FileWrite { by: "bob".into(), hash, base: None }).unwrap();
                writes.fetch_add(1, Ordering::SeqCst);
                is_writing.store(false, Ordering::SeqCst);
                lock.end(true).unwrap();
            }
        };
        let is_broken = thread::scope(|scope| {
            let writer = || {
                while !is_over.load(Ordering::SeqCst) {
                    write();
                }
            };
            scope.spawn(writer);
            scope.spawn(writer);
            let round = || {
                // The writers have written something since the last round.
                let before = writes.load(Ordering::SeqCst);
                while writes.load(Ordering::SeqCst) == before {
                    thread::yield_now();
                }
                claim_as(&dir, "alice", &["src"]).unwrap();
                let seen = writes.load(Ordering::SeqCst);
                let mut is_broken = false;
                for _ in 0..20 {
                    is_broken |= is_writing.load(Ordering::SeqCst);
                    thread::yield_now();
                }
                is_broken |= writes.load(Ordering::SeqCst) != seen;
                release(&dir, &name("alice"), None).unwrap();
                is_broken
            };
            // A panic here would leave the writers running.
            let is_broken = (0..50).any(|_| round());
            is_over.store(true, Ordering::SeqCst);
            is_broken
        });
        assert!(!is_broken);
    }

    #[test]
    fn of_concurrent_claims_one_succeeds() {
        let (_folder, dir) = test_team();
        let names = ["alice", "bob", "carol"];
        let _lives = names.map(|who| start(&dir, who));
        for round in 0..20 {
            let claimed = thread::scope(|scope| {
                let claims = names.map(|who| scope.spawn(|| claim_as(&dir, who, &["src/x", who])));
                claims.map(|claim| claim.join().unwrap().is_ok())
            });
            assert_eq!(claimed.iter().filter(|is_ok| **is_ok).count(), 1, "{round}: {claimed:?}");
            let paths: usize = list(&dir).unwrap().leases.iter().map(|it| it.paths.len()).sum();
            assert_eq!(paths, 2, "a refused claim leaves nothing");
            for who in names {
                release(&dir, &name(who), None).unwrap();
            }
        }
    }

    #[test]
    fn a_lease_ends_with_its_process_and_its_files_are_removed_by_the_next_look() {
        let (_folder, dir) = test_team();
        let (alice, _bob) = (start(&dir, "alice"), start(&dir, "bob"));
        claim_as(&dir, "alice", &["src"]).unwrap();
        let refused = claim_as(&dir, "bob", &["src/a"]).unwrap_err();
        assert!(refused.to_string().contains("src/a is leased with src by alice"), "{refused}");
        assert!(refused.hint().contains("ask alice with send_message"), "{}", refused.hint());
        drop(alice);
        assert!(conflict(&dir, &name("bob"), "src/a").unwrap().is_none());
        assert_eq!(release_abandoned(&dir).unwrap().len(), 1);
        assert_eq!(release_abandoned(&dir).unwrap().len(), 0);
        let _alice = start(&dir, "alice");
        claim_as(&dir, "alice", &["src", "docs"]).unwrap();
        let id = list(&dir).unwrap().leases[0].id.clone();
        assert!(release_by_hand(&dir, "src/a", "src/a").unwrap().is_empty());
        let released = release_by_hand(&dir, "src", "src").unwrap();
        assert_eq!(released, [("alice".into(), "src".into())]);
        let released = release_by_hand(&dir, &id, &id).unwrap();
        assert_eq!(released, [("alice".into(), "docs".into())]);
        let refused = release(&dir, &name("alice"), Some(&["src".into()])).unwrap_err();
        assert!(refused.to_string().contains("you have leased nothing"), "{refused}");
    }
}
