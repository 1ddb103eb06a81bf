//! The nine prompts of the first milestone, typed into the lead's terminal.

use crate::support::harness::Team;
use crate::support::scripts::{NINE_PROMPTS, all_idle};
use crate::support::terminal::Terminal;

fn lead(team: &Team, args: &[&str]) -> Terminal {
    let mut words = vec!["lead", "--model", "rehearsal", "--mode", "bypass"];
    words.extend(args);
    Terminal::start(team.command("team", &words))
}

/// Whether a member has ended a turn after it has taken in mail with this text.
fn has_handled(team: &Team, name: &str, text: &str) -> bool {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let mut lines = lines.iter().skip_while(|line| {
        !line["message"]["content"].as_str().is_some_and(|content| content.contains(text))
    });
    lines.any(|line| line["kind"] == "turn_end")
}

#[test]
fn the_nine_prompts_in_a_terminal() {
    let team = Team::new();
    let mut lead = lead(&team, &[]);
    lead.expect("rehearsal");

    lead.type_line(NINE_PROMPTS[0]);
    team.eventually("bob has alice's message", || team.has_mail("bob", "alice", ""));
    let running = team.processes();
    for name in ["alice", "bob"] {
        let pid = team.pid_of(name);
        let (_, line) = running.iter().find(|(other, _)| *other == pid).unwrap();
        assert!(line.starts_with(&format!("teammate {name} ")), "in ps: {line}");
    }
    team.eventually("all rest", || all_idle(&team));

    lead.type_line(NINE_PROMPTS[1]);
    team.eventually("everybody has the broadcast", || {
        ["alice", "bob"]
            .iter()
            .all(|name| has_handled(&team, name, "status update: phase 1 complete"))
    });
    team.eventually("all rest", || all_idle(&team));

    lead.type_line(NINE_PROMPTS[2]);
    lead.expect("read_inbox");
    lead.type_line(NINE_PROMPTS[3]);
    lead.expect("STATUS");
    lead.type_line(NINE_PROMPTS[4]);
    lead.expect("Mail for lead");

    lead.type_line(NINE_PROMPTS[5]);
    team.eventually("schema.sql has a users table", || {
        std::fs::read_to_string(team.workspace().join("schema.sql"))
            .is_ok_and(|text| text.to_lowercase().contains("create table users"))
    });
    assert_eq!(team.member("alice")["role"], "backend developer");
    team.eventually("the result reached the lead by itself", || {
        team.lines("transcript/lead.jsonl").iter().any(|line| {
            line["kind"] == "mail"
                && line["message"]["type"] == "result"
                && line["message"]["from"] == "alice"
        })
    });
    team.eventually("all rest", || all_idle(&team));
    lead.type_line(NINE_PROMPTS[6]);
    team.eventually("all rest", || all_idle(&team));

    lead.type_line(NINE_PROMPTS[7]);
    team.eventually("bob reports the contents", || {
        team.has_mail("lead", "bob", "users") && all_idle(&team)
    });

    let alice = team.pid_of("alice");
    lead.type_line(NINE_PROMPTS[8]);
    team.wait_status("alice", "shutdown");
    team.eventually("alice's process is gone", || {
        !team.processes().iter().any(|(pid, _)| *pid == alice)
    });
    team.eventually("all rest", || all_idle(&team));
    lead.expect("list_teammates");
    lead.expect("alice: shutdown");

    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
    for name in ["lead", "alice", "bob"] {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        assert!(!lines.iter().any(|line| line["kind"] == "request"), "bypass never asks");
    }
    for name in ["lead", "alice", "bob"] {
        assert_eq!(team.status(name), "shutdown", "{name}: {}", team.describe());
    }
}

/// The prompts of one turn reach alice and bob at the same time.
const SCHEMA_IS_WRITTEN: &str =
    "Run the command `until grep -qsi users schema.sql; do sleep 0.1; done`";

#[test]
fn the_same_without_a_terminal() {
    let team = Team::new();
    let ran = team.team(&[
        "lead",
        "-p",
        &[NINE_PROMPTS[0], NINE_PROMPTS[1], NINE_PROMPTS[5], SCHEMA_IS_WRITTEN, NINE_PROMPTS[7]]
            .join("\n"),
        "--model",
        "rehearsal",
        "--mode",
        "bypass",
        "--timeout",
        "600",
    ]);
    let ran = ran.expect(0);
    assert!(!ran.out.trim().is_empty());
    assert!(team.has_mail("bob", "alice", ""), "{}", team.describe());
    for name in ["alice", "bob"] {
        assert!(team.has_mail(name, "lead", "status update: phase 1 complete"));
        assert_eq!(team.status(name), "shutdown");
    }
    let schema = std::fs::read_to_string(team.workspace().join("schema.sql")).unwrap();
    assert!(schema.to_lowercase().contains("create table users"));
    assert!(team.has_mail("lead", "bob", "users"), "{}", team.describe());
    assert!(team.processes().is_empty());
}
