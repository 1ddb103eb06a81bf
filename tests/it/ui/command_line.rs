//! The command line with the wrong things typed: each is refused with the reason and the next step, and changes
//! nothing.

use crate::support::harness::{CommandResult, Team};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;

/// A team in which alice has been, with an open inbox.
fn team_of_alice() -> Team {
    let team = Team::new();
    team.team(&["lead", "-p", "Spawn alice (coder).", "--model", "rehearsal"]).expect(0);
    team
}

fn assert_refused(ran: CommandResult, code: i32, words: &[&str]) {
    let ran = ran.expect(code);
    for word in words {
        assert!(ran.err.contains(word), "{word:?} is missing: {ran:#?}");
    }
}

/// `--dir` with the folder of the work instead of the team folder.
#[test]
fn a_folder_that_is_not_of_a_team_is_refused_and_stays_as_it_is() {
    let team = team_of_alice();
    let shop = team.workspace().join("shop");
    fs::create_dir(&shop).unwrap();
    fs::File::create(shop.join("main.rs")).unwrap();
    for words in [
        &["send", "lead", "hello"][..],
        &["ls"],
        &["task", "add", "x"],
        &["init"],
        &["lead", "-p", "hello", "--model", "rehearsal"],
    ] {
        let ran = team.team(&[words, &["--dir", "shop"]].concat());
        assert_refused(ran, 1, &["there is no team here", "now: "]);
        assert_eq!(fs::read_dir(&shop).unwrap().count(), 1, "{words:?}");
    }
    let ran = team.team(&["send", "lead", "hello", "--dir", "."]);
    assert_refused(ran, 1, &["--dir", "/.team"]);
}

/// The name of a folder need not be text, and it must not steer the terminal.
#[test]
fn a_team_works_in_a_folder_with_any_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let team = Team::new();
    let odd = team.workspace().join(std::ffi::OsStr::from_bytes(b"odd\xff\x1b[31m\x07"));
    fs::create_dir(&odd).unwrap();
    let prompt = "Spawn alice (coder).";
    let words = ["lead", "-p", prompt, "--model", "rehearsal", "--timeout", "60"];
    let ran = team.command("team", &words).current_dir(&odd).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("Spawned alice"), "{ran:?}");
    for words in [&["init"][..], &["trust"], &["--dir", "../odd\x1b[31m", "ls"]] {
        let ran = team.command("team", words).current_dir(&odd).output().unwrap();
        let shown = [ran.stdout, ran.stderr].concat();
        assert!(!shown.is_empty() && !shown.contains(&0x1b) && !shown.contains(&7), "{words:?}");
    }
}

#[test]
fn a_message_without_text_or_with_the_programs_fields_is_refused() {
    let team = team_of_alice();
    let inbox = || fs::read_to_string(team.path("inbox/lead.jsonl")).unwrap();
    let before = inbox();
    for words in [&["send", "lead", ""][..], &["send", "lead", "  \n"], &["broadcast", " "]] {
        assert_refused(team.team(words), 1, &["the message has no text", "now: write what"]);
    }
    assert_refused(team.team_with_input(&["send", "lead", "-"], "\n"), 1, &["has no text"]);
    for (field, instead) in [
        ("type=x", "--type"),
        ("from=bob", "--from"),
        ("to=zoe", "as TO"),
        ("id=1", "an id of its own"),
        ("content=x", "as TEXT"),
        ("timestamp=1", "the time of the send"),
    ] {
        let ran = team.team(&["send", "lead", "hi", "--field", field]);
        assert_refused(ran, 2, &["is not allowed", instead]);
    }
    let jsonl =
        |line: Value| team.team_with_input(&["send", "lead", "--jsonl"], &format!("{line}\n"));
    let other = json!({"to": "zoe", "content": "hi"});
    assert_refused(jsonl(other), 1, &["line 1 was not sent", "\"zoe\"", "TO is \"lead\""]);
    assert_refused(jsonl(json!({"content": ""})), 1, &["has no text"]);
    assert_eq!(inbox(), before, "nothing was written");
    assert_refused(jsonl(json!({"id": "1", "content": "ho"})), 0, &["\"id\"", "of its own"]);
    jsonl(json!({"to": "lead", "type": "message", "content": "hi", "task_id": "7"})).expect(0);
    let written = inbox();
    assert!(!written.contains("\"id\":\"1\""), "{written}");
    let sent: Value = serde_json::from_str(written.lines().last().unwrap()).unwrap();
    assert_eq!((&sent["content"], &sent["task_id"]), (&json!("hi"), &json!("7")));
}

