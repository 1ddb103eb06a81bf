//! Tests of a member's whole state machine: every pair of phase and event, and any order of events.

use super::MachineEvent as Event;
use super::tests::{
    CALL_MODEL, DRAIN, bash, drained, identity, idle, interrupt_asked, is_exit, mail, prompt,
    replied, reply, run, taker, tool_ended,
};
use super::*;
use crate::agent::conversation::test_support::{
    OpenCalls, not_compacted, question, transition_table,
};
use crate::agent::conversation::{CallVerdict, TurnAction};
use crate::llm::ModelError;
use crate::tools::ToolError;
use crate::wire::permission::{Decision, DecisionOutcome};
use proptest::prelude::*;
use serde_json::json;

/// A result that the event loop must still deliver to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Drain,
    Reply,
    Summary,
    ToolResult,
    HookAnswer,
    Task,
    Claim,
    Timeout,
    Answer,
}

/// The results that the event loop must still deliver to the machine.
#[derive(Debug, Default)]
struct Owed {
    results: BTreeSet<Pending>,
    /// The request id of the last question.
    asked: String,
}

fn begun_by(action: &Action) -> Option<Pending> {
    let begins = [
        (matches!(action, Action::CheckIdle { .. }), Pending::HookAnswer),
        (*action == Action::FindTask, Pending::Task),
        (*action == Action::TakeTask, Pending::Claim),
        (*action == Action::StartLastCallTimeout, Pending::Timeout),
        (*action == CALL_MODEL, Pending::Reply),
        (*action == TurnEffect::Compact.into(), Pending::Summary),
        (
            matches!(action, Action::Turn(TurnAction::Effect(TurnEffect::RunTools(_)))),
            Pending::ToolResult,
        ),
        (*action == DRAIN, Pending::Drain),
        (matches!(action, Action::Turn(TurnAction::Host(HostAction::Ask(_)))), Pending::Answer),
    ];
    begins.into_iter().find_map(|(is_begun, work)| is_begun.then_some(work))
}

impl Owed {
    /// Notes an action. Asserts that at most one drain and one piece of work are under way.
    fn note(&mut self, action: &Action) {
        const WORK: [Pending; 3] = [Pending::Reply, Pending::Summary, Pending::ToolResult];
        if *action == TurnEffect::Cancel.into() {
            self.results.retain(|it| !WORK.contains(it));
        } else if *action == Action::CancelIdleCheck {
            self.results.remove(&Pending::HookAnswer);
        } else if let Action::Turn(TurnAction::Host(HostAction::Ask(question))) = action {
            self.asked.clone_from(&question.request_id);
        } else if let Action::Turn(TurnAction::Host(HostAction::Withdraw(_))) = action {
            self.results.remove(&Pending::Answer);
        } else if let Action::Turn(TurnAction::Effect(TurnEffect::Log(text))) = action {
            assert!(!text.contains("unexpected"), "{text}");
        }
        let Some(begun) = begun_by(action) else { return };
        let is_free = !WORK.contains(&begun) || !WORK.iter().any(|it| self.results.contains(it));
        let is_new = self.results.insert(begun) || begun == Pending::Task;
        assert!(is_free && is_new, "{action:?} while {:?} are under way", self.results);
    }

    /// Returns the event with the number `pick`, if the event loop can deliver it now.
    fn deliver(&mut self, pick: usize) -> Option<Event> {
        let (owed, event) = deliveries(&self.asked).swap_remove(pick);
        let can_come = match owed {
            None => true,
            // The drain continues.
            Some(owed) if matches!(event, Event::DiskFull) => self.results.contains(&owed),
            Some(owed) => self.results.remove(&owed),
        };
        can_come.then_some(event)
    }
}

