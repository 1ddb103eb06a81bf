//! A question at the terminal: all of it is shown before a yes counts, hidden characters are visible, and the
//! person's editor changes it.

use crate::support::approvals::careful_team;
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, lead, says, script, scripted_lead, tool_results,
};
use crate::support::terminal::Terminal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const ALT_Y: &str = "\x1by";
const ALT_N: &str = "\x1bn";
const ALT_A: &str = "\x1ba";

/// A command of 62 lines whose middle is not shown at first.
fn long_command() -> String {
    let mut lines: Vec<String> = (0..60).map(|line| format!(": line {line}.")).collect();
    lines.insert(30, "touch hidden".into());
    lines.push("touch last".into());
    lines.join("\n")
}

/// Sets an editor that asks on the terminal for the work to do, and notes the mode of its file.
fn set_editor(team: &Team) {
    let editor = r#"#!/bin/sh
stat -c '%a %n' "$(dirname "$1")" "$1" >> "$HOME/modes"
echo "editing $1"
read -r work || exit 9
case $work in
  add*) [ -n "$(tail -c 1 "$1")" ] && echo >> "$1"; printf '%s\n' "${work#add }" >> "$1" ;;
  spoil) printf '\377' > "$1" ;;
  fail) echo changed > "$1"; exit 3 ;;
esac
echo "edited with $work"
"#;
    let file = team.workspace().join("editor");
    write(&file, editor);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    team.variable("TMPDIR", &team.workspace().display().to_string());
    team.variable("EDITOR", "no-such-editor");
    team.variable("VISUAL", &file.display().to_string());
}

/// Presses keys and waits until the terminal has printed the text once more.
fn press(team: &Team, terminal: &mut Terminal, keys: &str, text: &str) {
    let count = |terminal: &Terminal| terminal.printed().matches(text).count();
    let before = count(terminal);
    terminal.press(keys);
    team.eventually(&format!("{text:?} after {keys:?}"), || count(terminal) > before);
}

fn exists(team: &Team, file: &str) -> bool {
    team.workspace().join(file).exists()
}

