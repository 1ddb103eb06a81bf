//! Mode plan: nothing is changed by any path before a plan is approved, by the lead's model or by the
//! person, and the way there is bounded.

use crate::asking::{requests, wait_asked};
use crate::cast;
use crate::child::write;
use crate::crew::{
    assert_left_by_force, assert_left_in_order, bash, calls, headless, kill_9, listing, says,
    script, scripted_lead, tool_results,
};
use crate::fake::Reply;
use crate::harness::Team;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

/// The call by which a lead spawns a planner.
fn planner(name: &str) -> (&'static str, Value) {
    let order = json!({"name": name, "role": "worker", "prompt": "begin", "mode": "plan"});
    ("spawn_teammate", order)
}

fn plan(text: &str) -> (&'static str, Value) {
    ("submit_plan", json!({ "plan": text }))
}

fn review(id: &str, approve: bool, feedback: &str) -> (&'static str, Value) {
    let review = json!({"request_id": id, "approve": approve, "feedback": feedback});
    ("review_plan", review)
}

fn write_file(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "x\n" }))
}

/// Ways to change something, and some that only look as if they did not.
const COMMANDS: [&str; 36] = [
    "touch x",
    "echo x > x",
    "echo x >> seed",
    "cp seed x",
    "mv seed x",
    "rm seed",
    "rm -rf .",
    "ln -s seed x",
    "ln seed x",
    "mkdir x",
    "rmdir empty",
    "chmod 777 seed",
    "truncate -s 0 seed",
    "sed -i s/a/b/ seed",
    "tee x < seed",
    "dd if=seed of=x",
    "install seed x",
    "git init",
    "cat seed && touch x",
    "ls; touch x",
    "ls | tee x",
    "ls $(touch x)",
    "ls `touch x`",
    "bash -c 'touch x'",
    "sh -c 'touch x'",
    "python3 -c 'open(\"x\",\"w\")'",
    "perl -e 'open F,\">x\"'",
    "awk 'BEGIN{print > \"x\"}'",
    "find . -name seed -delete",
    "find . -exec touch x ;",
    "xargs touch x",
    "env touch x",
    "(touch x)",
    "nohup touch x &",
    "ls",
    "true",
];

#[test]
fn nothing_is_changed_before_a_plan_is_approved() {
    let team = Team::new();
    write(&team.workspace().join("seed"), "a\n");
    fs::create_dir(team.workspace().join("empty")).unwrap();
    fs::create_dir(team.path("")).unwrap();
    let rules =
        "[permissions]\nallow = [\"bash\", \"bash(*)\", \"write_file(**)\", \"edit_file\"]\n";
    write(&team.path("settings.toml"), rules);
    team.team(&["trust"]).expect(0);
    let edit = json!({"path": "seed", "old_text": "a", "new_text": "b"});
    let mut tries: Vec<_> = COMMANDS.iter().map(|command| bash(command)).collect();
    let read = ("read_file", json!({"path": "seed"}));
    tries.extend([read, write_file("x"), write_file("seed"), ("edit_file", edit)]);
    let count = tries.len();
    let lines = [
        calls("lead", &[planner("alice")]),
        says("lead", "spawned"),
        calls("alice", &tries),
        says("alice", "nothing went"),
    ];
    let model = script(&team, &lines);
    let before: BTreeSet<String> = outside(&team);
    headless(&team, &model, "begin").expect(0);
    assert_eq!(outside(&team), before);
    let results = team.lines("transcript/alice.jsonl").into_iter();
    let results: Vec<Value> = results.filter(|line| line["kind"] == "tool_result").collect();
    assert_eq!(results.len(), count);
    for result in &results {
        let text = result["content"].as_str().unwrap();
        let refused = result["is_error"] == true && text.contains("submit_plan");
        assert!(refused || text == "a\n" || text == "a", "{result}");
    }
    let ran: Vec<String> =
        tool_results(&team, "alice").into_iter().map(|(tool, ..)| tool).collect();
    assert_eq!(ran.iter().filter(|tool| *tool != "not started").collect::<Vec<_>>(), ["read_file"]);
    assert_left_in_order(&team);
}

/// The workspace without the team folder and what the user's programs keep.
fn outside(team: &Team) -> BTreeSet<String> {
    let all = listing(team.workspace()).into_iter();
    all.filter(|name| !name.starts_with(".team") && !name.starts_with(".local")).collect()
}

