//! The machine of a turn, driven by events; the actions are checked.

use super::*;
use crate::wire::chat::{Block, Usage};
use crate::wire::permission::{DecisionOutcome, Question, QuestionKind};
use proptest::prelude::*;
use serde_json::json;
use std::fmt::Write as _;

fn has(actions: &[TurnAction], wanted: &TurnAction) -> bool {
    actions.contains(wanted)
}

fn reply(calls: &[&str]) -> TurnEvent {
    let mut blocks = vec![Block::Text { text: "t".into() }];
    for (n, name) in calls.iter().enumerate() {
        let id = format!("{name}-{n}");
        blocks.push(Block::ToolUse { id, name: (*name).into(), input: json!({}) });
    }
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    let reply = Reply { blocks, stop_reason, usage: Usage::default(), model: "m".into() };
    TurnEvent::Work(WorkResult::Replied(Ok(reply)))
}

fn too_long() -> TurnEvent {
    TurnEvent::Work(WorkResult::Replied(Err(ModelError::ContextFull("400".into()))))
}

fn summary() -> TurnEvent {
    let usage = Usage { output_tokens: 3, ..Usage::default() };
    let (summary, situation) = ("notes".into(), "You are alice.".into());
    let made = Compacted { summary, situation, usage, context_tokens: None };
    TurnEvent::Work(WorkResult::Compacted(Ok(made)))
}

fn tool_ended(result: Result<String, ToolError>) -> TurnEvent {
    TurnEvent::Work(WorkResult::ToolEnded(result))
}

fn question() -> Box<Question> {
    Box::new(Question {
        request_id: "r".into(),
        about: QuestionKind::Permission,
        tool_use_id: "bash-0".into(),
        tool: "bash".into(),
        input: json!({}),
        description: "x".into(),
    })
}

fn input() -> TurnEvent {
    TurnEvent::InputTaken { unseen: 0 }
}

/// Performs one step of a turn that goes on after it.
fn go_on(turn: TurnMachine, event: TurnEvent) -> (TurnMachine, Vec<TurnAction>) {
    let mut todo = Vec::new();
    match turn.step(event, &mut todo) {
        TurnStep::Running(turn) => (turn, todo),
        TurnStep::Ended(end) => panic!("{end:?}"),
    }
}

fn turn_after(events: Vec<TurnEvent>) -> TurnMachine {
    let turn = TurnMachine::new(20, VecDeque::new());
    events.into_iter().fold(turn, |turn, event| go_on(turn, event).0)
}

fn end_of(turn: TurnMachine, event: TurnEvent) -> TurnEnd {
    match turn.step(event, &mut Vec::new()) {
        TurnStep::Ended(end) => end,
        TurnStep::Running(turn) => panic!("{turn:?}"),
    }
}

#[test]
fn a_refusal_for_length_is_answered_with_one_summary() {
    let mut turn = turn_after(vec![input()]);
    for _ in 0..2 {
        let (refused, actions) = go_on(turn, too_long());
        assert_eq!(actions, [Effect::Compact.into()]);
        let (made, actions) = go_on(refused, summary());
        let usage = Usage { output_tokens: 3, ..Usage::default() };
        assert!(has(&actions, &HostAction::Count(usage).into()));
        let recorded = actions.iter().position(|action| {
            matches!(action, TurnAction::Effect(Effect::Record(Entry::Compacted { .. })))
        });
        let synced = actions.iter().position(|action| *action == Effect::Sync.into());
        assert!(recorded < synced, "the summary is durable before the model is called");
        assert_eq!(actions.last(), Some(&Effect::CallModel.into()));
        // A reply shows that the conversation fits again.
        turn = [reply(&["bash"]), TurnEvent::Judged(CallVerdict::Run), tool_ended(Ok("ok".into()))]
            .into_iter()
            .chain([input()])
            .fold(made, |turn, event| go_on(turn, event).0);
    }
    let (refused, _) = go_on(turn, too_long());
    let (made, _) = go_on(refused, summary());
    assert!(end_of(made, too_long()).text.contains("not even summarized"));
}

#[test]
fn a_summary_that_fails_ends_the_turn() {
    let failed = WorkResult::Compacted(Err(ModelError::Unavailable("503".into())));
    let end = end_of(turn_after(vec![input()]), TurnEvent::Work(failed));
    assert!(end.outcome == Outcome::Failed && end.text.contains("503"), "{end:?}");
}

#[test]
fn a_decision_that_comes_while_input_is_taken_in_waits_for_it() {
    let ask = TurnEvent::Judged(CallVerdict::Ask(question()));
    let turn = turn_after(vec![input(), reply(&["bash"]), ask]);
    let (turn, actions) = go_on(turn, TurnEvent::InputWaits);
    assert_eq!(actions, [HostAction::TakeInput.into()]);
    let approved = Decision::by_program("r", DecisionOutcome::Approved, "");
    let (turn, actions) = go_on(turn, TurnEvent::Settled(approved));
    assert_eq!(actions, [], "nothing is recorded beside the input");
    let (turn, actions) = go_on(turn, input());
    assert!(matches!(actions.last(), Some(TurnAction::Effect(Effect::RunTool(_)))), "{actions:?}");
    assert!(turn.is_acting());
}

