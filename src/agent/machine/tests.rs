//! Tests of a member's state machine: events drive it, and the actions are checked.

use super::MachineEvent as Event;
use super::*;
use crate::agent::conversation::test_support::{model_reply, question};
use crate::agent::conversation::{CallVerdict, TurnAction};
use crate::llm::ModelError;
use crate::tools::ToolError;
use crate::wire::AgentName;
use crate::wire::chat::Reply;
use crate::wire::permission::{Decision, DecisionOutcome};
use crate::wire::seal::Verification;
use serde_json::json;

pub(super) const CALL_MODEL: Action = Action::Turn(TurnAction::Effect(TurnEffect::CallModel));
pub(super) const DRAIN: Action = Action::Turn(TurnAction::Host(HostAction::TakeInput));

pub(super) fn identity(name: &str) -> Identity {
    Identity {
        name: AgentName::mailbox(name).unwrap(),
        incarnation: "i1".into(),
        max_rounds: 5,
        max_exchanges: 30,
        takes_tasks: false,
        checks_idle: false,
        foreign: None,
    }
}

/// Returns a member that is idle because its first drain brought no mail.
pub(super) fn idle(me: Identity) -> Machine {
    let (mut machine, first) = Machine::start(me, None);
    assert_eq!(first, [DRAIN]);
    run(&mut machine, [drained()]);
    machine
}

/// Returns a member whose model is called because of a prompt.
fn at_work(name: &str, max_rounds: u32) -> Machine {
    let mut machine = idle(Identity { max_rounds, ..identity(name) });
    let begun = run(&mut machine, [prompt(), drained()]);
    assert_eq!(begun.last(), Some(&CALL_MODEL));
    machine
}

/// Performs steps, and allows each call that is to be judged. Returns the actions of the last step.
pub(super) fn run(machine: &mut Machine, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
    let mut actions = Vec::new();
    for event in events {
        actions = machine.step(event);
        if matches!(actions.last(), Some(Action::Turn(TurnAction::Host(HostAction::Judge(_))))) {
            actions.extend(machine.step(Event::Judged(CallVerdict::Run)));
        }
    }
    actions
}

pub(super) fn prompt() -> Event {
    Event::Prompt("go".into())
}

pub(super) fn drained() -> Event {
    Event::Drained(vec![])
}

pub(super) fn mail(kind: &str, from: &str) -> Event {
    let object = json!({
        "type": kind, "from": from, "content": "x", "reason": "available", "outcome": "done",
        "request_id": "r1", "incarnation": "i1",
    });
    let message = Message::read(object.as_object().unwrap()).unwrap();
    Event::Drained(vec![Message { verification: Verification::Control, ..message }])
}

pub(super) fn interrupt_asked(id: &str) -> Event {
    let (request_id, by) = (id.into(), "user".into());
    Event::InterruptAsked(InterruptRequest { request_id, by, reason: Some("wrong file".into()) })
}

/// Returns the recorded effects of interrupt requests.
fn interrupts(actions: &[Action]) -> Vec<InterruptOutcome> {
    let records = effects(actions).filter_map(|effect| {
        let TurnEffect::Record(Entry::Interrupt { outcome, .. }) = effect else { return None };
        Some(*outcome)
    });
    records.collect()
}

/// An earlier process has begun the turn. The program of the lead must know that a turn runs, and takes its prompts.
#[test]
fn a_turn_that_goes_on_is_shown_and_takes_prompts() {
    let started = || TurnEffect::Show(Progress::TurnStarted { by_mail: false });
    let (mut lead, first) = Machine::start(identity("lead"), Some(VecDeque::new()));
    assert_eq!(first, [started().into(), DRAIN]);
    let actions = run(&mut lead, [prompt(), drained()]);
    assert!(effects(&actions).any(|it| *it == TurnEffect::Show(Progress::PromptsTaken(1))));
    assert!(effects(&actions).all(|it| *it != started()), "no second one starts: {actions:?}");
}

#[test]
fn a_prompt_that_is_taken_back_begins_no_turn_and_taken_ones_are_counted() {
    let shown = |actions: &[Action], progress: Progress| {
        effects(actions).any(|it| *it == TurnEffect::Show(progress.clone()))
    };
    let mut lead = idle(identity("lead"));
    lead.step(prompt());
    assert!(shown(&lead.step(Event::DropPrompts), Progress::PromptsDropped));
    let rested = lead.step(drained());
    assert!(!rested.contains(&CALL_MODEL) && shown(&rested, Progress::Idle), "{rested:?}");
    let begun = run(&mut lead, [prompt(), prompt(), drained()]);
    assert!(begun.contains(&CALL_MODEL) && shown(&begun, Progress::PromptsTaken(2)), "{begun:?}");
}

