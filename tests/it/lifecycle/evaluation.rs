//! `scripts/eval`: the tasks of `eval/tasks` are proven by their scripted solutions, and its runs leave nothing.

use crate::support::acp_agent::write_script;
use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::harness::{CommandResult, Team, has_python, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tasks that `cargo test` proves: some of each kind, with little work.
const SOME: [&str; 8] = [
    "bug-csv",
    "bug-shell-names",
    "feature-undo",
    "injection-notes",
    "injection-tickets",
    "merge-conflict",
    "refactor-rename",
    "split-modules",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the names of all tasks.
fn tasks() -> Vec<String> {
    let folders = fs::read_dir(root().join("eval/tasks")).unwrap();
    let mut names: Vec<String> =
        folders.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns a command that evaluates in the workspace of this team, with this program. Returns `None` without python3.
fn evaluation(team: &Team, program: &Path, words: &[&str]) -> Option<Command> {
    has_python("scripts/eval").then(|| {
        fs::create_dir_all(runs(team)).unwrap();
        let mut command = team.shell(r#"exec python3 -B "$0" "$@""#);
        command.arg(root().join("scripts/eval")).arg("--program").arg(program);
        command.arg("--work").arg(runs(team)).arg("--results").arg(results_file(team)).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    })
}

/// The folder in which the workspaces are made.
fn runs(team: &Team) -> PathBuf {
    team.workspace().join("runs")
}

fn results_file(team: &Team) -> PathBuf {
    team.workspace().join("results.jsonl")
}

fn results(team: &Team) -> Vec<Value> {
    let text = fs::read_to_string(results_file(team)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Evaluates, and checks the exit code and that no folder of a run is left. Returns what was printed and the results.
fn evaluate(
    team: &Team,
    program: &Path,
    words: &[&str],
    code: i32,
) -> Option<(CommandResult, Vec<Value>)> {
    let output = evaluation(team, program, words)?.output().unwrap();
    let ran = CommandResult::of(words, &output).expect(code);
    assert_eq!(fs::read_dir(runs(team)).unwrap().count(), 0, "folders of runs are left");
    Some((ran, results(team)))
}

/// Proves tasks by their own scripts: the start and each wrong solution fail for a reason, each solution passes.
fn prove(names: &[&str]) {
    let team = Team::new();
    let mut words = vec!["--scripted", "--jobs", "3"];
    for name in names {
        words.extend(["--task", *name]);
    }
    let Some((_, results)) = evaluate(&team, &program("team"), &words, 0) else { return };
    for name in names {
        let of_task: Vec<&Value> = results.iter().filter(|it| it["task"] == *name).collect();
        let kinds = ["untouched", "solution", "wrong"];
        for kind in kinds {
            let is_there = of_task.iter().any(|it| it["name"].as_str().unwrap().starts_with(kind));
            assert!(is_there, "{name} has no {kind}");
        }
        for it in of_task {
            let is_solution = it["name"].as_str().unwrap().starts_with("solution");
            assert_eq!(it["passed"], is_solution, "{it}");
            let has_run = it["name"] != "untouched";
            assert_eq!(it["calls"].as_u64().unwrap() > 0, has_run, "{it}");
            // Each reply of a script says this usage; a lead may have more replies than its script.
            let tokens = it["input_tokens"].as_u64().unwrap();
            assert!(!has_run || (tokens > 0 && tokens.is_multiple_of(1000)), "{it}");
            assert_eq!(it["left"], json!([]), "{it}");
            let why = it["why"].as_str().unwrap();
            if name.starts_with("injection") && it["name"] == "wrong" {
                assert!(why.contains("injected order followed"), "{it}");
            }
            if it["name"] == "wrong-team" {
                assert!(why.contains("three members were to do the work"), "{it}");
            }
        }
    }
}

#[test]
fn some_tasks_are_solved_by_their_solutions_alone() {
    prove(&SOME);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn all_tasks_are_solved_by_their_solutions_alone() {
    let names = tasks();
    assert_eq!(names.len(), 24, "{names:?}");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    prove(&names);
}

/// Each folder of a task is complete, and the page lists it.
#[test]
fn every_task_is_complete_and_documented() {
    let page = fs::read_to_string(root().join("docs/eval.md")).unwrap();
    let names = tasks();
    for name in &names {
        let folder = root().join("eval/tasks").join(name);
        assert!(
            folder.join("files").is_dir() || folder.join("setup").exists(),
            "{name} has no start"
        );
        let prompt = fs::read_to_string(folder.join("task.md")).unwrap();
        assert!(
            !prompt.contains("check") || name == "injection-notes",
            "{name} may name its check"
        );
        for script in ["solution.jsonl", "wrong.jsonl"] {
            assert!(folder.join(script).exists(), "{name} has no {script}");
        }
        for file in ["check", "setup"].map(|file| folder.join(file)) {
            if let Ok(found) = fs::metadata(&file) {
                assert_ne!(found.permissions().mode() & 0o111, 0, "{}", file.display());
            }
        }
        assert!(page.contains(&format!("`{name}`")), "docs/eval.md does not list {name}");
    }
    for word in SOME {
        assert!(names.iter().any(|name| name == word), "there is no task {word}");
    }
}

/// A model that does no work passes nothing; the table has its calls, its tokens and its cost.
#[test]
fn runs_of_a_model_are_counted() {
    let team = Team::new();
    let settings = team.workspace().join("prices.toml");
    write(&settings, "[prices.rehearsal]\ninput = 1000.0\noutput = 0.0\n");
    let settings = settings.display().to_string();
    let words = ["--model", "rehearsal", "--both", "--times", "2", "--task", "bug-csv"];
    let words = [words.as_slice(), &["--settings", &settings]].concat();
    let Some((ran, results)) = evaluate(&team, &program("team"), &words, 0) else { return };
    let runs: BTreeSet<String> = results
        .iter()
        .map(|it| format!("{} {} {}", it["mode"], it["number"], it["seed"]))
        .collect();
    let expected = [r#""alone" 1 1"#, r#""alone" 2 2"#, r#""team" 1 1"#, r#""team" 2 2"#];
    assert_eq!(runs, expected.map(str::to_owned).into());
    for it in &results {
        assert_eq!(
            (&it["passed"], &it["calls"], &it["exit_code"]),
            (&json!(false), &json!(1), &json!(0))
        );
        let (tokens, cost) = (it["input_tokens"].as_f64().unwrap(), it["cost"].as_f64().unwrap());
        assert!(tokens > 0.0 && (cost - tokens / 1000.0).abs() < 1e-6, "{it}");
    }
    let row = ran.out.lines().filter(|line| line.contains("0/2")).count();
    // One row for each mode in the table of the tasks, and one in the summary.
    assert_eq!(row, 4, "{}", ran.out);
}

/// A model behind an endpoint gets the keys of the caller, and solves a task. The prompt of a team has one sentence more.
#[test]
fn a_model_behind_an_endpoint_is_evaluated() {
    let solution = root().join("eval/tasks/injection-tickets/solution.jsonl");
    let lines = fs::read_to_string(solution).unwrap();
    let second: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    let call = second["tools"][0].clone();
    let fake = Fake::start(move |view| match view.turn() {
        0 => Reply::message()
            .tool("toolu_1", call["name"].as_str().unwrap(), &call["input"])
            .usage(100, 10),
        _ => Reply::text("Sorted.").usage(200, 20),
    });
    let team = Team::new();
    team.variable("ANTHROPIC_API_KEY", "a-key-of-this-test");
    team.variable("ANTHROPIC_BASE_URL", &fake.base_url());
    let words =
        ["--model", "anthropic/fake", "--both", "--jobs", "1", "--task", "injection-tickets"];
    let Some((_, results)) = evaluate(&team, &program("team"), &words, 0) else { return };
    assert_eq!(results.len(), 2);
    for it in &results {
        assert_eq!(
            (&it["passed"], &it["calls"], &it["name"]),
            (&json!(true), &json!(2), &json!("anthropic/fake"))
        );
        assert_eq!((&it["input_tokens"], &it["output_tokens"]), (&json!(300), &json!(30)), "{it}");
    }
    let prompts: Vec<String> =
        fake.requests().iter().filter(|it| it.turn() == 0).map(RequestView::last_text).collect();
    let asks_for_a_team: Vec<bool> =
        prompts.iter().map(|it| it.contains("spawn three teammates")).collect();
    assert_eq!(asks_for_a_team, [false, true], "{prompts:?}");
    assert_eq!(fake.take_violations(), Vec::<String>::new());
}

/// An agent of another vendor gets the task from a scripted lead, alone and with two others.
#[test]
fn an_agent_of_another_vendor_is_evaluated() {
    let team = Team::new();
    let solve = "grep -q login rules.md && python3 -c \"import json; json.dump({'T-101': 'security'}, open('answer.json', 'w'))\"";
    let prompt = json!([{ "command": solve }, { "say": "done" }]);
    let usage = json!({ "inputTokens": 70, "outputTokens": 7, "totalTokens": 77 });
    write_script(&team, &json!({ "prompts": vec![prompt; 9], "usage": usage }));
    let agent = root().join("tests/support/acp_agent.py");
    let here = team.workspace();
    let words = ["python3".into(), agent, here.join("agent.json"), here.join("agent.log")];
    let words = json!(words.map(|word| word.display().to_string()));
    let settings = here.join("agents.toml");
    write(&settings, format!("[agents.fake]\ncommand = {words}\n"));
    let settings = settings.display().to_string();
    let words =
        ["--agent", "fake", "--both", "--task", "injection-tickets", "--settings", &settings];
    let Some((_, results)) = evaluate(&team, &program("team"), &words, 0) else { return };
    assert_eq!(results.len(), 2);
    for (it, members) in results.iter().zip([1, 3]) {
        // The agent has written a file, which is not the right one.
        assert!(
            it["why"].as_str().unwrap().starts_with("answer.json: got {'T-101': 'security'}"),
            "{it}"
        );
        assert_eq!((&it["name"], &it["members"]), (&json!("acp/fake"), &json!(members)), "{it}");
        assert_eq!(it["input_tokens"], json!(70 * members), "{it}");
    }
    let words = ["--agent", "none", "--task", "injection-tickets"];
    let (ran, results) = evaluate(&team, &program("team"), &words, 0).unwrap();
    assert!(results[0]["tool_error"].as_str().unwrap().contains("acp/none"), "{ran:?}");
}

/// A process that a run leaves is reported and killed.
#[test]
fn a_process_that_is_left_is_reported() {
    let team = Team::new();
    let launcher = team.workspace().join("launcher");
    let text = format!(
        "#!/bin/sh\ncase $1 in -C) setsid sleep 1000 >/dev/null 2>&1 & ;; esac\nexec {} \"$@\"\n",
        program("team").display()
    );
    write(&launcher, text);
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["--scripted", "--task", "bug-csv"];
    let Some((ran, results)) = evaluate(&team, &launcher, &words, 1) else { return };
    let solved = results.iter().find(|it| it["name"] == "solution").unwrap();
    assert_eq!((&solved["passed"], &solved["left"]), (&json!(true), &json!(["sleep 1000"])));
    assert!(ran.out.contains("processes are left: sleep 1000"), "{}", ran.out);
    team.wait_no_process();
}

/// An interrupted evaluation ends its teams, removes its folders and reports the runs that were over.
#[test]
fn an_interrupted_evaluation_leaves_nothing() {
    let team = Team::new();
    let script = team.workspace().join("slow.jsonl");
    let command = json!({ "name": "bash", "input": { "command": "touch begun; sleep 1000" } });
    write(&script, format!("{}\n", json!({ "tools": [command] })));
    let model = format!("script:{}", script.display());
    let words = ["--model", &model, "--jobs", "2", "--task", "bug-csv", "--task", "bug-months"];
    let Some(mut command) = evaluation(&team, &program("team"), &words) else { return };
    let child = command.spawn().unwrap();
    team.eventually("two commands run", || {
        let begun = |run: &fs::DirEntry| run.path().join("work/begun").exists();
        fs::read_dir(runs(&team)).unwrap().filter(|run| begun(run.as_ref().unwrap())).count() == 2
    });
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let ran = CommandResult::of(&words, &child.wait_with_output().unwrap()).expect(130);
    assert!(ran.err.contains("interrupted; 0 runs were over"), "{}", ran.err);
    assert_eq!(fs::read_dir(runs(&team)).unwrap().count(), 0);
    team.wait_no_process();
}

#[test]
fn wrong_options_are_refused() {
    let team = Team::new();
    let sandbox = team.workspace().join("sandbox.toml");
    write(&sandbox, "[sandbox]\nhide = []\n");
    let sandbox = sandbox.display().to_string();
    for (words, says) in [
        (vec![], "name a --model or an --agent"),
        (vec!["--scripted", "--model", "rehearsal"], "name a --model or an --agent"),
        (
            vec!["--scripted", "--task", "none"],
            "there is no task none; the tasks are bug-config-merge",
        ),
        (vec!["--model", "rehearsal", "--times", "0"], "must be at least 1"),
        (vec!["--model", "rehearsal", "--settings", &sandbox], "so that the checks stay hidden"),
        (
            vec!["--model", "rehearsal", "--own-home", "--settings", &sandbox],
            "your settings are used",
        ),
    ] {
        let Some((ran, _)) = evaluate(&team, &program("team"), &words, 2) else { return };
        assert!(ran.err.contains(says), "{ran:?}");
    }
}
