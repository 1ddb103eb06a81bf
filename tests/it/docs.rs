//! Tests of the documents: every command in them is run, and must end as the document says.
//!
//! The info string of a fenced block decides:
//!
//! - `sh`: the commands run in a live team: a lead at its terminal, alice (coder) and bob (tester). They have
//!   worked and are idle; the lead was started with `--mode bypass`. A document has one team for all its blocks.
//! - `sh alone`: the commands run in an empty folder without a team, a new one for each block.
//! - `json`: valid JSON that the program accepts as a task, a lease, timers, a dead letter, a message or, in docs/script.md,
//!   a script. `toml`: settings that the program accepts. `markdown`: a role that it accepts. `yaml`: a workflow whose
//!   script runs.
//! - `console`, `text` and all others are not run (cargo, a real key, a recorded session).
//!
//! One line is one command. Blank lines and lines that begin with `#` are skipped. A comment after two spaces
//! and `#` is for the reader, but these words in it are checked:
//!
//! - `exit N`: the expected exit code, by default 0.
//! - `prints nothing`: without it, a command that succeeds must print something, unless it appends to a file.
//! - `until Ctrl-C`: the command runs until it is interrupted; alice gets mail meanwhile.

use crate::support::harness::{SYSTEM_PATH, Team};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use crate::tidy::{MAY_USE, rust_files};
use agent_team::store::{TeamDir, dead};
use agent_team::wire::AgentName;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

/// Programs that may be missing on a machine. Lines that need a missing one are skipped, with a notice.
const OPTIONAL: [&str; 2] = ["jq", "flock"];

/// The environment in which the commands of a block run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Live,
    Alone,
}

#[derive(Debug)]
struct Block {
    place: Place,
    lines: Vec<Line>,
}

/// A command and its expected outcome.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    command: String,
    exit: i32,
    prints: bool,
    endless: bool,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The documents for users and contributors.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    let folder = std::fs::read_dir(root().join("docs")).unwrap();
    found.extend(folder.map(|entry| entry.unwrap().path()).filter(|path| is_markdown(path)));
    found.sort();
    found
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

/// The fenced blocks of a document: the info string and the lines of each.
fn fenced(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            blocks.push((info.trim(), lines.by_ref().take_while(|l| l.trim() != "```").collect()));
        }
    }
    blocks
}

fn blocks_to_run(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (info, lines) in fenced(text) {
        let place = match info {
            "sh" => Place::Live,
            "sh alone" => Place::Alone,
            other => {
                assert!(!other.starts_with("sh"), "a fence says {other:?}: see tests/it/docs.rs");
                continue;
            }
        };
        let lines = lines.into_iter().filter_map(line_to_run).collect();
        blocks.push(Block { place, lines });
    }
    blocks
}

fn line_to_run(text: &str) -> Option<Line> {
    if text.trim().is_empty() || text.starts_with('#') {
        return None;
    }
    let (command, words) = text.split_once("  #").unwrap_or((text, ""));
    let exit = words.trim().strip_prefix("exit ").map_or(0, |code| {
        let digits: String = code.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    });
    Some(Line {
        command: command.trim().into(),
        exit,
        prints: !words.contains("prints nothing") && !command.contains(">>"),
        endless: words.contains("until Ctrl-C"),
    })
}

/// Starts a live team with some history.
fn live() -> (Team, Terminal) {
    let team = Team::new();
    let mut lead = Terminal::start(
        team.command("team", &["lead", "--model", "rehearsal", "--mode", "bypass"]),
    );
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder) and bob (tester). Have alice send bob a message.");
    team.eventually("bob has alice's message", || team.has_mail("bob", "alice", ""));
    lead.type_line("Ask alice to create a file called schema.sql with a users table.");
    team.eventually("alice has reported", || team.has_mail("lead", "alice", "schema.sql"));
    team.eventually("all rest", || {
        ["lead", "alice", "bob"].iter().all(|name| team.status(name) == "idle")
    });
    (team, lead)
}

fn is_missing(program: &str) -> bool {
    !SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join(program).exists())
}

