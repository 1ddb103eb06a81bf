//! Tests of the file tools in a real folder.

use super::*;
use crate::bus::{Bus, MailLimits};
use crate::os::SystemClock;
use crate::protocol::permission::PermissionSubject;
use crate::store::SharedClock;
use crate::tasks::Tasks;
use crate::tools::command::{BackgroundCommands, OutputStore, command_setup};
use crate::tools::hooks::Hooks;
use crate::tools::registry::{Registration, Registry};
use crate::tools::skills::Skills;
use crate::tools::team_context::TeamContext;
use crate::wire::AgentName;
use crate::wire::permission::{PermissionMode, RuleLists};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

struct Fixture {
    folder: tempfile::TempDir,
    tools: Registry,
}

/// Runs a call as an agent does: the rules judge it first.
pub(super) async fn call(tools: &Registry, name: &str, input: Value) -> Result<String, String> {
    let call = Call { id: "1".into(), name: name.into(), input };
    tools.inspect(&call).map_err(|why| why.to_string())?;
    tools.call(&call).await.map(|output| output.text).map_err(|why| why.to_string())
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let tools = file_tools(folder.path());
    Fixture { folder, tools }
}

/// Returns the file tools of the lead of a team in this folder.
pub(crate) fn file_tools(workspace: &Path) -> Registry {
    file_tools_of(AgentName::lead(), workspace)
}

/// Returns the file tools of an agent of a team in this folder.
pub(super) fn file_tools_of(me: AgentName, workspace: &Path) -> Registry {
    let clock: SharedClock = Arc::new(SystemClock);
    let output_store = OutputStore::below(workspace);
    let dir = output_store.dir.clone();
    let lists = RuleLists { deny: vec!["read_file(secret/**)".into()], ..RuleLists::default() };
    let denied = denied_files(&Policy::new(PermissionMode::Default, &lists).unwrap());
    let files = FileAccess::open(&dir, &me, dir.workspace(), None).unwrap();
    let limits = ReadLimits::new(dir.workspace(), dir.root(), None, denied.clone());
    let files = files.with_unreadable(None, denied).with_search_limits(limits);
    let bus = Arc::new(Bus::new(dir, MailLimits::default(), Arc::clone(&clock)));
    let commands = command_setup(Vec::new(), "run".into(), None);
    let (folder, setup) = (workspace.to_owned(), commands.clone());
    let hooks = Hooks { list: Vec::new(), me: me.clone(), workspace: folder, setup, leases: None };
    let team = Rc::new(TeamContext::new(me, "1".into(), Arc::clone(&bus), 0, hooks));
    let tasks = Arc::new(Tasks::new(bus, clock, |_, _| true));
    let skills = Skills::default();
    let instructions = NestedInstructions::new(NestedLimits { each: 8192, total: 32_768 }, None);
    let parts = ToolParts {
        commands,
        background: BackgroundCommands::new(Rc::clone(&team), output_store.clone()),
        output_store,
        files,
        skills,
        instructions,
        team,
        tasks,
        work: None,
        mcp: None,
        role: RefCell::default(),
        ops: None,
        model: Cell::default(),
        served: None,
        subagents: None,
        command_turn: crate::tools::command_turn::CommandTurn::default(),
    };
    let is_file_tool = |tool: &&Registration| {
        tool.spec.subject == FILE.subject
            || ["apply_patch", "grep", "list_files"].contains(&tool.spec.name)
    };
    Registry::new(crate::tools::TOOLS.iter().filter(is_file_tool), crate::tools::mcp::run, parts)
}

pub(super) fn block_on<R>(task: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "another program changes a file")]
    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, call: &Call) -> Result<String, String> {
        block_on(self.tools.call(call)).map(|output| output.text).map_err(|why| why.to_string())
    }

    fn call(&self, name: &str, input: Value) -> Result<String, String> {
        block_on(call(&self.tools, name, input))
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.call("read_file", json!({"path": path}))
    }

    fn part(&self, path: &str, offset: usize, limit: usize) -> Result<String, String> {
        self.call("read_file", json!({"path": path, "offset": offset, "limit": limit}))
    }

    fn write(&self, path: &str, content: &str) -> Result<String, String> {
        self.call("write_file", json!({"path": path, "content": content}))
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        self.call("edit_file", json!({"path": path, "old_text": old, "new_text": new}))
    }
}

pub(super) fn refused(result: Result<String, String>, says: &str) {
    let why = result.unwrap_err();
    assert!(why.contains(says), "{why}");
}

