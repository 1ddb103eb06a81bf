//! Tests of whole turns of the rehearsal model: the texts, the calls that follow, the closing text.

use super::commands::{ALL, OWN};
use super::*;
use crate::llm::fixtures;
use crate::wire::chat::{ChatMessage, Role};
use proptest::prelude::*;

/// The tools of a lead, and of a teammate in a clone, which has all except the first four.
const TOOLS: &str = "spawn_teammate shutdown_teammate review_plan take_work submit_plan idle bash read_file \
    write_file edit_file send_message read_inbox list_teammates broadcast create_task list_tasks \
    claim_task update_task complete_task offer_work";

/// Runs a turn for each text. Returns the calls of the last turn as text, without `idle`, and its closing text.
fn play(me: &str, texts: &[&str]) -> (Vec<String>, String) {
    let names = TOOLS.split_whitespace().skip(if me == "lead" { 0 } else { 4 });
    let tools = names.map(|name| fixtures::tool(name, json!({}))).collect();
    let system = format!("Your name is {me}.\n");
    let mut request = Request { system, tools, ..fixtures::request(vec![]) };
    let provider = Rehearsal::new("t");
    let mut last = Default::default();
    for text in texts {
        let (mut calls, mut blocks) = (Vec::new(), vec![fixtures::text(text)]);
        last = loop {
            assert!(calls.len() < 200, "no end: {text}");
            request.messages.push(ChatMessage { role: Role::User, blocks });
            let reply = provider.reply(&request);
            let own = ChatMessage { role: Role::Assistant, blocks: reply.blocks.clone() };
            request.messages.push(own);
            let Some(Block::ToolUse { id, name, input }) = reply.blocks.first() else {
                break (calls, reply.text());
            };
            assert!(request.tools.iter().any(|tool| tool.name == *name), "{name} is not offered");
            if name == "idle" {
                break (calls, String::new());
            }
            calls.push(format!("{name} {input}"));
            let long = "x".repeat(5_000);
            let content = if name == "create_task" { "Created task 7." } else { &long };
            blocks = vec![fixtures::result(id, content, false)];
        };
    }
    last
}

fn mail(kind: &str, from: &str, content: &str) -> String {
    let mail = json!([{"type": kind, "from": from, "content": content, "id": content,
        "plan": content, "request_id": format!("{from}:1"), "task_id": "3", "subject": content,
        "description": "", "assigned_by": "lead", "outcome": "done"}]);
    format!("<inbox>\n{mail}\n</inbox>")
}

/// The table in docs/rehearsal.md must have every example with its calls.
#[test]
fn every_example_makes_the_calls_of_the_document() {
    let document = include_str!("../../../docs/rehearsal.md");
    for (example, ..) in OWN.iter().chain(ALL) {
        let plans = ["dana", "ed"].map(|name| mail("plan_approval_request", name, "1. run it"));
        let (calls, _) = play("lead", &[&plans[0], &plans[1], example]);
        let calls: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
        let row = format!("| {example} | {} |\n", calls.join("<br>"));
        assert!(document.contains(&row), "docs/rehearsal.md has no row\n{row}");
        assert!(play("lead", &["help"]).1.contains(example), "{example}");
    }
}

#[test]
fn commands_of_one_text_are_carried_out_in_order() {
    for case in [
        "ssl: Spawn ann and ben. Bake a cake, then show the team",
        "ssl: spawn ann (coder), then ask her to run `a` and run `b`, and show the team",
        "bbs: Could you please run `a`; run `b` and then tell ann \"a. b; c\", please?",
        "sss: Ask ann to write a.txt and ask ben to read it. Send him a message.",
        "ssssl: Spawn ann and ben. Dismiss everyone and show who is left",
    ] {
        let (tools, text) = case.split_once(": ").unwrap();
        let (calls, _) = play("lead", &[text]);
        let letters: String = calls.iter().filter_map(|call| call.chars().next()).collect();
        assert_eq!(letters, tools, "{text}: {calls:?}");
    }
    let (calls, _) = play("lead", &["Create a.py that greets, then have ann read it."]);
    assert_eq!(calls[1], r#"send_message {"to":"ann","content":"Read a.py."}"#);
}

/// Each line of the test forbids something, depends on something, or is not a command.
#[test]
fn text_that_matches_no_template_is_reported_and_not_executed() {
    let lines = "Don't shut down ben and ann\nIf a.txt exists, run `date`\nbake a cake\nread it\n\
        Please do not run `a`, and run `b`\nShut down ben when he is ready, then run `date`\n\
        Create a.txt with \"x\" if it is missing\nrun ./deploy.sh when the tests pass\n🦀\n\
        Complete task 3 once ben is done\nSpawn ann (coder) unless ben is there\nstop ben from it";
    for text in lines.lines() {
        let (calls, told) = play("lead", &[text]);
        assert_eq!(calls, [""; 0], "{text}");
        for part in ["Not understood: \"", "not a language model", "ANTHROPIC_API_KEY"] {
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}

#[test]
fn only_orders_of_lead_and_user_are_obeyed() {
    let cases = "ann message lead 1\nann message user 1\nann broadcast lead 1\nann message ben 0\n\
        ann result lead 0\nlead message user 0\nann task_assignment lead 2\n\
        ann task_assignment system 2\nann task_assignment ben 0";
    for case in cases.lines() {
        let [me, kind, from, count] = case.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let (calls, told) = play(me, &[&mail(kind, from, "Run `date`.")]);
        assert_eq!(calls.len().to_string(), count, "{case}: {calls:?}");
        assert_eq!(told.contains("characters more"), count != "0", "{case}: {told}");
        assert_eq!(told.contains("user (message): Run `date`."), me == "lead", "{case}: {told}");
    }
    let nothing = (vec![], String::new());
    assert_eq!(play("ann", &[&mail("broadcast", "lead", "lunch")]), nothing);
    assert_eq!(play("ann", &[&mail("message", "lead", "You are ann. Wait for me.")]), nothing);
}

proptest! {
    #[test]
    fn every_text_leads_to_calls_or_to_words(
        text in any::<String>(), words in prop::collection::vec(prop::sample::select(words()), 0..25),
    ) {
        for text in [text, words.join(" ")] {
            for (me, texts) in [("lead", [text.clone()]), ("ann", [mail("message", "lead", &text)])] {
                let (calls, told) = play(me, &texts.each_ref().map(String::as_str));
                prop_assert!(me == "ann" || !calls.is_empty() || !told.is_empty(), "{}", text);
            }
        }
    }
}

fn words() -> Vec<&'static str> {
    OWN.iter().chain(ALL).flat_map(|(example, ..)| example.split(' ')).collect()
}
