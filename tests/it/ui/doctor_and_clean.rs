//! `team doctor` and `team clean`: the findings of the first, and the files that the second removes and keeps.

use crate::support::child_process::write;
use crate::support::fake::{Fake, LOCAL_MODELS, Reply};
use crate::support::fake_models::{connect, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, lead, says, script, scripted_lead, spawn,
    wait,
};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn finding(report: &Value, check: &str) -> Vec<(String, String)> {
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().unwrap();
    let of = findings.iter().filter(|finding| finding["check"] == check);
    of.map(|finding| (word(finding, "state"), word(finding, "found"))).collect()
}

/// All files in `.team` with their contents.
fn contents(team: &Team) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![team.path("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                // If no file events are left, an agent has a fifo, too.
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn a_run(team: &Team) {
    let lines =
        [calls("lead", &[spawn("bob")]), says("lead", "x"), says("bob", "y"), says("lead", "z")];
    headless(team, &script(team, &lines), "begin").expect(0);
    assert_left_in_order(team);
}

#[test]
fn the_doctor_of_a_healthy_team_finds_and_changes_nothing() {
    let team = Team::new();
    let report = team.team(&["doctor", "--json"]).expect(0).json();
    assert_eq!((&report["schema"], &report["ok"]), (&json!(1), &json!(true)), "{report:#}");
    assert_eq!(finding(&report, "team folder")[0].0, "note");
    assert!(!team.path("").exists(), "no folder is made");
    // A folder that a person has made for the settings is no damaged team.
    fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), "max_teammates = 3\n");
    let report = team.team(&["doctor", "--json"]).expect(0).json();
    assert_eq!(finding(&report, "file system")[0].0, "ok", "{report:#}");
    assert_eq!(fs::read_dir(team.path("")).unwrap().count(), 1);
    a_run(&team);
    let before = contents(&team);
    let report = team.team(&["doctor", "--json"]).expect(0).json();
    // The number of free inotify instances depends on the machine. Without one, agents are notified later.
    assert_ne!(finding(&report, "file events")[0].0, "wrong", "{report:#}");
    for check in ["team folder", "file system", "state", "descriptors", "settings"] {
        assert_eq!(finding(&report, check)[0].0, "ok", "{check}: {report:#}");
    }
    assert!(finding(&report, "model")[0].1.contains("rehearsal"), "{report:#}");
    assert_eq!(contents(&team), before);
    let text = team.team(&["doctor"]).expect(0).out;
    assert!(text.contains("ok     file system") && text.contains("1. model: "), "{text}");
}