#[test]
fn an_interrupt_request_ends_a_running_turn_once() {
    use InterruptOutcome::{Interrupted, NoTurn};
    // During a model call, and during a tool.
    for begun in [vec![], vec![bash()]] {
        let mut alice = at_work("alice", 5);
        run(&mut alice, begun);
        let ended = alice.step(interrupt_asked("r1"));
        assert_eq!(interrupts(&ended), [Interrupted]);
        assert!(effects(&ended).any(|it| *it == TurnEffect::Cancel));
        let note = "the user interrupted your last turn, and says: wrong file";
        assert!(effects(&ended).any(
            |it| matches!(it, TurnEffect::Record(Entry::Note { content }) if content == note)
        ));
        // The drain brings the same request, which has been acted on.
        let rested = alice.step(mail("interrupt_request", "user"));
        assert_eq!(interrupts(&rested), []);
        let told = Action::NotifyIdle(IdleReason::Interrupted);
        assert!(rested.contains(&told), "{rested:?}");
        // A repeated request ends no later turn, and another one does.
        run(&mut alice, [prompt(), drained()]);
        assert_eq!(alice.step(interrupt_asked("r1")), []);
        assert_eq!(interrupts(&alice.step(interrupt_asked("r2"))), [Interrupted]);
        run(&mut alice, [drained()]);
        assert_eq!(interrupts(&alice.step(interrupt_asked("r3"))), [NoTurn]);
    }
}

#[test]
fn an_interrupt_request_that_is_drained_in_a_turn_ends_it_before_the_next_model_call() {
    let mut alice = at_work("alice", 5);
    run(&mut alice, [bash(), tool_ended(Ok("ok"))]);
    let ended = alice.step(mail("interrupt_request", "lead"));
    assert_eq!(interrupts(&ended), [InterruptOutcome::Interrupted]);
    assert!(!ended.contains(&CALL_MODEL) && ended.last() == Some(&DRAIN), "{ended:?}");
    // From a colleague, or to another agent, it counts for nothing.
    for (name, from) in [("alice", "bob"), ("lead", "user")] {
        let mut busy = at_work(name, 5);
        run(&mut busy, [bash(), tool_ended(Ok("ok"))]);
        let goes_on = busy.step(mail("interrupt_request", from));
        assert_eq!(goes_on.last(), Some(&CALL_MODEL), "{name} {from}");
    }
}

#[test]
fn an_interrupted_member_claims_no_task_until_its_next_turn() {
    let mut alice = idle(Identity { takes_tasks: true, ..identity("alice") });
    run(&mut alice, [prompt(), drained(), interrupt_asked("r1")]);
    let rested = alice.step(drained());
    assert!(!rested.contains(&Action::FindTask), "{rested:?}");
    assert_eq!(alice.step(Event::TaskInSight), []);
    let rested = run(&mut alice, [prompt(), drained(), reply("done", &[]), drained()]);
    assert!(rested.contains(&Action::FindTask), "{rested:?}");
}

pub(super) fn replied(result: Result<Reply, ModelError>) -> Event {
    Event::Work(WorkResult::Replied(result))
}

pub(super) fn reply(text: &str, calls: &[(&str, serde_json::Value)]) -> Event {
    replied(Ok(model_reply(text, calls)))
}

/// Returns a reply with one call of `bash`.
pub(super) fn bash() -> Event {
    reply("", &[("bash", json!({}))])
}

fn two_calls(text: &str) -> Event {
    reply(text, &[("bash", json!({})), ("bash", json!({}))])
}

pub(super) fn tool_ended(result: Result<&str, ToolError>) -> Event {
    Event::Work(WorkResult::ToolsEnded(vec![result.map(|text| text.to_owned().into())]))
}

pub(super) fn is_exit(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Exit(_)))
}

fn is_requested_exit(actions: &[Action]) -> bool {
    matches!(actions.last(), Some(Action::Exit(Ending::Stopped(StopCause::Requested { .. }))))
}

fn effects(actions: &[Action]) -> impl Iterator<Item = &TurnEffect> {
    actions.iter().filter_map(|action| {
        if let Action::Turn(TurnAction::Effect(effect)) = action { Some(effect) } else { None }
    })
}

