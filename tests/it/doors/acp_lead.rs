//! `team acp`: an editor drives a lead: prompts, questions, cancellation, modes.

use crate::support::approvals::{careful_team, requests, wait_asked};
use crate::support::child_process::write;
use crate::support::editor::Editor;
use crate::support::fake::Reply;
use crate::support::fake_models::team_with_fake;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, bash, calls, says, script, spawn, wait_file};
use serde_json::{Value, json};

fn write_file(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

#[test]
fn a_prompt_streams_text_and_shows_a_call_with_its_change() {
    let team = careful_team();
    let model = script(
        &team,
        &[
            calls("lead", &[("read_file", json!({ "path": "notes.txt" }))]),
            calls("lead", &[write_file("notes.txt", "new\n")]),
            says("lead", "It is written."),
        ],
    );
    write(&team.workspace().join("notes.txt"), "old\n");
    let mut editor = Editor::start(&team, &["--model", &model]);
    let told = editor.initialize();
    assert_eq!((&told["protocolVersion"], &told["authMethods"]), (&json!(1), &json!([])));
    let can = &told["agentCapabilities"];
    let sessions = json!({ "list": {}, "resume": {}, "close": {} });
    assert_eq!((&can["loadSession"], &can["sessionCapabilities"]), (&json!(true), &sessions));
    assert_eq!(can["promptCapabilities"]["embeddedContext"], true);
    let opened = editor.call("session/new", &editor.place());
    editor.session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "default");
    let blocks = json!([{ "type": "text", "text": "Look at " },
        { "type": "resource_link", "name": "a", "uri": "file:///w/a.rs" },
        { "type": "resource", "resource": { "uri": "file:///w/b.rs", "text": "fn b() {}" } }]);
    let params = json!({ "sessionId": editor.session, "prompt": blocks });
    let prompt = editor.request("session/prompt", &params);
    let (question, asked) = editor.question(0);
    let path = team.workspace().join("notes.txt").display().to_string();
    let diff = json!([{ "type": "diff", "path": path, "oldText": "old\n", "newText": "new\n" }]);
    let call = &asked["toolCall"];
    assert_eq!((&call["content"], &call["kind"]), (&diff, &json!("edit")));
    assert_eq!(call["locations"][0]["path"], path);
    let options: Vec<&str> = asked["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert_eq!(options, ["allow_once", "allow_always", "reject_once"]);
    editor.choose(&question, "allow_once");
    assert_eq!(editor.stop_reason(prompt), "end_turn");
    let made = editor.tool_call(call["toolCallId"].as_str().unwrap());
    assert_eq!((&made["status"], &made["content"]), (&json!("completed"), &diff));
    assert_eq!(made["rawInput"]["content"], "new\n");
    assert!(editor.text().contains("It is written."), "{}", editor.text());
    let read = &editor.updates("tool_call")[0];
    assert_eq!((&read["kind"], &read["locations"][0]["path"]), (&json!("read"), &json!(path)));
    // All that belongs to the turn comes before its answer.
    let messages = editor.messages();
    let at = |is_it: &dyn Fn(&Value) -> bool| messages.iter().position(is_it).unwrap();
    let call = &call["toolCallId"];
    let done = at(&|it| {
        let update = &it["params"]["update"];
        update["toolCallId"] == *call && update["status"] == "completed"
    });
    assert!(done < at(&|it| it["id"] == prompt && it["result"]["stopReason"] == "end_turn"));
    let said = team.lines("transcript/lead.jsonl");
    let said = said.iter().find(|line| line["kind"] == "user").unwrap();
    assert_eq!(said["content"], "Look at `/w/a.rs``/w/b.rs`\n\n/w/b.rs:\n```\nfn b() {}\n```");
    assert_eq!(editor.updates("session_info_update")[0]["title"], "Look at `/w/a.rs``/w/b.rs`");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn the_questions_of_all_members_are_asked_and_each_answer_counts() {
    let team = careful_team();
    let lines = [
        calls("lead", &[bash("touch refused"), bash("touch wanted"), spawn("alice")]),
        says("lead", "alice works"),
        calls("alice", &[bash("touch hers"), bash("touch hers")]),
        says("alice", "I have made it."),
        says("lead", "alice is done"),
    ];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    let prompt = editor.prompt("begin");
    let (first, asked) = editor.question(0);
    assert_eq!(asked["toolCall"]["title"], "bash: touch refused");
    editor.choose(&first, "reject_once");
    let (second, _) = editor.question(1);
    editor.choose(&second, "allow_once");
    assert_eq!(editor.stop_reason(prompt), "end_turn");
    assert!(team.workspace().join("wanted").exists());
    assert!(!team.workspace().join("refused").exists());
    // No prompt runs: the teammate's question is asked all the same, and its answer makes a rule.
    let (third, asked) = editor.question(2);
    assert_eq!(asked["toolCall"]["title"], "alice: bash: touch hers");
    let always = asked["options"][1]["name"].as_str().unwrap();
    assert!(always.contains("bash(touch hers)"), "{always}");
    editor.choose(&third, "allow_always");
    wait_file(&team, "hers");
    editor.wait_text("**alice → lead:** I have made it.");
    editor.wait_text("alice is done");
    assert_eq!(editor.questions(), 3);
    assert!(editor.text().contains("**alice** joins"), "{}", editor.text());
    let call = editor.tool_call(asked["toolCall"]["toolCallId"].as_str().unwrap());
    assert_eq!(call["status"], "completed");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_question_that_is_answered_elsewhere_is_taken_back() {
    let team = careful_team();
    let lines = [calls("lead", &[bash("touch made")]), says("lead", "done")];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    let prompt = editor.prompt("begin");
    let (question, _) = editor.question(0);
    // Answers that select nothing that was offered, or that nobody has asked for, decide nothing.
    editor.choose(&json!(77), "allow_once");
    editor.choose(&json!("x"), "allow_once");
    let id = wait_asked(&team, "lead");
    assert_eq!(requests(&team).len(), 1);
    team.team(&["approve", &id]).expect(0);
    assert_eq!(editor.stop_reason(prompt), "end_turn");
    let taken_back = editor.find("the question is taken back", |all| {
        all.iter().find(|it| it["method"] == "$/cancel_request").cloned()
    });
    assert_eq!(taken_back["params"]["requestId"], question);
    assert!(team.workspace().join("made").exists());
    editor.choose(&question, "reject_once");
    editor.say("/team");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_forged_option_decides_nothing_and_the_next_prompt_asks_again() {
    let team = careful_team();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch made")]),
        says("alice", "made"),
        says("lead", "seen"),
    ];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    editor.say("begin");
    let (first, _) = editor.question(0);
    editor.choose(&first, "allow_everything");
    editor.wait_text("**alice** still waits for an answer");
    assert!(!team.workspace().join("made").exists());
    editor.say("/team");
    let (second, _) = editor.question(1);
    assert_ne!(first, second);
    editor.choose(&second, "allow_once");
    wait_file(&team, "made");
    editor.wait_text("seen");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_cancellation_ends_the_command_and_the_question_and_the_session_goes_on() {
    let team = Team::new();
    let lines = [
        calls("lead", &[bash("touch begun; sleep 600")]),
        calls("lead", &[bash("touch asked")]),
        says("lead", "after that"),
    ];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    let prompt = editor.prompt("begin");
    wait_file(&team, "begun");
    // This one is not in the conversation yet, and never will be.
    let second = editor.prompt("and this");
    editor.cancel();
    assert_eq!(editor.stop_reason(prompt), "cancelled");
    assert_eq!(editor.stop_reason(second), "cancelled");
    let is_sleeping = |(_, line): &(i32, String)| line.contains("sleep 600");
    team.eventually("the command is ended", || !team.processes().iter().any(is_sleeping));
    let transcript = team.lines("transcript/lead.jsonl");
    let prompts = transcript.iter().filter(|line| line["kind"] == "user").count();
    assert_eq!(prompts, 1);
    let session = json!({ "sessionId": editor.session, "modeId": "default" });
    editor.call("session/set_mode", &session);
    let prompt = editor.prompt("again");
    let (question, _) = editor.question(0);
    editor.cancel();
    editor.answer(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(editor.stop_reason(prompt), "cancelled");
    assert!(!team.workspace().join("asked").exists());
    // A cancellation without a turn has no effect on the next prompt.
    editor.cancel();
    editor.say("go on");
    assert!(editor.text().contains("after that"), "{}", editor.text());
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_prompt_during_a_turn_is_taken_in_and_both_are_answered() {
    let team = Team::new();
    let command = "touch begun; until [ -e go ]; do sleep 0.05; done";
    let lines = [calls("lead", &[bash(command)]), says("lead", "both are done")];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    let first = editor.prompt("one");
    wait_file(&team, "begun");
    let second = editor.prompt("two");
    // The answer to this request shows that the prompt before it was handled.
    editor.call("session/list", &json!({}));
    write(&team.workspace().join("go"), "");
    assert_eq!(editor.stop_reason(first), "end_turn");
    assert_eq!(editor.stop_reason(second), "end_turn");
    let transcript = team.lines("transcript/lead.jsonl");
    let kinds: Vec<&str> = transcript.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|it| **it == kind).count();
    assert_eq!((count("user"), count("turn_end")), (2, 1), "{kinds:?}");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn with_wait_a_prompt_is_answered_when_the_team_rests_or_it_is_cancelled() {
    let team = Team::new();
    let command = |go: &str| format!("touch {go}-begun; until [ -e {go} ]; do sleep 0.05; done");
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash(&command("one"))]),
        says("alice", "the first is done"),
        says("lead", "alice is done"),
        calls("lead", &[("send_message", json!({ "to": "alice", "content": "again" }))]),
        says("lead", "told"),
        calls("alice", &[bash(&command("two"))]),
        says("alice", "the second is done"),
    ];
    let mut editor = Editor::open_with(&team, &script(&team, &lines), &["--wait"]);
    let prompt = editor.prompt("begin");
    wait_file(&team, "one-begun");
    editor.wait_text("spawned");
    write(&team.workspace().join("one"), "");
    assert_eq!(editor.stop_reason(prompt), "end_turn");
    assert!(editor.text().contains("alice is done"), "{}", editor.text());
    let prompt = editor.prompt("once more");
    wait_file(&team, "two-begun");
    editor.wait_text("told");
    team.wait_status("lead", "idle");
    editor.cancel();
    assert_eq!(editor.stop_reason(prompt), "cancelled");
    // The teammate goes on.
    write(&team.workspace().join("two"), "");
    editor.wait_text("the second is done");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn reasoning_is_told_as_thoughts_and_a_failed_turn_is_an_error() {
    let (team, _fake) = team_with_fake(|view| {
        if view.last_text().contains("begin") {
            return Reply::message()
                .thinking("hm, let me see", "c2ln")
                .block(json!({ "type": "text", "text": "I see." }));
        }
        Reply::error(401, "authentication_error", "invalid x-api-key")
    });
    let mut editor = Editor::open(&team, "anthropic/fake");
    editor.say("begin");
    let thoughts = editor.updates("agent_thought_chunk").into_iter();
    let thoughts: String =
        thoughts.map(|chunk| chunk["content"]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!((thoughts.as_str(), editor.text().as_str()), ("hm, let me see", "I see."));
    let usage = editor.updates("usage_update");
    assert!(usage[0]["used"].as_u64().unwrap() <= usage[0]["size"].as_u64().unwrap());
    let failing = editor.prompt("go on");
    let (code, why) = editor.error(failing);
    assert!(code == -32_603 && why.contains("401"), "{code} {why}");
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn modes_and_commands_work_and_the_editor_knows_the_mode() {
    let team = careful_team();
    let lines = [calls("lead", &[bash("touch free")]), says("lead", "done")];
    let mut editor = Editor::open(&team, &script(&team, &lines));
    let mode = |editor: &Editor<'_>, id: &str| json!({ "sessionId": editor.session, "modeId": id });
    let params = mode(&editor, "bypass");
    editor.call("session/set_mode", &params);
    team.eventually("the roster has the mode", || team.roster()["lead"]["mode"] == "bypass");
    editor.say("begin");
    assert!(team.workspace().join("free").exists());
    assert_eq!(editor.questions(), 0);
    let params = mode(&editor, "wild");
    let (code, why) = editor.refused("session/set_mode", &params);
    assert!(code == -32_602 && why.contains("accept_edits"), "{code} {why}");
    editor.say("/mode plan");
    editor.find("the editor is told of the mode", |_| {
        let told = editor.updates("current_mode_update");
        told.iter().any(|it| it["currentModeId"] == "plan").then_some(())
    });
    let offered = editor.updates("available_commands_update");
    let names = offered[0]["availableCommands"].as_array().unwrap();
    assert!(names.iter().any(|it| it["name"] == "team"), "{offered:?}");
    editor.say("/team");
    assert!(editor.text().contains("NAME"), "{}", editor.text());
    editor.say("/nonsense");
    editor.wait_text("/nonsense is not a command");
    editor.say("!ls");
    editor.wait_text("editor's terminal");
    // None of these was for the model.
    let transcript = team.lines("transcript/lead.jsonl");
    assert_eq!(transcript.iter().filter(|line| line["kind"] == "user").count(), 1);
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn other_commands_work_beside_it_and_mail_wakes_the_lead_without_a_prompt() {
    let team = Team::new();
    let lines = [says("lead", "I have read it."), says("lead", "and the task")];
    let editor = Editor::open(&team, &script(&team, &lines));
    team.wait_status("lead", "idle");
    let listed = team.team(&["ls", "--json"]).expect(0).json();
    assert_eq!(listed["lead"]["status"], "idle", "{listed:#}");
    team.team(&["send", "lead", "the build is green"]).expect(0);
    editor.wait_text("**user → lead:** the build is green");
    editor.wait_text("I have read it.");
    team.team(&["task", "add", "Write the page"]).expect(0);
    let entry = editor.find("the plan has the task", |_| {
        editor.updates("plan").last().map(|plan| plan["entries"][0].clone())
    });
    assert_eq!(
        (&entry["content"], &entry["status"]),
        (&json!("Write the page"), &json!("pending"))
    );
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}