#[test]
fn the_doctor_names_defects_and_remedies() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    kill_9(&team, "lead");
    lead.wait();
    team.wait_no_process();
    let record = fs::read_to_string(team.path("run/lead.lock")).unwrap();
    let mut record: Value = serde_json::from_str(&record).unwrap();
    record["boot_id"] = "another".into();
    write(&team.path("run/lead.lock"), format!("{record}\n"));
    fs::set_permissions(team.path("log"), fs::Permissions::from_mode(0o755)).unwrap();
    write(&team.path("tasks/9.json"), "not a task");
    write(
        &team.path("dead/alice.jsonl"),
        "{\"gen\":\"g\",\"offset\":0,\"reason\":\"r\",\"at\":1,\"raw\":\"x\"}\n",
    );
    std::os::unix::fs::symlink("/etc/passwd", team.path("inbox/eve.jsonl")).unwrap();
    let before = contents(&team);
    let ran = team.team(&["doctor", "--json"]).expect(1);
    let report = ran.json();
    assert_eq!(report["ok"], false);
    let has = |check: &str, state: &str, text: &str| {
        let found = finding(&report, check);
        let is_there = found.iter().any(|(is, found)| is == state && found.contains(text));
        assert!(is_there, "{check} {state} {text}: {report:#}");
    };
    has("roster", "wrong", "lead is listed as alive but is dead, since before this boot");
    has("modes", "wrong", "log");
    let copied = [1, 2, 3, 4, 5, 6].map(|number| team.path(&format!("log/copied-{number}")));
    for path in &copied {
        write(path, "x");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let many = team.team(&["doctor", "--json"]).expect(1).json();
    let modes = finding(&many, "modes");
    assert_eq!(modes.len(), 1, "{many:#}");
    let (_, named) = modes[0].1.split_once(" paths: ").unwrap();
    assert_eq!(named.matches(", ").count(), 4, "{named}");
    assert!(named.contains(".team/log") && named.ends_with(" more"), "{named}");
    for path in &copied {
        fs::remove_file(path).unwrap();
    }
    has("tasks", "wrong", "9.json");
    has("mail", "note", "1 dead letter of alice");
    has("owner", "wrong", "eve.jsonl is a symbolic link");
    assert_eq!(contents(&team), before);
    let text = team.team(&["doctor"]).expect(1).out;
    assert!(text.contains("what to do:\n1. ") && text.contains("\n2. "), "{text}");
    write(&team.path("config.json"), "{ torn");
    let report = team.team(&["doctor", "--json"]).expect(1).json();
    assert!(finding(&report, "roster")[0].1.contains("config.json"), "{report:#}");
    write(&team.path("settings.toml"), "max_rouns = 1\n");
    let report = team.team(&["doctor", "--json"]).expect(1).json();
    assert!(finding(&report, "settings")[0].1.contains("line 1"), "{report:#}");

    for file in ["settings.toml", "tasks/9.json", "inbox/eve.jsonl"] {
        fs::remove_file(team.path(file)).unwrap();
    }
    team.team(&["clean", "--purge", "--yes"]).expect(0);
    let report = team.team(&["doctor", "--json"]).expect(0).json();
    assert_eq!(finding(&report, "state")[0].0, "ok", "{report:#}");
}

#[test]
fn the_doctor_asks_the_endpoint_and_shows_no_key() {
    let team = Team::new();
    let fake = Fake::queue([]);
    team.variable("ANTHROPIC_API_KEY", "sk-canary-1");
    team.variable("ANTHROPIC_BASE_URL", &fake.base_url());
    let asked = |code| {
        let ran = team.team(&["doctor", "--json"]).expect(code);
        assert!(!ran.out.contains("canary") && !ran.err.contains("canary"), "{ran:#?}");
        ran.json()
    };
    let report = asked(0);
    assert_eq!(finding(&report, "endpoint")[0].0, "ok", "{report:#}");
    assert!(finding(&report, "credentials")[0].1.contains("ANTHROPIC_API_KEY"));
    // The list does not contain the default model.
    assert_eq!(finding(&report, "models")[0].0, "note", "{report:#}");
    team.variable("TEAM_MODEL", &format!("openai/{}", LOCAL_MODELS[1]));
    team.variable("OPENAI_API_KEY", "sk-canary-2");
    team.variable("OPENAI_BASE_URL", &format!("{}/v1", fake.base_url()));
    let report = asked(0);
    let [(state, listed)] = finding(&report, "models").try_into().unwrap();
    assert_eq!((state.as_str(), listed.as_str()), ("ok", "small:1b, small:7b"));
    // The server requires a key and gets none.
    team.variable("OPENAI_API_KEY", "");
    let report = asked(1);
    let refused = finding(&report, "credentials").into_iter().find(|(state, _)| state == "wrong");
    assert!(refused.unwrap().1.contains("refuses them"), "{report:#}");
    // Google's API lists what each model can do, and refuses a bad key with status 400.
    team.variable("TEAM_MODEL", "gemini/gemini-3-fake");
    team.variable("GOOGLE_API_KEY", "AIza-canary-3");
    team.variable("GEMINI_BASE_URL", &fake.base_url());
    let report = asked(0);
    let [(state, listed)] = finding(&report, "models").try_into().unwrap();
    assert_eq!((state.as_str(), listed.as_str()), ("ok", "gemini-3-fake, gemini-2.5-fake"));
    assert!(finding(&report, "credentials")[0].1.contains("GOOGLE_API_KEY"), "{report:#}");
    let detail =
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"});
    let error =
        json!({"code": 400, "message": "API key not valid: AIza-canary-3", "details": [detail]});
    let body = json!({ "error": error }).to_string();
    let strict = Fake::always(Reply::raw(400, "application/json", body.as_bytes()));
    team.variable("GEMINI_BASE_URL", &strict.base_url());
    let report = asked(1);
    let refused = finding(&report, "credentials").into_iter().find(|(state, _)| state == "wrong");
    assert!(refused.unwrap().1.contains("refuses them"), "{report:#}");
    team.variable("TEAM_MODEL", &format!("openai/{}", LOCAL_MODELS[1]));
    drop(fake);
    let report = asked(1);
    let refused = finding(&report, "endpoint").remove(0);
    assert_eq!(refused.0, "wrong", "{report:#}");
    assert!(refused.1.contains("connection refused"), "{report:#}");
}

