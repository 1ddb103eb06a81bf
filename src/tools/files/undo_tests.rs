//! Undo of changes that the real file tools of two agents made, while a person changes the same files.

use super::tests::{block_on, call, file_tools_of};
use crate::leases;
use crate::store::undo::{has, read, read_all};
use crate::store::{LifeLock, LifeRecord, TeamDir};
use crate::tools::registry::Registry;
use crate::undo::apply::{UndoError, apply};
use crate::undo::history::{last_turn, turns};
use crate::undo::plan::{RefusalReason, UndoAction, UndoPlan, plan};
use crate::undo::session_diff::{DiffContent, session_diff, unified};
use crate::wire::AgentName;
use crate::wire::undo::{LostReason, UndoEntry};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn member(name: &str) -> AgentName {
    AgentName::member(name).unwrap()
}

/// A workspace with the file tools of alice and bob.
struct Fixture {
    folder: tempfile::TempDir,
    dir: TeamDir,
    tools: BTreeMap<&'static str, Registry>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tools = ["alice", "bob"].map(|name| (name, file_tools_of(member(name), folder.path())));
        let dir = TeamDir::open(&folder.path().join(".team")).unwrap();
        Self { folder, dir, tools: tools.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    #[expect(clippy::disallowed_methods, reason = "a person changes a file")]
    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn write(&self, agent: &str, name: &str, text: &str) {
        let tools = &self.tools[agent];
        let _absent = block_on(call(tools, "read_file", json!({"path": name})));
        block_on(call(tools, "write_file", json!({"path": name, "content": text}))).unwrap();
    }

    fn end_turn(&self, agent: &str) {
        self.tools[agent].recorder().end_turn(false).unwrap();
    }

    fn plan(&self, agent: &str, to: Option<u64>) -> UndoPlan {
        plan(&self.dir, &member(agent), to).unwrap()
    }

    fn refusals(&self, agent: &str) -> Vec<RefusalReason> {
        let plan = self.plan(agent, None);
        assert!(plan.steps.is_empty(), "{plan:?}");
        plan.refusals.into_iter().map(|it| it.why).collect()
    }

    fn undo(&self, agent: &str, to: Option<u64>) -> u64 {
        apply(&self.dir, &self.plan(agent, to), false).unwrap().turn
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_undo_restores_removes_and_recreates_and_is_undone_itself() {
    let fixture = Fixture::new();
    fixture.put("a", "one");
    fs::set_permissions(fixture.path("a"), fs::Permissions::from_mode(0o750)).unwrap();
    fixture.write("alice", "a", "two");
    fixture.write("alice", "a", "three");
    fixture.write("alice", "new/b", "b");
    fixture.end_turn("alice");
    let plan = fixture.plan("alice", None);
    let actions: Vec<_> = plan.steps.iter().map(|it| (it.shown.as_str(), it.action)).collect();
    assert_eq!(actions, [("a", UndoAction::Restore), ("new/b", UndoAction::Remove)]);
    assert_eq!((fixture.text("a").unwrap().as_str(), plan.refusals.len()), ("three", 0));
    let turn = fixture.undo("alice", None);
    assert_eq!((turn, fixture.text("a").as_deref(), fixture.text("new/b")), (2, Some("one"), None));
    assert_eq!(mode(&fixture.path("a")), 0o750);
    assert!(matches!(
        apply(&fixture.dir, &plan, false).unwrap_err(),
        UndoError::Changed(_) | UndoError::Nothing
    ));
    let redo = fixture.plan("alice", Some(2));
    assert_eq!(redo.steps[1].action, UndoAction::Recreate);
    fixture.undo("alice", Some(2));
    assert_eq!(fixture.text("a").as_deref(), Some("three"));
    assert_eq!((fixture.text("new/b").as_deref(), mode(&fixture.path("a"))), (Some("b"), 0o750));
    let left = fs::read_dir(fixture.folder.path()).unwrap().count();
    assert_eq!(left, 3, "a draft is left");
}

#[test]
fn repeated_undos_go_further_back_and_an_undone_turn_counts_again_after_its_redo() {
    let fixture = Fixture::new();
    for text in ["1", "2", "3"] {
        fixture.write("alice", "a", text);
        fixture.end_turn("alice");
    }
    assert_eq!((fixture.undo("alice", None), fixture.text("a").as_deref()), (4, Some("2")));
    assert_eq!((fixture.undo("alice", None), fixture.text("a").as_deref()), (5, Some("1")));
    let all = turns(&read_all(&fixture.dir).unwrap(), &member("alice"));
    let active: Vec<u64> = all.iter().filter(|it| it.is_active).map(|it| it.number).collect();
    assert_eq!((active, last_turn(&all).unwrap().number), (vec![1], 1));
    assert_eq!((fixture.undo("alice", Some(5)), fixture.text("a").as_deref()), (6, Some("2")));
    let all = turns(&read_all(&fixture.dir).unwrap(), &member("alice"));
    assert_eq!(last_turn(&all).unwrap().number, 2);
    assert_eq!((fixture.undo("alice", Some(1)), fixture.text("a")), (7, None));
}

#[test]
fn only_the_first_version_of_a_turn_is_kept_and_an_undo_splits_a_turn() {
    let fixture = Fixture::new();
    let hash = |text: &str| crate::wire::file_view::ContentHash::of(text.as_bytes());
    fixture.put("a", "one");
    for text in ["two", "three", "four"] {
        fixture.write("alice", "a", text);
    }
    let kept = ["one", "two", "three", "four"].map(|text| has(&fixture.dir, &hash(text)));
    assert_eq!(kept, [true, false, false, false]);
    fixture.undo("alice", None);
    assert_eq!(fixture.text("a").as_deref(), Some("one"));
    fixture.write("alice", "a", "five");
    let entries = read(&fixture.dir, &member("alice")).unwrap();
    let begun: Vec<u64> =
        entries.iter().filter_map(UndoEntry::begun_turn).map(|(turn, _)| turn).collect();
    assert_eq!(begun, [1, 2, 3]);
    fixture.undo("alice", None);
    assert_eq!(fixture.text("a").as_deref(), Some("one"));
}

#[test]
fn a_refusal_names_the_one_who_changed_the_file_and_nothing_is_changed() {
    let fixture = Fixture::new();
    fixture.put("a", "one");
    fixture.write("alice", "a", "two");
    fixture.write("alice", "b", "two");
    fixture.write("bob", "a", "three");
    let plan = fixture.plan("alice", None);
    assert_eq!(plan.refusals[0].why, RefusalReason::ChangedBy("bob".into()));
    assert!(matches!(apply(&fixture.dir, &plan, false), Err(UndoError::Refused(1))));
    assert_eq!(
        (fixture.text("a").as_deref(), fixture.text("b").as_deref()),
        (Some("three"), Some("two"))
    );
    apply(&fixture.dir, &plan, true).unwrap();
    assert_eq!((fixture.text("a").as_deref(), fixture.text("b")), (Some("three"), None));
    fixture.end_turn("alice");
    fixture.write("alice", "c", "mine");
    fixture.put("c", "yours");
    assert_eq!(fixture.refusals("alice"), [RefusalReason::ChangedByUnknown]);
    fs::remove_file(fixture.path("c")).unwrap();
    fixture.put("victim", "mine");
    symlink(fixture.path("victim"), fixture.path("c")).unwrap();
    assert!(matches!(fixture.refusals("alice")[..], [RefusalReason::NotRegular(_)]));
    fs::remove_file(fixture.path("c")).unwrap();
    fs::create_dir(fixture.path("c")).unwrap();
    assert!(matches!(fixture.refusals("alice")[..], [RefusalReason::NotRegular(_)]));
    assert_eq!(fixture.text("victim").as_deref(), Some("mine"));
}

#[test]
fn the_lease_of_a_living_agent_is_respected_in_the_plan_and_after_it() {
    let fixture = Fixture::new();
    fixture.write("alice", "src/a", "mine");
    let plan = fixture.plan("alice", None);
    let record = LifeRecord { incarnation: "bob-1".into(), ..LifeRecord::of_this_process() };
    let life = LifeLock::take(&fixture.dir, &member("bob"), record).unwrap();
    leases::claim(&fixture.dir, &member("bob"), "1".into(), vec!["src".into()], "work".into())
        .unwrap();
    let refusals = fixture.refusals("alice");
    assert!(matches!(&refusals[..], [RefusalReason::Leased(why)] if why.contains("bob")));
    assert!(matches!(apply(&fixture.dir, &plan, false), Err(UndoError::Changed(_))));
    assert_eq!(fixture.text("src/a").as_deref(), Some("mine"));
    drop(life);
    fixture.undo("alice", None);
    assert_eq!(fixture.text("src/a"), None);
}

#[test]
fn a_write_that_another_program_prevents_is_not_recorded() {
    let fixture = Fixture::new();
    fixture.put("a", "one");
    fixture.write("alice", "a", "two");
    let writer = fs::File::options().append(true).open(fixture.path("a")).unwrap();
    let input = json!({"path": "a", "content": "three"});
    let refused = block_on(call(&fixture.tools["alice"], "write_file", input)).unwrap_err();
    assert!(refused.contains("open for writing"), "{refused}");
    drop(writer);
    let all = turns(&read_all(&fixture.dir).unwrap(), &member("alice"));
    assert_eq!(all[0].changes.len(), 1, "{all:?}");
    fixture.undo("alice", None);
    assert_eq!(fixture.text("a").as_deref(), Some("one"));
}

#[test]
fn a_folder_that_is_a_link_now_is_not_entered() {
    let fixture = Fixture::new();
    fixture.write("alice", "sub/a", "mine");
    fs::create_dir(fixture.path("other")).unwrap();
    fixture.put("other/a", "mine");
    fs::rename(fixture.path("sub"), fixture.path("moved")).unwrap();
    symlink("other", fixture.path("sub")).unwrap();
    assert!(matches!(fixture.refusals("alice")[..], [RefusalReason::NotRegular(_)]));
    assert_eq!(fixture.text("other/a").as_deref(), Some("mine"));
}

#[test]
fn a_version_above_the_limit_and_one_that_is_lost_are_refused() {
    let fixture = Fixture::new();
    let large = "x".repeat(usize::try_from(crate::wire::limits::UNDO_FILE_BYTES).unwrap() + 1);
    fixture.put("a", &large);
    // A file that was read in part cannot be written whole, and a large one is not shown whole.
    let tools = &fixture.tools["alice"];
    block_on(call(tools, "write_file", json!({"path": "b", "content": large}))).unwrap();
    assert_eq!(fixture.refusals("alice"), [RefusalReason::Lost(LostReason::TooLarge)]);
    fixture.end_turn("alice");
    fixture.put("c", "old");
    fixture.write("alice", "c", "new");
    let kept = crate::wire::file_view::ContentHash::of(b"old");
    fs::remove_file(fixture.dir.undo_object(kept.as_str())).unwrap();
    assert_eq!(fixture.refusals("alice"), [RefusalReason::Lost(LostReason::NotKept)]);
}

#[test]
fn the_changes_of_the_session_are_shown_for_each_agent() {
    let fixture = Fixture::new();
    fixture.put("a", "one\n");
    fixture.write("alice", "a", "one\ntwo\n");
    fixture.write("bob", "a", "one\ntwo\nthree\n");
    fixture.write("alice", "a", "zero\none\ntwo\nthree\n");
    fixture.write("bob", "new", "text");
    let diffs = session_diff(&fixture.dir, None, &[]).unwrap();
    let lines = |agent: usize, file: usize| match &diffs[agent].files[file].content {
        DiffContent::Text { before, after } => unified(before, after),
        DiffContent::Mode(..) | DiffContent::Binary | DiffContent::Unknown(_) => {
            panic!("{diffs:?}")
        }
    };
    assert_eq!((diffs.len(), diffs[0].files.len(), diffs[1].files.len()), (2, 2, 2));
    assert!(lines(0, 0).ends_with(" one\n+two\n"), "{}", lines(0, 0));
    assert!(lines(0, 1).contains("+zero\n one\n"), "{}", lines(0, 1));
    assert!(lines(1, 0).ends_with("+three\n") && !lines(1, 0).contains("+two"));
    assert!(lines(1, 1).contains("+text"));
    let of_bob = session_diff(&fixture.dir, None, &[member("bob")]).unwrap();
    assert_eq!(of_bob, diffs[1..]);
    let later = session_diff(&fixture.dir, Some(4e9.into()), &[]).unwrap();
    assert!(later.is_empty());
}

/// A change of a file, as the test knows it.
#[derive(Debug, Clone)]
struct Known {
    file: usize,
    /// The agent, and the number of its turn; `None` for the person.
    by: Option<(usize, u64)>,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Debug, Clone)]
enum Step {
    Write { agent: usize, file: usize, text: usize },
    Person { file: usize, text: Option<usize> },
    EndTurn { agent: usize },
    Undo { agent: usize, back: u64, partial: bool },
}

const AGENTS: [&str; 2] = ["alice", "bob"];
const FILES: [&str; 3] = ["a", "sub/b", "c"];
const TEXTS: [&str; 3] = ["", "one\n", "two\n"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..2_usize, 0..3_usize, 0..3_usize)
            .prop_map(|(agent, file, text)| Step::Write { agent, file, text }),
        2 => (0..3_usize, proptest::option::of(0..3_usize))
            .prop_map(|(file, text)| Step::Person { file, text }),
        2 => (0..2_usize).prop_map(|agent| Step::EndTurn { agent }),
        3 => (0..2_usize, 0..4_u64, any::<bool>())
            .prop_map(|(agent, back, partial)| Step::Undo { agent, back, partial }),
    ]
}

