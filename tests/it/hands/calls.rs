//! Calls of the tools for files in a team: the questions and rules about a patch, the models that are offered it, and calls
//! that run at the same time.

use crate::support::approvals::careful_team;
use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::{connect, connect_openai};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, scripted_lead, tool_results,
};
use serde_json::{Value, json};
use std::fs;

fn patch(body: &str) -> (&'static str, Value) {
    ("apply_patch", json!({ "input": format!("*** Begin Patch\n{body}\n*** End Patch") }))
}

#[test]
fn a_patch_is_asked_about_in_full_and_always_is_for_its_files() {
    let team = careful_team();
    let workspace = team.workspace();
    write(&workspace.join("a.txt"), "one\ntwo\n");
    write(&workspace.join("b.txt"), "b\n");
    let first = patch("*** Update File: a.txt\n-one\n+1\n*** Add File: new.txt\n+hello");
    let again = patch("*** Update File: a.txt\n-two\n+2\n*** Delete File: new.txt");
    let other = patch("*** Update File: a.txt\n-1\n+I\n*** Update File: b.txt\n-b\n+B");
    let replies = [calls("lead", &[first, again, other]), says("lead", "all done")];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect("asks to use apply_patch");
    lead.expect("*** Update File: a.txt");
    lead.expect("-one");
    lead.expect("+hello");
    lead.type_line("always");
    // The second patch changes the same files, and runs.
    lead.expect("+B");
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "1\n2\n");
    assert!(!workspace.join("new.txt").exists());
    lead.type_line("n");
    lead.expect("all done");
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "1\n2\n");
    let rules = team.team(&["permissions"]).expect(0).out;
    for rule in ["edit_file(a.txt)", "write_file(new.txt)"] {
        assert!(rules.contains(rule), "{rules}");
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn several_edits_are_asked_about_as_the_file_that_they_make() {
    let team = careful_team();
    let file = team.workspace().join("a.txt");
    write(&file, "one\ntwo\nthree\n");
    let pair = |old: &str, new: &str| json!({ "old_text": old, "new_text": new });
    let edits = json!({ "path": "a.txt", "edits": [pair("one", "1"), pair("three", "3")] });
    let read = ("read_file", json!({ "path": "a.txt" }));
    let replies = [calls("lead", &[read, ("edit_file", edits)]), says("lead", "all done")];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect("a.txt  +2 −2");
    lead.expect("3 + 3");
    lead.type_line("y");
    lead.expect("all done");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1\ntwo\n3\n");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn the_rules_of_the_other_tools_bind_a_patch() {
    let team = Team::new();
    fs::create_dir_all(team.path("")).unwrap();
    write(
        &team.path("settings.toml"),
        "[permissions]\ndeny = [\"edit_file(kept/**)\", \"write_file(none/**)\", \"apply_patch(own/**)\"]\n",
    );
    fs::create_dir(team.workspace().join("kept")).unwrap();
    write(&team.workspace().join("kept/a"), "a\n");
    let tries = [
        patch("*** Add File: free\n+x\n*** Update File: kept/a\n-a\n+b"),
        patch("*** Add File: free\n+x\n*** Add File: none/b\n+b"),
        patch("*** Update File: kept/a\n*** Move to: none/a\n-a\n+b"),
        patch("*** Add File: own/c\n+c"),
    ];
    let model = script(&team, &[calls("lead", &tries), says("lead", "done")]);
    headless(&team, &model, "patch").expect(9);
    for (_, said, is_error) in tool_results(&team, "lead") {
        assert!(is_error && said.contains("denied by the rule"), "{said}");
    }
    assert!(!team.workspace().join("free").exists());
    assert_eq!(fs::read_to_string(team.workspace().join("kept/a")).unwrap(), "a\n");
}

#[test]
fn what_asks_before_a_read_also_asks_before_a_search_or_a_patch() {
    let team = careful_team();
    fs::create_dir_all(team.path("")).unwrap();
    write(
        &team.path("settings.toml"),
        "[permissions]\nmode = \"accept_edits\"\nask = [\"read_file(secret)\"]\n",
    );
    team.team(&["trust"]).expect(0);
    team.variable("TEAM_MODE", "");
    write(&team.workspace().join("secret"), "needle\n");
    write(&team.workspace().join("open"), "needle\n");
    let search = ("grep", json!({ "pattern": "^needle" }));
    let moved = patch("*** Update File: secret\n*** Move to: out");
    let edited = patch("*** Update File: open\n-needle\n+thread");
    let model = script(&team, &[calls("lead", &[search, moved, edited]), says("lead", "done")]);
    headless(&team, &model, "look").expect(9);
    let results = tool_results(&team, "lead");
    assert!(
        results[0].1.starts_with("open\n1: needle") && !results[0].1.contains("secret"),
        "{results:?}"
    );
    assert!(results[1].2 && !results[2].2, "{results:?}");
    assert!(team.workspace().join("secret").exists());
}

#[test]
fn a_patch_can_be_taken_back() {
    let team = Team::new();
    let workspace = team.workspace();
    write(&workspace.join("a"), "one\n");
    write(&workspace.join("b"), "kept\n");
    write(&workspace.join("c"), "moved\n");
    let body = "*** Update File: a\n-one\n+1\n*** Delete File: b\n*** Update File: c\n*** Move to: d/c\n-moved\n+there\n\
        *** Add File: e\n+new";
    let model = script(&team, &[calls("lead", &[patch(body)]), says("lead", "done")]);
    headless(&team, &model, "patch").expect(0);
    let state = || {
        let text = |name: &str| fs::read_to_string(workspace.join(name)).ok();
        ["a", "b", "c", "d/c", "e"].map(text)
    };
    let [one, there, new] = ["1\n", "there\n", "new\n"].map(|text| Some(text.to_owned()));
    assert_eq!(state(), [one, None, None, there, new]);
    team.team(&["undo", "lead", "--yes"]).expect(0);
    let [one, kept, moved] = ["one\n", "kept\n", "moved\n"].map(|text| Some(text.to_owned()));
    assert_eq!(state(), [one, kept, moved, None, None]);
}

#[test]
fn a_patch_is_offered_to_models_that_know_its_format() {
    for (model, is_offered) in
        [("openai/gpt-5-fake", true), ("openai/other", false), ("anthropic/claude-x", false)]
    {
        let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
        if model.starts_with("openai/") {
            connect_openai(&team, &fake);
        } else {
            connect(&team, &fake);
        }
        team.team(&["lead", "-p", "hi", "--timeout", "600", "--model", model]).expect(0);
        let request = fake.requests()[0].body.to_string();
        assert_eq!(request.contains("\"apply_patch\""), is_offered, "{model}");
        assert!(request.contains("\"edit_file\"") && request.contains("\"grep\""), "{model}");
    }
}

#[test]
fn calls_that_only_read_start_together_and_their_results_have_the_order_of_the_calls() {
    let team = Team::new();
    for name in ["a", "b", "c"] {
        write(&team.workspace().join(name), format!("text of {name}\n"));
    }
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let search = ("grep", json!({ "pattern": "text of" }));
    let all = [read("a"), search, read("missing"), bash("true"), read("b"), read("c")];
    let model = script(&team, &[calls("lead", &all), says("lead", "done")]);
    headless(&team, &model, "look").expect(0);
    let lines = team.lines("transcript/lead.jsonl");
    let kinds = lines.iter().filter_map(|line| line["kind"].as_str());
    let kinds: String =
        kinds.filter(|kind| kind.starts_with("tool_")).map(|kind| &kind[5..6]).collect();
    assert_eq!(kinds, "sssrrrsrssrr", "starts and results");
    let said: Vec<String> =
        tool_results(&team, "lead").into_iter().map(|(_, said, _)| said).collect();
    for (said, words) in said.iter().zip([
        "text of a",
        "1: text of c",
        "does not exist",
        "",
        "text of b",
        "text of c",
    ]) {
        assert!(said.contains(words), "{said}");
    }
}
