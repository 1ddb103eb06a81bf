//! The commits of a project whose files are on another host: a repository without files, from which clones are made here.
//!
//! Its branch `lead` has the files of that workspace as they were told last. The references of teammates are as in the
//! repository of a user.

use super::bundle::{read_bundle, write_bundle};
use super::error::WorkError;
use super::repository::{Repository, check_whole, is_id};
use crate::os::git::{Git, GitError};
use crate::wire::AgentName;
use crate::wire::host_order::{CloneStart, ProjectCommits, SavedCommits};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The branch with the files of the workspace.
const BRANCH: &str = "lead";

/// The time for a fetch from a server.
const FETCH_WITHIN: Duration = Duration::from_secs(300);

/// The maximum number of known commits that another host is told.
const MOST_KNOWN: usize = 256;

const WHAT: &str = "the commits of the project cannot be kept";

/// Returns the folder of the repository.
pub(crate) fn folder(clones: &Path) -> PathBuf {
    clones.join(".project")
}

/// The repository with the commits of the project.
#[derive(Debug)]
pub(crate) struct Mirror {
    repository: Repository,
}

impl Mirror {
    /// Opens the repository; `None` if nothing was ever sent.
    pub(crate) fn open(
        clones: &Path,
        environment: &[(String, String)],
    ) -> Result<Option<Self>, WorkError> {
        let folder = folder(clones);
        if !folder.join(".git").is_dir() {
            return Ok(None);
        }
        let repository = Repository::find(&folder, environment)?;
        Ok(Some(Self { repository }))
    }

    /// Prepares the repository for a clone. Returns the known commits if some are lacking, and nothing once all are there.
    /// `workspace` is the folder of the team on this host, which may have them.
    pub(crate) fn prepare(
        clones: &Path,
        environment: &[(String, String)],
        wanted: &ProjectCommits,
        (workspace, bundle): (&Path, Option<&Path>),
    ) -> Result<Option<Vec<String>>, WorkError> {
        let git_error = |why: GitError| WorkError::git(WHAT, &why);
        let ids = wanted.commits.iter().chain([&wanted.current, &wanted.head]);
        check_ids(ids.map(String::as_str))?;
        let git = make(clones, environment, &wanted.object_format)?;
        if let Some(bundle) = bundle {
            read_bundle(&git, bundle).map_err(git_error)?;
        }
        let needed: Vec<String> = wanted.commits.iter().chain([&wanted.current]).cloned().collect();
        if !has_all(&git, std::slice::from_ref(&wanted.head)) && bundle.is_none() {
            fetch_what_can_be_had(&git, wanted, workspace);
        }
        if !has_all(&git, &needed) {
            let words = ["for-each-ref", "--sort=-creatordate", "--format=%(objectname)"];
            let known = git.run(&words).map_err(git_error)?;
            let mut known: Vec<String> = known.lines().map(ToOwned::to_owned).collect();
            known.dedup();
            known.truncate(MOST_KNOWN);
            return Ok(Some(known));
        }
        let branch = format!("refs/heads/{BRANCH}");
        git.run(&["update-ref", &branch, &wanted.current]).map_err(git_error)?;
        Ok(None)
    }

    /// Writes a bundle with the saved work of a teammate, without the commits that are known. Returns the commits, and the
    /// size of the bundle in bytes; `None` if there is nothing new.
    pub(crate) fn send(
        &self,
        name: &AgentName,
        known: &[String],
        file: &Path,
    ) -> Result<(SavedCommits, Option<u64>), WorkError> {
        let what = format!("the work of {name} cannot be sent");
        let git_error = |why: GitError| WorkError::git(&what, &why);
        let repository = &self.repository;
        let saved = SavedCommits {
            wip: repository.reference(name, "wip"),
            offer: repository.reference(name, "offer"),
        };
        let kinds = [("wip", &saved.wip), ("offer", &saved.offer)];
        let tips: Vec<String> = kinds.iter().filter_map(|(_, commit)| (*commit).clone()).collect();
        let there = repository.present(known).map_err(git_error)?;
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        if tips.is_empty() || repository.unreached(&tips, &there).map_err(git_error)?.is_empty() {
            return Ok((saved, None));
        }
        let kinds: Vec<&str> =
            kinds.iter().filter_map(|(kind, commit)| commit.is_some().then_some(*kind)).collect();
        let bytes = write_bundle(repository, (name, &kinds), known, file).map_err(|why| {
            let hint = format!("let {name} remove or ignore large files that need not come back");
            WorkError::new(&*what, why.to_string(), hint)
        })?;
        Ok((saved, Some(bytes)))
    }
}

