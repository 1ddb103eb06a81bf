//! Reads of a long transcript what an agent needs that goes on with it.
//!
//! *Invariant:* what is left out changes nothing: the memory, the read log and the answers to open calls are those that
//! all lines would give: a summary is made only when no call is open. A property test of `agent::conversation` compares
//! them.

use super::file::jsonl::{last_line, last_line_before, lines_between};
use super::{StoreError, TeamDir};
use crate::wire::chat::{StopReason, Usage};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use std::ops::ControlFlow;

/// The kinds of lines that count before the last summary, too.
const KEPT_KINDS: [&str; 6] = ["session", "model", "compacted", "request", "decision", "subagent"];

/// The kinds of lines that count only since the last turn that was over before the last summary.
const TURN_KINDS: [&str; 3] = ["user", "mail", "turn_end"];

/// The kinds of lines that count if the caller needs them.
const CHOSEN_KINDS: [&str; 3] = ["mail", "tool_start", "tool_result"];

/// Passes the lines of a transcript to `meet` that make a memory: all of them from the last summary on. Of those before,
/// it passes the kinds that outlast a summary, and those lines of tools and mail that `is_needed` selects by their text.
/// Of the turn in which the summary was made it also passes prompts and mail, and a reply without its content for each
/// reply. The others are not parsed.
pub(crate) fn each_needed(
    dir: &TeamDir,
    name: &AgentName,
    is_needed: impl Fn(&[u8]) -> bool,
    mut meet: impl FnMut(Line),
) -> Result<(), StoreError> {
    let path = dir.transcript(name);
    let summary = last_line(&path, |line| {
        Line::may_be(line, "compacted")
            && matches!(Line::read(line), Some(Line { entry: Entry::Compacted { .. }, .. }))
    })?;
    let summary = summary.unwrap_or_default();
    // The end of a turn leaves nothing of it to a summary that follows.
    let turn_end = last_line_before(&path, summary, is_turn_over)?.unwrap_or_default();
    let is_any_of = |line: &[u8], kinds: &[&str]| kinds.iter().any(|it| Line::may_be(line, it));
    lines_between(&path, 0, u64::MAX, |offset, line| {
        if offset >= summary {
            Line::read(line).into_iter().for_each(&mut meet);
        } else if offset >= turn_end && Line::may_be(line, "assistant") && is_own(line) {
            // It shows that a turn is under way, and counts as a round of it.
            if line.ends_with(b"}") {
                meet(Line { at: WallTime::default(), entry: reply() });
            }
        } else if is_any_of(line, &KEPT_KINDS)
            || offset >= turn_end && is_any_of(line, &TURN_KINDS)
            || is_any_of(line, &CHOSEN_KINDS) && is_needed(line)
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

/// Whether a line is the end of a turn that was not cut off.
fn is_turn_over(line: &[u8]) -> bool {
    Line::may_be(line, "turn_end")
        && matches!(
            Line::read(line),
            Some(Line { entry: Entry::TurnEnd { cut_off: false, .. }, .. })
        )
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
    let end = last_line(&path, is_turn_over)?;
    let mut lines = Vec::new();
    lines_between(&path, end.unwrap_or_default(), u64::MAX, |_, line| {
        lines.extend(Line::read(line));
        ControlFlow::Continue(())
    })?;
    Ok(lines)
}
