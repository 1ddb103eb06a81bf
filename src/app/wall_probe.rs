//! Attempts of a walled command to get out, made for real at the start: a wall that does not hold counts as missing.
//!
//! The command is plain `sh`, so that it needs no other program. Nothing is created for it, and walls that hold let it
//! create nothing. A file that a weak wall lets through is empty, and is removed.

use crate::os::file::unwritable;
use crate::os::wall::WallPolicy;
use crate::settings::environment::Environment;
use crate::store::TeamDir;
use crate::wire::sandbox::SandboxWall;
use crate::wire::shell_word::quoted;
use crate::wire::{AgentName, sandbox::Sandbox};
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// The number of entries of a hidden folder among which a file to read is searched.
const SEARCHED_ENTRIES: usize = 64;

/// The number of folders below a hidden path that are searched.
const SEARCHED_FOLDERS: usize = 8;

/// The attempts against the walls of a sandbox.
#[derive(Debug)]
pub(super) struct WallProbe {
    id: String,
    attempts: Vec<Attempt>,
    /// The address that the command must not reach; it has to stay open while the command runs.
    listener: Option<TcpListener>,
}

#[derive(Debug)]
struct Attempt {
    wall: SandboxWall,
    command: String,
    /// The file by which this process sees that the attempt has succeeded; `None` if the command says so.
    created: Option<PathBuf>,
}

