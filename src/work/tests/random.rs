//! Random changes of a teammate and a user, with saves, takes, drops and beginnings that are interrupted: nothing is lost.

use super::{Place, path, write};
use crate::os::command::CommandSetup;
use crate::os::failpoint::{self, POINTS};
use crate::store::TeamDir;
use crate::wire::AgentName;
use crate::wire::isolation::{CloneBase, ClonePlace};
use crate::work::clone::{self, CloneOrder, CloneOrigin, create};
use crate::work::remove::drop_clone;
use crate::work::save::Saver;
use crate::work::take::{Taker, WorkToTake};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

/// The interruptions that are no failpoints, where the effects of all are counted.
const KILLED_AT_CALL: &str = "killed at a call of git";
const FULL_DISK: &str = "a save without room";

/// The variable with the job of a child process.
const JOB: &str = "TEAM_TEST_JOB";

/// The actions of the module, and the failpoints in each.
const ACTIONS: [(Action, &[&str]); 4] = [
    (Action::Save, &["recorded", "fetched", "saved"]),
    (Action::Take, &["merged", "applied"]),
    (Action::Drop, &["recorded", "kept", "moved", "removed"]),
    (Action::Make, &["pinned", "filled", "placed", "described"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
    Save,
    Take,
    Drop,
    Make,
}

/// The way in which an action is interrupted.
#[derive(Debug, Clone)]
enum Interruption {
    /// The process is killed at this failpoint.
    Failpoint(String),
    /// The process that calls git is killed at this call, before git runs or after it.
    Call { number: usize, is_after: bool },
    /// No file can be larger than this many KiB, as on a full disk.
    FullDisk { kib: usize },
}

#[derive(Serialize, Deserialize)]
struct Job {
    action: Action,
    armed: Option<String>,
    name: String,
    place: ClonePlace,
    env: Vec<(String, String)>,
    clones: PathBuf,
    workspace: PathBuf,
    run_id: String,
}

/// Carries out a job of another test in a process that can be killed.
#[test]
#[ignore = "the other tests of this file start it with a job"]
#[expect(clippy::disallowed_methods, reason = "a test reads its own variable")]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    if let Some(armed) = &job.armed {
        failpoint::arm(armed, "", None).unwrap();
    }
    let setup = CommandSetup {
        env: job.env.clone(),
        run_id: job.run_id,
        walls: None,
        read_only: Vec::new(),
        granted_hosts: Vec::new(),
    };
    let name = AgentName::member(&job.name).unwrap();
    let saver = Saver { name: name.clone(), place: job.place.clone(), setup };
    let done = match job.action {
        Action::Save => saver.save().map(drop),
        Action::Drop => drop_clone(&saver).map(drop),
        Action::Take => {
            let team = TeamDir::create(&job.workspace.join(".team")).unwrap();
            let by = AgentName::lead();
            Taker { team, name, place: job.place, by, environment: job.env }
                .take(WorkToTake::OfferOrSaved)
                .map(drop)
        }
        Action::Make => create(&CloneOrder {
            name,
            clones: job.clones,
            origin: CloneOrigin::Workspace { folder: job.workspace, base: CloneBase::Snapshot },
            environment: job.env,
        })
        .map(drop),
    };
    done.unwrap();
}

/// Random numbers from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A clone that a teammate changes at random, and everything that must never be lost.
struct Story {
    place: Place,
    saver: Saver,
    rng: Rng,
    /// Blobs that were committed in the clone. Until a drop, the clone may be the only one that has them.
    committed: BTreeSet<String>,
    /// Blobs that stood in a file or that a reference or a log named when a save succeeded.
    saved: BTreeSet<String>,
    written: usize,
    /// The number of processes that were killed at each failpoint.
    kills: BTreeMap<String, usize>,
    log: Vec<String>,
}

const FILES: [&str; 6] = ["f0", "f1", "sub/f2", "sub/f3", "deep/er/f4", "a.txt"];

impl Story {
    fn begin(seed: u64) -> Self {
        let place = Place::new();
        let saver = place.clone_for("alice");
        Self {
            place,
            saver,
            rng: Rng(seed),
            committed: BTreeSet::new(),
            saved: BTreeSet::new(),
            written: 0,
            kills: BTreeMap::new(),
            log: vec![format!("seed {seed}")],
        }
    }

    /// Runs a line in the clone.
    fn shell(&self, line: &str) -> String {
        self.place.shell(&path(&self.saver), line)
    }

    fn user(&self, line: &str) -> String {
        self.place.shell(&self.place.main(), line)
    }

    fn text(&mut self, file: &str) -> String {
        self.written += 1;
        format!("text {} of {file}\n", self.written)
    }