fn run_line(team: &Team, line: &Line, at: &str) {
    // A reader of the document has not set this variable.
    team.variable("TEAM_MODE", "");
    let missing = OPTIONAL
        .iter()
        .find(|it| line.command.split_whitespace().any(|word| word == **it) && is_missing(it));
    if let Some(program) = missing {
        skipped(&format!("{program} is not installed: {}", line.command));
        return;
    }
    let mut command = team.shell(&line.command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if line.endless {
        return interrupt_when_it_prints(team, command, at);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let story = || format!("{at}: {}\n{out}{err}{}", line.command, team.describe());
    assert_eq!(status.code(), Some(line.exit), "{}", story());
    if line.prints && line.exit == 0 {
        assert!(!out.trim().is_empty(), "printed nothing: {}", story());
    }
    assert!(!err.contains("command not found"), "{}", story());
}

fn interrupt_when_it_prints(team: &Team, mut command: Command, at: &str) {
    let mut child = command.process_group(0).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (printed, first) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut bytes) {
            let _heard = printed.send(count);
        }
    });
    // The command may ignore mail that was sent before it began to watch, so mail is sent until it prints.
    team.eventually(&format!("{at} prints something"), || {
        team.team(&["send", "alice", "Run echo hello"]).expect(0);
        first.try_recv().is_ok()
    });
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
    killpg(group, Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    let by_signal = status.signal() == Some(Signal::SIGINT as i32);
    assert!(by_signal || status.code() == Some(130), "{at}: {status}");
    reader.join().unwrap();
}

fn run_document(path: &str) {
    let blocks = blocks_to_run(&read(&root().join(path)));
    let mut shared: Option<(Team, Terminal)> = None;
    for block in &blocks {
        let alone = (block.place == Place::Alone).then(Team::new);
        let team = match &alone {
            Some(team) => team,
            None => &shared.get_or_insert_with(live).0,
        };
        for line in &block.lines {
            run_line(team, line, path);
        }
        if let Some(team) = alone {
            team.wait_no_process();
        }
    }
    if let Some((team, mut lead)) = shared {
        // A document may stop the whole team, which ends the lead by SIGTERM.
        let stopped = lead.child.try_wait().unwrap().is_some();
        if !stopped {
            lead.type_line("/quit");
        }
        let expected = if stopped { 143 } else { 0 };
        assert_eq!(lead.wait().code(), Some(expected), "{}", lead.screen());
        team.wait_no_process();
    }
}

#[test]
fn the_commands_of_the_readme_work() {
    run_document("README.md");
}

#[test]
fn the_commands_of_the_manual_work() {
    run_document("docs/manual.md");
}

#[test]
fn the_commands_of_the_format_page_work() {
    run_document("docs/format.md");
}

/// The part of a recorded line that every run prints: the line up to the text that depends on width or time.
/// `None` for lines that need not be printed.
fn shown_always(line: &str) -> Option<&str> {
    let is_event = line.starts_with('⏺') || line.starts_with('✉');
    // The duration of a call differs from run to run.
    let begin = line.split("   ✓").next().and_then(|begin| begin.split(" (").next());
    begin.filter(|_| is_event)
}

/// Replays the recorded session of the README.
#[test]
fn the_session_in_the_readme_is_reproduced() {
    let readme = read(&root().join("README.md"));
    let blocks = fenced(&readme);
    let (_, session) = blocks.iter().find(|(_, lines)| lines.contains(&"$ team lead")).unwrap();
    let team = Team::new();
    team.variable("TEAM_MODE", "default");
    let mut lead = Terminal::start(team.command("team", &["lead"]));
    lead.expect("/quit ends the team");
    for line in session {
        if let Some(typed) = line.strip_prefix("team> ") {
            team.eventually("all rest", || {
                let members = team.roster()["members"].as_array().cloned().unwrap_or_default();
                let over = |status: &str| matches!(status, "idle" | "shutdown");
                team.status("lead") == "idle"
                    && members.iter().all(|member| over(member["status"].as_str().unwrap()))
            });
            lead.type_line(typed);
        } else if let Some(typed) = line.strip_prefix("answer> ") {
            lead.expect_screen("answer>");
            lead.type_line(typed);
        } else if let Some(event) = shown_always(line) {
            lead.expect(event);
        }
    }
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

/// All blocks with this info string: the name of the document and the text of each.
fn all_blocks(word: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in documents() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        for (info, lines) in fenced(&read(&path)) {
            if info == word {
                found.push((name.clone(), lines.join("\n")));
            }
        }
    }
    found
}

