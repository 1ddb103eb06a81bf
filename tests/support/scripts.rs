//! Leads and teammates on scripted models, signals to them, and the checks after a team has stopped.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team};
use crate::support::terminal::{ANY_SIZE, Size, Terminal};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

/// The nine prompts of the first milestone, as a person types them.
pub(crate) const NINE_PROMPTS: [&str; 9] = [
    "Spawn alice (coder) and bob (tester). Have alice send bob a message.",
    "Broadcast \"status update: phase 1 complete\" to all teammates",
    "Check the lead inbox for any messages",
    "/team",
    "/inbox",
    "Spawn alice as a backend developer. Ask her to create a file called schema.sql with a users table.",
    "Check your inbox for alice's result.",
    "Spawn bob as a tester. Ask him to check if schema.sql exists and list its contents.",
    "Shut down alice gracefully, then show the team.",
];

/// Returns a reply with text only.
pub(crate) fn says(agent: &str, text: &str) -> Value {
    json!({ "agent": agent, "text": text })
}

/// Returns a reply that calls tools.
pub(crate) fn calls(agent: &str, tools: &[(&str, Value)]) -> Value {
    let tools: Vec<Value> =
        tools.iter().map(|(name, input)| json!({ "name": name, "input": input })).collect();
    json!({ "agent": agent, "tools": tools })
}

/// Returns the call that spawns a teammate.
pub(crate) fn spawn(name: &str) -> (&'static str, Value) {
    ("spawn_teammate", json!({ "name": name, "role": "worker", "prompt": "begin" }))
}

/// Returns the call that runs a shell command.
pub(crate) fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command, "timeout": 600 }))
}

/// A command that runs until the lead's first turn has ended. A report that arrives earlier would become a part
/// of that turn.
pub(crate) fn wait_for_lead() -> (&'static str, Value) {
    bash("until grep -q '\"turn_end\"' .team/transcript/lead.jsonl; do sleep 0.05; done")
}

/// Returns the shell command that waits until mail of this word has come for a member, drained or not.
pub(crate) fn until_mail(name: &str, word: &str) -> String {
    // The brackets keep the pattern from matching this command, which the transcript quotes.
    let (rest, last) = word.split_at(word.len() - 1);
    let files = ["inbox/NAME.jsonl", "inbox/.claim/NAME.*", "transcript/NAME.jsonl"];
    let files = files.map(|file| format!(".team/{}", file.replace("NAME", name))).join(" ");
    format!("until grep -qs '{rest}[{last}]' {files}; do sleep 0.05; done")
}

/// Returns the number of turns that a member has ended.
pub(crate) fn turns(team: &Team, name: &str) -> usize {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    lines.iter().filter(|line| line["kind"] == "turn_end").count()
}

/// Writes a script and returns the value for `--model`.
pub(crate) fn script(team: &Team, lines: &[Value]) -> String {
    let file = team.workspace().join("script.jsonl");
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    write(&file, text.join("\n"));
    format!("script:{}", file.display())
}

/// Starts an interactive lead and waits until it is idle.
pub(crate) fn lead(team: &Team, model: &str) -> Terminal {
    lead_of_size(team, model, ANY_SIZE)
}

/// Starts an interactive lead in a terminal of this size and waits until it is idle.
pub(crate) fn lead_of_size(team: &Team, model: &str, size: Size) -> Terminal {
    let command = team.command("team", &["lead", "--new", "--model", model]);
    let lead = Terminal::of_size(command, size);
    lead.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    lead
}

/// Starts an interactive lead on a script and sends the first prompt.
pub(crate) fn scripted_lead(team: &Team, lines: &[Value]) -> Terminal {
    scripted_lead_of_size(team, lines, ANY_SIZE)
}

/// Starts an interactive lead on a script in a terminal of this size, and sends the first prompt.
pub(crate) fn scripted_lead_of_size(team: &Team, lines: &[Value], size: Size) -> Terminal {
    let mut lead = lead_of_size(team, &script(team, lines), size);
    lead.type_line("begin");
    lead
}

/// Starts an interactive lead on a script that is already written, and sends the first prompt.
pub(crate) fn scripted_lead_on(team: &Team, model: &str) -> Terminal {
    let mut lead = lead(team, model);
    lead.type_line("begin");
    lead
}

/// Runs a headless lead to its end.
pub(crate) fn headless(team: &Team, model: &str, prompt: &str) -> CommandResult {
    team.team(&["lead", "-p", prompt, "--model", model])
}

/// Sends a signal.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Sends SIGSTOP to a member at a moment when it holds no lock but its life lock: a stopped holder of the
/// roster's lock would block the whole team.
pub(crate) fn stop_process(team: &Team, name: &str) {
    let pid = team.pid_of(name);
    team.eventually(&format!("{name} is stopped without a lock"), || {
        signal(pid, Signal::SIGSTOP);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        assert_ne!(state, Some('Z'), "{name} has exited");
        if state != Some('T') {
            return false;
        }
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let is_own = |line: &&str| {
            line.contains(" FLOCK ") && line.split(' ').any(|word| word == pid.to_string())
        };
        let is_free = locks.lines().filter(is_own).count() <= 1;
        if !is_free {
            signal(pid, Signal::SIGCONT);
        }
        is_free
    });
}

