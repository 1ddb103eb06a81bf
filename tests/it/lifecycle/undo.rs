//! `team undo` and `team diff` with real teams, and kills in the middle of what they rely on.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, lead, says, script, scripted_lead, spawn,
    tool_results, turns, wait_file,
};
use crate::support::terminal::Terminal;
use crate::walls::teams::walled_team;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

fn put(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

fn text(team: &Team, name: &str) -> Option<String> {
    fs::read_to_string(team.workspace().join(name)).ok()
}

fn git(team: &Team, line: &str) {
    let settings = "git -c user.name=t -c user.email=t@localhost";
    let done = team.shell(&format!("{settings} {line}")).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_file_that_alice_wrote_is_taken_back_and_she_is_told() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    lead.type_line("Spawn alice. Ask alice to create a file called notes.txt containing \"milk\".");
    wait_file(&team, "notes.txt");
    // The first turn is that of her first prompt.
    team.eventually("alice has ended the turn", || {
        turns(&team, "alice") >= 1 && team.status("alice") == "idle"
    });
    let list = team.team(&["undo", "alice", "--list"]).expect(0);
    assert!(list.out.contains("notes.txt") && list.out.contains("lead: "), "{list:?}");
    let diff = team.team(&["diff"]).expect(0).out;
    assert!(diff.contains("alice: 1 file\n--- /dev/null\n+++ b/notes.txt\n"), "{diff}");
    assert!(diff.contains("\n+milk"), "{diff}");
    let asked = team.team(&["undo", "alice"]).expect(2);
    assert!(asked.out.contains("remove      notes.txt"), "{asked:?}");
    assert!(asked.err.contains("not a terminal"), "{asked:?}");
    assert_eq!(text(&team, "notes.txt").as_deref(), Some("milk"));
    let undone = team.team(&["undo", "alice", "--yes"]).expect(0);
    assert!(undone.out.contains("1 file is as before; alice was told"), "{undone:?}");
    assert_eq!(text(&team, "notes.txt"), None);
    team.eventually("alice got the mail", || {
        let lines = team.lines("transcript/alice.jsonl");
        lines.iter().any(|line| {
            let content = line["message"]["content"].as_str().unwrap_or_default();
            line["message"]["from"] == "user" && content.contains("as they were before: notes.txt")
        })
    });
    assert!(team.team(&["diff", "alice"]).expect(0).out.contains("no changes are recorded"));
    let nothing = team.team(&["undo", "alice", "--yes"]).expect(1);
    assert!(nothing.err.contains("`team undo alice --list`"), "{nothing:?}");
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
    let mode = |inside: &str| fs::metadata(team.path(inside)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("undo"), mode("undo/alice.jsonl")), (0o700, 0o600));
    assert!(team.team(&["clean"]).expect(0).out.contains("version for undo: undo/alice.jsonl"));
    team.team(&["clean", "--purge", "--yes"]).expect(0);
    let left = fs::read_dir(team.path("undo/objects")).unwrap().count();
    assert_eq!((left, team.path("undo/alice.jsonl").exists()), (0, false));
}

