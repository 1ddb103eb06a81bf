//! The machine is driven by hand: events in, actions out.

use super::*;
use crate::agent::event::CallVerdict;
use crate::wire::chat::{Block, Usage};
use proptest::prelude::*;
use serde_json::json;

fn machine(name: &str) -> Machine {
    let me = Identity {
        name: AgentName::mailbox(name).unwrap(),
        incarnation: "i1".into(),
        max_rounds: 5,
        max_exchanges: 30,
        auto_claim: AutoClaim::Asked,
        idle_hook: IdleHook::Free,
    };
    let (mut machine, first) = Machine::start(me, None);
    assert_eq!(first, [Action::Drain]);
    step(&mut machine, Event::Drained(vec![]));
    machine
}

/// A step, and whatever it wants to run is allowed.
fn step(machine: &mut Machine, event: Event) -> Vec<Action> {
    let mut actions = machine.step(event);
    if matches!(actions.last(), Some(Action::Judge(_))) {
        actions.extend(machine.step(Event::Judged(CallVerdict::Run)));
    }
    actions
}

fn mail(kind: &str, from: &str) -> Message {
    let object = json!({
        "type": kind, "from": from, "content": "x", "reason": "available", "outcome": "done",
        "request_id": "r1", "incarnation": "i1",
    });
    Message::read(object.as_object().unwrap()).unwrap()
}

fn reply(text: &str, calls: &[(&str, serde_json::Value)]) -> Event {
    let mut blocks = vec![Block::Text { text: text.into() }];
    for (n, (name, input)) in calls.iter().enumerate() {
        let id = format!("{name}-{n}");
        blocks.push(Block::ToolUse { id, name: (*name).into(), input: input.clone() });
    }
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    Event::Replied(Ok(Reply { blocks, stop_reason, usage: Usage::default(), model: "m".into() }))
}

fn has(actions: &[Action], wanted: impl Fn(&Action) -> bool) -> bool {
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
    assert_eq!(step(&mut alice, Event::Mail), [Action::Drain]);
    let quiet = step(&mut alice, Event::Drained(vec![mail("idle_notification", "bob")]));
    assert!(!quiet.contains(&Action::CallModel));
    assert!(!alice.is_busy());
    step(&mut alice, Event::Mail);
    let woken = step(&mut alice, Event::Drained(vec![mail("message", "bob")]));
    assert_eq!(woken.last(), Some(&Action::CallModel));
    let published = Action::Publish(Status::Working, Some(Activity::Model));
    let (at, taken) = (
        woken.iter().position(|action| *action == published),
        woken.iter().position(|action| *action == Action::MarkTaken),
    );
    assert!(at < taken, "an observer must never see claimed mail gone and the agent idle");
}

#[test]
fn mail_announced_during_a_drain_is_not_slept_upon() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Mail);
    step(&mut alice, Event::Mail);
    let actions = step(&mut alice, Event::Drained(vec![]));
    assert_eq!(actions.last(), Some(&Action::Drain));
    assert!(alice.is_busy());
}

/// The story: a turn was over, and to take mail in failed once. The agent said of itself that it worked until
/// somebody wrote to it, and a headless lead waited for it for ever.
#[test]
fn who_cannot_take_mail_in_rests_and_heeds_a_prompt_all_the_same() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    step(&mut alice, reply("all done", &[]));
    let failed = || Event::DrainFailed("no locks".into());
    let rest = step(&mut alice, failed());
    assert!(rest.contains(&Action::Publish(Status::Idle, None)), "{rest:?}");
    assert!(rest.contains(&Action::NotifyIdle(IdleReason::Available)), "{rest:?}");
    assert!(!alice.is_busy());
    assert_eq!(step(&mut alice, Event::Prompt("go on".into())), [Action::Drain]);
    assert_eq!(step(&mut alice, failed()).last(), Some(&Action::CallModel));
}