#[test]
fn a_call_opens_only_the_judged_file() {
    let fixture = fixture();
    for folder in ["mine", "theirs"] {
        fs::create_dir(fixture.path(folder)).unwrap();
    }
    let point_at = |target: &str| {
        let _none_yet = fs::remove_file(fixture.path("link"));
        std::os::unix::fs::symlink(target, fixture.path("link")).unwrap();
    };
    for (name, input) in [
        ("write_file", json!({"path": "link/a", "content": "new"})),
        ("read_file", json!({"path": "link/a"})),
        ("edit_file", json!({"path": "link/a", "old_text": "old", "new_text": "new"})),
    ] {
        fixture.put("mine/a", "old");
        fixture.put("theirs/a", "old");
        point_at("mine");
        let call = Call { id: name.into(), name: name.into(), input };
        let (_, judged) = fixture.tools.inspect(&call).unwrap();
        assert_eq!(judged, PermissionSubject::Path("mine/a".into()));
        point_at("theirs");
        refused(fixture.run(&call), "leads to theirs/a");
        refused(fixture.run(&Call { id: "another".into(), ..call }), "was not approved");
        assert_eq!(fixture.text("theirs/a"), "old", "{name}");
    }
}

#[test]
fn a_written_file_can_be_read_edited_and_overwritten() {
    let fixture = fixture();
    assert_eq!(fixture.write("src/a.txt", "one\ntwo\n").unwrap(), "wrote 8 bytes to src/a.txt");
    assert_eq!(fixture.edit("src/a.txt", "two", "2").unwrap(), "edited src/a.txt");
    assert_eq!(fixture.edit("src/../src/a.txt", "one", "1").unwrap(), "edited src/../src/a.txt");
    assert_eq!(fixture.read("src/a.txt").unwrap(), "1\n2\n");
    fixture.write("src/a.txt", "new").unwrap();
    fixture.write("src/a.txt", "newer").unwrap();
    assert_eq!(fixture.text("src/a.txt"), "newer");
}

#[test]
fn a_file_is_overwritten_only_if_every_line_was_read() {
    let fixture = fixture();
    fixture.put("a", "1\n2\n3\n4\n5\n");
    refused(fixture.write("a", "new"), "a exists, and you have not read it; read it whole");
    fixture.part("a", 1, 2).unwrap();
    refused(
        fixture.write("a", "new"),
        "you have not read lines 3 to 5 of a; call read_file with offset 3 and limit 3",
    );
    fixture.part("a", 4, 2).unwrap();
    refused(fixture.write("a", "new"), "you have not read line 3 of a");
    fixture.part("a", 3, 1).unwrap();
    fixture.write("a", "new").unwrap();
    assert_eq!(fixture.text("a"), "new");
    // Nothing is lost, or nothing can be read.
    fixture.put("empty", "");
    fixture.write("empty", "new").unwrap();
    fixture.put("binary", b"\0");
    refused(fixture.write("binary", "new"), "is binary: remove it with bash first");
    fixture.put("long_line", "x".repeat(60_000));
    fixture.read("long_line").unwrap();
    refused(fixture.write("long_line", "new"), "too long to be shown: remove the file with bash");
    // The middle of a long file is cut.
    fixture.put("long", "four\n".repeat(20_000));
    fixture.read("long").unwrap();
    refused(fixture.write("long", "new"), "lines 5001 to 15120 of long");
}

#[test]
fn only_lines_that_were_read_are_edited() {
    let fixture = fixture();
    fixture.put("a", "1\n2\n3\n4\n5\n6\n");
    fixture.part("a", 2, 2).unwrap();
    refused(
        fixture.edit("a", "4\n5", "x"),
        "old_text is at lines 4 to 5 of a, and you have not read lines 4 to 5",
    );
    refused(
        fixture.edit("a", "3\n4", "x"),
        "you have not read line 4; call read_file with offset 4 and limit 1",
    );
    fixture.edit("a", "2\n", "two\nand a half\n").unwrap();
    fixture.edit("a", "3", "three").unwrap();
    refused(fixture.edit("a", "4", "four"), "is at line 5 of a, and you have not read line 5");
    fixture.part("a", 5, 1).unwrap();
    fixture.edit("a", "4", "four").unwrap();
    assert_eq!(fixture.text("a"), "1\ntwo\nand a half\nthree\nfour\n5\n6\n");
}

