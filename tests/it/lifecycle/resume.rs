//! `kill -9` of a teammate in the middle of a turn, and its resume at the next spawn by a lead.

use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, last_exit, says, scripted_lead, spawn, tool_results,
    wait_file,
};
use serde_json::{Value, json};
use std::fs;

/// Bob's script: he sends to the lead, then runs a command that starts a daemon.
fn bob() -> Vec<Value> {
    let hang = "setsid nohup sleep 1000 >/dev/null 2>&1 & touch bob.here; sleep 1000";
    vec![
        calls(
            "bob",
            &[
                ("send_message", json!({ "to": "lead", "content": "bob's only note" })),
                bash(hang),
                bash("touch never.run"),
            ],
        ),
        says("bob", "bob is back"),
    ]
}

/// The number of messages with that text that an agent has received.
fn times(team: &Team, owner: &str, text: &str) -> usize {
    let mail = team.mail_of(owner);
    mail.iter().filter(|mail| mail["content"].as_str().is_some_and(|it| it.contains(text))).count()
}

fn terminated(team: &Team, name: &str) -> Vec<Value> {
    let mail = team.mail_of("lead").into_iter();
    mail.filter(|mail| mail["type"] == "teammate_terminated" && mail["name"] == name).collect()
}

#[test]
fn a_killed_teammate_is_reported_once_and_resumes() {
    let team = Team::new();
    team.variable("TEAM_RESTART", "never");
    let mut lines = vec![calls("lead", &[spawn("bob")]), says("lead", "one"), says("lead", "two")];
    lines.extend(bob());
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    team.team(&["send", "bob", "it waits"]).expect(0);
    let bob = team.pid_of("bob");
    kill_9(&team, "bob");
    team.eventually("bob and his commands are gone", || {
        team.processes().iter().all(|(_, line)| line.contains("/team lead "))
    });
    team.wait_status("bob", "failed");
    assert_eq!(last_exit(&team, "bob"), ("crash".into(), None, Some(9)));
    team.eventually("the lead was told", || !terminated(&team, "bob").is_empty());
    let told = &terminated(&team, "bob")[0];
    assert_eq!((&told["cause"], &told["exit"]), (&json!("crash"), &json!("signal 9")), "{told}");
    team.team(&["send", "bob", "nobody is there"]).expect(1);

    let memory = fs::read_to_string(team.path("transcript/bob.jsonl")).unwrap();
    // The lead's script has ended, so another lead spawns bob.
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    let lines: Vec<Value> = [calls("lead", &[spawn("bob")]), says("lead", "one")]
        .into_iter()
        .chain(self::bob())
        .collect();
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("bob reports", || team.has_mail("lead", "bob", "bob is back"));
    assert_ne!(team.pid_of("bob"), bob);
    let now = fs::read_to_string(team.path("transcript/bob.jsonl")).unwrap();
    assert!(now.starts_with(&memory), "a conversation only grows");

    let results = tool_results(&team, "bob");
    let [sent, hung, unstarted] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!((sent.0.as_str(), sent.2), ("send_message", false), "{sent:?}");
    assert!(hung.1.contains("state unknown") && hung.2, "{hung:?}");
    assert!(unstarted.1.contains("not run") && unstarted.2, "{unstarted:?}");
    assert!(!team.workspace().join("never.run").exists());
    assert_eq!(times(&team, "bob", "it waits"), 1);
    assert_eq!(times(&team, "bob", "nobody is there"), 0);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_eq!(terminated(&team, "bob").len(), 0, "an end in order is no news");
    assert_left_in_order(&team);
}

/// A teammate is killed after its message was stored and before the result was recorded. Resumed, it sends the
/// message again with the same id. Meanwhile the lead has begun a new conversation.
#[test]
fn an_interrupted_send_is_repeated_and_arrives_once() {
    let team = Team::new();
    team.variable("TEAM_RESTART", "never");
    let message = json!({ "to": "lead", "content": "bob's only note" });
    let lines = [
        calls("lead", &[spawn("bob")]),
        calls("bob", &[("send_message", message)]),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    team.eventually("the message arrived", || times(&team, "lead", "only note") == 1);
    kill_9(&team, "bob");
    team.eventually("the lead was told", || !terminated(&team, "bob").is_empty());
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));

    // Cut bob's transcript as if he had been killed between the send and the record of its result.
    let transcript = team.path("transcript/bob.jsonl");
    let text = fs::read_to_string(&transcript).unwrap();
    let started = text.find("\"tool_start\"").unwrap();
    let end = started + text[started..].find('\n').unwrap() + 1;
    fs::OpenOptions::new().write(true).open(&transcript).unwrap().set_len(end as u64).unwrap();
    fs::remove_file(team.workspace().join("bob.here")).unwrap();

    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    let results = tool_results(&team, "bob");
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].0 == "send_message" && !results[0].2, "{results:?}");
    team.eventually("the lead has seen the message again", || {
        let log = team.lines("log/lead.jsonl");
        log.iter().any(|line| {
            line["message"] == "a message came again and was dropped" && line["from"] == "bob"
        })
    });
    assert_eq!(times(&team, "lead", "only note"), 0, "{}", team.describe());
    lead.type_line("/quit");
    lead.expect("Stopping");
    lead.press("\u{3}");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
