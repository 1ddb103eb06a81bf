//! The ends of `team acp`, and input that is no message of the protocol.

use crate::support::editor::Editor;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, says, script, signal, spawn, wait, wait_file,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Opens a session in which the lead and alice run commands.
fn at_work(team: &Team) -> Editor<'_> {
    let lines = [
        calls("lead", &[spawn("alice"), bash("touch lead-begun; sleep 600")]),
        calls("alice", &[bash("touch alice-begun; sleep 600")]),
    ];
    let mut editor = Editor::open(team, &script(team, &lines));
    editor.prompt("begin");
    wait_file(team, "lead-begun");
    wait_file(team, "alice-begun");
    editor
}

#[test]
fn the_end_of_the_input_ends_the_team() {
    let team = Team::new();
    let editor = at_work(&team);
    assert_eq!(editor.end(), Some(0));
    team.wait_no_process();
    assert_eq!((team.status("lead"), team.status("alice")), ("shutdown".into(), "shutdown".into()));
    assert_left_in_order(&team);
}

#[test]
fn sigterm_ends_the_team_and_answers_the_prompt() {
    let team = Team::new();
    let mut editor = at_work(&team);
    signal(team.pid_of("lead"), Signal::SIGTERM);
    assert_eq!(wait(&team, &mut editor.child), Some(143));
    let (_, why) = editor.error(3);
    assert!(why.contains("stopped by a signal"), "{why}");
    team.wait_no_process();
    assert_left_in_order(&team);
}

#[test]
fn sigkill_leaves_no_process() {
    let team = Team::new();
    let mut editor = at_work(&team);
    kill_9(&team, "lead");
    assert_eq!(wait(&team, &mut editor.child), None);
    team.wait_no_process();
    // The next lead takes the conversation up.
    let id = editor.session.clone();
    let lines = [says("lead", "begun"), says("lead", "here again")];
    let model = script(&team, &lines);
    let mut editor = Editor::start(&team, &["--model", &model]);
    editor.initialize();
    let mut params = editor.place();
    params["sessionId"] = json!(id);
    editor.call("session/load", &params);
    editor.wait_text("here again");
    assert_eq!(editor.updates("user_message_chunk").len(), 1);
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn an_input_without_a_session_ends_in_order_and_writes_nothing() {
    let team = Team::new();
    let mut editor = Editor::start(&team, &[]);
    editor.initialize();
    assert_eq!(editor.end(), Some(0));
    assert!(!team.path("").exists());
    let mut editor = Editor::start(&team, &[]);
    editor.initialize();
    signal(i32::try_from(editor.child.id()).unwrap(), Signal::SIGTERM);
    assert_eq!(wait(&team, &mut editor.child), Some(143));
}

#[test]
fn without_a_model_the_session_says_what_to_do() {
    let team = Team::new();
    let mut editor = Editor::start(&team, &[]);
    editor.initialize();
    let place = editor.place();
    let (code, why) = editor.refused("session/new", &place);
    assert!(code == -32_603 && why.contains("ANTHROPIC_API_KEY"), "{code} {why}");
    assert_eq!(editor.end(), Some(0));
}

/// Waits for the answer of this number, from 0, to a message without a usable id.
fn answer_without_id(editor: &Editor<'_>, number: usize) -> (i64, String) {
    let error = editor.find("an answer without an id", |all| {
        let is_it = |it: &&Value| it["id"].is_null() && it.get("error").is_some();
        all.iter().filter(is_it).nth(number).map(|it| it["error"].clone())
    });
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

#[test]
fn bad_input_gets_a_clear_word_and_nothing_is_lost() {
    let team = Team::new();
    let model = script(&team, &[says("lead", "still here")]);
    let mut editor = Editor::start(&team, &["--model", &model]);
    let junk = ["hello", "{\"id\":1,", "[]", "7"];
    let codes = [-32_700, -32_700, -32_600, -32_600];
    for line in junk {
        editor.write(line);
    }
    let told: Vec<i64> = (0..junk.len()).map(|at| answer_without_id(&editor, at).0).collect();
    assert_eq!(told, codes);
    editor.write("");
    editor.initialize();
    for method in ["fs/read_text_file", "session/delete", "no/such"] {
        let (code, why) = editor.refused(method, &json!({}));
        assert!(code == -32_601 && why.contains(method), "{code} {why}");
    }
    let prompt = json!({ "sessionId": "x", "prompt": [{ "type": "text", "text": "x" }] });
    assert_eq!(editor.refused("session/prompt", &prompt).0, -32_002);
    let opened = editor.call("session/new", &editor.place());
    editor.session = opened["sessionId"].as_str().unwrap().to_owned();
    // The same within a session, and a line that is longer than all that is taken.
    editor.write("not json");
    assert_eq!(answer_without_id(&editor, 4).0, -32_700);
    let long = "x".repeat(17 * 1024 * 1024);
    editor.write(&json!({ "jsonrpc": "2.0", "id": 99, "method": long }).to_string());
    let (code, why) = answer_without_id(&editor, 5);
    assert!(code == -32_600 && why.contains("16 MiB"), "{code} {why}");
    for (params, code) in [
        (json!({}), -32_602),
        (json!({ "sessionId": 7 }), -32_602),
        (json!({ "sessionId": "other", "prompt": [] }), -32_002),
        (json!({ "sessionId": editor.session, "prompt": [] }), -32_602),
        (
            json!({ "sessionId": editor.session, "prompt": [{ "type": "image", "data": "", "mimeType": "image/png" }] }),
            -32_602,
        ),
    ] {
        assert_eq!(editor.refused("session/prompt", &params).0, code, "{params}");
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":12345,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}"#,
        r#"{"jsonrpc":"2.0","id":"forged","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"other"}}"#,
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":4711}}"#,
        r#"{"jsonrpc":"2.0","method":"unknown/notification"}"#,
    ] {
        editor.write(line);
    }
    editor.say("are you there?");
    assert!(editor.text().contains("still here"), "{}", editor.text());
    assert_eq!(editor.end(), Some(0));
    assert_left_in_order(&team);
}
