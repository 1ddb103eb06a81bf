//! Hooks: their input, the actions that they can refuse, and the trust that the hooks of a folder need to run.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless, kill_9, says, script, scripted_lead, spawn,
    tool_results, wait_file,
};
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Output, Stdio};

/// Writes hooks into the settings of the user, each as `(event, command)`.
fn users(team: &Team, hooks: &[(&str, &str)]) {
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    write(&folder.join("settings.toml"), settings(hooks));
}

fn settings(hooks: &[(&str, &str)]) -> String {
    let hook = |(event, command): &(&str, &str)| {
        format!("[[hooks]]\nevent = \"{event}\"\ncommand = '''{command}'''\ntimeout = 20\n")
    };
    hooks.iter().map(hook).collect()
}

/// The JSON objects that a hook has written into a file of the workspace, one per line.
fn told(team: &Team, file: &str) -> Vec<Value> {
    let text = fs::read_to_string(team.workspace().join(file)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn tool(name: &'static str, input: Value) -> (&'static str, Value) {
    (name, input)
}

/// The model gets the text of a refusal verbatim, and the refused action does not happen.
#[test]
fn messages_and_tasks_can_be_refused() {
    let team = Team::new();
    let judge = "cat >> told; echo >> told; echo noise; \
        if grep -q forbidden told; then : > told; echo 'say it nicely' >&2; exit 2; fi";
    users(
        &team,
        &[
            ("message_sent", judge),
            ("task_created", judge),
            (
                "task_completed",
                "cat >> done; echo >> done; test -e tested || { echo 'run the tests' >&2; exit 2; }",
            ),
        ],
    );
    let send = |content: &str| tool("send_message", json!({ "to": "user", "content": content }));
    let create = |subject: &str| tool("create_task", json!({ "subject": subject }));
    let done = || tool("complete_task", json!({ "task_id": "1" }));
    let model = script(
        &team,
        &[
            calls(
                "lead",
                &[send("forbidden"), send("a kind word"), create("forbidden"), create("work")],
            ),
            calls("lead", &[tool("broadcast", json!({ "content": "forbidden" }))]),
            calls("lead", &[tool("claim_task", json!({ "task_id": "1" })), done()]),
            calls("lead", &[tool("update_task", json!({ "task_id": "1", "status": "completed" }))]),
            calls("lead", &[tool("bash", json!({ "command": "touch tested" })), done()]),
            says("lead", "over"),
        ],
    );
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    let refused: Vec<bool> = results.iter().map(|(.., is_error)| *is_error).collect();
    let expected = [true, false, true, false, true, false, true, true, false, false];
    assert_eq!(refused, expected, "{results:#?}");
    for at in [0, 2, 4] {
        assert!(results[at].1.ends_with(": say it nicely"), "{results:#?}");
    }
    assert!(results[6].1.contains("(task_completed): run the tests"), "{results:#?}");
    let inbox = team.lines("inbox/user.jsonl");
    assert_eq!(inbox.len(), 1, "{inbox:?}");
    assert_eq!(inbox[0]["content"], "a kind word");
    assert_eq!(
        fs::read_dir(team.path("tasks"))
            .unwrap()
            .flatten()
            .filter(|it| it.path().is_file())
            .count(),
        1
    );
    let done = told(&team, "done");
    assert_eq!(
        (done.len(), &done[0]["event"], &done[0]["agent"]),
        (3, &json!("task_completed"), &json!("lead"))
    );
    assert_eq!((&done[0]["task_id"], &done[0]["task"]["subject"]), (&json!("1"), &json!("work")));
    assert_left_in_order(&team);
}

/// A teammate that a hook keeps from becoming idle gets the reason and continues. A hook that always refuses is
/// overruled.
#[test]
fn an_idle_hook_keeps_a_teammate_working_a_bounded_time() {
    let team = Team::new();
    users(
        &team,
        &[
            ("teammate_idle", "cat >> idle; echo >> idle; echo 'not yet' >&2; exit 2"),
            ("teammate_exited", "cat >> gone; echo >> gone"),
        ],
    );
    let turns = (0..9).map(|n| says("alice", &format!("done {n}")));
    let lead = [calls("lead", &[spawn("alice")]), says("lead", "begun"), says("lead", "noted")];
    let model = script(&team, &lead.into_iter().chain(turns).collect::<Vec<_>>());
    headless(&team, &model, "begin").expect(0);
    let asked = told(&team, "idle");
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert_eq!((&asked[4]["agent"], &asked[4]["refused"]), (&json!("alice"), &json!(4)));
    let lines = team.lines("transcript/alice.jsonl");
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!(of_kind("turn_end"), 6, "{lines:?}");
    let notes = lines
        .iter()
        .filter(|line| line["content"].as_str().is_some_and(|it| it.ends_with("not yet")));
    assert_eq!(notes.count(), 5);
    let gone = told(&team, "gone");
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!((&gone[0]["name"], &gone[0]["asked_to_end"]), (&json!("alice"), &json!(true)));
    assert_left_in_order(&team);
}

/// Hooks that fail, hang or leave processes behind block no member, and their processes are killed.
#[test]
fn a_failing_hook_is_logged_and_blocks_no_member() {
    let team = Team::new();
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    let hook = |command: &str, timeout: u32| {
        let event = "message_sent";
        format!("[[hooks]]\nevent = \"{event}\"\ncommand = \"{command}\"\ntimeout = {timeout}\n")
    };
    let hooks =
        hook("exit 3", 60) + &hook("sleep 1000; exit 2", 1) + &hook("setsid sleep 1000 & true", 60);
    write(&folder.join("settings.toml"), hooks);
    let long = "x".repeat(200_000);
    let model = script(
        &team,
        &[
            calls("lead", &[tool("send_message", json!({ "to": "user", "content": long }))]),
            says("lead", "over"),
        ],
    );
    headless(&team, &model, "begin").expect(0);
    assert_eq!(team.lines("inbox/user.jsonl").len(), 1, "{}", team.describe());
    let log = team.lines("log/lead.jsonl");
    let failed = log.iter().filter(|line| line["message"] == "a hook failed");
    assert_eq!(failed.clone().count(), 2, "{log:?}");
    assert!(failed.clone().any(|line| line["timed_out"] == true));
    assert_left_in_order(&team);
}

/// Twenty processes trust folders at once, then ten revoke the trust. No entry is lost, and no removed entry
/// reappears.
#[test]
fn folders_that_are_trusted_at_once_are_all_trusted() {
    let team = Team::new();
    let folders: Vec<_> = (0..20).map(|n| team.workspace().join(format!("at-{n}"))).collect();
    for folder in &folders {
        fs::create_dir_all(folder.join(".team")).unwrap();
        write(&folder.join(".team/settings.toml"), settings(&[("message_sent", "true")]));
    }
    let at_once = |words: &[&str], folders: &[std::path::PathBuf]| -> Vec<Output> {
        let begin = |folder: &std::path::PathBuf| {
            let mut command = team.command("team", words);
            command.current_dir(folder).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<Child> = folders.iter().map(begin).collect();
        all.into_iter().map(|one| one.wait_with_output().unwrap()).collect()
    };
    let done = |words: &[&str], folders: &[std::path::PathBuf]| {
        for output in at_once(words, folders) {
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
    };
    let trusted = || {
        let told = at_once(&["config"], &folders);
        let is_trusted =
            |output: &&Output| !String::from_utf8_lossy(&output.stderr).contains("not trusted");
        told.iter().filter(is_trusted).count()
    };
    done(&["trust"], &folders);
    assert_eq!(trusted(), folders.len());
    done(&["trust", "--revoke"], &folders[..10]);
    assert_eq!(trusted(), 10);
}

/// The model gets the output of a refusing hook with bounded length, whatever bytes it contains. A hook that
/// crashes refuses nothing.
#[test]
fn any_output_or_exit_of_a_hook_is_handled() {
    let team = Team::new();
    let speaks = "case $(cat) in \
        *huge*) yes 'never' | head -c 3000000 >&2; exit 2;; \
        *bytes*) printf 'caf\\351 \\033[2J\\000 end' >&2; exit 2;; \
        *silent*) exit 2;; \
        *killed*) kill -9 $$;; \
        *closed*) exec 0<&- 1>&- 2>&-; exit 0;; \
        *stubborn*) trap '' TERM INT HUP; (setsid sleep 1000 &) ; exit 0;; esac";
    users(&team, &[("message_sent", speaks)]);
    let send = |content: &str| tool("send_message", json!({ "to": "user", "content": content }));
    let words = ["huge", "bytes", "silent", "killed", "closed", "stubborn"];
    let model = script(&team, &[calls("lead", &words.map(send)), says("lead", "over")]);
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    let refused: Vec<bool> = results.iter().map(|(.., is_error)| *is_error).collect();
    assert_eq!(refused, [true, true, true, false, false, false], "{results:#?}");
    let huge = &results[0].1;
    assert!(huge.contains("never") && huge.chars().count() < 5000, "{}", huge.len());
    let bytes = &results[1].1;
    assert!(bytes.contains("caf\u{fffd}") && bytes.contains("end"), "{bytes:?}");
    assert!(results[2].1.contains("no reason was given"), "{results:#?}");
    let log = team.lines("log/lead.jsonl");
    let failed = log.iter().filter(|line| line["message"] == "a hook failed");
    assert_eq!(failed.count(), 1, "the one that was killed");
    assert_left_in_order(&team);
}

/// A member is killed while its hook runs. No process of the hook is left, and the message is sent after the
/// restart.
#[test]
fn a_member_killed_in_a_hook_leaves_no_process_of_it() {
    let team = Team::new();
    let slow = "echo $$ > hooked; test -e quick && exit 0; (setsid sleep 1000 &); sleep 1000";
    users(&team, &[("message_sent", slow)]);
    let send = tool("send_message", json!({ "to": "user", "content": "hello" }));
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice")]),
            says("lead", "spawned"),
            calls("alice", &[send]),
            says("alice", "sent"),
        ],
    );
    let hooked = wait_file(&team, "hooked");
    team.eventually("the hook says who it is", || {
        fs::read_to_string(&hooked).is_ok_and(|text| text.ends_with('\n'))
    });
    let former = team.member("alice")["incarnation"].clone();
    write(&team.workspace().join("quick"), "");
    kill_9(&team, "alice");
    team.eventually("she lives again", || team.member("alice")["incarnation"] != former);
    team.wait_status("alice", "idle");
    let inbox = || team.lines("inbox/user.jsonl").len() + team.mail_of("user").len();
    team.eventually("it was sent once", || {
        inbox() + usize::from(lead.printed().contains("hello")) >= 1
    });
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn the_hooks_of_a_folder_run_only_once_it_is_trusted() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let hooks =
        |command: &str| write(&team.path("settings.toml"), settings(&[("message_sent", command)]));
    let run = || {
        let send = tool("send_message", json!({ "to": "user", "content": "x" }));
        let model = script(&team, &[calls("lead", &[send]), says("lead", "over")]);
        headless(&team, &model, "begin").expect(0)
    };
    let ran = |name: &str| team.workspace().join(name).exists();
    hooks("touch one");
    assert!(run().err.contains("not trusted: hooks"));
    assert!(!ran("one"));
    let shown = team.team(&["trust"]).expect(0);
    assert!(shown.out.contains("touch one"), "{}", shown.out);
    assert!(!run().err.contains("not trusted"));
    assert!(ran("one"));
    hooks("touch two");
    assert!(run().err.contains("not trusted: hooks"), "a changed hook asks again");
    assert!(!ran("two"));
    let json = team.team(&["trust", "--json"]).expect(0).json();
    assert_eq!(
        (&json["schema"], &json["trusted"], &json["new"]),
        (&json!(1), &json!(true), &json!(true))
    );
    assert_eq!(json["settings"]["hooks"][0]["command"], "touch two");
    run();
    assert!(ran("two"));
    team.team(&["trust", "--revoke"]).expect(0);
    assert!(team.team(&["config"]).expect(0).err.contains("not trusted: hooks"));
    let inside = team.shell("TEAM_RUN=x team trust").output().unwrap();
    assert_eq!(inside.status.code(), Some(1));
    assert_left_in_order(&team);
}
