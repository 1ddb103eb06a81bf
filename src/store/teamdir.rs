//! Finds, creates and opens the team folder, and returns every path in it.

use super::StoreError;
use super::file::atomic::{Fsync, replace};
use super::file::lock::exclusive;
use super::file::read::{known_if_there, names_in};
use crate::os::file::{Access, At, FileError, check_owner, create_new};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::host_order::{OrderId, OrderSide};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::task::TaskId;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folders of a new team folder.
const FOLDERS: [&str; 22] = [
    "inbox",
    "inbox/.lock",
    "inbox/.claim",
    "dead",
    "dead/.claim",
    "transcript",
    "transcript/archive",
    "tasks",
    "tasks/.lock",
    "leases",
    "leases/.lock",
    "timers",
    "timers/.lock",
    "run",
    "run/.state",
    "run/.state/files",
    "run/.state/kept",
    "log",
    "log/.err",
    "log/.out",
    "undo",
    "undo/objects",
];

/// The ignore rules of a team folder: git keeps only settings and roles.
const IGNORE: &str = "*\n!.gitignore\n!settings.toml\n!roles/\n!roles/**\n";

/// An opened team folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamDir {
    root: PathBuf,
    /// Device and inode of the folder, to detect a replacement.
    identity: (u64, u64),
    /// The folders with the user's own roles, nearest first.
    user_roles: Vec<PathBuf>,
}

/// Finds the team folder: the named one, else the nearest `.team` at or above `from`, else `from/.team`.
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