/// Returns the events of the event loop, each with the pending result that it needs. `asked` is the last question.
fn deliveries(asked: &str) -> Vec<(Option<Pending>, Event)> {
    let too_long = || ModelError::ContextFull("400".into());
    let settled = |outcome| Event::Settled(Decision::by_program(asked, outcome, "because"));
    let refusal = reply("", &[("shutdown_response", json!({"approve": true}))]);
    let free = [
        Event::Mail,
        prompt(),
        Event::DropPrompts,
        Event::Notice("n".into()),
        Event::Interrupt,
        interrupt_asked("r9"),
        Event::Stop(StopCause::LeadLost),
    ];
    let owed = [
        (Pending::Drain, Event::DiskFull),
        (Pending::Drain, drained()),
        (Pending::Drain, mail("message", "bob")),
        (Pending::Drain, mail("shutdown_request", "lead")),
        (Pending::Drain, mail("interrupt_request", "user")),
        (Pending::Drain, Event::DrainFailed("no locks".into())),
        (Pending::Reply, reply("t", &[])),
        (Pending::Reply, reply("", &[("bash", json!({})), ("idle", json!({}))])),
        (Pending::Reply, refusal),
        (Pending::Reply, replied(Err(ModelError::Unavailable("x".into())))),
        (Pending::Reply, replied(Err(too_long()))),
        (Pending::Summary, Event::Work(not_compacted(too_long(), false))),
        (Pending::Summary, Event::Work(not_compacted(too_long(), true))),
        (Pending::ToolResult, tool_ended(Ok("ok"))),
        (Pending::ToolResult, tool_ended(Err(ToolError::Reply("no".into())))),
        (Pending::ToolResult, tool_ended(Err(ToolError::Fatal("gone".into())))),
        (Pending::HookAnswer, Event::IdleChecked(Ok(()))),
        (Pending::HookAnswer, Event::IdleChecked(Err("not yet".into()))),
        (Pending::Task, Event::TaskInSight),
        (Pending::Claim, Event::TaskTaken),
        (Pending::Timeout, Event::LastCallTimeout),
        (Pending::Answer, settled(DecisionOutcome::Approved)),
        (Pending::Answer, settled(DecisionOutcome::Rejected)),
    ];
    let owed = owed.into_iter().map(|(owed, event)| (Some(owed), event));
    free.into_iter().map(|event| (None, event)).chain(owed).collect()
}

proptest! {
    /// Events come in any order in which the event loop can deliver them. Every tool call is answered before the
    /// next model call and before the end. At most one drain and one piece of work are under way. No event is
    /// unexpected, and no action follows the end.
    #[test]
    fn any_order_of_events_keeps_the_invariants(
        picks in proptest::collection::vec((0usize..28, 0u8..3), 0..80),
        hooks in any::<bool>(),
    ) {
        let me = Identity { takes_tasks: true, checks_idle: hooks, ..identity("alice") };
        let (mut alice, first) = Machine::start(me, None);
        let (mut owed, mut open) = (Owed::default(), OpenCalls::default());
        let (mut is_asking, mut is_over) = (false, false);
        for action in &first {
            owed.note(action);
        }
        for (pick, verdict) in picks {
            let Some(event) = owed.deliver(pick) else { continue };
            let mut next = Some(event);
            while let Some(event) = next.take() {
                for action in alice.step(event) {
                    prop_assert!(!is_over, "{action:?} after the end");
                    if let Action::Turn(TurnAction::Effect(TurnEffect::Record(entry))) = &action {
                        open.note(entry);
                        is_asking &= !matches!(entry, Entry::Decision(_));
                    } else if let Action::Turn(TurnAction::Host(HostAction::Ask(_))) = &action {
                        is_asking = true;
                    } else if action == CALL_MODEL {
                        prop_assert!(open.is_empty());
                    } else if let Action::Exit(ending) = &action {
                        // A later incarnation asks a question again that is open when the lead is lost.
                        let is_lost = *ending == Ending::Stopped(StopCause::LeadLost);
                        prop_assert!(open.is_empty() || is_asking && is_lost);
                        is_over = true;
                    } else if let Action::Turn(TurnAction::Host(HostAction::Judge(call))) = &action {
                        next = Some(Event::Judged(match verdict {
                            0 => CallVerdict::Run,
                            1 => CallVerdict::Refuse("no".into()),
                            _ => CallVerdict::Ask(question(call)),
                        }));
                    }
                    owed.note(&action);
                }
            }
            prop_assert_eq!(is_over, matches!(alice.phase, Phase::Over));
            if is_over {
                break;
            }
        }
    }
}

