//! `team mcp`: a client that speaks MCP over the input and output of a real process, with real leads.

use crate::support::harness::Team;
use crate::support::mcp_client::{Client, mail_in, text};
use crate::support::scripts::{assert_left_in_order, kill_9, last_exit, lead, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

pub(super) fn team() -> Team {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team
}

#[test]
fn mail_goes_both_ways_with_a_lead_and_the_end_of_the_input_frees_the_name() {
    let team = team();
    let mut lead = lead(&team, "rehearsal");
    let mut client = Client::join(&team, &["--role", "documentation"], "claude-code");
    team.wait_status("claude", "idle");
    let member = team.member("claude");
    assert_eq!(member["model"], "mcp/claude-code");
    assert_eq!((&member["started_by"], &member["role"]), (&"hand".into(), &"documentation".into()));
    // A model that waits for mail is idle.
    client.request(
        "tools/call",
        &json!({ "name": "check_inbox", "arguments": { "wait_seconds": 45 } }),
    );
    lead.type_line("@claude please review the page");
    let answer = client.receive();
    assert_eq!(mail_in(&text(&answer)), ["please review the page"]);
    team.wait_status("claude", "working");
    assert!(
        team.has_mail("claude", "lead", "please review")
            || team.has_mail("claude", "user", "please review")
    );
    assert_eq!(
        client.call("send_message", &json!({ "to": "lead", "content": "the page is fine" })),
        "Sent to lead."
    );
    lead.expect("the page is fine");
    // The result of every tool ends with unread mail.
    lead.type_line("@claude thanks");
    team.eventually("the mail is there", || team.team(&["inbox", "claude"]).out.contains("thanks"));
    assert_eq!(mail_in(&client.call("list_teammates", &json!({}))), ["thanks"]);
    assert_eq!(client.call("check_inbox", &json!({})), "No unread mail.");
    let all = mail_in(&client.call("check_inbox", &json!({ "again": true })));
    assert_eq!(all, ["please review the page", "thanks"]);
    // Tasks work as those of other members.
    assert!(
        client.call("create_task", &json!({ "subject": "write" })).starts_with("Created task 1")
    );
    assert!(client.call("claim_task", &json!({ "task_id": "1" })).starts_with("Task 1 is yours"));
    assert!(
        client.call("complete_task", &json!({ "task_id": "1" })).starts_with("Task 1 is completed")
    );
    assert_eq!(client.end(), Some(0));
    assert_eq!(team.status("claude"), "shutdown");
    assert_eq!(last_exit(&team, "claude"), ("stopped".into(), Some(0), None));
    let next = Client::join(&team, &[], "claude-code");
    team.wait_status("claude", "idle");
    assert_eq!(next.end(), Some(0));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn each_client_has_a_name_of_its_own() {
    let team = team();
    team.team(&["teammate", "codex", "--model", "rehearsal", "--once", "--prompt", "hello"])
        .expect(0);
    let first = Client::join(&team, &[], "claude-code");
    let second = Client::join(&team, &[], "claude-code");
    // The name of a member of another kind is not taken.
    let third = Client::join(&team, &[], "codex-mcp-client");
    for name in ["claude", "claude-2", "codex-2"] {
        team.wait_status(name, "idle");
    }
    let mut refused = Client::start(&team, &["--as", "claude"]);
    let answer = refused.shake_hands("gemini");
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("claude is already running") && why.contains("choose another name"),
        "{why}"
    );
    assert_eq!(refused.end(), Some(5));
    for client in [first, second, third] {
        assert_eq!(client.end(), Some(0));
    }
    let bad = team.team(&["mcp", "--as", "Lead!"]).expect(2);
    assert!(bad.out.is_empty(), "{bad:?}");
    assert_left_in_order(&team);
}

#[test]
fn without_a_team_it_ends_with_a_sentence() {
    let team = Team::new();
    let ran = team.team(&["mcp"]).expect(1);
    assert!(ran.out.is_empty() && ran.err.contains("there is no team here"), "{ran:?}");
    assert!(!team.path("").exists());
}

#[test]
fn a_member_that_is_stopped_leaves_at_once_and_its_calls_say_so() {
    let team = team();
    let mut client = Client::join(&team, &[], "claude-code");
    team.wait_status("claude", "idle");
    team.team(&["send", "claude", "before"]).expect(0);
    let pid = team.pid_of("claude");
    let waits = json!({ "name": "check_inbox", "arguments": { "wait_seconds": 45 } });
    assert_eq!(mail_in(&client.call("check_inbox", &json!({}))), ["before"]);
    client.request("tools/call", &waits);
    let stopped = team.team(&["stop", "claude"]).expect(0);
    assert!(stopped.out.contains("claude ended when asked"), "{stopped:?}");
    assert_eq!(team.status("claude"), "shutdown");
    text(&client.receive());
    let answer = client.ask(
        "tools/call",
        &json!({ "name": "send_message",
        "arguments": { "to": "lead", "content": "x" } }),
    );
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer).starts_with("user asked you to leave the team"), "{answer}");
    assert!(team.lines("inbox/lead.jsonl").iter().all(|mail| mail["content"] != "x"));
    // The process goes on, and its name is free.
    assert!(client.server.try_wait().unwrap().is_none());
    let other = Client::join(&team, &[], "claude-code");
    team.eventually("another process has the name", || team.pid_of("claude") != pid);
    assert_eq!(client.end(), Some(0));
    team.wait_status("claude", "idle");
    assert_eq!(other.end(), Some(0));
    // A signal ends the process, as that of other members.
    let mut last = Client::join(&team, &[], "claude-code");
    signal(team.pid_of("claude"), Signal::SIGTERM);
    assert_eq!(last.server.wait().unwrap().code(), Some(143));
    assert_left_in_order(&team);
}