#[test]
fn json_in_the_documents_is_valid() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let blocks = all_blocks("json");
    assert!(blocks.len() >= 4, "{blocks:?}");
    for (name, block) in blocks {
        let values = serde_json::Deserializer::from_str(&block).into_iter::<Value>();
        let values: Vec<Value> = values
            .map(|value| value.unwrap_or_else(|why| panic!("{name}: {why}\n{block}")))
            .collect();
        if name == "docs/script.md" {
            let script = team.workspace().join("script.jsonl");
            crate::support::child_process::write(&script, &block);
            let model = format!("script:{}", script.display());
            team.team(&["lead", "-p", "begin", "--model", &model, "--mode", "bypass"]).expect(0);
            continue;
        }
        assert_eq!(values.len(), 1, "{name}: {block}");
        let value = &values[0];
        if value.get("subject").is_some() {
            let id = value["id"].as_str().unwrap();
            crate::support::child_process::write(&team.path(&format!("tasks/{id}.json")), &block);
            let shown = team.team(&["task", "show", id, "--json"]).expect(0).json();
            for (key, value) in value.as_object().unwrap() {
                assert_eq!(&shown[key], value, "{key}");
            }
        } else if value.get("paths").is_some() {
            let file = format!("leases/{}.json", value["id"].as_str().unwrap());
            crate::support::child_process::write(&team.path(&file), &block);
            // Its owner does not run.
            let shown = team.team(&["leases", "--json"]).expect(0).json();
            assert_eq!(shown, serde_json::json!({ "schema": 1, "leases": [], "problems": [] }));
        } else if value.get("timers").is_some() {
            crate::support::child_process::write(&team.path("timers/alice.json"), &block);
            let shown = team.team(&["remind", "--json"]).expect(0).json();
            for (key, value) in value["timers"][0].as_object().unwrap() {
                assert_eq!(&shown["timers"][0][key], value, "{key}");
            }
        } else if let Some(entry) = value.pointer("/agent_servers/team") {
            // An editor starts this command.
            assert_eq!(entry["command"], "team");
            let args: Vec<&str> =
                entry["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
            let answer = team.team_with_input(&args, &format!("{hello}\n")).expect(0).json();
            assert_eq!(answer["result"]["agentInfo"]["name"], "team");
        } else if value.get("raw").is_some() {
            crate::support::child_process::write(
                &team.path("dead/zoe.jsonl"),
                format!("{block}\n"),
            );
            let zoe = AgentName::member("zoe").unwrap();
            let letters = dead::read_all(&TeamDir::create(&team.path("")).unwrap(), &zoe).unwrap();
            assert_eq!(serde_json::to_value(&letters[0]).unwrap(), *value);
        } else {
            crate::support::child_process::write(
                &team.path("inbox/lead.jsonl"),
                format!("{block}\n"),
            );
            let taken = team.team(&["inbox", "lead", "--drain", "--json"]).expect(0);
            let taken: Vec<Value> =
                taken.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(taken, values, "{name}");
        }
    }
}

#[test]
fn settings_and_roles_in_the_documents_are_accepted() {
    let blocks = all_blocks("toml");
    assert!(blocks.len() >= 3, "{blocks:?}");
    for (name, block) in blocks {
        let team = Team::new();
        team.team(&["init"]).expect(0);
        crate::support::child_process::write(&team.path("settings.toml"), &block);
        let ran = team.team(&["config", "--json"]).expect(0);
        let is_heard = ran.out.contains("settings.toml") || ran.err.contains("not trusted: ");
        assert!(is_heard, "{name} sets nothing: {block}\n{ran:?}");
    }
    let roles = all_blocks("markdown");
    assert!(!roles.is_empty());
    for (name, block) in roles {
        let team = Team::new();
        team.team(&["init"]).expect(0);
        crate::support::child_process::write(&team.path("roles/shown.md"), &block);
        let ran = team.team(&["roles", "--json"]).expect(0);
        let roles = ran.json()["roles"].as_array().cloned().unwrap_or_default();
        let given = block.lines().find_map(|line| line.strip_prefix("name: ")).unwrap();
        let role = roles.iter().find(|role| role["name"] == given);
        assert!(role.is_some(), "{name}: {block}\n{ran:?}");
        assert!(!ran.err.contains("shown.md"), "{name}: {ran:?}");
    }
}

