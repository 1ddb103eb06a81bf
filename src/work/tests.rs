//! Clones of a real repository, with real git and real commands.

use super::clone::{CloneOrder, CloneOrigin, create, discard};
use super::overview::{OfferState, diff, overview};
use super::remove::drop_clone;
use super::save::Saver;
use super::take::{Merged, Taker, WorkToTake, offer};
use crate::leases::{self, LeaseError};
use crate::os::command::CommandSetup;
use crate::store::{LifeLock, LifeRecord, TeamDir};
use crate::wire::AgentName;
use crate::wire::isolation::{CloneBase, ClonePlace};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

mod elsewhere;
mod foreign_writes;
mod full_disk;
mod random;

/// A repository with a team in it, and the clones of its teammates.
pub(super) struct Place {
    folder: tempfile::TempDir,
    pub(super) team: TeamDir,
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("main");
        fs::create_dir(&main).unwrap();
        let team = TeamDir::create(&main.join(".team")).unwrap();
        let place = Self { folder, team };
        // A commit may leave housekeeping behind that works in the clone, which would not be dropped.
        let quiet = "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";
        write(&place.folder.path().join(".gitconfig"), quiet);
        place.git(&main, "init -q -b trunk");
        place.git(&main, "config user.name user");
        place.git(&main, "config user.email user@localhost");
        write(&main.join("a.txt"), "one\ntwo\nthree\n");
        write(&main.join(".gitignore"), "target\n.env\n");
        place.git(&main, "add a.txt .gitignore");
        place.git(&main, "commit -qm first");
        place
    }

    pub(super) fn main(&self) -> PathBuf {
        self.folder.path().join("main")
    }

    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let home = self.folder.path().display().to_string();
        vec![
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME".into(), home),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ]
    }

    /// Runs a line of arguments for git. Returns its output.
    #[track_caller]
    pub(super) fn git(&self, folder: &Path, line: &str) -> String {
        self.shell(folder, &format!("git {line}"))
    }

    #[track_caller]
    pub(super) fn shell(&self, folder: &Path, line: &str) -> String {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(folder).env_clear().envs(self.environment());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(super) fn order(&self, name: &str) -> CloneOrder {
        self.order_of(name, self.main(), CloneBase::Snapshot)
    }

    fn order_of(&self, name: &str, folder: PathBuf, base: CloneBase) -> CloneOrder {
        CloneOrder {
            name: AgentName::member(name).unwrap(),
            clones: self.folder.path().join("work"),
            origin: CloneOrigin::Workspace { folder, base },
            environment: self.environment(),
        }
    }

    pub(super) fn clone_for(&self, name: &str) -> Saver {
        let order = self.order(name);
        let place = create(&order).unwrap();
        let env = self.environment();
        // The end of a command ends every process of its run: each test needs a run of its own.
        let run_id = format!("run-{name}-{}", self.folder.path().display());
        let setup = CommandSetup {
            env,
            run_id: run_id.replace('/', "-"),
            walls: None,
            read_only: Vec::new(),
            granted_hosts: Vec::new(),
        };
        Saver { name: order.name, place, setup }
    }

    fn taker(&self, saver: &Saver) -> Taker {
        let (name, place) = (saver.name.clone(), saver.place.clone());
        let by = AgentName::lead();
        Taker { team: self.team.clone(), name, place, by, environment: self.environment() }
    }

    /// Returns the status, index, stash and branches of the user. The status alone would refresh the index.
    fn state_of_user(&self) -> Vec<String> {
        let main = self.main();
        let index = self.shell(&main, "sha256sum < .git/index");
        [
            "--no-optional-locks status --porcelain",
            "for-each-ref refs/heads refs/stash refs/tags",
            "symbolic-ref HEAD",
        ]
        .map(|line| self.git(&main, line))
        .into_iter()
        .chain([index])
        .collect()
    }
}

