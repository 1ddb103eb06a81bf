//! `team export`: one file with the whole run, without secrets.

use crate::support::harness::Team;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A value of a variable, and what the lead is asked to write.
const SECRET: &str = "canary-0123456789";

/// Returns a team that has run, whose lead was told a secret, in a prompt and in a task.
fn team() -> Team {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team.team(&["task", "add", &format!("use {SECRET}"), "--owner", "user"]).expect(0);
    let prompt = format!("Create a file called a.txt with {SECRET} <b>in it</b>");
    let args = ["lead", "-p", &prompt, "--model", "rehearsal", "--mode", "bypass"];
    team.team(&[&args[..], &["--timeout", "600"]].concat()).expect(0);
    team.variable("DEPLOY_TOKEN", SECRET);
    team
}

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_export_has_every_line_and_no_secret() {
    let team = team();
    let ran = team.team(&["export", "-o", "run.jsonl"]).expect(0);
    assert!(ran.out.starts_with("wrote ") && ran.out.ends_with("run.jsonl\n"), "{}", ran.out);
    assert!(ran.err.contains("secrets, which are redacted") && ran.err.contains("look through it"));
    let path = team.workspace().join("run.jsonl");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("canary") && text.contains("[redacted] <b>in it</b>"), "{text}");
    let exported = values(&text);
    assert_eq!(exported[0]["team_export"], 1);
    let of = |file: &str| -> Vec<&Value> {
        exported.iter().filter(|it| it["file"] == file).map(|it| &it["value"]).collect()
    };
    assert_eq!(of("transcript/lead.jsonl").len(), team.lines("transcript/lead.jsonl").len());
    assert_eq!(of("tasks/1.json")[0]["subject"], "use [redacted]");
    assert_eq!(of("config.json")[0]["lead"]["name"], json!("lead"));
    assert!(!of("log/lead.jsonl").is_empty());
    let files = exported.iter().filter_map(|it| it["file"].as_str());
    for file in files {
        let is_state = file.starts_with("run/") || file.contains(".lock") || file.contains(".key");
        assert!(!is_state && file != "settings.toml", "{file}");
    }
    let printed = team.team(&["export", "-o", "-"]).expect(0).out;
    assert_eq!(values(&printed)[1..], exported[1..]);
    let ran = team.team(&["export", "-o", "run.jsonl"]).expect(2);
    assert!(ran.err.contains("no file is replaced"), "{}", ran.err);
}

#[test]
fn a_page_shows_the_run_and_earlier_conversations_on_request() {
    let team = team();
    team.team(&["lead", "--new", "-p", "hello", "--model", "rehearsal", "--timeout", "600"])
        .expect(0);
    team.team(&["export", "--html", "-o", "run.html"]).expect(0);
    let page = fs::read_to_string(team.workspace().join("run.html")).unwrap();
    assert!(page.contains("hello") && !page.contains("in it"), "{page}");
    team.team(&["export", "--html", "--all", "-o", "all.html"]).expect(0);
    let page = fs::read_to_string(team.workspace().join("all.html")).unwrap();
    assert!(page.contains("[redacted] &lt;b&gt;in it") && !page.contains("canary"), "{page}");
    assert!(page.contains("archive/lead-000001") && page.contains("<b>write_file</b>"), "{page}");
}

#[test]
fn a_full_disk_leaves_no_part_of_an_export() {
    let team = team();
    team.team(&["export", "-o", "/dev/full"]).expect(2);
    let line = "trap '' XFSZ; ulimit -S -f 1; exec team export -o part.jsonl";
    let ran = team.shell(line).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && told.contains("could not be written"), "{told}");
    assert!(!team.workspace().join("part.jsonl").exists());
}