/// No command and no setting is missing in the manual.
#[test]
fn the_manual_has_every_command_and_setting() {
    let team = Team::new();
    let manual = read(&root().join("docs/manual.md"));
    let help = team.team(&["--help"]).expect(0).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let shown = format!("team {command}");
        assert!(manual.contains(&shown) || manual.contains(&format!("\n{command} ")), "{shown}");
    }
    let settings = team.team(&["config", "--json"]).expect(0).json();
    for setting in settings["settings"].as_array().unwrap() {
        let key = setting["key"].as_str().unwrap();
        assert!(manual.contains(&format!("`{key}`")), "the setting {key}");
    }
}

/// Every document with commands has a test in this file.
#[test]
fn every_document_with_commands_is_run() {
    let here = read(&root().join("tests/it/docs.rs"));
    for path in documents() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let has_commands = !blocks_to_run(&read(&path)).is_empty();
        let is_run = here.contains(&format!("run_document(\"{name}\")"));
        assert!(is_run || !has_commands, "{name} shows commands that no test runs");
    }
}

/// `scripts/check` runs the README's test command, CI runs `scripts/check`, and the README's run command starts a
/// lead with the rehearsal model.
#[test]
fn the_two_commands_of_the_readme() {
    let readme = read(&root().join("README.md"));
    let consoles = fenced(&readme).into_iter().filter(|(info, _)| *info == "console");
    let cargo: Vec<&str> = consoles
        .flat_map(|(_, lines)| lines)
        .filter_map(|line| line.strip_prefix("$ "))
        .filter(|line| line.starts_with("cargo ") && !line.starts_with("cargo install"))
        .collect();
    assert_eq!(cargo, ["cargo run --release -- lead", "cargo test --workspace"]);
    let gate = read(&root().join("scripts/check"));
    assert!(gate.lines().any(|line| line.trim() == "cargo test --workspace --locked"), "{gate}");
    let ci = read(&root().join(".ci/run"));
    assert!(ci.lines().any(|line| line == "exec scripts/check --all"), "{ci}");
    assert!(read(&root().join("Cargo.toml")).contains("default-run = \"team\""));

    let team = Team::new();
    let (_, args) = cargo[0].split_once(" -- ").unwrap();
    let args: Vec<&str> = args.split_whitespace().collect();
    let mut lead = Terminal::start(team.command("team", &args));
    lead.expect("REHEARSAL MODEL");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
    // A lead that starts in a clone writes the same `.gitignore`, so the clone stays clean.
    assert_eq!(read(&team.path(".gitignore")), read(&root().join(".team/.gitignore")));
}

/// The programs, the packages and the documents have one version, and the workflow makes and tries the packages.
#[test]
fn the_packages_have_the_version_of_the_program() {
    let asked = Command::new(root().join("scripts/package")).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&asked.stdout).trim().replace("+changed", "");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert!(read(&root().join("host/Cargo.toml")).contains(&format!("\nversion = \"{version}\"")));
    for name in ["README.md", "docs/manual.md"] {
        let is_named = read(&root().join(name)).contains(&format!("agent-team_{version}-1_"));
        assert!(is_named, "{name} names no package of {version}");
    }
    let workflow = read(&root().join(".github/workflows/ci.yml"));
    for command in [".ci/run", "scripts/package", "scripts/package-test"] {
        let is_run = workflow.lines().any(|line| line.trim() == format!("run: {command}"));
        assert!(is_run, "no step of the workflow is {command}");
    }
}

/// Each script has a row in the list of scripts.
#[test]
fn every_script_is_listed() {
    let list = read(&root().join("scripts/README.md"));
    let entries = std::fs::read_dir(root().join("scripts")).unwrap().map(|entry| entry.unwrap());
    for entry in entries.filter(|entry| entry.path().is_file()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let row = if name.starts_with("sdk-check-") { "sdk-check-*.py" } else { &name };
        let is_listed = list.contains(&format!("`{row}`")) || name == "README.md";
        assert!(is_listed, "scripts/README.md does not list {name}");
    }
}

#[test]
fn the_layer_table_is_the_one_that_is_checked() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    for (layer, uses) in MAY_USE {
        let uses = if uses.is_empty() { "-".into() } else { uses.join(", ") };
        let row = format!("| `{layer}` | {uses} |");
        assert!(architecture.contains(&row), "ARCHITECTURE.md lacks the row {row}");
    }
}

