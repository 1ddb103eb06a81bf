//! Tests of the state machine of a foreign turn: events drive it, and the actions are checked.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks at a few actions of many")]

use super::*;
use crate::acp::update::{ToolStatus, ToolUpdate, Update};
use crate::agent::conversation::{CallVerdict, MAX_PLANS, TurnAction};
use crate::wire::chat::Block;
use crate::wire::permission::{Decision, DecisionOutcome, Question, QuestionKind};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn turn_event(event: TurnEvent) -> ForeignTurnEvent {
    ForeignTurnEvent::Turn(event)
}

fn agent(event: ForeignEvent) -> ForeignTurnEvent {
    ForeignTurnEvent::Agent(event)
}

fn taken() -> ForeignTurnEvent {
    turn_event(TurnEvent::InputTaken { unseen: 0 })
}

fn text(id: Option<&str>, text: &str) -> ForeignTurnEvent {
    let (message_id, text) = (id.map(Into::into), text.into());
    agent(ForeignEvent::Update(Update::Text { message_id, text, usage: None }))
}

fn told(id: &str, status: ToolStatus) -> ToolUpdate {
    ToolUpdate {
        id: id.into(),
        kind: Some("execute".into()),
        progress: Some(status),
        input: Some(json!({ "command": "ls" })),
        output: Some("out".into()),
        ..ToolUpdate::default()
    }
}

fn tool(id: &str, status: ToolStatus) -> ForeignTurnEvent {
    agent(ForeignEvent::Update(Update::Tool(Box::new(told(id, status)))))
}

fn asked(number: u64, id: &str) -> ForeignTurnEvent {
    let told = Box::new(told(id, ToolStatus::Pending));
    agent(ForeignEvent::Asked(AskNumber(number), told))
}

fn judged(number: u64, verdict: CallVerdict) -> ForeignTurnEvent {
    agent(ForeignEvent::Judged(AskNumber(number), verdict))
}

fn question(number: u64) -> CallVerdict {
    CallVerdict::Ask(Box::new(Question {
        request_id: format!("r{number}"),
        about: QuestionKind::Permission,
        tool_use_id: "t".into(),
        tool: "bash".into(),
        input: Value::Null,
        description: "ls".into(),
        subagent: None,
    }))
}

fn plan(number: u64) -> Box<Question> {
    Box::new(Question {
        request_id: format!("r{number}"),
        about: QuestionKind::Plan,
        tool_use_id: format!("p{number}"),
        tool: "submit_plan".into(),
        input: json!({ "plan": "p" }),
        description: "p".into(),
        subagent: None,
    })
}

fn decision(number: u64, outcome: DecisionOutcome) -> Decision {
    Decision::by_program(&format!("r{number}"), outcome, "because")
}

fn settled(number: u64, outcome: DecisionOutcome) -> ForeignTurnEvent {
    turn_event(TurnEvent::Settled(decision(number, outcome)))
}

fn ended(stop_reason: &str) -> ForeignTurnEvent {
    let end = PromptEnd { stop_reason: stop_reason.into(), answer: Value::Null };
    agent(ForeignEvent::Ended(end, Usage::default()))
}

/// Returns a turn whose agent has its prompt.
fn prompted() -> ForeignTurn {
    let mut turn = ForeignTurn::new("acp/x".into(), 0);
    let (end, todo) = turn.step(taken());
    assert!(end.is_none() && todo.contains(&Action::Foreign(ForeignAction::Prompt)));
    turn
}

/// Performs steps. Returns the end, and all actions in words.
fn run(
    turn: &mut ForeignTurn,
    events: impl IntoIterator<Item = ForeignTurnEvent>,
) -> (Option<TurnEnd>, String) {
    let mut words = Vec::new();
    for event in events {
        let (end, todo) = turn.step(event);
        words.extend(todo.iter().filter_map(in_words));
        if end.is_some() {
            return (end, words.join(", "));
        }
    }
    (None, words.join(", "))
}

