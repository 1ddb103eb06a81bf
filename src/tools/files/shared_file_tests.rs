//! Tests of files that several agents and other programs change.

use super::tests::{block_on, call, file_tools_of, refused};
use crate::store::TeamDir;
use crate::store::file_writes::{FileLock, draft_name};
use crate::tools::Registry;
use crate::wire::AgentName;
use crate::wire::file_view::{ContentHash, FileWrite};
use crate::wire::limits::LOCK_TIMEOUT;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// A workspace whose files several agents change.
struct Shared(tempfile::TempDir);

/// The file tools of one agent, in its thread.
struct Agent(Registry);

impl Shared {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn agent(&self, name: &str) -> Agent {
        Agent(file_tools_of(AgentName::mailbox(name).unwrap(), self.0.path()))
    }

    fn team(&self) -> TeamDir {
        TeamDir::open(&self.path(".team")).unwrap()
    }

    /// Writes a file as another program does.
    #[expect(clippy::disallowed_methods, reason = "another program changes a file")]
    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the names of all files in the workspace.
    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn bash(&self, script: &str) -> Child {
        Command::new("bash").args(["-c", script]).current_dir(self.0.path()).spawn().unwrap()
    }
}

impl Agent {
    fn read(&self, path: &str) -> Result<String, String> {
        block_on(call(&self.0, "read_file", json!({ "path": path })))
    }

    fn write(&self, path: &str, content: &str) -> Result<String, String> {
        block_on(call(&self.0, "write_file", json!({"path": path, "content": content})))
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        let input = json!({"path": path, "old_text": old, "new_text": new});
        block_on(call(&self.0, "edit_file", input))
    }

    /// Returns the note that the agent's model gets before its next call; empty if there is none.
    fn note(&self) -> String {
        block_on(self.0.file_changes()).unwrap_or_default()
    }
}

/// Returns the paths of kept versions that a text names.
fn kept_in(text: &str) -> Vec<String> {
    let words = text.split([' ', ';']);
    words.filter(|word| word.contains("/kept/")).map(str::to_owned).collect()
}

/// Two members that look at a file at the same moment are both told.
#[test]
fn a_lock_that_is_held_for_a_moment_keeps_no_change_from_a_reader() {
    let shared = Shared::new();
    let [alice, bob] = ["alice", "bob"].map(|name| shared.agent(name));
    shared.put("a", "one\n");
    alice.read("a").unwrap();
    bob.read("a").unwrap();
    bob.edit("a", "one", "two").unwrap();
    let real = shared.path("a").canonicalize().unwrap();
    let (taken, is_taken) = channel();
    let (_never, end) = channel::<()>();
    let (team, path) = (shared.team(), real);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _held = FileLock::take(&team, &path, LOCK_TIMEOUT).unwrap();
            taken.send(()).unwrap();
            // Nobody ends the moment.
            assert!(end.recv_timeout(std::time::Duration::from_millis(50)).is_err());
        });
        is_taken.recv().unwrap();
        let note = alice.note();
        assert!(note.starts_with("a, which you read, was changed by bob"), "{note}");
    });
}

#[test]
fn a_reader_is_told_once_by_whom_a_file_was_changed() {
    let shared = Shared::new();
    let [alice, bob] = ["alice", "bob"].map(|name| shared.agent(name));
    shared.put("a", "one\n");
    shared.put("unread", "one\n");
    assert_eq!(alice.note(), "");
    alice.read("a").unwrap();
    assert_eq!(alice.note(), "");
    bob.read("a").unwrap();
    bob.edit("a", "one", "two").unwrap();
    bob.write("unread-too", "two").unwrap();
    let note = alice.note();
    assert!(note.starts_with("a, which you read, was changed by bob; read"), "{note}");
    assert_eq!((alice.note(), bob.note()), (String::new(), String::new()));
    refused(alice.edit("a", "two", "2"), "has changed since you read it");
    shared.put("a", "three\n");
    assert!(alice.note().starts_with("a, which you read, was changed by another program"));
    fs::remove_file(shared.path("a")).unwrap();
    assert!(alice.note().starts_with("a, which you read, was removed by another program"));
    // The content that the agent knows is no news, and a later change is.
    shared.put("a", "one\n");
    assert_eq!(alice.note(), "");
    shared.put("a", "three\n");
    assert!(alice.note().contains("was changed"));

    for name in 1..=8 {
        shared.put(&name.to_string(), "old");
        alice.read(&name.to_string()).unwrap();
        shared.put(&name.to_string(), "new");
    }
    let note = alice.note();
    assert!(note.contains("5, which you read") && !note.contains("6, which you read"), "{note}");
    assert!(note.contains("3 more files that you read were changed"), "{note}");
    assert_eq!(alice.note(), "");
}

