//! The workspace of an agent's file tools, and the files in it that they never write.
//!
//! [`external_paths`] decides which files outside the workspace may be asked about.

use super::external_paths;
use crate::os::safe_path::{SafePathError, SafeRoot, Spot};
use crate::tools::call::ToolError;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The longest path in bytes that the system accepts.
const MAX_PATH_BYTES: usize = 4096;

/// The folder that agents work in.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: SafeRoot,
    /// The team folder below it.
    team: Option<PathBuf>,
}

impl Workspace {
    /// The workspace at `root`; `team` is the team folder, which can have any name.
    ///
    /// # Errors
    /// The folder does not exist or may not be entered.
    pub(crate) fn open(root: &Path, team: &Path) -> io::Result<Self> {
        let root = SafeRoot::open(root)?;
        let team = team.canonicalize().unwrap_or_else(|_| team.to_owned());
        let team = team.strip_prefix(root.path()).ok().map(Path::to_owned);
        Ok(Self { root, team })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// The file that a model's path leads to. The result has an absolute path if the file is outside the
    /// workspace; opening it needs an approval.
    pub(crate) fn to_read(&self, path: &str) -> Result<Spot, ToolError> {
        let advice = "give a path inside the workspace, such as src/main.rs";
        let reply = |why: &str| ToolError::Reply(format!("{why}; {advice}"));
        if path.is_empty() {
            return Err(reply("the path is empty"));
        }
        if path.contains('\0') {
            return Err(reply("the path contains a NUL character"));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(reply(&format!(
                "the path has {} bytes, {MAX_PATH_BYTES} are allowed",
                path.len()
            )));
        }
        match self.root.find(Path::new(path)) {
            Ok(spot) => Ok(spot),
            Err(SafePathError::Outside) => external_paths::find(self.root.path(), Path::new(path))
                .map_err(|why| path_error(path, &why)),
            Err(why) => Err(path_error(path, &why)),
        }
    }

    /// The same for a file that will be written.
    pub(crate) fn to_write(&self, path: &str) -> Result<Spot, ToolError> {
        let spot = self.to_read(path)?;
        let real = spot.path();
        if real.is_absolute() {
            return Ok(spot);
        }
        let in_team = self.team.as_ref().is_some_and(|team| real.starts_with(team));
        if in_team || names(&real).any(|name| name == ".team") {
            return Err(ToolError::Reply(format!(
                "{path} belongs to the team folder, which is never written by file tools; use \
                 send_message and the task tools instead"
            )));
        }
        if runs_code(&real) {
            return Err(ToolError::Reply(format!(
                "{path} decides what git runs and is never written by file tools; ask the user to \
                 change it"
            )));
        }
        Ok(spot)
    }
}

/// The error for a path that cannot be opened.
pub(super) fn path_error(path: &str, why: &SafePathError) -> ToolError {
    let advice = match why {
        SafePathError::Link => "give the real path",
        SafePathError::Outside => "file tools stay inside the workspace; give a path inside it",
        SafePathError::Folder => "give the path of a file; `ls` it with bash",
        SafePathError::Special(_) => "only regular files can be read and written",
        SafePathError::Nowhere => "give the path without `..`",
        SafePathError::Io(_) => "look with `ls -la` what is there",
    };
    let path: String = path.chars().take(256).collect();
    ToolError::Reply(format!("{path}: {why}; {advice}"))
}

/// The names in a path, as a case-insensitive file system compares them.
fn names(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    })
}