pub(super) fn write(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn path(saver: &Saver) -> PathBuf {
    saver.place.path.clone().into()
}

/// Returns the content of a file in a commit of the user's repository.
fn content(place: &Place, commit: &str, file: &str) -> String {
    place.git(&place.main(), &format!("show {commit}:{file}"))
}

#[test]
fn a_clone_begins_with_what_the_user_sees_and_changes_nothing_of_the_user() {
    let place = Place::new();
    let main = place.main();
    write(&main.join("a.txt"), "one\n2\nthree\n");
    place.git(&main, "add a.txt");
    write(&main.join("a.txt"), "one\n2\n3\n");
    write(&main.join("new.txt"), "new\n");
    write(&main.join(".env"), "secret\n");
    fs::create_dir(main.join("target")).unwrap();
    write(&main.join("target/built"), "built\n");
    write(&main.join(".worktreeinclude"), ".env\n");
    let before = place.state_of_user();
    let saver = place.clone_for("alice");
    assert_eq!(place.state_of_user(), before);
    let read = |file: &str| fs::read_to_string(path(&saver).join(file)).ok();
    assert_eq!(read("a.txt").as_deref(), Some("one\n2\n3\n"));
    assert_eq!(
        (read("new.txt").as_deref(), read(".env").as_deref()),
        (Some("new\n"), Some("secret\n"))
    );
    assert_eq!(read("target/built"), None);
    assert_eq!(place.git(&path(&saver), "status --porcelain"), "");
    assert_eq!(place.git(&path(&saver), "branch --show-current"), "team/alice");
    assert_eq!(place.git(&path(&saver), "config user.name"), "alice (team)");
    place.git(&main, "gc -q --prune=now");
    place.git(&path(&saver), "fsck --connectivity-only");
    let pushed =
        Command::new("git").args(["push", "origin", "HEAD"]).current_dir(path(&saver)).output();
    assert!(!pushed.unwrap().status.success());
    discard(&saver.name, &saver.place);
    assert!(!path(&saver).exists());
    let clone = create(&place.order_of("bob", place.main(), CloneBase::Head)).unwrap();
    let committed = fs::read_to_string(Path::new(&clone.path).join("a.txt")).unwrap();
    assert_eq!(committed, "one\ntwo\nthree\n");
}

#[test]
fn a_clone_that_cannot_be_made_is_an_error_and_leaves_nothing() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let of = |folder: &Path| place.order_of("alice", folder.into(), CloneBase::Head);
    let fails = |order: &CloneOrder, why: &str| {
        let said = create(order).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
        let work = fs::read_dir(&order.clones).map(Iterator::count).unwrap_or_default();
        assert_eq!(work, 0, "{said}");
    };
    fails(&of(&outside), "not a git repository");
    place.git(&outside, "init -q");
    fails(&of(&outside), "no commit yet");
    let environment = vec![("PATH".into(), "/nonexistent".into())];
    fails(&CloneOrder { environment, ..place.order("alice") }, "git is not installed");
    let old = place.folder.path().join("old");
    fs::create_dir(&old).unwrap();
    place.shell(&old, "printf '#!/bin/sh\\necho git version 2.30.2\\n' >git; chmod +x git");
    let environment = vec![("PATH".into(), old.display().to_string())];
    fails(&CloneOrder { environment, ..place.order("alice") }, "git 2.30 is too old");
}

#[test]
fn files_commits_stashes_and_deleted_branches_are_saved() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let clone = path(&saver);
    assert_eq!(saver.save().unwrap().wip, None, "there is nothing to save yet");
    write(&clone.join("new.txt"), "new\n");
    place.shell(
        &clone,
        "echo side >side.txt; git switch -qc side; git add side.txt; git commit -qm side; \
                         git switch -q team/alice; git branch -qD side; \
                         echo put-away >stashed.txt; git stash -qu -- stashed.txt",
    );
    let index = place.shell(&clone, "sha256sum < .git/index");
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(place.shell(&clone, "sha256sum < .git/index"), index);
    assert_eq!(content(&place, &wip, "new.txt"), "new");
    let objects = place.git(&place.main(), &format!("rev-list --objects {wip}"));
    for text in ["side", "put-away"] {
        let id = place.shell(&clone, &format!("echo {text} | git hash-object --stdin"));
        assert!(objects.contains(&id), "{text} is not saved");
    }
    assert_eq!(saver.save().unwrap().wip, Some(wip), "a second save finds nothing new");
    let shown = overview(&saver.name, &saver.place, &place.environment()).unwrap();
    assert!(
        shown.changes.contains("1 file changed") && shown.offer == OfferState::None,
        "{shown:?}"
    );
    let text = diff(&saver.name, &saver.place, &place.environment()).unwrap();
    assert!(text.contains("+new"), "{text}");
}

