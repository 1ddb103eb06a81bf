//! The sessions of `team acp`: list, load and resume, a second one, other folders, a second lead.

use crate::support::child_process::write;
use crate::support::editor::Editor;
use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::connect;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, lead, says, script, spawn, wait_file,
};
use serde_json::{Value, json};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns the parameters that open an earlier session.
fn earlier(editor: &Editor<'_>, id: &str) -> Value {
    let mut params = editor.place();
    params["sessionId"] = json!(id);
    params
}

#[test]
fn a_session_is_listed_and_loaded_after_its_end() {
    let team = Team::new();
    let lines = [calls("lead", &[bash("echo out")]), says("lead", "first answer")];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    editor.say("the first question");
    let id = editor.session.clone();
    assert_eq!(editor.end(), Some(0));
    let [first, second] = lines;
    let more = [first, second, says("lead", "second answer"), says("lead", "third answer")];
    let model = script(&team, &more);
    let mut editor = Editor::start(&team, &["--model", &model]);
    editor.initialize();
    let listed = editor.call("session/list", &json!({ "cwd": team.workspace() }));
    let one = &listed["sessions"][0];
    assert_eq!(
        (&one["sessionId"], &one["title"], &one["cwd"]),
        (&json!(id), &json!("the first question"), &json!(team.workspace()))
    );
    assert!(one["updatedAt"].as_str().unwrap().ends_with('Z'), "{one}");
    let params = earlier(&editor, "nosuchid");
    let (_, why) = editor.refused("session/load", &params);
    assert!(why.contains("there is no session \"nosuchid\""), "{why}");
    let params = earlier(&editor, &id);
    let loading = editor.request("session/load", &params);
    assert_eq!(editor.result(loading)["modes"]["currentModeId"], "bypass");
    // The conversation is told before the answer.
    let messages = editor.messages();
    let answer = messages.iter().position(|it| it["id"] == loading).unwrap();
    let told: Vec<&str> = messages[..answer]
        .iter()
        .filter_map(|it| it["params"]["update"]["sessionUpdate"].as_str())
        .collect();
    assert_eq!(told, ["user_message_chunk", "tool_call", "agent_message_chunk"]);
    assert_eq!(editor.updates("user_message_chunk")[0]["content"]["text"], "the first question");
    let call = &editor.updates("tool_call")[0];
    assert_eq!((&call["title"], &call["status"]), (&json!("bash: echo out"), &json!("completed")));
    editor.session.clone_from(&id);
    editor.say("the second question");
    assert!(editor.text().contains("second answer"), "{}", editor.text());
    // The open session can be loaded again; nothing is started for it.
    let pid = team.pid_of("lead");
    editor.call("session/load", &params);
    assert_eq!(editor.updates("user_message_chunk").len(), 3);
    let before = editor.updates("user_message_chunk").len();
    editor.call("session/resume", &params);
    assert_eq!((editor.updates("user_message_chunk").len(), team.pid_of("lead")), (before, pid));
    editor.say("the third question");
    assert_eq!(editor.end(), Some(0));
    let transcript = team.lines("transcript/lead.jsonl");
    assert_eq!(transcript.iter().filter(|line| line["kind"] == "user").count(), 3);
    assert_left_in_order(&team);
}

