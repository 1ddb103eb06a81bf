//! Leases of other agents while a command runs: their paths are read-only for it, or it is said that they were changed.
//!
//! Behind walls with namespaces, a leased path is a read-only mount of the command. A path that does not exist cannot be
//! mounted, and without namespaces none can: such paths are compared before and after the command. Of a mounted path only
//! the inodes on the way to it are compared: a folder above it can be moved, and the mount of a file ends when its owner
//! replaces the file. A change is said to the agent and to the owner of the lease, and is not undone.

use crate::bus::Outgoing;
use crate::os::wall::Walls;
use crate::store::asynchronous::offload;
use crate::store::{TeamDir, file_writes};
use crate::tools::call::Call;
use crate::tools::leased_paths::{LeasedPath, MOST_MOUNTED, leased_by_others};
use crate::tools::registry::ToolParts;
use crate::tools::team_context::TeamContext;
use crate::wire::AgentName;
use crate::wire::file_view::ContentHash;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of files that are compared for a command. Of larger folders only a part is.
const MOST_COMPARED: usize = 10_000;

/// The maximum number of paths that a text names.
const MOST_NAMED: usize = 5;

/// The maximum size of a file whose content is compared with the last write of the owner, in bytes.
const MOST_HASHED: u64 = 8 * 1024 * 1024;

/// The maximum number of characters of a command in the mail to the owner of a lease.
const COMMAND_CHARS: usize = 200;

/// The words of programs about a file that is read-only or a mount point.
const REFUSALS: [&str; 2] = ["read-only file system", "device or resource busy"];

#[derive(Debug, Default)]
pub(super) struct LeaseGuard {
    mounted: Vec<LeasedPath>,
    compared: Vec<ComparedPath>,
}

#[derive(Debug)]
struct ComparedPath {
    leased: LeasedPath,
    is_mounted: bool,
    before: Contents,
}

/// The files at and below a path.
#[derive(Debug, Default)]
struct Contents {
    files: BTreeMap<PathBuf, FileState>,
    /// Whether `files` are all of them.
    is_whole: bool,
}

/// Size, modification time in seconds and nanoseconds, and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState(u64, i64, i64, u64);

/// The changed files of a lease.
#[derive(Debug, PartialEq, Eq)]
struct ChangedLease {
    leased: LeasedPath,
    /// The paths, relative to the workspace.
    files: Vec<String>,
}

impl LeaseGuard {
    /// Prepares the guard of a command of this agent. In a clone, no lease counts.
    pub(super) async fn of(parts: &ToolParts, walls: Option<&Walls>) -> Self {
        if parts.work.is_some() {
            return Self::default();
        }
        let (dir, me) = (parts.team.bus.dir().clone(), parts.team.me.clone());
        let workspace = parts.files.workspace.path().to_owned();
        let has_mounts = walls.is_some_and(Walls::has_namespaces);
        offload(move || Self::before(&dir, &me, &workspace, has_mounts)).await
    }

    fn before(dir: &TeamDir, me: &AgentName, workspace: &Path, has_mounts: bool) -> Self {
        let mut guard = Self::default();
        let mut left = MOST_COMPARED;
        for leased in leased_by_others(dir, me, workspace) {
            let is_there = fs::symlink_metadata(&leased.real).is_ok();
            let is_mounted = has_mounts && is_there && guard.mounted.len() < MOST_MOUNTED;
            if is_mounted {
                guard.mounted.push(leased.clone());
            }
            let before = look(&leased, workspace, is_mounted, &mut left);
            guard.compared.push(ComparedPath { leased, is_mounted, before });
        }
        guard
    }

    /// Returns the paths that the command may only read.
    pub(super) fn read_only(&self) -> Vec<PathBuf> {
        self.mounted.iter().map(|leased| leased.real.clone()).collect()
    }