/// The doctor reports an endpoint whose answer no run could use, and calls the model only when asked.
#[test]
fn the_doctor_reports_an_endpoint_that_does_not_work() {
    let json = |status| Reply::error(status, "some_error", "canary");
    let html = Reply::raw(200, "text/html", b"<html>log in</html>");
    for (reply, words, called) in [
        (html, "another program", "a web page"),
        (json(302), "another program", "rejected"),
        (json(404), "no list of models", "404"),
        (json(429), "limit", "429"),
        (json(500), "not ready", "500"),
        (json(418), "rejected", "418"),
        (Reply::raw(200, "text/event-stream", b""), "another program", "empty"),
    ] {
        let told = format!("{reply:?}");
        let (team, fake) = (Team::new(), Fake::always(reply));
        connect(&team, &fake);
        for (args, check, words) in
            [(&["doctor"][..], "endpoint", words), (&["doctor", "--call"], "call", called)]
        {
            let report = team.team(&[args, &["--json"]].concat()).expect(1).json();
            let (state, found) = finding(&report, check).remove(0);
            assert!(state == "wrong" && found.contains(words), "{told}: {report:#}");
            let text = team.team(args).expect(1).out;
            assert!(text.contains(&format!(". {check}: ")), "a remedy is missing: {text}");
        }
    }
    let (team, fake) = team_with_fake(|_| Reply::text("ok"));
    let report = team.team(&["doctor", "--json"]).expect(0).json();
    assert_eq!((fake.requests().len(), finding(&report, "call").len()), (0, 0), "{report:#}");
    let report = team.team(&["doctor", "--call", "--json"]).expect(0).json();
    assert_eq!(finding(&report, "call")[0].0, "ok", "{report:#}");
    assert_eq!(fake.requests()[0].body["max_tokens"], 16);
    team.variable("TEAM_MODEL", "rehearsal");
    let report = team.team(&["doctor", "--call", "--json"]).expect(0).json();
    assert_eq!(finding(&report, "call")[0].0, "note", "{report:#}");
}

#[test]
fn the_doctor_reports_a_folder_that_cannot_be_written() {
    let team = Team::new();
    let read_only = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        let report = team.team(&["doctor", "--json"]).expect(1).json();
        let found = finding(&report, "team folder");
        let words = format!("{} cannot be written: its mode is 0555", path.display());
        assert!(found.contains(&("wrong".into(), words)), "{report:#}");
        let text = team.team(&["doctor"]).expect(1).out;
        assert!(text.contains(&format!("team folder: chmod u+w {}", path.display())), "{text}");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    };
    let workspace = fs::canonicalize(team.workspace()).unwrap();
    read_only(&workspace);
    a_run(&team);
    read_only(&workspace);
    read_only(&workspace.join(".team"));
    team.team(&["doctor"]).expect(0);
}