/// Whether an existing folder may be used as a team folder: it is named `.team`, is empty, or holds a part of a team.
/// Any other folder was named by mistake, for example the workspace itself.
pub(crate) fn may_hold_team(folder: &Path) -> bool {
    let has = |part: &&str| fs::symlink_metadata(folder.join(part)).is_ok();
    folder.file_name().is_some_and(|name| name == ".team")
        || ["inbox", "run/.state", "tasks/.lock", "settings.toml"].iter().any(has)
        || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

impl TeamDir {
    /// Creates the folder, or completes an existing one. Fails if it is a link or belongs to another user.
    pub fn create(root: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).at(root)?;
        make_folder(&root)?;
        let dir = Self::open(&root)?;
        dir.ignore_run_time_files()?;
        Ok(dir)
    }

    /// Opens an existing folder, and tightens modes that give access to other users. Fails if it is a link or
    /// belongs to another user.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let dir = Self::look(root)?;
        secure(&dir.root)?;
        dir.complete()?;
        Ok(dir)
    }

    /// Opens an existing folder for reading only. Unlike [`TeamDir::open`], creates and changes nothing.
    pub fn look(root: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).at(root)?;
        let known = known_folder(&root)?;
        let identity = (known.dev(), known.ino());
        Ok(Self { root, identity, user_roles: Vec::new() })
    }

    /// Returns a copy of the files of another host, which need not be there. It is only read.
    pub(crate) fn copy_at(root: PathBuf) -> Self {
        // No folder has this identity, so that nothing is written there as to a team.
        Self { root, identity: (0, 0), user_roles: Vec::new() }
    }

    /// Adds folders with the user's own roles, nearest first. They come after the roles of the workspace.
    #[must_use]
    pub(crate) fn with_user_roles(self, user_roles: Vec<PathBuf>) -> Self {
        Self { user_roles, ..self }
    }

    pub(super) fn user_roles(&self) -> &[PathBuf] {
        &self.user_roles
    }

    /// Creates missing folders and tightens their modes.
    pub(super) fn complete(&self) -> Result<(), StoreError> {
        self.is_still_there()?;
        for folder in FOLDERS {
            match secure(&self.root.join(folder)) {
                Err(StoreError::NoTeam(path)) => make_folder(&path)?,
                other => other?,
            }
        }
        Ok(())
    }

    /// Checks that the folder is the one that was opened. Fails if it was removed or replaced.
    pub fn is_still_there(&self) -> Result<(), StoreError> {
        match known_if_there(&self.root)? {
            Some(known) if (known.dev(), known.ino()) == self.identity => Ok(()),
            Some(_) | None => Err(StoreError::Gone(self.root.clone())),
        }
    }

    /// Returns the paths that git keeps: all others are ignored.
    pub(crate) fn committed_paths(&self) -> [PathBuf; 3] {
        [".gitignore", "settings.toml", "roles"].map(|name| self.root.join(name))
    }

    fn ignore_run_time_files(&self) -> Result<(), StoreError> {
        let path = self.root.join(".gitignore");
        // Several processes may create the folder at once, and `replace` needs a lock.
        let held = exclusive(&self.config_lock(), LOCK_TIMEOUT)?;
        let there = match fs::read_to_string(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.at(&path)?,
        };
        let has = |rule: &str| there.lines().any(|line| line.trim() == rule);
        if !IGNORE.lines().all(has) {
            // In git the last rule that matches wins, so the rules of the team come last.
            let separator = if there.is_empty() || there.ends_with('\n') { "" } else { "\n" };
            let text = format!("{there}{separator}{IGNORE}");
            replace(&path, text.as_bytes(), Fsync::Never)?;
        }
        drop(held);
        Ok(())
    }

    /// Creates a committed file (settings or a role) unless it exists; returns whether it was created.
    pub fn create_scaffold(&self, name: &str, text: &[u8]) -> Result<bool, StoreError> {
        let path = self.root.join(name);
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).at(folder)?;
        }
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(false);
        }
        create_new(&path, Access::Update)?.write_all(text).at(&path)?;
        Ok(true)
    }

    /// Returns the path of the team folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the workspace: the folder that contains the team folder, and in which agents work.
    pub fn workspace(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    /// Returns the path of the settings file in a folder that may not be a team yet.
    pub fn settings_in(root: &Path) -> PathBuf {
        root.join("settings.toml")
    }

    /// Whether a team has run here. Before that, the folder may hold settings only.
    pub(crate) fn has_state(&self) -> bool {
        self.state("").is_dir()
    }

    /// Whether this process can read the state of a team. Walls hide the folder by an empty one, or refuse its files.
    pub(crate) fn can_be_read(&self) -> bool {
        match File::open(self.config()) {
            Ok(_) => true,
            Err(why) if why.kind() == io::ErrorKind::NotFound => self.has_state(),
            Err(_) => false,
        }
    }

    /// Returns the path of a file in `run/.state`.
    pub fn state(&self, file: &str) -> PathBuf {
        self.root.join("run/.state").join(file)
    }

    /// Returns the folders of logs and of kept output.
    pub(super) fn log_folders(&self) -> [PathBuf; 4] {
        ["log", "log/.err", "log/.out", "log/.old"].map(|folder| self.root.join(folder))
    }

    /// Lists the claims of `name` that could not be read.
    pub fn dead_claims(&self, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
        let folder = self.root.join("dead/.claim");
        let mut files = names_in(&folder)?;
        files.retain(|file| file.split_once('.').is_some_and(|(owner, _)| owner == name.as_str()));
        Ok(files.into_iter().map(|file| folder.join(file)).collect())
    }

    /// Returns every name that has a file in the team folder.
    pub fn agents(&self) -> Result<Vec<AgentName>, StoreError> {
        let mut names = self.agents_with_locks()?;
        for folder in ["inbox", "dead", "transcript", "log", "undo"] {
            names.append(&mut self.agents_in(folder, ".jsonl")?);
        }
        names.append(&mut self.agents_in("timers", ".json")?);
        Ok(names.into_iter().collect())
    }

    /// Returns every name that has a life lock, held or free.
    pub(super) fn agents_with_locks(&self) -> Result<BTreeSet<AgentName>, FileError> {
        self.agents_in("run", ".lock")
    }

    /// Returns every name that has a journal for undo.
    pub(crate) fn agents_with_undo(&self) -> Result<BTreeSet<AgentName>, FileError> {
        self.agents_in("undo", ".jsonl")
    }

    fn agents_in(&self, folder: &str, end: &str) -> Result<BTreeSet<AgentName>, FileError> {
        let files = names_in(&self.root.join(folder))?;
        let name = |file: &String| AgentName::mailbox(file.strip_suffix(end)?).ok();
        Ok(files.iter().filter_map(name).collect())
    }
}

/// Defines a method for each row, which returns this path below the team folder. The header of `store` describes
/// the files.
macro_rules! paths {
    ($($path:ident($($part:ident: $type:ty),*) = $below:literal;)*) => {
        impl TeamDir {
            $(#[doc = concat!("Returns the path of `", $below, "`.")]
            pub fn $path(&self, $($part: $type),*) -> PathBuf {
                self.root.join(format!($below))
            })*
        }
    };
}