fn in_words(action: &Action) -> Option<String> {
    Some(match action {
        Action::Foreign(ForeignAction::Judge(number, _)) => format!("judge {}", number.0),
        Action::Foreign(ForeignAction::Answer(number, answer)) => {
            format!("{answer:?} {}", number.0)
        }
        Action::Foreign(ForeignAction::Restart(_)) => "restart".into(),
        Action::Foreign(action) => format!("{action:?}"),
        Action::Turn(TurnAction::Host(HostAction::Ask(_))) => "ask".into(),
        Action::Turn(TurnAction::Host(HostAction::Withdraw(id))) => format!("withdraw {id}"),
        Action::Turn(TurnAction::Host(HostAction::TakeInput)) => "drain".into(),
        Action::Turn(TurnAction::Effect(TurnEffect::Record(entry))) => match entry {
            Entry::Assistant { blocks, .. } => match blocks.first()? {
                Block::Text { text } => format!("text {text}"),
                _ => "call".into(),
            },
            Entry::ToolStart { .. } => "start".into(),
            Entry::ToolResult { is_error, .. } => {
                (if *is_error { "failed" } else { "result" }).into()
            }
            Entry::Decision(decision) => format!("{:?}", decision.outcome),
            Entry::Note { .. } => "note".into(),
            _ => return None,
        },
        _ => return None,
    })
}

#[test]
fn the_report_is_the_last_message_and_tools_are_recorded() {
    let mut turn = prompted();
    let (end, did) = run(
        &mut turn,
        [
            text(Some("a"), "I lo"),
            text(Some("a"), "ok"),
            tool("t", ToolStatus::InProgress),
            tool("t", ToolStatus::Completed),
            text(Some("b"), "Done."),
            ended("end_turn"),
        ],
    );
    assert_eq!(did, "text I look, call, start, result, text Done.");
    let end = end.unwrap();
    assert_eq!((end.outcome, end.text.as_str(), end.rounds), (Outcome::Done, "Done.", 1));
    assert!(turn.take_worked() && turn.calls() == 1);
}

#[test]
fn several_questions_are_open_at_once_and_answered_in_any_order() {
    let mut turn = prompted();
    let (_, did) = run(
        &mut turn,
        [asked(1, "a"), asked(2, "b"), judged(1, question(1)), judged(2, question(2))],
    );
    assert_eq!(did, "call, judge 1, call, judge 2, ask, ask");
    assert!(turn.is_asking());
    let (_, did) = run(
        &mut turn,
        [settled(2, DecisionOutcome::Approved), settled(1, DecisionOutcome::Expired)],
    );
    assert_eq!(did, "Approved, start, Allow 2, Expired, Reject 1, note, failed");
    let (_, did) = run(&mut turn, [settled(2, DecisionOutcome::Approved)]);
    assert_eq!((did.as_str(), turn.is_asking()), ("", false), "a late decision has no effect");
}

#[test]
fn an_agent_that_ends_at_a_refusal_is_told_why() {
    let mut turn = prompted();
    let refused = CallVerdict::Refuse("no".into());
    let events = [asked(1, "a"), judged(1, refused.clone()), ended("cancelled"), taken()];
    let (end, did) = run(&mut turn, events);
    assert!(end.is_none());
    assert_eq!(did, "call, judge 1, Reject 1, note, failed, drain, Prompt");
    let (end, _) =
        run(&mut turn, [asked(2, "b"), judged(2, refused), text(None, "ok"), ended("end_turn")]);
    assert_eq!(end.unwrap().text, "ok", "an agent that answers knows of the refusal");
}

#[test]
fn nothing_is_recorded_during_a_drain() {
    let mut turn = prompted();
    let waits = turn_event(TurnEvent::InputWaits);
    let (_, did) = run(&mut turn, [waits, asked(1, "a"), tool("b", ToolStatus::Completed)]);
    assert_eq!(did, "drain");
    let unseen = turn_event(TurnEvent::InputTaken { unseen: 1 });
    let (_, did) = run(&mut turn, [unseen]);
    assert_eq!(did, "Steer, call, judge 1, call, start, result");
    assert!(turn.has_unseen());
    turn.step(agent(ForeignEvent::HandedOver));
    assert!(!turn.has_unseen());
}

