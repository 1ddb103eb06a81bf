//! The team folder: finds, creates and opens it, and returns every path in it.

use super::StoreError;
use super::file::atomic::{Contents, Fsync, replace};
use super::file::lock::exclusive;
use crate::os::file::{Access, At, FileError, check_owner, open_or_create};
use crate::wire::AgentName;
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::task::TaskId;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folders of a new team folder.
const FOLDERS: [&str; 14] = [
    "inbox",
    "inbox/.lock",
    "inbox/.claim",
    "dead",
    "dead/.claim",
    "transcript",
    "transcript/archive",
    "tasks",
    "tasks/.lock",
    "run",
    "run/.state",
    "log",
    "log/.err",
    "log/.out",
];

/// The ignore rules of a team folder: git keeps only settings and roles.
const IGNORE: &str = "*\n!.gitignore\n!settings.toml\n!roles/\n!roles/**\n";

/// An opened team folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamDir {
    root: PathBuf,
    /// Device and inode of the folder, to notice a replacement.
    identity: (u64, u64),
}

/// Finds the team folder: the named one, else the nearest `.team` at or above `from`, else the one that
/// would be created in `from`.
pub fn locate(named: Option<&Path>, from: &Path) -> PathBuf {
    match named {
        Some(named) => from.join(named),
        None => from
            .ancestors()
            .map(|folder| folder.join(".team"))
            .find(|team| fs::symlink_metadata(team).is_ok())
            .unwrap_or_else(|| from.join(".team")),
    }
}

