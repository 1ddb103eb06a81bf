//! A whole team over the Messages API: lead and teammates are real processes that stream from the
//! strict fake, which fails the test when any request is one that the real API would refuse.

use crate::cast::{ALL, at_terminal, call, conversation, headless, stage, story, who};
use crate::fake::{Reply, RequestView};
use crate::harness::Team;
use serde_json::{Value, json};
use std::fs;

const PROMPTS: [&str; 7] = [
    "Spawn alice (coder) and bob (tester). Have alice send bob a message.",
    "Broadcast \"status update: phase 1 complete\" to all teammates",
    "Check the lead inbox for any messages",
    "Spawn alice as a backend developer. Ask her to create a file called schema.sql with a users table.",
    "Check your inbox for alice's result.",
    "Spawn bob as a tester. Ask him to check if schema.sql exists and list its contents.",
    "Shut down alice gracefully, then show the team.",
];

fn all_rest(team: &Team) -> bool {
    ["lead", "alice", "bob"].iter().all(|name| {
        matches!(team.status(name).as_str(), "idle" | "shutdown")
            && fs::metadata(team.path(&format!("inbox/{name}.jsonl")))
                .is_ok_and(|inbox| inbox.len() == 0)
    })
}

/// What must be so after the story, however it was told.
fn assert_told(team: &Team) {
    assert!(team.has_mail("bob", "alice", "hello from alice"), "{}", team.picture());
    for name in ["alice", "bob"] {
        assert!(team.has_mail(name, "lead", "status update: phase 1 complete"), "{name}");
        assert_eq!(team.status(name), "shutdown", "{}", team.picture());
    }
    assert_eq!(team.member("alice")["last_exit"]["cause"], "stopped");
    let schema = fs::read_to_string(team.workspace().join("schema.sql"));
    let schema = schema.unwrap_or_else(|why| panic!("{why}: {}", team.picture()));
    assert!(schema.contains("CREATE TABLE users"));
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    assert_eq!(effects, "created\nchecked\n", "every command ran once");
    for (from, text) in [("alice", "I wrote schema.sql."), ("bob", "It says: CREATE TABLE users")] {
        let mail = team.mail_of("lead");
        let results = mail.iter().filter(|mail| {
            mail["type"] == "result"
                && mail["from"] == from
                && mail["content"].as_str().is_some_and(|content| content.contains(text))
        });
        assert_eq!(results.count(), 1, "{from}: {mail:#?}");
    }
}

#[test]
fn the_nine_prompts_in_a_terminal() {
    let (team, _fake) = stage(story);
    let mut lead = at_terminal(&team);
    lead.expect("anthropic/fake");
    let say = |lead: &mut crate::terminal::Terminal, prompt: &str| {
        let turns = |team: &Team| {
            let lines = team.lines("transcript/lead.jsonl");
            lines.iter().filter(|line| line["kind"] == "turn_end").count()
        };
        let before = turns(&team);
        lead.type_line(prompt);
        team.eventually(&format!("all rest after {prompt:?}"), || {
            turns(&team) > before && all_rest(&team)
        });
    };
    say(&mut lead, PROMPTS[0]);
    let running = team.processes();
    for name in ["alice", "bob"] {
        let pid = team.pid_of(name);
        assert!(running.iter().any(|(other, line)| *other == pid && line.starts_with("teammate ")));
    }
    for prompt in &PROMPTS[1..3] {
        say(&mut lead, prompt);
    }
    lead.type_line("/team");
    lead.expect("STATUS");
    lead.type_line("/inbox");
    lead.expect("Mail for lead");
    for prompt in &PROMPTS[3..] {
        say(&mut lead, prompt);
    }
    lead.expect("alice: shutdown");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
    assert_told(&team);
}

#[test]
fn the_same_without_a_terminal() {
    let (team, _fake) = stage(story);
    let ran = headless(&team, ALL, &[]).expect(0);
    assert_eq!(ran.out.trim(), "schema.sql is written and checked.", "{}", team.picture());
    assert_told(&team);
}