#[test]
fn no_program_of_the_clone_runs_outside_its_walls() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let clone = path(&saver);
    let marker = place.folder.path().join("marker");
    let evil = format!("touch {}", marker.display());
    place.shell(&clone, &format!(
        "git config core.fsmonitor '{evil}'; git config filter.evil.clean '{evil}; cat'; \
         git config filter.evil.required true; echo '* filter=evil' >.gitattributes; \
         git config uploadpack.packObjectsHook '{evil}; exec'; mkdir .git/hooks; \
         for hook in post-index-change reference-transaction pre-commit post-checkout; do \
         printf '#!/bin/sh\\n{evil}\\n' >.git/hooks/$hook; chmod +x .git/hooks/$hook; done; echo x >x.txt",
    ));
    // Git of the test may have run some of them.
    fs::remove_file(&marker).unwrap_or_default();
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "x.txt"), "x");
    assert!(!marker.exists(), "a program of the clone has run");
}

#[test]
fn no_program_of_a_repository_within_the_workspace_runs_when_a_clone_is_made() {
    let place = Place::new();
    let main = place.main();
    let marker = place.folder.path().join("marker");
    place.shell(
        &main,
        "git init -q sub && cd sub && echo x >f && git add f && git -c user.name=n -c user.email=e commit -qm sub && cd .. && \
         git add sub && git -c user.name=n -c user.email=e commit -qm two",
    );
    let evil = format!("touch {}", marker.display());
    place.shell(&main, &format!(
        "cd sub && git config filter.evil.clean '{evil}; cat' && git config core.fsmonitor '{evil}' && \
         echo 'f filter=evil' >.gitattributes && echo y >f",
    ));
    fs::remove_file(&marker).unwrap_or_default();
    let alice = place.clone_for("alice");
    assert!(!marker.exists(), "a program of the repository within has run");
    assert!(place.shell(&path(&alice), "git ls-files --stage sub").starts_with("160000"));
}

#[test]
fn work_is_taken_only_into_clean_files_and_never_against_a_conflict() {
    let place = Place::new();
    let (alice, bob) = (place.clone_for("alice"), place.clone_for("bob"));
    let main = place.main();
    let take = |saver: &Saver| place.taker(saver).take(WorkToTake::Offer);
    assert!(take(&alice).unwrap_err().to_string().contains("has offered nothing"));
    write(&path(&alice).join("a.txt"), "ONE\ntwo\nthree\n");
    place.shell(&path(&alice), "mkdir sub; echo new >sub/new.txt; chmod +x sub/new.txt");
    assert!(matches!(offer(&alice, &place.team).unwrap(), Merged::Clean { .. }));
    write(&path(&bob).join("a.txt"), "one\ntwo\nTHREE\n");
    offer(&bob, &place.team).unwrap();
    write(&main.join("a.txt"), "one\ntwo\nthree, mine\n");
    let said = take(&alice).unwrap_err().to_string();
    assert!(said.contains("not committed: a.txt"), "{said}");
    assert!(!main.join("sub").exists());
    assert_eq!(take(&bob).unwrap(), Merged::Conflict { files: vec!["a.txt".into()] });
    place.git(&main, "checkout -q a.txt");
    let before = place.state_of_user();
    let Merged::Clean { stat } = take(&alice).unwrap() else { panic!("a conflict") };
    assert!(stat.contains("a.txt") && stat.contains("sub/new.txt"), "{stat}");
    assert_eq!(place.state_of_user()[1..], before[1..], "only files have changed");
    assert_eq!(
        place.shell(&main, "cat a.txt; test -x sub/new.txt; cat sub/new.txt"),
        "ONE\ntwo\nthree\nnew"
    );
    // A file with nothing but taken work is clean.
    take(&bob).unwrap();
    assert_eq!(fs::read_to_string(main.join("a.txt")).unwrap(), "ONE\ntwo\nTHREE\n");
    let shown = overview(&bob.name, &bob.place, &place.environment()).unwrap();
    assert_eq!(shown.offer, OfferState::Taken);
}