#[test]
fn mail_is_taken_in_before_every_call_and_after_the_turn() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    let actions = step(&mut alice, reply("", &[("bash", json!({}))]));
    assert!(has(&actions, |action| matches!(action, Action::RunTool(_))));
    let sync = actions.iter().position(|action| *action == Action::Sync);
    let run = actions.iter().position(|action| matches!(action, Action::RunTool(_)));
    assert!(sync < run, "the intent is durable before the tool runs");
    assert_eq!(step(&mut alice, Event::ToolEnded(Ok("ok".into()))).last(), Some(&Action::Drain));
    assert_eq!(step(&mut alice, Event::Drained(vec![])).last(), Some(&Action::CallModel));
    let end = step(&mut alice, reply("all done", &[]));
    assert_eq!(reports(&end), [(Outcome::Done, "all done".into())]);
    assert_eq!(end.last(), Some(&Action::Drain));
    let rest = step(&mut alice, Event::Drained(vec![]));
    let idle = rest.iter().position(|action| *action == Action::Publish(Status::Idle, None));
    let notice =
        rest.iter().position(|action| *action == Action::NotifyIdle(IdleReason::Available));
    assert!(idle < notice && idle.is_some(), "{rest:?}");
}

fn compacted() -> Event {
    let (summary, situation) = ("notes".into(), "You are alice.".into());
    let usage = Usage { output_tokens: 3, ..Usage::default() };
    Event::Compacted(Ok(Compacted { summary, situation, usage, context_tokens: None }))
}

#[test]
fn a_refusal_for_length_is_worth_one_summary() {
    let mut alice = machine("alice");
    let full = || Event::Replied(Err(ModelError::ContextFull("400".into())));
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    for _ in 0..2 {
        assert_eq!(step(&mut alice, full()), [Action::MakeRoom]);
        let after = step(&mut alice, compacted());
        assert!(has(&after, |action| matches!(action, Action::Count(usage) if usage.total() == 3)));
        let recorded = after.iter().position(|it| matches!(it, Action::Record(_)));
        let synced = after.iter().position(|it| *it == Action::Sync);
        assert!(recorded < synced, "what is forgotten is written down first");
        assert_eq!(after.last(), Some(&Action::CallModel));
        // An answer shows that it fits again.
        step(&mut alice, reply("", &[("bash", json!({}))]));
        step(&mut alice, Event::ToolEnded(Ok("ok".into())));
        step(&mut alice, Event::Drained(vec![]));
    }
    assert_eq!(step(&mut alice, full()), [Action::MakeRoom]);
    step(&mut alice, compacted());
    let end = step(&mut alice, full());
    assert!(reports(&end)[0].1.contains("not even summarized"), "{end:?}");
}

#[test]
fn a_summary_that_fails_ends_the_turn() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    let end = step(&mut alice, Event::Compacted(Err(ModelError::Unavailable("503".into()))));
    assert!(matches!(&reports(&end)[..], [(Outcome::Failed, why)] if why.contains("503")));
}

#[test]
fn mail_that_came_before_the_call_of_idle_is_not_slept_upon() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    step(&mut alice, Event::Mail);
    let reply = step(&mut alice, reply("", &[("idle", json!({}))]));
    assert_eq!(reply.last(), Some(&Action::Drain), "mail first, then the call");
    step(&mut alice, Event::Drained(vec![mail("message", "bob")]));
    assert_eq!(step(&mut alice, Event::ToolEnded(Ok("Idle.".into()))).last(), Some(&Action::Drain));
    assert_eq!(step(&mut alice, Event::Drained(vec![])).last(), Some(&Action::CallModel));
}

