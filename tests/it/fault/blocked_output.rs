//! A stdout that has no room: a full disk, or a non-blocking pipe whose reader is slow.

use crate::support::harness::Team;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::OpenOptions;
use std::io::Read;
use std::process::{Command, Output, Stdio};

/// A team with two messages for the lead, the second one of 100 KB.
fn with_mail() -> Team {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team.team(&["send", "lead", "the first"]).expect(0);
    team.team_with_input(&["send", "lead", "-"], &"x".repeat(100_000)).expect(0);
    team
}

/// Runs a command with a stdout on a full disk. Returns its stderr.
fn on_full_disk(mut command: Command, code: i32) -> String {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let Output { status, stderr, .. } = command.stdout(full).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{said}");
    said
}

/// Without the message, a person does not know that drained mail was not shown.
#[test]
fn output_on_a_full_disk_is_a_clear_error() {
    let team = with_mail();
    let said = on_full_disk(team.command("team", &["inbox", "lead", "--drain"]), 1);
    assert_eq!(
        said.matches("error: stdout cannot be written\n  why: No space left").count(),
        1,
        "{said}"
    );
    assert_eq!(team.mail_of("lead").len(), 2, "the drain is complete");
    let headless = team.command("team", &["lead", "-p", "hello", "--model", "rehearsal"]);
    let said = on_full_disk(headless, 1);
    assert!(said.contains("error: stdout cannot be written"), "{said}");
}

#[test]
fn a_slow_reader_of_a_non_blocking_pipe_gets_everything() {
    let team = with_mail();
    let (mut reader, writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut command = team.command("team", &["inbox", "lead", "--json"]);
    let mut child = command.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text.ends_with('\n') && text.contains(&"x".repeat(100_000)), "{} bytes", text.len());
}
