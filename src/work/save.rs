//! Saves the work of a clone into the user's repository: its files as they are, and all of its commits.

use super::clone;
use super::error::WorkError;
use super::repository::{Repository, is_id, lines, tips, with_parents};
use crate::os::command::{self, CommandSetup};
use crate::os::failpoint::hit;
use crate::os::git::{GitError, OPTIONS};
use crate::os::pidfd::ExitKind;
use crate::wire::AgentName;
use crate::wire::isolation::ClonePlace;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The time after which the commands of a snapshot are killed.
const LIMIT: Duration = Duration::from_secs(120);

/// The maximum size of what a snapshot prints: about 800,000 commits.
const MAX_OUTPUT: usize = 64 * 1024 * 1024;

/// The number of attempts to extend the chain, which another process may extend at the same time.
const ATTEMPTS: usize = 5;

/// The last line of a snapshot that has succeeded.
const DONE: &str = "snapshot-done";

/// Records the files of a clone. The agent's index, stash and branches stay as they are.
const SNAPSHOT: &str = r#"
set -eo pipefail
# Git before 2.45 knows only the second of these ways to fetch nothing.
export GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_TERMINAL_PROMPT=0
sparse=()
own=$PWD/.git/team-index
rm -f "$own.lock"
# An agent can put anything there: a pipe would never be read to its end.
[ -f "$own" ] || rm -rf "$own"
[ -e "$own" ] || GIT_INDEX_FILE=$own g read-tree HEAD
update() { GIT_INDEX_FILE=$own g update-index -z "$@"; }
# Files that the agent does not check out are missing on purpose: those of a sparse checkout, which its index marks.
marked() { g ls-files -z -t --stage | LC_ALL=C sed -zn 's/^S //p'; }
names() { LC_ALL=C sed -z 's/^[^\t]*\t//'; }
GIT_INDEX_FILE=$own marked | names | update --no-skip-worktree --stdin
marked | update --index-info
marked | names | update --skip-worktree --stdin
# Those that are there all the same are recorded.
sparse=(-c core.sparseCheckout=true -c sparse.expectFilesOutsideOfPatterns=false -c index.sparse=false)
# The agent may have added ignored files. A folder with a repository cannot be recorded, and keeps no other path away.
added() { g ls-files -z --cached --ignored --exclude-standard; }
record() { update --add --remove --ignore-skip-worktree-entries --stdin; }
added | record 2>/dev/null || added | while IFS= read -r -d '' path; do
    printf '%s\0' "$path" | record || [ -d "$path" ]
done
export GIT_INDEX_FILE=$own
# A folder with a repository of its own and no commit makes `add` fail.
add() {
    g add --sparse --all . 2>&1 ||
        g ls-files -z --cached --others --exclude-standard | { grep -zv '/$' || :; } | record
}
said=$(export LANGUAGE=en; exec 2>&1; add) || { tail -n 3 <<<"$said"; exit 1; }
# Git leaves out a folder that it cannot read, and only warns.
case $said in
*'could not open directory'*) grep -o -m 1 'could not open directory.\{1,200\}' <<<"$said"; exit 1 ;;
esac
tree=$(g write-tree)
head=$(g rev-parse -q --verify 'HEAD^{commit}') || head=
echo "tree $tree"
echo "snapshot $(g commit-tree "$tree" ${head:+-p "$head"} -m "$text")"
g rev-list --parents --ignore-missing --all --reflog ${head:+"$head"} --not $known
echo snapshot-done
"#;

/// Saves the work of one clone.
#[derive(Debug)]
pub(crate) struct Saver {
    pub(crate) name: AgentName,
    pub(crate) place: ClonePlace,
    /// The setup of the agent's commands, with its walls.
    pub(crate) setup: CommandSetup,
}

/// The state of a clone when it was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The commit that reaches all work; `None` if there is none beyond the base.
    pub(crate) wip: Option<String>,
    /// The tree of the files.
    pub(crate) tree: String,
    /// The commit of the files, whose parent is the agent's last commit.
    pub(crate) snapshot: String,
}

/// The lines of a snapshot.
struct Snapshot {
    tree: String,
    commit: String,
    tips: Vec<String>,
}

impl Saver {
    /// Saves files and commits of the clone. No command of the agent may run.
    pub(crate) fn save(&self) -> Result<Saved, WorkError> {
        clone::check(&self.name, &self.place)?;
        let repository = self.repository()?;
        let wip = repository.reference(&self.name, "wip");
        let snapshot = self.snapshot(wip.as_deref())?;
        hit("work.recorded");
        let what = format!("the work of {} cannot be saved", self.name);
        let saved = self.extend(&repository, snapshot);
        saved.map_err(|why| WorkError::git(&what, &why))
    }

    pub(super) fn repository(&self) -> Result<Repository, WorkError> {
        Repository::find(Path::new(&self.place.repository), &self.setup.env)
    }

