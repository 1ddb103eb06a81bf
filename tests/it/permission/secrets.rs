//! Credentials are only in the environment of the lead and in the headers of requests. Even if a model prints
//! them, they are in no file, in no output and in the environment of no other process.

use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{
    GEMINI, GEMINI_KEY, KEY, OTHER_KEY, agent_of, call, conversation, results, team_with_fake,
};
use crate::support::harness::Team;
use crate::support::terminal::Terminal;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A secret header value that does not look like a key.
const GATEWAY: &str = "gateway canary of the house";

/// A key of Google that another key makes superfluous.
const UNUSED_KEY: &str = "AIza-unused-canary-0123456789-key";

/// A substring of every secret that occurs nowhere else.
const MARK: &str = "canary";

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

fn assert_no_file_tells(team: &Team) {
    for file in files_below(&team.path("")) {
        let bytes = fs::read(&file).unwrap();
        assert!(!holds(&bytes), "{}:\n{}", file.display(), String::from_utf8_lossy(&bytes));
    }
}

/// The secrets of the lead, or those that a teammate on this model gets.
fn secrets(who: &str, model: &str) -> Vec<&'static str> {
    match (who, model) {
        ("lead", _) => vec![KEY, OTHER_KEY, GEMINI_KEY, UNUSED_KEY, GATEWAY],
        (_, "anthropic/fake") => vec![KEY, GATEWAY],
        (_, "openai/fake") => vec![OTHER_KEY, GATEWAY],
        (_, GEMINI) => vec![GEMINI_KEY, UNUSED_KEY, GATEWAY],
        _ => vec![],
    }
}

/// Replies of models that print every secret wherever possible: in text, calls, mail, and through a command.
fn blabber(view: &RequestView, model: &str) -> Reply {
    let who = agent_of(view);
    let secrets = secrets(&who, model).join(" and ");
    let order = json!({"name": "alice", "role": "spy", "prompt": format!("Look for {secrets}")});
    let spying = "env; touch here; until [ -e go ]; do sleep 0.02; done; \
        tr '\\0' '\\n' < /proc/$PPID/environ; cat found";
    match who.as_str() {
        "lead" if view.turn() == 0 => Reply::text(&format!("I know {secrets}")).tool(
            &format!("call-{}", view.number),
            "spawn_teammate",
            &order,
        ),
        "lead" => Reply::text(&format!("It is {secrets}, all know.")),
        _ if results(view).contains("Sent to") => Reply::text(&format!("I told of {secrets}")),
        _ if !view.results().is_empty() => {
            let content = format!("Here: {secrets}.");
            call(view, "send_message", &json!({"to": "lead", "content": content}))
        }
        _ => call(view, "bash", &json!({"command": spying})),
    }
}

