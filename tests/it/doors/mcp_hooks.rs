//! `team mcp mail-hook`: hooks of a session, whose parent is that of `team mcp`. Here it is the test.

use super::mcp_member::team;
use crate::support::harness::Team;
use crate::support::mcp_client::{Client, mail_in};
use crate::support::scripts::assert_left_in_order;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

const TOOL: &str = r#"{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_response":{}}"#;
const STOP: &str = r#"{"hook_event_name":"Stop"}"#;

/// Works, and then starts the hook that waits for mail at the end of a turn in a terminal. Returns when it waits.
fn wait_for_mail(team: &Team) -> Child {
    assert_eq!(after_tool(team), Vec::<String>::new());
    team.wait_status("eve", "working");
    let mut command = team.command("team", &["mcp", "mail-hook"]);
    command.env("CLAUDE_CODE_ENTRYPOINT", "cli").env("AI_AGENT", "claude-code_2-1-316_harness");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = command.spawn().unwrap();
    hook.stdin.take().unwrap().write_all(STOP.as_bytes()).unwrap();
    team.wait_status("eve", "idle");
    hook
}

/// Waits for the end of a hook; returns its exit code and standard error.
fn ended(mut hook: Child) -> (Option<i32>, String) {
    let mut told = String::new();
    hook.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    (hook.wait().unwrap().code(), told)
}

/// Runs the hook after a tool; returns the mail that it adds to the result.
fn after_tool(team: &Team) -> Vec<String> {
    let ran = team.team_with_input(&["mcp", "mail-hook"], TOOL).expect(0);
    if ran.out.is_empty() {
        return Vec::new();
    }
    let output = &ran.json()["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "PostToolUse");
    mail_in(output["additionalContext"].as_str().unwrap())
}

fn handed_out(team: &Team) -> usize {
    let lines = team.lines("transcript/eve.jsonl");
    lines.iter().filter(|line| line["kind"] == "handed_out").count()
}

#[test]
fn a_hook_adds_unread_mail_to_the_result_of_a_tool_once() {
    let team = team();
    let mut client = Client::join(&team, &["--as", "eve"], "claude-code");
    team.wait_status("eve", "idle");
    assert_eq!(after_tool(&team), Vec::<String>::new());
    team.wait_status("eve", "working");
    team.team(&["send", "eve", "hello"]).expect(0);
    // The context of a subagent ends with its work.
    let subagent = TOOL.replace("tool_name", "agent_id");
    for other in [&subagent, "garbage", r#"{"hook_event_name":"PreToolUse"}"#, ""] {
        let ran = team.team_with_input(&["mcp", "mail-hook"], other).expect(0);
        assert!(ran.out.is_empty() && ran.err.is_empty(), "{other}: {ran:?}");
    }
    assert_eq!(after_tool(&team), ["hello"]);
    assert_eq!(after_tool(&team), Vec::<String>::new());
    team.eventually("the mail is handed out", || handed_out(&team) == 1);
    assert_eq!(client.call("check_inbox", &json!({})), "No unread mail.");
    // A result has no room for long mail; a notice tells of it once.
    team.team(&["send", "eve", &"x".repeat(9_000)]).expect(0);
    let noticed = team.team_with_input(&["mcp", "mail-hook"], TOOL).expect(0);
    assert!(noticed.out.contains("use check_inbox"), "{noticed:?}");
    assert_eq!(after_tool(&team), Vec::<String>::new());
    assert_eq!(mail_in(&client.call("check_inbox", &json!({})))[0].len(), 9_000);
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}

/// A hook that ends before it has printed its mail costs a repetition, and no message.
#[test]
fn a_hook_that_prints_nothing_leaves_the_mail_unread() {
    let team = team();
    let client = Client::join(&team, &["--as", "eve"], "claude-code");
    team.team(&["send", "eve", "hello"]).expect(0);
    let mut hook = UnixStream::connect(team.path("run/.state/eve.hook")).unwrap();
    hook.write_all(b"{\"tool_used\":\"Bash\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&hook).read_line(&mut answer).unwrap();
    let text: String = serde_json::from_str(&answer).unwrap();
    assert_eq!(mail_in(&text), ["hello"]);
    drop(hook);
    team.eventually("the mail is unread again", || after_tool(&team) == ["hello"]);
    assert_eq!(client.end(), Some(0));
    let taken: Vec<Value> =
        team.mail_of("eve").iter().map(|mail| mail["content"].clone()).collect();
    assert_eq!(taken, ["hello"]);
    assert_left_in_order(&team);
}

#[test]
fn mail_wakes_a_session_that_waits_and_a_hook_does_not_outlive_its_session() {
    let team = team();
    let mut client = Client::join(&team, &["--as", "eve"], "claude-code");
    let hook = wait_for_mail(&team);
    team.team(&["send", "eve", "wake up"]).expect(0);
    let (code, told) = ended(hook);
    assert_eq!((code, mail_in(&told)), (Some(2), vec!["wake up".to_owned()]));
    team.eventually("the mail is handed out", || handed_out(&team) == 1);
    assert_eq!(client.call("check_inbox", &json!({})), "No unread mail.");
    // A tool ends the wait.
    let hook = wait_for_mail(&team);
    assert_eq!(after_tool(&team), Vec::<String>::new());
    assert_eq!(ended(hook), (Some(0), String::new()));
    // Mail that has come during the turn wakes at its end; a session without a terminal is not held up.
    team.team(&["send", "eve", "at once"]).expect(0);
    let at_once = team.team_with_input(&["mcp", "mail-hook"], STOP).expect(2);
    assert_eq!(mail_in(&at_once.err), ["at once"]);
    let ran = team.team_with_input(&["mcp", "mail-hook"], STOP).expect(0);
    assert!(ran.out.is_empty() && ran.err.is_empty(), "{ran:?}");
    let hook = wait_for_mail(&team);
    assert_eq!(client.end(), Some(0));
    assert_eq!(ended(hook), (Some(0), String::new()));
    // No session, and no team.
    assert_eq!(after_tool(&team), Vec::<String>::new());
    assert_left_in_order(&team);
    let nowhere = Team::new();
    assert_eq!(after_tool(&nowhere), Vec::<String>::new());
    assert!(!nowhere.path("").exists());
}

/// Each session has the mail of its own member: that of a process with the same parent.
#[test]
fn a_hook_of_another_session_gets_nothing() {
    let team = team();
    let client = Client::join(&team, &["--as", "eve"], "claude-code");
    team.team(&["send", "eve", "hello"]).expect(0);
    // This shell is the parent of its hook.
    let mut shell = team.shell("team mcp mail-hook; exit $?");
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(TOOL.as_bytes()).unwrap();
    let ran = shell.wait_with_output().unwrap();
    assert!(ran.status.success() && ran.stdout.is_empty(), "{ran:?}");
    assert_eq!(after_tool(&team), ["hello"]);
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_program_that_leads_gets_mail_by_its_hooks() {
    let team = Team::new();
    let client = Client::join(&team, &["--lead"], "claude-code");
    team.eventually("it leads", || team.roster()["lead"]["status"] == "idle");
    team.team(&["send", "lead", "hello"]).expect(0);
    assert_eq!(after_tool(&team), ["hello"]);
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}