paths! {
    config() = "config.json";
    config_lock() = "run/.state/config.lock";
    settings() = "settings.toml";
    roles() = "roles";
    inboxes() = "inbox";
    inbox(name: &AgentName) = "inbox/{name}.jsonl";
    inbox_lock(name: &AgentName) = "inbox/.lock/{name}";
    claims() = "inbox/.claim";
    next_inbox(name: &AgentName) = "inbox/.claim/{name}.new";
    held_mail() = "inbox/.held";
    held_mail_of(name: &AgentName) = "inbox/.held/{name}.jsonl";
    dead(name: &AgentName) = "dead/{name}.jsonl";
    dead_claim(name: &AgentName, batch_id: &str) = "dead/.claim/{name}.{batch_id}";
    transcript(name: &AgentName) = "transcript/{name}.jsonl";
    conversations() = "transcript";
    archive() = "transcript/archive";
    archive_index() = "run/.state/index";
    images() = "transcript/images";
    image(name: &AgentName, hash: &str) = "transcript/images/{name}-{hash}";
    subagents() = "transcript/sub";
    subagent(caller: &AgentName, number: u64) = "transcript/sub/{caller}-{number}.jsonl";
    tasks() = "tasks";
    task(id: TaskId) = "tasks/{id}.json";
    archived_tasks() = "tasks/.archive";
    archived_task(id: TaskId) = "tasks/.archive/{id}.json";
    tasks_aside() = "tasks/.aside";
    task_aside(id: TaskId) = "tasks/.aside/{id}.json";
    tasks_lock() = "tasks/.lock/list";
    last_task() = "run/.state/tasks.last";
    takeover() = "run/.state/takeover.json";
    replay() = "run/.state/replay.json";
    relay() = "run/.state/relay";
    relay_lock() = "run/.state/relay/lock";
    relay_host() = "run/.state/relay/host.json";
    relay_outboxes() = "run/.state/relay/out";
    relay_outbox(name: &AgentName) = "run/.state/relay/out/{name}.jsonl";
    relay_arrivals() = "run/.state/relay/in.log";
    relay_hosts() = "run/.state/relay/hosts.json";
    relay_names() = "run/.state/relay/names.json";
    relay_ssh() = "run/.state/relay/ssh.json";
    relay_ssh_lock() = "run/.state/relay/ssh.lock";
    relay_ssh_links() = "run/.state/relay/ssh_links.json";
    relay_orders(side: OrderSide) = "run/.state/relay/orders/{side}";
    relay_order(side: OrderSide, id: &OrderId) = "run/.state/relay/orders/{side}/{id}.json";
    relay_order_answer(side: OrderSide, id: &OrderId) = "run/.state/relay/orders/{side}/{id}.answer.json";
    relay_bundle(side: OrderSide, id: &OrderId) = "run/.state/relay/orders/{side}/{id}.bundle";
    relay_bundle_part(side: OrderSide, id: &OrderId) = "run/.state/relay/orders/{side}/{id}.part";
    host_supervisor_lock() = "run/.state/relay/supervisor.lock";
    host_supervisor_printed() = "run/.state/relay/supervisor.printed";
    host_supervisor_log() = "run/.state/relay/supervisor.jsonl";
    old_host_supervisor_log() = "run/.state/relay/supervisor.old.jsonl";
    relay_given_up() = "run/.state/relay/given_up.json";
    relay_given_up_lock() = "run/.state/relay/given_up.lock";
    relay_keys() = "run/.state/relay/keys.json";
    relay_placements() = "run/.state/relay/placements.json";
    relay_invited() = "run/.state/relay/invited.json";
    relay_invited_lock() = "run/.state/relay/invited.lock";
    relay_trusted() = "run/.state/relay/trusted.json";
    relay_trusted_lock() = "run/.state/relay/trusted.lock";
    relay_sent_keys() = "run/.state/relay/sent_keys.json";
    relay_sent_keys_lock() = "run/.state/relay/sent_keys.lock";
    host_supervisor_socket() = "run/.state/relay/supervisor.sock";
    relay_printed() = "run/.state/relay/printed";
    relay_server() = "run/.state/relay/nats";
    relay_copies() = "run/.state/relay/copies";
    relay_copy(host: &HostName) = "run/.state/relay/copies/{host}";
    relay_copy_state(host: &HostName) = "run/.state/relay/copies/{host}/copy.json";
    relay_copied_list() = "run/.state/relay/copies/tasks.json";
    relay_wishes() = "run/.state/relay/copies/.wanted";
    relay_wish(id: &str) = "run/.state/relay/copies/.wanted/{id}.json";
    relay_wish_state(id: &str) = "run/.state/relay/copies/.wanted/{id}.state.json";
    relay_log() = "run/.state/relay/log.jsonl";
    old_relay_log() = "run/.state/relay/log.old.jsonl";
    leases() = "leases";
    lease(id: &str) = "leases/{id}.json";
    leases_lock() = "leases/.lock/list";
    timers() = "timers";
    timers_of(name: &AgentName) = "timers/{name}.json";
    timers_lock(name: &AgentName) = "timers/.lock/{name}";
    life_locks() = "run";
    life(name: &AgentName) = "run/{name}.lock";
    fifo(name: &AgentName) = "run/.state/{name}.bell";
    heartbeat(name: &AgentName) = "run/.state/{name}.beat";
    used(name: &AgentName) = "run/.state/{name}.used";
    last_output(name: &AgentName) = "run/.state/{name}.output";
    hook_socket(name: &AgentName) = "run/.state/{name}.hook";
    mailbox_key(name: &AgentName) = "run/.state/{name}.key";
    unsent_mail(name: &AgentName, run_id: &str) = "run/.state/{name}.outbox-{run_id}";
    background(name: &AgentName) = "run/.state/{name}.commands";
    file_locks() = "run/.state/files";
    file_lock(key: &str) = "run/.state/files/{key}";
    kept_versions() = "run/.state/kept";
    undo_journals() = "undo";
    undo_journal(name: &AgentName) = "undo/{name}.jsonl";
    attachments() = "attachments";
    attachment(hash: &str, name: &str) = "attachments/{hash}/{name}";
    attachment_parts() = "attachments/.part";
    attachment_part(name: &str) = "attachments/.part/{name}";
    undo_objects() = "undo/objects";
    undo_object(hash: &str) = "undo/objects/{hash}";
    pending_undo() = "undo/pending.json";
    undo_lock() = "run/.state/undo.lock";
    undo_apply_lock() = "run/.state/undo.apply.lock";
    log(name: &AgentName) = "log/{name}.jsonl";
    old_logs() = "log/.old";
    old_log(name: &AgentName, number: usize) = "log/.old/{name}-{number}.jsonl";
    old_printed(name: &AgentName) = "log/.old/{name}.err";
    kept_results() = "log/.out";
    command_output(name: &AgentName, id: &str) = "log/.out/{name}-{id}.txt";
    printed(name: &AgentName) = "log/.err/{name}";
    mcp() = "run/.state/mcp";
    mcp_tools(server: &str, digest: &str) = "run/.state/mcp/{server}-{digest}.json";
    mcp_state(name: &AgentName, server: &str) = "run/.state/mcp/{name}.{server}.state";
    printed_by_server(name: &AgentName, server: &str) = "log/.err/{name}.{server}";
}

