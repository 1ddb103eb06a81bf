//! Limits of the exchange between agents: messages without work are bounded, floods are slowed down, mail that is
//! not read takes no memory, and a new role is announced.

use crate::support::child_process::{append, write};
use crate::support::fake::Reply;
use crate::support::fake_models::{self, agent_of, call, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, spawn, tool_results, wait_for_lead,
};
use serde_json::{Value, json};
use std::fs;

fn notices(team: &Team, text: &str) -> usize {
    let mail = team.mail_of("lead");
    let said = |mail: &&Value| mail["content"].as_str().is_some_and(|it| it.contains(text));
    mail.iter().filter(|mail| mail["from"] == "system").filter(said).count()
}

#[test]
fn an_exchange_of_thanks_ends() {
    // Mail that arrives during a turn is answered in that turn, so that every "thank you" gets an answer.
    let (team, _fake) = team_with_fake(|view| {
        let other = match agent_of(view).as_str() {
            "lead" if view.turn() == 0 => {
                return ["alice", "bob"].iter().fold(Reply::message(), |reply, name| {
                    let order = json!({ "name": name, "role": "w", "prompt": "be polite" });
                    reply.tool(&format!("spawn-{name}"), "spawn_teammate", &order)
                });
            }
            "lead" => return Reply::text("spawned"),
            "alice" => "bob",
            _ => "alice",
        };
        let news = view.last_text();
        if news.contains("be polite") || news.contains("thank you") {
            // Another text each time: the same call again and again would end the turn before the exchange does.
            let thanks = format!("thank you {}", view.number);
            call(view, "send_message", &json!({ "to": other, "content": thanks }))
        } else {
            call(view, "idle", &json!({}))
        }
    });
    team.variable("TEAM_MAX_EXCHANGES", "3");
    fake_models::headless(&team, "begin", &[]).expect(0);
    for name in ["alice", "bob"] {
        let turns = team.member(name)["usage"]["turns"].as_u64().unwrap();
        assert!((1..=8).contains(&turns), "{name}: {turns} turns\n{}", team.describe());
    }
    assert!((1..=2).contains(&notices(&team, "max_exchanges")), "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_flooding_sender_is_slowed_down_and_reported_once() {
    let team = Team::new();
    team.variable("TEAM_MAX_SENDS", "2");
    let message =
        |n: u32| ("send_message", json!({ "to": "lead", "content": format!("note {n}") }));
    let all: Vec<(&str, Value)> = (0..5).map(message).collect();
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &all),
        says("bob", "that was all"),
    ];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    let results = tool_results(&team, "bob");
    let refused: Vec<bool> = results.iter().map(|(_, _, error)| *error).collect();
    assert_eq!(refused, [false, false, true, true, true], "{results:?}");
    assert!(results[2].1.contains("nothing was sent"), "{results:?}");
    assert!(team.has_mail("lead", "bob", "note 1") && !team.has_mail("lead", "bob", "note 2"));
    assert_eq!(notices(&team, "max_sends"), 1, "{}", team.describe());
    assert!(team.has_mail("lead", "bob", "that was all"), "a report is the program's");
    assert_left_in_order(&team);
}

/// An agent that never reads its inbox must not keep the mail of its whole life in memory.
#[test]
fn read_inbox_shows_the_newest_mail_within_its_room() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let text = "x".repeat(1_000);
    let line =
        |n: u32| format!("{}\n", json!({ "from": "dora", "content": format!("{n} {text}") }));
    append(&team.path("inbox/lead.jsonl"), (0..100).map(line).collect::<String>());
    let lines = [calls("lead", &[("read_inbox", json!({}))]), says("lead", "read")];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    let results = tool_results(&team, "lead");
    let (_, shown, _) = &results[0];
    assert!(shown.contains("99 xxx") && !shown.contains("\"0 xxx"), "{shown}");
    assert!(shown.ends_with("older ones, which you were shown before, are left out]"), "{shown}");
    assert!((40_000..60_000).contains(&shown.len()), "{} bytes", shown.len());
    assert_left_in_order(&team);
}

#[test]
fn an_idle_teammate_is_informed_of_a_new_role() {
    let team = Team::without_walls();
    fs::create_dir_all(team.path("roles")).unwrap();
    write(&team.path("roles/reviewer.md"), "---\nname: reviewer\n---\nLook for races first.\n");
    let order =
        |role: &str| ("spawn_teammate", json!({ "name": "bob", "role": role, "prompt": "go" }));
    let is_idle = r#"until grep -q '"status": *"idle"' .team/config.json; do sleep 0.05; done"#;
    let lines = [
        calls("lead", &[order("coder")]),
        says("lead", "spawned"),
        calls("bob", &[wait_for_lead()]),
        says("bob", "coded"),
        // The report arrives before the status.
        calls("lead", &[bash(is_idle), order("reviewer")]),
        says("lead", "again"),
        says("bob", "reviewed"),
    ];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    let bob = team.lines("transcript/bob.jsonl");
    assert_eq!(bob.iter().filter(|line| line["kind"] == "session").count(), 1, "one process");
    let at = |what: &dyn Fn(&Value) -> bool| bob.iter().position(what).unwrap();
    let told = at(&|line| {
        line["content"].as_str().is_some_and(|note| {
            note.contains("your role is reviewer from now on, not coder")
                && note.contains("Look for races first.")
        })
    });
    let answered = at(&|line| line.to_string().contains("reviewed"));
    assert!(told < answered, "{bob:#?}");
    assert!(team.has_mail("lead", "bob", "reviewed"));
    assert_left_in_order(&team);
}
