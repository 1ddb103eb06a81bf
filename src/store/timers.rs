//! The timers on disk: one file for each member, replaced whole under a side lock, which is then touched.
//!
//! A file that cannot be read is reported, and quarantined by the next writer. The owner of a mailbox watches the lock
//! file of its timers together with its inbox, so that a change wakes it at once.

use super::file::atomic::{Fsync, pretty_json, replace, replaced_by};
use super::file::lock::exclusive;
use super::file::read::{
    Stamp, known_if_there, names_in, newer_version, open_if_there, quarantine, stamp,
};
use super::tasks::Problem;
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, open_or_create};
use crate::os::watch::{notify, touch};
use crate::protocol::timers::{TimerListRecord, TimerRecord};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::{AgentName, FORMAT_VERSION};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The maximum size of a file of timers that is read, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The result of reading the timers of a member.
#[derive(Debug)]
pub(crate) enum TimersRead {
    List(Box<TimerListRecord>),
    /// The file is not a list of timers, for this reason.
    Damaged(String),
    None,
}

/// The timers of a member.
#[derive(Debug)]
pub(crate) struct MemberTimers {
    pub(crate) owner: AgentName,
    pub(crate) timers: Vec<TimerRecord>,
}

/// The timers of all members, and the files that are none.
#[derive(Debug, Default)]
pub(crate) struct AllTimers {
    pub(crate) members: Vec<MemberTimers>,
    pub(crate) problems: Vec<Problem>,
}

/// The metadata of a member's file, by which a change is noticed without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimersStamp(Option<Stamp>);

/// Returns the stamp of a member's file. A file that cannot be inspected counts as missing.
pub(crate) fn current_stamp(dir: &TeamDir, owner: &AgentName) -> TimersStamp {
    TimersStamp(known_if_there(&dir.timers_of(owner)).ok().flatten().map(|known| stamp(&known)))
}

/// Reads the timers of a member without changing anything.
pub(crate) fn read(dir: &TeamDir, owner: &AgentName) -> Result<TimersRead, StoreError> {
    let path = dir.timers_of(owner);
    let Some((file, known)) = open_if_there(&path)? else { return Ok(TimersRead::None) };
    if known.len() > LONGEST {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge)).at(&path)?;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).at(&path)?;
    match serde_json::from_slice::<TimerListRecord>(&text) {
        Ok(list) => Ok(TimersRead::List(Box::new(list))),
        Err(why) => match newer_version(&text) {
            Some(found) => Err(StoreError::Newer { path, found }),
            None => Ok(TimersRead::Damaged(format!("not a list of timers: {why}"))),
        },
    }
}

/// Changes the timers of a member under their lock. A damaged file is quarantined first. `decide` gets the list, which
/// is stored if it has changed.
pub(crate) fn change<R>(
    dir: &TeamDir,
    owner: &AgentName,
    fsync: Fsync,
    decide: impl FnOnce(&mut TimerListRecord) -> R,
) -> Result<R, StoreError> {
    let (path, lock) = (dir.timers_of(owner), dir.timers_lock(owner));
    if !lock.parent().is_some_and(Path::is_dir) {
        dir.complete()?;
    }
    let held = exclusive(&lock, LOCK_TIMEOUT)?;
    let mut list = match read(dir, owner)? {
        TimersRead::List(list) => *list,
        TimersRead::None => TimerListRecord::default(),
        TimersRead::Damaged(why) => {
            tracing::warn!(%owner, why, "the timers cannot be read and were moved aside");
            quarantine(&path)?;
            TimerListRecord::default()
        }
    };
    if list.version > FORMAT_VERSION {
        return Err(StoreError::Newer { path, found: list.version.into() });
    }
    let before = list.clone();
    let answer = decide(&mut list);
    if list != before {
        replace(&path, &pretty_json(&list, &path)?, fsync)?;
        let lock_file = open_or_create(&lock, Access::Update)?;
        touch(&lock_file).at(&lock)?;
        notify(&dir.fifo(owner));
    }
    drop(held);
    Ok(answer)
}

/// Reads the timers of all members, sorted by name, without changing anything.
pub(crate) fn read_all(dir: &TeamDir) -> Result<AllTimers, StoreError> {
    let mut all = AllTimers::default();
    let mut names = names_in(&dir.timers())?;
    names.sort();
    for name in names {
        let owner = name.strip_suffix(".json").and_then(|stem| AgentName::mailbox(stem).ok());
        let Some(owner) = owner else {
            if name.contains(".json.bad-") {
                let why = "no timers could be read from it, so it was moved aside".into();
                all.problems.push(Problem { file: name, why });
            }
            continue;
        };
        match read(dir, &owner) {
            Ok(TimersRead::List(list)) => {
                all.members.push(MemberTimers { owner, timers: list.timers.clone() });
            }
            Ok(TimersRead::None) => {}
            Ok(TimersRead::Damaged(why)) => all.problems.push(Problem { file: name, why }),
            Err(why) => all.problems.push(Problem { file: name, why: why.to_string() }),
        }
    }
    Ok(all)
}

