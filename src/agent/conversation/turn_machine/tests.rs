//! Tests of the turn machine: events drive it, and the actions are checked.

use super::TurnEvent as Event;
use super::*;
use crate::agent::conversation::CallVerdict;
use crate::agent::conversation::compact::Compacted;
use crate::agent::conversation::test_support::{
    OpenCalls, model_reply, not_compacted, question, transition_table,
};
use crate::llm::ModelError;
use crate::tools::ToolError;
use crate::wire::chat::Usage;
use crate::wire::message::Outcome;
use crate::wire::permission::{Decision, DecisionOutcome};
use crate::wire::transcript::Entry;
use proptest::prelude::*;
use serde_json::json;

fn reply(calls: &[&str]) -> Event {
    let calls: Vec<_> = calls.iter().map(|name| (*name, json!({}))).collect();
    Event::Work(WorkResult::Replied(Ok(model_reply("t", &calls))))
}

fn too_long() -> Event {
    Event::Work(WorkResult::Replied(Err(ModelError::ContextFull("400".into()))))
}

fn summary() -> Event {
    let usage = Usage { output_tokens: 3, ..Usage::default() };
    let (summary, situation) = ("notes".into(), "You are alice.".into());
    let made = Compacted { summary, situation, usage, context_tokens: None };
    Event::Work(WorkResult::Compacted(Ok(made)))
}

fn no_summary(can_go_on: bool) -> Event {
    Event::Work(not_compacted(ModelError::Unavailable("503".into()), can_go_on))
}

fn tool_ended(result: Result<String, ToolError>) -> Event {
    Event::Work(WorkResult::ToolsEnded(vec![result.map(Into::into)]))
}

/// Returns the verdict that a question about the first call of `bash` must be answered first.
fn ask() -> Event {
    let call = Call { id: "bash-0".into(), name: "bash".into(), input: json!({}) };
    Event::Judged(CallVerdict::Ask(question(&call)))
}

fn decision(request_id: &str) -> Event {
    Event::Settled(Decision::by_program(request_id, DecisionOutcome::Approved, ""))
}

fn input() -> Event {
    Event::InputTaken { unseen: 0 }
}

/// Performs one step of a turn that continues after it.
fn go_on(turn: TurnMachine, event: Event) -> (TurnMachine, Vec<TurnAction>) {
    let (next, todo) = turn.step(event);
    (next.continue_value().unwrap(), todo)
}

fn after(turn: TurnMachine, events: impl IntoIterator<Item = Event>) -> TurnMachine {
    events.into_iter().fold(turn, |turn, event| go_on(turn, event).0)
}

fn turn_after(events: impl IntoIterator<Item = Event>) -> TurnMachine {
    after(TurnMachine::new(20, VecDeque::new()), events)
}

fn end_of(turn: TurnMachine, event: Event) -> TurnEnd {
    turn.step(event).0.break_value().unwrap()
}

#[test]
fn a_refusal_for_length_is_answered_with_one_summary() {
    let mut turn = turn_after([input()]);
    for _ in 0..2 {
        let (refused, actions) = go_on(turn, too_long());
        assert_eq!(actions, [TurnEffect::Compact.into()]);
        let (made, actions) = go_on(refused, summary());
        let usage = Usage { output_tokens: 3, ..Usage::default() };
        assert!(actions.contains(&HostAction::Count(usage).into()));
        let recorded = actions.iter().position(|action| {
            matches!(action, TurnAction::Effect(TurnEffect::Record(Entry::Compacted { .. })))
        });
        let synced = actions.iter().position(|action| *action == TurnEffect::Sync.into());
        assert!(recorded < synced, "the summary is durable before the model is called");
        assert_eq!(actions.last(), Some(&TurnEffect::CallModel.into()));
        // A reply shows that the conversation fits again.
        let run = Event::Judged(CallVerdict::Run);
        turn = after(made, [reply(&["bash"]), run, tool_ended(Ok("ok".into())), input()]);
    }
    let (refused, _) = go_on(turn, too_long());
    let (made, _) = go_on(refused, summary());
    assert!(end_of(made, too_long()).text.contains("not even summarized"));
}

#[test]
fn a_summary_that_fails_ends_the_turn() {
    let end = end_of(turn_after([input()]), no_summary(false));
    assert!(end.outcome == Outcome::Failed && end.text.contains("503"), "{end:?}");
}

