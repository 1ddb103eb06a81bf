//! The repository of the user, from outside: its view of the workspace, and the references of teammates in it.

use super::error::WorkError;
use crate::os::git::{Git, GitError};
use crate::wire::AgentName;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The author of commits that this program makes.
const AUTHOR: &str = "team";
const ADDRESS: &str = "team@localhost";

/// The index from which saves are made, in the git folder of a clone. That of the agent stays as it is.
pub(super) const INDEX: &str = "team-index";

/// The age from which the lock of a reference has no owner: git holds one for milliseconds.
const STALE_LOCK: Duration = Duration::from_secs(60);

const NOT_USABLE: &str = "the workspace cannot be cloned";

/// A repository of git with a working tree.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    pub(super) git: Git,
    /// The top folder.
    pub(super) top: PathBuf,
    /// The folder of the workspace in it; empty if it is the top.
    pub(super) prefix: PathBuf,
    /// The git folder of this working tree.
    pub(super) own: PathBuf,
    /// The git folder with the objects.
    pub(super) common: PathBuf,
    pub(super) object_format: String,
}

impl Repository {
    /// Finds the repository of a folder. Fails without git, without a repository, and without a commit.
    pub(super) fn find(folder: &Path, environment: &[(String, String)]) -> Result<Self, WorkError> {
        let git = Git::new(folder, environment);
        git.check_version().map_err(|why| {
            WorkError::new(NOT_USABLE, why, "install a newer git, or use isolation shared")
        })?;
        let asked = git.run(&[
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-dir",
            "--git-common-dir",
            "--show-object-format",
            "--show-prefix",
        ]);
        let hint =
            "create a repository with `git init` and a first commit, or use isolation shared";
        let text = asked.map_err(|why| WorkError::new(NOT_USABLE, why, hint))?;
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let [top, own, common] = [(); 3].map(|()| PathBuf::from(next()));
        let (object_format, prefix) = (next(), PathBuf::from(next()));
        let git = Git::new(&top, environment);
        let repository = Self { git, top, prefix, own, common, object_format };
        repository.head().map_err(|_| {
            WorkError::new(NOT_USABLE, "its repository has no commit yet", "make the first commit")
        })?;
        let prefix = repository.prefix.display().to_string();
        let listed = repository.git.run(&["ls-files", "--", &format!(":/{prefix}")]);
        if !prefix.is_empty() && listed.is_ok_and(|files| files.is_empty()) {
            let why = format!("git tracks no file of it in {}", repository.top.display());
            return Err(WorkError::new(NOT_USABLE, why, hint));
        }
        Ok(repository)
    }

    pub(super) fn head(&self) -> Result<String, GitError> {
        self.git.run(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    }

    /// Returns the tree of the working tree as it is, without ignored files, and with the repositories within it as they
    /// are in the index. Only a copy of the index is changed: the file `index` in the folder for clones, which is left
    /// out.
    pub(super) fn view(&self, index: &Path) -> Result<String, WorkError> {
        let what = "the files of the workspace cannot be recorded";
        let copied = fs::copy(self.own.join("index"), index).map(drop);
        let git = self.git.with("GIT_INDEX_FILE", index);
        let record = || -> Result<String, GitError> {
            if copied.is_err() {
                git.run(&["read-tree", "HEAD"])?;
            }
            // In a repository within this one, `git add` would run git with the programs that its settings name.
            let mut left_out = nested_repositories(&git.run(&["ls-files", "--stage", "-z"])?);
            left_out.extend(index.parent().and_then(|clones| self.visible(clones)));
            let without = left_out.iter().map(|path| format!(":(top,exclude,literal){path}"));
            let without: Vec<String> = without.collect();
            let mut words = vec!["add", "--sparse", "--all", "--", ":/"];
            words.extend(without.iter().map(String::as_str));
            git.run(&words)?;
            git.run(&["write-tree"])
        };
        let tree = record().map_err(|why| WorkError::git(what, &why));
        for end in ["", ".lock"] {
            fs::remove_file(format!("{}{end}", index.display())).unwrap_or_default();
        }
        tree
    }

    /// Returns a commit with the files of the working tree as they are, for a teammate: the last commit if they do not differ,
    /// or the one that was made before if nothing has changed since.
    pub(super) fn snapshot(&self, name: &AgentName, clones: &Path) -> Result<String, WorkError> {
        let git_error =
            |why: GitError| WorkError::git("the files of the workspace cannot be recorded", &why);
        let tree = self.view(&clones.join(format!(".{name}.index")))?;
        let head = self.head().map_err(git_error)?;
        if self.tree(&head).map_err(git_error)? == tree {
            return Ok(head);
        }
        let is_same = |commit: &String| {
            let parent = self.git.run(&["rev-parse", "--quiet", "--verify", &format!("{commit}^")]);
            parent.is_ok_and(|parent| parent == head)
                && self.tree(commit).is_ok_and(|it| it == tree)
        };
        if let Some(before) = self.reference(name, "current").filter(is_same) {
            return Ok(before);
        }
        let text = format!("The files of the workspace when {name} began");
        self.commit(&tree, &[&head], &text).map_err(git_error)
    }

    /// Returns those of these commits that are here.
    pub(super) fn present(&self, commits: &[String]) -> Result<Vec<String>, GitError> {
        let known: Vec<String> = commits.iter().filter(|it| is_id(it)).cloned().collect();
        let words = ["cat-file", "--batch-check=%(objecttype) %(objectname)"];
        let output = self.git.checked(&words, lines(&known).as_bytes())?;
        let text = String::from_utf8_lossy(&output);
        Ok(text.lines().filter_map(|line| line.strip_prefix("commit ")).map(Into::into).collect())
    }

    /// Fails if something that these commits reach is not here.
    pub(super) fn check_whole(&self, commits: &[String]) -> Result<(), GitError> {
        check_whole(&self.git, commits)
    }

    /// Whether one of these commits reaches another one.
    pub(super) fn reaches(&self, from: &str, to: &str) -> Result<bool, GitError> {
        Ok(self.unreached(&[to.to_owned()], &[from])?.is_empty())
    }

    /// Returns a commit with the files of `new` that reaches `before`, too: `new` itself if it does.
    pub(super) fn over(
        &self,
        before: Option<&str>,
        new: &str,
        text: &str,
    ) -> Result<String, GitError> {
        let Some(before) = before else { return Ok(new.to_owned()) };
        if self.reaches(new, before)? {
            return Ok(new.to_owned());
        }
        self.commit(&self.tree(new)?, &[new, before], text)
    }

    /// Returns the path in the repository of a folder of the working tree that is not ignored.
    fn visible(&self, folder: &Path) -> Option<String> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let inside = real(folder).strip_prefix(real(&self.top)).ok()?.display().to_string();
        // Git refuses to leave out what is ignored.
        let is_ignored = self.git.call(&["check-ignore", "--quiet", "--", &inside], b"");
        is_ignored.is_ok_and(|output| output.code == 1).then_some(inside)
    }

