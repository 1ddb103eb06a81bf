//! Changes of commands, found in a checkout of git.

use super::apply::apply;
use super::history::turns;
use super::look::Checkout::Around;
use super::plan::{RefusalReason, UndoPlan, plan};
use super::recorder::{NewWrite, Recorder};
use super::unreadable::UnreadableFiles;
use crate::os::git::Git;
use crate::store::undo::read_all;
use crate::store::{LifeLock, LifeRecord, TeamDir};
use crate::wire::AgentName;
use crate::wire::undo::LostReason;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

fn member(name: &str) -> AgentName {
    AgentName::member(name).unwrap()
}

struct Checkout {
    folder: tempfile::TempDir,
    dir: TeamDir,
}

impl Checkout {
    /// Makes a folder; with `files`, it is a checkout in which they are committed.
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let checkout = Self { folder, dir };
        if !files.is_empty() {
            checkout.git(&["init", "--quiet"]);
            for (name, text) in files {
                checkout.put(name, text);
            }
            checkout.git(&["add", "--all"]);
            let author = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
            checkout.git(&[&author[..], &["commit", "--quiet", "-m", "first"]].concat());
        }
        checkout
    }

    fn git(&self, words: &[&str]) {
        Git::new(self.folder.path(), &environment()).run(words).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "a command changes a file")]
    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn recorder(&self, name: &str) -> Recorder {
        Recorder::new(&self.dir, &member(name), UnreadableFiles::default())
    }

    fn begin(&self, recorder: &Recorder) -> u64 {
        let checkout = Around(self.folder.path().to_owned());
        let begun = recorder.begin_command(&checkout, &environment()).unwrap();
        begun.unwrap_or_default()
    }

    fn plan(&self, name: &str) -> UndoPlan {
        plan(&self.dir, &member(name), None).unwrap()
    }

    fn refusals(&self, name: &str) -> Vec<(String, RefusalReason)> {
        self.plan(name).refusals.into_iter().map(|it| (it.shown, it.why)).collect()
    }

    fn uncovered(&self, name: &str) -> Vec<String> {
        let turns = turns(&read_all(&self.dir).unwrap(), &member(name));
        turns.into_iter().flat_map(|turn| turn.uncovered).collect()
    }

    /// Writes a file as a file tool does.
    fn write(&self, recorder: &Recorder, name: &str, text: &str) {
        let path = self.path(name);
        let old = fs::read(&path).ok();
        let old = old.as_deref().map(|old| (old, 0o644));
        let new = (text.as_bytes(), 0o644);
        recorder.record_write(&NewWrite { path: &path, old, new: Some(new) }).unwrap();
        self.put(name, text);
    }
}

fn environment() -> Vec<(String, String)> {
    vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]
}