/// The state of the test beside the files.
#[derive(Default)]
struct Oracle {
    log: Vec<Known>,
    last_turn: [u64; 2],
    is_open: [bool; 2],
}

impl Oracle {
    /// Returns what becomes of a file by an undo.
    fn expected(&self, agent: usize, to: u64, file: usize, now: Option<&String>) -> Expected {
        let own = self.log.iter().filter(|it| {
            it.file == file && it.by.is_some_and(|(by, turn)| by == agent && turn >= to)
        });
        let own: Vec<&Known> = own.collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else { return Expected::Same };
        if own.windows(2).any(|pair| pair[0].after != pair[1].before) {
            return Expected::Refused;
        }
        if first.before == last.after || now == first.before.as_ref() {
            return Expected::Same;
        }
        if now == last.after.as_ref() {
            Expected::State(first.before.clone())
        } else {
            Expected::Refused
        }
    }
}

/// The effect of an undo on a file.
#[derive(PartialEq)]
enum Expected {
    Same,
    State(Option<String>),
    Refused,
}

fn take_step(fixture: &Fixture, oracle: &mut Oracle, step: &Step) -> Result<(), TestCaseError> {
    match *step {
        Step::Write { agent, file, text } => {
            let before = fixture.text(FILES[file]);
            fixture.write(AGENTS[agent], FILES[file], TEXTS[text]);
            if !std::mem::replace(&mut oracle.is_open[agent], true) {
                oracle.last_turn[agent] += 1;
            }
            let by = Some((agent, oracle.last_turn[agent]));
            oracle.log.push(Known { file, by, before, after: Some(TEXTS[text].into()) });
        }
        Step::Person { file, text } => {
            let path = fixture.path(FILES[file]);
            let _absent = fs::remove_file(&path);
            if let Some(text) = text {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fixture.put(FILES[file], TEXTS[text]);
            }
        }
        Step::EndTurn { agent } => {
            fixture.end_turn(AGENTS[agent]);
            oracle.is_open[agent] = false;
        }
        Step::Undo { agent, back, partial } => {
            let to = (back > 0).then(|| (oracle.last_turn[agent] + 1).saturating_sub(back));
            let Ok(plan) = plan(&fixture.dir, &member(AGENTS[agent]), to) else { return Ok(()) };
            let before = FILES.map(|file| fixture.text(file));
            let first = plan.to_turn;
            let expected: Vec<_> = (0..FILES.len())
                .map(|file| oracle.expected(agent, first, file, before[file].as_ref()))
                .collect();
            let done = apply(&fixture.dir, &plan, partial);
            let refused: Vec<&str> = plan.refusals.iter().map(|it| it.shown.as_str()).collect();
            for (file, expected) in expected.iter().enumerate() {
                let is_refused = refused.contains(&FILES[file]);
                prop_assert_eq!(
                    *expected == Expected::Refused,
                    is_refused,
                    "{} {:?}",
                    FILES[file],
                    plan
                );
                let wanted = match expected {
                    Expected::State(state) if done.is_ok() => state,
                    Expected::State(_) | Expected::Same | Expected::Refused => &before[file],
                };
                prop_assert_eq!(&fixture.text(FILES[file]), wanted, "{} {:?}", FILES[file], plan);
            }
            let Ok(undone) = done else { return Ok(()) };
            prop_assert!(partial || refused.is_empty());
            oracle.last_turn[agent] += 1;
            prop_assert_eq!(undone.turn, oracle.last_turn[agent]);
            oracle.is_open[agent] = false;
            for (file, expected) in expected.into_iter().enumerate() {
                if let Expected::State(after) = expected {
                    let by = Some((agent, undone.turn));
                    oracle.log.push(Known { file, by, before: before[file].clone(), after });
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_an_undo_each_file_is_what_it_was_or_the_undo_is_refused(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let fixture = Fixture::new();
        let mut oracle = Oracle::default();
        for step in &steps {
            take_step(&fixture, &mut oracle, step)?;
        }
        let drafts = fs::read_dir(fixture.folder.path()).unwrap().flatten();
        let drafts = drafts.filter(|it| it.file_name().to_string_lossy().ends_with(".draft"));
        prop_assert_eq!(drafts.count(), 0);
    }
}