/// A turn in each phase.
fn phases() -> Vec<(&'static str, TurnMachine)> {
    let ask = || TurnEvent::Judged(CallVerdict::Ask(question()));
    let run = || TurnEvent::Judged(CallVerdict::Run);
    let call = || reply(&["bash", "bash"]);
    vec![
        ("TakingInput", turn_after(vec![])),
        ("Interrupted", turn_after(vec![TurnEvent::Interrupt])),
        ("Thinking", turn_after(vec![input()])),
        ("Judging", turn_after(vec![input(), call()])),
        ("Asking", turn_after(vec![input(), call(), ask()])),
        ("Acting", turn_after(vec![input(), call(), run()])),
        ("ActingLast", turn_after(vec![input(), call(), run(), TurnEvent::EndAfterCall("end")])),
    ]
}

/// One event of each kind.
fn all_events() -> Vec<(&'static str, TurnEvent)> {
    let decision = |id| TurnEvent::Settled(Decision::by_program(id, DecisionOutcome::Approved, ""));
    vec![
        ("InputWaits", TurnEvent::InputWaits),
        ("InputTaken", input()),
        ("InputFailed", TurnEvent::InputFailed("no locks".into())),
        ("Replied", reply(&[])),
        ("Refused", too_long()),
        ("Compacted", summary()),
        ("ToolEnded", tool_ended(Ok("ok".into()))),
        ("Judged", TurnEvent::Judged(CallVerdict::Run)),
        ("Settled", decision("r")),
        ("Settled late", decision("earlier")),
        ("Interrupt", TurnEvent::Interrupt),
        ("WindDown", TurnEvent::WindDown("note".into())),
        ("EndAfterCall", TurnEvent::EndAfterCall("end")),
        ("Stop", TurnEvent::Stop { limit: None }),
    ]
}

/// Every pair of phase and event: `=` the phase stays, `End` the turn ends, `BUG` the event is unexpected
/// and logged.
const TRANSITIONS: &str = "\
event         TakingInput Interrupted Thinking    Judging     Asking      Acting      ActingLast
InputWaits    =           =           =           =           =           =           =
InputTaken    Thinking    End         BUG         BUG         =           BUG         BUG
InputFailed   End         End         BUG         BUG         =           BUG         BUG
Replied       BUG         BUG         End         BUG         BUG         BUG         BUG
Refused       BUG         BUG         =           BUG         BUG         BUG         BUG
Compacted     BUG         BUG         =           BUG         BUG         BUG         BUG
ToolEnded     BUG         BUG         BUG         BUG         BUG         Judging     End
Judged        BUG         BUG         BUG         Acting      BUG         BUG         BUG
Settled       =           =           =           =           Acting      =           =
Settled late  =           =           =           =           =           =           =
Interrupt     Interrupted =           End         End         End         End         =
WindDown      Thinking    End         BUG         BUG         Thinking    BUG         BUG
EndAfterCall  BUG         BUG         BUG         BUG         BUG         ActingLast  =
Stop          End         End         End         End         End         End         End
";

#[test]
fn every_pair_of_phase_and_event_has_its_transition() {
    let names: Vec<String> = phases().iter().map(|(name, _)| format!(" {name:11}")).collect();
    let mut table = format!("{:13}{}", "event", names.concat());
    table.truncate(table.trim_end().len());
    table.push('\n');
    for at in 0..all_events().len() {
        let name = all_events().swap_remove(at).0;
        let _infallible = write!(table, "{name:13}");
        for (before, turn) in phases() {
            assert_eq!(turn.phase.name(), before);
            let mut actions = Vec::new();
            let step = turn.step(all_events().swap_remove(at).1, &mut actions);
            let is_bug = actions.iter().any(|action| {
                matches!(action, TurnAction::Effect(Effect::Log(why)) if why.contains("unexpected"))
            });
            let after = match &step {
                TurnStep::Running(_) if is_bug => "BUG",
                TurnStep::Running(turn) if turn.phase.name() == before => "=",
                TurnStep::Running(turn) => turn.phase.name(),
                TurnStep::Ended(_) => "End",
            };
            let _infallible = write!(table, " {after:11}");
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    assert_eq!(table, TRANSITIONS, "\n{table}");
}

proptest! {
    /// After any events, also unexpected ones: each call of the model has at most one answer, and when
    /// the turn ends, each has one.
    #[test]
    fn every_call_is_answered_once(picks in proptest::collection::vec((0usize..14, any::<bool>()), 0..60)) {
        let mut turn = turn_after(vec![]);
        let mut open: Vec<String> = Vec::new();
        for (pick, calls) in picks {
            let event = match pick {
                3 if calls => reply(&["bash", "idle"]),
                7 if calls => TurnEvent::Judged(CallVerdict::Ask(question())),
                _ => all_events().swap_remove(pick).1,
            };
            let mut todo = Vec::new();
            let step = turn.step(event, &mut todo);
            for action in todo {
                let TurnAction::Effect(Effect::Record(entry)) = action else { continue };
                if let Entry::Assistant { blocks, .. } = &entry {
                    prop_assert!(open.is_empty());
                    open.extend(blocks.iter().filter_map(call_of).map(|call| call.id));
                } else if let Entry::ToolResult { tool_use_id, .. } = entry {
                    let before = open.len();
                    open.retain(|id| *id != tool_use_id);
                    prop_assert_eq!(open.len() + 1, before);
                }
            }
            match step {
                TurnStep::Running(next) => turn = next,
                TurnStep::Ended(_) => {
                    prop_assert!(open.is_empty());
                    return Ok(());
                }
            }
        }
    }
}