#[test]
fn a_report_is_not_sent_twice() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    step(&mut alice, reply("", &[("send_message", json!({"to": "lead", "content": "done"}))]));
    step(&mut alice, Event::ToolEnded(Ok("sent".into())));
    step(&mut alice, Event::Drained(vec![]));
    assert_eq!(reports(&step(&mut alice, reply("I told the lead", &[]))), []);
    let mut lead = machine("lead");
    step(&mut lead, Event::Prompt("go".into()));
    step(&mut lead, Event::Drained(vec![]));
    assert_eq!(reports(&step(&mut lead, reply("hello", &[]))), [], "the lead reports to nobody");
}

#[test]
fn rounds_are_bounded_and_the_end_is_told() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    let mut calls = 0;
    loop {
        let actions = step(&mut alice, Event::Drained(vec![]));
        if !actions.contains(&Action::CallModel) {
            let told = reports(&actions);
            assert!(told[0].1.contains("5 model calls"), "{told:?}");
            break;
        }
        calls += 1;
        step(&mut alice, reply("", &[("bash", json!({}))]));
        step(&mut alice, Event::ToolEnded(Ok(String::new())));
    }
    assert_eq!(calls, 5);
}

#[test]
fn who_goes_round_in_circles_is_told_and_then_stopped() {
    let mut alice = machine("alice");
    alice.me.max_rounds = 50;
    step(&mut alice, Event::Prompt("go".into()));
    let mut told = Vec::new();
    let end = loop {
        let actions = step(&mut alice, Event::Drained(vec![]));
        if !actions.contains(&Action::CallModel) {
            break reports(&actions);
        }
        step(&mut alice, reply("", &[("bash", json!({}))]));
        let actions = step(&mut alice, Event::ToolEnded(Err(ToolError::Reply("no".into()))));
        for action in actions {
            if let Action::Record(Entry::ToolResult { content, is_error: true, .. }) = action {
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
    step(&mut alice, Event::Mail);
    let actions = step(&mut alice, Event::Drained(vec![mail("shutdown_request", "lead")]));
    assert!(matches!(
        actions.last(),
        Some(Action::Exit(Ending::Stopped(StopCause::Requested { .. })))
    ));
    assert!(!actions.contains(&Action::CallModel));
}

#[test]
fn a_working_agent_finishes_its_tool_and_says_its_last_words() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    step(&mut alice, reply("", &[("bash", json!({})), ("bash", json!({}))]));
    step(&mut alice, Event::Mail);
    let between = step(&mut alice, Event::ToolEnded(Ok("one".into())));
    assert_eq!(between.last(), Some(&Action::Drain), "mail is looked at between two tool calls");
    let told = step(&mut alice, Event::Drained(vec![mail("shutdown_request", "lead")]));
    assert!(has(&told, |action| matches!(action, Action::Record(Entry::Note { .. }))));
    assert!(has(&told, |action| matches!(
        action,
        Action::Record(Entry::ToolResult { is_error: true, .. })
    )));
    assert_eq!(told.last(), Some(&Action::CallModel));
    let end = step(&mut alice, reply("half done", &[]));
    assert_eq!(reports(&end), [(Outcome::Done, "half done".into())]);
    assert!(matches!(end.last(), Some(Action::Exit(_))));
}

fn asked_to_shut_down_while_working(alice: &mut Machine) {
    step(alice, Event::Prompt("go".into()));
    step(alice, Event::Drained(vec![]));
    step(alice, reply("", &[("bash", json!({}))]));
    step(alice, Event::ToolEnded(Ok(String::new())));
    let told = step(alice, Event::Drained(vec![mail("shutdown_request", "lead")]));
    assert_eq!(told.last(), Some(&Action::CallModel));
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
        assert!(!has(&refused, |action| matches!(action, Action::RunTool(_))));
        assert_eq!(refused.last(), Some(&Action::Drain));
        let actions = step(&mut alice, Event::Drained(vec![]));
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
    step(&mut alice, Event::ToolEnded(Ok("told".into())));
    step(&mut alice, Event::Drained(vec![]));
    alice
}

#[test]
fn a_refusal_lets_the_turn_go_on_and_its_end_is_the_end() {
    let mut alice = refusing();
    let actions = step(&mut alice, reply("", &[("bash", json!({}))]));
    assert!(has(&actions, |action| matches!(action, Action::RunTool(_))));
    step(&mut alice, Event::ToolEnded(Ok("saved".into())));
    step(&mut alice, Event::Drained(vec![]));
    let end = step(&mut alice, reply("saved it", &[]));
    assert!(matches!(end.last(), Some(Action::Exit(Ending::Stopped(StopCause::Requested { .. })))));
}

#[test]
fn a_refusal_is_worth_a_few_calls_and_no_second_one() {
    let mut alice = refusing();
    let (mut ran, mut refused) = (0, 0);
    loop {
        let actions = step(&mut alice, reply("more", &[("bash", json!({}))]));
        if has(&actions, |action| matches!(action, Action::RunTool(_))) {
            assert_eq!(refused, 0, "work is not taken up again");
            ran += 1;
            step(&mut alice, Event::ToolEnded(Ok(String::new())));
        } else {
            refused += 1;
        }
        let actions = step(&mut alice, Event::Drained(vec![]));
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
        step(&mut alice, Event::Mail);
        let actions = step(&mut alice, Event::Drained(vec![message]));
        assert!(has(&actions, |action| matches!(action, Action::Log(_))));
        assert!(!has(&actions, |action| matches!(action, Action::Exit(_))));
    }
}

#[test]
fn an_interrupt_answers_every_call_and_keeps_the_agent() {
    let mut lead = machine("lead");
    step(&mut lead, Event::Prompt("go".into()));
    step(&mut lead, Event::Drained(vec![]));
    step(&mut lead, reply("", &[("bash", json!({})), ("bash", json!({}))]));
    let actions = step(&mut lead, Event::Interrupt);
    assert_eq!(actions.first(), Some(&Action::Cancel));
    let results = actions
        .iter()
        .filter(|action| matches!(action, Action::Record(Entry::ToolResult { .. })))
        .count();
    assert_eq!(results, 2);
    step(&mut lead, Event::Drained(vec![]));
    assert!(!lead.is_busy());
}

#[test]
fn when_the_lead_is_lost_the_running_tool_may_end() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Prompt("go".into()));
    step(&mut alice, Event::Drained(vec![]));
    step(&mut alice, reply("working on it", &[("bash", json!({})), ("bash", json!({}))]));
    assert_eq!(step(&mut alice, Event::Stop(StopCause::LeadLost)), [Action::StartPatience]);
    let end = step(&mut alice, Event::ToolEnded(Ok("ok".into())));
    assert_eq!(reports(&end), [(Outcome::Interrupted, "working on it".into())]);
    assert_eq!(end.last(), Some(&Action::Exit(Ending::Stopped(StopCause::LeadLost))));
}