#[test]
fn clean_keeps_live_members_and_the_transcripts_of_others() {
    let team = Team::new();
    // The lead does not restart bob before it is killed itself.
    team.variable("TEAM_FIRST_PAUSE_MS", "3600000");
    let mut running = scripted_lead(
        &team,
        &[calls("lead", &[spawn("bob")]), says("lead", "x"), says("bob", "y")],
    );
    team.wait_status("bob", "idle");
    let ran = team.team(&["clean", "--purge", "--yes"]).expect(5);
    assert!(ran.err.contains("lives") && ran.err.contains("team stop --all"), "{ran:#?}");
    kill_9(&team, "bob");
    kill_9(&team, "lead");
    running.wait();
    team.wait_no_process();
    write(&team.path("inbox/bob.jsonl"), "{\"from\":\"user\",\"content\":\"unread\"}\n");
    let said = fs::read(team.path("transcript/bob.jsonl")).unwrap();
    let cleaned = team.team(&["clean", "--json"]).expect(0).json();
    let removed = cleaned["removed"].as_array().unwrap();
    let has = |kind: &str, key: &str, what: &str| {
        removed.iter().any(|one| one["kind"] == kind && one[key] == what)
    };
    assert!(
        has("lock", "file", "run/bob.lock") && has("lock", "file", "run/lead.lock"),
        "{cleaned:#}"
    );
    assert!(has("ghost", "name", "lead"), "{cleaned:#}");
    assert!(team.member("bob").is_null() || team.status("bob") == "failed", "{}", team.describe());
    assert!(!team.path("run/bob.lock").exists() && !team.path("run/lead.lock").exists());
    assert_eq!(fs::read(team.path("transcript/bob.jsonl")).unwrap(), said);
    assert!(fs::read_to_string(team.path("inbox/bob.jsonl")).unwrap().contains("unread"));
    let kept = cleaned["kept"].as_array().unwrap();
    assert!(kept.iter().any(|one| one["file"] == "inbox/bob.jsonl"), "{cleaned:#}");
    team.team(&["doctor"]).expect(0);
    let again = team.team(&["clean"]).expect(0).out;
    assert!(again.starts_with("nothing to clean\nkept (only --purge removes them):"), "{again}");

    let before = contents(&team);
    let ran = team.team(&["clean", "--purge"]).expect(2);
    assert!(ran.err.contains("transcript/bob.jsonl") && ran.err.contains("--yes"), "{ran:#?}");
    assert_eq!(contents(&team), before, "without an answer nothing is removed");
    team.team(&["clean", "--purge", "--yes"]).expect(0);
    assert!(!team.path("transcript/bob.jsonl").exists());
    assert_eq!(fs::read_to_string(team.path("inbox/bob.jsonl")).unwrap(), "");
    a_run(&team);
}

#[test]
fn a_person_is_asked_before_the_purge() {
    let team = Team::new();
    a_run(&team);
    for (answer, stays) in [("n", true), ("y", false)] {
        let mut terminal = Terminal::start(team.command("team", &["clean", "--purge"]));
        terminal.expect("Remove all this? [y/N]");
        assert!(terminal.printed().contains("transcript/bob.jsonl"));
        terminal.type_line(answer);
        assert_eq!(terminal.wait().code(), Some(0));
        assert_eq!(team.path("transcript/bob.jsonl").exists(), stays);
    }
}

#[test]
fn the_progress_line_of_a_stop_disappears() {
    let team = Team::new();
    let model = script(
        &team,
        &[calls("bob", &[bash("until [ -e go ]; do sleep 0.05; done")]), says("bob", "y")],
    );
    let mut bob = team.start(&["teammate", "bob", "--model", &model, "--prompt", "begin"]);
    team.eventually("bob runs the command", || team.member("bob")["activity"] == "bash");
    let mut terminal = Terminal::start(team.command("team", &["stop", "bob"]));
    terminal.expect("stopping bob (");
    write(&team.workspace().join("go"), "");
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(!terminal.screen().contains("stopping bob ("), "{}", terminal.screen());
    assert!(terminal.screen().contains("bob ended when asked"), "{}", terminal.screen());
    wait(&team, &mut bob);
}