    /// Runs the snapshot in the clone, as a command of the agent.
    fn snapshot(&self, wip: Option<&str>) -> Result<Snapshot, WorkError> {
        let script = self.script(wip);
        let folder = Path::new(&self.place.path);
        let ran = command::run_to_end(script.as_ref(), folder, &self.setup, LIMIT, MAX_OUTPUT);
        let what = format!("the files of {}'s clone cannot be recorded", self.name);
        let hint = format!("look with `git -C {} status`; nothing is lost", self.place.path);
        let failed = |why: String| WorkError::new(what.clone(), why, hint.clone());
        let (end, output) = ran.map_err(|why| failed(why.to_string()))?;
        let text = String::from_utf8_lossy(&output);
        if end != ExitKind::Code(0) || text.lines().last() != Some(DONE) {
            let said: Vec<&str> = text.lines().rev().take(4).collect();
            let said: Vec<&str> = said.into_iter().rev().collect();
            return Err(failed(format!("git ended with {end:?}: {}", said.join("; "))));
        }
        let value = |key: &str| {
            let mut found = text.lines().filter_map(|line| line.strip_prefix(key));
            found.next().filter(|id| is_id(id)).map(ToOwned::to_owned)
        };
        let (Some(tree), Some(commit)) = (value("tree "), value("snapshot ")) else {
            return Err(failed("git printed no tree".into()));
        };
        let commits: Vec<_> = text.lines().filter_map(with_parents).collect();
        Ok(Snapshot { tree, commit, tips: tips(&commits) })
    }

    fn script(&self, wip: Option<&str>) -> String {
        let mut script = String::from("g() { git");
        for option in OPTIONS {
            let _infallible = write!(script, " -c {option}");
        }
        if self.setup.walls.is_none() {
            script += " \"${plain[@]}\"";
        }
        // The configuration of the clone may make git trust old data about files.
        script += " -c core.ignoreStat=false \"${sparse[@]}\" \"$@\"; }\nplain=()\n";
        if self.setup.walls.is_none() {
            // Without walls, no filter of the clone's own configuration runs.
            script += "while IFS= read -r -d '' key; do plain+=(-c \"$key=\"); done < <(\n\
                       git config --local --includes -z --name-only --get-regexp '^filter\\..*\\.(clean|smudge|process)$')\n\
                       while IFS= read -r -d '' key; do plain+=(-c \"$key=false\"); done < <(\n\
                       git config --local --includes -z --name-only --get-regexp '^filter\\..*\\.required$')\n";
        }
        let known = wip.into_iter().chain([&*self.place.base]).collect::<Vec<_>>().join(" ");
        let _infallible = write!(
            script,
            "known='{known}'\ntext='The files of {}'\n\
             export GIT_AUTHOR_NAME=team GIT_AUTHOR_EMAIL=team@localhost\n\
             export GIT_COMMITTER_NAME=team GIT_COMMITTER_EMAIL=team@localhost\n{SNAPSHOT}",
            self.name
        );
        script
    }

    /// Fetches the commits of a snapshot, and makes `wip` reach them.
    fn extend(&self, repository: &Repository, snapshot: Snapshot) -> Result<Saved, GitError> {
        let Snapshot { tree, commit, tips: mut found } = snapshot;
        found.push(commit.clone());
        fetch(repository, &self.place, &found)?;
        hit("work.fetched");
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let wip = repository.reference(&self.name, "wip");
            let saved = |wip| Saved { wip, tree: tree.clone(), snapshot: commit.clone() };
            let base = self.place.base.as_str();
            let known: Vec<&str> = wip.as_deref().into_iter().chain([base]).collect();
            let new = repository.unreached(&found, &known)?;
            let has_commits = new.iter().any(|(id, _)| *id != commit);
            let first = wip.as_deref().unwrap_or(base);
            if !has_commits && repository.tree(first)? == tree {
                return Ok(saved(wip));
            }
            let new_tips = tips(&new);
            let mut parents = vec![first];
            parents.extend(new_tips.iter().map(String::as_str));
            let text = format!("Work of {}", self.name);
            let next = repository.commit(&tree, &parents, &text)?;
            let before = wip.as_deref().unwrap_or_default();
            match repository.point(&self.name, "wip", &next, Some(before)) {
                Ok(()) => {
                    hit("work.saved");
                    return Ok(saved(Some(next)));
                }
                Err(why) if attempts == 0 => return Err(why),
                Err(_) => {}
            }
        }
    }
}

/// Serves the objects of a clone. The configuration of the clone can promise objects that another repository has, and
/// name a command that serves them; git before 2.45 runs it unless no way to reach a repository is allowed.
const SERVER: &str = "--upload-pack=GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none git-upload-pack";

/// Fetches commits of a clone by their ids. Nothing in the clone is executed by it.
pub(super) fn fetch(
    repository: &Repository,
    place: &ClonePlace,
    commits: &[String],
) -> Result<(), GitError> {
    let input = lines(commits);
    let words = [
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--no-auto-maintenance",
        SERVER,
        "--stdin",
        &place.path,
    ];
    repository.git.checked(&words, input.as_bytes()).map(drop)
}