#[test]
fn changes_of_a_command_in_a_checkout_are_taken_back_after_a_yes_at_the_terminal() {
    let team = Team::new();
    write(&team.workspace().join("a"), "one\n");
    git(&team, "init --quiet");
    git(&team, "add a");
    git(&team, "commit --quiet -m first");
    write(&team.workspace().join("dirty"), "the person's\n");
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "begun"),
        says("lead", "heard"),
        calls("alice", &[bash("echo two >>a; echo x >dirty; echo new >b"), put("c", "c\n")]),
        says("alice", "done"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("alice is done", || turns(&team, "alice") == 1);
    let plan = team.team(&["undo", "alice", "--json"]).expect(0).json();
    let files: Vec<_> = plan["files"].as_array().unwrap().iter().collect();
    let of =
        |file: &Value| (file["path"].clone(), file["action"].clone(), file["by_command"].clone());
    let row = |path: &str, action: &str, by: bool| (json!(path), json!(action), json!(by));
    assert_eq!(
        files.into_iter().map(of).collect::<Vec<_>>(),
        [
            row("a", "restore", true),
            row("b", "remove", true),
            row("c", "remove", false),
            row("dirty", "restore", true),
        ]
    );
    assert_eq!((&plan["undone"], &plan["refused"]), (&json!(false), &json!([])));
    let mut ask = Terminal::start(team.command("team", &["undo", "alice"]));
    ask.expect("Take this back? [y/N]");
    ask.type_line("n");
    ask.expect("nothing was changed");
    ask.wait();
    assert_eq!(text(&team, "dirty").as_deref(), Some("x\n"));
    let mut ask = Terminal::start(team.command("team", &["undo", "alice"]));
    ask.expect("Take this back? [y/N]");
    ask.type_line("Y");
    ask.expect("4 files are as before");
    assert_eq!(ask.wait().code(), Some(0));
    assert_eq!(
        ["a", "b", "c", "dirty"].map(|name| text(&team, name)),
        [Some("one\n".into()), None, None, Some("the person's\n".into()),]
    );
    let list = team.team(&["undo", "alice", "--list", "--json"]).expect(0).json();
    let counts: Vec<_> = list["turns"].as_array().unwrap().iter().map(|it| &it["counts"]).collect();
    assert_eq!(counts, [&json!(false), &json!(false)]);
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

/// A text that is only in files that no agent may read.
const CANARY: &str = "canary-of-the-person";

/// Asserts that no file of the team has the canary.
fn assert_not_copied(team: &Team) {
    let mut folders = vec![team.path("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if entry.file_type().unwrap().is_file() {
                let bytes = fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(CANARY), "{}:\n{text}", path.display());
            }
        }
    }
}