    /// Returns the tree of a commit.
    pub(super) fn tree(&self, commit: &str) -> Result<String, GitError> {
        self.git.run(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
    }

    /// Makes a commit in the name of the program.
    pub(super) fn commit(
        &self,
        tree: &str,
        parents: &[&str],
        text: &str,
    ) -> Result<String, GitError> {
        let mut git = self.git.clone();
        for who in ["AUTHOR", "COMMITTER"] {
            git = git.with(&format!("GIT_{who}_NAME"), Path::new(AUTHOR));
            git = git.with(&format!("GIT_{who}_EMAIL"), Path::new(ADDRESS));
        }
        let mut words = vec!["commit-tree", tree, "-m", text];
        for parent in parents {
            words.extend(["-p", parent]);
        }
        git.run(&words)
    }

    /// Returns the commit that a reference of a teammate names.
    pub(super) fn reference(&self, name: &AgentName, kind: &str) -> Option<String> {
        let full = reference(name.as_str(), kind);
        self.git.run(&["rev-parse", "--quiet", "--verify", &format!("{full}^{{commit}}")]).ok()
    }

    /// Makes a reference of a teammate name a commit. Fails if it does not name `before`, which is empty if there is
    /// none.
    pub(super) fn point(
        &self,
        name: &AgentName,
        kind: &str,
        commit: &str,
        before: Option<&str>,
    ) -> Result<(), GitError> {
        let full = reference(name.as_str(), kind);
        self.remove_stale_lock(&full);
        let mut words = vec!["update-ref", &full, commit];
        words.extend(before);
        self.git.run(&words).map(drop)
    }

    /// Removes the lock of a reference that a killed git has left, which nothing else would remove. Only this program, and
    /// git while it packs references, locks those of teammates, and never for long.
    fn remove_stale_lock(&self, reference: &str) {
        let lock = self.common.join(format!("{reference}.lock"));
        let age = fs::metadata(&lock).and_then(|lock| lock.modified()).map(|time| time.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > STALE_LOCK)) {
            fs::remove_file(lock).unwrap_or_default();
        }
    }

    /// Returns those of these commits, and of their ancestors, that no commit in `known` reaches, each with its
    /// parents.
    pub(super) fn unreached(
        &self,
        tips: &[String],
        known: &[&str],
    ) -> Result<Vec<(String, Vec<String>)>, GitError> {
        let mut input = lines(tips);
        for commit in known {
            let _infallible = writeln!(input, "^{commit}");
        }
        let words = ["rev-list", "--parents", "--stdin"];
        let output = self.git.checked(&words, input.as_bytes())?;
        Ok(String::from_utf8_lossy(&output).lines().filter_map(with_parents).collect())
    }
}

/// Fails if something that commits reach, beyond what references keep, is not in a repository.
pub(super) fn check_whole(git: &Git, commits: &[String]) -> Result<(), GitError> {
    let words = ["rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"];
    git.checked(&words, lines(commits).as_bytes()).map(drop)
}

/// Returns a text with a line for each word.
pub(super) fn lines(words: &[String]) -> String {
    let mut text = words.join("\n");
    text.push('\n');
    text
}

/// Returns the full name of a reference of a teammate.
pub(super) fn reference(name: &str, kind: &str) -> String {
    format!("refs/team/{name}/{kind}")
}

/// Reads a line with a commit and its parents.
pub(super) fn with_parents(line: &str) -> Option<(String, Vec<String>)> {
    let mut words = line.split(' ').map(ToOwned::to_owned);
    let commit = words.next().filter(|word| is_id(word))?;
    Some((commit, words.collect()))
}

/// Returns the commits of a list that are no parents in it.
pub(super) fn tips(commits: &[(String, Vec<String>)]) -> Vec<String> {
    let parents: std::collections::BTreeSet<&String> =
        commits.iter().flat_map(|(_, parents)| parents).collect();
    let tips = commits.iter().map(|(commit, _)| commit);
    tips.filter(|commit| !parents.contains(commit)).cloned().collect()
}

/// Whether a word is the id of an object.
pub(super) fn is_id(word: &str) -> bool {
    matches!(word.len(), 40 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the paths of repositories within this one, from the output of `git ls-files --stage -z`.
fn nested_repositories(listed: &str) -> Vec<String> {
    let paths = listed.split('\0').filter(|line| line.starts_with("160000 "));
    paths.filter_map(|line| line.split_once('\t')).map(|(_, path)| path.to_owned()).collect()
}