#[test]
fn an_interrupt_cancels_and_a_stop_ends_at_once() {
    let mut turn = prompted();
    let interrupt = || turn_event(TurnEvent::Interrupt);
    let (_, did) = run(&mut turn, [asked(1, "a"), judged(1, question(1)), interrupt()]);
    assert!(did.ends_with("note, Cancelled 1, Withdrawn, withdraw r1, failed, Cancel"), "{did}");
    let (end, did) = run(&mut turn, [asked(2, "b"), agent(ForeignEvent::CancelOverdue)]);
    assert_eq!(
        (end.unwrap().outcome, did.as_str()),
        (Outcome::Interrupted, "Cancelled 2, EndAgent")
    );

    let mut turn = prompted();
    let stop = turn_event(TurnEvent::Stop { limit: Some("3 turns".into()) });
    let (end, did) = run(&mut turn, [text(None, "half"), stop]);
    assert!(did.starts_with("Cancel"), "{did}");
    assert_eq!(end.unwrap().outcome, Outcome::Interrupted);

    let mut turn = ForeignTurn::new("acp/x".into(), 0);
    let (end, did) = run(&mut turn, [interrupt(), taken()]);
    assert_eq!((end.unwrap().outcome, did.as_str()), (Outcome::Interrupted, ""));
}

#[test]
fn a_lost_agent_is_restarted_and_goes_on() {
    let mut turn = prompted();
    let lost = || agent(ForeignEvent::Lost("x".into()));
    let (_, did) = run(&mut turn, [tool("t", ToolStatus::InProgress), lost()]);
    assert_eq!(did, "call, start, failed, restart");
    let (_, did) = run(&mut turn, [agent(ForeignEvent::Restarted)]);
    assert_eq!(did, "note, Prompt");
    let (end, _) = run(&mut turn, [lost(), agent(ForeignEvent::GaveUp("too often".into()))]);
    let end = end.unwrap();
    assert_eq!((end.outcome, end.fatal.as_deref()), (Outcome::Failed, Some("too often")));
}

#[test]
fn a_shutdown_request_asks_for_a_last_report() {
    let mut turn = prompted();
    let wind_down = turn_event(TurnEvent::WindDown("end".into()));
    let (_, did) = run(&mut turn, [turn_event(TurnEvent::InputWaits), wind_down]);
    assert_eq!(did, "drain, note, Cancel");
    let (end, did) =
        run(&mut turn, [ended("cancelled"), taken(), text(None, "half done"), ended("end_turn")]);
    assert!(did.starts_with("drain, Prompt"), "{did}");
    let end = end.unwrap();
    assert_eq!((end.outcome, end.text.as_str()), (Outcome::Interrupted, "half done"));
}

/// The environment of a turn: what it has asked for, and what it owes.
#[derive(Default)]
struct Environment {
    is_draining: bool,
    judge: Vec<u64>,
    requests: BTreeSet<u64>,
    owed_answers: BTreeSet<u64>,
    open_calls: BTreeSet<String>,
    asks: u64,
}