fn runs_a_tool(actions: &[Action]) -> bool {
    effects(actions).any(|effect| matches!(effect, TurnEffect::RunTools(_)))
}

/// Returns the tool results that the actions record, each with whether it is an error.
fn results(actions: &[Action]) -> Vec<(&str, bool)> {
    let mut results = Vec::new();
    for effect in effects(actions) {
        if let TurnEffect::Record(Entry::ToolResult { content, is_error, .. }) = effect {
            results.push((content.as_str(), *is_error));
        }
    }
    results
}

fn reports(actions: &[Action]) -> Vec<(Outcome, &str)> {
    let mut reports = Vec::new();
    for action in actions {
        if let Action::EndTurn { outcome, report: Some(text), .. } = action {
            reports.push((*outcome, text.as_str()));
        }
    }
    reports
}

fn assert_order(actions: &[Action], first: &Action, second: &Action) {
    let at = |wanted| actions.iter().position(|action| action == wanted);
    assert!(at(first).is_some() && at(first) < at(second), "{first:?}, {second:?}: {actions:?}");
}

#[test]
fn a_message_wakes_an_idle_agent_and_an_idle_notice_does_not() {
    let mut alice = idle(identity("alice"));
    assert_eq!(run(&mut alice, [Event::Mail]), [DRAIN]);
    let quiet = run(&mut alice, [mail("idle_notification", "bob")]);
    assert!(!quiet.contains(&CALL_MODEL) && matches!(alice.phase, Phase::Idle));
    let woken = run(&mut alice, [Event::Mail, mail("message", "bob")]);
    assert_eq!(woken.last(), Some(&CALL_MODEL));
    // An observer must never see that the mail is no longer unread while the roster shows the agent as idle.
    let working = HostAction::Doing(Activity::Model).into();
    assert_order(&woken, &working, &HostAction::InputUsed.into());
}

#[test]
fn mail_announced_during_a_drain_is_drained_next() {
    let mut alice = idle(identity("alice"));
    let actions = run(&mut alice, [Event::Mail, Event::Mail, drained()]);
    assert_eq!(actions.last(), Some(&DRAIN));
    assert!(matches!(alice.phase, Phase::TakingMail));
}

/// Regression: a drain failed once after a turn. The roster showed the agent as working until the next message,
/// and a headless lead waited for it forever.
#[test]
fn a_failed_drain_does_not_keep_a_member_from_idle_or_from_a_prompt() {
    let mut alice = at_work("alice", 5);
    let failed = || Event::DrainFailed("no locks".into());
    let rest = run(&mut alice, [reply("all done", &[]), failed()]);
    for wanted in [Action::Publish(Status::Idle, None), Action::NotifyIdle(IdleReason::Available)] {
        assert!(rest.contains(&wanted), "{rest:?}");
    }
    assert!(matches!(alice.phase, Phase::Idle));
    assert_eq!(run(&mut alice, [prompt()]), [DRAIN]);
    assert_eq!(run(&mut alice, [failed()]).last(), Some(&CALL_MODEL));
}

#[test]
fn mail_is_drained_before_every_call_and_after_the_turn() {
    let mut alice = at_work("alice", 5);
    let actions = run(&mut alice, [bash()]);
    // The intent is durable before the tool runs.
    let intent = Entry::ToolStart { tool_use_id: "bash-0".into(), name: "bash".into() };
    assert_order(&actions, &TurnEffect::Record(intent).into(), &TurnEffect::Sync.into());
    let call = Call { id: "bash-0".into(), name: "bash".into(), input: json!({}) };
    assert_order(&actions, &TurnEffect::Sync.into(), &TurnEffect::RunTools(vec![call]).into());
    assert_eq!(run(&mut alice, [tool_ended(Ok("ok"))]).last(), Some(&DRAIN));
    assert_eq!(run(&mut alice, [drained()]).last(), Some(&CALL_MODEL));
    let end = run(&mut alice, [reply("all done", &[])]);
    assert_eq!(reports(&end), [(Outcome::Done, "all done")]);
    assert_eq!(end.last(), Some(&DRAIN));
    let (idle, told) =
        (Action::Publish(Status::Idle, None), Action::NotifyIdle(IdleReason::Available));
    assert_order(&run(&mut alice, [drained()]), &idle, &told);
}