#[test]
fn a_second_session_follows_a_team_at_rest_and_not_one_at_work() {
    let team = Team::new();
    let command = "touch begun; until [ -e go ]; do sleep 0.05; done";
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash(command)]),
        says("alice", "done"),
        says("lead", "alice is done"),
    ];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    editor.say("begin");
    wait_file(&team, "begun");
    let place = editor.place();
    let (code, why) = editor.refused("session/new", &place);
    assert!(code == -32_600 && why.contains("at work: alice"), "{code} {why}");
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, why) =
        editor.refused("session/new", &json!({ "cwd": elsewhere.path(), "mcpServers": [] }));
    assert!(why.contains("this process leads the team in"), "{why}");
    write(&team.workspace().join("go"), "");
    editor.wait_text("alice is done");
    for name in ["lead", "alice"] {
        team.wait_status(name, "idle");
    }
    let first = editor.session.clone();
    script(&team, &[says("lead", "of the second")]);
    // A turn that mail has begun answers no prompt: the roster shows its end shortly before the session sees it.
    team.eventually("the second session opens", || {
        let id = editor.request("session/new", &place);
        let opened = editor.answer_to(id);
        let session = opened["result"]["sessionId"].as_str();
        editor.session = session.unwrap_or(&first).to_owned();
        editor.session != first
    });
    assert_eq!(team.status("alice"), "shutdown");
    let params = json!({ "sessionId": first, "prompt": [{ "type": "text", "text": "x" }] });
    let (code, why) = editor.refused("session/prompt", &params);
    assert!(code == -32_002 && why.contains("session/load"), "{code} {why}");
    editor.say("in the second");
    editor.wait_text("of the second");
    let mut lines = lines.to_vec();
    lines.push(says("lead", "of the first again"));
    script(&team, &lines);
    let params = earlier(&editor, &first);
    editor.call("session/load", &params);
    editor.session = first;
    editor.say("in the first again");
    editor.wait_text("of the first again");
    let params = json!({ "sessionId": editor.session });
    editor.call("session/close", &params);
    assert_eq!(team.status("lead"), "shutdown");
    let (code, _) = editor.refused("session/close", &params);
    assert_eq!(code, -32_002);
    let listed = editor.call("session/list", &json!({}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_second_session_follows_at_once_when_a_prompt_is_answered() {
    let team = Team::new();
    let inbox = team.path("inbox/.lock/lead");
    let held: Arc<Mutex<Option<File>>> = Arc::default();
    // The lead looks for mail after its turn, and cannot end that look while the inbox is locked.
    let (path, lock) = (inbox, Arc::clone(&held));
    let fake = Fake::start(move |_| {
        let file = File::open(&path).unwrap();
        fs4::FileExt::lock(&file).unwrap();
        *lock.lock().unwrap() = Some(file);
        Reply::text("done")
    });
    connect(&team, &fake);
    let mut editor = Editor::open(&team, "anthropic/fake");
    editor.say("begin");
    let (first, place) = (editor.session.clone(), editor.place());
    let opening = editor.request("session/new", &place);
    // A request that is accepted waits for the lock.
    let asked = Instant::now();
    team.eventually("a refusal had its time", || asked.elapsed() > Duration::from_millis(500));
    held.lock().unwrap().take();
    assert_ne!(editor.result(opening)["sessionId"], first.as_str());
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_folder_has_one_lead_and_the_refused_one_says_so() {
    let team = Team::new();
    let mut at_terminal = lead(&team, "rehearsal");
    let mut editor = Editor::start(&team, &["--model", "rehearsal"]);
    editor.initialize();
    let place = editor.place();
    let (code, why) = editor.refused("session/new", &place);
    assert!(code == -32_603 && why.contains("lead") && why.contains("pid"), "{code} {why}");
    at_terminal.type_line("/quit");
    assert_eq!(at_terminal.wait().code(), Some(0));
    // The same process can open it now.
    let opened = editor.call("session/new", &place);
    editor.session = opened["sessionId"].as_str().unwrap().to_owned();
    let refused = team.team(&["lead", "-p", "x", "--model", "rehearsal"]).expect(5);
    assert!(refused.err.contains("lead"), "{refused:?}");
    editor.say("What can you do?");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_folder_must_exist_and_belong_to_the_named_team() {
    let team = Team::new();
    let inside = team.workspace().join("src");
    std::fs::create_dir(&inside).unwrap();
    let mut editor = Editor::start(&team, &["--dir", ".team", "--model", "rehearsal"]);
    editor.initialize();
    let place = |cwd: Value| json!({ "cwd": cwd, "mcpServers": [] });
    for (cwd, why) in [
        (json!("src"), "must be an absolute path"),
        (json!(null), "`cwd` must be a text"),
        (json!("/no/such/folder"), "give a folder that exists"),
        (json!("/usr"), "it is not in"),
    ] {
        let (_, told) = editor.refused("session/new", &place(cwd));
        assert!(told.contains(why), "{told}");
    }
    let listed = editor.call("session/list", &json!({}));
    assert_eq!(listed, json!({ "sessions": [] }));
    let params = json!({ "cwd": inside, "mcpServers": [{ "name": "files", "command": "x", "args": [], "env": [] }] });
    let opened = editor.call("session/new", &params);
    editor.session = opened["sessionId"].as_str().unwrap().to_owned();
    editor.wait_text("MCP servers are not used here (files)");
    team.wait_status("lead", "idle");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}
