//! Life locks: a name belongs to the process that holds the lock of `run/NAME.lock`, from its start to its exit.
//!
//! The kernel releases the lock when its holder exits, so only the lock decides whether a process is alive. The
//! contents of the file describe the holder. Only `clean` removes a lock file, and only while it holds the lock.

use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::os::identity::ProcessIdentity;
use crate::os::pidfd::Pidfd;
use crate::protocol::owner::OwnerLiveness;
use crate::store::file::atomic::json_line;
use crate::store::file::lock::{is_named, release, try_exclusive, try_shared};
use crate::store::file::read::{open_if_there, state_in};
use crate::store::{TeamDir, failpoint};
use crate::wire::{AgentName, MachineTime, WallTime};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The version of the protocol between the processes of a team.
pub const PROTOCOL_VERSION: u32 = 1;

/// The maximum time for which probes by other processes may delay an acquisition.
const PROBE_DELAY_LIMIT: Duration = Duration::from_secs(1);

/// The contents of a life lock's file, which describe its holder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LifeRecord {
    /// The pid of the holder.
    pub pid: i32,
    /// The start time of the process, in clock ticks since boot.
    pub start_time: u64,
    /// The boot id of the machine.
    pub boot_id: String,
    /// The incarnation, which changes with every start.
    pub incarnation: String,
    /// The [`PROTOCOL_VERSION`] of its program.
    pub protocol: u32,
    /// The id in the environment of its commands, by which they are found.
    #[serde(rename = "marker")]
    pub run_id: String,
    /// The time of the acquisition, for people.
    pub started_at: WallTime,
    /// The name of the process that started it, or `hand`.
    pub started_by: String,
    /// Whether its process may go on after it has left the team: another program runs it. A stop waits for the lock
    /// alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outlives_membership: bool,
    /// Whether it is a command that holds the name for a moment, so that no agent of it starts.
    #[serde(rename = "command", skip_serializing_if = "std::ops::Not::not")]
    pub is_command: bool,
    /// The time at which it detected the exit of its lead.
    pub lead_lost: Option<MachineTime>,
    /// The host on which the agent runs, if a relay holds the lock for it. Then no process of this host is the agent's, and
    /// `pid` is 0.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

impl LifeRecord {
    /// Creates a record of this process.
    pub fn of_this_process() -> Self {
        let ProcessIdentity { pid, start_time, boot_id } = ProcessIdentity::current();
        Self { pid, start_time, boot_id, protocol: PROTOCOL_VERSION, ..Self::default() }
    }

    /// Creates a record of this process, which is a command that holds a name so that no agent of it starts.
    pub(crate) fn of_command() -> Self {
        Self { is_command: true, ..Self::of_this_process() }
    }

    /// Returns the process that wrote the record.
    pub fn process(&self) -> ProcessIdentity {
        let boot_id = self.boot_id.clone();
        ProcessIdentity { pid: self.pid, start_time: self.start_time, boot_id }
    }

    /// Opens the process that wrote the record; `None` if it has ended.
    pub(crate) fn open_process(&self) -> Option<Pidfd> {
        if !self.host.is_empty() {
            return None;
        }
        // Opened before the comparison: a descriptor refers to one process for ever, a number does not.
        let process = Pidfd::open(self.pid).ok()?;
        self.process().is_running().then_some(process)
    }
}

/// Whether a process holds the life lock of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Liveness {
    /// The lock is held. The record is `None` while the holder writes it.
    Alive(Option<LifeRecord>),
    /// The lock is free, or was never taken.
    Dead,
}

impl Liveness {
    /// Whether the lock is held.
    pub fn is_alive(&self) -> bool {
        matches!(self, Self::Alive(_))
    }
}

/// The reason for which a name was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// Another process holds the name.
    #[error("the name {name} is in use{}", holder(record.as_deref()))]
    InUse {
        /// The name.
        name: AgentName,
        /// The record of the holder, if it can be read.
        record: Option<Box<LifeRecord>>,
    },
    /// The file cannot be opened or written.
    #[error(transparent)]
    File(#[from] FileError),
}

