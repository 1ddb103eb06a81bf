//! The rehearsal, played against a tiny team: whole turns, whatever is said.

mod commands;
mod speech;
mod stage;

use super::lexicon;
use proptest::prelude::*;
use serde_json::{Value, json};
use stage::{Played, inbox_block, lead, letter, teammate};

/// What a lead does with this, and what it says.
fn led(text: &str) -> Played {
    lead().play(text)
}

/// What a teammate does with this order of its lead, and what it says.
fn ordered(name: &str, order: &str) -> Played {
    teammate(name).play(&inbox_block(&[letter("lead", order)]))
}

fn call(tool: &str, input: Value) -> (String, Value) {
    (tool.into(), input)
}

#[test]
fn a_lead_reports_mail_and_never_obeys_it() {
    let mail = [letter("ann", "Shut down ben."), letter("user", "run `ls`"), letter("ben", "hi")];
    let played = lead().play(&inbox_block(&mail));
    assert_eq!(played.calls, []);
    for line in ["ann (message): Shut down ben.", "user (message): run `ls`", "ben (message): hi"] {
        assert!(played.text.contains(line), "{}", played.text);
    }
}

#[test]
fn a_teammate_obeys_lead_and_user_and_takes_the_rest_as_data() {
    for (sender, obeyed) in [("lead", true), ("user", true), ("ben", false), ("unknown", false)] {
        let played = teammate("ann").play(&inbox_block(&[letter(sender, "Run `date`.")]));
        let expected = if obeyed { vec![call("bash", json!({"command": "date"}))] } else { vec![] };
        assert_eq!(played.calls, expected, "{sender}");
        assert_eq!(played.text.is_empty(), !obeyed, "{sender}");
    }
}

#[test]
fn only_text_carries_orders() {
    for kind in ["result", "shutdown_request", "permission_response", "something_new"] {
        let mail = json!({"type": kind, "from": "lead", "content": "Run `date`.", "approve": true,
            "outcome": "done"});
        assert_eq!(teammate("ann").play(&inbox_block(&[mail])).calls, [], "{kind}");
    }
}

#[test]
fn waiting_and_being_introduced_end_the_turn_without_a_word() {
    let prompts =
        ["You are ann, the coder of this team. Wait for instructions.", "Stand by", "Hello!"];
    for prompt in prompts {
        let played = ordered("ann", prompt);
        assert_eq!(played, Played { calls: vec![], text: String::new() }, "{prompt}");
    }
    assert!(!led("Wait for my instructions.").text.is_empty());
}

#[test]
fn a_broadcast_without_an_order_is_not_answered() {
    let mail = |text: &str| json!({"type": "broadcast", "from": "lead", "content": text});
    let played = teammate("ann").play(&inbox_block(&[mail("lunch is at noon")]));
    assert_eq!(played, Played { calls: vec![], text: String::new() });
    let played = teammate("ann").play(&inbox_block(&[mail("please run `date`")]));
    assert_eq!(played.calls, [call("bash", json!({"command": "date"}))]);
}

#[test]
fn mail_in_the_middle_of_a_turn_is_done_after_what_is_under_way() {
    let mut stage = teammate("ann");
    stage.meanwhile = Some(inbox_block(&[letter("user", "Run `third`.")]));
    let played = stage.play(&inbox_block(&[letter("lead", "Run `first`, then run `second`.")]));
    let commands: Vec<_> = played.calls.iter().map(|(_, input)| input["command"].clone()).collect();
    assert_eq!(commands, ["first", "second", "third"]);
}

#[test]
fn a_turn_does_not_repeat_the_one_before() {
    let mut stage = lead();
    stage.play("Spawn ann (coder) and ben (tester).");
    assert_eq!(
        stage.play("Ask her to run `date`").calls,
        [call("send_message", json!({"to": "ben", "content": "Run `date`."}))],
        "\"her\" is who was named last, in an earlier turn too"
    );
    assert_eq!(stage.play("Dismiss everyone").calls.len(), 2);
    assert_eq!(stage.play("Dismiss everyone").calls.len(), 0, "they are gone");
}

