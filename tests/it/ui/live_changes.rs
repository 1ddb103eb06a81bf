//! The lead's terminal shows the changes of files when they are made, and the subject and output of each running
//! call.

use crate::support::approvals::careful_team;
use crate::support::child_process::write;
use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{assert_left_in_order, bash, calls, says, script, spawn, wait_file};
use crate::support::terminal::{SIZES, Size, Terminal};
use serde_json::{Value, json};
use std::fmt::Write as _;

const CTRL_O: &str = "\u{f}";

fn session(team: &Team, lines: &[Value], options: &[&str], size: Size) -> Terminal {
    let model = script(team, lines);
    let args = [&["lead", "--model", &model], options].concat();
    let lead = Terminal::of_size(team.command("team", &args), size);
    lead.expect("/quit ends the team");
    lead
}

fn quit(team: &Team, mut lead: Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

/// Returns the calls that read a file and replace a line of it.
fn edit(path: &str, old: &str, new: &str) -> [(&'static str, Value); 2] {
    let edit = json!({"path": path, "old_text": old, "new_text": new});
    [("read_file", json!({ "path": path })), ("edit_file", edit)]
}

#[test]
fn a_change_without_a_question_is_shown_when_it_is_made() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        write(&team.workspace().join("a.rs"), "one\ntwo\nthree\n");
        let mut long = String::new();
        (1..=40).for_each(|number| writeln!(long, "row {number}.").unwrap());
        let written = ("write_file", json!({"path": "b.txt", "content": long}));
        let [read, change] = edit("a.rs", "two\n", "2\n");
        let lines = [
            calls("lead", &[read, change, written, bash("touch now; sleep 1000")]),
            says("lead", "all done"),
        ];
        let mut lead = session(&team, &lines, &["--mode", "bypass"], size);
        lead.type_line("begin");
        wait_file(&team, "now");
        // The rows are there while the turn goes on.
        lead.expect("edit_file  a.rs");
        for row in ["1 1   one", "2   - two", "  2 + 2", "3 3   three"] {
            lead.expect(row);
        }
        lead.expect_screen("row 16.");
        lead.expect_screen("… 24 more (Ctrl-O)");
        lead.press(CTRL_O);
        lead.expect_screen("40 + row 40.");
        lead.press("\u{1b}");
        lead.expect_screen("(interrupted)");
        quit(&team, lead);
    });
}

/// The changes of commands are found in a checkout of git. The file tool's own change was shown before.
#[test]
fn what_a_command_of_the_lead_has_changed_is_one_row_at_the_end_of_its_turn() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        write(&team.workspace().join("a.txt"), "one\ntwo\n");
        let git =
            "git init -q . && git add a.txt && git -c user.name=a -c user.email=a@b commit -qm a";
        let mut made = std::process::Command::new("sh");
        assert!(made.args(["-c", git]).current_dir(team.workspace()).status().unwrap().success());
        let written = ("write_file", json!({"path": "b.txt", "content": "fresh\n"}));
        let lines =
            [calls("lead", &[written, bash("sed -i s/two/2/ a.txt")]), says("lead", "all done")];
        let mut lead = session(&team, &lines, &["--mode", "bypass"], size);
        lead.type_line("begin");
        lead.expect_screen("± lead: a.txt +1 −1 (Ctrl-O)");
        lead.expect_screen("all done");
        lead.press(CTRL_O);
        lead.expect_screen("2   - two");
        quit(&team, lead);
    });
}

#[test]
fn a_change_that_was_asked_about_is_shown_once() {
    in_parallel(SIZES, |size| {
        let team = careful_team();
        write(&team.workspace().join("a.rs"), "one\ntwo\n");
        let lines = [calls("lead", &edit("a.rs", "two\n", "2\n")), says("lead", "all done")];
        let mut lead = session(&team, &lines, &[], size);
        lead.type_line("begin");
        lead.expect_screen("2   - two");
        lead.type_line("y");
        lead.expect_screen("all done");
        let shown = lead.screen();
        assert!(shown.contains("⏺ edit_file  a.rs   ✓"), "{shown}");
        assert_eq!(shown.matches("- two").count(), 1, "{shown}");
        quit(&team, lead);
    });
}

#[test]
fn the_changes_of_a_teammate_are_one_row_that_opens() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        write(&team.workspace().join("a.rs"), "one\ntwo\nthree\n");
        let new = ("write_file", json!({"path": "new.txt", "content": "fresh\n"}));
        let [read, change] = edit("a.rs", "two\n", "2\n");
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "alice is at work"),
            calls("alice", &[bash("until test -e go; do sleep 0.05; done"), read, change, new]),
            calls(
                "alice",
                &[bash(
                    "echo first; sleep 0.02; echo last; touch now; until test -e on; do sleep 0.05; done",
                )],
            ),
            says("alice", "I have changed two files"),
            says("lead", "all done"),
        ];
        let mut lead = session(&team, &lines, &["--mode", "bypass"], size);
        lead.type_line("begin");
        lead.expect_screen("alice is at work");
        lead.expect_screen("alice  bash until test -e go; do sleep");
        team.wait_status("lead", "idle");
        write(&team.workspace().join("go"), "");
        wait_file(&team, "now");
        // Her row names what she does, not only the tool.
        lead.expect_screen("alice  bash echo first; sleep 0.02; echo last");
        // A line that comes right after another one is the last one, too.
        lead.expect_screen("  └ last");
        write(&team.workspace().join("on"), "");
        lead.expect_screen("± alice: a.rs +1 −1, new.txt +1 −0 (Ctrl-O)");
        lead.expect("all done");
        // Her report may have been folded after her changes.
        team.eventually("the changes open", || {
            lead.press(CTRL_O);
            lead.screen().contains("2   - two")
        });
        lead.expect_screen("new.txt: created +1 −0");
        lead.expect_screen("1 + fresh");
        quit(&team, lead);
    });
}
