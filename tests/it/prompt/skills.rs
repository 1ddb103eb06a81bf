//! Skills: listed in the prompt, returned by their tool, bounded, and never from outside the workspace.

use super::{logged, put};
use crate::support::child_process::write;
use crate::support::fake::{Reply, RequestView};
use crate::support::fake_models::{agent_of, call, headless, results, team_with_fake};
use crate::support::harness::Team;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;

const HEADING: &str = "\nSkills, instructions for certain kinds of work.";

fn skill(name: &str, about: &str) -> String {
    format!("---\nname: {name}\ndescription: {about}\nallowed-tools: Bash(*)\n---\nDo {name}.\n")
}

fn tools(view: &RequestView) -> Vec<&str> {
    let tools = view.body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The list of skills in a prompt, without its heading.
fn list(view: &RequestView) -> String {
    let system = view.system();
    let after = system.split_once(HEADING).unwrap_or_else(|| panic!("no list: {system}")).1;
    let lines = after.split_inclusive('\n').skip(1).take_while(|line| line.starts_with("- "));
    lines.collect()
}

#[test]
fn skills_are_listed_used_and_never_read_from_outside() {
    let (team, fake) = team_with_fake(|view| match view.turn() {
        0 => call(view, "use_skill", &json!({ "name": "forms" })),
        1 => call(view, "use_skill", &json!({ "name": "forms", "file": "more/fields.md" })),
        2 => call(view, "use_skill", &json!({ "name": "forms", "file": "../../../secret" })),
        3 => call(view, "use_skill", &json!({ "name": "form" })),
        4 => call(view, "use_skill", &json!({ "name": "mine", "file": "note.md" })),
        _ => Reply::text("Done."),
    });
    let home = tempfile::tempdir().unwrap();
    team.variable("HOME", home.path().to_str().unwrap());
    let outside = tempfile::tempdir().unwrap();
    put(
        &team,
        &[
            ("secret", "the secret"),
            (".claude/skills/forms/SKILL.md", &skill("forms", "Fills forms.")),
            (".claude/skills/forms/more/fields.md", "Fields have names."),
            (".claude/skills/bad/SKILL.md", "No front matter."),
        ],
    );
    fs::create_dir(outside.path().join("leak")).unwrap();
    write(&outside.path().join("leak/SKILL.md"), skill("leak", "Leaks."));
    symlink(outside.path().join("leak"), team.workspace().join(".claude/skills/leak")).unwrap();
    let own = home.path().join(".agents/skills");
    for (name, about) in [("mine", "Of the user."), ("forms", "Hidden.")] {
        fs::create_dir_all(own.join(name)).unwrap();
        write(&own.join(name).join("SKILL.md"), skill(name, about));
    }
    write(&own.join("mine/note.md"), "A note of the user.");
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    assert_eq!(list(&asked[0]), "- forms: Fills forms.\n- mine: Of the user.\n");
    assert!(tools(&asked[0]).contains(&"use_skill"));
    let used = results(&asked[1]);
    let folder = team.workspace().canonicalize().unwrap().join(".claude/skills/forms");
    let expected = format!(
        "[skill forms, in the folder {}]\n\nDo forms.\n\n[files in the folder: more/fields.md]",
        folder.display()
    );
    assert_eq!(used, expected);
    assert_eq!(results(&asked[2]), "Fields have names.");
    assert!(results(&asked[3]).contains("leads out of the folder"), "{}", results(&asked[3]));
    let unknown =
        "there is no skill \"form\"; the nearest is \"forms\"; the skills are: forms, mine";
    assert_eq!(results(&asked[4]), unknown);
    assert_eq!(results(&asked[5]), "A note of the user.");
    let problems = logged(&team, "problem");
    for path in [".claude/skills/bad/SKILL.md: ", ".claude/skills/leak leads out"] {
        assert!(problems.iter().any(|problem| problem.contains(path)), "{path}: {problems:?}");
    }
    let hidden = logged(&team, "hidden");
    assert!(hidden[0].contains(".agents/skills/forms is not used: .claude/skills/forms"));
    let doctor = team.team(&["doctor"]);
    for words in
        ["ok     skills: forms (.claude/skills/forms), mine (", "leak leads out", "is not used"]
    {
        assert!(doctor.out.contains(words), "{words}: {}", doctor.out);
    }
}

#[test]
fn the_list_of_skills_is_bounded_and_a_compact_prompt_has_none() {
    let (team, fake) = team_with_fake(|_| Reply::text("Done."));
    let about = "é".repeat(500);
    for number in 10..40 {
        let name = format!("skill-{number}");
        put(&team, &[(&format!(".agents/skills/{name}/SKILL.md"), &skill(&name, &about))]);
    }
    headless(&team, "begin", &[]).expect(0);
    let listed = list(&fake.requests()[0]);
    assert!(listed.len() <= 8192 && listed.len() > 7000, "{} bytes", listed.len());
    assert!(listed.ends_with("é\n- and 22 more, which do not fit here\n"), "{listed}");
    assert_eq!(listed.lines().filter(|line| line.ends_with(&about)).count(), 8);
    team.variable("TEAM_PROMPT_PROFILE", "compact");
    headless(&team, "begin", &["--new"]).expect(0);
    let asked = fake.requests();
    let last = asked.last().unwrap();
    assert!(!last.system().contains("kill-") && !tools(last).contains(&"use_skill"));
}

/// The text of a skill that a role names is part of its instructions, and it has no other skill.
#[test]
fn a_role_gets_the_skills_that_it_names() {
    let order = |name: &str, role: &str| json!({ "name": name, "role": role, "prompt": "begin" });
    let (team, fake) = team_with_fake(move |view| match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => call(view, "spawn_teammate", &order("alice", "clerk")),
        ("lead", 1) => call(view, "spawn_teammate", &order("bob", "idler")),
        ("alice", 0) => call(view, "use_skill", &json!({ "name": "other" })),
        ("alice", 1) => call(view, "use_skill", &json!({ "name": "forms", "file": "a.md" })),
        ("bob", 0) => call(view, "use_skill", &json!({ "name": "forms" })),
        _ => Reply::text("Done."),
    });
    let clerk = "---\nskills:\n  - forms\n  - long\n  - none\n---\nYou are exact.\n";
    let long = skill("long", "Is long.") + &"x".repeat(40_000);
    put(
        &team,
        &[
            (".team/roles/clerk.md", clerk),
            (".team/roles/idler.md", "---\nskills: []\n---\nRest.\n"),
            (".claude/skills/forms/SKILL.md", &skill("forms", "Fills forms.")),
            (".claude/skills/forms/a.md", "Fields."),
            (".claude/skills/long/SKILL.md", &long),
            (".claude/skills/other/SKILL.md", &skill("other", "Another.")),
        ],
    );
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let of = |name: &str| asked.iter().filter(|view| agent_of(view) == name).collect::<Vec<_>>();
    let alice = of("alice");
    assert_eq!(list(alice[0]), "- long: Is long.\n", "it does not fit into the instructions");
    let system = alice[0].system();
    let instructions = system.split_once("\nInstructions for your role:\n").unwrap().1;
    assert!(instructions.starts_with("You are exact.\n\n[skill forms, in the folder "), "{system}");
    assert!(instructions.ends_with("Do forms.\n\n[files in the folder: a.md]\n"), "{system}");
    let refused = "there is no skill \"other\"; the skills are: forms, long";
    assert_eq!((results(alice[1]), results(alice[2])), (refused.into(), "Fields.".into()));
    let bob = of("bob");
    assert!(!bob[0].system().contains("kills,") && !tools(bob[0]).contains(&"use_skill"));
    assert!(results(bob[1]).contains("there is no tool \"use_skill\""), "{}", results(bob[1]));
    assert_eq!(list(of("lead")[0]).lines().count(), 3);
    let log = team.lines("log/alice.jsonl");
    let problems: Vec<_> = log.iter().filter_map(|line| line["problem"].as_str()).collect();
    for words in ["there is no skill \"none\"", "the skill long does not fit into 32768 bytes"] {
        assert!(problems.contains(&words), "{problems:?}");
    }
}

/// Without skills nothing is offered, and a skill that the agent may not read is not listed.
#[test]
fn without_a_readable_skill_there_is_no_tool() {
    let sees = |team: &Team, denied: &str| {
        put(team, &[(".team/settings.toml", &format!("[permissions]\ndeny = [{denied}]\n"))]);
    };
    let (team, fake) = team_with_fake(|_| Reply::text("Done."));
    headless(&team, "begin", &[]).expect(0);
    put(&team, &[(".claude/skills/forms/SKILL.md", &skill("forms", "Fills forms."))]);
    sees(&team, "\"read_file(.claude/**)\"");
    headless(&team, "begin", &["--new"]).expect(0);
    for view in fake.requests() {
        assert!(!view.system().contains(HEADING) && !tools(&view).contains(&"use_skill"));
    }
    sees(&team, "");
    headless(&team, "begin", &["--new"]).expect(0);
    assert_eq!(list(fake.requests().last().unwrap()), "- forms: Fills forms.\n");
}