    fn step(&mut self) {
        let number = self.rng.below(28);
        let file = FILES[self.rng.below(FILES.len())];
        self.log.push(format!("step {number} {file}"));
        match number {
            0..=4 => {
                let text = self.text(file);
                let target = path(&self.saver).join(file);
                self.shell(&format!("mkdir -p $(dirname {file}); rm -rf {file}"));
                write(&target, &text);
            }
            5..=15 => self.step_of_agent(number, file),
            16..=19 => self.step_of_user(number, file),
            20 | 21 => self.end_turn(),
            22 | 23 => self.interrupt(Action::Save),
            24 => self.take(),
            25 => self.interrupt(Action::Take),
            26 => self.refuse_drop(),
            _ => self.drop_and_begin_again(),
        }
    }

    fn step_of_agent(&mut self, number: usize, file: &str) {
        let branch = self.rng.below(3);
        let line = match number {
            5 => format!("rm -rf {file}"),
            6 => format!("[ ! -f {file} ] || mv {file} moved-$(basename {file})"),
            7 => format!("mkdir -p links; ln -sfn ../{file} links/l{branch}; ln -sfn /nonexistent links/none"),
            8 => format!("mkdir -p target; echo built >target/x; [ ! -f {file} ] || chmod +x {file}"),
            9 => "git add -A --sparse; git commit -q --allow-empty -m step".into(),
            10 => "git add -A --sparse; git commit -q --amend --allow-empty -m amended; git gc -q; git pack-refs --all".into(),
            11 => "git stash -qu 2>&1 || :".into(),
            12 => "git stash pop -q 2>/dev/null || { git reset -q --hard; git stash drop -q 2>/dev/null; } || :".into(),
            13 => format!("git switch -qfC b{branch}; git branch | grep -v '*' | xargs -r git branch -qD"),
            14 => "git rebase -q --autostash --force-rebase HEAD^ >/dev/null 2>&1 || git rebase --abort 2>/dev/null || :".into(),
            _ if branch == 0 => "git sparse-checkout disable".into(),
            _ => "git sparse-checkout set sub 2>/dev/null".into(),
        };
        self.shell(&line);
        let blobs = self.shell(
            "for c in HEAD stash@{0} stash@{0}^3; do git ls-tree -r --format='%(objectname)' $c 2>/dev/null || :; done",
        );
        self.committed.extend(blobs.lines().map(str::to_owned));
    }

    fn step_of_user(&mut self, number: usize, file: &str) {
        let text = self.text(file);
        let branch = self.rng.below(2);
        match number {
            16 | 17 => drop(
                self.user(&format!("mkdir -p $(dirname {file}); printf 'user: {text}' >{file}")),
            ),
            18 => drop(self.user("git add -A; git commit -q --allow-empty -m user")),
            _ => drop(self.user(&format!("git stash -q -u; git switch -qC user{branch}"))),
        }
    }

    /// Returns the files, index, references and stash of the user.
    fn user_state(&self) -> Vec<String> {
        let files = "find . \\( -path ./.git -o -path ./.team \\) -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";
        let mut state = self.place.state_of_user();
        state.extend([self.user(files), self.user("git stash list")]);
        state
    }

    /// Returns the blobs that a save must keep: those of files, and those that a reference or a log names.
    fn blobs_now(&self) -> BTreeSet<String> {
        let files = "git -c core.quotePath=false ls-files -co --exclude-standard | sort -u | while IFS= read -r f; do \
             if [ -L \"$f\" ]; then readlink -n \"$f\" | git hash-object -w --stdin; \
             elif [ -f \"$f\" ]; then git hash-object \"$f\"; fi; done; \
             git rev-list --objects --no-object-names --filter=object:type=blob --all --reflog HEAD \
                 --filter-provided-objects; git ls-tree -r --format='%(objecttype) %(objectname)' HEAD | sed -n 's/^blob //p'";
        self.shell(files).lines().map(str::to_owned).collect()
    }

    /// Fails if something that was saved is not reachable from the references of the teammate.
    #[track_caller]
    fn check_saved(&self) {
        self.user("git gc -q --prune=now");
        let line = "git rev-list --objects --no-object-names --glob=refs/team/alice";
        let all: BTreeSet<String> = self.user(line).lines().map(str::to_owned).collect();
        let lost: Vec<_> = self
            .saved
            .difference(&all)
            .map(|id| self.user(&format!("git show {id} 2>&1 || :")))
            .collect();
        assert!(lost.is_empty(), "lost: {lost:?}\n{}", self.log.join("\n"));
    }

