//! `AGENTS.md` and `CLAUDE.md`: their imports, and those of folders below the workspace.

use super::{logged, put};
use crate::support::child_process::write;
use crate::support::fake::{Reply, RequestView};
use crate::support::fake_models::{LEAD, agent_of, call, conversation, headless, team_with_fake};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

/// A line with a path is replaced by the file, and what cannot be read is named in the log and by `team doctor`.
#[test]
fn instructions_import_files_of_the_workspace() {
    let (team, fake) = team_with_fake(|_| Reply::text("Done."));
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("out.md"), "the secret");
    let agents = "Say please.\n@docs/style.md\n@out.md\n@keys/key.md\n@.team/roles/x.md\n";
    put(
        &team,
        &[
            ("AGENTS.md", agents),
            ("CLAUDE.md", "@AGENTS.md\n"),
            ("docs/style.md", "Use tabs.\n@more.md\n"),
            ("docs/more.md", "No trailing spaces.\n@../AGENTS.md\n"),
            ("keys/key.md", "the key"),
            (".team/roles/x.md", "the role"),
            (".team/settings.toml", "[permissions]\ndeny = [\"read_file(keys/**)\"]\n"),
        ],
    );
    symlink(outside.path().join("out.md"), team.workspace().join("out.md")).unwrap();
    headless(&team, "begin", &[]).expect(0);
    let system = fake.requests()[0].system();
    let expected = "\nInstructions of this workspace:\n[AGENTS.md]\nSay please.\n[docs/style.md]\nUse tabs.\n\
                    [docs/more.md]\nNo trailing spaces.\n@out.md\n@keys/key.md\n@.team/roles/x.md\n";
    assert!(system.ends_with(expected), "{system}");
    let problems = logged(&team, "problem");
    let doctor = team.team(&["doctor"]).out;
    for words in ["imports out.md, which leads out", ".team/roles/x.md, which is in a folder"] {
        assert!(problems.iter().any(|problem| problem.contains(words)), "{words}: {problems:?}");
        assert!(doctor.contains(words), "{words}: {doctor}");
    }
    assert!(problems.iter().any(|it| it.contains("keys/key.md, which may not be read")));
}

const TOLD: &str = "[team: instructions of the workspace for the files below src/parser/, from src/parser/AGENTS.md.";

fn told(view: &RequestView) -> usize {
    conversation(view).matches(TOLD).count()
}

fn reads(view: &RequestView, path: &str) -> Reply {
    call(view, "read_file", &json!({ "path": path }))
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["kind"].as_str()).collect()
}

/// The instructions of a folder come with the first file that is used there, once, also after a resume; after a summary,
/// with the next file there.
#[test]
fn instructions_of_a_folder_come_with_its_first_file_and_once() {
    let (team, fake) = team_with_fake(|view| {
        if view.body["tools"].is_null() {
            return Reply::text("NOTES");
        }
        match view.last_text() {
            text if text.contains("first") => reads(view, "src/parser/a.rs"),
            text if text.contains("second") => reads(view, "src/parser/b.rs"),
            text if text.contains("third") => reads(view, "src/other.rs"),
            _ => Reply::text("Done."),
        }
    });
    put(
        &team,
        &[
            ("src/parser/AGENTS.md", "Parse by hand."),
            ("src/parser/a.rs", "a"),
            ("src/parser/b.rs", "b"),
            ("src/other.rs", "o"),
        ],
    );
    headless(&team, "third", &[]).expect(0);
    headless(&team, "first", &["--resume"]).expect(0);
    headless(&team, "second", &["--resume"]).expect(0);
    let asked = fake.requests();
    let counts: Vec<usize> = asked.iter().map(told).collect();
    assert_eq!(counts, [0, 0, 0, 1, 1, 1], "{}", team.describe());
    let text = conversation(&asked[3]);
    assert!(text.contains("for a folder above:\\nParse by hand.]"), "{text}");
    let lines = team.lines("transcript/lead.jsonl");
    let line = lines.iter().find(|line| line["kind"] == "instructions").unwrap();
    assert_eq!(
        (&line["file"], &line["content"]),
        (&json!("src/parser/AGENTS.md"), &json!("Parse by hand."))
    );
    assert_eq!(kinds(&lines).iter().filter(|kind| **kind == "instructions").count(), 1);

    let words = [&LEAD[..], &["--resume"]].concat();
    let mut lead = Terminal::start(team.command("team", &words));
    lead.type_line("/compact");
    lead.type_line("third again");
    team.eventually("the conversation is summarized", || {
        kinds(&team.lines("transcript/lead.jsonl")).contains(&"compacted")
    });
    team.eventually("the turn has ended", || team.status("lead") == "idle");
    assert_eq!(told(fake.requests().last().unwrap()), 0, "the summary took them");
    lead.type_line("second again");
    team.eventually("they are told again", || told(fake.requests().last().unwrap()) == 1);
    lead.type_line("/quit");
    lead.wait();
}

/// A teammate in a clone gets the instructions of its clone.
#[test]
fn a_teammate_in_a_clone_is_told_the_instructions_of_its_clone() {
    let (team, fake) = team_with_fake(|view| match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => {
            let order = json!({ "name": "alice", "role": "coder", "prompt": "begin", "isolation": "clone" });
            call(view, "spawn_teammate", &order)
        }
        ("alice", 0) => call(view, "bash", &json!({ "command": "echo Mine. > src/AGENTS.md" })),
        ("alice", 1) => reads(view, "src/a.rs"),
        _ => Reply::text("Done."),
    });
    put(&team, &[("src/AGENTS.md", "Committed."), ("src/a.rs", "a")]);
    let made = team
        .shell("git init -q && git add -A && git -c user.name=u -c user.email=u@h commit -qm a")
        .status();
    assert!(made.unwrap().success());
    headless(&team, "begin", &[]).expect(0);
    let asked = fake.requests();
    let last = asked.iter().rfind(|view| agent_of(view) == "alice").unwrap();
    let text = conversation(last);
    assert!(text.contains("from src/AGENTS.md.") && text.contains("\\nMine.]"), "{text}");
}
