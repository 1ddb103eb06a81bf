//! Diagnoses a team folder without changing it.

use crate::os::file::{At, check_owner};
use crate::os::identity::boot_id;
use crate::store::mailbox::claim::list;
use crate::store::mailbox::dead;
use crate::store::process::liveness::{Liveness, last_record, probe};
use crate::store::tasks::TaskList;
use crate::store::{Fsync, StoreError, TeamDir, leases, roster, timers};
use crate::wire::AgentName;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A problem of a team folder, or a fact that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Diagnosis {
    /// Other users may read or write this path.
    Open(PathBuf),
    /// The path is a link, or belongs to another user.
    Foreign(String),
    DamagedRoster,
    /// A file of the task list is not a task.
    DamagedTask(String),
    /// A file of the leases is not a lease.
    DamagedLease(String),
    /// A file of the timers is no list of timers.
    DamagedTimers(String),
    /// The roster shows a member as alive, but no process holds its life lock.
    Ghost {
        name: String,
        /// Whether the machine was rebooted since.
        is_of_another_boot: bool,
    },
    /// Claims that a dead owner has not acted on.
    Claims {
        name: AgentName,
        count: usize,
    },
    /// Lines that could not be delivered.
    DeadLetters {
        name: AgentName,
        count: usize,
    },
}

/// Returns all problems of a team folder. Fails if a file or folder cannot be inspected.
pub(crate) fn flaws(dir: &TeamDir) -> Result<Vec<Diagnosis>, StoreError> {
    let mut flaws = Vec::new();
    if !dir.has_state() {
        // No team has run here: a person made the folder, and the first start sets its modes.
        return Ok(flaws);
    }
    modes(dir.root(), &dir.committed_paths(), &mut flaws)?;
    if roster::is_damaged(dir)? {
        flaws.push(Diagnosis::DamagedRoster);
    }
    let mut tasks = TaskList::of(dir, Fsync::Never);
    if dir.tasks().exists() {
        tasks.look()?;
    }
    flaws.extend(tasks.problems().iter().map(|bad| {
        Diagnosis::DamagedTask(format!("{}: {}", dir.tasks().join(&bad.file).display(), bad.why))
    }));
    flaws.extend(leases::read(dir)?.problems.iter().map(|bad| {
        Diagnosis::DamagedLease(format!("{}: {}", dir.leases().join(&bad.file).display(), bad.why))
    }));
    flaws.extend(timers::read_all(dir)?.problems.iter().map(|bad| {
        Diagnosis::DamagedTimers(format!("{}: {}", dir.timers().join(&bad.file).display(), bad.why))
    }));
    let roster = roster::read(dir)?;
    for (name, _, is_over) in roster::incarnations(&roster) {
        let Ok(owner) = AgentName::mailbox(&name) else { continue };
        // Of a member of another host, this one knows what that host has told.
        let is_here = roster.host_of(&name).is_none();
        if is_here && !is_over && probe(dir, &owner)? == Liveness::Dead {
            let record = last_record(dir, &owner)?;
            let is_of_another_boot = record.is_some_and(|record| record.boot_id != boot_id());
            flaws.push(Diagnosis::Ghost { name, is_of_another_boot });
        }
    }
    for name in dir.agents()? {
        if probe(dir, &name)? == Liveness::Dead {
            let count = list(dir, &name)?.iter().filter(|claim| !claim.is_taken).count();
            flaws.extend((count > 0).then(|| Diagnosis::Claims { name: name.clone(), count }));
        }
        let count = dead::read_all(dir, &name)?.len();
        flaws.extend((count > 0).then_some(Diagnosis::DeadLetters { name, count }));
    }
    Ok(flaws)
}

/// Checks modes and owners. The committed files are skipped, since their modes are up to the user.
fn modes(
    folder: &Path,
    committed: &[PathBuf],
    flaws: &mut Vec<Diagnosis>,
) -> Result<(), StoreError> {
    let known = fs::symlink_metadata(folder).at(folder)?;
    if known.permissions().mode() & 0o077 != 0 {
        flaws.push(Diagnosis::Open(folder.into()));
    }
    for entry in fs::read_dir(folder).at(folder)? {
        let entry = entry.at(folder)?;
        // A file that was removed meanwhile is no problem. No path is made for most files, of which there may be many.
        let Ok(known) = entry.metadata() else { continue };
        let is_open = known.permissions().mode() & 0o077 != 0;
        if known.is_file() && !is_open && is_own(&known) {
            continue;
        }
        let path = entry.path();
        if committed.contains(&path) {
            continue;
        }
        if known.is_symlink() {
            flaws.push(Diagnosis::Foreign(format!("{} is a symbolic link", path.display())));
        } else if let Err(why) = check_owner(&path, &known) {
            flaws.push(Diagnosis::Foreign(why.to_string()));
        } else if known.is_dir() {
            modes(&path, &[], flaws)?;
        } else if is_open {
            flaws.push(Diagnosis::Open(path));
        }
    }
    Ok(())
}

fn is_own(known: &Metadata) -> bool {
    check_owner(Path::new(""), known).is_ok()
}