impl TeamDir {
    /// Creates the folder, or completes an existing one. Fails if the folder is a link, belongs to another
    /// user, or cannot be written.
    pub fn create(root: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).at(root)?;
        make_folder(&root)?;
        secure(&root)?;
        for folder in FOLDERS {
            make_folder(&root.join(folder))?;
        }
        let dir = Self::open(&root)?;
        dir.ignore_run_time_files()?;
        Ok(dir)
    }

    /// Opens an existing folder. Modes that let other users in are tightened. Fails if there is none, it is a
    /// link, or it belongs to another user.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).at(root)?;
        let known = secure(&root)?;
        let dir = Self { root, identity: (known.dev(), known.ino()) };
        dir.complete()?;
        Ok(dir)
    }

    /// Creates missing folders and tightens their modes.
    pub(super) fn complete(&self) -> Result<(), StoreError> {
        self.is_still_there()?;
        for folder in FOLDERS {
            match secure(&self.root.join(folder)) {
                Err(StoreError::NoTeam { path }) => make_folder(&path)?,
                other => other.map(|_| ())?,
            }
        }
        Ok(())
    }

    /// Checks that the folder is the one that was opened. Fails if it was removed or replaced, so that
    /// nothing in it belongs to this process.
    pub fn is_still_there(&self) -> Result<(), StoreError> {
        match fs::symlink_metadata(&self.root) {
            Ok(known) if (known.dev(), known.ino()) == self.identity => Ok(()),
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why).at(&self.root)?,
            Ok(_) | Err(_) => Err(StoreError::Gone { path: self.root.clone() }),
        }
    }

    /// Opens an existing folder for reading only: nothing is created or changed. Fails if there is none, it
    /// is a link, or it belongs to another user.
    pub fn look(root: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).at(root)?;
        let known = known_folder(&root)?;
        Ok(Self { root, identity: (known.dev(), known.ino()) })
    }

    fn ignore_run_time_files(&self) -> Result<(), StoreError> {
        let path = self.root.join(".gitignore");
        // Several programs may make the folder at once, and replacing needs a lock.
        let held = exclusive(&self.config_lock(), LOCK_TIMEOUT)?;
        let there = match fs::read_to_string(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.at(&path)?,
        };
        let has = |rule: &str| there.lines().any(|line| line.trim() == rule);
        if IGNORE.lines().all(has) {
            return Ok(());
        }
        // The last rule that matches wins, so the rules of the team come last.
        let separator = if there.is_empty() || there.ends_with('\n') { "" } else { "\n" };
        let text = format!("{there}{separator}{IGNORE}");
        replace(&path, &Contents::text(text), Fsync::Never)?;
        drop(held);
        Ok(())
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder that contains it, in which agents work.
    pub fn workspace(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Returns the path of the roster.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// Returns the side lock of the roster.
    pub fn config_lock(&self) -> PathBuf {
        self.state("config.lock")
    }

    /// Returns the settings of the team.
    pub fn settings(&self) -> PathBuf {
        self.root.join("settings.toml")
    }

    /// Returns the folder of role files.
    pub fn roles(&self) -> PathBuf {
        self.root.join("roles")
    }

    /// Returns the folder of inboxes.
    pub fn inboxes(&self) -> PathBuf {
        self.root.join("inbox")
    }

    /// Returns the inbox of `name`.
    pub fn inbox(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("inbox/{name}.jsonl"))
    }

    /// Returns the side lock of an inbox.
    pub fn inbox_lock(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("inbox/.lock/{name}"))
    }

    /// Returns the folder of claims.
    pub fn claims(&self) -> PathBuf {
        self.root.join("inbox/.claim")
    }

    /// Returns the prepared file that becomes the inbox at the next claim.
    pub fn next_inbox(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("inbox/.claim/{name}.new"))
    }

    /// Returns the dead letters of `name`.
    pub fn dead(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("dead/{name}.jsonl"))
    }

    /// Returns the destination of a claim that cannot be read.
    pub fn dead_claim(&self, name: &AgentName, batch_id: &str) -> PathBuf {
        self.root.join(format!("dead/.claim/{name}.{batch_id}"))
    }

    /// Lists the claims of `name` that could not be read. Fails if the folder cannot be read.
    pub fn dead_claims(&self, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
        let folder = self.root.join("dead/.claim");
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).at(&folder)? {
            let entry = entry.at(&folder)?;
            let file = entry.file_name();
            let owner = file.to_str().and_then(|file| file.split_once('.'));
            found.extend(owner.filter(|(owner, _)| *owner == name.as_str()).map(|_| entry.path()));
        }
        Ok(found)
    }

    /// Returns the transcript of `name`.
    pub fn transcript(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("transcript/{name}.jsonl"))
    }

    /// Returns the folder of transcripts.
    pub fn conversations(&self) -> PathBuf {
        self.root.join("transcript")
    }

    /// Returns the folder of archived transcripts.
    pub fn archive(&self) -> PathBuf {
        self.root.join("transcript/archive")
    }

    /// Returns the folder of the task list.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// Returns the file of a task.
    pub fn task(&self, id: TaskId) -> PathBuf {
        self.root.join(format!("tasks/{id}.json"))
    }

    /// Returns the side lock of the task list; it is touched when the list changes.
    pub fn tasks_lock(&self) -> PathBuf {
        self.root.join("tasks/.lock/list")
    }

    /// Returns the file of the last task id.
    pub fn last_task(&self) -> PathBuf {
        self.state("tasks.last")
    }

    /// Returns the folder of life locks.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Returns the life lock of `name`.
    pub fn life(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("run/{name}.lock"))
    }

    /// Returns a file of the programs' own state.
    pub fn state(&self, file: &str) -> PathBuf {
        self.root.join("run/.state").join(file)
    }

    /// Returns the fifo that wakes an owner without file events.
    pub fn fifo(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("run/.state/{name}.bell"))
    }

    /// Returns the heartbeat of `name`.
    pub fn beat(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("run/.state/{name}.beat"))
    }

    /// Returns the usage count of `name`.
    pub fn used(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("run/.state/{name}.used"))
    }

    /// Returns the structured log of `name`.
    pub fn log(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("log/{name}.jsonl"))
    }

    /// Opens the structured log of `name` for appending. Fails if the file cannot be opened or written.
    pub fn open_log(&self, name: &AgentName) -> Result<File, StoreError> {
        Ok(open_or_create(&self.log(name), Access::Append)?)
    }

    /// Opens the file for the output of a spawned member. Fails if the file cannot be opened or written.
    pub fn open_printed(&self, name: &AgentName) -> Result<File, StoreError> {
        Ok(open_or_create(&self.printed(name), Access::Append)?)
    }

    /// Returns every name that has a file here. Fails if a folder cannot be read.
    pub fn agents(&self) -> Result<Vec<AgentName>, StoreError> {
        let mut names = std::collections::BTreeSet::new();
        for (folder, end) in [
            ("inbox", ".jsonl"),
            ("dead", ".jsonl"),
            ("transcript", ".jsonl"),
            ("log", ".jsonl"),
            ("run", ".lock"),
        ] {
            let folder = self.root.join(folder);
            let entries = match fs::read_dir(&folder) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                other => other.at(&folder)?,
            };
            for entry in entries {
                let file = entry.at(&folder)?.file_name();
                let name = file.to_str().and_then(|file| file.strip_suffix(end));
                names.extend(name.and_then(|name| AgentName::mailbox(name).ok()));
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Returns the folder of spilled tool results.
    pub(super) fn kept_results(&self) -> PathBuf {
        self.root.join("log/.out")
    }

    /// Returns a spilled tool result.
    pub(super) fn kept(&self, name: &AgentName, number: u64) -> PathBuf {
        self.kept_results().join(format!("{name}-{number}.txt"))
    }

    /// Returns the file for the output of a spawned member.
    pub fn printed(&self, name: &AgentName) -> PathBuf {
        self.root.join(format!("log/.err/{name}"))
    }
}

fn known_folder(folder: &Path) -> Result<Metadata, StoreError> {
    let known = match fs::symlink_metadata(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err(StoreError::NoTeam { path: folder.into() });
        }
        other => other.at(folder)?,
    };
    check_folder(folder, &known)?;
    Ok(known)
}