    /// Returns texts below the `output` of the command, which has ended: the leases that may have refused something, and
    /// those whose files were changed. Tells the owners of the latter.
    pub(super) async fn report(
        mut self,
        call: &Call,
        (command, output): (&str, &str),
        parts: &ToolParts,
    ) -> String {
        let mut text = self.explain(output);
        let compared = std::mem::take(&mut self.compared);
        if compared.is_empty() {
            return text;
        }
        let team = &parts.team;
        let (dir, me) = (team.bus.dir().clone(), team.me.clone());
        let workspace = parts.files.workspace.path().to_owned();
        let changed = offload(move || changed(&dir, &me, &workspace, compared)).await;
        let mut by_owner: BTreeMap<&str, Vec<&ChangedLease>> = BTreeMap::new();
        for change in &changed {
            by_owner.entry(&change.leased.owner).or_default().push(change);
        }
        for (owner, changes) in by_owner {
            let told = match tell(owner, &changes, command, call, team).await {
                Ok(()) => format!("{owner} was told"),
                Err(why) => format!("{owner} was not told ({why}); send a message yourself"),
            };
            for ChangedLease { leased, files } in changes {
                let (files, why) = (named(files.iter()), &leased.why);
                let verb = if files.contains(", ") { "were" } else { "was" };
                let _infallible = write!(
                    text,
                    "\n[lease: {files}, leased by {owner} ({why}), {verb} changed while this command ran; {told}]"
                );
            }
        }
        text
    }

    /// Names the read-only paths if a program has printed that it could not change one.
    pub(super) fn explain(&self, output: &str) -> String {
        let output = output.to_lowercase();
        if self.mounted.is_empty() || !REFUSALS.iter().any(|words| output.contains(words)) {
            return String::new();
        }
        let paths: Vec<String> = self
            .mounted
            .iter()
            .map(|LeasedPath { path, owner, why, .. }| format!("{path}, leased by {owner} ({why})"))
            .collect();
        format!("\n[lease: read-only for this command: {}]", named(paths.iter()))
    }
}

/// Returns the changes of paths that are still leased.
fn changed(
    dir: &TeamDir,
    me: &AgentName,
    workspace: &Path,
    compared: Vec<ComparedPath>,
) -> Vec<ChangedLease> {
    let still = leased_by_others(dir, me, workspace);
    let mut left = MOST_COMPARED;
    let mut found = Vec::new();
    for ComparedPath { leased, is_mounted, before } in compared {
        let now = look(&leased, workspace, is_mounted, &mut left);
        let mut files = before.changes(&now);
        files.retain(|real| !is_written_by(dir, &leased.owner, real));
        if is_mounted && !files.is_empty() {
            files = vec![leased.real.clone()];
        }
        if !files.is_empty() && still.contains(&leased) {
            let shown =
                |real: &PathBuf| real.strip_prefix(workspace).unwrap_or(real).display().to_string();
            found.push(ChangedLease { leased, files: files.iter().map(shown).collect() });
        }
    }
    found
}

/// Whether the content of a file is what a file tool of this agent wrote last.
fn is_written_by(dir: &TeamDir, owner: &str, real: &Path) -> bool {
    let last = file_writes::last_write(dir, real).ok().flatten();
    let Some(last) = last.filter(|last| last.by == owner) else { return false };
    let mut bytes = Vec::new();
    let file = File::open(real).ok().filter(|file| {
        file.metadata().is_ok_and(|known| known.is_file() && known.len() <= MOST_HASHED)
    });
    file.is_some_and(|file| file.take(MOST_HASHED).read_to_end(&mut bytes).is_ok())
        && ContentHash::of(&bytes) == last.hash
}

/// Looks at what a command can change of a leased path.
fn look(leased: &LeasedPath, workspace: &Path, is_mounted: bool, left: &mut usize) -> Contents {
    if is_mounted {
        Contents::of_way(&leased.real, workspace)
    } else {
        Contents::of(&leased.real, left)
    }
}

impl FileState {
    fn of(known: &Metadata) -> Self {
        Self(known.len(), known.mtime(), known.mtime_nsec(), known.ino())
    }
}

impl Contents {
    /// Looks at the files at and below a path, at most `left` of them. Links are not followed.
    fn of(path: &Path, left: &mut usize) -> Self {
        let mut found = Self { files: BTreeMap::new(), is_whole: true };
        let mut ahead = vec![path.to_owned()];
        while let Some(path) = ahead.pop() {
            let Ok(known) = fs::symlink_metadata(&path) else { continue };
            if known.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                ahead.extend(entries.map(|entry| entry.path()));
            } else if *left == 0 {
                found.is_whole = false;
                break;
            } else {
                *left -= 1;
                found.files.insert(path, FileState::of(&known));
            }
        }
        found
    }

    /// Looks at the inodes of a path and of the folders above it, up to the workspace.
    fn of_way(path: &Path, workspace: &Path) -> Self {
        let inode = |path: &Path| {
            let known = fs::symlink_metadata(path).ok()?;
            Some((path.to_owned(), FileState(0, 0, 0, known.ino())))
        };
        let way = path.ancestors().take_while(|path| *path != workspace);
        Self { files: way.filter_map(inode).collect(), is_whole: true }
    }

    /// Returns the files that differ between this look and a later one. New files are found if this one was whole.
    fn changes(&self, now: &Self) -> Vec<PathBuf> {
        let state = |path: &PathBuf| match now.files.get(path) {
            Some(state) => Some(*state),
            None if now.is_whole => None,
            None => fs::symlink_metadata(path).ok().map(|known| FileState::of(&known)),
        };
        let old = self.files.iter().filter(|(path, old)| state(path).as_ref() != Some(*old));
        let is_new = |path: &&PathBuf| self.is_whole && !self.files.contains_key(*path);
        let mut changed: Vec<PathBuf> = old.map(|(path, _)| path.clone()).collect();
        changed.extend(now.files.keys().filter(is_new).cloned());
        changed.sort();
        changed
    }
}