#[test]
fn the_leads_model_rejects_with_feedback_and_then_approves() {
    const FIRST: &str = "alice:script-alice-0-0";
    const SECOND: &str = "alice:script-alice-1-0";
    let team = Team::new();
    let lines = [
        calls("lead", &[planner("alice")]),
        says("lead", "spawned"),
        calls("lead", &[review("alice:nobody", true, ""), review(FIRST, false, "name the file")]),
        says("lead", "rejected"),
        calls("lead", &[review(SECOND, true, "go"), review(SECOND, true, "again")]),
        says("lead", "approved"),
        calls("alice", &[plan("write something")]),
        calls("alice", &[plan("write x.txt"), write_file("x.txt"), bash("touch y.txt")]),
        says("alice", "carried out"),
    ];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert!(team.workspace().join("x.txt").exists(), "{}", team.picture());
    // Approved means accept_edits: files are free, commands ask, and here nobody can be asked.
    assert!(!team.workspace().join("y.txt").exists());
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    let results = tool_results(&team, "lead");
    let errors: Vec<bool> = results.iter().map(|(_, _, error)| *error).collect();
    assert_eq!(errors, [false, true, false, false, true], "{results:?}");
    let answers: Vec<String> = team
        .lines("transcript/alice.jsonl")
        .iter()
        .filter(|line| line["kind"] == "tool_result")
        .map(|line| line["content"].as_str().unwrap().to_owned())
        .collect();
    assert!(answers[0].contains("Not approved (1 of 5): name the file"), "{answers:?}");
    assert!(answers[1].contains("Approved") && answers[1].contains("accept_edits"), "{answers:?}");
    assert_left_in_order(&team);
}

#[test]
fn rejections_are_bounded() {
    let team = Team::new();
    let mut lines = vec![calls("lead", &[planner("alice")]), says("lead", "spawned")];
    for n in 0..5 {
        lines.push(calls("alice", &[plan(&format!("plan {n}"))]));
        let id = format!("alice:script-alice-{n}-0");
        lines.push(calls("lead", &[review(&id, false, "no")]));
        lines.push(says("lead", "rejected"));
    }
    lines.push(says("alice", "this is never said"));
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert!(team.has_mail("lead", "alice", "No plan was approved"), "{}", team.picture());
    let ends = team.lines("transcript/alice.jsonl").into_iter();
    let ends: Vec<Value> = ends.filter(|line| line["kind"] == "turn_end").collect();
    assert_eq!((ends.len(), &ends[0]["outcome"]), (1, &json!("failed")), "{ends:?}");
    assert_left_in_order(&team);
}

#[test]
fn where_the_settings_say_so_only_the_person_approves() {
    let team = Team::new();
    fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), "[permissions]\nplan_approval = \"person\"\n");
    let id = "alice:script-alice-0-0";
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[planner("alice")]),
            says("lead", "spawned"),
            calls("lead", &[review(id, true, "")]),
            says("lead", "I may not"),
            calls("alice", &[plan("1. write x.txt")]),
            calls("alice", &[write_file("x.txt")]),
            says("alice", "carried out"),
        ],
    );
    lead.expect("alice asks to carry out this plan:");
    lead.expect("1. write x.txt");
    assert_eq!(wait_asked(&team, "alice"), id);
    assert_eq!(team.member("alice")["activity"], "plan");
    team.eventually("the model was refused", || {
        tool_results(&team, "lead")
            .iter()
            .any(|(_, text, _)| text.contains("leave plans to the user"))
    });
    assert_eq!(team.status("alice"), "waiting");
    // A crash in the middle: the same plan is the same question.
    kill_9(&team, "alice");
    team.eventually("nobody asks", || team.status("alice") != "waiting");
    assert_eq!(requests(&team)[0]["request_id"], id);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_by_force(&team, &["alice"]);
}

/// The same with a model behind the wire: it reads the request in its inbox and answers it.
#[test]
fn a_model_over_http_reviews_what_it_reads() {
    let (team, fake) = cast::stage(|view| {
        let past = cast::conversation(view);
        match cast::who(view).as_str() {
            "lead" if !past.contains("spawn_teammate") => {
                cast::call(view, "spawn_teammate", &planner("alice").1)
            }
            "lead" if past.contains("plan_approval_request") && !past.contains("review_plan") => {
                let (_, behind) = past.split_once("request_id").unwrap();
                let from = behind.find("alice:call-").unwrap();
                let id: String =
                    behind[from..].chars().take_while(|c| !"\\\"".contains(*c)).collect();
                cast::call(view, "review_plan", &json!({"request_id": id, "approve": true}))
            }
            "alice" if !past.contains("submit_plan") => {
                cast::call(view, "submit_plan", &json!({"plan": "write x.txt"}))
            }
            "alice" if !past.contains("write_file") => {
                cast::call(view, "write_file", &write_file("x.txt").1)
            }
            _ => Reply::text("Noted."),
        }
    });
    cast::headless(&team, "go", &[]).expect(0);
    assert!(team.workspace().join("x.txt").exists(), "{}", team.picture());
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    assert!(fake.requests().len() >= 5);
    assert_left_in_order(&team);
}