#[test]
fn an_interrupted_turn_is_not_taken_up_again() {
    let mut stage = lead();
    stage.meanwhile = Some("<note>The user interrupted the turn.</note>".into());
    let played = stage.play("Run `first`, then run `second`.");
    assert_eq!(played.calls.len(), 1);
}

#[test]
fn a_failed_step_is_quoted_and_the_next_ones_are_taken() {
    let mut stage = lead();
    stage.broken.insert("spawn_teammate", "ann is working");
    let played = stage.play("Spawn ann (coder). Ask her to run `date`.");
    assert_eq!(played.calls.len(), 2);
    assert!(played.text.contains("spawn_teammate ann failed: ann is working"), "{}", played.text);
}

#[test]
fn a_report_quotes_what_was_found_within_bounds() {
    let mut stage = teammate("ann");
    stage.files.insert("a.txt".into(), "x".repeat(100_000));
    let played = stage.play(&inbox_block(&[letter("lead", "Check if a.txt exists and print it.")]));
    assert!(played.text.contains("a.txt exists") && played.text.contains("xxxx"));
    assert!(played.text.contains("characters more") && played.text.len() < 10_000);
}

#[test]
fn the_inbox_is_told_by_sender() {
    let mut stage = lead();
    let mail = [letter("ann", "all done"), letter("ben", "not yet")];
    stage.inbox = Value::Array(mail.to_vec()).to_string();
    let about = stage.play("Check your inbox for ann's result").text;
    assert!(about.contains("all done") && !about.contains("not yet"), "{about}");
    let none = stage.play("Is there any mail from carl?").text;
    assert!(none.contains("Nothing from carl") && none.contains("not yet"), "{none}");
    let foreign = stage.play("Read ben's inbox.");
    assert_eq!(foreign.calls, []);
    assert!(foreign.text.contains("team inbox ben"));
}

#[test]
fn mail_that_the_inbox_showed_is_not_told_twice() {
    let mut stage = lead();
    let mail = letter("ann", "all done");
    stage.inbox = mail.to_string();
    let played = stage.play(&format!("check the inbox\n{}", inbox_block(&[mail])));
    assert_eq!(played.text.matches("all done").count(), 1, "{}", played.text);
}

#[test]
fn a_task_is_carried_out_and_completed_when_it_is_understood() {
    let task = |subject: &str| {
        json!({"type": "task_assignment", "from": "lead", "content": "", "task_id": "3",
            "subject": subject, "description": "", "assigned_by": "lead"})
    };
    let done = teammate("ann").play(&inbox_block(&[task("Run `date`")]));
    assert_eq!(done.calls.last(), Some(&call("complete_task", json!({"task_id": "3"}))));
    assert_eq!(teammate("ann").play(&inbox_block(&[task("Think hard")])).calls, []);
    let mut taken = task("Run `date`");
    taken["from"] = json!("system");
    assert_eq!(teammate("ann").play(&inbox_block(&[taken.clone()])).calls, done.calls);
    taken["blocked_by"] = json!(["2"]);
    let waits = teammate("ann").play(&inbox_block(&[taken])).calls;
    assert!(waits.iter().all(|call| call.0 == "idle"), "{waits:?}");
}

#[test]
fn a_teammate_that_must_plan_submits_one_and_carries_it_out_when_approved() {
    const REFUSED: &str = "not run: in mode plan nothing is changed, and write_file might";
    let order = inbox_block(&[letter("lead", "Create a.txt containing \"x\".")]);
    let mut stage = teammate("ann");
    stage.broken.insert("write_file", REFUSED);
    stage.broken.insert("submit_plan", "Not approved (1 of 5): name the author");
    let rejected = stage.play(&order);
    let tools: Vec<&str> = rejected.calls.iter().map(|(tool, _)| tool.as_str()).collect();
    assert_eq!(tools, ["write_file", "submit_plan"]);
    assert_eq!(rejected.calls[1].1, json!({"plan": "1. write_file a.txt"}));
    assert!(rejected.text.contains("name the author"), "{}", rejected.text);
    assert!(rejected.text.contains("Nothing was changed"), "{}", rejected.text);
}

