//! The machine of a member, driven by events; the actions are checked.

use super::*;
use crate::agent::conversation::{CallVerdict, WorkResult};
use crate::llm::ModelError;
use crate::tools::ToolError;
use crate::wire::AgentName;
use crate::wire::chat::{Block, Reply, StopReason, Usage};
use serde_json::json;

pub(super) fn identity(name: &str) -> Identity {
    Identity {
        name: AgentName::mailbox(name).unwrap(),
        incarnation: "i1".into(),
        max_rounds: 5,
        max_exchanges: 30,
        auto_claim: AutoClaim::Asked,
        idle_hook: IdleHook::Free,
    }
}

pub(super) fn machine(name: &str) -> Machine {
    let (mut machine, first) = Machine::start(identity(name), None);
    assert_eq!(first, [Action::Drain]);
    step(&mut machine, MachineEvent::Drained(vec![]));
    machine
}

/// Performs a step; a call that it wants to run is allowed.
pub(super) fn step(machine: &mut Machine, event: MachineEvent) -> Vec<Action> {
    let mut actions = machine.step(event);
    if matches!(actions.last(), Some(Action::Judge(_))) {
        actions.extend(machine.step(MachineEvent::Judged(CallVerdict::Run)));
    }
    actions
}

pub(super) fn replied(result: Result<Reply, ModelError>) -> MachineEvent {
    MachineEvent::Work(WorkResult::Replied(result))
}

pub(super) fn tool_ended(result: Result<String, ToolError>) -> MachineEvent {
    MachineEvent::Work(WorkResult::ToolEnded(result))
}

/// Whether a turn is under way or about to begin.
fn is_busy(machine: &Machine) -> bool {
    !matches!(machine.phase, Phase::Idle | Phase::Over) || !machine.prompts.is_empty()
}

pub(super) fn mail(kind: &str, from: &str) -> Message {
    let object = json!({
        "type": kind, "from": from, "content": "x", "reason": "available", "outcome": "done",
        "request_id": "r1", "incarnation": "i1",
    });
    Message::read(object.as_object().unwrap()).unwrap()
}

pub(super) fn reply(text: &str, calls: &[(&str, serde_json::Value)]) -> MachineEvent {
    let mut blocks = vec![Block::Text { text: text.into() }];
    for (n, (name, input)) in calls.iter().enumerate() {
        let id = format!("{name}-{n}");
        blocks.push(Block::ToolUse { id, name: (*name).into(), input: input.clone() });
    }
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    replied(Ok(Reply { blocks, stop_reason, usage: Usage::default(), model: "m".into() }))
}

pub(super) fn has(actions: &[Action], wanted: impl Fn(&Action) -> bool) -> bool {
    actions.iter().any(wanted)
}

fn reports(actions: &[Action]) -> Vec<(Outcome, String)> {
    let report = |action: &Action| {
        let Action::EndTurn { outcome, report: Some(text), .. } = action else { return None };
        Some((*outcome, text.clone()))
    };
    actions.iter().filter_map(report).collect()
}

#[test]
fn a_message_wakes_an_idle_agent_and_an_idle_notice_does_not() {
    let mut alice = machine("alice");
    assert_eq!(step(&mut alice, MachineEvent::Mail), [Action::Drain]);
    let quiet = step(&mut alice, MachineEvent::Drained(vec![mail("idle_notification", "bob")]));
    assert!(!quiet.contains(&Action::Effect(Effect::CallModel)));
    assert!(!is_busy(&alice));
    step(&mut alice, MachineEvent::Mail);
    let woken = step(&mut alice, MachineEvent::Drained(vec![mail("message", "bob")]));
    assert_eq!(woken.last(), Some(&Action::Effect(Effect::CallModel)));
    let published = Action::Publish(Status::Working, Some(Activity::Model));
    let (at, taken) = (
        woken.iter().position(|action| *action == published),
        woken.iter().position(|action| *action == Action::MarkTaken),
    );
    assert!(at < taken, "an observer must never see claimed mail gone and the agent idle");
}

#[test]
fn mail_announced_during_a_drain_is_drained_next() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Mail);
    step(&mut alice, MachineEvent::Mail);
    let actions = step(&mut alice, MachineEvent::Drained(vec![]));
    assert_eq!(actions.last(), Some(&Action::Drain));
    assert!(is_busy(&alice));
}