/// Runs a team whose models print every secret, and asserts that none is disclosed. The model is one of the
/// Messages API, of chat completions, of the Gemini API, or of a local server, which must receive no secret.
fn assert_kept(model: &'static str) {
    let is_local = model.starts_with("local");
    let own = secrets("alice", model);
    // The first answer is an error that quotes the credentials.
    let told = own.join(" ");
    let play = move |view: &RequestView| match view.number {
        0 => Reply::error(500, "api_error", &format!("bad {told}")).header("retry-after", "0"),
        _ => blabber(view, model),
    };
    let team = Team::new();
    let fake = if is_local { Fake::local(play) } else { Fake::start(play) };
    // The keys of other providers are set as well.
    for (key, value) in [
        ("ANTHROPIC_API_KEY", KEY),
        ("OPENAI_API_KEY", OTHER_KEY),
        ("GOOGLE_API_KEY", GEMINI_KEY),
        ("GEMINI_API_KEY", UNUSED_KEY),
    ] {
        team.variable(key, value);
    }
    for provider in ["ANTHROPIC", "OPENAI", "GEMINI"] {
        team.variable(&format!("{provider}_CUSTOM_HEADERS"), &format!("X-House: {GATEWAY}"));
    }
    team.variable("ANTHROPIC_BASE_URL", &fake.base_url());
    team.variable("OPENAI_BASE_URL", &format!("{}/v1", fake.base_url()));
    team.variable("GEMINI_BASE_URL", &fake.base_url());
    if is_local {
        team.variable("TEAM_LOCAL_PORTS", &fake.port().to_string());
    }
    let found = own.join(" ");
    fs::File::create(team.workspace().join("found")).unwrap().write_all(found.as_bytes()).unwrap();
    let args = ["lead", "--model", model, "--mode", "bypass", "-p", "-", "--timeout", "600"];
    let mut lead = team.command("team", &[&args[..], &["--output", "stream-json"]].concat());
    lead.env("TEAM_PROMPT_PROFILE", "full");
    lead.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lead = lead.spawn().unwrap();
    let prompt = format!("My key is {KEY}; let alice look for it.");
    lead.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();

    team.eventually("alice's command runs", || team.workspace().join("here").exists());
    let running = team.processes();
    assert!(running.len() >= 4, "lead, alice, guard and command: {running:?}");
    for (pid, line) in running {
        assert!(!line.contains(MARK), "{line}");
        // An unprivileged user may not read the environment of a process that holds a key.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_lead = pid == i32::try_from(lead.id()).unwrap();
        assert!(is_lead || !holds(&environment), "{line}");
    }
    fs::File::create(team.workspace().join("go")).unwrap();

    let output = lead.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!holds(&output.stdout) && !holds(&output.stderr), "{output:?}");
    let hidden = |count: usize| vec!["[redacted]"; count].join(" and ");
    assert!(said.contains(&format!("It is {}, all know.", hidden(5))), "{said}");
    let told = format!("Here: {}.", hidden(own.len()));
    assert!(team.has_mail("lead", "alice", &told), "{}", team.describe());
    assert_no_file_tells(&team);
    for view in fake.requests() {
        let sent = |name: &str| view.headers.get(name).map_or("", String::as_str);
        let token = format!("Bearer {OTHER_KEY}");
        let expected = match model.split('/').next() {
            Some("anthropic") => [KEY, "", "", GATEWAY],
            Some("openai") => ["", &token, "", GATEWAY],
            Some("gemini") => ["", "", GEMINI_KEY, GATEWAY],
            _ => ["", "", "", ""],
        };
        let names = ["x-api-key", "authorization", "x-goog-api-key", "x-house"];
        assert_eq!(names.map(sent), expected);
        assert!(!view.target.contains(MARK), "{}", view.target);
        assert!(!conversation(&view).contains(MARK), "{}", conversation(&view));
    }
    team.wait_no_process();
}

#[test]
fn no_secret_leaves_the_lead() {
    assert_kept("anthropic/fake");
}

#[test]
fn no_secret_leaves_the_lead_over_chat_completions() {
    assert_kept("openai/fake");
}

#[test]
fn no_secret_leaves_the_lead_over_the_gemini_api() {
    assert_kept(GEMINI);
}

#[test]
fn a_local_server_receives_no_secret() {
    assert_kept("local");
}

/// Text that only looks like a key is not redacted: it may be a fixture, a placeholder or a file to be edited.
#[test]
fn text_that_only_looks_like_a_key_is_left_alone() {
    let (team, _fake) = team_with_fake(|view| match view.turn() {
        0 => {
            let content = "key = \"sk-ant-0123456789-fixture\"\n";
            call(view, "write_file", &json!({"path": "fixture.toml", "content": content}))
        }
        _ => Reply::text("done"),
    });
    crate::support::fake_models::headless(&team, "Write the fixture.", &[]).expect(0);
    let written = fs::read_to_string(team.workspace().join("fixture.toml")).unwrap();
    assert_eq!(written, "key = \"sk-ant-0123456789-fixture\"\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_holds_a_key_cannot_be_inspected() {
    use std::os::unix::fs::MetadataExt;
    // A lead on the rehearsal model holds the key for teammates on a real model.
    for model in ["anthropic/fake", "rehearsal"] {
        let (team, _fake) = team_with_fake(|_| Reply::text("hm"));
        let words = ["lead", "--model", model, "--mode", "bypass"];
        let mut lead = Terminal::start(team.command("team", &words));
        team.wait_status("lead", "idle");
        // A process that the kernel protects belongs to root in /proc.
        let environment = format!("/proc/{}/environ", lead.child.id());
        assert_eq!(fs::metadata(&environment).unwrap().uid(), 0, "{model}");
        if nix::unistd::geteuid().is_root() {
            println!("not shown as root: root may look into every process");
        } else {
            assert!(fs::read(&environment).is_err(), "{model}");
        }
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0));
        team.wait_no_process();
    }
}
