//! The machine of a member as a whole: every pair of phase and event, and any order of events.

use super::tests::{has, identity, machine, mail, replied, reply, step, taker, tool_ended};
use super::*;
use crate::agent::conversation::{CallVerdict, WorkResult};
use crate::llm::ModelError;
use crate::tools::ToolError;
use crate::wire::chat::Block;
use crate::wire::permission::{DecisionOutcome, Question};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A result that the loop owes the machine.
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
}

/// What the loop owes the machine.
#[derive(Debug, Default)]
struct Owed {
    results: BTreeSet<Pending>,
    /// The question that is open.
    asked: Option<String>,
}

impl Owed {
    /// Takes note of an action; at most one drain and one piece of work are under way.
    fn note(&mut self, action: &Action) {
        const WORK: [Pending; 3] = [Pending::Reply, Pending::Summary, Pending::ToolResult];
        let begins = [
            (matches!(action, Action::Effect(Effect::CallModel)), Pending::Reply),
            (matches!(action, Action::Effect(Effect::Compact)), Pending::Summary),
            (matches!(action, Action::Effect(Effect::RunTool(_))), Pending::ToolResult),
            (*action == Action::Drain, Pending::Drain),
            (matches!(action, Action::AskIdleHook(_)), Pending::HookAnswer),
            (*action == Action::FindTask, Pending::Task),
            (*action == Action::TakeTask, Pending::Claim),
            (*action == Action::StartLastCallTimeout, Pending::Timeout),
        ];
        if *action == Action::Effect(Effect::Cancel) {
            self.results.retain(|it| !WORK.contains(it));
        } else if *action == Action::CancelIdleHook {
            self.results.remove(&Pending::HookAnswer);
        } else if let Action::Ask(question) = action {
            self.asked = Some(question.request_id.clone());
        } else if let Action::Withdraw(_) = action {
            self.asked = None;
        } else if let Action::Effect(Effect::Log(text)) = action {
            assert!(!text.contains("unexpected"), "{text}");
        }
        let Some((_, begun)) = begins.into_iter().find(|(is_begun, _)| *is_begun) else { return };
        let is_work = WORK.contains(&begun);
        let is_free = !is_work || !WORK.iter().any(|it| self.results.contains(it));
        let is_new = self.results.insert(begun) || begun == Pending::Task;
        assert!(is_free && is_new, "{action:?} while {:?} are under way", self.results);
    }

    /// The event of this number, if the loop can deliver it now.
    fn deliver(&mut self, pick: usize) -> Option<MachineEvent> {
        if pick == 5 {
            return self.results.contains(&Pending::Drain).then_some(MachineEvent::DiskFull);
        }
        if let Some(owed) = owed_for(pick)
            && !self.results.remove(&owed)
        {
            return None;
        }
        let too_long = || ModelError::ContextFull("400".into());
        let settled = |request_id: String, outcome| {
            MachineEvent::Settled(Decision::by_program(&request_id, outcome, "because"))
        };
        Some(match pick {
            0 => MachineEvent::Mail,
            1 => MachineEvent::Prompt("p".into()),
            2 => MachineEvent::Notice("n".into()),
            3 => MachineEvent::Interrupt,
            4 => MachineEvent::Stop(StopCause::LeadLost),
            6 => MachineEvent::Drained(vec![]),
            7 => MachineEvent::Drained(vec![mail("message", "bob")]),
            8 => MachineEvent::Drained(vec![mail("shutdown_request", "lead")]),
            9 => MachineEvent::DrainFailed("no locks".into()),
            10 => reply("t", &[]),
            11 => reply("", &[("bash", json!({})), ("idle", json!({}))]),
            12 => reply("", &[("shutdown_response", json!({"approve": true}))]),
            13 => replied(Err(ModelError::Unavailable("x".into()))),
            14 => replied(Err(too_long())),
            15 => MachineEvent::Work(WorkResult::Compacted(Err(too_long()))),
            16 => tool_ended(Ok("ok".into())),
            17 => tool_ended(Err(ToolError::Reply("no".into()))),
            18 => tool_ended(Err(ToolError::Fatal("gone".into()))),
            19 => MachineEvent::IdleHookAnswered(Ok(())),
            20 => MachineEvent::IdleHookAnswered(Err("not yet".into())),
            21 => MachineEvent::TaskInSight,
            22 => MachineEvent::TaskTaken,
            23 => MachineEvent::LastCallTimeout,
            24 => settled(self.asked.take()?, DecisionOutcome::Approved),
            _ => settled(self.asked.take()?, DecisionOutcome::Rejected),
        })
    }
}