#[test]
fn a_long_question_is_approved_only_after_all_of_it_was_shown() {
    let team = careful_team();
    let hidden = "touch 'a\u{202e}b' '\u{1b}[2Jc'";
    let evil = ("write_file", json!({"path": "\u{202e}x", "content": "one\r\n\ttwo\u{200b}\n"}));
    let replies = [
        calls("lead", &[bash(&long_command()), bash(&long_command()), bash(hidden), evil]),
        says("lead", "all done"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect(": line 59.");
    lead.expect("… 22 lines left out here …");
    lead.expect("v shows the 22 lines in between");
    assert!(!lead.printed().contains("touch hidden") && lead.printed().contains("touch last"));
    for yes in ["y\r", "always\r", ALT_Y, ALT_A] {
        press(&team, &mut lead, yes, "nothing is approved yet: v shows the 22 lines");
    }
    assert!(!exists(&team, "last"));
    press(&team, &mut lead, "v\r", "touch hidden");
    press(&team, &mut lead, "y\r", "asks to run:");
    // A pane that is drawn again shows the text before the command has run.
    team.eventually("it ran", || exists(&team, "hidden") && exists(&team, "last"));
    // The same command again is another question, which comes after the end of the first: it was not shown in full.
    let refusals = |lead: &Terminal| lead.printed().matches("nothing is approved yet").count();
    let before = refusals(&lead);
    team.eventually("the second one is not approved", || {
        lead.press(ALT_Y);
        refusals(&lead) > before
    });
    press(&team, &mut lead, ALT_N, "touch 'a<U+202E>b' '<U+001B>[2Jc'");
    press(&team, &mut lead, "y\r", "<U+202E>x");
    lead.expect("+ one<U+000D>");
    lead.expect("+     two<U+200B>");
    lead.type_line("y");
    lead.expect("all done");
    assert!(exists(&team, "a\u{202e}b") && exists(&team, "\u{202e}x"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn the_persons_editor_changes_files_and_commands() {
    let team = careful_team();
    set_editor(&team);
    let file = ("write_file", json!({"path": "notes.txt", "content": "first\nsecond\n"}));
    let replies = [
        calls("lead", &[file, bash("touch one\ntouch two")]),
        says("lead", "half done"),
        calls("lead", &[bash("touch never")]),
    ];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect("+ second");
    for (work, said) in [
        // The row is wrapped after this where the path of the editor is long.
        ("fail", "exit code 3;"),
        ("look", "nothing was changed: the text is the same as before"),
        ("spoil", "nothing was changed: the text is not UTF-8"),
    ] {
        press(&team, &mut lead, "e\r", "editing /");
        press(&team, &mut lead, &format!("{work}\r"), said);
    }
    press(&team, &mut lead, "e\r", "editing /");
    // Ctrl-C ends the editor, not the turn.
    press(&team, &mut lead, "\x03", "was ended by signal 2");
    press(&team, &mut lead, "e\r", "editing /");
    press(&team, &mut lead, "add third\r", "+ third");
    assert!(!exists(&team, "notes.txt"), "the changed content is asked again");
    press(&team, &mut lead, "y\r", "touch two");
    assert_eq!(
        fs::read_to_string(team.workspace().join("notes.txt")).unwrap(),
        "first\nsecond\nthird\n"
    );
    press(&team, &mut lead, "e\r", "editing /");
    press(&team, &mut lead, "add touch three\r", "    touch three");
    lead.type_line("y");
    lead.expect("half done");
    assert!(["one", "two", "three"].iter().all(|file| exists(&team, file)));
    let changed = tool_results(&team, "lead").iter().all(|(_, _, is_error)| !is_error);
    assert!(changed, "{}", team.describe());
    // An editor is ended with the lead.
    lead.type_line("go on");
    lead.expect("touch never");
    press(&team, &mut lead, "e\r", "editing /");
    kill(Pid::from_raw(i32::try_from(lead.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(lead.wait().code(), Some(143), "{}", lead.screen());
    let modes = fs::read_to_string(team.workspace().join("modes")).unwrap();
    let of_files = modes.lines().filter(|line| line.starts_with("600 /"));
    assert_eq!(of_files.count(), 7, "{modes}");
    assert_eq!(modes.lines().filter(|line| line.starts_with("700 /")).count(), 7, "{modes}");
    assert!(modes.contains("/edit-notes.txt") && modes.contains("/edit-command.sh"), "{modes}");
    let left = fs::read_dir(team.workspace()).unwrap();
    let left = left
        .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().starts_with("team-edit-"));
    assert_eq!(left.count(), 0);
    assert_left_in_order(&team);
}

#[test]
fn a_manual_teammate_shows_and_edits_at_its_own_terminal() {
    let team = careful_team();
    set_editor(&team);
    let replies = [calls("carol", &[bash(&long_command())]), says("carol", "over")];
    let model = script(&team, &replies);
    let words = ["teammate", "carol", "--model", &model, "--once", "--prompt", "begin"];
    let mut carol = Terminal::start(team.command("team", &words));
    carol.expect("v shows the 22 lines in between; then y yes");
    press(&team, &mut carol, "y\r", "nothing is approved yet");
    press(&team, &mut carol, "e\r", "editing /");
    press(&team, &mut carol, "look\r", "the text is the same as before");
    press(&team, &mut carol, "e\r", "editing /");
    press(&team, &mut carol, "add touch added\r", "v shows the 23 lines in between; then y yes");
    press(&team, &mut carol, "y\r", "nothing is approved yet");
    press(&team, &mut carol, "v\r", "touch hidden");
    carol.type_line("y");
    assert_eq!(carol.wait().code(), Some(0), "{}", carol.screen());
    assert!(["hidden", "last", "added"].iter().all(|file| exists(&team, file)));
    assert_left_in_order(&team);
}

#[test]
fn without_an_editor_nothing_is_changed() {
    let team = careful_team();
    let model = script(&team, &[calls("lead", &[bash("touch one")]), says("lead", "all done")]);
    for (editor, said) in [
        ("", "no editor is set; set VISUAL or EDITOR"),
        ("no-such-editor", "\"no-such-editor\" ended with exit code 127"),
    ] {
        team.variable("EDITOR", editor);
        let mut lead = lead(&team, &model);
        lead.type_line("begin");
        lead.expect("y yes");
        press(&team, &mut lead, "e\r", said);
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        fs::remove_dir_all(team.path("")).unwrap();
    }
    assert!(!exists(&team, "one"));
}