fn holder(record: Option<&LifeRecord>) -> String {
    match record {
        None => String::new(),
        Some(record) if record.host.is_empty() => format!(" by pid {}", record.pid),
        Some(record) => format!(" on host {}", record.host),
    }
}

/// The life lock of a name, which this process holds until the value is dropped.
#[derive(Debug)]
pub struct LifeLock {
    name: AgentName,
    path: PathBuf,
    file: File,
    record: LifeRecord,
}

impl LifeLock {
    /// Acquires the life lock of a name. Fails if another process holds it. Waits at most a second for its record.
    pub fn take(dir: &TeamDir, name: &AgentName, record: LifeRecord) -> Result<Self, LifeError> {
        check_blocking("lock");
        let path = dir.life(name);
        let start = Instant::now();
        let file = loop {
            let is_last = start.elapsed() > PROBE_DELAY_LIMIT;
            let file = open_or_create(&path, Access::Update)?;
            if try_exclusive(&file).at(&path)? {
                if is_named(&file) {
                    break file;
                }
                continue;
            }
            // If a shared lock is available, only probes hold the file.
            let is_held = !try_shared(&file).at(&path)?;
            let record = if is_held { read_record(&file).map(Box::new) } else { None };
            // A holder that has just acquired the lock has not written its record yet.
            if record.is_some() || is_last {
                return Err(LifeError::InUse { name: name.clone(), record });
            }
            if !is_held {
                release(&file);
            }
            thread::park_timeout(Duration::from_micros(200));
        };
        let lock = Self { name: name.clone(), path, file, record };
        failpoint::hit("life.locked");
        lock.write()?;
        failpoint::hit("life.written");
        Ok(lock)
    }

    /// Returns the name.
    pub fn name(&self) -> &AgentName {
        &self.name
    }

    /// Returns the place of the lock file, by which others check that it was not removed.
    pub(crate) fn place(&self) -> Result<LockPlace, FileError> {
        let inode = self.file.metadata().at(&self.path)?.ino();
        Ok(LockPlace { path: self.path.clone(), inode })
    }

    /// Returns the record in the file.
    pub fn record(&self) -> &LifeRecord {
        &self.record
    }

    /// Rewrites the record. Fails if the file cannot be written.
    pub fn update(&mut self, record: LifeRecord) -> Result<(), FileError> {
        self.record = record;
        self.write()
    }

    fn write(&self) -> Result<(), FileError> {
        let line = json_line(&self.record, &self.path)?;
        self.file.write_all_at(&line, 0).at(&self.path)?;
        self.file.set_len(line.len() as u64).at(&self.path)
    }
}

/// The place of a life lock's file. Only a person removes the file of a held lock, together with the team.
#[derive(Debug)]
pub(crate) struct LockPlace {
    path: PathBuf,
    inode: u64,
}