/// Whether git runs code from this file: hooks and configuration, also of submodules and worktrees.
fn runs_code(path: &Path) -> bool {
    let mut inside_git = names(path).skip_while(|name| name != ".git");
    if inside_git.next().is_none() {
        return false;
    }
    let mut rest = inside_git.peekable();
    // `.git` can be a file that names another git folder.
    rest.peek().is_none()
        || rest.any(|name| matches!(name.as_str(), "hooks" | "config" | "config.worktree"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Fixture {
        all: tempfile::TempDir,
        workspace: Workspace,
    }

    /// A workspace with a file, links of every kind and a team folder, beside a folder with a secret.
    fn fixture() -> Fixture {
        let all = tempfile::tempdir().unwrap();
        let (inside, outside) = (all.path().join("work"), all.path().join("outside"));
        for folder in ["sub/deep", ".team/inbox", ".git/hooks", "nested/.git", "named"] {
            fs::create_dir_all(inside.join(folder)).unwrap();
        }
        fs::create_dir(&outside).unwrap();
        for file in
            ["file", ".team/config.json", ".git/config", "named/roster", "../outside/secret"]
        {
            fs::File::create(inside.join(file)).unwrap();
        }
        for (link, target) in [
            ("to_file", "file"),
            ("to_sub", "sub"),
            ("sub/up", ".."),
            ("absolute", inside.join("file").to_str().unwrap()),
            ("out", "../outside"),
            ("out_absolute", outside.to_str().unwrap()),
            ("chain", "sub/up/chain2"),
            ("chain2", "out/secret"),
            ("ring", "ring"),
            ("dangling", "sub/new"),
            ("dangling_out", "../outside/new"),
            ("to_team", ".team"),
            ("to_hooks", "sub/../.git/hooks"),
            ("proc", "/proc/self/root"),
        ] {
            symlink(target, inside.join(link)).unwrap();
        }
        let workspace = Workspace::open(&inside, &inside.join("named")).unwrap();
        Fixture { all, workspace }
    }

    fn why(found: Result<Spot, ToolError>) -> String {
        found.map(|spot| spot.path()).unwrap_err().to_string()
    }

    #[test]
    fn a_path_inside_resolves_to_its_real_name() {
        let fixture = fixture();
        let absolute = fixture.all.path().join("work/sub/new").display().to_string();
        for (path, real) in [
            ("file", "file"),
            ("./sub/../file", "file"),
            ("to_file", "file"),
            ("to_sub/up/to_sub/deep/new", "sub/deep/new"),
            ("absolute", "file"),
            ("dangling", "sub/new"),
            ("new/folder/file", "new/folder/file"),
            ("sub/...", "sub/..."),
            ("-rf", "-rf"),
            (absolute.as_str(), "sub/new"),
        ] {
            let spot = fixture.workspace.to_write(path).unwrap();
            assert_eq!(spot.path(), Path::new(real), "{path}");
        }
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        let fixture = fixture();
        let long = "x/".repeat(3000);
        let deep = "x/".repeat(1000);
        for (path, says) in [
            ("..", "leads out"),
            ("../outside/secret", "leads out"),
            ("sub/../../outside/secret", "leads out"),
            ("/etc/shadow", "leads out"),
            ("/", "leads out"),
            ("out/secret", "leads out"),
            ("out_absolute/secret", "leads out"),
            ("chain", "leads out"),
            ("dangling_out", "leads out"),
            ("proc/etc/passwd", "leads out"),
            ("/proc/self/root/etc/passwd", "leads out"),
            ("/dev/fd/3", "leads out"),
            ("ring", "symbolic links"),
            ("missing/../file", "without `..`"),
            ("file/below", "Not a directory"),
            ("sub", "is a folder"),
            (".", "is a folder"),
            ("", "the path is empty"),
            ("a\0b", "NUL"),
            (long.as_str(), "4096 are allowed"),
            (deep.as_str(), "too long"),
        ] {
            for found in [fixture.workspace.to_read(path), fixture.workspace.to_write(path)] {
                let why = why(found);
                assert!(why.contains(says) && why.contains(';'), "{path}: {why}");
            }
        }
    }

    #[test]
    fn an_external_file_has_an_absolute_path() {
        let fixture = fixture();
        for found in
            [fixture.workspace.to_read("/etc/passwd"), fixture.workspace.to_write("/etc/passwd")]
        {
            assert_eq!(found.unwrap().path(), Path::new("/etc/passwd"));
        }
    }

    #[test]
    fn git_hooks_and_team_files_are_readable_but_never_writable() {
        let fixture = fixture();
        for (path, says) in [
            (".team/config.json", "send_message"),
            (".TEAM/inbox/alice.jsonl", "send_message"),
            ("sub/../.team/new", "send_message"),
            ("to_team/config.json", "send_message"),
            ("named/roster", "send_message"),
            ("sub/.team/x", "send_message"),
            (".git/config", "git runs"),
            (".Git/Config", "git runs"),
            (".git/hooks/pre-commit", "git runs"),
            (".git/hooks/new/x", "git runs"),
            (".git/modules/x/hooks/y", "git runs"),
            ("to_hooks/pre-commit", "git runs"),
            ("nested/.git/config", "git runs"),
            ("sub/.git", "git runs"),
        ] {
            let why = why(fixture.workspace.to_write(path));
            assert!(why.contains(says), "{path}: {why}");
            fixture.workspace.to_read(path).unwrap();
        }
        for path in
            [".github/hooks/x", ".gitignore", ".team.md", ".git/info/exclude", "hooks/config"]
        {
            fixture.workspace.to_write(path).unwrap();
        }
    }
}