/// Names the first of some paths, and the number of the others.
fn named<'a>(paths: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = paths.len().saturating_sub(MOST_NAMED);
    let named: Vec<&str> = paths.take(MOST_NAMED).map(String::as_str).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

/// Tells the owner of leases that files of them were changed. The error says why it was not told.
async fn tell(
    owner: &str,
    changes: &[&ChangedLease],
    command: &str,
    call: &Call,
    team: &TeamContext,
) -> Result<(), String> {
    let files: Vec<String> = changes.iter().flat_map(|change| change.files.clone()).collect();
    let (me, files) = (&team.me, named(files.iter()));
    let command: String = command.chars().take(COMMAND_CHARS).collect();
    let content = format!(
        "While a command of {me} ran, files that you have leased were changed: {files}. The command began with: \
         {command}\nIf you have not changed them yourself, look at them."
    );
    // A repeated call tells once.
    let id = Some(format!("system:lease-{}-{owner}", team.message_id(call)));
    let (bus, to) = (Arc::clone(&team.bus), owner.to_owned());
    let outgoing = Outgoing { id, ..Outgoing::text(content) };
    let sent = offload(move || bus.send(&AgentName::system(), &to, outgoing)).await;
    sent.map(drop).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a command changes a file")]
    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn changed_new_and_removed_files_differ_and_untouched_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["src/same", "src/deep/edited", "src/replaced", "src/removed"] {
            put(&at(name), "old");
        }
        let look = |mut most: usize| Contents::of(&at("src"), &mut most);
        let (before, part, missing) = (look(100), look(2), Contents::of(&at("new"), &mut 9));
        assert!(before.is_whole && missing.is_whole && !part.is_whole);
        assert!(before.changes(&look(100)).is_empty());
        put(&at("src/deep/edited"), "longer");
        put(&at("next"), "old");
        fs::rename(at("next"), at("src/replaced")).unwrap();
        fs::remove_file(at("src/removed")).unwrap();
        put(&at("src/deep/new"), "new");
        put(&at("new/file"), "new");
        let expected = ["src/deep/edited", "src/deep/new", "src/removed", "src/replaced"].map(at);
        assert_eq!(before.changes(&look(100)), expected);
        // A part has no new files, and names no file that is only beyond the later look.
        let found = part.changes(&look(1));
        assert!(found.iter().all(|path| part.files.contains_key(path)), "{found:?}");
        assert!(found.iter().all(|path| expected.contains(path)), "{found:?}");
        assert_eq!(missing.changes(&Contents::of(&at("new"), &mut 9)), [at("new/file")]);
    }

    #[test]
    fn a_mounted_path_has_changed_if_it_or_a_folder_above_it_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        put(&at("a/b/file"), "old");
        let look = || Contents::of_way(&at("a/b/file"), folder.path());
        let before = look();
        put(&at("a/b/file"), "longer");
        put(&at("a/b/beside"), "new");
        assert!(before.changes(&look()).is_empty(), "the mount keeps the content");
        fs::rename(at("a/b"), at("a/moved")).unwrap();
        assert_eq!(before.changes(&look()), [at("a/b"), at("a/b/file")]);
        put(&at("a/b/file"), "longer");
        assert_eq!(before.changes(&look()), [at("a/b"), at("a/b/file")]);
    }

    #[test]
    fn a_text_names_a_few_paths() {
        let paths: Vec<String> = (1..=7).map(|number| number.to_string()).collect();
        assert_eq!(named(paths.iter()), "1, 2, 3, 4, 5 and 2 more");
        assert_eq!(named(paths[..2].iter()), "1, 2");
    }
}