impl LockPlace {
    /// Whether the file is there no longer: its process counts as dead, whatever it does.
    pub(crate) fn is_removed(&self) -> bool {
        match fs::symlink_metadata(&self.path) {
            Ok(known) => known.ino() != self.inode,
            Err(why) => why.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl Drop for LifeLock {
    /// Unlocks explicitly: a forked child that has not reached its exec still has a copy of the descriptor.
    fn drop(&mut self) {
        release(&self.file);
    }
}

/// Probes whether `name` is alive. Creates no file; concurrent probes do not disturb each other.
pub fn probe(dir: &TeamDir, name: &AgentName) -> Result<Liveness, FileError> {
    let path = dir.life(name);
    match open_if_there(&path)? {
        Some((file, _)) if is_held(&file, &path)? => Ok(Liveness::Alive(read_record(&file))),
        Some(_) | None => Ok(Liveness::Dead),
    }
}

/// Returns the state of the process that has the name of an owner. A text that is no name has no process.
pub(crate) fn of_owner(dir: &TeamDir, owner: &str) -> OwnerLiveness {
    let Ok(name) = AgentName::mailbox(owner) else { return OwnerLiveness::Ended };
    match probe(dir, &name) {
        Ok(Liveness::Dead) => OwnerLiveness::Ended,
        Ok(Liveness::Alive(Some(record))) => OwnerLiveness::Running(record.incarnation),
        Ok(Liveness::Alive(None)) | Err(_) => OwnerLiveness::Unknown,
    }
}

/// Reads the record of the last holder of a name, whether it is dead or alive.
pub fn last_record(dir: &TeamDir, name: &AgentName) -> Result<Option<LifeRecord>, FileError> {
    Ok(open_if_there(&dir.life(name))?.and_then(|(file, _)| read_record(&file)))
}

/// Returns the live agent with such a record. Fails if the life locks cannot be listed.
pub(crate) fn find_alive(
    dir: &TeamDir,
    is_meant: impl Fn(&LifeRecord) -> bool,
) -> Result<Option<AgentName>, FileError> {
    for name in dir.agents_with_locks()? {
        if let Liveness::Alive(Some(record)) = probe(dir, &name)?
            && is_meant(&record)
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn is_held(file: &File, path: &Path) -> Result<bool, FileError> {
    let is_free = try_shared(file).at(path)?;
    if is_free {
        release(file);
    }
    Ok(!is_free)
}

/// The life lock of a name that is probed often. Its file stays open while it is held.
#[derive(Debug)]
pub(crate) struct LifeState {
    path: PathBuf,
    file: Option<File>,
}

impl LifeState {
    pub(crate) fn of(dir: &TeamDir, name: &AgentName) -> Self {
        Self { path: dir.life(name), file: None }
    }

    /// Like [`probe`], without the record.
    pub(crate) fn is_alive(&mut self) -> Result<bool, FileError> {
        if let Some(file) = &self.file
            && is_held(file, &self.path)?
        {
            return Ok(true);
        }
        // The open file is free, or was removed with its team folder: open the current one.
        let Some((file, _)) = open_if_there(&self.path)? else { return Ok(false) };
        let is_held = is_held(&file, &self.path)?;
        self.file = is_held.then_some(file);
        Ok(is_held)
    }
}

pub(crate) fn read_record(file: &File) -> Option<LifeRecord> {
    state_in(file).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn a_name_is_alive_while_the_lock_is_held() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(probe(&dir, &alice).unwrap(), Liveness::Dead);
        assert!(!dir.life(&alice).exists());
        let mut state = LifeState::of(&dir, &alice);
        assert!(!state.is_alive().unwrap());

        let record = LifeRecord { run_id: "m".repeat(200), ..LifeRecord::of_this_process() };
        let mut lock = LifeLock::take(&dir, &alice, record.clone()).unwrap();
        assert_eq!(probe(&dir, &alice).unwrap(), Liveness::Alive(Some(record.clone())));
        assert!(state.is_alive().unwrap() && state.is_alive().unwrap());
        assert!(record.process().is_running());
        match LifeLock::take(&dir, &alice, record.clone()) {
            Err(LifeError::InUse { record: Some(holder), .. }) => assert_eq!(*holder, record),
            other => panic!("{other:?}"),
        }

        let shorter = LifeRecord { run_id: String::new(), ..record };
        lock.update(shorter.clone()).unwrap();
        assert_eq!(probe(&dir, &alice).unwrap(), Liveness::Alive(Some(shorter)));
        drop(lock);
        assert_eq!(probe(&dir, &alice).unwrap(), Liveness::Dead);
        assert!(!state.is_alive().unwrap());
        std::fs::remove_file(dir.life(&alice)).unwrap();
        assert!(!state.is_alive().unwrap());
    }

    #[test]
    fn probes_do_not_prevent_the_acquisition_of_a_free_name() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        drop(LifeLock::take(&dir, &alice, LifeRecord::default()).unwrap());
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        probe(&dir, &alice).unwrap();
                    }
                });
            }
            let taken: Vec<_> = (0..50)
                .map(|_| LifeLock::take(&dir, &alice, LifeRecord::default()).map(drop))
                .collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(taken.iter().all(Result::is_ok), "{taken:?}");
        });
    }
}