#[test]
fn a_file_that_an_agent_may_not_read_is_not_copied_and_an_undo_says_so() {
    if walled_team("workspace").is_none() {
        return;
    }
    // Without namespaces, the default level lets commands reach hidden files in the workspace.
    let team = Team::new();
    let ws = team.workspace();
    // Walls hide some files of the person's home by default, and rules forbid others.
    let rules = "[permissions]\ndeny = [\"read_file(**/.env)\", \"read_file(keys/**)\"]\n";
    for (path, text) in [
        (".config/team/settings.toml", rules),
        (".netrc", CANARY),
        (".ssh/id", CANARY),
        (".env", CANARY),
        ("deep/.env", CANARY),
        ("keys/tracked", CANARY),
        ("notes", "the person's\n"),
        ("a", "one\n"),
    ] {
        fs::create_dir_all(ws.join(path).parent().unwrap()).unwrap();
        write(&ws.join(path), text);
    }
    git(&team, "init --quiet");
    git(&team, "add a keys");
    let command = "for it in .env deep/.env keys/tracked notes a; do echo more >>$it; done; \
        echo x >>.netrc; echo x >keys/new";
    let lines = [calls("lead", &[bash(command), bash("true")]), says("lead", "done")];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert_eq!(text(&team, "keys/tracked"), Some(format!("{CANARY}more\n")));
    assert_not_copied(&team);
    let plan = team.team(&["undo", "lead", "--json"]).expect(1).json();
    let paths = |of: &str, key: &str| -> Vec<String> {
        let all = plan[of].as_array().unwrap().iter();
        all.map(|it| it[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths("files", "path"), ["a", "notes"], "{plan}");
    let mut refused = paths("refused", "path");
    refused.retain(|path| path != ".netrc");
    assert_eq!(refused, [".env", "deep/.env", "keys/new", "keys/tracked"]);
    assert!(paths("refused", "why").iter().all(|why| why.contains("may not read")), "{plan}");
    team.team(&["undo", "lead", "--yes", "--partial"]).expect(0);
    assert_eq!(
        ["a", "notes"].map(|name| text(&team, name).unwrap()),
        ["one\n", "the person's\n"].map(String::from)
    );
    assert_not_copied(&team);
}

#[test]
fn a_link_in_the_place_of_a_folder_leads_no_look_out_of_the_checkout() {
    let team = Team::new();
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("id"), CANARY);
    fs::create_dir(team.workspace().join("keys")).unwrap();
    write(&team.workspace().join("keys/id"), "the agent's\n");
    git(&team, "init --quiet");
    git(&team, "add keys");
    let swap = format!("rm -r keys; ln -s {} keys", outside.path().display());
    let lines = [calls("lead", &[bash(&swap), bash("true")]), says("lead", "done")];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert!(team.workspace().join("keys").is_symlink());
    assert_not_copied(&team);
    let plan = team.team(&["undo", "lead", "--json"]).expect(1).json();
    assert_eq!(plan["files"], json!([]), "{plan}");
}

/// A `.gitmodules` can have git look into a repository below the checkout, whose configuration an agent writes. The
/// person's filter can be a program in the checkout; an old index makes git compare all files, through filters.
#[test]
fn a_look_runs_no_filter_that_an_agent_has_written() {
    let team = Team::new();
    write(&team.workspace().join("a"), "one\n");
    git(&team, "init --quiet");
    write(&team.workspace().join("filter.sh"), "cat\n");
    write(&team.workspace().join(".gitattributes"), "a filter=own\n");
    git(&team, "add a filter.sh .gitattributes");
    git(&team, "commit --quiet -m first");
    git(&team, "config filter.own.clean 'sh ./filter.sh'");
    let executed = tempfile::tempdir().unwrap();
    let mark = executed.path().join("mark");
    let plant = format!(
        "git init -q sub && cd sub && echo x >f && echo '* filter=x' >.gitattributes && git add . && \
         git -c user.name=a -c user.email=a@b commit -qm x && \
         git config filter.x.clean 'touch {}; cat' && cd .. && git -c advice.addEmbeddedRepo=false add sub && \
         printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = none\\n' >.gitmodules && \
         touch -d '2001-01-01' sub/f .git/index && \
         echo 'touch {}; cat' >filter.sh && echo planted",
        mark.display(),
        mark.display(),
    );
    let lines = [calls("lead", &[bash(&plant), bash("true")]), says("lead", "done")];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    let said = tool_results(&team, "lead");
    assert!(said[0].1.ends_with("planted\n"), "{said:?}");
    assert!(!mark.exists(), "{said:?}");
}

#[test]
fn the_changes_of_an_interrupted_command_are_taken_back() {
    let team = Team::new();
    write(&team.workspace().join("a"), "one\n");
    git(&team, "init --quiet");
    git(&team, "add a");
    let command = "echo two >>a; touch made; sleep 1000";
    let mut lead = scripted_lead(&team, &[calls("lead", &[bash(command)]), says("lead", "done")]);
    wait_file(&team, "made");
    lead.press("\u{3}");
    team.eventually("the turn and the look have ended", || {
        let plan = team.team(&["undo", "lead", "--json"]);
        turns(&team, "lead") == 1 && plan.out.contains("\"path\":\"made\"")
    });
    team.team(&["undo", "lead", "--yes"]).expect(0);
    assert_eq!((text(&team, "a").as_deref(), text(&team, "made")), (Some("one\n"), None));
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

#[test]
fn an_agent_cannot_undo_and_an_unknown_name_is_told() {
    let team = Team::without_walls();
    let undo = format!("{} undo lead --yes", program("team").display());
    let lines = [calls("lead", &[put("a", "a\n"), bash(&undo)]), says("lead", "done")];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    let results = tool_results(&team, "lead");
    let said = &results[1].1;
    assert!(said.contains("`team undo` does not work inside an agent's command"), "{said}");
    assert_eq!(text(&team, "a").as_deref(), Some("a\n"));
    let unknown = team.team(&["undo", "bob", "--yes"]).expect(1);
    assert!(unknown.err.contains("there is no agent bob"), "{unknown:?}");
    let earlier = team.team(&["undo", "lead", "--to", "9", "--yes"]).expect(1);
    assert!(earlier.err.contains("lead has no turn 9"), "{earlier:?}");
    team.team(&["undo", "lead", "--yes"]).expect(0);
    assert_eq!(text(&team, "a"), None);
}

/// Makes a team that has ended, whose lead has changed one file, created one and removed one.
fn changed_team() -> Team {
    let team = Team::without_walls();
    write(&team.workspace().join("a"), "one\n");
    write(&team.workspace().join("gone"), "gone\n");
    git(&team, "init --quiet");
    git(&team, "add a gone");
    let lines = [
        calls("lead", &[read("a"), put("a", "two\n"), put("new", "new\n"), bash("rm gone")]),
        says("lead", "done"),
    ];
    headless(&team, &script(&team, &lines), "begin").expect(0);
    assert_eq!(states(&team), after());
    team
}

fn states(team: &Team) -> [Option<String>; 3] {
    ["a", "gone", "new"].map(|name| text(team, name))
}

fn before() -> [Option<String>; 3] {
    [Some("one\n".into()), Some("gone\n".into()), None]
}

fn after() -> [Option<String>; 3] {
    [Some("two\n".into()), None, Some("new\n".into())]
}

/// Kills `team undo` at a point.
fn kill_undo_at(team: &Team, point: &str) {
    let token = team.workspace().join("token");
    File::create(&token).unwrap();
    let mut command = team.command("team", &["undo", "lead", "--yes"]);
    command.env("TEAM_FAILPOINTS", format!("team/{point}={}", token.display()));
    let killed = command.output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "no kill at {point}: {killed:?}");
}

#[test]
fn an_undo_that_is_killed_anywhere_leaves_one_of_the_two_states_after_the_next_command() {
    let points = [
        ("undo.planned", after()),
        ("undo.noted", before()),
        ("undo.journaled", before()),
        ("undo.swapped", before()),
        ("undo.swapped+1", before()),
        ("undo.swapped+2", before()),
        ("undo.changed", before()),
        ("undo.finished", before()),
    ];
    for (point, expected) in points {
        let team = changed_team();
        kill_undo_at(&team, point);
        // The plan alone completes it; whether it then has something to do does not matter here.
        let next: CommandResult = team.team(&["undo", "lead"]);
        assert_eq!(states(&team), expected, "{point}: {next:?}");
        assert!(!team.path("undo/pending.json").exists(), "{point}");
        if expected == after() {
            team.team(&["undo", "lead", "--yes"]).expect(0);
            assert_eq!(states(&team), before(), "{point}");
        }
        let list = team.team(&["undo", "lead", "--list", "--json"]).expect(0).json();
        let undo = list["turns"].as_array().unwrap().last().unwrap()["turn"].to_string();
        team.team(&["undo", "lead", "--to", &undo, "--yes"]).expect(0);
        assert_eq!(states(&team), after(), "{point}: the undo is undone");
        let names = fs::read_dir(team.workspace()).unwrap().flatten();
        let drafts = names.filter(|it| it.file_name().to_string_lossy().ends_with(".draft"));
        assert_eq!(drafts.count(), 0, "{point}");
    }
}

#[test]
fn an_undo_that_was_killed_is_put_back_if_a_file_was_changed_since() {
    let team = changed_team();
    kill_undo_at(&team, "undo.swapped");
    assert_eq!(text(&team, "a").as_deref(), Some("one\n"), "the first file was changed");
    write(&team.workspace().join("new"), "the person's\n");
    let next = team.team(&["undo", "lead"]);
    let person = Some("the person's\n".into());
    assert_eq!(states(&team), [Some("two\n".into()), None, person], "{next:?}");
    assert!(next.out.contains("new: changed since by you or another program"), "{next:?}");
    team.team(&["undo", "lead", "--yes"]).expect(1);
    team.team(&["undo", "lead", "--yes", "--partial"]).expect(0);
    let person = Some("the person's\n".into());
    assert_eq!(states(&team), [Some("one\n".into()), Some("gone\n".into()), person]);
}

#[test]
fn a_write_whose_agent_is_killed_is_recorded_or_was_not_made() {
    for point in ["undo.kept", "undo.noted", "undo.noted+1"] {
        let team = Team::new();
        write(&team.workspace().join("a"), "one\n");
        let token = team.workspace().join("token");
        File::create(&token).unwrap();
        team.variable("TEAM_FIRST_PAUSE_MS", "50");
        team.variable("TEAM_FAILPOINTS", &format!("alice/{point}={}", token.display()));
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "begun"),
            says("lead", "heard"),
            calls("alice", &[read("a"), put("a", "two\n")]),
            // After the crash the state of the write is unknown to her.
            calls("alice", &[read("a"), put("a", "three\n"), put("b", "b\n")]),
            says("alice", "done"),
        ];
        let mut lead = scripted_lead(&team, &lines);
        team.eventually("alice is done", || {
            text(&team, "b").is_some() && turns(&team, "alice") > 0
        });
        assert!(!token.exists(), "alice was not killed at {point}");
        assert_eq!(text(&team, "a").as_deref(), Some("three\n"), "{point}");
        let undone = team.team(&["undo", "alice", "--to", "1", "--yes"]).expect(0);
        assert_eq!(text(&team, "a").as_deref(), Some("one\n"), "{point}: {undone:?}");
        assert_eq!(text(&team, "b"), None, "{point}");
        lead.type_line("/quit");
        lead.wait();
        assert_left_in_order(&team);
    }
}
