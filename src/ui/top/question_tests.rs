//! Tests of questions: they are flagged, shown in full, and answered.

use super::tests::{NOW, Person, person};
use super::*;
use crate::view::change::PendingQuestion;
use crate::wire::permission::RuleScope;
use serde_json::json;

/// Returns a question of alice with this id for a command.
pub(super) fn question(id: &str, command: &str) -> PendingQuestion {
    let question = json!({"request_id": id, "about": "permission", "tool_use_id": "t",
        "tool": "bash", "input": {}, "description": command});
    let question = serde_json::from_value(question).unwrap();
    PendingQuestion::new("alice".into(), "lead".into(), (NOW + 90.0).into(), question)
}

fn answer(person: &Person, answer: TypedAnswer) -> Action {
    let asked = &person.snapshot.requests[0];
    let question = Box::new(asked.question.clone());
    Action::Answer { from: asked.from.clone(), question, answer }
}

#[test]
fn a_waiting_question_is_flagged_and_opened_from_everywhere() {
    let mut person = person();
    person.sees("", &["team  1 open question  2 of 3", " ? alice", "5 Questions (1)", "w answer"]);
    person.snapshot.requests.push(question("r2", "ls"));
    person.sees("j", &["team  2 open questions", "›? alice"]);
    person.sees("w", &["▸ Question of alice, 0s left", "alice asks for bash:", "  rm -rf target"]);
    person.sees("w", &["▸ Question of alice, 1m left", "  ls", "y yes  n no  a always"]);
    person.sees("w\x1b", &["▸ 1 Members"]);
    // The question of an agent that does not run waits for nobody.
    person.snapshot.members[1].alive = false;
    person.sees("5", &["alice (not running) asks for bash"]);
    person.misses(&["open question", "open questions", "?  alice"]);
    person.sees("\r", &["rm -rf target"]);
    for key in ["y", "n"] {
        person.sees(key, &["alice is not running; it asks again when it is"]);
    }
    person.press("\x1b");
    person.sees("\x1bw", &["No open questions"]);
}

#[test]
fn an_approval_counts_only_after_all_of_the_question_was_shown() {
    let mut person = person();
    let yes = answer(&person, TypedAnswer::Yes);
    assert_eq!(person.press("wy"), None, "it is not drawn yet");
    person.sees("", &["Not yet: read it first"]);
    assert_eq!(person.press("y"), Some(yes));
    assert!(person.top.opened.is_none(), "it is closed");
    person.sees("w", &["rm -rf target"]);
    person.sees("Ax", &["Nothing was answered"]);
    for (key, scope) in [
        ("a", RuleScope::Agent),
        ("s", RuleScope::Session),
        ("t", RuleScope::Team),
        ("g", RuleScope::Good),
    ] {
        person.sees("1w", &["rm -rf target"]);
        person.sees(
            "A",
            &["Always, for: a agent, s session, t team, g good; any other key: no answer"],
        );
        assert_eq!(person.press(key), Some(answer(&person, TypedAnswer::Always(scope))));
    }
    let long: Vec<String> = (0..50).map(|line| format!("echo {line}; \u{202e}")).collect();
    person.snapshot.requests = vec![question("long", &long.join("\n"))];
    person.sees("w", &["echo 0; <U+202E>", "1-20 of 51"]);
    for key in ["y", "a"] {
        person.sees(key, &["Not yet: 31 lines not shown so far; space shows more"]);
    }
    // A jump to the end shows the end alone.
    person.sees("Gy", &["Not yet: 31 lines"]);
    person.sees("y", &["Not yet: 11 lines"]);
    person.sees("g ", &["20-39 of 51"]);
    assert_eq!(person.press("y"), Some(answer(&person, TypedAnswer::Yes)));
    // In another width the rows are other rows.
    person.sees("w", &["1-20 of 51"]);
    person.sees(" ", &[]);
    person.frame_of(16 + 8, 24);
    person.sees("y", &["Not yet"]);
}

#[test]
fn a_denial_may_have_a_reason() {
    let mut person = person();
    person.sees("wn", &["No, because:"]);
    assert_eq!(person.press("\r"), Some(answer(&person, TypedAnswer::No(None))));
    person.press("w");
    let reason = TypedAnswer::No(Some("y, too risky".into()));
    assert_eq!(person.press("ny, too risky\r"), Some(answer(&person, reason)));
    person.sees("wnx\x1b", &["▸ Question of alice"]);
    let plan = json!({"request_id": "p", "about": "plan", "tool_use_id": "t",
        "tool": "submit_plan", "input": {}, "description": "1. look"});
    person.snapshot.requests[0].question = serde_json::from_value(plan).unwrap();
    person.sees("\x1bw", &["1. look"]);
    person.sees("a", &["A plan can only be approved once: y or n"]);
}

#[test]
fn an_answer_is_one_to_the_question_under_which_it_was_typed() {
    let gone = "This question is no longer open: nothing was answered";
    for keys in ["y", "a", "n"] {
        let mut person = person();
        person.sees("w", &["rm -rf target"]);
        // The next question takes the place of the one that was answered elsewhere.
        person.snapshot.requests = vec![question("r2", "ls")];
        person.sees("", &["▸ Question of alice, no longer open", "rm -rf target"]);
        person.sees(keys, &[gone, "rm -rf target"]);
    }
    let mut person = person();
    person.sees("wnnot so", &["No, because: not so"]);
    person.snapshot.requests = vec![question("r2", "ls")];
    person.sees("\r", &[gone]);
    // The same id with another content is another question.
    person.snapshot.requests = vec![question("r", "rm -rf /")];
    person.sees("", &["no longer open", "rm -rf target"]);
    person.sees("y", &[gone]);
}