    /// Saves the work, as at the end of a turn and after a kill.
    fn end_turn(&mut self) {
        let (now, before) = (self.blobs_now(), self.user_state());
        let saved =
            self.saver.save().unwrap_or_else(|why| panic!("{why}\n{}", self.log.join("\n")));
        assert_eq!(self.user_state(), before, "{}", self.log.join("\n"));
        self.saved.extend(now);
        self.check_saved();
        if let Some(wip) = saved.wip {
            self.check_tree(&wip);
        }
        let kept = self.shell("git cat-file --batch-all-objects --batch-check='%(objectname)'");
        for blob in &self.committed {
            assert!(kept.contains(blob.as_str()), "{blob} is lost\n{}", self.log.join("\n"));
        }
        self.shell("git fsck --connectivity-only --no-dangling 2>&1");
    }

    /// Fails if a saved tree lacks a file, has too many, or has another mode or content. Git names the files that it does not
    /// check out. The copy of the index has its time, by which git knows entries that may be old.
    fn check_tree(&self, wip: &str) {
        let line = "export GIT_INDEX_FILE=$PWD/.git/check-index; cp -p .git/index $GIT_INDEX_FILE; \
             git add -A --sparse . && git write-tree; rm $GIT_INDEX_FILE";
        let tree = self.user(&format!("git rev-parse {wip}^{{tree}}"));
        assert_eq!(tree, self.shell(line), "{}", self.log.join("\n"));
    }

    fn take(&mut self) {
        let dirty = "git ls-files -moz --exclude-standard | sort -z | while IFS= read -r -d '' f; do \
             [ ! -f \"$f\" ] || sha256sum \"$f\"; done";
        let (before, files) = (self.user_state(), self.user(dirty));
        let taken = self.place.taker(&self.saver).take(WorkToTake::OfferOrSaved);
        let after = self.user_state();
        // The first is the list of changed files, the one before the last the files.
        assert_eq!(
            (&after[1..4], &after[5]),
            (&before[1..4], &before[5]),
            "{}",
            self.log.join("\n")
        );
        if taken.is_err() {
            assert_eq!(after, before, "{}", self.log.join("\n"));
            return;
        }
        let taken = self
            .user("git ls-tree -r --format='%(objectname)' refs/team/alice/taken 2>/dev/null || :");
        let now = self.user(dirty);
        for line in files.lines().filter(|line| !now.contains(*line)) {
            // Only what was taken before can be replaced.
            let (_, name) = line.split_once("  ").unwrap();
            assert!(
                !taken.is_empty() && !name.is_empty(),
                "{line} is lost\n{}",
                self.log.join("\n")
            );
        }
    }

    fn refuse_drop(&mut self) {
        self.shell("mkdir -p target/inner; git init -q target/inner");
        drop_clone(&self.saver).unwrap_err();
        fs::remove_dir_all(path(&self.saver).join("target/inner")).unwrap();
    }

    fn drop_and_begin_again(&mut self) {
        let now = self.blobs_now();
        self.interrupt(Action::Drop);
        drop_clone(&self.saver).unwrap_or_else(|why| panic!("{why}\n{}", self.log.join("\n")));
        assert!(!path(&self.saver).exists());
        self.saved.extend(now);
        self.saved.append(&mut self.committed);
        self.check_saved();
        self.interrupt(Action::Make);
        let order = self.place.order("alice");
        let known = clone::known(&order.clones, &order.name);
        self.saver.place = known.unwrap_or_else(|| create(&order).unwrap());
        self.check_saved();
    }

    /// Runs an action in a process that is interrupted. The user's index and branches stay as they are.
    fn interrupt(&mut self, action: Action) {
        let (_, points) = ACTIONS.into_iter().find(|(known, _)| *known == action).unwrap();
        let how = match self.rng.below(4) {
            0 | 1 => {
                Interruption::Failpoint(format!("work.{}", points[self.rng.below(points.len())]))
            }
            2 => {
                Interruption::Call { number: self.rng.below(24), is_after: self.rng.below(2) == 0 }
            }
            _ => Interruption::FullDisk { kib: self.rng.below(3) },
        };
        self.log.push(format!("{action:?} {how:?}"));
        let before = self.place.state_of_user();
        self.run(action, &how);
        assert_eq!(self.place.state_of_user()[1..], before[1..], "{}", self.log.join("\n"));
        self.check_saved();
    }

