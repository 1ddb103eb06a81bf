//! The leases on disk: one file for each claim, replaced whole, all under one side lock.
//!
//! A file that cannot be read excludes no agent from any path: it is reported, and quarantined by the next writer. No
//! lease is synced to the disk, since none outlives its process.

use super::file::atomic::{Fsync, pretty_json, remove, replace, replaced_by};
use super::file::lock::exclusive;
use super::file::read::{names_in, newer_version, open_if_there, quarantine};
use super::process::liveness;
use super::tasks::Problem;
use super::{StoreError, TeamDir};
use crate::protocol::leases::{LeaseChange, LeaseRecord, is_leasable};
use crate::protocol::owner::OwnerLiveness;
use crate::wire::FORMAT_VERSION;
use crate::wire::limits::LOCK_TIMEOUT;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// The maximum size of a lease file that is read, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The leases in the folder.
#[derive(Debug, Default)]
pub(crate) struct LeaseFiles {
    /// The leases of agents that run.
    pub(crate) leases: Vec<LeaseRecord>,
    /// The leases of processes that have ended.
    pub(crate) abandoned: Vec<LeaseRecord>,
    pub(crate) problems: Vec<Problem>,
    /// The ids of the files that are no leases.
    damaged: Vec<String>,
    /// Temporary files of writers that are at work or were killed.
    unfinished: Vec<PathBuf>,
}

impl LeaseFiles {
    /// Whether the next writer has something to remove.
    pub(crate) fn is_any_over(&self) -> bool {
        !self.abandoned.is_empty() || !self.unfinished.is_empty()
    }
}

/// The result of reading a lease file.
enum LeaseReadOutcome {
    Lease(Box<LeaseRecord>),
    /// The file cannot be read, and is not quarantined.
    Problem(String),
    Damaged(String),
    Gone,
}

/// Reads the folder without changing it. Fails if the folder cannot be read.
pub(crate) fn read(dir: &TeamDir) -> Result<LeaseFiles, StoreError> {
    let mut found = LeaseFiles::default();
    let mut owners: BTreeMap<String, OwnerLiveness> = BTreeMap::new();
    let mut names = names_in(&dir.leases())?;
    names.sort();
    for name in names {
        let Some(id) = id_of(&name) else {
            if name.contains(".json.bad-") {
                let why = "no lease could be read from it, so it was moved aside".into();
                found.problems.push(Problem { file: name, why });
            } else if replaced_by(&name).and_then(id_of).is_some() {
                found.unfinished.push(dir.leases().join(name));
            }
            continue;
        };
        match read_lease(dir, id) {
            LeaseReadOutcome::Gone => {}
            LeaseReadOutcome::Problem(why) => found.problems.push(Problem { file: name, why }),
            LeaseReadOutcome::Damaged(why) => {
                found.damaged.push(id.into());
                found.problems.push(Problem { file: name, why });
            }
            LeaseReadOutcome::Lease(lease) => {
                let owner = owners
                    .entry(lease.owner.clone())
                    .or_insert_with(|| liveness::of_owner(dir, &lease.owner));
                let is_over = owner.has_ended(lease.incarnation.as_deref());
                if is_over { &mut found.abandoned } else { &mut found.leases }.push(*lease);
            }
        }
    }
    Ok(found)
}

/// Changes the leases under their lock, after those of processes that have ended were removed. `decide` gets the
/// others.
pub(crate) fn change<R>(
    dir: &TeamDir,
    decide: impl FnOnce(&[LeaseRecord]) -> (LeaseChange, R),
) -> Result<R, StoreError> {
    if !dir.leases_lock().parent().is_some_and(std::path::Path::is_dir) {
        dir.complete()?;
    }
    let held = exclusive(&dir.leases_lock(), LOCK_TIMEOUT)?;
    let LeaseFiles { leases, abandoned, damaged, unfinished, .. } = read(dir)?;
    for id in &damaged {
        quarantine(&dir.lease(id))?;
    }
    for path in &unfinished {
        // No writer is at work while the lock is held here.
        remove(path)?;
    }
    for lease in &abandoned {
        remove(&dir.lease(&lease.id))?;
    }
    let (LeaseChange { stored, removed }, answer) = decide(&leases);
    for lease in &stored {
        let path = dir.lease(&lease.id);
        if lease.version > FORMAT_VERSION {
            return Err(StoreError::Newer { path, found: lease.version.into() });
        }
        replace(&path, &pretty_json(lease, &path)?, Fsync::Never)?;
    }
    for id in &removed {
        remove(&dir.lease(id))?;
    }
    drop(held);
    Ok(answer)
}

/// Returns all files in the folder.
pub(crate) fn files(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths: Vec<PathBuf> =
        names_in(&dir.leases())?.iter().map(|name| dir.leases().join(name)).collect();
    paths.retain(|path| path.is_file());
    Ok(paths)
}

fn id_of(name: &str) -> Option<&str> {
    name.strip_suffix(".json").filter(|id| !id.is_empty() && !id.starts_with('.'))
}