#[test]
fn a_conversation_that_fits_goes_on_without_a_summary_and_its_tokens_count() {
    let (_, actions) = go_on(turn_after([input()]), no_summary(true));
    let usage = Usage { output_tokens: 7, ..Usage::default() };
    assert_eq!(actions.first(), Some(&HostAction::Count(usage).into()));
    assert_eq!(actions.last(), Some(&TurnEffect::CallModel.into()));
}

#[test]
fn a_decision_that_comes_while_input_is_read_waits_for_it() {
    let turn = turn_after([input(), reply(&["bash"]), ask()]);
    let (turn, actions) = go_on(turn, Event::InputWaits);
    assert_eq!(actions, [HostAction::TakeInput.into()]);
    let (turn, actions) = go_on(turn, decision("alice:bash-0"));
    assert_eq!(actions, [], "nothing is recorded beside the input");
    let (turn, actions) = go_on(turn, input());
    let last = actions.last();
    assert!(matches!(last, Some(TurnAction::Effect(TurnEffect::RunTools(_)))), "{actions:?}");
    assert!(turn.is_acting());
}

/// Returns the names of the calls that run at the same time.
fn running(actions: &[TurnAction]) -> Vec<String> {
    let run = actions.iter().find_map(|action| match action {
        TurnAction::Effect(TurnEffect::RunTools(calls)) => Some(calls),
        TurnAction::Effect(_) | TurnAction::Host(_) => None,
    });
    run.into_iter().flatten().map(|call| call.id.clone()).collect()
}

fn ok(results: usize) -> Event {
    let results = (0..results).map(|at| Ok(format!("result {at}").into()));
    Event::Work(WorkResult::ToolsEnded(results.collect()))
}

/// Returns the answers to calls in the order in which they are recorded.
fn answers(actions: &[TurnAction]) -> Vec<(&str, &str)> {
    let answer = |action| match action {
        &TurnAction::Effect(TurnEffect::Record(Entry::ToolResult {
            ref tool_use_id,
            ref content,
            ..
        })) => Some((tool_use_id.as_str(), content.as_str())),
        TurnAction::Effect(_) | TurnAction::Host(_) => None,
    };
    actions.iter().filter_map(answer).collect()
}

#[test]
fn calls_that_only_read_run_together_and_others_alone() {
    let run = || Event::Judged(CallVerdict::Run);
    let calls = ["read_file", "grep", "bash", "grep", "list_files"];
    let turn = turn_after([input(), reply(&calls), run()]);
    let (turn, actions) = go_on(turn, run());
    assert_eq!(running(&actions), ["read_file-0", "grep-1"]);
    let synced = actions.iter().position(|action| *action == TurnEffect::Sync.into());
    let starts = actions.iter().take(synced.unwrap()).filter(|action| {
        matches!(action, TurnAction::Effect(TurnEffect::Record(Entry::ToolStart { .. })))
    });
    assert_eq!(starts.count(), 2, "both intents are durable first");
    let (turn, actions) = go_on(turn, ok(2));
    assert_eq!(answers(&actions), [("read_file-0", "result 0"), ("grep-1", "result 1")]);
    let (turn, actions) = go_on(turn, run());
    assert_eq!(running(&actions), ["bash-2"]);
    let turn = after(turn, [ok(1), run()]);
    let (turn, actions) = go_on(turn, run());
    assert_eq!(running(&actions), ["grep-3", "list_files-4"]);
    let (next, actions) = turn.step(Event::Interrupt);
    assert!(next.is_break() && answers(&actions).len() == 2, "{actions:?}");
}

#[test]
fn a_call_that_may_not_run_is_answered_after_those_before_it() {
    let run = || Event::Judged(CallVerdict::Run);
    let turn = turn_after([input(), reply(&["grep", "grep", "grep"]), run()]);
    let (turn, actions) = go_on(turn, Event::Judged(CallVerdict::Refuse("no".into())));
    assert_eq!((running(&actions), answers(&actions)), (vec!["grep-0".to_owned()], vec![]));
    let (turn, actions) = go_on(turn, ok(1));
    assert_eq!(answers(&actions), [("grep-0", "result 0"), ("grep-1", "no")]);
    let (turn, actions) = go_on(turn, run());
    assert_eq!(running(&actions), ["grep-2"]);
    let last = Event::EndAfterCall("end");
    let (next, actions) = after(turn, [last]).step(ok(1));
    assert!(next.is_break() && answers(&actions) == [("grep-2", "result 0")], "{actions:?}");
}

#[test]
fn a_stop_answers_the_calls_that_wait_for_a_verdict() {
    let run = Event::Judged(CallVerdict::Run);
    let turn = turn_after([input(), reply(&["grep", "grep", "bash"]), run]);
    let (next, actions) = turn.step(Event::Stop { limit: None });
    let answered: Vec<&str> = answers(&actions).iter().map(|(id, _)| *id).collect();
    assert!(next.is_break() && answered == ["grep-0", "grep-1", "bash-2"], "{actions:?}");
}

