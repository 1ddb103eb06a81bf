//! The tools of subagents: those of MCP servers, skills, and the end of one that repeats a call.

use crate::doors::{scripted_server, team_with};
use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{agent_of, call, connect, headless, results, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless as scripted, says, script, tool_results,
};
use serde_json::{Value, json};
use std::fs;

const HEADING: &str = "\nSkills, instructions for certain kinds of work";

/// Writes files in the workspace, and creates their folders.
fn put(team: &Team, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = team.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, text);
    }
}

/// Returns the names of the tools that a model is offered.
fn offered(view: &RequestView) -> Vec<&str> {
    let tools = view.body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn of<'a>(asked: &'a [RequestView], name: &str) -> Vec<&'a RequestView> {
    asked.iter().filter(|view| agent_of(view) == name).collect()
}

/// A reply of the lead that calls these subagents, each with a role.
fn subagents(roles: &[&str]) -> Reply {
    roles.iter().enumerate().fold(Reply::message(), |reply, (at, role)| {
        let input = if role.is_empty() {
            json!({ "task": "look" })
        } else {
            json!({ "task": "look", "role": role })
        };
        reply.tool(&format!("sub-{at}"), "run_subagent", &input)
    })
}

#[test]
fn the_tools_of_mcp_servers_reach_a_subagent_as_far_as_its_role_has_them() {
    let server = || scripted_server(&[]);
    let Some(team) = team_with(&[("s", server()), ("t", server())]) else { return };
    put(
        &team,
        &[
            (".team/roles/reader.md", "---\ntools: read_file, mcp__s__look\n---\nRead.\n"),
            (".team/roles/one.md", "---\nmcpServers: [t]\n---\nUse one.\n"),
            (".team/roles/none.md", "---\nmcpServers: []\n---\nUse none.\n"),
        ],
    );
    let fake = Fake::start(|view| match (agent_of(view).as_str(), view.turn()) {
        ("lead" | "lead:1", 0) => call(view, "mcp__s__pid", &json!({})),
        ("lead", 1) => subagents(&["", "reader", "one", "none"]),
        ("lead:1", 1) => call(view, "mcp__s__fail", &json!({ "text": "no such branch" })),
        ("lead:2", 0) => call(view, "mcp__s__look", &json!({ "text": "seen" })),
        ("lead:2", 1) => call(view, "mcp__s__echo", &json!({ "text": "refused" })),
        ("lead:3", 0) => call(view, "mcp__t__echo", &json!({ "text": "of the other" })),
        ("lead:3", 1) | ("lead:4", 0) => call(view, "mcp__s__echo", &json!({ "text": "x" })),
        _ => Reply::text("Done."),
    });
    connect(&team, &fake);
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let servers_tools = |name: &str| {
        let mut names = offered(of(&asked, name)[0]);
        names.retain(|name| name.starts_with("mcp__"));
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = servers_tools("lead");
    assert!(
        all.contains(&"mcp__s__echo".into()) && all.contains(&"mcp__t__echo".into()),
        "{all:?}"
    );
    assert_eq!(servers_tools("lead:1"), all);
    assert_eq!(servers_tools("lead:2"), ["mcp__s__look"]);
    let other: Vec<String> = all.iter().filter(|it| it.starts_with("mcp__t__")).cloned().collect();
    assert_eq!((servers_tools("lead:3"), servers_tools("lead:4")), (other, vec![]));
    let given =
        |name: &str| of(&asked, name)[1..].iter().map(|view| results(view)).collect::<Vec<_>>();
    let pid = &tool_results(&team, "lead")[0].1;
    assert_eq!(given("lead:1"), [pid, "no such branch"], "its caller has started the server");
    let refused = given("lead:2");
    assert_eq!(refused[0], "answer: seen");
    assert!(refused[1].contains("your role (reader) does not have the tool \"mcp__s__echo\""));
    let refused = given("lead:3");
    assert_eq!(refused[0], "answer: of the other");
    assert!(refused[1].contains("there is no tool \"mcp__s__echo\""), "{refused:?}");
    assert!(given("lead:4")[0].contains("there is no tool \"mcp__s__echo\""));
    assert_left_in_order(&team);
}

/// Of many tools, each agent has those that it has found itself.
#[test]
fn a_subagent_finds_tools_for_itself() {
    let many: Vec<Value> = (0..60)
        .map(|n| json!({ "name": format!("job_{n}"), "description": format!("Does job {n}."), "inputSchema": { "type": "object" } }))
        .collect();
    let Some(team) = team_with(&[("s", scripted_server(&["tools=tools.json"]))]) else { return };
    write(&team.workspace().join("tools.json"), json!(many).to_string());
    let fake = Fake::start(|view| match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => call(view, "find_tools", &json!({ "query": "folder" })),
        ("lead", 1) => subagents(&[""]),
        ("lead:1", 0) => call(view, "find_tools", &json!({ "query": "echo" })),
        ("lead:1", 1) => call(view, "mcp__s__echo", &json!({ "text": "found" })),
        _ => Reply::text("Done."),
    });
    connect(&team, &fake);
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let found = |name: &str| {
        let has = |view: &&RequestView, tool: &str| offered(view).contains(&tool);
        let views = of(&asked, name).into_iter();
        views.map(|view| ["mcp__s__folder", "mcp__s__echo"].map(|tool| has(&view, tool))).collect()
    };
    let [none, folder, echo] = [[false, false], [true, false], [false, true]];
    let (of_lead, of_subagent): (Vec<_>, Vec<_>) = (found("lead"), found("lead:1"));
    assert_eq!(of_lead, [none, folder, folder], "what a subagent finds is not its caller's");
    assert_eq!(of_subagent, [none, echo, echo]);
    assert_eq!(results(of(&asked, "lead:1")[2]), "answer: found");
    assert_left_in_order(&team);
}