#[test]
fn files_that_another_agent_has_leased_are_taken_by_the_person_alone() {
    let place = Place::new();
    let alice = place.clone_for("alice");
    write(&path(&alice).join("a.txt"), "ONE\ntwo\nthree\n");
    offer(&alice, &place.team).unwrap();
    let bob = AgentName::member("bob").unwrap();
    let life = LifeLock::take(&place.team, &bob, LifeRecord::of_this_process()).unwrap();
    let claim = |path: &str| {
        leases::claim(&place.team, &bob, leases::new_id(), vec![path.into()], "rework".into())
    };
    claim("a.txt").unwrap();
    let take = |by: &str| {
        let by = AgentName::mailbox(by).unwrap();
        Taker { by, ..place.taker(&alice) }.take(WorkToTake::Offer)
    };
    let said = take("lead").unwrap_err().to_string();
    assert!(said.contains("a.txt is leased by bob") && said.contains("(rework)"), "{said}");
    let text = || fs::read_to_string(place.main().join("a.txt")).unwrap();
    assert_eq!(text(), "one\ntwo\nthree\n");
    take("user").unwrap();
    assert_eq!(text(), "ONE\ntwo\nthree\n");
    drop(life);
    assert!(matches!(claim("b.txt"), Err(LeaseError::NotRunning(_))));
}

#[test]
fn the_team_folder_and_ignored_files_are_never_overwritten() {
    let place = Place::new();
    let alice = place.clone_for("alice");
    let take = || place.taker(&alice).take(WorkToTake::OfferOrSaved).map_err(|why| why.to_string());
    place.shell(
        &path(&alice),
        "mkdir -p .team; echo x >.team/settings.toml; git add -f .team/settings.toml",
    );
    alice.save().unwrap();
    assert!(take().unwrap_err().contains("the team folder: .team/settings.toml"));
    place.shell(&path(&alice), "git rm -qf .team/settings.toml; echo mine >.env; git add -f .env");
    alice.save().unwrap();
    write(&place.main().join(".env"), "of the user\n");
    let said = take().unwrap_err();
    assert!(said.contains("ignored files are in the way: .env"), "{said}");
    assert_eq!(fs::read_to_string(place.main().join(".env")).unwrap(), "of the user\n");
}

/// Caches of packages make folders that nobody may change. Root may, so only another user sees the difference.
#[test]
fn a_removal_that_was_interrupted_goes_on_and_unchangeable_folders_are_removed() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let clone = path(&saver);
    place.shell(&clone, "mkdir -p target/cache; echo x >target/cache/x; chmod 555 target/cache");
    drop_clone(&saver).unwrap();
    let left = || fs::read_dir(clone.parent().unwrap()).unwrap().count();
    assert_eq!(left(), 0);
    // The roster may still name it.
    assert!(drop_clone(&saver).unwrap().was_missing);
    let saver = place.clone_for("alice");
    fs::rename(path(&saver), clone.with_file_name(".alice.dropped")).unwrap();
    assert!(drop_clone(&saver).unwrap().was_missing);
    assert_eq!(left(), 0);
    assert!(path(&place.clone_for("alice")).exists(), "the name can be used again");
}

#[test]
fn no_file_in_the_place_of_the_index_keeps_a_save_waiting() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    place.shell(&path(&saver), "echo new >new.txt; rm .git/team-index; mkfifo .git/team-index");
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "new");
    place.shell(&path(&saver), "echo newer >new.txt; rm .git/team-index; mkdir .git/team-index");
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "newer");
}