/// Mail is handed out again if it is not certain that the client has it, and never lost.
#[test]
fn a_process_that_is_killed_loses_no_mail() {
    let team = team();
    let token = team.workspace().join("token");
    let contents = |n: usize| (0..n).map(|n| format!("mail {n}")).collect::<Vec<_>>();
    for (round, point) in ["served.taken", "served.written"].into_iter().enumerate() {
        std::fs::File::create(&token).unwrap();
        team.variable("TEAM_FAILPOINTS", &format!("eve/{point}={}", token.display()));
        let mut client = Client::join(&team, &["--as", "eve"], "x");
        team.team(&["send", "eve", &format!("mail {round}")]).expect(0);
        client.request("tools/call", &json!({ "name": "check_inbox", "arguments": {} }));
        let mut rest = String::new();
        client.output.read_to_string(&mut rest).unwrap();
        client.server.wait().unwrap();
        assert!(!token.exists(), "{point} was not reached");
        let mut next = Client::join(&team, &["--as", "eve"], "x");
        let mail = mail_in(&next.call("check_inbox", &json!({})));
        assert_eq!(mail, [format!("mail {round}")], "{point}");
        assert_eq!(next.end(), Some(0));
    }
    // Killed with unread mail, and after all was handed out.
    let mut client = Client::join(&team, &["--as", "eve"], "x");
    team.team(&["send", "eve", "mail 2"]).expect(0);
    kill_9(&team, "eve");
    client.server.wait().unwrap();
    let mut client = Client::join(&team, &["--as", "eve"], "x");
    assert_eq!(mail_in(&client.call("check_inbox", &json!({}))), ["mail 2"]);
    team.eventually("the record is written", || {
        let lines = team.lines("transcript/eve.jsonl");
        lines.iter().filter(|line| line["kind"] == "handed_out").count() == 3
    });
    client.kill();
    let mut client = Client::join(&team, &["--as", "eve"], "x");
    assert_eq!(client.call("check_inbox", &json!({})), "No unread mail.");
    assert_eq!(client.end(), Some(0));
    let taken: Vec<Value> =
        team.mail_of("eve").iter().map(|mail| mail["content"].clone()).collect();
    assert_eq!(taken, contents(3), "each message is in the transcript once");
    assert_left_in_order(&team);
}

#[test]
fn a_call_that_is_repeated_sends_one_message() {
    let team = team();
    let mut client = Client::join(&team, &[], "claude-code");
    let mut send = |content: &str, meta: Value| {
        let arguments = json!({ "to": "user", "content": content });
        let call = json!({ "name": "send_message", "arguments": arguments, "_meta": meta });
        assert_eq!(text(&client.ask("tools/call", &call)), "Sent to user.");
    };
    for _ in 0..3 {
        send("once", json!({ "claudecode/toolUseId": "toolu_01" }));
        send("once more", json!({ "callId": "call_1" }));
    }
    // The same id with another text is another message, and no id is none.
    send("other", json!({ "callId": "call_1" }));
    send("twice", json!({}));
    send("twice", json!({ "callId": "../../config.json" }));
    assert_eq!(client.end(), Some(0));
    let drained = team.team(&["inbox", "user", "--drain", "--json"]).expect(0);
    let mut found: Vec<String> = drained
        .out
        .lines()
        .map(|line| {
            let mail: Value = serde_json::from_str(line).unwrap();
            mail["content"].as_str().unwrap().to_owned()
        })
        .collect();
    found.sort();
    assert_eq!(found, ["once", "once more", "other", "twice", "twice"]);
    assert_eq!(team.lines("dead/user.jsonl"), Vec::<Value>::new());
    assert_left_in_order(&team);
}