#[test]
fn a_subagent_has_the_skills_of_its_caller_and_those_of_its_role_are_its_instructions() {
    let skill =
        |name: &str| format!("---\nname: {name}\ndescription: About {name}.\n---\nDo {name}.\n");
    let alice = json!({ "name": "alice", "role": "clerk", "prompt": "begin" });
    let (team, fake) = team_with_fake(move |view| match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => subagents(&["", "clerk", "idler"]),
        ("lead", 1) => call(view, "spawn_teammate", &alice),
        ("alice", 0) => subagents(&[""]),
        ("lead:1", 0) => call(view, "use_skill", &json!({ "name": "forms" })),
        ("lead:1", 1) | ("lead:2", 0) => {
            call(view, "use_skill", &json!({ "name": "forms", "file": "a.md" }))
        }
        ("lead:2", 1) | ("lead:3" | "alice:1", 0) => {
            call(view, "use_skill", &json!({ "name": "other" }))
        }
        _ => Reply::text("Done."),
    });
    put(
        &team,
        &[
            (".team/roles/clerk.md", "---\nskills: [forms, none]\n---\nYou are exact.\n"),
            (".team/roles/idler.md", "---\nskills: []\n---\nRest.\n"),
            (".claude/skills/forms/SKILL.md", &skill("forms")),
            (".claude/skills/forms/a.md", "Fields."),
            (".claude/skills/other/SKILL.md", &skill("other")),
        ],
    );
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let listed = |name: &str| {
        let system = of(&asked, name)[0].system();
        let (_, after) = system.split_once(HEADING)?;
        let lines = after.split_inclusive('\n').skip(1).take_while(|line| line.starts_with("- "));
        Some(lines.collect::<String>())
    };
    let given =
        |name: &str| of(&asked, name)[1..].iter().map(|view| results(view)).collect::<Vec<_>>();
    assert_eq!(listed("lead:1").unwrap(), "- forms: About forms.\n- other: About other.\n");
    let used = given("lead:1");
    assert!(used[0].contains("Do forms.\n\n[files in the folder: a.md]"), "{used:?}");
    assert_eq!(used[1], "Fields.");
    // The text of the role's skill is in its prompt, and it has no other one.
    let system = of(&asked, "lead:2")[0].system();
    let instructions = system.split_once("\nInstructions for your role:\n").unwrap().1;
    assert!(instructions.starts_with("You are exact.\n\n[skill forms, in the folder "), "{system}");
    assert!(instructions.contains("Do forms.") && listed("lead:2").is_none(), "{system}");
    let refused = "there is no skill \"other\"; the skills are: forms";
    assert_eq!(given("lead:2"), ["Fields.", refused]);
    assert!(listed("lead:3").is_none() && given("lead:3")[0].contains("there is no tool"));
    assert!(!offered(of(&asked, "lead:3")[0]).contains(&"use_skill"));
    // The skill is part of the instructions of alice, which her subagent does not have.
    assert!(listed("alice").is_none());
    assert_eq!(listed("alice:1").unwrap(), "- forms: About forms.\n");
    assert_eq!(given("alice:1"), [refused]);
    assert_left_in_order(&team);
}

/// The caller learns the reason, and works on.
#[test]
fn a_subagent_that_repeats_a_call_is_told_and_ended() {
    let team = Team::new();
    let again = |_: usize| calls("lead:1", &[("read_file", json!({ "path": "absent" }))]);
    let first = [
        calls("lead", &[("run_subagent", json!({ "task": "look" }))]),
        says("lead", "it went in circles"),
    ];
    let lines: Vec<Value> =
        first.into_iter().chain((0..10).map(again)).chain([says("lead:1", "never said")]).collect();
    let done = scripted(&team, &script(&team, &lines), "begin").expect(0);
    assert!(done.out.contains("it went in circles"), "{done:?}");
    let own = team.lines("transcript/sub/lead-1.jsonl");
    let of_kind = |kind: &str| own.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let told: Vec<bool> = of_kind("tool_result")
        .iter()
        .map(|line| line["content"].as_str().unwrap().contains("[team: the same call returned"))
        .collect();
    assert_eq!(told, [&[false; 2][..], &[true; 8]].concat());
    let end = of_kind("turn_end");
    assert_eq!((end.len(), &end[0]["outcome"]), (1, &json!("interrupted")), "{end:?}");
    let (_, text, is_error) = &tool_results(&team, "lead")[0];
    let why = "because the same call of read_file returned the same result 10 times";
    assert!(*is_error && text.starts_with(&format!("It did not finish: Stopped {why}")), "{text}");
    assert!(text.ends_with("[subagent lead:1: 10 model calls, 0 tokens]"), "{text}");
    assert_left_in_order(&team);
}