fn phases() -> Vec<(&'static str, TurnMachine)> {
    let run = || Event::Judged(CallVerdict::Run);
    let call = || reply(&["bash", "bash"]);
    vec![
        ("TakingInput", turn_after([])),
        ("Interrupted", turn_after([Event::Interrupt])),
        ("Thinking", turn_after([input()])),
        ("Judging", turn_after([input(), call()])),
        ("Asking", turn_after([input(), call(), ask()])),
        ("Acting", turn_after([input(), call(), run()])),
        ("ActingLast", turn_after([input(), call(), run(), Event::EndAfterCall("end")])),
    ]
}

fn all_events() -> Vec<(&'static str, Event)> {
    vec![
        ("InputWaits", Event::InputWaits),
        ("InputTaken", input()),
        ("InputFailed", Event::InputFailed("no locks".into())),
        ("Replied", reply(&[])),
        ("Refused", too_long()),
        ("Compacted", summary()),
        ("ToolEnded", tool_ended(Ok("ok".into()))),
        ("Judged", Event::Judged(CallVerdict::Run)),
        ("Settled", decision("alice:bash-0")),
        ("Settled late", decision("earlier")),
        ("Interrupt", Event::Interrupt),
        ("WindDown", Event::WindDown("note".into())),
        ("EndAfterCall", Event::EndAfterCall("end")),
        ("Stop", Event::Stop { limit: None }),
    ]
}

/// The next phase for each pair of phase and event. `=`: the phase stays; `End`: the turn ends; `BUG`: the event
/// is logged as unexpected.
const TRANSITIONS: &str = "\
event        TakingInput Interrupted Thinking    Judging     Asking      Acting      ActingLast
InputWaits   =           =           =           =           =           =           =
InputTaken   Thinking    End         BUG         BUG         =           BUG         BUG
InputFailed  End         End         BUG         BUG         =           BUG         BUG
Replied      BUG         BUG         End         BUG         BUG         BUG         BUG
Refused      BUG         BUG         =           BUG         BUG         BUG         BUG
Compacted    BUG         BUG         =           BUG         BUG         BUG         BUG
ToolEnded    BUG         BUG         BUG         BUG         BUG         Judging     End
Judged       BUG         BUG         BUG         Acting      BUG         BUG         BUG
Settled      =           =           =           =           Acting      =           =
Settled late =           =           =           =           =           =           =
Interrupt    Interrupted =           End         End         End         End         =
WindDown     Thinking    End         BUG         BUG         Thinking    BUG         BUG
EndAfterCall BUG         BUG         BUG         BUG         BUG         ActingLast  =
Stop         End         End         End         End         End         End         End
";

#[test]
fn every_pair_of_phase_and_event_has_its_transition() {
    let table = transition_table(phases, all_events, |before, turn, _, event| {
        assert_eq!(turn.phase.name(), before);
        let (next, actions) = turn.step(event);
        let is_bug = actions.iter().any(|action| {
            matches!(action, TurnAction::Effect(TurnEffect::Log(why)) if why.contains("unexpected"))
        });
        match next {
            ControlFlow::Break(_) => "End",
            ControlFlow::Continue(_) if is_bug => "BUG",
            ControlFlow::Continue(turn) if turn.phase.name() == before => "=",
            ControlFlow::Continue(turn) => turn.phase.name(),
        }
    });
    assert_eq!(table, TRANSITIONS, "\n{table}");
}

proptest! {
    /// After any events, even unexpected ones, each tool call has at most one answer, and when the turn ends,
    /// exactly one.
    #[test]
    fn every_call_is_answered_once(picks in proptest::collection::vec((0usize..14, any::<bool>()), 0..60)) {
        let mut turn = turn_after([]);
        let mut open = OpenCalls::default();
        for (pick, calls) in picks {
            let event = match pick {
                3 if calls => reply(&["grep", "grep", "bash", "idle"]),
                6 if calls => ok(2),
                7 if calls => ask(),
                _ => all_events().swap_remove(pick).1,
            };
            let (next, todo) = turn.step(event);
            for action in todo {
                if let TurnAction::Effect(TurnEffect::Record(entry)) = action {
                    open.note(&entry);
                }
            }
            let ControlFlow::Continue(next) = next else {
                prop_assert!(open.is_empty());
                break;
            };
            turn = next;
        }
    }
}