fn secure(folder: &Path) -> Result<Metadata, StoreError> {
    let known = known_folder(folder)?;
    if known.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).at(folder)?;
    }
    Ok(known)
}

fn make_folder(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => Ok(other.at(path)?),
    }
}

fn check_folder(path: &Path, known: &Metadata) -> Result<(), FileError> {
    let not_a_folder = |kind| {
        let why = format!("{kind}, not a folder");
        Err(io::Error::new(io::ErrorKind::NotADirectory, why)).at(path)
    };
    if known.is_symlink() {
        return not_a_folder("a symbolic link");
    }
    if !known.is_dir() {
        return not_a_folder("a file");
    }
    check_owner(path, known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_nearest_team_upward_is_found() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(locate(None, &deep), deep.join(".team"));
        fs::create_dir(top.path().join(".team")).unwrap();
        assert_eq!(locate(None, &deep), top.path().join(".team"));
        assert_eq!(locate(Some(Path::new("other")), &deep), deep.join("other"));
        assert_eq!(locate(Some(Path::new("/x/.team")), &deep), Path::new("/x/.team"));
    }

    #[test]
    fn a_new_folder_is_private_and_ignored_by_git() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        for folder in FOLDERS {
            assert_eq!(mode(&dir.root().join(folder)), 0o700, "{folder}");
        }
        assert_eq!(fs::read_to_string(dir.root().join(".gitignore")).unwrap(), IGNORE);
        assert_eq!(dir.workspace(), top.path());
    }

    #[test]
    fn concurrent_creations_of_a_folder_succeed() {
        for _ in 0..20 {
            let top = tempfile::tempdir().unwrap();
            let root = top.path().join(".team");
            std::thread::scope(|scope| {
                let makers: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| TeamDir::create(&root))).collect();
                for maker in makers {
                    maker.join().unwrap().unwrap();
                }
            });
            assert_eq!(fs::read_to_string(root.join(".gitignore")).unwrap(), IGNORE);
        }
    }

    #[test]
    fn modes_are_tightened_and_existing_ignore_rules_are_kept() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join(".team");
        fs::create_dir_all(root.join("inbox")).unwrap();
        for folder in [root.clone(), root.join("inbox")] {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        io::Write::write_all(&mut fs::File::create(root.join(".gitignore")).unwrap(), b"*.tmp")
            .unwrap();
        TeamDir::create(&root).unwrap();
        assert_eq!((mode(&root), mode(&root.join("inbox"))), (0o700, 0o700));
        let text = fs::read_to_string(root.join(".gitignore")).unwrap();
        assert_eq!(text, format!("*.tmp\n{IGNORE}"));
        let before = fs::metadata(root.join(".gitignore")).unwrap().ino();
        TeamDir::create(&root).unwrap();
        assert_eq!(fs::metadata(root.join(".gitignore")).unwrap().ino(), before);
    }

    #[test]
    fn a_link_a_file_and_a_missing_path_are_refused() {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().join("real");
        TeamDir::create(&real).unwrap();
        let link = top.path().join(".team");
        symlink(&real, &link).unwrap();
        assert!(TeamDir::open(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(TeamDir::create(&link).is_err());
        let file = top.path().join("file");
        fs::File::create(&file).unwrap();
        assert!(TeamDir::open(&file).unwrap_err().to_string().contains("not a folder"));
        let gone = TeamDir::open(&top.path().join("gone"));
        assert!(matches!(gone, Err(StoreError::NoTeam { .. })));
    }
}