#[test]
fn what_a_command_changed_is_found_and_taken_back() {
    let files = [
        ("tracked", "1"),
        ("edited", "1"),
        ("removed", "1"),
        ("mode", "1"),
        ("touched", "1"),
        ("same", "1"),
        ("sub/deep", "1"),
        (".gitignore", "ignored\n"),
    ];
    let checkout = Checkout::new(&files);
    checkout.put("edited", "the person's change");
    checkout.put("untracked", "the person's file");
    let alice = checkout.recorder("alice");
    let of_alice = checkout.begin(&alice);
    for name in ["tracked", "edited", "untracked", "new", "sub/deep", "ignored", "added"] {
        checkout.put(name, "by the command");
    }
    fs::remove_file(checkout.path("removed")).unwrap();
    fs::set_permissions(checkout.path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    File::options()
        .append(true)
        .open(checkout.path("touched"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    checkout.git(&["add", "added"]);
    alice.end_command(of_alice).unwrap();
    alice.end_turn(false).unwrap();
    let plan = checkout.plan("alice");
    let shown: Vec<&str> = plan.steps.iter().map(|step| step.shown.as_str()).collect();
    let all = ["added", "edited", "mode", "new", "removed", "sub/deep", "tracked", "untracked"];
    assert_eq!((shown, plan.refusals.len()), (all.to_vec(), 0));
    assert!(plan.steps.iter().all(|step| step.is_by_command));
    let undone = apply(&checkout.dir, &plan, false).unwrap();
    let text = |name: &str| checkout.text(name).unwrap();
    assert_eq!(
        (text("tracked"), text("removed"), text("sub/deep")),
        ("1".into(), "1".into(), "1".into())
    );
    assert_eq!(
        (text("edited"), text("untracked")),
        ("the person's change".into(), "the person's file".into())
    );
    assert_eq!(
        (checkout.text("new"), checkout.text("added"), text("ignored")),
        (None, None, "by the command".into())
    );
    let mode = fs::metadata(checkout.path("mode")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & 0o111, 0);
    let redo = super::plan::plan(&checkout.dir, &member("alice"), Some(undone.turn)).unwrap();
    apply(&checkout.dir, &redo, false).unwrap();
    assert_eq!((text("edited"), checkout.text("removed")), ("by the command".into(), None));
}

#[test]
fn each_command_is_compared_with_the_files_as_they_were_just_before_it() {
    let checkout = Checkout::new(&[("a", "1"), ("b", "1")]);
    let alice = checkout.recorder("alice");
    let of_alice = checkout.begin(&alice);
    checkout.put("a", "2");
    alice.end_command(of_alice).unwrap();
    checkout.put("b", "the person's change");
    checkout.put("a", "the person's change");
    let of_alice = checkout.begin(&alice);
    checkout.put("a", "3");
    alice.end_command(of_alice).unwrap();
    assert_eq!(checkout.refusals("alice"), [("a".into(), RefusalReason::ChangedByUnknown)]);
    assert!(checkout.plan("alice").steps.is_empty());
    alice.end_turn(false).unwrap();
    let of_alice = checkout.begin(&alice);
    checkout.put("b", "4");
    alice.end_command(of_alice).unwrap();
    apply(&checkout.dir, &checkout.plan("alice"), false).unwrap();
    assert_eq!(checkout.text("b").as_deref(), Some("the person's change"));
}

#[test]
fn links_and_large_files_are_not_covered_and_said_to_be() {
    let checkout = Checkout::new(&[("a", "1"), ("target", "1")]);
    let large = checkout.path("large");
    File::create(&large).unwrap().set_len(crate::wire::limits::UNDO_FILE_BYTES + 1).unwrap();
    let alice = checkout.recorder("alice");
    let of_alice = checkout.begin(&alice);
    fs::remove_file(checkout.path("a")).unwrap();
    symlink("target", checkout.path("a")).unwrap();
    symlink("target", checkout.path("b")).unwrap();
    File::options().write(true).open(&large).unwrap().set_len(9).unwrap();
    alice.end_command(of_alice).unwrap();
    let lost = |why| RefusalReason::Lost(why);
    let expected = [
        ("a".to_owned(), lost(LostReason::Link)),
        ("b".to_owned(), lost(LostReason::Link)),
        ("large".to_owned(), lost(LostReason::TooLarge)),
    ];
    assert_eq!(checkout.refusals("alice"), expected);
    assert_eq!(checkout.text("target").as_deref(), Some("1"));
}

#[test]
fn without_a_checkout_the_changes_of_commands_are_said_not_to_be_covered() {
    let checkout = Checkout::new(&[]);
    let alice = checkout.recorder("alice");
    for _ in 0..2 {
        let of_alice = checkout.begin(&alice);
        checkout.put("a", "by the command");
        alice.end_command(of_alice).unwrap();
    }
    checkout.write(&alice, "b", "by the tool");
    let plan = checkout.plan("alice");
    assert_eq!((plan.steps.len(), plan.uncovered.len()), (1, 1));
    assert!(plan.uncovered[0].contains("not a git checkout"), "{plan:?}");
}

#[test]
fn a_change_while_two_commands_ran_belongs_to_neither() {
    let checkout = Checkout::new(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let [alice, bob] = ["alice", "bob"].map(|name| checkout.recorder(name));
    let of_alice = checkout.begin(&alice);
    checkout.put("a", "2");
    let of_bob = checkout.begin(&bob);
    checkout.put("b", "2");
    alice.end_command(of_alice).unwrap();
    checkout.put("c", "2");
    bob.end_command(of_bob).unwrap();
    let unclear = |name: &str| RefusalReason::Unattributable(name.into());
    assert_eq!(checkout.refusals("alice"), [("b".to_owned(), unclear("bob"))]);
    assert_eq!(checkout.refusals("bob"), [("b".to_owned(), unclear("alice"))]);
    let planned = |name: &str| checkout.plan(name).steps.into_iter().map(|it| it.shown).collect();
    let (of_alice, of_bob): (Vec<String>, Vec<String>) = (planned("alice"), planned("bob"));
    assert_eq!((of_alice, of_bob), (vec!["a".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn a_file_tool_of_another_agent_during_a_command_has_made_its_change() {
    let checkout = Checkout::new(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let [alice, bob] = ["alice", "bob"].map(|name| checkout.recorder(name));
    let of_alice = checkout.begin(&alice);
    checkout.write(&bob, "a", "by bob");
    checkout.write(&bob, "b", "by bob");
    checkout.put("b", "by bob and the command");
    checkout.put("c", "by the command");
    alice.end_command(of_alice).unwrap();
    let plan = checkout.plan("alice");
    let steps: Vec<&str> = plan.steps.iter().map(|step| step.shown.as_str()).collect();
    assert_eq!(steps, ["c"]);
    assert_eq!(
        checkout.refusals("alice"),
        [("b".to_owned(), RefusalReason::Unattributable("bob".into()))]
    );
    let of_bob = checkout.plan("bob");
    let steps: Vec<&str> = of_bob.steps.iter().map(|step| step.shown.as_str()).collect();
    assert_eq!((steps, of_bob.refusals.len()), (vec!["a"], 1));
}

#[test]
fn an_undo_during_a_command_is_not_taken_for_a_change_of_it() {
    let checkout = Checkout::new(&[("a", "1")]);
    let [alice, bob] = ["alice", "bob"].map(|name| checkout.recorder(name));
    checkout.write(&bob, "a", "2");
    bob.end_turn(false).unwrap();
    let of_alice = checkout.begin(&alice);
    apply(&checkout.dir, &checkout.plan("bob"), false).unwrap();
    alice.end_command(of_alice).unwrap();
    let turns = turns(&read_all(&checkout.dir).unwrap(), &member("alice"));
    assert!(turns.iter().all(|turn| turn.changes.is_empty()), "{turns:?}");
}

#[test]
fn a_command_that_was_cut_off_ends_when_its_agent_is_dead() {
    let checkout = Checkout::new(&[("a", "1"), ("b", "1")]);
    let [alice, bob] = ["alice", "bob"].map(|name| checkout.recorder(name));
    let life =
        LifeLock::take(&checkout.dir, &member("bob"), LifeRecord::of_this_process()).unwrap();
    checkout.begin(&bob);
    let of_alice = checkout.begin(&alice);
    checkout.put("a", "2");
    alice.end_command(of_alice).unwrap();
    assert_eq!(checkout.refusals("alice").len(), 1, "bob's command still runs");
    alice.end_turn(false).unwrap();
    drop((bob, life));
    let of_alice = checkout.begin(&alice);
    checkout.put("b", "2");
    alice.end_command(of_alice).unwrap();
    assert_eq!(checkout.plan("alice").steps.len(), 1);
    assert!(checkout.uncovered("bob")[0].contains("was interrupted"));
}

#[test]
fn an_interrupted_command_is_looked_at_after_the_end_of_its_turn_but_not_after_the_next_one() {
    let checkout = Checkout::new(&[("a", "1")]);
    let alice = checkout.recorder("alice");
    alice.note_input("  make\n it better ");
    let of_alice = checkout.begin(&alice);
    checkout.put("a", "2");
    alice.end_turn(false).unwrap();
    assert!(checkout.uncovered("alice")[0].contains("is still running"));
    alice.end_command(of_alice).unwrap();
    let plan = checkout.plan("alice");
    assert_eq!((plan.about.as_str(), plan.steps.len()), ("make it better", 1));
    let late = checkout.begin(&alice);
    checkout.put("a", "3");
    let of_alice = checkout.begin(&alice);
    alice.end_command(late).unwrap();
    alice.end_command(of_alice).unwrap();
    assert_eq!(checkout.plan("alice").steps.len(), 0, "the late look is none of the next command");
    assert!(checkout.uncovered("alice").iter().any(|why| why.contains("was interrupted")));
}

#[test]
fn a_resumed_agent_continues_the_turn_that_a_crash_cut_off_and_no_other() {
    let checkout = Checkout::new(&[("a", "1")]);
    let alice = checkout.recorder("alice");
    checkout.write(&alice, "a", "2");
    drop(alice);
    let resumed = checkout.recorder("alice");
    resumed.continue_turn();
    checkout.write(&resumed, "a", "3");
    let numbers = || -> Vec<u64> {
        let turns = turns(&read_all(&checkout.dir).unwrap(), &member("alice"));
        turns.into_iter().map(|turn| turn.number).collect()
    };
    assert_eq!(numbers(), [1]);
    resumed.end_turn(true).unwrap();
    drop(resumed);
    let resumed = checkout.recorder("alice");
    resumed.continue_turn();
    checkout.write(&resumed, "a", "3b");
    assert_eq!(numbers(), [1], "the end of the process has cut the turn off");
    resumed.end_turn(false).unwrap();
    drop(resumed);
    let resumed = checkout.recorder("alice");
    resumed.continue_turn();
    checkout.write(&resumed, "a", "4");
    assert_eq!(numbers(), [1, 2]);
    drop(resumed);
    let restarted = checkout.recorder("alice");
    checkout.write(&restarted, "a", "5");
    assert_eq!(numbers(), [1, 2, 3]);
}