#[test]
fn an_edit_of_unread_or_changed_content_is_refused() {
    let fixture = fixture();
    fixture.put("a", "old");
    refused(fixture.edit("a", "old", "new"), "read it first");
    fixture.read("a").unwrap();
    fixture.put("a", "odd");
    refused(fixture.edit("a", "odd", "new"), "read it again");
    refused(fixture.write("a", "new"), "read it again");
    fixture.read("a").unwrap();
    fixture.edit("a", "odd", "new").unwrap();
    assert_eq!(fixture.text("a"), "new");
    refused(fixture.edit("gone", "x", "y"), "does not exist");
}

#[test]
fn old_text_must_occur_exactly_once() {
    let fixture = fixture();
    fixture.write("a", "x y x\r\n").unwrap();
    refused(fixture.edit("a", "x", "z"), "occurs 2 times");
    refused(fixture.edit("a", "y\nx", "z"), "occurs 0 times");
    refused(fixture.edit("a", "q", "z"), "occurs 0 times");
    refused(fixture.edit("a", "", "z"), "is empty");
    refused(fixture.edit("a", "x", "x"), "the same");
    assert_eq!(fixture.text("a"), "x y x\r\n");
}

#[test]
fn a_partial_read_names_its_lines() {
    let fixture = fixture();
    fixture.put("a", "1\n2\n3\n4");
    let part = |offset, limit| fixture.part("a", offset, limit);
    assert_eq!(part(2, 2).unwrap(), "2\n3\n[lines 2 to 3 of 4]");
    assert_eq!(part(4, 9).unwrap(), "4\n[lines 4 to 4 of 4]");
    assert_eq!(part(0, 9).unwrap(), "1\n2\n3\n4");
    refused(part(5, 1), "only 4 lines");
    fixture.put("empty", "");
    assert_eq!(fixture.read("empty").unwrap(), "(the file is empty)");
}