impl WallProbe {
    /// Plans attempts against these walls. An attempt that would fail without walls is left out. `id` is unique.
    pub(super) fn plan(
        sandbox: &Sandbox,
        policy: &WallPolicy,
        team: &TeamDir,
        environment: &Environment,
        id: String,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0));
        let listener = listener.ok().filter(|_| sandbox.walls.contains(&SandboxWall::Network));
        let mut probe = Self { id, attempts: Vec::new(), listener };
        let workspace = team.workspace();
        for wall in &sandbox.walls {
            match wall {
                SandboxWall::Files => probe.outside(policy, workspace, environment),
                SandboxWall::TeamFolder => probe.team_folder(team),
                SandboxWall::Secrets => probe.secrets(policy, team),
                SandboxWall::Signals => {
                    probe.by_word(*wall, &format!("kill -s URG {}", std::process::id()));
                }
                // A shell cannot connect to such a socket. The filter that refuses it is one with others.
                SandboxWall::Sockets => {}
                SandboxWall::Network => {
                    let listener = probe.listener.as_ref();
                    let port = listener.and_then(|it| Some(it.local_addr().ok()?.port()));
                    if let Some(port) = port {
                        let connect = format!("{{ true 3<>/dev/tcp/127.0.0.1/{port}; }}");
                        probe.by_word(*wall, &connect);
                    }
                }
                SandboxWall::GitFiles => {
                    probe.append(*wall, &workspace.join(".git/config"));
                    probe.create(*wall, &workspace.join(".git/hooks"));
                }
                SandboxWall::TemporaryFolders => probe.create(*wall, Path::new("/tmp")),
            }
        }
        probe
    }

    /// Returns the command that makes all attempts.
    pub(super) fn command(&self) -> String {
        let lines = self.attempts.iter().map(|attempt| format!("{}\n", attempt.command));
        format!("exec 2>/dev/null\n{}exit 0", lines.collect::<String>())
    }

    /// Returns the walls that the command got through, from what it has printed and created.
    pub(super) fn broken(&self, printed: &str) -> BTreeSet<SandboxWall> {
        let is_broken = |attempt: &&Attempt| match &attempt.created {
            Some(path) => path.exists(),
            None => printed.lines().any(|line| line == attempt.wall.word()),
        };
        self.attempts.iter().filter(is_broken).map(|attempt| attempt.wall).collect()
    }

    /// A line for another's inbox, and a look at the team's state.
    fn team_folder(&mut self, team: &TeamDir) {
        let wall = SandboxWall::TeamFolder;
        let inbox = team.inbox(&AgentName::lead());
        self.append(wall, &inbox);
        let inboxes = inbox.parent().filter(|folder| folder.is_dir());
        self.create(wall, inboxes.unwrap_or(team.root()));
        self.read(wall, &team.config_lock());
    }

    /// A file in a folder that the user can write, and commands cannot.
    fn outside(&mut self, policy: &WallPolicy, workspace: &Path, environment: &Environment) {
        let own = [environment.get("HOME"), environment.get("XDG_RUNTIME_DIR")];
        let own = own.into_iter().flatten().map(PathBuf::from);
        let around = workspace.parent().map(Path::to_owned);
        let writable: Vec<PathBuf> = policy.writable.iter().flat_map(fs::canonicalize).collect();
        let is_outside = |folder: &PathBuf| {
            let is_below = writable.iter().any(|path| folder.starts_with(path));
            folder.is_dir() && !is_below && unwritable(folder).is_none()
        };
        let all = around.into_iter().chain(own).chain([workspace.to_owned()]);
        let mut all: Vec<_> = all.flat_map(fs::canonicalize).filter(is_outside).collect();
        all.sort();
        all.dedup();
        for folder in all {
            self.create(SandboxWall::Files, &folder);
        }
    }

    /// A file below each hidden path, which is opened, and of which nothing is shown.
    fn secrets(&mut self, policy: &WallPolicy, team: &TeamDir) {
        let of_team = fs::canonicalize(team.root()).unwrap_or_default();
        let hidden = policy.hidden_paths().into_iter().filter(|path| *path != of_team);
        for file in hidden.filter_map(first_file) {
            self.read(SandboxWall::Secrets, &file);
        }
    }

    fn create(&mut self, wall: SandboxWall, folder: &Path) {
        let path = folder.join(format!(".walls-{}", self.id));
        if let Some(word) = path.to_str().map(quoted).filter(|_| folder.is_dir()) {
            let command = format!("{{ true >>{word}; }}");
            self.attempts.push(Attempt { wall, command, created: Some(path) });
        }
    }

    /// Opens a file to append to it, and leaves it as it is.
    fn append(&mut self, wall: SandboxWall, file: &Path) {
        if let Some(word) = file.to_str().map(quoted).filter(|_| file.is_file()) {
            self.by_word(wall, &format!("{{ true >>{word}; }}"));
        }
    }

    fn read(&mut self, wall: SandboxWall, file: &Path) {
        if let Some(word) = file.to_str().map(quoted).filter(|_| fs::File::open(file).is_ok()) {
            self.by_word(wall, &format!("{{ true <{word}; }}"));
        }
    }

    fn by_word(&mut self, wall: SandboxWall, command: &str) {
        let command = format!("{command} && echo '{}'", wall.word());
        self.attempts.push(Attempt { wall, command, created: None });
    }
}

impl Drop for WallProbe {
    fn drop(&mut self) {
        for path in self.attempts.iter().filter_map(|attempt| attempt.created.as_ref()) {
            // It exists only if a wall does not hold.
            fs::remove_file(path).unwrap_or_default();
        }
    }
}

/// Returns a file at or below a path, if a short search finds one.
fn first_file(path: PathBuf) -> Option<PathBuf> {
    let mut folders = vec![path];
    for _ in 0..SEARCHED_FOLDERS {
        let path = folders.pop()?;
        let kind = fs::symlink_metadata(&path).ok()?.file_type();
        if kind.is_file() {
            return Some(path);
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten().take(SEARCHED_ENTRIES);
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_file() => return Some(entry.path()),
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_below_a_hidden_path_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert_eq!(first_file(folder.path().to_owned()), None);
        fs::File::create(inner.join("c")).unwrap();
        assert_eq!(first_file(folder.path().to_owned()), Some(inner.join("c")));
        assert_eq!(first_file(inner.join("c")), Some(inner.join("c")));
        assert_eq!(first_file(folder.path().join("missing")), None);
    }
}