    fn run(&mut self, action: Action, how: &Interruption) {
        let folder = self.place.folder.path();
        let (mut armed, mut env, mut kib) = (None, self.place.environment(), None);
        let token = folder.join("token");
        match how {
            Interruption::Failpoint(point) => {
                write(&token, "");
                armed = Some(format!("{point}={}", token.display()));
            }
            Interruption::Call { number, is_after } => {
                let real = self.place.shell(folder, "command -v git");
                let fake = folder.join("fake");
                fs::create_dir_all(&fake).unwrap();
                let count = fake.join("count");
                write(&count, &number.to_string());
                let count = count.display();
                let after = if *is_after { format!("{real} \"$@\"; ") } else { String::new() };
                write(
                    &fake.join("git"),
                    &format!(
                        "#!/bin/bash\nn=$(cat {count}); echo $((n-1)) >{count}\n\
                     [ \"$n\" != 0 ] || {{ {after}kill -9 $PPID; exit 1; }}\nexec {real} \"$@\"\n"
                    ),
                );
                self.place.shell(&fake, "chmod +x git");
                for (_, value) in env.iter_mut().filter(|(name, _)| name == "PATH") {
                    *value = format!("{}:{value}", fake.display());
                }
            }
            Interruption::FullDisk { kib: limit } => kib = Some(limit),
        }
        let order = self.place.order("alice");
        let job = Job {
            action,
            armed,
            name: "alice".into(),
            place: self.saver.place.clone(),
            env,
            clones: order.clones,
            workspace: self.place.main(),
            run_id: format!("{}-child", self.saver.setup.run_id),
        };
        let limit = kib.map(|kib| format!("trap '' XFSZ; ulimit -f {kib}; ")).unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{limit}exec \"$0\" \"$@\"")]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "work::tests::random::child", "--ignored", "--nocapture"]);
        command.env(JOB, serde_json::to_string(&job).unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("running 1 test"), "{said}");
        let (is_killed, has_failed) = (output.status.signal() == Some(9), !output.status.success());
        let took_effect = match how {
            Interruption::Failpoint(point) => (is_killed && !token.exists()).then(|| point.clone()),
            Interruption::Call { .. } => is_killed.then(|| KILLED_AT_CALL.into()),
            // Other actions fail for other reasons, too.
            Interruption::FullDisk { .. } => {
                (has_failed && action == Action::Save).then(|| FULL_DISK.into())
            }
        };
        if let Some(effect) = took_effect {
            *self.kills.entry(effect).or_default() += 1;
        }
    }
}

fn nothing_is_lost(seeds: impl IntoIterator<Item = u64>, steps: usize) -> BTreeMap<String, usize> {
    let mut kills = BTreeMap::new();
    for seed in seeds {
        let mut story = Story::begin(seed);
        for _ in 0..steps {
            story.step();
        }
        story.end_turn();
        story.drop_and_begin_again();
        for (point, number) in story.kills {
            *kills.entry(point).or_default() += number;
        }
    }
    kills
}

/// One kill at each failpoint of an action that has something to do, then the action again.
#[test]
fn a_kill_at_each_failpoint_of_a_clone_loses_nothing() {
    let mut story = Story::begin(0);
    for (action, points) in ACTIONS {
        for point in points {
            let point = format!("work.{point}");
            // Work that was taken before conflicts with another text of the same file.
            let text = story.text(&point);
            write(&path(&story.saver).join(&point), &text);
            if action == Action::Take {
                story.user("git add -A; git commit -q --allow-empty -m user");
                story.end_turn();
            }
            if action == Action::Make {
                drop_clone(&story.saver).unwrap();
            }
            story.log.push(format!("{action:?} {point}"));
            let now = if action == Action::Make { BTreeSet::new() } else { story.blobs_now() };
            let before = story.kills.get(&point).copied().unwrap_or_default();
            story.run(action, &Interruption::Failpoint(point.clone()));
            assert_eq!(story.kills.get(&point), Some(&(before + 1)), "not reached: {point}");
            match action {
                Action::Save => story.end_turn(),
                Action::Take => story.take(),
                Action::Drop => drop(drop_clone(&story.saver).unwrap()),
                Action::Make => {}
            }
            story.saved.extend(now);
            story.check_saved();
            let order = story.place.order("alice");
            let known = clone::known(&order.clones, &order.name);
            story.saver.place = known.unwrap_or_else(|| create(&order).unwrap());
        }
    }
    let all = POINTS.into_iter().filter(|point| point.starts_with("work."));
    let missed: Vec<_> = all.filter(|point| !story.kills.contains_key(*point)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn no_work_is_lost_by_random_changes_saves_and_drops() {
    nothing_is_lost([1, 27], 25);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn no_work_is_lost_by_many_random_changes_saves_and_drops() {
    let kills = nothing_is_lost(100..106, 120);
    for effect in [KILLED_AT_CALL, FULL_DISK] {
        assert!(kills.contains_key(effect), "no interruption took effect: {effect}: {kills:?}");
    }
}
