//! Mode plan: nothing is changed before the lead's model or the person approves a plan, and the number of plans
//! is bounded.

use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply};
use crate::support::fake_models;
use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, listing, says, script, tool_results, wait_file,
};
use crate::support::terminal::{SIZES, Size, Terminal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

/// The call that spawns a member in mode plan.
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

/// Commands that change something, some of them in disguise, and two that change nothing.
const COMMANDS: [&str; 50] = [
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
    "cat > x <<EOF\nx\nEOF",
    "ls\ntouch x",
    "ls & touch x",
    "env -S 'touch x'",
    "echo x > /proc/self/fd/1/../../cwd/x",
    "exec 3> x; echo x >&3",
    "alias ls='touch x'; eval ls",
    "ls() { touch x; }; ls",
    "awk 'BEGIN{system(\"touch x\")}'",
    "npm init -y",
    "printf 'all:\\n\\ttouch x\\n' | make -f -",
    "git -c alias.x='!touch x' x",
    "sort seed -o seed2",
    "tar cf x seed",
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

/// The files of the workspace, without the team folder and `.local`.
fn outside(team: &Team) -> BTreeSet<String> {
    let all = listing(team.workspace()).into_iter();
    all.filter(|name| !name.starts_with(".team") && !name.starts_with(".local")).collect()
}

/// A lead whose model gives these verdicts in order, and a planner that submits plans until one is approved.
fn team_with_fake(verdicts: &'static [(bool, &'static str)]) -> (Team, Fake) {
    fake_models::team_with_fake(move |view| {
        let past = fake_models::conversation(view);
        let given = past.matches("\"name\":\"review_plan\"").count();
        let ids: Vec<String> = past
            .match_indices("request_id\\\":\\\"alice:")
            .map(|(at, _)| {
                let id = &past[at + "request_id\\\":\\\"".len()..];
                id.chars().take_while(|c| !"\\\"".contains(*c)).collect()
            })
            .collect();
        let last = fake_models::results(view);
        match fake_models::agent_of(view).as_str() {
            "lead" if !past.contains("spawn_teammate") => {
                fake_models::call(view, "spawn_teammate", &planner("alice").1)
            }
            "lead" => match (ids.get(given), verdicts.get(given)) {
                (Some(id), Some((approve, why))) => {
                    fake_models::call(view, "review_plan", &review(id, *approve, why).1)
                }
                _ => Reply::text("Noted."),
            },
            _ if last.contains("Approved.") => {
                fake_models::call(view, "write_file", &write_file("x.txt").1)
            }
            _ if last.contains("Not approved") || last.is_empty() => {
                fake_models::call(view, "submit_plan", &plan("1. write x.txt").1)
            }
            _ => Reply::text("carried out"),
        }
    })
}