impl Environment {
    fn event(&mut self, pick: u8, detail: u8) -> Option<ForeignTurnEvent> {
        let id = ["a", "b", "c"][usize::from(detail) % 3];
        let statuses = [ToolStatus::Pending, ToolStatus::InProgress, ToolStatus::Completed];
        Some(match pick {
            0 if self.is_draining => {
                turn_event(TurnEvent::InputTaken { unseen: usize::from(detail) })
            }
            1 if self.is_draining => turn_event(TurnEvent::InputFailed("disk".into())),
            2 if self.is_draining => turn_event(TurnEvent::WindDown("end".into())),
            3 | 4 => turn_event(TurnEvent::InputWaits),
            5 => text(Some(id), "text"),
            6 | 7 => tool(id, statuses[usize::from(detail / 3) % 3]),
            8..=10 => {
                self.asks += 1;
                self.owed_answers.insert(self.asks);
                asked(self.asks, id)
            }
            11 | 12 => {
                let number = self.requests.pop_first()?;
                let outcomes = [
                    DecisionOutcome::Approved,
                    DecisionOutcome::Rejected,
                    DecisionOutcome::Expired,
                ];
                settled(number, outcomes[usize::from(detail) % 3])
            }
            13 => ended(["end_turn", "cancelled", "refusal"][usize::from(detail) % 3]),
            14 => agent(ForeignEvent::Lost("x".into())),
            15 => agent(ForeignEvent::Restarted),
            16 => turn_event(TurnEvent::Interrupt),
            17 => agent(ForeignEvent::CancelOverdue),
            18 => turn_event(TurnEvent::EndAfterCall("the lead is gone")),
            19 if detail < 3 => agent(ForeignEvent::GaveUp("x".into())),
            20 if detail < 3 => agent(ForeignEvent::Refused("x".into())),
            22 => {
                self.asks += 1;
                agent(ForeignEvent::PlanSubmitted(plan(self.asks)))
            }
            21 => agent(ForeignEvent::Silent(Duration::from_secs(u64::from(detail) * 400))),
            _ => return None,
        })
    }

