//! The page in a browser: requests that are answered only after they were shown, the order of messages, a narrow
//! window, and the state of the connection.

use crate::support::approvals::{careful_team, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{bash, calls, says, scripted_lead, spawn, wait_file};
use crate::support::terminal::Terminal;
use crate::ui::browser::Browser;
use crate::ui::web::Page;
use serde_json::{Value, json};

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_request_is_approved_in_the_page_only_after_all_of_it_was_shown() {
    let Some(browser) = Browser::start() else { return };
    let team = careful_team();
    let mut command: Vec<String> = (0..100).map(|line| format!(": {line};")).collect();
    command.insert(50, "touch 'hid\u{202e}den'".into());
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash(&command.join("\n")), bash("touch short")]),
        says("alice", "over"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    wait_asked(&team, "alice");
    let page = Page::open(&team, &["--control"]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("document.querySelector('#requests [data-order=approve]')");
    browser.wait("document.title === '(1) team'");
    let text = || browser.run("return document.getElementById('requests').innerText;");
    let shown = text().as_str().unwrap().to_owned();
    assert!(shown.contains(": 0;") && shown.contains(": 99;"), "both ends: {shown}");
    assert!(!shown.contains("touch") && shown.contains("61 lines are left out here"), "{shown}");
    let click = |what: &str| {
        browser.run(&format!("document.querySelector('#requests {what}').click();"));
    };
    assert_eq!(
        browser.run("return document.querySelector('[data-order=approve]').disabled;"),
        true
    );
    click("[data-order=approve]");
    click(".gap button");
    assert!(text().as_str().unwrap().contains("touch 'hid<U+202E>den'"), "{}", text());
    assert!(!team.workspace().join("hid\u{202e}den").exists());
    click("[data-order=approve]");
    browser.wait("document.getElementById('requests').innerText.includes('touch short')");
    assert!(team.workspace().join("hid\u{202e}den").exists());
    browser.size(500, 1500);
    browser.assert_no_fault("an open request");
    click("[data-order=approve]");
    browser.wait("document.title === 'team' && !document.getElementById('no-requests').hidden");
    assert_eq!(browser.complaints(), Vec::<Value>::new(), "the console complains");
    drop(browser);
    page.close();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_page_claims_only_what_it_knows() {
    let Some(browser) = Browser::start() else { return };
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let lead = json!({ "name": "lead", "status": "idle" });
    let members =
        json!([{ "name": "alice", "status": "idle" }, { "name": "bob", "status": "idle" }]);
    let roster = json!({ "version": 1, "team_name": "t", "lead": lead, "members": members });
    write(&team.path("config.json"), serde_json::to_string_pretty(&roster).unwrap());
    // Bob has the oldest and the newest message, alice the one in between.
    for (name, at) in [("alice", &[200][..]), ("bob", &[100, 300])] {
        let line = |at: &i32| {
            let hash = "00112233445566778899aabbccddeeff";
            let files = json!([{ "path": "/t/data.csv", "bytes": 6, "hash": hash },
                { "path": "/t/gone.csv", "bytes": 3, "hash": hash, "missing": true }]);
            let message = json!({ "type": "message", "from": "lead", "id": format!("lead:{at}"),
                "content": format!("at {at}"), "timestamp": at, "attachments": files });
            format!(
                "{}\n",
                json!({ "kind": "mail", "at": at, "gen": "000000000001-00000000",
                "offset": at, "message": message })
            )
        };
        write(
            &team.path(&format!("transcript/{name}.jsonl")),
            at.iter().map(line).collect::<String>(),
        );
    }
    let page = Page::open(&team, &[]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("document.querySelectorAll('#mail li').length === 3");
    let order = "return [...document.querySelectorAll('#mail .one')].map((it) => it.textContent);";
    assert_eq!(browser.run(order), json!(["at 300", "at 200", "at 100"]));
    browser.wait("[...document.querySelectorAll('#mail time')].every((it) => /\\d:\\d/.test(it.textContent))");
    browser.wait("document.getElementById('underway').textContent === 'all have arrived'");
    team.team(&["send", "user", "unread", "--from", "lead"]).expect(0);
    browser.wait("document.getElementById('underway').textContent === '1 on their way'");
    assert_eq!(browser.run("return document.querySelector('.config details').open;"), false);

    // In a narrow window, a member leads to its conversation.
    browser.size(500, 600);
    let is_seen = "(({ top }) => top >= 0 && top < innerHeight - 20)\
        (document.getElementById('h-talk').getBoundingClientRect())";
    assert_eq!(browser.run(&format!("return {is_seen};")), false);
    browser.run("document.querySelector('[data-name=bob]').click();");
    browser.wait(is_seen);
    browser.wait("document.getElementById('h-talk').textContent === 'Conversation of bob'");
    for said in ["\\/t\\/data.csv, 6 bytes", "gone.csv, which its host has no more"] {
        browser
            .wait(&format!("/attached: {said}/.test(document.getElementById('talk').textContent)"));
    }

    page.close();
    browser.wait("/^no connection since \\d+:.*trying again/.test(document.getElementById('link').textContent)");
    browser.wait("/^at \\d+:.* alive/.test(document.getElementById('totals').textContent)");
    // Without the events of the server nothing is known, hence nothing is said.
    let other = Page::open(&team, &[]);
    let html = other.get("/").body;
    let hidden = ["no-mail", "no-tasks", "no-requests"];
    let is_hidden = |id: &str| html.contains(&format!("id=\"{id}\" class=\"muted\" hidden"));
    assert!(hidden.into_iter().all(is_hidden), "{html}");
    assert!(html.contains("<p id=\"totals\" class=\"muted\"></p>"));
    drop(browser);
    other.close();
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_page_teaches_without_control_and_starts_a_teammate_with_it() {
    let Some(browser) = Browser::start() else { return };
    let team = Team::new();
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", "rehearsal"]));
    lead.expect("/quit ends the team");
    let page = Page::open(&team, &[]);
    browser.call("POST", "/url", &json!({ "url": format!("{}#steps", page.url()) }));
    browser.wait("document.getElementById('example-step').textContent.startsWith('1 of 7: Send')");
    let click = |id: &str| browser.run(&format!("document.getElementById('{id}').click();"));
    let files = || browser.run("return document.getElementById('example-files').innerText;");
    for (name, file) in [
        ("Lock", "held by alice"),
        ("Append", "\"content\":\"Hello bob, this is alice.\""),
        ("Stored", "free"),
        ("Drain", "inbox/.claim/bob."),
        ("Acknowledge", "\"kind\":\"mail\""),
        ("Clean up", "is gone"),
    ] {
        click("example-next");
        let step = browser.run("return document.getElementById('example-step').textContent;");
        assert!(step.as_str().unwrap().contains(name), "{step}");
        assert!(files().as_str().unwrap().contains(file), "{name}: {}", files());
    }
    click("example-play");
    browser.wait("document.getElementById('example-step').textContent.startsWith('2 of 7')");
    click("example-play");

    browser.run("location.hash = '#compare';");
    let answers = ["subagent", "teammate", "subagent", "teammate", "teammate", "teammate"];
    for (number, answer) in answers.into_iter().enumerate() {
        browser.run(&format!(
            "document.querySelector('[name=scenario-{number}][value={answer}]').click();"
        ));
    }
    browser.wait("document.getElementById('score').textContent === '5 of 6 right.'");
    browser.wait("document.querySelectorAll('#scenarios .wrong').length === 1");
    for page in ["steps", "compare"] {
        browser.run(&format!("location.hash = '#{page}';"));
        browser.size(500, 900);
        browser.assert_no_fault(page);
    }
    assert_eq!(browser.run("return document.getElementById('spawning').hidden;"), true);
    page.close();

    let page = Page::open(&team, &["--control"]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("document.querySelectorAll('#roster button').length === 1");
    let fill = |name: &str, prompt: &str| {
        browser.run(&format!(
            "document.querySelector('#spawning').open = true; \
             for (const [field, text] of [['name', {}], ['role', 'coder'], ['prompt', {}]]) \
             document.getElementById('spawn-' + field).value = text; \
             document.querySelector('#spawn [type=submit]').click();",
            json!(name),
            json!(prompt)
        ));
    };
    fill("Not A Name", "Say hello");
    browser.wait("document.querySelector('#spawned.bad')?.textContent.includes('Not A Name')");
    browser.assert_no_fault("a refused start");
    fill("alice", "Say hello");
    browser.wait("document.getElementById('spawned').textContent.startsWith('Spawned alice')");
    browser.wait("document.querySelectorAll('#roster button').length === 2");
    // The console reports the refused order and the end of the first server, and nothing else.
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|it| it["source"] == "network"), "{complaints:?}");
    drop(browser);
    page.close();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_subagent_is_a_branch_of_its_caller_whose_conversation_is_shown() {
    let Some(browser) = Browser::start() else { return };
    let team = Team::new();
    let replies = [
        calls("lead", &[("run_subagent", json!({ "task": "look around" }))]),
        says("lead", "it has looked"),
        calls("lead:1", &[bash("touch looks; until [ -e go ]; do sleep 0.05; done")]),
        says("lead:1", "all is well"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    wait_file(&team, "looks");
    let page = Page::open(&team, &[]);
    browser.call("POST", "/url", &json!({ "url": page.url() }));
    browser.wait("/lead:1 bash/.test(document.querySelector('#roster .branch')?.textContent)");
    browser
        .wait("/subagent lead:1: look around/.test(document.getElementById('talk').textContent)");
    browser.run("document.querySelector('#roster .branch').click();");
    browser.wait("document.getElementById('h-talk').textContent === 'Conversation of lead:1'");
    write(&team.workspace().join("go"), b"");
    browser.wait("/all is well/.test(document.getElementById('talk').textContent)");
    browser.wait("!document.querySelector('#roster .branch')");
    browser.assert_no_fault("with a subagent");
    lead.type_line("/quit");
    assert!(lead.wait().success());
    page.close();
}