/// Sends SIGKILL to a member.
pub(crate) fn kill_9(team: &Team, name: &str) {
    signal(team.pid_of(name), Signal::SIGKILL);
}

/// Whether the lead, alice and bob are idle, shut down or absent, without unread mail.
pub(crate) fn all_idle(team: &Team) -> bool {
    // A member has unread mail until it is working. The roster is the same before and after the look at the mail.
    let roster = team.roster();
    let is_read = |name: &&str| {
        let inbox = fs::metadata(team.path(&format!("inbox/{name}.jsonl")));
        let is_own = |claim: &String| claim.starts_with(&format!("{name}."));
        inbox.is_ok_and(|inbox| inbox.len() == 0) && !team.open_claims().iter().any(is_own)
    };
    let is_idle = |name: &&str| matches!(&*team.status(name), "idle" | "shutdown" | "absent");
    let names = ["lead", "alice", "bob"];
    names.iter().all(is_idle) && names.iter().all(is_read) && team.roster() == roster
}

/// Waits until a program without a terminal has exited.
#[track_caller]
pub(crate) fn wait(team: &Team, program: &mut Child) -> Option<i32> {
    let mut ended = None;
    team.eventually("the program ends", || {
        ended = program.try_wait().unwrap();
        ended.is_some()
    });
    ended.and_then(|status| status.code())
}

/// Waits until a member runs a tool: a call of it has begun and has no result.
pub(crate) fn wait_tool(team: &Team, name: &str, tool: &str) {
    team.eventually(&format!("{name} runs {tool}"), || {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        let of_kind = |kind: &'static str| lines.iter().filter(move |line| line["kind"] == kind);
        of_kind("tool_start").filter(|line| line["name"] == tool).any(|started| {
            !of_kind("tool_result").any(|ended| ended["tool_use_id"] == started["tool_use_id"])
        })
    });
}

/// Waits until a file exists in the workspace.
pub(crate) fn wait_file(team: &Team, name: &str) -> PathBuf {
    let path = team.workspace().join(name);
    team.eventually(&format!("{name} is there"), || path.exists());
    path
}

/// Returns cause, code and signal of a member's last exit.
pub(crate) fn last_exit(team: &Team, name: &str) -> (String, Option<i64>, Option<i64>) {
    let exit = team.member(name)["last_exit"].clone();
    let cause = exit["cause"].as_str().unwrap_or("none").to_owned();
    (cause, exit["code"].as_i64(), exit["signal"].as_i64())
}

/// Returns the tool results of an agent: tool name, text, and whether it is an error.
pub(crate) fn tool_results(team: &Team, name: &str) -> Vec<(String, String, bool)> {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let of_kind = |kind: &'static str| lines.iter().filter(move |line| line["kind"] == kind);
    let tools: Vec<(&Value, &Value)> =
        of_kind("tool_start").map(|line| (&line["tool_use_id"], &line["name"])).collect();
    of_kind("tool_result")
        .map(|line| {
            let tool = tools.iter().find(|(id, _)| **id == line["tool_use_id"]);
            let tool = tool.and_then(|(_, name)| name.as_str()).unwrap_or("not started");
            let content = line["content"].as_str().unwrap_or_default();
            (tool.to_owned(), content.to_owned(), line["is_error"] == true)
        })
        .collect()
}

/// Returns every file in a folder with its length, and every subfolder.
pub(crate) fn listing(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let inside = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            if meta.is_dir() {
                folders.push(path);
                found.insert(inside + "/");
            } else {
                found.insert(format!("{inside} {}", meta.len()));
            }
        }
    }
    found
}

/// Asserts that no process runs, no claim with unread mail is left, and `.team` has only entries of the contract.
#[track_caller]
pub(crate) fn assert_left_in_order(team: &Team) {
    team.wait_no_process();
    let names = |inside: &str| -> Vec<String> {
        let entries = fs::read_dir(team.path(inside)).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let claims = team.open_claims();
    assert!(claims.is_empty(), "claims are left: {claims:?}\n{}", team.describe());
    let known = [
        ".gitignore",
        "attachments",
        "config.json",
        "config.json.bak",
        "dead",
        "inbox",
        "leases",
        "log",
        "roles",
        "run",
        "settings.toml",
        "tasks",
        "timers",
        "transcript",
        "undo",
    ];
    for name in names(".") {
        assert!(known.contains(&name.as_str()), "{name} is in .team");
    }
    for (folder, helpers, end) in [
        ("inbox", [".lock", ".claim"].as_slice(), ".jsonl"),
        ("dead", [".claim"].as_slice(), ".jsonl"),
        ("tasks", [".lock", ".archive"].as_slice(), ".json"),
        ("leases", [".lock"].as_slice(), ".json"),
        ("timers", [".lock"].as_slice(), ".json"),
        ("transcript", ["archive", "sub"].as_slice(), ".jsonl"),
        ("undo", ["objects"].as_slice(), ".jsonl"),
        ("run", [".state"].as_slice(), ".lock"),
        ("log", [".err", ".out", ".old"].as_slice(), ".jsonl"),
    ] {
        for name in names(folder) {
            let known = name.ends_with(end) || helpers.contains(&name.as_str());
            assert!(known, "{folder}/{name} is in .team");
        }
    }
}