/// The story: a turn was over, and to take mail in failed once. The agent said of itself that it worked until
/// somebody wrote to it, and a headless lead waited for it for ever.
#[test]
fn a_failed_drain_does_not_keep_a_member_from_idle_or_from_a_prompt() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    step(&mut alice, reply("all done", &[]));
    let failed = || MachineEvent::DrainFailed("no locks".into());
    let rest = step(&mut alice, failed());
    assert!(rest.contains(&Action::Publish(Status::Idle, None)), "{rest:?}");
    assert!(rest.contains(&Action::NotifyIdle(IdleReason::Available)), "{rest:?}");
    assert!(!is_busy(&alice));
    assert_eq!(step(&mut alice, MachineEvent::Prompt("go on".into())), [Action::Drain]);
    assert_eq!(step(&mut alice, failed()).last(), Some(&Action::Effect(Effect::CallModel)));
}

#[test]
fn mail_is_taken_in_before_every_call_and_after_the_turn() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    let actions = step(&mut alice, reply("", &[("bash", json!({}))]));
    assert!(has(&actions, |action| matches!(action, Action::Effect(Effect::RunTool(_)))));
    let sync = actions.iter().position(|action| *action == Action::Effect(Effect::Sync));
    let run =
        actions.iter().position(|action| matches!(action, Action::Effect(Effect::RunTool(_))));
    assert!(sync < run, "the intent is durable before the tool runs");
    assert_eq!(step(&mut alice, tool_ended(Ok("ok".into()))).last(), Some(&Action::Drain));
    assert_eq!(
        step(&mut alice, MachineEvent::Drained(vec![])).last(),
        Some(&Action::Effect(Effect::CallModel))
    );
    let end = step(&mut alice, reply("all done", &[]));
    assert_eq!(reports(&end), [(Outcome::Done, "all done".into())]);
    assert_eq!(end.last(), Some(&Action::Drain));
    let rest = step(&mut alice, MachineEvent::Drained(vec![]));
    let idle = rest.iter().position(|action| *action == Action::Publish(Status::Idle, None));
    let notice =
        rest.iter().position(|action| *action == Action::NotifyIdle(IdleReason::Available));
    assert!(idle < notice && idle.is_some(), "{rest:?}");
}

#[test]
fn mail_that_came_before_the_call_of_idle_is_answered_first() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    step(&mut alice, MachineEvent::Mail);
    let reply = step(&mut alice, reply("", &[("idle", json!({}))]));
    assert_eq!(reply.last(), Some(&Action::Drain), "mail first, then the call");
    step(&mut alice, MachineEvent::Drained(vec![mail("message", "bob")]));
    assert_eq!(step(&mut alice, tool_ended(Ok("Idle.".into()))).last(), Some(&Action::Drain));
    assert_eq!(
        step(&mut alice, MachineEvent::Drained(vec![])).last(),
        Some(&Action::Effect(Effect::CallModel))
    );
}

#[test]
fn a_report_is_not_sent_twice() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    step(&mut alice, reply("", &[("send_message", json!({"to": "lead", "content": "done"}))]));
    step(&mut alice, tool_ended(Ok("sent".into())));
    step(&mut alice, MachineEvent::Drained(vec![]));
    assert_eq!(reports(&step(&mut alice, reply("I told the lead", &[]))), []);
    let mut lead = machine("lead");
    step(&mut lead, MachineEvent::Prompt("go".into()));
    step(&mut lead, MachineEvent::Drained(vec![]));
    assert_eq!(reports(&step(&mut lead, reply("hello", &[]))), [], "the lead reports to nobody");
}

#[test]
fn rounds_are_bounded_and_the_limit_is_reported() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    let mut calls = 0;
    loop {
        let actions = step(&mut alice, MachineEvent::Drained(vec![]));
        if !actions.contains(&Action::Effect(Effect::CallModel)) {
            let told = reports(&actions);
            assert!(told[0].1.contains("5 model calls"), "{told:?}");
            break;
        }
        calls += 1;
        step(&mut alice, reply("", &[("bash", json!({}))]));
        step(&mut alice, tool_ended(Ok(String::new())));
    }
    assert_eq!(calls, 5);
}

#[test]
fn a_model_that_repeats_a_call_is_told_and_then_stopped() {
    let mut alice = machine("alice");
    alice.me.max_rounds = 50;
    step(&mut alice, MachineEvent::Prompt("go".into()));
    let mut told = Vec::new();
    let end = loop {
        let actions = step(&mut alice, MachineEvent::Drained(vec![]));
        if !actions.contains(&Action::Effect(Effect::CallModel)) {
            break reports(&actions);
        }
        step(&mut alice, reply("", &[("bash", json!({}))]));
        let actions = step(&mut alice, tool_ended(Err(ToolError::Reply("no".into()))));
        for action in actions {
            if let Action::Effect(Effect::Record(Entry::ToolResult {
                content,
                is_error: true,
                ..
            })) = action
            {
                told.push(content);
            }
        }
    };
    assert_eq!((told.len(), told[1].as_str()), (10, "no"));
    assert!(told[2].contains("do something else"), "{told:?}");
    assert!(end[0].1.contains("bash had the same result 10 times: no"), "{end:?}");
}