/// The files of a member's timers.
#[derive(Debug, Default)]
pub(crate) struct TimerFiles {
    /// Files with open timers, and files that cannot be read.
    pub(crate) in_use: Vec<PathBuf>,
    /// Files without open timers, and drafts of writers that were killed.
    pub(crate) left_over: Vec<PathBuf>,
}

/// Returns the files of a member's timers. Call it while no writer is at work.
pub(crate) fn files(dir: &TeamDir, owner: &AgentName) -> Result<TimerFiles, StoreError> {
    let mut found = TimerFiles::default();
    let path = dir.timers_of(owner);
    let file_name = format!("{owner}.json");
    for name in names_in(&dir.timers())? {
        let beside = dir.timers().join(&name);
        if replaced_by(&name) == Some(&file_name) {
            found.left_over.push(beside);
        } else if name.strip_prefix(&file_name).is_some_and(|rest| rest.starts_with(".bad-")) {
            found.in_use.push(beside);
        }
    }
    match read(dir, owner) {
        Ok(TimersRead::None) => {}
        Ok(TimersRead::List(list)) if list.timers.is_empty() => found.left_over.push(path),
        Ok(TimersRead::List(_) | TimersRead::Damaged(_)) | Err(_) => found.in_use.push(path),
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use crate::wire::timer::Timer;
    use std::fs;

    #[expect(clippy::disallowed_methods, reason = "another program writes timers")]
    fn put(dir: &TeamDir, text: &str) {
        fs::write(dir.timers_of(&alice()), text).unwrap();
    }

    fn alice() -> AgentName {
        AgentName::member("alice").unwrap()
    }

    fn timer(id: &str) -> TimerRecord {
        Timer { id: id.into(), text: "x".into(), due: 5.0.into(), ..Timer::default() }.into()
    }

    fn names(dir: &TeamDir) -> Vec<String> {
        let mut names = names_in(&dir.timers()).unwrap();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }

    #[test]
    fn a_change_keeps_unknown_fields_and_no_change_writes_nothing() {
        let (_folder, dir) = test_team();
        assert!(matches!(read(&dir, &alice()).unwrap(), TimersRead::None));
        change(&dir, &alice(), Fsync::Never, |_| ()).unwrap();
        assert!(names(&dir).is_empty());
        put(&dir, r#"{"timers":[{"id":"1","text":"x","due":1,"color":"red"}],"shape":2}"#);
        let before = current_stamp(&dir, &alice());
        change(&dir, &alice(), Fsync::Never, |list| list.timers.push(timer("2"))).unwrap();
        assert_ne!(current_stamp(&dir, &alice()), before);
        let text = fs::read_to_string(dir.timers_of(&alice())).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&kept["shape"], &kept["timers"][0]["color"]), (&2.into(), &"red".into()));
        assert_eq!(kept["timers"][1]["id"], "2");
        assert_eq!(read_all(&dir).unwrap().members[0].timers.len(), 2);
    }

    #[test]
    fn a_damaged_file_is_reported_and_put_aside_and_a_newer_one_is_kept() {
        let (_folder, dir) = test_team();
        put(&dir, "{");
        let found = read_all(&dir).unwrap();
        assert_eq!((found.members.len(), found.problems[0].file.as_str()), (0, "alice.json"));
        change(&dir, &alice(), Fsync::Never, |list| list.timers.push(timer("1"))).unwrap();
        assert_eq!(names(&dir), ["alice.json", "alice.json.bad-1"]);
        for newer in [r#"{"version":99,"timers":[]}"#, r#"{"version":99,"timers":7}"#] {
            put(&dir, newer);
            let refused = change(&dir, &alice(), Fsync::Never, |list| list.last = 5);
            assert!(matches!(refused, Err(StoreError::Newer { found: 99, .. })), "{refused:?}");
            assert_eq!(fs::read_to_string(dir.timers_of(&alice())).unwrap(), newer);
        }
    }

    #[test]
    fn only_files_without_open_timers_are_left_over() {
        let (_folder, dir) = test_team();
        put(&dir, r#"{"timers":[]}"#);
        let bob = AgentName::member("bob").unwrap();
        change(&dir, &bob, Fsync::Never, |list| list.timers.push(timer("1"))).unwrap();
        assert_eq!(files(&dir, &alice()).unwrap().left_over, [dir.timers_of(&alice())]);
        assert_eq!(files(&dir, &bob).unwrap().in_use, [dir.timers_of(&bob)]);
        put(&dir, "{");
        change(&dir, &alice(), Fsync::Never, |_| ()).unwrap();
        assert_eq!(names(&dir), ["alice.json.bad-1", "bob.json"]);
        assert_eq!(files(&dir, &alice()).unwrap().in_use.len(), 1);
    }
}
