//! Reads of a long transcript what an agent needs that goes on with it.
//!
//! *Invariant:* what is left out changes nothing: the memory, the read log and the answers to open calls are those that
//! all lines would give: a summary is made only when no call is open. A property test of `agent::conversation` compares
//! them.

use super::file::jsonl::{last_line, lines_between};
use super::{StoreError, TeamDir};
use crate::wire::chat::{StopReason, Usage};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use std::ops::ControlFlow;

/// The kinds of lines that count before the last summary, too.
const KEPT_KINDS: [&str; 9] = [
    "session",
    "user",
    "mail",
    "turn_end",
    "model",
    "compacted",
    "request",
    "decision",
    "subagent",
];

/// Passes the lines of a transcript to `meet` that make a memory: all of them from the last summary on. Of those before,
/// it passes the kinds that outlast a summary, a reply without its content for each reply, and those tool lines that
/// `is_needed` selects by their text. The others are not parsed.
pub(crate) fn each_needed(
    dir: &TeamDir,
    name: &AgentName,
    is_needed: impl Fn(&str) -> bool,
    mut meet: impl FnMut(Line),
) -> Result<(), StoreError> {
    let path = dir.transcript(name);
    let summary = last_line(&path, |line| {
        Line::may_be(line, "compacted")
            && matches!(Line::read(line), Some(Line { entry: Entry::Compacted { .. }, .. }))
    })?;
    let summary = summary.unwrap_or_default();
    lines_between(&path, 0, u64::MAX, |offset, line| {
        if offset >= summary {
            Line::read(line).into_iter().for_each(&mut meet);
        } else if Line::may_be(line, "assistant") && is_own(line) {
            // It shows that a turn is under way, and counts as a round of it.
            if line.ends_with(b"}") {
                meet(Line { at: WallTime::default(), entry: reply() });
            }
        } else if KEPT_KINDS.iter().any(|kind| Line::may_be(line, kind))
            || ["tool_start", "tool_result"].iter().any(|kind| Line::may_be(line, kind))
                && std::str::from_utf8(line).is_ok_and(&is_needed)
        {
            Line::read(line).into_iter().for_each(&mut meet);
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Whether this program wrote the line, so that its kind is known without parsing it.
fn is_own(line: &[u8]) -> bool {
    line.starts_with(br#"{"kind":""#)
}

fn reply() -> Entry {
    Entry::Assistant {
        blocks: Vec::new(),
        stop_reason: StopReason::EndTurn,
        usage: Usage::default(),
        model: String::new(),
    }
}

/// Returns the lines of a transcript from the end of the last turn on that was not cut off, that line included. They tell
/// whether a turn is under way, and which calls of it are open.
pub(crate) fn last_turn(dir: &TeamDir, name: &AgentName) -> Result<Vec<Line>, StoreError> {
    let path = dir.transcript(name);
    let end = last_line(&path, |line| {
        Line::may_be(line, "turn_end")
            && matches!(
                Line::read(line),
                Some(Line { entry: Entry::TurnEnd { cut_off: false, .. }, .. })
            )
    })?;
    let mut lines = Vec::new();
    lines_between(&path, end.unwrap_or_default(), u64::MAX, |_, line| {
        lines.extend(Line::read(line));
        ControlFlow::Continue(())
    })?;
    Ok(lines)
}