#[test]
fn mail_that_came_before_the_call_of_idle_is_answered_first() {
    let mut alice = at_work("alice", 5);
    let reply = run(&mut alice, [Event::Mail, reply("", &[("idle", json!({}))])]);
    assert_eq!(reply.last(), Some(&DRAIN), "mail first, then the call");
    let ended = run(&mut alice, [mail("message", "bob"), tool_ended(Ok("Idle."))]);
    assert_eq!(ended.last(), Some(&DRAIN));
    assert_eq!(run(&mut alice, [drained()]).last(), Some(&CALL_MODEL));
}

#[test]
fn a_report_is_not_sent_twice() {
    let mut alice = at_work("alice", 5);
    let call = reply("", &[("send_message", json!({"to": "lead", "content": "done"}))]);
    let told = reply("I told the lead", &[]);
    assert_eq!(reports(&run(&mut alice, [call, tool_ended(Ok("sent")), drained(), told])), []);
    let mut lead = at_work("lead", 5);
    assert_eq!(reports(&run(&mut lead, [reply("hello", &[])])), [], "the lead reports to nobody");
}

#[test]
fn a_model_that_repeats_a_call_is_told_and_then_stopped() {
    let mut alice = at_work("alice", 50);
    let mut told = Vec::new();
    let end = loop {
        let failed = run(&mut alice, [bash(), tool_ended(Err(ToolError::Reply("no".into())))]);
        let errors = results(&failed).into_iter().filter(|(_, is_error)| *is_error);
        told.extend(errors.map(|(content, _)| content.to_owned()));
        let actions = run(&mut alice, [drained()]);
        if !actions.contains(&CALL_MODEL) {
            break actions;
        }
    };
    assert_eq!((told.len(), told[1].as_str()), (10, "no"));
    assert!(told[2].contains("do something else"), "{told:?}");
    assert!(reports(&end)[0].1.contains("bash returned the same result 10 times: no"), "{end:?}");
}

#[test]
fn a_shutdown_request_ends_an_idle_agent_without_a_model_call() {
    let mut alice = idle(identity("alice"));
    let actions = run(&mut alice, [Event::Mail, mail("shutdown_request", "lead")]);
    assert!(is_requested_exit(&actions) && !actions.contains(&CALL_MODEL), "{actions:?}");
}

#[test]
fn a_shutdown_request_lets_the_tool_finish_and_the_model_report() {
    let mut alice = at_work("alice", 5);
    let between = run(&mut alice, [two_calls(""), Event::Mail, tool_ended(Ok("one"))]);
    assert_eq!(between.last(), Some(&DRAIN), "mail is looked at between two tool calls");
    let told = run(&mut alice, [mail("shutdown_request", "lead")]);
    assert!(effects(&told).any(|effect| matches!(effect, TurnEffect::Record(Entry::Note { .. }))));
    assert!(results(&told).iter().any(|(_, is_error)| *is_error), "{told:?}");
    assert_eq!(told.last(), Some(&CALL_MODEL));
    let end = run(&mut alice, [reply("half done", &[])]);
    assert_eq!(reports(&end), [(Outcome::Done, "half done")]);
    assert!(matches!(end.last(), Some(Action::Exit(_))));
}

/// Returns a member that was asked to shut down during a turn.
fn asked_to_shut_down(max_rounds: u32) -> Machine {
    let mut alice = at_work("alice", max_rounds);
    let told = run(&mut alice, [bash(), tool_ended(Ok("")), mail("shutdown_request", "lead")]);
    assert_eq!(told.last(), Some(&CALL_MODEL));
    alice
}

#[test]
fn a_model_that_keeps_calling_tools_while_winding_down_is_ended() {
    let mut alice = asked_to_shut_down(5);
    for is_last in [false, true] {
        let refused = run(&mut alice, [bash()]);
        assert!(!runs_a_tool(&refused));
        assert_eq!(refused.last(), Some(&DRAIN));
        assert_eq!(is_exit(&run(&mut alice, [drained()])), is_last);
    }
}

/// Returns a member whose model has refused a shutdown request.
fn refusing() -> Machine {
    let mut alice = asked_to_shut_down(50);
    let no = reply("", &[("shutdown_response", json!({"approve": false}))]);
    run(&mut alice, [no, tool_ended(Ok("told")), drained()]);
    alice
}

#[test]
fn a_turn_goes_on_after_a_refusal_and_the_member_ends_with_it() {
    let mut alice = refusing();
    assert!(runs_a_tool(&run(&mut alice, [bash()])));
    let end = run(&mut alice, [tool_ended(Ok("saved")), drained(), reply("saved it", &[])]);
    assert!(is_requested_exit(&end), "{end:?}");
}