fn answers(team: &Team) -> Vec<String> {
    let lines = team.lines("transcript/alice.jsonl").into_iter();
    let results = lines.filter(|line| line["kind"] == "tool_result");
    results.map(|line| line["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_leads_model_rejects_with_feedback_and_then_approves() {
    let (team, _fake) = team_with_fake(&[(false, "name the file"), (true, "go")]);
    fake_models::headless(&team, "go", &[]).expect(0);
    assert!(team.workspace().join("x.txt").exists(), "{}", team.describe());
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    let answers = answers(&team);
    assert!(answers[0].contains("Not approved (1 of 5): name the file"), "{answers:?}");
    assert!(answers[1].contains("Approved") && answers[1].contains("accept_edits"), "{answers:?}");
    assert_left_in_order(&team);
}

#[test]
fn rejections_are_bounded() {
    let (team, _fake) = team_with_fake(&[(false, "no"); 9]);
    fake_models::headless(&team, "go", &[]).expect(0);
    assert!(team.has_mail("lead", "alice", "No plan was approved"), "{}", team.describe());
    assert_eq!(answers(&team).len(), 5);
    let ends = team.lines("transcript/alice.jsonl").into_iter();
    let ends: Vec<Value> = ends.filter(|line| line["kind"] == "turn_end").collect();
    assert_eq!((ends.len(), &ends[0]["outcome"]), (1, &json!("failed")), "{ends:?}");
    assert!(!team.workspace().join("x.txt").exists());
    assert_left_in_order(&team);
}

#[test]
fn where_the_settings_say_so_only_the_person_approves() {
    let (team, _fake) = team_with_fake(&[(true, "I allow it")]);
    fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), "[permissions]\nplan_approval = \"person\"\n");
    let mut lead = fake_models::at_terminal(&team);
    lead.expect("/quit ends the team");
    lead.type_line("go");
    lead.expect("alice asks to carry out this plan:");
    let id = wait_asked(&team, "alice");
    assert_eq!(team.member("alice")["activity"], "plan");
    team.wait_status("lead", "idle");
    // The plan may arrive before the end of the lead's first turn.
    let lines = team.lines("transcript/lead.jsonl");
    let turns = lines.iter().filter(|line| line["kind"] == "turn_end").count();
    assert_eq!(turns, 1, "its model was not woken by the plan");
    // The question has the input until it is put off.
    lead.expect_screen("answer>");
    lead.press("\u{1b}");
    team.eventually("the input is free", || !lead.screen().contains("answer>"));
    lead.type_line("look around");
    team.eventually("the model was refused", || {
        tool_results(&team, "lead")
            .iter()
            .any(|(_, text, _)| text.contains("leave plans to the user"))
    });
    assert_eq!(team.status("alice"), "waiting");
    team.team(&["approve", &id]).expect(0);
    team.eventually("it is carried out", || team.workspace().join("x.txt").exists());
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Starts a lead at a terminal of this size in this mode.
fn lead_in(team: &Team, mode: &str, lines: &[Value], size: Size) -> Terminal {
    let model = script(team, lines);
    let command = team.command("team", &["lead", "--model", &model, "--mode", mode]);
    let lead = Terminal::of_size(command, size);
    lead.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    lead
}

fn quit(team: &Team, lead: &mut Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

/// A plan in markdown, with a word by which it is told from others.
fn plan_of(word: &str) -> (&'static str, Value) {
    plan(&format!("# The {word} plan\n\n1. write `x.txt`\n2. be **careful**\n"))
}

/// Waits until a plan is on the screen as rendered markdown, and its question has the input.
fn expect_plan(lead: &Terminal, who: &str, word: &str) {
    lead.expect_screen(&format!("{who} asks to carry out this plan"));
    lead.expect_screen(&format!("    The {word} plan"));
    lead.expect_screen("    1. write x.txt");
    lead.expect_screen("    2. be careful");
    lead.expect_screen("answer>");
    let screen = lead.screen();
    for raw in ["# The", "`", "**"] {
        assert!(!screen.contains(raw), "{raw}: {screen}");
    }
    assert!(lead.has_colors());
}

/// A plan is approved from another shell with the mode in which it is carried out.
#[test]
fn the_mode_of_a_plan_is_given_from_another_shell() {
    let team = Team::new();
    let lines = [
        calls("lead", &[plan_of("only")]),
        calls("lead", &[write_file("x.txt")]),
        says("lead", "carried out"),
    ];
    let mut lead = lead_in(&team, "plan", &lines, SIZES[1]);
    lead.type_line("begin");
    expect_plan(&lead, "lead", "only");
    let wrong = team.team(&["approve", "lead", "--mode", "reckless"]).expect(2);
    assert!(wrong.err.contains("give one of plan, default"), "{wrong:?}");
    team.team(&["approve", "lead", "--mode", "default"]).expect(0);
    // In mode default the file is asked about, and its question has no mode.
    lead.expect_screen("? lead asks to use write_file: x.txt");
    assert_eq!(team.roster()["lead"]["mode"], "default");
    let wrong = team.team(&["approve", "lead", "--mode", "default"]).expect(2);
    assert!(wrong.err.contains("this request is not a plan"), "{wrong:?}");
    assert!(!team.workspace().join("x.txt").exists());
    team.team(&["approve", "lead"]).expect(0);
    lead.expect("carried out");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
}

/// The lead is told of a tool that it has, the person approves its plan, and its files are not asked about again.
#[test]
fn a_lead_in_mode_plan_submits_its_plan_to_the_person() {
    in_parallel(SIZES, |size| {
        let team = Team::new();
        let lines = [
            calls("lead", &[write_file("x.txt")]),
            calls("lead", &[plan_of("first")]),
            calls("lead", &[plan_of("second")]),
            calls("lead", &[write_file("x.txt"), bash("touch asked")]),
            says("lead", "carried out"),
        ];
        let mut lead = lead_in(&team, "plan", &lines, size);
        lead.type_line("begin");
        expect_plan(&lead, "lead", "first");
        lead.type_line("n and a test");
        expect_plan(&lead, "lead", "second");
        assert_eq!(team.roster()["lead"]["mode"], "plan");
        lead.type_line("y");
        wait_file(&team, "x.txt");
        assert_eq!(team.roster()["lead"]["mode"], "accept_edits");
        // A command is not part of the workspace's files.
        lead.expect_screen("? lead asks to run: touch asked");
        assert!(!team.workspace().join("asked").exists());
        assert!(!lead.printed().contains("asks to use write_file"), "{}", lead.printed());
        lead.expect_screen("accept_edits · ");
        lead.type_line("y");
        lead.expect("carried out");
        assert!(team.workspace().join("asked").exists());
        let results = tool_results(&team, "lead");
        let texts: Vec<&str> = results.iter().map(|(_, text, _)| text.as_str()).collect();
        assert!(texts[0].contains("not run: in mode plan") && texts[0].contains("submit_plan"));
        assert!(texts[1].contains("Not approved (1 of 5): and a test"), "{texts:?}");
        assert!(texts[2].contains("Approved. Continue in mode accept_edits"), "{texts:?}");
        quit(&team, &mut lead);
    });
}

/// The person approves, so the teammate changes files without further questions, although the lead asks about its own.
#[test]
fn after_the_person_has_approved_a_plan_its_files_are_not_asked_about() {
    let modes = ["default", "plan"];
    in_parallel(
        modes.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size))),
        |(mode, size)| {
            let team = Team::new();
            fs::create_dir(team.path("")).unwrap();
            if mode == "default" {
                let settings = "[permissions]\nplan_approval = \"person\"\n";
                write(&team.path("settings.toml"), settings);
            }
            let lines = [
                calls("lead", &[planner("alice")]),
                says("lead", "spawned"),
                calls("alice", &[plan_of("only")]),
                calls("alice", &[write_file("x.txt")]),
                says("alice", "carried out"),
            ];
            let mut lead = lead_in(&team, mode, &lines, size);
            lead.type_line("begin");
            expect_plan(&lead, "alice", "only");
            lead.type_line("y");
            wait_file(&team, "x.txt");
            lead.expect("carried out");
            assert!(!lead.printed().contains("asks to use write_file"), "{}", lead.printed());
            assert_eq!(team.member("alice")["mode"], "accept_edits");
            assert_eq!(team.roster()["lead"]["mode"], mode);
            quit(&team, &mut lead);
        },
    );
}

/// Nobody can approve the plan of a headless lead: it becomes the answer of the run.
#[test]
fn a_headless_lead_in_mode_plan_answers_with_its_plan() {
    let team = Team::new();
    let lines = [calls("lead", &[plan("1. write x.txt")]), says("lead", "The plan: write x.txt")];
    let model = script(&team, &lines);
    let ran = team.team(&["lead", "-p", "begin", "--model", &model, "--mode", "plan"]);
    assert!(ran.out.contains("The plan: write x.txt"), "{ran:?}");
    let results = tool_results(&team, "lead");
    assert!(results[0].1.contains("give the plan as your answer"), "{results:?}");
    assert_left_in_order(&team);
}