fn read_lease(dir: &TeamDir, id: &str) -> LeaseReadOutcome {
    let (file, known) = match open_if_there(&dir.lease(id)) {
        Ok(Some(opened)) => opened,
        Ok(None) => return LeaseReadOutcome::Gone,
        Err(why) => return LeaseReadOutcome::Problem(why.to_string()),
    };
    if known.len() > LONGEST {
        let why = format!("{} bytes are too many for a lease", known.len());
        return LeaseReadOutcome::Problem(why);
    }
    let mut text = Vec::new();
    if let Err(why) = file.take(LONGEST).read_to_end(&mut text) {
        return LeaseReadOutcome::Problem(why.to_string());
    }
    match serde_json::from_slice::<LeaseRecord>(&text) {
        Ok(mut lease) => match lease.paths.iter().find(|path| !is_leasable(path)) {
            Some(path) => LeaseReadOutcome::Damaged(format!(
                "not a lease: {path:?} is no path below the workspace"
            )),
            None => {
                lease.id = id.into();
                LeaseReadOutcome::Lease(Box::new(lease))
            }
        },
        Err(why) => match newer_version(&text) {
            Some(found) => LeaseReadOutcome::Problem(format!(
                "its format version is {found}, which is not known here"
            )),
            None => LeaseReadOutcome::Damaged(format!("not a lease: {why}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LifeLock, LifeRecord, test_team};
    use crate::wire::AgentName;
    use crate::wire::lease::Lease;
    use std::fs;

    #[expect(clippy::disallowed_methods, reason = "another program writes a lease")]
    fn put(dir: &TeamDir, name: &str, text: &str) {
        fs::write(dir.leases().join(name), text).unwrap();
    }

    fn names(dir: &TeamDir) -> Vec<String> {
        let mut names = names_in(&dir.leases()).unwrap();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }

    fn start(dir: &TeamDir, incarnation: &str) -> LifeLock {
        let record =
            LifeRecord { incarnation: incarnation.into(), ..LifeRecord::of_this_process() };
        LifeLock::take(dir, &AgentName::member("alice").unwrap(), record).unwrap()
    }

    #[test]
    fn a_lease_counts_while_its_incarnation_runs_and_keeps_unknown_fields() {
        let (_folder, dir) = test_team();
        let text = r#"{"owner":"alice","incarnation":"i1","paths":["src"],"color":"red"}"#;
        put(&dir, "1.json", text);
        put(&dir, "2.json", r#"{"owner":"alice","paths":["docs"]}"#);
        assert_eq!(read(&dir).unwrap().leases.len(), 0, "nobody runs");
        let life = start(&dir, "i1");
        let found = read(&dir).unwrap();
        let ids: Vec<&str> = found.leases.iter().map(|lease| lease.id.as_str()).collect();
        assert_eq!((ids, found.is_any_over()), (vec!["1", "2"], false));
        change(&dir, |leases| {
            let mut lease = leases[0].clone();
            lease.why = "new".into();
            (LeaseChange { stored: vec![lease], removed: vec!["2".into()] }, ())
        })
        .unwrap();
        let kept: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.lease("1")).unwrap()).unwrap();
        assert_eq!(
            (&kept["color"], &kept["why"], &kept["id"]),
            (&"red".into(), &"new".into(), &"1".into())
        );
        drop(life);
        let _life = start(&dir, "i2");
        let found = read(&dir).unwrap();
        assert!(found.leases.is_empty() && found.is_any_over(), "{found:?}");
        change(&dir, |leases| (LeaseChange::default(), assert!(leases.is_empty()))).unwrap();
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
    }

    #[test]
    fn a_bad_file_excludes_nobody_and_is_put_aside() {
        let (_folder, dir) = test_team();
        let _life = start(&dir, "i1");
        put(&dir, "1.json", "{");
        put(&dir, "2.json", r#"{"owner":"alice","paths":["../out"]}"#);
        put(&dir, "3.json", r#"{"version":99,"owner":7}"#);
        put(&dir, "4.json", r#"{"owner":"../x","paths":["src"]}"#);
        put(&dir, ".5.json.new", "{");
        fs::create_dir(dir.lease("6")).unwrap();
        let found = read(&dir).unwrap();
        assert!(found.leases.is_empty());
        let files: Vec<&str> = found.problems.iter().map(|it| it.file.as_str()).collect();
        assert_eq!(files, ["1.json", "2.json", "3.json", "6.json"]);
        change(&dir, |_| (LeaseChange::default(), ())).unwrap();
        assert_eq!(names(&dir), ["1.json.bad-1", "2.json.bad-1", "3.json", "6.json"]);
        let lease = Lease {
            version: 99,
            owner: "alice".into(),
            paths: vec!["a".into()],
            ..Lease::default()
        };
        let newer = LeaseChange { stored: vec![lease.into()], removed: Vec::new() };
        assert!(matches!(change(&dir, |_| (newer, ())), Err(StoreError::Newer { .. })));
    }
}