#[test]
fn a_refused_shutdown_allows_a_few_more_calls_once() {
    let mut alice = refusing();
    let (mut ran, mut refused) = (0, 0);
    loop {
        if runs_a_tool(&run(&mut alice, [bash()])) {
            assert_eq!(refused, 0, "work is not taken up again");
            ran += 1;
            run(&mut alice, [tool_ended(Ok(""))]);
        } else {
            refused += 1;
        }
        if is_exit(&run(&mut alice, [drained()])) {
            break;
        }
    }
    assert_eq!((ran, refused), (5, 2));
}

/// The answer waits for the end of the drain, and a later incarnation asks its question again.
#[test]
fn an_answer_during_a_drain_is_not_used_when_the_lead_is_lost() {
    let mut alice = at_work("alice", 5);
    alice.step(bash());
    let call = Call { id: "bash-0".into(), name: "bash".into(), input: json!({}) };
    let question = question(&call);
    let answer = Decision::by_program(&question.request_id, DecisionOutcome::Approved, "");
    let asked = Event::Judged(CallVerdict::Ask(question));
    let lost = Event::Stop(StopCause::LeadLost);
    let actions = run(&mut alice, [asked, Event::Mail, Event::Settled(answer), lost]);
    assert!(is_exit(&actions) && results(&actions).is_empty() && !runs_a_tool(&actions));
    assert!(!effects(&actions).any(|it| matches!(it, TurnEffect::Record(Entry::Decision(_)))));
}

#[test]
fn when_the_lead_is_lost_the_running_tool_may_end() {
    let mut alice = at_work("alice", 5);
    let lost = run(&mut alice, [two_calls("working on it"), Event::Stop(StopCause::LeadLost)]);
    assert_eq!(lost, [Action::StartLastCallTimeout]);
    let end = run(&mut alice, [tool_ended(Ok("ok"))]);
    assert_eq!(reports(&end), [(Outcome::Interrupted, "working on it")]);
    assert_eq!(end.last(), Some(&Action::Exit(Ending::Stopped(StopCause::LeadLost))));
}

/// Returns an idle member that claims tasks from the list.
pub(super) fn taker() -> Machine {
    idle(Identity { takes_tasks: true, ..identity("alice") })
}

#[test]
fn an_idle_agent_that_takes_tasks_works_before_it_claims() {
    let rested = run(&mut idle(identity("alice")), [Event::Mail, drained()]);
    assert!(!rested.contains(&Action::FindTask), "it takes none: {rested:?}");
    let mut alice = taker();
    let working = Action::Publish(Status::Working, Some(Activity::Task));
    assert_eq!(run(&mut alice, [Event::TaskInSight]), [working, Action::TakeTask]);
    assert_eq!(run(&mut alice, [Event::TaskInSight]), []);
    assert_eq!(run(&mut alice, [Event::Mail]), []);
    assert_eq!(run(&mut alice, [Event::TaskTaken]), [DRAIN]);
    let rested = run(&mut taker(), [Event::TaskInSight, Event::TaskTaken, drained()]);
    assert!(rested.contains(&Action::Publish(Status::Idle, None)), "another one took it");
    assert_eq!(rested.last(), Some(&Action::FindTask));
    assert_eq!(run(&mut alice, [mail("message", "system")]).last(), Some(&CALL_MODEL));
    assert_eq!(run(&mut alice, [Event::TaskInSight]), [], "it is at work");
    assert!(is_exit(&run(&mut taker(), [Event::TaskInSight, Event::Stop(StopCause::AtOnce)])));
}

/// A turn in which a command only sends mail continues an exchange, as one with the tool does.
#[test]
fn a_command_that_sends_mail_is_no_work() {
    for (has_sent_mail, may_go_on) in [(false, true), (true, false)] {
        let mut alice = idle(Identity { max_exchanges: 2, ..identity("alice") });
        let mut is_woken = true;
        for _ in 0..3 {
            let actions = run(&mut alice, [Event::Mail, mail("message", "bob")]);
            is_woken = actions.last() == Some(&CALL_MODEL);
            if is_woken {
                let output = crate::tools::ToolOutput { has_sent_mail, ..String::new().into() };
                let ended = Event::Work(WorkResult::ToolsEnded(vec![Ok(output)]));
                run(&mut alice, [bash(), ended, drained(), reply("done", &[]), drained()]);
            }
        }
        assert_eq!(is_woken, may_go_on);
    }
}
