//! A resumed agent reads a part of a long transcript, which gives the memory that all lines would give.

use super::Memory;
use crate::store::{Fsync, Transcript, past, test_team, transcript};
use crate::tools::may_restore;
use crate::wire::AgentName;
use crate::wire::chat::{Block, StopReason, Usage};
use crate::wire::file_view::FileView;
use crate::wire::message::Outcome;
use crate::wire::transcript::{Entry, Line};
use proptest::prelude::*;
use serde_json::json;

/// The parts of a conversation. A summary comes only when all calls are answered.
#[derive(Debug, Clone)]
enum Step {
    User(u8),
    Mail(u8, &'static str),
    Note,
    Reply,
    Call,
    Read,
    Model,
    LeftOut,
    End(Outcome, bool),
    Summary(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u8>().prop_map(Step::User),
        (any::<u8>(), prop_oneof![Just("message"), Just("idle_notification")])
            .prop_map(|(number, kind)| Step::Mail(number, kind)),
        Just(Step::Note),
        Just(Step::Reply),
        Just(Step::Call),
        Just(Step::Read),
        Just(Step::Model),
        Just(Step::LeftOut),
        (prop_oneof![Just(Outcome::Done), Just(Outcome::Interrupted)], any::<bool>())
            .prop_map(|(outcome, cut_off)| Step::End(outcome, cut_off)),
        proptest::option::of(1_u64..9).prop_map(Step::Summary),
    ]
}

fn reply(blocks: Vec<Block>) -> Entry {
    let usage = Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() };
    Entry::Assistant { blocks, stop_reason: StopReason::EndTurn, usage, model: "m".into() }
}

fn call(number: usize) -> Vec<Entry> {
    let id = format!("call-{number}");
    let tool = Block::ToolUse { id: id.clone(), name: "bash".into(), input: json!({}) };
    vec![reply(vec![tool]), Entry::ToolStart { tool_use_id: id, name: "bash".into() }]
}

fn result(number: usize, files: Vec<FileView>) -> Entry {
    Entry::tool_result(format!("call-{number}"), "\"file\": a result".into(), false, files)
}

fn entries(steps: &[Step]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::User(content) => entries.push(Entry::User { content: content.to_string() }),
            Step::Mail(content, kind) => {
                let message = json!({"type": kind, "from": "bob", "reason": "available",
                    "content": "x".repeat(usize::from(*content) * 40), "id": number.to_string()});
                let message = message.as_object().cloned().unwrap();
                let claim = "000000000001-00000000".into();
                entries.push(Entry::Mail { claim, offset: 0, message, verified: true });
            }
            Step::Note => entries.push(Entry::Note { content: "a note".into() }),
            Step::Reply => entries.push(reply(vec![Block::Text { text: "yes".into() }])),
            Step::Call => {
                entries.extend(call(number));
                entries.push(result(number, Vec::new()));
            }
            Step::Read => {
                let view: FileView =
                    serde_json::from_value(json!({"path": format!("{}.rs", number % 3),
                    "hash": "00112233445566778899aabbccddeeff", "lines": [[1, number + 1]]}))
                    .unwrap();
                entries.extend(call(number));
                entries.push(result(number, vec![view]));
            }
            Step::Model => entries.push(Entry::Model { model: "p/n".into() }),
            Step::LeftOut => {
                let tool_use_ids = vec![format!("call-{}", number.saturating_sub(1))];
                entries.push(Entry::ResultsLeftOut { tool_use_ids });
            }
            Step::End(outcome, cut_off) => entries.push(Entry::TurnEnd {
                outcome: *outcome,
                rounds: 1,
                report: None,
                cut_off: *cut_off,
            }),
            Step::Summary(context_tokens) => entries.push(Entry::Compacted {
                summary: format!("summary {number}"),
                situation: "lead".into(),
                usage: Usage::default(),
                context_tokens: *context_tokens,
            }),
        }
    }
    entries
}

/// The memory as text, and the last view of each file.
#[derive(Default)]
struct Resumed {
    memory: Memory,
    views: std::collections::BTreeMap<String, String>,
}

impl Resumed {
    fn push(&mut self, entry: &Entry) {
        if let Entry::ToolResult { file: Some(view), .. } = entry {
            self.views.insert(view.path.clone(), format!("{view:?}"));
        }
        self.memory.push(entry);
    }
}

proptest! {
    #[test]
    fn the_needed_lines_give_the_memory_of_all(
        steps in proptest::collection::vec(step(), 0..60),
        has_open_call in any::<bool>(),
    ) {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        let mut file = Transcript::open(&dir, &lead).unwrap();
        let mut entries = entries(&steps);
        if has_open_call {
            entries.extend(call(steps.len()));
        }
        for entry in &entries {
            file.append(&Line { at: 1.0.into(), entry: entry.clone() }).unwrap();
        }
        file.append_raw(b"{\"kind\":\"assistant\",\"at\":1,\"blo").unwrap();
        file.sync(Fsync::Never).unwrap();
        let (mut all, mut needed) = (Resumed::default(), Resumed::default());
        transcript::each(&dir, &lead, |line| all.push(&line.entry)).unwrap();
        let mut read = 0;
        past::each_needed(&dir, &lead, may_restore, |line| {
            read += usize::from(matches!(line.entry, Entry::ToolResult { .. }));
            needed.push(&line.entry);
        })
        .unwrap();
        prop_assert_eq!(format!("{:?}", all.memory), format!("{:?}", needed.memory));
        prop_assert_eq!(&all.views, &needed.views);
        // Results before the last summary are left out, unless they show a file.
        let is_summary = |entry: &Entry| matches!(entry, Entry::Compacted { .. });
        let summary = entries.iter().rposition(is_summary).unwrap_or_default();
        let is_read = |(at, entry): (usize, &Entry)| {
            matches!(entry, Entry::ToolResult { file, .. } if at > summary || file.is_some())
        };
        prop_assert_eq!(read, entries.iter().enumerate().filter(|it| is_read(*it)).count());
        // The last turn alone tells what is open.
        let (mut end, mut whole) = (Memory::default(), all.memory);
        for line in past::last_turn(&dir, &lead).unwrap() {
            end.push(&line.entry);
        }
        end.reopen_turn();
        whole.reopen_turn();
        let state = |it: &Memory| (it.in_turn, it.was_interrupted, it.open_calls.clone());
        prop_assert_eq!(state(&end), state(&whole));
    }
}