#[test]
fn hostile_input_gets_answers_and_leaves_nothing() {
    let team = team();
    let mut client = Client::join(&team, &[], "x");
    client.send("garbage");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send(&"y".repeat(20 * 1024 * 1024));
    assert_eq!(client.receive()["error"]["code"], -32600);
    assert_eq!(client.ask("tools/nope", &json!({}))["error"]["code"], -32601);
    assert_eq!(client.ask("tools/call", &json!({ "name": 7 }))["error"]["code"], -32602);
    let unknown = client.ask("tools/call", &json!({ "name": "spawn_teammate", "arguments": {} }));
    assert!(
        unknown["result"]["isError"] == true && text(&unknown).contains("use one of"),
        "{unknown}"
    );
    let wrong = client.call("send_message", &json!({ "to": "lead", "text": 1 }));
    assert!(wrong.contains("arguments of send_message are invalid"), "{wrong}");
    let long = client.call("check_inbox", &json!({ "wait_seconds": 4000 }));
    assert!(long.contains("at most 45"), "{long}");
    // A flood, with mail in between, and an end of the input while calls run.
    for n in 0..20 {
        team.team(&["send", "x", &format!("mail {n}")]).expect(0);
        for _ in 0..10 {
            client.request("tools/call", &json!({ "name": "list_teammates", "arguments": {} }));
        }
    }
    let mut mail = Vec::new();
    for _ in 0..200 {
        mail.extend(mail_in(&text(&client.receive())));
    }
    mail.extend(mail_in(&client.call("check_inbox", &json!({}))));
    mail.sort();
    let mut expected: Vec<String> = (0..20).map(|n| format!("mail {n}")).collect();
    expected.sort();
    assert_eq!(mail, expected, "each message was handed out once");
    client.request(
        "tools/call",
        &json!({ "name": "check_inbox", "arguments": { "wait_seconds": 45 } }),
    );
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}

/// Accepts one message on the fake session of Claude Code; returns its lines.
fn accept(listener: &UnixListener) -> Vec<Value> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn mail_wakes_a_session_of_claude_code_over_its_socket() {
    let team = team();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    team.variable("CLAUDE_CODE_MESSAGING_SOCKET", &socket.display().to_string());
    team.variable("CLAUDE_CODE_MESSAGING_TOKEN", "secret-token");
    let mut client = Client::join(&team, &[], "claude-code");
    team.wait_status("claude", "idle");
    team.team(&["send", "claude", "wake up"]).expect(0);
    // Not before the session has the tools.
    client.ask("tools/list", &json!({}));
    let lines = accept(&listener);
    assert_eq!(lines[0], json!({ "type": "auth", "token": "secret-token" }));
    assert_eq!((&lines[1]["type"], &lines[1]["from"]), (&"user".into(), &"team".into()));
    assert_eq!(lines[1]["message"]["role"], "user");
    assert_eq!(mail_in(lines[1]["message"]["content"].as_str().unwrap()), ["wake up"]);
    assert_eq!(client.call("check_inbox", &json!({})), "No unread mail.");
    assert_eq!(mail_in(&client.call("check_inbox", &json!({ "again": true }))), ["wake up"]);
    // A session that is gone: the mail comes with the next result.
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    team.team(&["send", "claude", "still here"]).expect(0);
    let mut found = Vec::new();
    team.eventually("the mail comes with a result", || {
        found = mail_in(&client.call("list_teammates", &json!({})));
        !found.is_empty()
    });
    assert_eq!(found, ["still here"]);
    // A member that is stopped is told so.
    let listener = UnixListener::bind(&socket).unwrap();
    team.team(&["stop", "claude"]).expect(0);
    let told = accept(&listener)[1]["message"]["content"].to_string();
    assert!(told.contains("asked you to leave the team"), "{told}");
    assert_eq!(client.end(), Some(0));
    let log = std::fs::read_to_string(team.path("log/claude.jsonl")).unwrap();
    assert!(!log.contains("secret-token"), "{log}");
    assert_left_in_order(&team);
}

/// Sends a request over HTTP; returns the answer.
fn fetch(address: &str, request: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn over_http_a_client_needs_the_token() {
    let team = team();
    let mut client = Client::start(&team, &["--http"]);
    let place = client.receive();
    let url = place["url"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let shake = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "codex", "version": "1" } } })
    .to_string();
    let post = |method: &str, host: &str, token: &str| {
        format!(
            "{method} /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: {token}\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{shake}",
            shake.len()
        )
    };
    let token = place["authorization"].as_str().unwrap();
    for (request, status) in [
        (post("POST", address, "Bearer x"), "401"),
        (post("POST", "evil.example", token), "403"),
        (post("GET", address, token), "405"),
        (post("POST", address, token), "200"),
    ] {
        let answer = fetch(address, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}\n{answer}");
    }
    team.wait_status("codex", "idle");
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}
