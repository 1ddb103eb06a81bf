//! Helpers for the tests of both state machines.

use super::compact::CompactionFailure;
use super::event::WorkResult;
use super::memory::call_of;
use crate::llm::ModelError;
use crate::tools::Call;
use crate::wire::chat::{Block, Reply, StopReason, Usage};
use crate::wire::permission::{Question, QuestionKind};
use crate::wire::transcript::Entry;
use std::fmt::Write as _;

pub(crate) fn model_reply(text: &str, calls: &[(&str, serde_json::Value)]) -> Reply {
    let mut blocks = vec![Block::Text { text: text.into() }];
    for (n, (name, input)) in calls.iter().enumerate() {
        let id = format!("{name}-{n}");
        blocks.push(Block::ToolUse { id, name: (*name).into(), input: input.clone() });
    }
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    Reply { blocks, stop_reason, usage: Usage::default(), model: "m".into() }
}

/// Returns the result of a compaction that failed after 7 output tokens.
pub(crate) fn not_compacted(why: ModelError, can_go_on: bool) -> WorkResult {
    let usage = Usage { output_tokens: 7, ..Usage::default() };
    WorkResult::Compacted(Err(CompactionFailure { why, usage, can_go_on }))
}

pub(crate) fn question(call: &Call) -> Box<Question> {
    let Call { id, name: tool, input } = call.clone();
    let (request_id, about) = (format!("alice:{id}"), QuestionKind::Permission);
    let description = "x".into();
    Box::new(Question {
        request_id,
        about,
        tool_use_id: id,
        tool,
        input,
        description,
        subagent: None,
    })
}

/// The calls of the model that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls(Vec<String>);

impl OpenCalls {
    /// Notes an entry. Asserts that each call gets at most one answer, and gets it before the next reply.
    pub(crate) fn note(&mut self, entry: &Entry) {
        if let Entry::Assistant { blocks, .. } = entry {
            assert!(self.is_empty(), "{self:?} at the next reply");
            self.0 = blocks.iter().filter_map(call_of).map(|call| call.id).collect();
        } else if let Entry::ToolResult { tool_use_id, .. } = entry {
            let before = self.0.len();
            self.0.retain(|id| id != tool_use_id);
            assert_eq!(self.0.len() + 1, before, "{tool_use_id}");
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Renders a table with the result of `after` for each pair of an event and a phase. `after` gets the phase's
/// name, the machine in that phase, the event's name and the event.
pub(crate) fn transition_table<M, E>(
    phases: impl Fn() -> Vec<(&'static str, M)>,
    events: impl Fn() -> Vec<(&'static str, E)>,
    after: impl Fn(&'static str, M, &'static str, E) -> &'static str,
) -> String {
    let width = |names: &[&str]| names.iter().map(|name| name.len()).max().unwrap_or_default();
    let names: Vec<&str> = phases().iter().map(|(name, _)| *name).collect();
    let event_names: Vec<&str> = events().iter().map(|(name, _)| *name).collect();
    let (event_width, phase_width) = (width(&event_names), width(&names));
    let mut table = String::new();
    let mut row = |head: &str, cells: &[&str]| {
        let mut line = format!("{head:event_width$}");
        for cell in cells {
            let _infallible = write!(line, " {cell:phase_width$}");
        }
        let _infallible = writeln!(table, "{}", line.trim_end());
    };
    row("event", &names);
    for (at, event) in event_names.into_iter().enumerate() {
        let cell = |(before, machine)| after(before, machine, event, events().swap_remove(at).1);
        row(event, &phases().into_iter().map(cell).collect::<Vec<_>>());
    }
    table
}
