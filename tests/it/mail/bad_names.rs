//! The bad names of RELIABILITY 7.2 in every input. Each is refused, and nothing in `.team` changes.

use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, listing, script, tool_results};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

/// Numbers 1 to 24 and 26 of the list. Number 18 (`lead`) is a mailbox, so it is bad for members only. Number 7
/// contains a NUL and cannot be an argument.
const BAD: [&str; 25] = [
    "",
    ".",
    "..",
    "../x",
    "a/../../b",
    "/etc/passwd",
    "a\0b",
    "a\nb",
    " ",
    "\t",
    "-rf",
    "--help-me",
    "Alice",
    "\u{430}lice",
    "ame\u{301}lie",
    "am\u{e9}lie",
    "alice.jsonl",
    ".hidden",
    "$(id)",
    "a;rm -rf .",
    "%s%n",
    "\u{202e}ecila",
    "\u{1f980}",
    "~root",
    "\u{1b}[31mred",
];

/// Reserved names.
const RESERVED: [&str; 5] = ["team", "all", "system", "self", "broadcast"];

fn long() -> String {
    "a".repeat(256)
}

/// All bad names, including those that are bad for members only.
fn bad_for_members() -> Vec<String> {
    let long = [long(), "a".repeat(33), "lead".into(), "user".into()];
    BAD.iter().chain(&RESERVED).map(|&name| name.to_owned()).chain(long).collect()
}

/// The files of the workspace with their lengths.
fn files(team: &Team) -> BTreeSet<String> {
    listing(team.workspace())
}

/// The same without lengths, the archived conversations of the lead, and their indexes.
fn paths(team: &Team) -> BTreeSet<String> {
    let path =
        |file: &String| file.rsplit_once(' ').map_or(file.clone(), |(path, _)| path.to_owned());
    let new = [".team/transcript/archive/", ".team/run/.state/index/"];
    let is_known = |path: &String| !new.iter().any(|new| path.starts_with(new));
    files(team).iter().map(path).filter(is_known).collect()
}

/// Runs a test on a team with a live member, which must not be affected.
fn with_alice(test: impl FnOnce(&Team)) {
    let team = Team::new();
    let mut alice = team.start(&["teammate", "alice", "--model", "rehearsal"]);
    team.wait_status("alice", "idle");
    test(&team);
    assert_eq!(team.status("alice"), "idle");
    team.team(&["stop", "alice"]).expect(0);
    assert_eq!(crate::support::scripts::wait(&team, &mut alice), Some(0));
    assert_left_in_order(&team);
}

/// Asserts that a text cannot control the terminal.
fn assert_harmless(said: &str) {
    let odd = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
    assert!(!said.contains(odd), "{said:?}");
}

#[test]
fn the_command_line_refuses_them() {
    with_alice(|team| {
        let before = files(team);
        for name in bad_for_members().iter().filter(|name| !name.contains('\0')) {
            let is_mailbox = matches!(name.as_str(), "lead" | "user");
            let member: [&[&str]; 2] =
                [&["teammate", name, "--model", "rehearsal"], &["stop", name]];
            let mailbox: [&[&str]; 4] = [
                &["send", name, "hi"],
                &["inbox", name],
                &["inbox", name, "--drain"],
                &["transcript", name],
            ];
            let mailbox = mailbox.into_iter().filter(|_| !is_mailbox);
            for args in member.into_iter().chain(mailbox) {
                let ran = team.team(args);
                assert!(matches!(ran.code, Some(1 | 2)), "{ran:#?}");
                assert_eq!(ran.out, "", "{ran:#?}");
                assert!(!ran.err.is_empty(), "{ran:#?}");
                assert_harmless(&ran.err);
                assert_eq!(files(team), before, "{args:?} changed something");
            }
        }
        // Number 25 is the name of a live teammate.
        let ran = team.team(&["teammate", "alice", "--model", "rehearsal"]).expect(5);
        assert!(ran.err.contains(&format!("pid {}", team.pid_of("alice"))), "{ran:#?}");
        assert_eq!(files(team), before);
        // A name that is not UTF-8.
        let mut odd = team.command("team", &["send"]);
        odd.arg(std::ffi::OsStr::from_bytes(b"al\xffice")).arg("hi");
        assert_eq!(odd.output().unwrap().status.code(), Some(2));
        assert_eq!(files(team), before);
    });
}

#[test]
fn lines_of_jsonl_refuse_them() {
    with_alice(|team| {
        let before = files(team);
        for name in
            bad_for_members().iter().filter(|name| !matches!(name.as_str(), "lead" | "user"))
        {
            let line = json!({ "to": name, "content": "hi" }).to_string() + "\n";
            let ran = team.team_with_input(&["send", "--jsonl"], &line).expect(1);
            assert!(ran.err.contains("line 1 was not sent"), "{ran:#?}");
            assert_harmless(&ran.err);
            assert_eq!((ran.out.as_str(), files(team)), ("", before.clone()), "{name:?}");
        }
        let mut sent = 0;
        for name in bad_for_members() {
            let from =
                json!({ "to": "alice", "from": name, "content": "from whom?" }).to_string() + "\n";
            let ran = team.team_with_input(&["send", "--jsonl"], &from);
            sent += usize::from(ran.code == Some(0));
        }
        team.eventually("alice has handled her mail", || {
            let transcript = team.lines("transcript/alice.jsonl");
            team.mail_of("alice").len() == sent
                && transcript.last().is_some_and(|line| line["kind"] == "turn_end")
                && team.status("alice") == "idle"
        });
        assert!(sent > 0 && team.mail_of("alice").iter().all(|mail| mail["from"] == "user"));
    });
}

#[test]
fn the_tools_of_a_model_refuse_them() {
    let team = Team::new();
    team.team(&["lead", "-p", "begin", "--model", &script(&team, &[])]).expect(0);
    let before = paths(&team);
    let names = bad_for_members();
    let spawns = names.iter().map(|name| {
        ("spawn_teammate", json!({ "name": name, "role": "worker", "prompt": "begin" }))
    });
    let stops = names.iter().map(|name| ("shutdown_teammate", json!({ "name": name })));
    let sends = names
        .iter()
        .filter(|name| name.as_str() != "user")
        .map(|name| ("send_message", json!({ "to": name, "content": "hi" })));
    let all: Vec<(&str, Value)> = spawns.chain(stops).chain(sends).collect();
    let model = script(&team, &[calls("lead", &all)]);
    team.team(&["lead", "-p", "begin", "--model", &model]).expect(0);
    let results = tool_results(&team, "lead");
    assert_eq!(results.len(), all.len());
    for ((_, text, error), (tool, input)) in results.iter().zip(&all) {
        assert!(error, "{tool} {input}: {text}");
        assert_harmless(text);
    }
    assert_eq!(team.roster()["members"], json!([]));
    assert_eq!(paths(&team), before);
    assert_left_in_order(&team);
}