#[test]
fn an_own_version_that_another_program_overwrites_is_kept_and_told() {
    let shared = Shared::new();
    let [alice, bob] = ["alice", "bob"].map(|name| shared.agent(name));
    shared.put("a", "one\n");
    alice.read("a").unwrap();
    alice.edit("a", "one\n", "one\nmine\n").unwrap();
    shared.put("a", "one\nmine\nforeign\n");
    assert!(!alice.note().contains("kept"), "the change is still there");
    shared.put("a", "one\nforeign\n");
    let note = alice.note();
    let kept = kept_in(&note);
    assert!(note.contains("another program overwrote what you wrote to a"), "{note}");
    assert_eq!(kept, [".team/run/.state/kept/alice-1"]);
    assert_eq!(shared.text(&kept[0]), "one\nmine\n");
    assert!(alice.read(&kept[0]).unwrap().contains("mine"));
    assert_eq!(alice.note(), "");

    // The next write of the agent finds it out as well.
    alice.read("a").unwrap();
    alice.edit("a", "foreign", "mine").unwrap();
    shared.put("a", "foreign\n");
    refused(alice.edit("a", "mine", "x"), "has changed since you read it; read it again, then");
    let told = alice.read("a").and_then(|_| alice.edit("a", "foreign", "x")).unwrap();
    assert_eq!(told, "edited a");
    assert_eq!(shared.text(".team/run/.state/kept/alice-2"), "one\nmine\n");

    // A member that builds on a version, or replaces it after reading, overwrites nothing.
    bob.read("a").unwrap();
    bob.write("a", "bob\n").unwrap();
    assert!(alice.note().starts_with("a, which you read, was changed by bob"));
    assert!(!shared.path(".team/run/.state/kept/alice-3").exists());
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_file_that_another_process_locks_is_not_written() {
    let shared = Shared::new();
    let alice = shared.agent("alice");
    alice.write("a", "one").unwrap();
    let real = shared.path("a").canonicalize().unwrap();
    let held = FileLock::take(&shared.team(), &real, LOCK_TIMEOUT).unwrap();
    let why = alice.edit("a", "one", "two").unwrap_err();
    assert!(why.contains("nothing was written: a has been locked"), "{why}");
    assert!(why.contains(&format!("pid {}", std::process::id())), "{why}");
    assert_eq!(alice.note(), "", "a locked file is not waited for");
    drop(held);
    alice.edit("a", "one", "two").unwrap();
}

#[test]
fn the_draft_of_a_killed_process_is_removed_or_kept() {
    for (draft, is_pending, is_kept) in [
        ("new", true, false),
        ("old", true, false),
        ("a foreign version", true, true),
        ("half of a dra", false, false),
    ] {
        let shared = Shared::new();
        let alice = shared.agent("alice");
        shared.put("a", "old");
        let real = shared.path("a").canonicalize().unwrap();
        let draft_path = real.with_file_name(draft_name(&real));
        let leave_draft = || {
            if is_pending {
                let mut lock = FileLock::take(&shared.team(), &real, LOCK_TIMEOUT).unwrap();
                let base = Some(ContentHash::of(b"old"));
                let hash = ContentHash::of(b"new");
                lock.begin(FileWrite { by: "bob".into(), hash, base }).unwrap();
            }
            shared.put(draft_path.file_name().unwrap().to_str().unwrap(), draft);
        };
        leave_draft();
        alice.read("a").unwrap();
        let told = alice.write("a", "mine").unwrap();
        assert_eq!(kept_in(&told).len(), usize::from(is_kept), "{draft}: {told}");
        assert!(!draft_path.exists(), "{draft}");
        if is_kept {
            assert_eq!(shared.text(&kept_in(&told)[0]), draft);
        }
        // An agent that starts finds it as well.
        if is_pending {
            leave_draft();
            let note = shared.agent("carol").note();
            assert_eq!(kept_in(&note).len(), usize::from(is_kept), "{draft}: {note}");
            assert!(!draft_path.exists(), "{draft}");
        }
    }
}

#[test]
fn a_file_that_another_program_writes_is_left_to_it() {
    let shared = Shared::new();
    let alice = shared.agent("alice");
    alice.write("a", "one").unwrap();
    let writer = fs::OpenOptions::new().append(true).open(shared.path("a")).unwrap();
    refused(alice.write("a", "two"), "another program has a open for writing");
    drop(writer);
    fs::remove_dir_all(shared.path(".team/run/.state/files")).unwrap();
    alice.write("a", "two").unwrap();
    assert_eq!(shared.names(), [".team", "a"].map(str::to_owned).into());
}

/// The files that the agents of the next test share.
const FILES: usize = 5;

/// Runs agents that each make a number of edits in shared files, beside a program that knows no lock. The script
/// `foreign` writes the line `f-$n` to the file `$f`. Asserts that each acknowledged edit and each foreign write is in
/// a file, or is in a kept version of which an agent was told.
fn nothing_is_lost(agents: usize, edits: usize, foreign: &str) {
    let shared = Shared::new();
    let marks: Vec<String> = (0..agents).map(mark).collect();
    let marks = marks.concat();
    for file in 0..FILES {
        shared.put(&format!("f{file}"), &format!("{marks}#\n"));
    }
    let mut program = shared.bash(&format!(
        "n=0; while [ ! -e stop ]; do n=$((n + 1)); f=f$((n % {FILES})); {foreign}; \
         echo f-$n >> foreign; sleep 0.005; done"
    ));
    let stopped = Mutex::new(());
    let told: Vec<String> = std::thread::scope(|threads| {
        let running = stopped.lock().unwrap();
        let (done, all_done) = channel::<()>();
        let work = |agent| {
            let (shared, stopped, done) = (&shared, &stopped, done.clone());
            threads.spawn(move || {
                let name = format!("a{agent}");
                let member = shared.agent(&name);
                let told = (0..edits).flat_map(|edit| edit_until_done(&member, agent, edit));
                let told: Vec<String> = told.collect();
                drop(done);
                // One at a time, since a look leaves out a file that another agent has locked.
                let _last_look = stopped.lock().unwrap();
                (told, member.note())
            })
        };
        let threads: Vec<_> = (0..agents).map(work).collect();
        drop(done);
        // Fails once no agent is working any more.
        all_done.recv().unwrap_err();
        shared.put("stop", "");
        assert!(program.wait().unwrap().success());
        // In the end every agent has a version that is overwritten.
        for file in 0..FILES {
            shared.put(&format!("f{file}"), &shared.text("foreign"));
        }
        drop(running);
        let told = threads.into_iter().map(|thread| thread.join().unwrap());
        told.flat_map(|(told, last)| [told, vec![last]].concat()).collect()
    });

    let kept: Vec<String> = told.iter().flat_map(|text| kept_in(text)).collect();
    let files = (0..FILES).map(|file| format!("f{file}"));
    let mut present = BTreeSet::new();
    for name in files.chain(kept.iter().cloned()) {
        present.extend(shared.text(&name).lines().map(str::to_owned));
    }
    let acknowledged =
        (0..agents).flat_map(|agent| (0..edits).map(move |n| format!("{agent}-{n}")));
    let foreign: Vec<String> = shared.text("foreign").lines().map(str::to_owned).collect();
    let lost: Vec<String> = acknowledged.filter(|edit| !present.contains(edit)).collect();
    let lost_foreign = foreign.iter().filter(|write| !present.contains(*write)).count();
    let sum = format!(
        "{} of {} edits and {lost_foreign} of {} foreign writes are lost; {} versions are kept",
        lost.len(),
        agents * edits,
        foreign.len(),
        kept.len()
    );
    assert!(lost.is_empty() && lost_foreign == 0, "{sum}: {lost:?}");
    assert!(shared.names().iter().all(|name| !name.contains("draft")), "{:?}", shared.names());
}

/// Returns the line before which an agent adds its lines.
fn mark(agent: usize) -> String {
    format!("@{agent}\n")
}

/// Makes one edit, as often as the file changes meanwhile. Returns the texts for the model.
fn edit_until_done(member: &Agent, agent: usize, edit: usize) -> Vec<String> {
    let (file, mark) = (format!("f{}", (agent + edit) % FILES), mark(agent));
    let mut told = Vec::new();
    loop {
        told.push(member.note());
        member.read(&file).unwrap();
        let edited = member.edit(&file, &mark, &format!("{agent}-{edit}\n{mark}"));
        let is_done = edited.is_ok();
        let (Ok(text) | Err(text)) = edited;
        assert!(is_done || text.contains("has changed") || text.contains("open for"), "{text}");
        told.push(text);
        if is_done {
            return told;
        }
    }
}

const SED: &str = "sed -i \"s/^#$/f-$n\\n#/\" $f";

#[test]
fn agents_and_a_lockless_program_lose_nothing() {
    nothing_is_lost(4, 10, SED);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn many_agents_and_a_lockless_program_lose_nothing() {
    nothing_is_lost(8, 200, SED);
}

/// The program opens the file for appending, so that it writes to the version that it opened.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_program_that_appends_loses_nothing() {
    nothing_is_lost(8, 50, "echo f-$n >> $f");
}