fn phases() -> Vec<(&'static str, Machine)> {
    let after = |mut machine: Machine, events: Vec<Event>| {
        run(&mut machine, events);
        machine
    };
    let alice = || idle(identity("alice"));
    let hooked = idle(Identity { checks_idle: true, ..identity("alice") });
    let lost = Event::Stop(StopCause::LeadLost);
    vec![
        ("Idle", alice()),
        ("Claiming", after(taker(), vec![Event::TaskInSight])),
        ("Resting", after(hooked, vec![prompt(), drained(), reply("done", &[]), drained()])),
        ("TakingMail", after(alice(), vec![Event::Mail])),
        ("InTurn", after(alice(), vec![prompt(), drained()])),
        ("Leaving", after(alice(), vec![prompt(), drained(), bash(), lost])),
        ("Over", after(alice(), vec![Event::Stop(StopCause::AtOnce)])),
    ]
}

fn all_events() -> Vec<(&'static str, Event)> {
    let decision = Decision::by_program("r", DecisionOutcome::Approved, "");
    vec![
        ("Mail", Event::Mail),
        ("Drained", drained()),
        ("DrainFailed", Event::DrainFailed("no locks".into())),
        ("DiskFull", Event::DiskFull),
        ("TeamGone", Event::TeamGone("moved".into())),
        ("Prompt", prompt()),
        ("DropPrompts", Event::DropPrompts),
        ("Notice", Event::Notice("note".into())),
        ("Replied", reply("done", &[])),
        ("ToolEnded", tool_ended(Ok("ok"))),
        ("Judged", Event::Judged(CallVerdict::Run)),
        ("Settled", Event::Settled(decision)),
        ("Interrupt", Event::Interrupt),
        ("Stop", Event::Stop(StopCause::AtOnce)),
        ("LeadLost", Event::Stop(StopCause::LeadLost)),
        ("TaskInSight", Event::TaskInSight),
        ("TaskTaken", Event::TaskTaken),
        ("HookAnswered", Event::IdleChecked(Ok(()))),
        ("LastCallTimeout", Event::LastCallTimeout),
    ]
}

/// The next phase for each pair of phase and event. `=`: the phase stays; `BUG`: the event is logged as
/// unexpected.
const TRANSITIONS: &str = "\
event           Idle       Claiming   Resting    TakingMail InTurn     Leaving    Over
Mail            TakingMail =          TakingMail =          =          =          =
Drained         BUG        BUG        BUG        Idle       BUG        BUG        =
DrainFailed     BUG        BUG        BUG        Idle       BUG        BUG        =
DiskFull        =          =          =          =          =          =          =
TeamGone        Over       Over       Over       Over       Over       Over       =
Prompt          TakingMail =          TakingMail =          =          =          =
DropPrompts     =          =          =          =          =          =          =
Notice          =          =          =          =          =          =          =
Replied         BUG        BUG        BUG        BUG        TakingMail BUG        =
ToolEnded       BUG        BUG        BUG        BUG        BUG        Over       =
Judged          BUG        BUG        BUG        BUG        BUG        BUG        =
Settled         =          =          =          =          =          =          =
Interrupt       =          =          =          =          TakingMail =          =
Stop            Over       Over       Over       Over       Over       Over       =
LeadLost        Over       Over       Over       Over       Over       Over       =
TaskInSight     Claiming   =          =          =          =          =          =
TaskTaken       BUG        TakingMail BUG        BUG        BUG        BUG        =
HookAnswered    BUG        BUG        Idle       BUG        BUG        BUG        =
LastCallTimeout =          =          =          =          =          Over       =
";

#[test]
fn every_pair_of_phase_and_event_has_its_transition() {
    let table = transition_table(phases, all_events, |before, mut machine, name, event| {
        assert_eq!(machine.phase.name(), before);
        let actions = machine.step(event);
        let after = machine.phase.name();
        let is_over = is_exit(&actions) || before == "Over";
        assert_eq!(after == "Over", is_over, "{before}, {name}: {actions:?}");
        let is_bug = actions.iter().any(|action| {
            matches!(action, Action::Turn(TurnAction::Effect(TurnEffect::Log(why))) if why.contains("unexpected"))
        });
        match after {
            _ if is_bug => "BUG",
            _ if after == before => "=",
            _ => after,
        }
    });
    assert_eq!(table, TRANSITIONS, "\n{table}");
}