fn events() -> impl Strategy<Value = u8> {
    0u8..14
}

proptest! {
    /// Whatever happens in whatever order: no call is left without an answer, nothing is asked of a
    /// machine that is over, and only one thing is ever under way.
    #[test]
    fn every_call_is_answered_and_one_thing_is_under_way(picks in proptest::collection::vec(events(), 0..60)) {
        let mut alice = machine("alice");
        let mut open: Vec<String> = Vec::new();
        let mut under_way = 0i32;
        let mut over = false;
        for pick in picks {
            let event = match pick {
                0 => Event::Mail,
                1 => Event::Drained(vec![]),
                2 => Event::Drained(vec![mail("message", "bob")]),
                3 => Event::Drained(vec![mail("shutdown_request", "lead")]),
                4 => Event::Prompt("p".into()),
                5 => reply("t", &[]),
                6 => reply("", &[("bash", json!({})), ("idle", json!({}))]),
                7 => reply("", &[("shutdown_response", json!({"approve": true}))]),
                8 => Event::Replied(Err(ModelError::Unavailable("x".into()))),
                9 => Event::ToolEnded(Ok("ok".into())),
                10 => Event::ToolEnded(Err(ToolError::Reply("no".into()))),
                11 => Event::Interrupt,
                12 => Event::DrainFailed("disk full".into()),
                _ => Event::PatienceOver,
            };
            // The loop only delivers answers to what it started.
            let answers = matches!(event, Event::Drained(_) | Event::DrainFailed(_)
                | Event::Replied(_) | Event::ToolEnded(_));
            let expected = match (&alice.phase, &event) {
                (Phase::Taking(_), Event::Drained(_) | Event::DrainFailed(_))
                | (Phase::Thinking(_), Event::Replied(_))
                | (Phase::Acting(..) | Phase::Leaving(..), Event::ToolEnded(_)) => true,
                _ => !answers,
            };
            if !expected {
                continue;
            }
            if answers {
                under_way -= 1;
            }
            for action in step(&mut alice, event) {
                prop_assert!(!over, "{action:?} after the end");
                if let Action::Record(Entry::Assistant { blocks, .. }) = &action {
                    prop_assert!(open.is_empty());
                    open.extend(blocks.iter().filter_map(call_of).map(|call| call.id));
                }
                if let Action::Record(Entry::ToolResult { tool_use_id, .. }) = &action {
                    let before = open.len();
                    open.retain(|id| id != tool_use_id);
                    prop_assert_eq!(open.len() + 1, before);
                }
                if matches!(action, Action::CallModel | Action::Exit(_)) {
                    prop_assert!(open.is_empty());
                }
                over |= matches!(action, Action::Exit(_));
                let begins =
                    matches!(action, Action::CallModel | Action::RunTool(_) | Action::Drain);
                under_way += i32::from(begins) - i32::from(action == Action::Cancel);
                prop_assert!(under_way <= 1);
            }
        }
    }
}