#[test]
fn a_clone_is_dropped_only_if_everything_in_it_is_saved() {
    let place = Place::new();
    let alice = place.clone_for("alice");
    let clone = path(&alice);
    let mut user = Command::new("sleep").arg("600").current_dir(&clone).spawn().unwrap();
    let said = drop_clone(&alice).unwrap_err().to_string();
    assert!(said.contains(&format!("the process {} works in it", user.id())), "{said}");
    user.kill().unwrap();
    user.wait().unwrap();
    place.shell(&clone, "mkdir inner; git init -q inner");
    let said = drop_clone(&alice).unwrap_err().to_string();
    assert!(said.contains("saved nowhere: inner;"), "{said}");
    fs::remove_dir_all(clone.join("inner")).unwrap();
    place.shell(
        &clone,
        "echo kept >kept.txt; mkdir target; touch target/built; echo lost >lost.txt; git stash -qu -- lost.txt; \
         git stash drop -q",
    );
    let id = place.shell(&clone, "echo lost | git hash-object --stdin");
    let removed = drop_clone(&alice).unwrap();
    assert_eq!(removed.ignored, ["target/"]);
    assert!(!clone.exists());
    assert_eq!(content(&place, "refs/team/alice/wip", "kept.txt"), "kept");
    let objects = place.git(&place.main(), "rev-list --objects --all");
    assert!(objects.contains(&id), "the dropped stash is lost");
    // A path that no clone was made at is never removed.
    let place_of_user =
        ClonePlace { path: place.main().display().to_string(), ..alice.place.clone() };
    let forged =
        Saver { name: alice.name.clone(), place: place_of_user, setup: alice.setup.clone() };
    let said = drop_clone(&forged).unwrap_err().to_string();
    assert!(said.contains("no clone was made there") && place.main().exists(), "{said}");
    // The name can have another clone, and keeps the work of the first one.
    let again = place.clone_for("alice");
    write(&path(&again).join("second.txt"), "second\n");
    again.save().unwrap();
    let objects = place.git(&place.main(), "rev-list --objects refs/team/alice/wip");
    assert!(
        objects.contains(&id) && objects.contains("second.txt") && objects.contains("kept.txt")
    );
}

/// The agent checks out one folder. A save keeps the files that are not checked out, as the agent has committed them, and
/// records those that the agent writes at their places.
#[test]
fn files_outside_a_sparse_checkout_are_saved_as_they_are_committed() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let clone = path(&saver);
    place.shell(
        &clone,
        "mkdir in out; echo in >in/f; echo 1 >out/1; echo 2 >out/2; echo 3 >out/3; git add -A; git commit -qm all",
    );
    saver.save().unwrap();
    place.shell(
        &clone,
        "echo new >out/1; git commit -qam new; git sparse-checkout set in; test ! -e out/1; echo IN >in/f; \
         echo more >in/more; mkdir -p out; echo again >out/2; echo beside >out/beside; rm a.txt",
    );
    let wip = saver.save().unwrap().wip.unwrap();
    let files = || {
        place.git(
            &place.main(),
            "ls-tree -r --name-only refs/team/alice/wip -- .gitignore a.txt in out",
        )
    };
    assert_eq!(files(), ".gitignore\nin/f\nin/more\nout/1\nout/2\nout/3\nout/beside");
    for (file, text) in [
        ("in/f", "IN"),
        ("out/1", "new"),
        ("out/2", "again"),
        ("out/3", "3"),
        ("out/beside", "beside"),
    ] {
        assert_eq!(content(&place, &wip, file), text, "{file}");
    }
    place.shell(&clone, "git sparse-checkout disable; git rm -qf out/3; rm -f out/1");
    saver.save().unwrap();
    assert_eq!(files(), ".gitignore\nin/f\nin/more\nout/2\nout/beside");
}

/// Git only warns of a folder that it cannot read, here one whose path is too long.
#[test]
fn a_folder_that_git_cannot_read_makes_the_save_fail() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let deep =
        "n=$(printf 'd%.0s' {1..250}); for i in {1..18}; do mkdir $n; cd $n; done; echo 1 >f";
    place.shell(&path(&saver), deep);
    let why = saver.save().unwrap_err().to_string();
    assert!(why.contains("could not open directory"), "{why}");
    assert!(drop_clone(&saver).is_err() && path(&saver).exists());
    place.shell(&path(&saver), "rm -r dd*; echo new >new.txt");
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "new");
}

#[test]
fn a_lock_that_a_killed_git_has_left_ends_no_saves() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    saver.save().unwrap();
    place.shell(&path(&saver), "echo new >new.txt");
    let lock = place.main().join(".git/refs/team/alice/wip.lock");
    place.shell(
        &place.main(),
        &format!("mkdir -p {0}; : >{0}/wip.lock", lock.parent().unwrap().display()),
    );
    let why = saver.save().unwrap_err().to_string();
    assert!(why.contains("wip.lock") && lock.exists(), "a lock may have an owner: {why}");
    place.shell(&place.main(), &format!("touch -d '2 minutes ago' {}", lock.display()));
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "new");
}