/// What must be owed for the event of this number.
fn owed_for(pick: usize) -> Option<Pending> {
    Some(match pick {
        6..=9 => Pending::Drain,
        10..=14 => Pending::Reply,
        15 => Pending::Summary,
        16..=18 => Pending::ToolResult,
        19 | 20 => Pending::HookAnswer,
        21 => Pending::Task,
        22 => Pending::Claim,
        23 => Pending::Timeout,
        _ => return None,
    })
}

fn call_id(block: &Block) -> Option<String> {
    if let Block::ToolUse { id, .. } = block { Some(id.clone()) } else { None }
}

fn question(call: &Call) -> Box<Question> {
    Box::new(Question {
        request_id: format!("alice:{}", call.id),
        about: QuestionKind::Permission,
        tool_use_id: call.id.clone(),
        tool: call.name.clone(),
        input: call.input.clone(),
        description: "x".into(),
    })
}

proptest! {
    /// In any order of the events that the loop can deliver: every call of the model is answered before
    /// the model is called again and before the end, at most one drain and one piece of work are under
    /// way, no event is unexpected, and no action follows the end.
    #[test]
    fn any_order_of_events_keeps_the_invariants(
        picks in proptest::collection::vec((0usize..26, 0u8..3), 0..80),
        hooks in any::<bool>(),
    ) {
        let idle_hook = if hooks { IdleHook::Asked } else { IdleHook::Free };
        let me = Identity { auto_claim: AutoClaim::TakesTasks, idle_hook, ..identity("alice") };
        let (mut alice, first) = Machine::start(me, None);
        let (mut owed, mut open, mut is_over) = (Owed::default(), Vec::<String>::new(), false);
        for action in &first {
            owed.note(action);
        }
        for (pick, verdict) in picks {
            let Some(event) = owed.deliver(pick) else { continue };
            let mut next = Some(event);
            while let Some(event) = next.take() {
                for action in alice.step(event) {
                    prop_assert!(!is_over, "{action:?} after the end");
                    if let Action::Effect(Effect::Record(Entry::Assistant { blocks, .. })) = &action {
                        prop_assert!(open.is_empty());
                        open = blocks.iter().filter_map(call_id).collect();
                    } else if let Action::Effect(Effect::Record(entry)) = &action
                        && let Entry::ToolResult { tool_use_id, .. } = entry
                    {
                        let before = open.len();
                        open.retain(|id| id != tool_use_id);
                        prop_assert_eq!(open.len() + 1, before);
                    } else if action == Action::Effect(Effect::CallModel) {
                        prop_assert!(open.is_empty());
                    } else if let Action::Exit(ending) = &action {
                        // A question that is open when the lead is lost is asked again by a later life.
                        let is_asking = owed.asked.is_some()
                            && *ending == Ending::Stopped(StopCause::LeadLost);
                        prop_assert!(open.is_empty() || is_asking);
                        is_over = true;
                    } else if let Action::Judge(call) = &action {
                        next = Some(MachineEvent::Judged(match verdict {
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

/// A machine in each phase.
fn phases() -> Vec<(&'static str, Machine)> {
    let resting = || {
        let me = Identity { idle_hook: IdleHook::Asked, ..identity("alice") };
        let (mut alice, _) = Machine::start(me, None);
        for event in [
            MachineEvent::Prompt("go".into()),
            MachineEvent::Drained(vec![]),
            reply("done", &[]),
            MachineEvent::Drained(vec![]),
        ] {
            step(&mut alice, event);
        }
        alice
    };
    let in_turn = |events: Vec<MachineEvent>| {
        let mut alice = machine("alice");
        for event in events {
            step(&mut alice, event);
        }
        alice
    };
    let prompt = || MachineEvent::Prompt("go".into());
    let drained = || MachineEvent::Drained(vec![]);
    let call = || reply("", &[("bash", json!({}))]);
    let lost = || MachineEvent::Stop(StopCause::LeadLost);
    let mut claiming = taker();
    step(&mut claiming, MachineEvent::TaskInSight);
    vec![
        ("Idle", machine("alice")),
        ("Claiming", claiming),
        ("Resting", resting()),
        ("TakingMail", in_turn(vec![MachineEvent::Mail])),
        ("InTurn", in_turn(vec![prompt(), drained()])),
        ("Leaving", in_turn(vec![prompt(), drained(), call(), lost()])),
        ("Over", in_turn(vec![MachineEvent::Stop(StopCause::AtOnce)])),
    ]
}

/// One event of each kind.
fn all_events() -> Vec<(&'static str, MachineEvent)> {
    let decision = Decision::by_program("r", DecisionOutcome::Approved, "");
    vec![
        ("Mail", MachineEvent::Mail),
        ("Drained", MachineEvent::Drained(vec![])),
        ("DrainFailed", MachineEvent::DrainFailed("no locks".into())),
        ("DiskFull", MachineEvent::DiskFull),
        ("TeamGone", MachineEvent::TeamGone("moved".into())),
        ("Prompt", MachineEvent::Prompt("go".into())),
        ("Notice", MachineEvent::Notice("note".into())),
        ("Replied", reply("done", &[])),
        ("ToolEnded", tool_ended(Ok("ok".into()))),
        ("Judged", MachineEvent::Judged(CallVerdict::Run)),
        ("Settled", MachineEvent::Settled(decision)),
        ("Interrupt", MachineEvent::Interrupt),
        ("Stop", MachineEvent::Stop(StopCause::AtOnce)),
        ("LeadLost", MachineEvent::Stop(StopCause::LeadLost)),
        ("TaskInSight", MachineEvent::TaskInSight),
        ("TaskTaken", MachineEvent::TaskTaken),
        ("HookAnswered", MachineEvent::IdleHookAnswered(Ok(()))),
        ("LastCallTimeout", MachineEvent::LastCallTimeout),
    ]
}

/// Every pair of phase and event: `=` the phase stays, `BUG` the event is unexpected and logged.
const TRANSITIONS: &str = "\
event           Idle       Claiming   Resting    TakingMail InTurn     Leaving    Over
Mail            TakingMail =          TakingMail =          =          =          =
Drained         BUG        BUG        BUG        Idle       BUG        BUG        =
DrainFailed     BUG        BUG        BUG        Idle       BUG        BUG        =
DiskFull        =          =          =          =          =          =          =
TeamGone        Over       Over       Over       Over       Over       Over       =
Prompt          TakingMail =          TakingMail =          =          =          =
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
    let names: Vec<String> = phases().iter().map(|(name, _)| format!(" {name:10}")).collect();
    let mut table = format!("{:15}{}", "event", names.concat());
    table.truncate(table.trim_end().len());
    table.push('\n');
    for at in 0..all_events().len() {
        let name = all_events().swap_remove(at).0;
        let _infallible = write!(table, "{name:15}");
        for (before, mut machine) in phases() {
            assert_eq!(machine.phase.name(), before);
            let actions = machine.step(all_events().swap_remove(at).1);
            let is_exit = has(&actions, |action| matches!(action, Action::Exit(_)));
            let is_over = machine.phase.name() == "Over";
            assert_eq!(is_over, is_exit || before == "Over", "{before}, {name}: {actions:?}");
            let is_bug = has(
                &actions,
                |action| matches!(action, Action::Effect(Effect::Log(why)) if why.contains("unexpected")),
            );
            let after = match machine.phase.name() {
                _ if is_bug => "BUG",
                after if after == before => "=",
                after => after,
            };
            let _infallible = write!(table, " {after:10}");
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    assert_eq!(table, TRANSITIONS, "\n{table}");
}