fn taker() -> Machine {
    let me = Identity {
        name: AgentName::member("alice").unwrap(),
        incarnation: "i1".into(),
        max_rounds: 5,
        max_exchanges: 30,
        auto_claim: AutoClaim::TakesTasks,
        idle_hook: IdleHook::Free,
    };
    let (mut machine, _) = Machine::start(me, None);
    let rested = step(&mut machine, Event::Drained(vec![]));
    assert_eq!(rested.last(), Some(&Action::FindTask));
    machine
}

#[test]
fn an_idle_agent_that_takes_tasks_works_before_it_claims() {
    let mut alice = taker();
    let working = Action::Publish(Status::Working, Some(Activity::Task));
    assert_eq!(step(&mut alice, Event::TaskInSight), [working, Action::TakeTask]);
    assert_eq!(step(&mut alice, Event::TaskInSight), []);
    assert_eq!(step(&mut alice, Event::Mail), []);
    assert_eq!(step(&mut alice, Event::TaskTaken), [Action::Drain]);
    let mut lost = taker();
    step(&mut lost, Event::TaskInSight);
    step(&mut lost, Event::TaskTaken);
    let rested = step(&mut lost, Event::Drained(vec![]));
    assert!(rested.contains(&Action::Publish(Status::Idle, None)), "another one took it");
    assert_eq!(rested.last(), Some(&Action::FindTask));
    let woken = step(&mut alice, Event::Drained(vec![mail("message", "system")]));
    assert_eq!(woken.last(), Some(&Action::CallModel));
    assert_eq!(step(&mut alice, Event::TaskInSight), [], "it is at work");
    let mut leaving = taker();
    step(&mut leaving, Event::TaskInSight);
    let left = step(&mut leaving, Event::Stop(StopCause::AtOnce));
    assert!(has(&left, |action| matches!(action, Action::Exit(_))));
}

#[test]
fn others_do_not_look_for_tasks() {
    let mut alice = machine("alice");
    step(&mut alice, Event::Mail);
    assert!(!step(&mut alice, Event::Drained(vec![])).contains(&Action::FindTask));
}