fn known_folder(folder: &Path) -> Result<Metadata, StoreError> {
    let known = known_if_there(folder)?.ok_or_else(|| StoreError::NoTeam(folder.into()))?;
    if !known.is_dir() {
        let kind = if known.is_symlink() { "a symbolic link" } else { "a file" };
        let why = format!("{kind}, not a folder");
        Err::<(), _>(io::Error::new(io::ErrorKind::NotADirectory, why)).at(folder)?;
    }
    check_owner(folder, &known)?;
    Ok(known)
}

fn secure(folder: &Path) -> Result<(), StoreError> {
    if known_folder(folder)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).at(folder)?;
    }
    Ok(())
}

/// Creates a folder unless it exists. A folder that was removed with its team is not made again: this creates no parent.
pub(super) fn make_folder(path: &Path) -> Result<(), FileError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.at(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
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
    fn a_new_folder_is_private_and_ignored_by_git_even_if_several_create_it() {
        for _ in 0..20 {
            let top = tempfile::tempdir().unwrap();
            let root = top.path().join(".team");
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| TeamDir::create(&root).unwrap());
                }
            });
            for folder in FOLDERS {
                assert_eq!(mode(&root.join(folder)), 0o700, "{folder}");
            }
            assert_eq!(fs::read_to_string(root.join(".gitignore")).unwrap(), IGNORE);
            assert_eq!(TeamDir::open(&root).unwrap().workspace(), top.path());
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
        File::create(root.join(".gitignore")).unwrap().write_all(b"*.tmp").unwrap();
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

    #[test]
    fn an_existing_committed_file_is_not_overwritten() {
        let (_folder, dir) = test_team();
        assert!(dir.create_scaffold("roles/coder.md", b"Code.\n").unwrap());
        assert!(!dir.create_scaffold("roles/coder.md", b"other").unwrap());
        let role = dir.find_role("coder", |_| None).limits();
        assert_eq!(role.instructions, "Code.");
    }
}
