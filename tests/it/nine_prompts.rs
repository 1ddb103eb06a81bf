//! The first milestone: what a person types into the lead's terminal does what it says.

use crate::harness::Team;
use crate::terminal::Terminal;

pub(crate) const NINE: [&str; 9] = [
    "Spawn alice (coder) and bob (tester). Have alice send bob a message.",
    "Broadcast \"status update: phase 1 complete\" to all teammates",
    "Check the lead inbox for any messages",
    "/team",
    "/inbox",
    "Spawn alice as a backend developer. Ask her to create a file called schema.sql with a users table.",
    "Check your inbox for alice's result.",
    "Spawn bob as a tester. Ask him to check if schema.sql exists and list its contents.",
    "Shut down alice gracefully, then show the team.",
];

fn lead(team: &Team, args: &[&str]) -> Terminal {
    let mut words = vec!["lead", "--model", "rehearsal", "--mode", "bypass"];
    words.extend(args);
    Terminal::start(team.command("team", &words))
}

pub(crate) fn everybody_rests(team: &Team) -> bool {
    ["lead", "alice", "bob"].iter().all(|name| {
        matches!(team.status(name).as_str(), "idle" | "shutdown" | "absent")
            && std::fs::metadata(team.path(&format!("inbox/{name}.jsonl")))
                .is_ok_and(|inbox| inbox.len() == 0)
    })
}

#[test]
fn the_nine_prompts_in_a_terminal() {
    let team = Team::new();
    let mut lead = lead(&team, &[]);
    lead.expect("rehearsal");

    lead.type_line(NINE[0]);
    team.eventually("bob has alice's message", || team.has_mail("bob", "alice", ""));
    let running = team.processes();
    for name in ["alice", "bob"] {
        let pid = team.pid_of(name);
        let (_, line) = running.iter().find(|(other, _)| *other == pid).unwrap();
        assert!(line.starts_with(&format!("teammate {name} ")), "in ps: {line}");
    }
    team.eventually("all rest", || everybody_rests(&team));

    lead.type_line(NINE[1]);
    team.eventually("everybody has the broadcast", || {
        ["alice", "bob"]
            .iter()
            .all(|name| team.has_mail(name, "lead", "status update: phase 1 complete"))
    });
    team.eventually("all rest", || everybody_rests(&team));

    lead.type_line(NINE[2]);
    lead.expect("read_inbox");
    lead.type_line(NINE[3]);
    lead.expect("STATUS");
    lead.type_line(NINE[4]);
    lead.expect("Mail for lead");

    lead.type_line(NINE[5]);
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
    team.eventually("all rest", || everybody_rests(&team));
    lead.type_line(NINE[6]);
    team.eventually("all rest", || everybody_rests(&team));

    lead.type_line(NINE[7]);
    team.eventually("bob reports the contents", || {
        team.has_mail("lead", "bob", "users") && everybody_rests(&team)
    });

    let alice = team.pid_of("alice");
    lead.type_line(NINE[8]);
    team.wait_status("alice", "shutdown");
    team.eventually("alice's process is gone", || {
        !team.processes().iter().any(|(pid, _)| *pid == alice)
    });
    team.eventually("all rest", || everybody_rests(&team));
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
        assert_eq!(team.status(name), "shutdown", "{name}: {}", team.picture());
    }
}

#[test]
fn the_same_without_a_terminal() {
    let team = Team::new();
    let ran = team.team(&[
        "lead",
        "-p",
        &[NINE[0], NINE[1], NINE[5], NINE[7]].join("\n"),
        "--model",
        "rehearsal",
        "--mode",
        "bypass",
        "--timeout",
        "60",
    ]);
    let ran = ran.expect(0);
    assert!(!ran.out.trim().is_empty());
    assert!(team.has_mail("bob", "alice", ""), "{}", team.picture());
    for name in ["alice", "bob"] {
        assert!(team.has_mail(name, "lead", "status update: phase 1 complete"));
        assert_eq!(team.status(name), "shutdown");
    }
    let schema = std::fs::read_to_string(team.workspace().join("schema.sql")).unwrap();
    assert!(schema.to_lowercase().contains("create table users"));
    assert!(team.has_mail("lead", "bob", "users"), "{}", team.picture());
    assert!(team.processes().is_empty());
}