#[test]
fn a_mistyped_name_suggests_the_known_one_and_a_path_suggests_nothing() {
    let team = team_of_alice();
    for words in [
        &["inbox", "alise"][..],
        &["transcript", "alise"],
        &["log", "alise"],
        &["stop", "alise"],
        &["attach", "alise"],
        &["ls", "alise"],
    ] {
        assert_refused(team.team(words), 1, &["did you mean alice?"]);
    }
    let mut alice = team.start(&["teammate", "alice", "--model", "rehearsal"]);
    team.wait_status("alice", "idle");
    assert_refused(team.team(&["send", "alise", "hi"]), 1, &["did you mean alice?"]);
    let ran = team.team(&["task", "add", "x", "--owner", "alise"]);
    assert_refused(ran, 1, &["did you mean alice?"]);
    team.team(&["stop", "alice"]).expect(0);
    alice.wait().unwrap();
    let ran = team.team(&["send", "../etc/passwd", "hi"]).expect(1);
    assert!(!ran.err.contains("try"), "{ran:#?}");
    assert_refused(team.team(&["stop", "lead"]), 2, &["team stop --all"]);
    // A person may write to the person who reads at the next lead.
    team.team(&["send", "user", "the build is done"]).expect(0);
}

#[test]
fn verbs_that_people_type_exist() {
    let team = team_of_alice();
    assert_refused(team.team(&["log", "--type", "nonsense"]), 2, &["the types are message"]);
    assert_refused(team.team(&["log", "--type", "mesage"]), 2, &["did you mean message?"]);
    assert_refused(team.team(&["task", "add", "-"]), 2, &["a task needs a SUBJECT"]);
    team.team(&["task", "add", "paint"]).expect(0);
    team.team(&["task", "fail", "1"]).expect(0);
    assert!(team.team(&["task", "reopen", "1"]).expect(0).out.contains("task 1 is pending"));
    assert!(team.team(&["task", "list"]).expect(0).out.contains("paint"));
    assert!(team.team(&["help"]).expect(0).out.contains("Usage: team"));
    assert!(team.team(&["help", "send"]).expect(0).out.contains("TEXT"));
    let shown = team.team(&["ls", "alice", "--json"]).expect(0).json();
    assert_eq!((&shown["lead"], &shown["members"][0]["name"]), (&Value::Null, &json!("alice")));
    for program in ["lead", "teammate"] {
        let help = team.command(program, &["--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains(&format!("Usage: team {program} ")), "{help}");
    }
    let empty = Team::new();
    empty.team(&["init"]).expect(0);
    assert!(empty.team(&["ls"]).expect(0).out.contains("Tell the lead (`team lead`)"));
}

/// A script must not take an old answer for a new one.
#[test]
fn a_resumed_run_without_work_prints_nothing() {
    let team = team_of_alice();
    let ran = team.team(&["lead", "--resume", "-p", "--model", "rehearsal"]).expect(0);
    assert_eq!(ran.out, "", "{ran:#?}");
    assert!(ran.err.contains("nothing was left to do"), "{ran:#?}");
}

#[test]
fn the_manual_page_opens_on_a_terminal_and_is_printed_into_a_pipe() {
    let team = Team::new();
    assert!(team.team(&["man"]).expect(0).out.contains(".TH team"));
    let mut shown = Terminal::start(team.command("team", &["man"]));
    // With `man` the page is paged; without it, the same is printed as text.
    shown.expect("made of plain processes and plain files");
    shown.press("q");
    assert_eq!(shown.wait().code(), Some(0), "{}", shown.screen());
}