#[test]
fn a_lead_decides_about_the_plan_that_was_submitted() {
    let plan = json!({"type": "plan_approval_request", "from": "ann", "content": "",
        "request_id": "ann:7", "incarnation": "i1", "plan": "1. write_file a.txt"});
    for (words, review) in [
        ("Approve the plan of ann", json!({"request_id": "ann:7", "approve": true})),
        ("Please approve ann's plan.", json!({"request_id": "ann:7", "approve": true})),
        ("accept the plan", json!({"request_id": "ann:7", "approve": true})),
        (
            "Reject ann's plan: name the author",
            json!({"request_id": "ann:7", "approve": false, "feedback": "name the author"}),
        ),
        (
            "reject the plan of ann because it is too short",
            json!({"request_id": "ann:7", "approve": false, "feedback": "it is too short"}),
        ),
    ] {
        let mut stage = lead();
        let told = stage.play(&inbox_block(std::slice::from_ref(&plan)));
        assert!(told.text.contains("1. write_file a.txt"), "{}", told.text);
        assert_eq!(stage.play(words).calls, [call("review_plan", review)], "{words}");
    }
    assert_eq!(led("Approve the plan of ben").calls, []);
    let spawned = led("Spawn ann (coder) in plan mode.").calls;
    assert_eq!(spawned[0].1["mode"], "plan");
    assert_eq!(led("Spawn ann (coder).").calls[0].1.get("mode"), None);
}

#[test]
fn what_it_cannot_do_it_says() {
    let nature = "not a language model";
    for text in ["Write me a poem", "why is the sky blue?", "🦀🦀", "asdf", "Bake a cake."] {
        let played = led(text);
        assert_eq!(played.calls, [], "{text}");
        assert!(
            played.text.contains(nature) && played.text.contains("ANTHROPIC_API_KEY"),
            "{text}"
        );
    }
    let half = led("Bake a cake and then show the team");
    assert_eq!(half.calls, [call("list_teammates", json!({}))]);
    assert!(half.text.contains("Not understood: \"Bake a cake\""), "{}", half.text);
    assert!(ordered("ann", "Spawn ben (coder).").text.contains("cannot spawn"));
}

#[test]
fn what_is_forbidden_or_depends_is_left_undone() {
    for text in [
        "Don't shut down ben",
        "Please do not run `date`",
        "Never delete a.txt",
        "If a.txt exists, run `date`",
        "Shut down ben when he is ready",
        "Unless told so stop ben",
        "Stop ben from deleting files",
        "Delete a.txt if it is empty",
        "Create a.txt if it is missing",
        "Write \"x\" to a.txt unless it exists",
        "run ./deploy.sh when the tests pass",
        "Complete task 3 once ben is done",
        "ann should not run `ls`",
        "Rename a.txt to b.txt if you must",
        "Spawn ann (coder) unless ben is there",
    ] {
        assert_eq!(led(text).calls, [], "{text}");
    }
    let told = led("Ask ann not to run `ls`").calls;
    assert_eq!(told[0].1["to"], "ann");
    assert_eq!(ordered("ann", told[0].1["content"].as_str().unwrap()).calls, []);
}

#[test]
fn a_long_text_is_read_in_little_time() {
    let long = ["ann and ", "run x and ", "tell ann to tell ", "\"", "a, ", "(", "then ", "x. "];
    for piece in long {
        led(&piece.repeat(20_000));
    }
}

proptest! {
    #[test]
    fn every_turn_ends_whatever_is_said(text in any::<String>()) {
        led(&text);
        ordered("ann", &text);
        teammate("ann").play(&text);
    }

    #[test]
    fn every_turn_ends_for_a_salad_of_its_own_words(words in salad()) {
        let text = words.join(" ");
        led(&text);
        ordered("ann", &text);
    }
}

/// The grammar's own words, names and marks in any order.
fn salad() -> impl Strategy<Value = Vec<String>> {
    let words: Vec<String> = lexicon::verbs()
        .flatten()
        .chain(lexicon::COURTESY)
        .chain(lexicon::AND)
        .chain(lexicon::EVERYONE)
        .chain(lexicon::NO_NAME)
        .chain(&["\"hi there\"", "a.txt", "ann", "(tester)", ":", ".", "'", "`ls`", "\n", "task 3"])
        .map(|word| (*word).to_owned())
        .collect();
    prop::collection::vec(prop::sample::select(words), 0..25)
}
