//! The workspace of an agent's file tools, and the files in it that they never write.
//!
//! [`external_paths`] decides which files outside the workspace may be asked about.

use super::external_paths::{self, names};
use crate::os::safe_path::{SafePathError, SafeRoot, Spot};
use crate::tools::call::ToolError;
use crate::wire::tool::Effect;
use std::io;
use std::path::{Path, PathBuf};

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
    /// The workspace at `root`; `team` is the team folder, which can have any name. Fails if `root` does not
    /// exist or may not be entered.
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

    /// The file that a model's path leads to, for a call of this effect. The result has an absolute path if
    /// the file is outside the workspace; opening it needs an approval.
    pub(crate) fn find(&self, path: &str, effect: Effect) -> Result<Spot, ToolError> {
        let problem = if path.is_empty() {
            Some("the path is empty".into())
        } else if path.contains('\0') {
            Some("the path contains a NUL character".into())
        } else if path.len() > MAX_PATH_BYTES {
            Some(format!("the path has {} bytes, {MAX_PATH_BYTES} are allowed", path.len()))
        } else {
            None
        };
        if let Some(problem) = problem {
            let advice = "give a path inside the workspace, such as src/main.rs";
            return Err(ToolError::Reply(format!("{problem}; {advice}")));
        }
        let spot = match self.root.find(Path::new(path)) {
            Err(SafePathError::Outside) => external_paths::find(self.root.path(), Path::new(path)),
            found => found,
        };
        let spot = spot.map_err(|why| path_error(path, &why))?;
        let real = spot.path();
        if effect == Effect::Reads || real.is_absolute() {
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

    impl Fixture {
        fn find(&self, path: &str, effect: Effect) -> Result<PathBuf, String> {
            let found = self.workspace.find(path, effect);
            found.map(|spot| spot.path()).map_err(|why| why.to_string())
        }
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
            assert_eq!(fixture.find(path, Effect::Changes).unwrap(), Path::new(real), "{path}");
        }
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        let fixture = fixture();
        let long = format!("4096 are allowed: {}", "x/".repeat(3000));
        let deep = format!("too long: {}", "x/".repeat(1000));
        for case in [
            "leads out: .. ../outside/secret sub/../../outside/secret / out/secret",
            "leads out: /etc/shadow out_absolute/secret chain dangling_out /dev/fd/3",
            "leads out: proc/etc/passwd /proc/self/root/etc/passwd",
            "symbolic links: ring",
            "without `..`: missing/../file",
            "Not a directory: file/below",
            "is a folder: sub .",
            "NUL: a\0b",
            "the path is empty: ",
            &long,
            &deep,
        ] {
            let (says, paths) = case.split_once(": ").unwrap();
            for path in paths.split(' ') {
                for effect in [Effect::Reads, Effect::Changes] {
                    let why = fixture.find(path, effect).unwrap_err();
                    assert!(why.contains(says) && why.contains(';'), "{path}: {why}");
                }
            }
        }
    }

    #[test]
    fn an_external_file_has_an_absolute_path() {
        for effect in [Effect::Reads, Effect::Changes] {
            let found = fixture().find("/etc/passwd", effect);
            assert_eq!(found.unwrap(), Path::new("/etc/passwd"));
        }
    }

    #[test]
    fn git_hooks_and_team_files_are_readable_but_never_writable() {
        let fixture = fixture();
        for case in [
            "send_message: .team/config.json .TEAM/inbox/alice.jsonl sub/../.team/new",
            "send_message: to_team/config.json named/roster sub/.team/x",
            "git runs: .git/config .Git/Config .git/hooks/pre-commit .git/hooks/new/x sub/.git",
            "git runs: .git/modules/x/hooks/y to_hooks/pre-commit nested/.git/config",
        ] {
            let (says, paths) = case.split_once(": ").unwrap();
            for path in paths.split(' ') {
                let why = fixture.find(path, Effect::Changes).unwrap_err();
                assert!(why.contains(says), "{path}: {why}");
                fixture.find(path, Effect::Reads).unwrap();
            }
        }
        for path in
            [".github/hooks/x", ".gitignore", ".team.md", ".git/info/exclude", "hooks/config"]
        {
            fixture.find(path, Effect::Changes).unwrap();
        }
    }
}
