//! Roles from files, from outside: who has which tools and model, what is told of the workspace, and how
//! `team roles` names what is wrong.

use crate::cast::{self, call, stage, who};
use crate::child::write;
use crate::crew::{assert_left_in_order, calls, headless, says, script, tool_results};
use crate::fake::Reply;
use crate::harness::Team;
use serde_json::{Value, json};
use std::fs;

const AUDITOR: &str = "---\nname: auditor\ndescription: Looks, and touches nothing.\ntools: Read, Grep\n\
    disallowedTools: broadcast\nmaxTurns: 4\nwhim: yes\n---\nYou only look.\n";

/// Files of the workspace by their paths.
fn put(team: &Team, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = team.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, text);
    }
}

fn order(name: &str, role: &str) -> (&'static str, Value) {
    ("spawn_teammate", json!({ "name": name, "role": role, "prompt": "begin" }))
}

#[test]
fn roles_are_listed_with_where_they_come_from_and_what_is_wrong() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    put(&team, &[(".claude/agents/audit.md", AUDITOR)]);
    let ran = team.team(&["roles"]).expect(0);
    for words in
        ["auditor", ".claude/agents/audit.md", ".team/roles/coder.md", "read_file but broad"]
    {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let problems: Vec<&str> = ran.err.lines().collect();
    assert_eq!(problems.len(), 2, "{}", ran.err);
    assert!(problems[0].starts_with(".claude/agents/audit.md:4: ") && problems[0].contains("Grep"));
    assert!(problems[1].starts_with(".claude/agents/audit.md:7: ") && problems[1].contains("whim"));
    let listed = team.team(&["roles", "--json"]).expect(0).json();
    assert_eq!(listed["schema"], 1);
    let roles = listed["roles"].as_array().unwrap();
    let names: Vec<&Value> = roles.iter().map(|role| &role["name"]).collect();
    assert_eq!(names, ["auditor", "coder", "reviewer", "tester"]);
    let expected = json!({
        "name": "auditor", "description": "Looks, and touches nothing.",
        "file": ".claude/agents/audit.md", "tools": ["read_file"],
        "disallowed_tools": ["broadcast"], "model": null, "mode": null, "max_turns": 4,
        "problems": roles[0]["problems"],
    });
    assert_eq!((&roles[0], roles[0]["problems"].as_array().unwrap().len()), (&expected, 2));
}

#[test]
fn a_role_limits_tools_and_turns_and_names_a_model() {
    let team = Team::new();
    put(
        &team,
        &[
            (".claude/agents/audit.md", AUDITOR),
            (".team/roles/actor.md", "---\nname: actor\nmodel: rehearsal\n---\n"),
            (".team/roles/star.md", "---\nmodel: claude-star\n---\n"),
            ("notes.txt", "seen"),
        ],
    );
    let bash = ("bash", json!({ "command": "touch made" }));
    let model = script(
        &team,
        &[
            calls("lead", &[order("a", "auditor"), order("b", "actor"), order("c", "star")]),
            says("lead", "all begun"),
            calls("a", &[bash, ("broadcast", json!({ "content": "x" }))]),
            calls("a", &[("read_file", json!({ "path": "notes.txt" }))]),
            calls("a", &[("list_teammates", json!({}))]),
            calls("a", &[("list_tasks", json!({}))]),
            says("a", "never said: that would be the fifth call"),
            says("c", "done"),
        ],
    );
    headless(&team, &model, "begin").expect(0);
    let spawned = tool_results(&team, "lead");
    assert!(spawned[1].1.contains("on rehearsal"), "{spawned:?}");
    assert!(spawned[2].1.contains("anthropic/claude-star, which is not used"), "{spawned:?}");
    assert_eq!(team.member("b")["model"], "rehearsal");
    let done = tool_results(&team, "a");
    for refused in &done[..2] {
        assert!(refused.2 && refused.1.contains("your role (auditor) does not have"), "{done:?}");
        assert!(refused.1.contains("read_file") && !refused.1.contains("edit_file"), "{done:?}");
    }
    assert_eq!(done[2], ("read_file".into(), done[2].1.clone(), false), "{done:?}");
    assert!(!team.workspace().join("made").exists());
    assert!(team.has_mail("lead", "a", "4 model calls in one turn"), "{}", team.picture());
    let warned = team.lines("log/a.jsonl");
    assert!(warned.iter().any(|line| line["line"] == 7 && line["level"] == "WARN"), "{warned:?}");
    assert_left_in_order(&team);
}

/// What the model is told, as the endpoint sees it; an idle agent that is given another role has that
/// role's tools.
#[test]
fn the_model_is_told_of_the_workspace_and_of_the_tools_of_its_role() {
    let (team, fake) = stage(|view| match (who(view).as_str(), view.turn()) {
        ("lead", 0) => call(view, "spawn_teammate", &order("alice", "auditor").1),
        ("lead", _) if view.last_text().contains("looked once") => {
            call(view, "spawn_teammate", &order("alice", "coder").1)
        }
        ("lead", _) => Reply::text("Fine."),
        (_, 0) => Reply::text("I looked once."),
        (_, _) => Reply::text("I looked twice."),
    });
    put(
        &team,
        &[
            (".claude/agents/audit.md", AUDITOR),
            ("AGENTS.md", "Say please.\n"),
            ("CLAUDE.md", &"x".repeat(40_000)),
        ],
    );
    cast::headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let of_alice: Vec<_> = asked.iter().filter(|view| who(view) == "alice").collect();
    let tools = |at: usize| -> Vec<&str> {
        let tools = of_alice[at].body["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
    };
    assert!(of_alice.len() >= 2, "{}", team.picture());
    assert!(!tools(0).contains(&"bash") && tools(0).contains(&"read_file"), "{:?}", tools(0));
    assert!(tools(of_alice.len() - 1).contains(&"bash"), "the new role has it");
    for view in &asked {
        let system = view.system();
        assert!(system.contains("[AGENTS.md]\nSay please.\n[CLAUDE.md]\nxx"));
        assert!(system.len() < 40_000, "cut");
        assert_eq!(system.contains("You only look."), who(view) == "alice");
    }
    let logged = team.lines("log/lead.jsonl");
    let is_cut =
        |line: &Value| line["problem"].as_str().is_some_and(|it| it.contains("CLAUDE.md is cut"));
    assert!(logged.iter().any(is_cut), "{logged:?}");
}