#[test]
fn binary_and_large_files_are_not_shown_completely() {
    let fixture = fixture();
    fixture.put("binary", b"\x7fELF\0\0");
    refused(fixture.read("binary"), "is binary (6 bytes)");
    fixture.put("latin", b"caf\xe9");
    assert_eq!(fixture.read("latin").unwrap(), "caf\u{fffd}");
    refused(fixture.edit("latin", "caf", "tea"), "not UTF-8");
    fixture.put("long", "line\n".repeat(20_000));
    let shown = fixture.read("long").unwrap();
    assert!(shown.contains("characters cut here") && shown.chars().count() <= 50_000);
    fs::File::create(fixture.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    refused(fixture.read("sparse"), "1099511627776 bytes");
}

#[test]
fn invalid_arguments_are_named() {
    let fixture = fixture();
    refused(fixture.call("read_file", json!({"file": "a"})), "file");
    refused(fixture.call("write_file", json!({"path": "a"})), "content");
    refused(fixture.write(".team/config.json", "{}"), "send_message");
    refused(fixture.read("missing"), "does not exist");
}

#[test]
fn several_edits_are_made_in_order_all_or_none() {
    let fixture = fixture();
    fixture.put("a", "one\ntwo  \nthree\none\n");
    fixture.read("a").unwrap();
    let edit = |old: &str, new: &str| json!({ "old_text": old, "new_text": new });
    let edits = [edit("two\nthree", "2\n3"), edit("2\n3", "two and three")];
    let input = json!({ "path": "a", "edits": edits });
    let done = fixture.call("edit_file", input).unwrap();
    assert!(
        done.starts_with("edited a; old_text differed from the file in spaces or breaks"),
        "{done}"
    );
    assert_eq!(fixture.text("a"), "one\ntwo and three\none\n");
    let edits = [edit("two", "2"), edit("gone", "x")];
    let mut input = json!({ "path": "a", "old_text": "three", "new_text": "3", "edits": edits });
    refused(
        fixture.call("edit_file", input.clone()),
        "nothing was changed: edit 3 of 3: old_text occurs 0",
    );
    assert_eq!(fixture.text("a"), "one\ntwo and three\none\n");
    input["edits"] = json!([edit("one", "1")]);
    refused(
        fixture.call("edit_file", input.clone()),
        "edit 2 of 2: old_text occurs 2 times in a, at lines 1, 3",
    );
    input["replace_all"] = json!(true);
    assert_eq!(fixture.call("edit_file", input).unwrap(), "edited a");
    assert_eq!(fixture.text("a"), "1\ntwo and 3\n1\n");
    // Lines that were read stay so, and no other.
    fixture.put("b", "x\n".repeat(30));
    fixture.part("b", 1, 20).unwrap();
    let input = json!({ "path": "b", "old_text": "x", "new_text": "y\ny", "replace_all": true });
    refused(
        fixture.call("edit_file", input),
        "old_text is at line 30 of b, and you have not read line 30",
    );
    for (input, says) in [
        (json!({ "path": "a" }), "there is no edit"),
        (json!({ "path": "a", "old_text": "x" }), "give both"),
        (json!({ "path": "a", "edits": [edit("x", "x")] }), "the same"),
        (
            json!({ "path": "a", "edits": [edit("1", "2"), edit("", "x")] }),
            "edit 2 of 2: old_text is empty",
        ),
        (json!({ "path": "a", "edits": [{ "old_text": "x" }] }), "new_text"),
    ] {
        refused(fixture.call("edit_file", input), says);
    }
}

/// Applies a patch as an agent whose calls are judged.
fn patch(fixture: &Fixture, body: &str) -> Result<String, String> {
    let input = json!({ "input": format!("*** Begin Patch\n{body}\n*** End Patch") });
    fixture.call("apply_patch", input)
}

#[test]
fn a_patch_adds_changes_moves_and_removes_files() {
    let fixture = fixture();
    fixture.put("a", "one\ntwo\nthree\n");
    fs::create_dir(fixture.path("sub")).unwrap();
    fixture.put("sub/old", "x\n");
    fixture.put("script", "#!/bin/sh\nexit 1\n");
    fs::set_permissions(fixture.path("script"), Permissions::from_mode(0o755)).unwrap();
    let body = "*** Update File: a\n@@ one\n-two\n+2\n*** Add File: new/b\n+hi\n*** Delete File: sub/old\n\
        *** Update File: script\n*** Move to: bin/run\n-exit 1\n+exit 0";
    let said = patch(&fixture, body).unwrap();
    assert_eq!(said, "done:\nM a\nA new/b\nD sub/old\nM script -> bin/run");
    assert_eq!(fixture.text("a"), "one\n2\nthree\n");
    assert_eq!(fixture.text("new/b"), "hi\n");
    assert_eq!(fixture.text("bin/run"), "#!/bin/sh\nexit 0\n");
    let mode = fs::metadata(fixture.path("bin/run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(!fixture.path("sub/old").exists() && !fixture.path("script").exists());
    // Several sections about one file are made in their order.
    let body = "*** Update File: a\n-one\n+1\n*** Update File: a\n-1\n+I\n*** Delete File: new/b\n*** Add File: new/b\n+again";
    patch(&fixture, body).unwrap();
    assert_eq!(
        (fixture.text("a"), fixture.text("new/b")),
        ("I\n2\nthree\n".into(), "again\n".into())
    );
}

#[test]
fn a_patch_that_is_not_possible_changes_nothing() {
    let fixture = fixture();
    fixture.put("a", "one\n");
    fixture.put("b", "kept\n");
    fixture.put("binary", b"\xff\xfe");
    for (body, why) in [
        ("*** Update File: a\n-one\n+1\n*** Update File: missing\n-x", "missing does not exist"),
        (
            "*** Update File: a\n-one\n+1\n*** Update File: b\n-x\n+y",
            "b: these lines are not in the file",
        ),
        ("*** Update File: a\n-one\n+1\n*** Delete File: missing", "missing does not exist"),
        ("*** Update File: a\n-one\n+1\n*** Add File: b\n+x", "b exists, and you have not read it"),
        ("*** Update File: a\n*** Move to: b\n-one\n+1", "b exists; delete it first"),
        (
            "*** Update File: a\n-one\n+1\n*** Update File: binary\n-x\n+y",
            "binary is not UTF-8 text",
        ),
        ("*** Update File: a\n-one\n+1\n*** Add File: ../out\n+x", "is outside the workspace"),
        ("*** Update File: a\n-one\n+1\n*** Add File: /etc/hosts\n+x", "is outside the workspace"),
        ("*** Update File: a\n-one\n+1\n*** Add File: .team/x\n+x", "belongs to the team folder"),
        ("*** Update File: a\nwrong", "is not understood"),
    ] {
        let found = patch(&fixture, body).unwrap_err();
        assert!(found.contains(why), "{body}: {found}");
        assert_eq!((fixture.text("a"), fixture.text("b")), ("one\n".into(), "kept\n".into()));
    }
    assert!(!fixture.path("../out").exists());
}

#[test]
fn an_agent_goes_on_with_the_lines_that_its_patch_has_brought() {
    let fixture = fixture();
    let text = (1..=30).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    fixture.put("a", text);
    patch(&fixture, "*** Update File: a\n@@ line 9\n-line 10\n+ten\n+and a half").unwrap();
    let edit = |old: &str| {
        let input = json!({ "path": "a", "old_text": old, "new_text": "x" });
        fixture.call("edit_file", input)
    };
    let why = edit("line 20").unwrap_err();
    assert!(why.contains("line 21") && why.contains("not read"), "{why}");
    edit("and a half").unwrap();
    // A file that another program has changed since is not deleted unseen.
    fixture.put("a", "other\n");
    let why = patch(&fixture, "*** Delete File: a").unwrap_err();
    assert!(why.contains("has changed since you read it"), "{why}");
    patch(&fixture, "*** Update File: a\n-other\n+mine").unwrap();
    assert_eq!(fixture.text("a"), "mine\n");
    patch(&fixture, "*** Delete File: a").unwrap();
    assert!(!fixture.path("a").exists());
}

#[test]
fn a_notebook_is_read_as_text_and_its_lines_by_number() {
    let fixture = fixture();
    let notebook = r#"{"nbformat": 4, "metadata": {}, "cells": [
{"cell_type": "code", "source": ["x = 1"], "outputs": [], "metadata": {}}]}"#;
    fixture.put("n.ipynb", notebook);
    let read = |input: Value| fixture.call("read_file", input).unwrap();
    let shown = read(json!({ "path": "n.ipynb" }));
    assert!(
        shown.starts_with("[cell 1: code]\nx = 1\n") && shown.contains("give offset"),
        "{shown}"
    );
    let line = read(json!({ "path": "n.ipynb", "offset": 2, "limit": 1 }));
    assert!(line.starts_with(r#"{"cell_type": "code""#), "{line}");
}

#[test]
fn a_patch_reaches_no_file_that_may_not_be_read() {
    let fixture = fixture();
    fs::create_dir(fixture.path("secret")).unwrap();
    fixture.put("secret/key", "hidden\n");
    for body in [
        "*** Update File: secret/key\n*** Move to: open",
        "*** Update File: secret/key\n-guess\n+x",
        "*** Delete File: secret/key",
    ] {
        let why = patch(&fixture, body).unwrap_err();
        assert!(why.contains("may not read secret/key"), "{why}");
    }
    assert_eq!(fixture.text("secret/key"), "hidden\n");
}

#[test]
fn a_patch_loses_no_content_and_makes_no_half_of_itself() {
    let fixture = fixture();
    fixture.put("a", "content\n");
    // A place that cannot be made is found before the old one is given up.
    let long = "x".repeat(300);
    let body = format!("*** Update File: a\n*** Move to: zz/{long}\n*** Add File: a\n+new");
    patch(&fixture, &body).unwrap_err();
    assert_eq!(fixture.text("a"), "content\n");
    let why = patch(&fixture, "*** Add File: b\n+x\n*** Add File: b/c\n+y").unwrap_err();
    assert!(
        why.contains("would be a file and the folder of") && !fixture.path("b").exists(),
        "{why}"
    );
    let why = patch(&fixture, "*** Delete File: a\n*** Add File: a\n+unseen").unwrap_err();
    assert!(why.contains("you have not read it"), "{why}");
    assert_eq!(fixture.text("a"), "content\n");
    let many: String =
        (0..101).map(|at| format!("*** Add File: n{at}\n+x\n")).collect::<Vec<_>>().concat();
    let why = patch(&fixture, many.trim_end()).unwrap_err();
    assert!(why.contains("101 changes, 100 are allowed"), "{why}");
}

#[test]
fn ends_of_lines_stay_as_those_of_the_file() {
    let fixture = fixture();
    for (before, body, after) in [
        ("x\ny", "*** Update File: a\n*** Move to: b", "x\ny"),
        ("a\r\nb", "*** Update File: a\n*** Move to: b\n-a\n+A", "A\r\nb\r\n"),
    ] {
        fixture.put("a", before);
        patch(&fixture, body).unwrap();
        assert_eq!(fixture.text("b"), after);
        fs::remove_file(fixture.path("b")).unwrap();
    }
    fixture.put("c", "one\r\ntwo\r\n");
    fixture.read("c").unwrap();
    let input = json!({ "path": "c", "old_text": "two", "new_text": "2\n3" });
    fixture.call("edit_file", input).unwrap();
    assert_eq!(fixture.text("c"), "one\r\n2\r\n3\r\n");
}