#[test]
fn a_shutdown_request_ends_an_idle_agent_without_a_model_call() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Mail);
    let actions = step(&mut alice, MachineEvent::Drained(vec![mail("shutdown_request", "lead")]));
    assert!(matches!(
        actions.last(),
        Some(Action::Exit(Ending::Stopped(StopCause::Requested { .. })))
    ));
    assert!(!actions.contains(&Action::Effect(Effect::CallModel)));
}

#[test]
fn a_shutdown_request_lets_the_tool_finish_and_the_model_report() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    step(&mut alice, reply("", &[("bash", json!({})), ("bash", json!({}))]));
    step(&mut alice, MachineEvent::Mail);
    let between = step(&mut alice, tool_ended(Ok("one".into())));
    assert_eq!(between.last(), Some(&Action::Drain), "mail is looked at between two tool calls");
    let told = step(&mut alice, MachineEvent::Drained(vec![mail("shutdown_request", "lead")]));
    assert!(has(&told, |action| matches!(
        action,
        Action::Effect(Effect::Record(Entry::Note { .. }))
    )));
    assert!(has(&told, |action| matches!(
        action,
        Action::Effect(Effect::Record(Entry::ToolResult { is_error: true, .. }))
    )));
    assert_eq!(told.last(), Some(&Action::Effect(Effect::CallModel)));
    let end = step(&mut alice, reply("half done", &[]));
    assert_eq!(reports(&end), [(Outcome::Done, "half done".into())]);
    assert!(matches!(end.last(), Some(Action::Exit(_))));
}

fn asked_to_shut_down_while_working(alice: &mut Machine) {
    step(alice, MachineEvent::Prompt("go".into()));
    step(alice, MachineEvent::Drained(vec![]));
    step(alice, reply("", &[("bash", json!({}))]));
    step(alice, tool_ended(Ok(String::new())));
    let told = step(alice, MachineEvent::Drained(vec![mail("shutdown_request", "lead")]));
    assert_eq!(told.last(), Some(&Action::Effect(Effect::CallModel)));
}

#[test]
fn a_model_that_keeps_calling_tools_while_winding_down_is_ended() {
    let mut alice = machine("alice");
    asked_to_shut_down_while_working(&mut alice);
    let mut steps = 0;
    loop {
        steps += 1;
        assert!(steps < 10);
        let refused = step(&mut alice, reply("more", &[("bash", json!({}))]));
        assert!(!has(&refused, |action| matches!(action, Action::Effect(Effect::RunTool(_)))));
        assert_eq!(refused.last(), Some(&Action::Drain));
        let actions = step(&mut alice, MachineEvent::Drained(vec![]));
        if has(&actions, |action| matches!(action, Action::Exit(_))) {
            break;
        }
    }
    assert_eq!(steps, 2);
}

/// Asked to shut down, its model said no.
fn refusing() -> Machine {
    let mut alice = machine("alice");
    alice.me.max_rounds = 50;
    asked_to_shut_down_while_working(&mut alice);
    step(&mut alice, reply("", &[("shutdown_response", json!({"approve": false}))]));
    step(&mut alice, tool_ended(Ok("told".into())));
    step(&mut alice, MachineEvent::Drained(vec![]));
    alice
}

#[test]
fn a_turn_goes_on_after_a_refusal_and_the_member_ends_with_it() {
    let mut alice = refusing();
    let actions = step(&mut alice, reply("", &[("bash", json!({}))]));
    assert!(has(&actions, |action| matches!(action, Action::Effect(Effect::RunTool(_)))));
    step(&mut alice, tool_ended(Ok("saved".into())));
    step(&mut alice, MachineEvent::Drained(vec![]));
    let end = step(&mut alice, reply("saved it", &[]));
    assert!(matches!(end.last(), Some(Action::Exit(Ending::Stopped(StopCause::Requested { .. })))));
}

#[test]
fn a_refusal_is_worth_a_few_calls_once() {
    let mut alice = refusing();
    let (mut ran, mut refused) = (0, 0);
    loop {
        let actions = step(&mut alice, reply("more", &[("bash", json!({}))]));
        if has(&actions, |action| matches!(action, Action::Effect(Effect::RunTool(_)))) {
            assert_eq!(refused, 0, "work is not taken up again");
            ran += 1;
            step(&mut alice, tool_ended(Ok(String::new())));
        } else {
            refused += 1;
        }
        let actions = step(&mut alice, MachineEvent::Drained(vec![]));
        if has(&actions, |action| matches!(action, Action::Exit(_))) {
            break;
        }
    }
    assert_eq!((ran, refused), (5, 2));
}

