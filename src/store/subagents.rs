//! The transcripts of subagents, `transcript/sub/NAME-N.jsonl`. A number is used once, so they stay where they are when the
//! conversation of their caller is archived or taken up again. They are removed with it.

use super::conversations::index::{self, StartedSubagent};
use super::file::jsonl::{each_line, lines_between};
use super::file::read::numbered;
use super::teamdir::make_folder;
use super::transcript::Transcript;
use super::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::subagent::{SubagentId, SubagentStart};
use crate::wire::transcript::{Entry, Line};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The file name ending of transcripts.
const ENDING: &str = ".jsonl";

/// Returns the highest number of the subagents of an agent; 0 if it has had none.
pub(crate) fn last_number(dir: &TeamDir, caller: &AgentName) -> Result<u64, StoreError> {
    Ok(numbered(&dir.subagents(), caller, ENDING)?.last().map_or(0, |(number, _)| *number))
}

/// Returns the transcripts of all subagents of an agent.
pub(super) fn files(dir: &TeamDir, caller: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
    let numbered = numbered(&dir.subagents(), caller, ENDING)?;
    Ok(numbered.into_iter().map(|(_, path)| path).collect())
}

/// Returns the transcripts of the subagents that a conversation has started, as far as they are there.
pub(super) fn of_conversation(
    dir: &TeamDir,
    conversation: &Path,
) -> Result<Vec<PathBuf>, StoreError> {
    let started = match index::subagents(dir, conversation) {
        Some(started) => started,
        None => starts_in(conversation)?,
    };
    let mut found = Vec::new();
    for start in started {
        let Some(id) = SubagentId::parse(&start.id) else { continue };
        let path = path(dir, &id);
        // A call that was cut off before its subagent began has left the number to a later one.
        if first_start(&path)?.is_some_and(|own| own == start) {
            found.push(path);
        }
    }
    Ok(found)
}

fn starts_in(conversation: &Path) -> Result<Vec<StartedSubagent>, StoreError> {
    let mut found = Vec::new();
    each_line(conversation, |line| found.extend(StartedSubagent::read(line)))?;
    Ok(found)
}

/// Returns the line with which the transcript of a subagent begins; `None` if there is none.
fn first_start(path: &Path) -> Result<Option<StartedSubagent>, StoreError> {
    let mut first = None;
    lines_between(path, 0, u64::MAX, |_, line| {
        first = StartedSubagent::read(line);
        if first.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(first)
}

/// Returns the path of the transcript of a subagent.
pub(crate) fn path(dir: &TeamDir, id: &SubagentId) -> PathBuf {
    dir.subagent(&id.caller, id.number)
}

/// Returns the path of the transcript of an agent, or of a subagent (`CALLER:NUMBER`); `None` if neither can have the name.
pub(crate) fn conversation(dir: &TeamDir, name: &str) -> Option<PathBuf> {
    let of_agent = AgentName::mailbox(name).ok().map(|name| dir.transcript(&name));
    of_agent.or_else(|| Some(path(dir, &SubagentId::parse(name)?)))
}

/// Opens the transcript of a subagent, and returns the lines in it. A torn tail is sealed.
pub(crate) fn open(dir: &TeamDir, id: &SubagentId) -> Result<(Transcript, Vec<Line>), StoreError> {
    dir.is_still_there()?;
    make_folder(&dir.subagents())?;
    let path = path(dir, id);
    let transcript = Transcript::at(path)?;
    Ok((transcript, read_all(dir, id)?))
}

/// Reads the transcript of a subagent; empty if there is none. Fails if the file exists and cannot be read.
pub(crate) fn read_all(dir: &TeamDir, id: &SubagentId) -> Result<Vec<Line>, StoreError> {
    let mut lines = Vec::new();
    each_line(&path(dir, id), |line| lines.extend(Line::read(line)))?;
    Ok(lines)
}

/// Whether lines are the transcript of the subagent that a line of its caller names, and not of another one.
pub(crate) fn are_of(lines: &[Line], start: &SubagentStart) -> bool {
    let first = lines.iter().find_map(|line| {
        let Entry::Subagent(own) = &line.entry else { return None };
        Some(own)
    });
    first.is_some_and(|own| own.tool_use_id == start.tool_use_id)
}