    /// Notes an action. `may_record` is false during a drain.
    fn note(&mut self, action: &Action, may_record: bool) {
        match action {
            Action::Turn(TurnAction::Host(HostAction::TakeInput)) => {
                assert!(!self.is_draining, "two drains");
                self.is_draining = true;
            }
            Action::Turn(TurnAction::Host(HostAction::Ask(question))) => {
                self.requests.insert(question.request_id[1..].parse().unwrap());
            }
            Action::Foreign(ForeignAction::Judge(number, _)) => self.judge.push(number.0),
            Action::Foreign(ForeignAction::Answer(number, _)) => {
                assert!(self.owed_answers.remove(&number.0), "{number:?} is answered twice");
            }
            Action::Turn(TurnAction::Effect(TurnEffect::Record(entry))) => {
                assert!(may_record, "{entry:?} during a drain");
                match entry {
                    Entry::Assistant { blocks, .. } => {
                        for block in blocks {
                            if let Block::ToolUse { id, .. } = block {
                                assert!(self.open_calls.insert(id.clone()), "{id} twice");
                            }
                        }
                    }
                    Entry::ToolResult { tool_use_id, .. } => {
                        assert!(self.open_calls.remove(tool_use_id), "{tool_use_id} has no call");
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

proptest! {
    /// Events come in any order. Every question of the agent is answered once, and every call has one result.
    #[test]
    fn any_order_of_events_leaves_no_open_question(
        picks in proptest::collection::vec((0u8..24, 0u8..9), 0..120),
    ) {
        let mut turn = ForeignTurn::new("acp/x".into(), 0);
        let mut environment = Environment { is_draining: true, ..Environment::default() };
        let stop = (u8::MAX, 0);
        for (pick, detail) in picks.into_iter().chain([stop]) {
            let event = if pick == u8::MAX {
                Some(turn_event(TurnEvent::Stop { limit: None }))
            } else {
                environment.event(pick, detail)
            };
            let mut next = event;
            let mut is_over = false;
            while let Some(event) = next.take() {
                let ends_drain = matches!(
                    event,
                    ForeignTurnEvent::Turn(
                        TurnEvent::InputTaken { .. } | TurnEvent::InputFailed(_) | TurnEvent::WindDown(_)
                    )
                );
                let is_stop = matches!(event, ForeignTurnEvent::Turn(TurnEvent::Stop { .. }));
                environment.is_draining &= !ends_drain;
                let may_record = !environment.is_draining || is_stop;
                let (end, todo) = turn.step(event);
                for action in &todo {
                    environment.note(action, may_record);
                }
                is_over = end.is_some();
                if let Some(number) = environment.judge.pop().filter(|_| !is_over) {
                    next = Some(judged(number, match detail % 3 {
                        0 => CallVerdict::Run,
                        1 => CallVerdict::Refuse("no".into()),
                        _ => question(number),
                    }));
                }
            }
            if is_over {
                break;
            }
        }
        prop_assert!(environment.owed_answers.is_empty(), "{:?}", environment.owed_answers);
        prop_assert!(environment.open_calls.is_empty(), "{:?}", environment.open_calls);
    }
}

#[test]
fn silence_is_a_hang_only_without_a_question_and_without_a_short_call() {
    let silent = |seconds| agent(ForeignEvent::Silent(Duration::from_secs(seconds)));
    let (_, todo) = run(&mut prompted(), [asked(1, "a"), judged(1, question(1)), silent(9999)]);
    assert!(!todo.contains("Cancel"), "{todo}");
    let call = || tool("a", ToolStatus::InProgress);
    let (_, todo) = run(&mut prompted(), [call(), silent(MAX_CALL.as_secs() - 1)]);
    assert!(!todo.contains("Cancel"), "{todo}");
    let (_, todo) = run(&mut prompted(), [call(), silent(MAX_CALL.as_secs())]);
    assert!(todo.ends_with("Cancel"), "{todo}");
    for over in [ended("cancelled"), agent(ForeignEvent::CancelOverdue)] {
        let mut turn = prompted();
        let (end, todo) = run(&mut turn, [silent(1), over]);
        assert!(end.is_none() && todo.ends_with("EndAgent, restart"), "{todo}");
        let (end, todo) = run(&mut turn, [agent(ForeignEvent::Restarted)]);
        assert!(end.is_none() && todo.ends_with("Prompt"), "{todo}");
    }
    let (end, _) =
        run(&mut prompted(), [silent(1), turn_event(TurnEvent::Interrupt), ended("cancelled")]);
    assert_eq!(end.unwrap().outcome, Outcome::Interrupted);
}

#[test]
fn a_plan_outlives_its_prompt_and_nothing_else() {
    let submitted = |number| agent(ForeignEvent::PlanSubmitted(plan(number)));
    let mut turn = prompted();
    let (end, todo) = run(&mut turn, [submitted(1), submitted(2), ended("end_turn")]);
    assert!(end.is_none() && turn.is_asking() && todo.contains("withdraw r2"), "{todo}");
    let (end, todo) = run(&mut turn, [settled(1, DecisionOutcome::Approved), taken()]);
    assert!(end.is_none() && todo.ends_with("drain, Prompt"), "{todo}");
    let (end, _) = run(&mut turn, [ended("end_turn")]);
    assert_eq!(end.unwrap().outcome, Outcome::Done);

    let mut turn = prompted();
    run(&mut turn, [submitted(1), ended("end_turn")]);
    let mail = [turn_event(TurnEvent::InputWaits), turn_event(TurnEvent::InputTaken { unseen: 1 })];
    let (end, todo) = run(&mut turn, mail);
    assert!(end.is_none() && todo.ends_with("Prompt") && turn.is_asking(), "{todo}");

    for over in [turn_event(TurnEvent::Interrupt), turn_event(TurnEvent::Stop { limit: None })] {
        let mut turn = prompted();
        let (end, todo) = run(&mut turn, [submitted(1), ended("end_turn"), over]);
        assert!(end.is_some() && todo.contains("withdraw r1"), "{todo}");
    }

    let mut turn = prompted();
    for number in 1..=MAX_PLANS.into() {
        let events = [submitted(number), settled(number, DecisionOutcome::Rejected)];
        let (end, _) = run(&mut turn, events);
        assert_eq!(end.is_some(), number == u64::from(MAX_PLANS), "{number}");
    }
}