/// The anchors of a document, made of its headings as code hosting sites make them.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let headings = outside.filter_map(|line| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn links_have_targets() {
    for path in documents() {
        let text = read(&path);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(to.exists(), "{} links to {target}, which is not there", path.display());
            let is_there = section.is_empty() || anchors(&read(&to)).iter().any(|it| it == section);
            assert!(is_there, "{} links to {target}, which is no section", path.display());
        }
    }
    assert_eq!(
        anchors("# A b\n```sh\n# no\n```\n## What is safe, and `x`\n"),
        ["a-b", "what-is-safe-and-x"]
    );
}

/// The tables of faults name the test of each row.
#[test]
fn tests_that_the_documents_name_are_there() {
    let files = ["src", "tests", "host"].iter().flat_map(|folder| rust_files(&root().join(folder)));
    let code: String = files.map(|file| read(&file)).collect();
    let is_word = |text: &str| {
        text.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"_:".contains(&it))
    };
    let mut count = 0;
    for path in documents() {
        let text = read(&path);
        for name in text.split('`').skip(1).step_by(2).filter(|name| is_word(name)) {
            let test = name.rsplit("::").next().unwrap();
            // Names of tests are sentences.
            if test.contains("__") || test.matches('_').count() < 4 {
                continue;
            }
            count += 1;
            let is_there = code.contains(&format!("fn {test}("));
            assert!(is_there, "{} names {name}, which is no test", path.display());
        }
    }
    assert!(count > 100, "{count} names");
}

/// The manual has a row for each exit code that the program defines.
#[test]
fn the_manual_has_every_exit_code() {
    let code = read(&root().join("src/error.rs"));
    let exits = code.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "));
    let exits: Vec<&str> = exits.map(|(_, number)| number).collect();
    assert!(exits.len() > 10, "{exits:?}");
    let manual = read(&root().join("docs/manual.md"));
    for exit in exits {
        assert!(manual.contains(&format!("\n| {exit} | ")), "the exit code {exit}");
    }
}

/// Runs the script of the workflow in the manual as the workflow does, with the rehearsal model.
#[test]
fn the_workflow_in_the_manual_runs() {
    if is_missing("jq") {
        skipped("jq is not installed: the workflow in the manual");
        return;
    }
    let blocks = all_blocks("yaml");
    let [(_, workflow)] = blocks.as_slice() else { panic!("{blocks:?}") };
    let step = workflow.split("- name: ").find(|step| step.starts_with("Run the team")).unwrap();
    let (_, script) = step.split_once("run: |\n").unwrap();
    let script = script.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    for (prompt, code, says) in [
        ("Create a file called notes.txt.", 0, "Wrote notes.txt"),
        ("Run date", 9, "::error::calls were denied: [\"lead: bash: date"),
    ] {
        let team = Team::new();
        team.variable("TEAM_MODEL", "rehearsal");
        let (before, rest) = script.split_once("-p \"").unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        let script = format!("set -e\n{before}-p \"{prompt}\"{after}");
        let Output { status, stdout, stderr } = team.shell(&script).output().unwrap();
        let out = String::from_utf8_lossy(&stdout);
        let err = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(code), "{script}\n{out}{err}");
        assert!(out.contains(says), "{script}\n{out}{err}");
        team.wait_no_process();
    }
}

#[test]
fn the_outcome_of_a_line_is_parsed() {
    let line = |command: &str, exit, prints, endless| {
        Some(Line { command: command.into(), exit, prints, endless })
    };
    assert_eq!(line_to_run("# for the reader"), None);
    assert_eq!(line_to_run("team ls"), line("team ls", 0, true, false));
    assert_eq!(line_to_run("team ls  # who lives"), line("team ls", 0, true, false));
    assert_eq!(line_to_run("grep x y   # exit 1: none"), line("grep x y", 1, true, false));
    assert_eq!(line_to_run("echo x >> y"), line("echo x >> y", 0, false, false));
    assert_eq!(line_to_run("ls d  # prints nothing"), line("ls d", 0, false, false));
    assert_eq!(line_to_run("team log -f  # until Ctrl-C"), line("team log -f", 0, true, true));
    let text = "a\n```sh alone\nteam ls\n```\n```text\nteam no\n```\n";
    let blocks = blocks_to_run(text);
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].place, blocks[0].lines.len()), (Place::Alone, 1));
}