#[test]
fn a_request_for_another_life_or_from_a_colleague_changes_nothing() {
    for message in [
        mail("shutdown_request", "bob"),
        Message { incarnation: Some("old".into()), ..mail("shutdown_request", "lead") },
        Message { request_id: None, ..mail("shutdown_request", "lead") },
    ] {
        let mut alice = machine("alice");
        step(&mut alice, MachineEvent::Mail);
        let actions = step(&mut alice, MachineEvent::Drained(vec![message]));
        assert!(has(&actions, |action| matches!(action, Action::Effect(Effect::Log(_)))));
        assert!(!has(&actions, |action| matches!(action, Action::Exit(_))));
    }
}

#[test]
fn an_interrupt_answers_every_call_and_keeps_the_agent() {
    let mut lead = machine("lead");
    step(&mut lead, MachineEvent::Prompt("go".into()));
    step(&mut lead, MachineEvent::Drained(vec![]));
    step(&mut lead, reply("", &[("bash", json!({})), ("bash", json!({}))]));
    let actions = step(&mut lead, MachineEvent::Interrupt);
    assert_eq!(actions.first(), Some(&Action::Effect(Effect::Cancel)));
    let results = actions
        .iter()
        .filter(|action| matches!(action, Action::Effect(Effect::Record(Entry::ToolResult { .. }))))
        .count();
    assert_eq!(results, 2);
    step(&mut lead, MachineEvent::Drained(vec![]));
    assert!(!is_busy(&lead));
}

#[test]
fn when_the_lead_is_lost_the_running_tool_may_end() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Prompt("go".into()));
    step(&mut alice, MachineEvent::Drained(vec![]));
    step(&mut alice, reply("working on it", &[("bash", json!({})), ("bash", json!({}))]));
    assert_eq!(
        step(&mut alice, MachineEvent::Stop(StopCause::LeadLost)),
        [Action::StartLastCallTimeout]
    );
    let end = step(&mut alice, tool_ended(Ok("ok".into())));
    assert_eq!(reports(&end), [(Outcome::Interrupted, "working on it".into())]);
    assert_eq!(end.last(), Some(&Action::Exit(Ending::Stopped(StopCause::LeadLost))));
}

pub(super) fn taker() -> Machine {
    let me = Identity { auto_claim: AutoClaim::TakesTasks, ..identity("alice") };
    let (mut machine, _) = Machine::start(me, None);
    let rested = step(&mut machine, MachineEvent::Drained(vec![]));
    assert_eq!(rested.last(), Some(&Action::FindTask));
    machine
}

#[test]
fn an_idle_agent_that_takes_tasks_works_before_it_claims() {
    let mut alice = taker();
    let working = Action::Publish(Status::Working, Some(Activity::Task));
    assert_eq!(step(&mut alice, MachineEvent::TaskInSight), [working, Action::TakeTask]);
    assert_eq!(step(&mut alice, MachineEvent::TaskInSight), []);
    assert_eq!(step(&mut alice, MachineEvent::Mail), []);
    assert_eq!(step(&mut alice, MachineEvent::TaskTaken), [Action::Drain]);
    let mut lost = taker();
    step(&mut lost, MachineEvent::TaskInSight);
    step(&mut lost, MachineEvent::TaskTaken);
    let rested = step(&mut lost, MachineEvent::Drained(vec![]));
    assert!(rested.contains(&Action::Publish(Status::Idle, None)), "another one took it");
    assert_eq!(rested.last(), Some(&Action::FindTask));
    let woken = step(&mut alice, MachineEvent::Drained(vec![mail("message", "system")]));
    assert_eq!(woken.last(), Some(&Action::Effect(Effect::CallModel)));
    assert_eq!(step(&mut alice, MachineEvent::TaskInSight), [], "it is at work");
    let mut leaving = taker();
    step(&mut leaving, MachineEvent::TaskInSight);
    let left = step(&mut leaving, MachineEvent::Stop(StopCause::AtOnce));
    assert!(has(&left, |action| matches!(action, Action::Exit(_))));
}

#[test]
fn a_member_without_auto_claim_does_not_look_for_tasks() {
    let mut alice = machine("alice");
    step(&mut alice, MachineEvent::Mail);
    assert!(!step(&mut alice, MachineEvent::Drained(vec![])).contains(&Action::FindTask));
}
