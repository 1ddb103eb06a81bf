//! Roles from files: the tools and the model of a member, the description of the workspace, and the errors of
//! `team roles`.

use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::fake::Reply;
use crate::support::fake_models::{self, agent_of, call, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, says, script, scripted_lead, tool_results,
};
use serde_json::{Value, json};
use std::fs;

const AUDITOR: &str = "---\nname: auditor\ndescription: Reads code and changes nothing.\ntools: \
                       Read, Grep, WebSearch\ndisallowedTools: broadcast\nmaxTurns: 4\nwhim: yes\n---\nYou \
                       only look.\n";

/// Writes files in the workspace, and creates their folders.
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
fn roles_are_listed_with_their_source_and_errors() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    put(
        &team,
        &[
            (".claude/agents/audit.md", AUDITOR),
            ("home/.claude/agents/tester.md", "Hidden by the role of the team.\n"),
            ("home/.claude/agents/Baker.md", "Hidden by the user's own role.\n"),
            ("settings/team/roles/baker.md", "Bake.\n"),
        ],
    );
    let inside = |path: &str| team.workspace().join(path).display().to_string();
    team.variable("HOME", &inside("home"));
    team.variable("XDG_CONFIG_HOME", &inside("settings"));
    let ran = team.team(&["roles"]).expect(0);
    for words in
        ["auditor", ".claude/agents/audit.md", ".team/roles/coder.md", "read_file,grep but broad"]
    {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let problems: Vec<&str> = ran.err.lines().collect();
    assert_eq!(problems.len(), 2, "{}", ran.err);
    assert!(
        problems[0].starts_with(".claude/agents/audit.md:4: ") && problems[0].contains("WebSearch")
    );
    assert!(problems[1].starts_with(".claude/agents/audit.md:7: ") && problems[1].contains("whim"));
    let listed = team.team(&["roles", "--json"]).expect(0).json();
    assert_eq!(listed["schema"], 1);
    let roles = listed["roles"].as_array().unwrap();
    let names: Vec<&Value> = roles.iter().map(|role| &role["name"]).collect();
    assert_eq!(names, ["auditor", "baker", "Baker", "coder", "reviewer", "tester", "tester"]);
    let baker = inside("settings/team/roles/baker.md");
    assert_eq!((&roles[1]["file"], &roles[1]["hidden_by"]), (&json!(baker), &Value::Null));
    assert_eq!(roles[2]["hidden_by"], json!(baker));
    assert_eq!(roles[6]["file"], json!(inside("home/.claude/agents/tester.md")));
    assert_eq!(roles[6]["hidden_by"], ".team/roles/tester.md");
    let hidden = "tester.md, hidden by .team/roles/tester.md";
    assert!(ran.out.contains(hidden), "{}", ran.out);
    let expected = json!({
        "name": "auditor", "description": "Reads code and changes nothing.",
        "file": ".claude/agents/audit.md", "hidden_by": null, "tools": ["read_file", "grep"],
        "disallowed_tools": ["broadcast"], "model": null, "fallback_models": null, "mode": null,
        "isolation": null, "max_turns": 4, "skills": null, "mcp_servers": null,
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
    assert_eq!(done[3], ("list_teammates".into(), done[3].1.clone(), false), "mail: {done:?}");
    assert!(
        done[4].2 && done[4].1.contains("does not have"),
        "a role names its task tools: {done:?}"
    );
    assert!(!team.workspace().join("made").exists());
    assert!(team.has_mail("lead", "a", "4 model calls in one turn"), "{}", team.describe());
    let warned = team.lines("log/a.jsonl");
    let of_whim = |line: &&Value| line["line"] == 7 && line["level"] == "WARN";
    assert_eq!(
        warned.iter().filter(of_whim).count(),
        1,
        "an unknown key is named once: {warned:?}"
    );
    assert_left_in_order(&team);
}

/// A restricted role holds however its name is written, and a similar text is refused by a spawn, by hand and by
/// a resume. Any other text is a free role.
#[test]
fn a_role_binds_by_its_name_in_any_form_and_a_similar_text_is_refused() {
    let team = Team::new();
    let auditor = ("home/.claude/agents/code-auditor.md", "---\ntools: Read\n---\nLook.\n");
    put(&team, &[auditor]);
    team.variable("HOME", &team.workspace().join("home").display().to_string());
    let touch = |name: &str, file: &str| {
        calls(name, &[("bash", json!({ "command": format!("touch {file}") }))])
    };
    let model = script(
        &team,
        &[
            calls("lead", &[order("a", "Code_Auditor"), order("b", "security code auditors")]),
            calls("lead", &[order("b", "shop clerk"), order("a", "code auditor, strict")]),
            says("lead", "begun"),
            touch("a", "a-ran"),
            says("a", "a is done"),
            touch("b", "b-ran"),
            says("b", "b is done"),
        ],
    );
    headless(&team, &model, "begin").expect(0);
    let spawned = tool_results(&team, "lead");
    let errors: Vec<bool> = spawned.iter().map(|(.., is_error)| *is_error).collect();
    assert_eq!(errors, [false, true, false, true], "{spawned:#?}");
    for at in [1, 3] {
        assert!(spawned[at].1.contains("code-auditor"), "the files are listed: {spawned:#?}");
        assert!(spawned[at].1.contains("clearly different words"), "{spawned:#?}");
    }
    let roles = ["a", "b"].map(|name| team.member(name)["role"].clone());
    assert_eq!(roles, ["code-auditor", "shop clerk"]);
    let made = ["a-ran", "b-ran"].map(|file| team.workspace().join(file).exists());
    assert_eq!(made, [false, true], "{}", team.describe());

    let by_hand = |role: &str| {
        let prompt = ["--prompt", "Run touch by-hand", "--model", "rehearsal"];
        team.team(&[&["teammate", "c", "--role", role, "--once"], &prompt[..]].concat())
    };
    let refused = by_hand("auditor of code-auditor").expect(2);
    for words in ["is unclear", "why: ", "code-auditor", "now: "] {
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    by_hand("CODE AUDITOR").expect(0);
    assert_eq!(team.member("c")["role"], "code-auditor");
    assert!(!team.workspace().join("by-hand").exists());

    // A free role becomes unclear by a new file.
    put(&team, &[(".team/roles/clerk.md", "---\ntools: Read\n---\nSell.\n")]);
    team.team(&["lead", "--resume", "-p", "go on", "--model", &model]).expect(0);
    let told = "b is gone (error, it could not be started)";
    assert!(team.has_mail("lead", "system", told), "{}", team.describe());
    assert!(team.has_mail("lead", "system", "spawn it again"), "{}", team.describe());
    assert_eq!(team.member("b")["status"], "failed", "{}", team.describe());
    assert_left_in_order(&team);
}

/// The removal of a role file does not free its member of the limits: a spawn of the same name and a start by hand do
/// not take the name of the role for free text.
#[test]
fn a_member_whose_role_file_is_gone_is_not_started_without_limits() {
    let team = Team::without_walls();
    put(&team, &[(".team/roles/auditor.md", "---\ntools: Read\n---\nAudit.\n")]);
    let gone = bash("rm .team/roles/auditor.md");
    let lines = [
        calls("lead", &[order("a", "auditor")]),
        says("a", "ready"),
        calls(
            "lead",
            &[gone, ("shutdown_teammate", json!({ "name": "a" })), order("a", "auditor")],
        ),
        says("lead", "over"),
    ];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    assert_eq!(team.member("a")["role_file"], ".team/roles/auditor.md");
    let (_, told, is_error) = tool_results(&team, "lead").pop().unwrap();
    assert!(is_error && told.contains("auditor.md is gone"), "{told}");

    let alone = ["--once", "--prompt", "Run touch by-hand", "--model", "rehearsal"];
    for role in ["auditor", "AUDITOR"] {
        let ran = team.team(&[&["teammate", "a", "--role", role], &alone[..]].concat()).expect(2);
        assert!(ran.err.contains("put the file back"), "{role}: {}", ran.err);
    }
    assert!(!team.workspace().join("by-hand").exists());
    put(&team, &[(".team/roles/auditor.md", "---\ntools: Read\n---\nAudit.\n")]);
    team.team(&[&["teammate", "a", "--role", "auditor"], &alone[..]].concat()).expect(0);
    assert!(!team.workspace().join("by-hand").exists(), "it may only read");
    assert_left_in_order(&team);
}

/// A member that is restarted after a crash is one of those.
#[test]
fn a_restart_without_the_role_file_fails() {
    let team = Team::new();
    put(&team, &[(".team/roles/auditor.md", "---\ntools: Read\n---\nAudit.\n")]);
    let lines = [
        calls("lead", &[order("a", "auditor")]),
        says("lead", "spawned"),
        says("a", "ready"),
        says("lead", "I see."),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("a is ready", || team.has_mail("lead", "a", "ready"));
    team.wait_status("a", "idle");
    fs::remove_file(team.path("roles/auditor.md")).unwrap();
    kill_9(&team, "a");
    team.wait_status("a", "failed");
    team.eventually("the lead is told", || team.has_mail("lead", "system", "auditor.md is gone"));
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

/// An alias in a role file means a model of Anthropic. For a lead with another provider it means the lead's model,
/// unless a setting names a model of that provider.
#[test]
fn a_role_may_name_its_model_by_an_alias() {
    let (team, fake) = team_with_fake(|view| match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => call(view, "spawn_teammate", &order("a", "quick").1),
        (_, _) => Reply::text("Fine."),
    });
    put(&team, &[(".team/roles/quick.md", "---\nmodel: haiku\n---\n")]);
    fake_models::headless(&team, "begin", &[]).expect(0);
    assert_eq!(team.member("a")["model"], "anthropic/claude-haiku-5-5");
    let asked = fake.requests();
    let models: Vec<_> = asked.iter().filter(|view| agent_of(view) == "a").collect();
    assert_eq!(models[0].body["model"], "claude-haiku-5-5");
    let lines = [calls("lead", &[order("b", "quick")]), says("lead", "begun")];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    assert_eq!(team.member("b")["model"], model);
    let told = tool_results(&team, "lead");
    assert!(told[0].1.contains("haiku, which is not used"), "{told:?}");
    let logged = team.lines("log/lead.jsonl");
    let is_told = |line: &&Value| line["level"] == "WARN" && line["model"] == "haiku";
    assert_eq!(logged.iter().filter(is_told).count(), 1, "{logged:?}");
    team.variable("TEAM_MODEL_ALIASES_HAIKU", &model);
    headless(&team, &model, "begin").expect(0);
    assert!(!tool_results(&team, "lead")[0].1.contains("not used"), "{}", team.describe());
}

/// A rule of a role prevails over settings, the mode, and an "always" that the person gave to another member.
#[test]
fn no_rule_and_no_answer_allows_what_a_role_denies() {
    let team = Team::new();
    team.variable("TEAM_MODE", "default");
    let careful = "---\nname: careful\ndisallowedTools: Bash(rm:*), Write(keep/**)\n---\n";
    put(
        &team,
        &[
            (".team/roles/careful.md", careful),
            (
                ".config/team/settings.toml",
                "[permissions]\nallow = [\"bash(rm:*)\", \"write_file\"]\n",
            ),
            ("a.txt", ""),
            ("b.txt", ""),
        ],
    );
    let bash = |command: &str| ("bash", json!({ "command": command }));
    let keep = ("write_file", json!({ "path": "keep/x", "content": "" }));
    let free = ("write_file", json!({ "path": "free", "content": "" }));
    let once_more = "until [ -e go ]; do sleep 0.05; done; rm -v b.txt";
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[order("bob", "worker")]),
            says("lead", "begun"),
            calls("bob", &[bash(once_more)]),
            says("bob", "bob is done"),
            calls("lead", &[order("alice", "careful")]),
            says("lead", "both begun"),
            calls("alice", &[bash("rm a.txt"), bash("echo x; rm a.txt"), keep, free]),
            calls("alice", &[bash(once_more)]),
            says("alice", "alice is done"),
        ],
    );
    let asked = wait_asked(&team, "bob");
    write(&team.workspace().join("go"), "");
    team.team(&["approve", &asked, "--always"]).expect(0);
    team.eventually("alice is done", || team.has_mail("lead", "alice", "alice is done"));
    let done = tool_results(&team, "alice");
    let refused: Vec<bool> = done.iter().map(|(.., is_error)| *is_error).collect();
    assert_eq!(refused, [true, true, true, false, true], "{done:#?}");
    for at in [0, 1, 2, 4] {
        assert!(done[at].1.contains("denied by the rule"), "{done:#?}");
    }
    assert!(team.workspace().join("a.txt").exists() && !team.workspace().join("b.txt").exists());
    let asked = team.lines("transcript/alice.jsonl");
    assert!(asked.iter().all(|line| line["kind"] != "request"), "nobody is asked what is denied");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_role_may_be_stricter_than_the_lead_and_never_looser() {
    let team = Team::new();
    put(
        &team,
        &[
            (".team/roles/planner.md", "---\npermissionMode: plan\n---\n"),
            (".claude/agents/free.md", "---\nname: free\npermissionMode: bypassPermissions\n---\n"),
        ],
    );
    let touch = |name: &str| ("write_file", json!({ "path": name, "content": "" }));
    let bash = ("bash", json!({ "command": "touch ran" }));
    let model = script(
        &team,
        &[
            calls("lead", &[order("p", "planner"), order("f", "free")]),
            says("lead", "begun"),
            calls("p", &[touch("planned")]),
            says("p", "p is done"),
            calls("f", &[touch("edited"), bash]),
            says("f", "f is done"),
        ],
    );
    let words = ["lead", "-p", "begin", "--model", &model, "--mode", "accept_edits"];
    team.team(&words).expect(9);
    let modes = ["p", "f"].map(|name| team.member(name)["mode"].clone());
    assert_eq!(modes, ["plan", "accept_edits"]);
    let made = ["planned", "edited", "ran"].map(|file| team.workspace().join(file).exists());
    assert_eq!(made, [false, true, false], "{}", team.describe());
    assert_left_in_order(&team);
}

/// A request contains the description of the workspace and the tools of the role. An idle agent that gets another
/// role gets the tools of that role.
#[test]
fn the_prompt_has_the_workspace_and_the_tools_of_the_role() {
    let (team, fake) = team_with_fake(|view| match (agent_of(view).as_str(), view.turn()) {
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
    fake_models::headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let of_alice: Vec<_> = asked.iter().filter(|view| agent_of(view) == "alice").collect();
    let tools = |at: usize| -> Vec<&str> {
        let tools = of_alice[at].body["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
    };
    assert!(of_alice.len() >= 2, "{}", team.describe());
    let of_auditor = [
        "grep",
        "idle",
        "list_teammates",
        "read_file",
        "read_inbox",
        "send_message",
        "shutdown_response",
        "submit_plan",
    ];
    assert_eq!(tools(0), of_auditor, "the named tools and mail, but no broadcast");
    assert!(tools(of_alice.len() - 1).contains(&"bash"), "the new role has it");
    for view in &asked {
        let system = view.system();
        assert!(system.contains("[AGENTS.md]\nSay please.\n[CLAUDE.md]\nxx"));
        assert!(system.len() < 40_000, "cut");
        assert_eq!(system.contains("You only look."), agent_of(view) == "alice");
        let listed = system.contains("words:\n- auditor: Reads code and changes nothing.\n");
        assert_eq!(listed, agent_of(view) == "lead", "{system:.600}");
    }
    let logged = team.lines("log/lead.jsonl");
    let is_cut =
        |line: &Value| line["problem"].as_str().is_some_and(|it| it.contains("CLAUDE.md is cut"));
    assert!(logged.iter().any(is_cut), "{logged:?}");
}