/// A path of the agent's index that cannot be recorded keeps no other away.
#[test]
fn added_files_that_are_ignored_are_saved_beside_an_entry_without_content() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    place.shell(
        &path(&saver),
        "echo '*.log' >.gitignore; echo 1 >a.log; echo 1 >z.log; git init -q inner.log; \
         git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),inner.log; git add -f a.log z.log; \
         git rm -q --cached a.log; echo 2 >z.log",
    );
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "z.log"), "2");
    let tree = place.git(&place.main(), "ls-tree -r --name-only refs/team/alice/wip");
    assert!(!tree.contains("a.log") && !tree.contains("inner.log"), "{tree}");
}

/// An agent can tell git to trust its index about files, and to leave out a file that is there.
#[test]
fn no_setting_of_a_clone_hides_a_change() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    place.shell(
        &path(&saver),
        "git config core.ignoreStat true; git config sparse.expectFilesOutsideOfPatterns true; echo b >b.txt; git add b.txt",
    );
    saver.save().unwrap();
    place.shell(
        &path(&saver),
        "git update-index --assume-unchanged a.txt; git update-index --skip-worktree b.txt; echo A >a.txt; echo B >b.txt",
    );
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(
        (content(&place, &wip, "a.txt"), content(&place, &wip, "b.txt")),
        ("A".into(), "B".into())
    );
    place.shell(&path(&saver), "echo AA >a.txt; echo BB >b.txt");
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(
        (content(&place, &wip, "a.txt"), content(&place, &wip, "b.txt")),
        ("AA".into(), "BB".into())
    );
}

#[test]
fn a_clone_with_other_repositories_is_kept_wherever_they_are() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    let clone = path(&saver);
    let commit = "git init -q . && git -c user.name=a -c user.email=a@localhost commit -q --allow-empty -m only";
    for inner in ["target/deep/inner", "sub", ".git/modules/sub", "target/bare.git"] {
        let bare = if inner.contains("bare") || inner.contains("modules") { "--bare" } else { "." };
        let begin = if bare == "." { commit.into() } else { format!("git init -q {bare}") };
        place.shell(&clone, &format!("mkdir -p {inner}; cd {inner}; {begin}"));
        let said = drop_clone(&saver).unwrap_err().to_string();
        assert!(said.contains(&format!("saved nowhere: {inner};")), "{said}");
        fs::remove_dir_all(clone.join(inner)).unwrap();
    }
    // A link to a repository is no part of the clone.
    place.shell(&clone, "mkdir -p target; ln -s ../../../main target/link");
    drop_clone(&saver).unwrap();
    assert!(place.main().join(".git").exists());
}

/// The clone promises an object that is missing, and names a command that serves it. Newer versions of git never fetch
/// it; the `git` of this test behaves like older ones.
#[test]
fn no_command_that_a_clone_promises_objects_by_is_run() {
    let place = Place::new();
    let mut saver = place.clone_for("alice");
    let clone = path(&saver);
    let marker = place.folder.path().join("marker");
    let real = place.shell(&clone, "command -v git");
    let old = place.folder.path().join("old");
    fs::create_dir(&old).unwrap();
    let wrapper = format!("#!/bin/sh\nGIT_NO_LAZY_FETCH=0 exec {real} \"$@\"\n");
    for name in ["git", "git-upload-pack"] {
        let word = if name == "git" { "" } else { " upload-pack" };
        write(&old.join(name), &wrapper.replace(" \"$@", &format!("{word} \"$@")));
    }
    place.shell(&old, "chmod +x git git-upload-pack");
    place.shell(&clone, "echo gone >gone.txt; git add gone.txt; git commit -qm gone");
    let id = place.shell(&clone, "git rev-parse HEAD:gone.txt");
    fs::remove_file(clone.join(".git/objects").join(&id[..2]).join(&id[2..])).unwrap();
    place.shell(&clone, &format!(
        "rm gone.txt; git config core.repositoryFormatVersion 1; git config extensions.partialClone evil; git config protocol.allow always; \
         git config protocol.file.allow always; git config remote.evil.promisor true; git config remote.evil.url {}; \
         git config remote.evil.uploadpack 'touch {}; git-upload-pack'",
        place.main().display(), marker.display()
    ));
    for (name, value) in &mut saver.setup.env {
        if name == "PATH" {
            *value = format!("{}:{value}", old.display());
        }
    }
    let saved = saver.save();
    assert!(saved.is_err(), "a missing object cannot be saved");
    assert!(!marker.exists(), "a command of the clone has run: {saved:?}");
}