/// Makes the repository if it is not there.
fn make(
    clones: &Path,
    environment: &[(String, String)],
    object_format: &str,
) -> Result<Git, WorkError> {
    let folder = folder(clones);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|why| WorkError::file(&folder, &why))?;
    let git = Git::new(&folder, environment);
    git.check_version().map_err(|why| {
        WorkError::new(WHAT, why, "install a newer git on that host, or use isolation shared")
    })?;
    if !folder.join(".git/HEAD").is_file() {
        let format = format!("--object-format={object_format}");
        // A second call repairs what an interrupted one has left.
        let init = ["init", "--quiet", "--template=", &format, "--initial-branch", BRANCH];
        git.run(&init).map_err(|why| WorkError::git(WHAT, &why))?;
    }
    // Above it may be a repository of the user, and an empty folder is in none of its own.
    Ok(git.with("GIT_CEILING_DIRECTORIES", clones))
}

/// Fails if the start of a clone, which another host has sent, names no commits or a folder outside of the clone.
pub(super) fn check_start(start: &CloneStart) -> Result<(), WorkError> {
    check_ids([start.base.as_str()].into_iter().chain(start.wip.as_deref()))?;
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    if Path::new(&start.prefix).components().all(is_inside) {
        return Ok(());
    }
    let why = format!("{} is not in a clone", start.prefix);
    Err(WorkError::new("no clone can be made", why, "use the same version on both hosts"))
}

/// Fails if a word that another host has sent is not the id of a commit.
pub(super) fn check_ids<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<(), WorkError> {
    let Some(word) = words.into_iter().find(|word| !is_id(word)) else { return Ok(()) };
    let why = format!("{word:?} is not the id of a commit");
    Err(WorkError::new(WHAT, why, "use the same version on both hosts"))
}

/// Whether commits are there, with all that they reach.
fn has_all(git: &Git, commits: &[String]) -> bool {
    let has = |commit: &String| {
        let named = format!("{commit}^{{commit}}");
        git.call(&["cat-file", "-e", &named], b"").is_ok_and(|output| output.code == 0)
    };
    commits.iter().all(has) && check_whole(git, commits).is_ok()
}

/// Fetches from the repository of the workspace on this host, and then from the server of the project. What cannot be had so
/// comes as a bundle.
fn fetch_what_can_be_had(git: &Git, wanted: &ProjectCommits, workspace: &Path) {
    let workspace = workspace.join(".git").exists().then(|| workspace.display().to_string());
    let sources = [
        (workspace, "workspace", "file"),
        (wanted.remote.clone(), "project", "git:http:https:ssh"),
    ];
    for (source, kind, protocols) in sources {
        let Some(source) = source else { continue };
        let refs = format!("+refs/heads/*:refs/remotes/{kind}/*");
        let words = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--end-of-options",
            &source,
            &refs,
        ];
        let fetching = in_background(&git.with("GIT_ALLOW_PROTOCOL", Path::new(protocols)));
        let fetched = fetching.within(FETCH_WITHIN).run(&words);
        let outcome = fetched.map_or_else(|why| why.to_string(), |_| "fetched".into());
        tracing::info!(kind, outcome, "commits of the project are fetched");
        if has_all(git, std::slice::from_ref(&wanted.head)) {
            return;
        }
    }
}

/// Makes git give up a server that does not answer. Nobody is there to answer a question of ssh.
fn in_background(git: &Git) -> Git {
    let settings = [("http.lowSpeedLimit", "1000"), ("http.lowSpeedTime", "20")];
    let slow = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let git = git.with_settings(slow.into_iter());
    if git.run(&["config", "--get", "core.sshCommand"]).is_ok() {
        return git;
    }
    git.with("GIT_SSH_COMMAND", Path::new("ssh -o BatchMode=yes -o ConnectTimeout=10"))
}
