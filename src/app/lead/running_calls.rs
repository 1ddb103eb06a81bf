//! The tool calls that teammates run, from the ends of their transcripts: the roster names only the tool.

use crate::store::TeamDir;
use crate::store::tail::Tail;
use crate::tools::find;
use crate::wire::AgentName;
use crate::wire::chat::Block;
use crate::wire::tool_summary::summary;
use crate::wire::transcript::{Entry, Line};
use std::collections::BTreeMap;
use std::time::Instant;

/// The size of the end of a transcript in which the running call is searched, in bytes.
const SEARCHED_BYTES: u64 = 256 * 1024;

/// The followed transcripts, by the name of the teammate.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    followed: BTreeMap<String, Followed>,
}

#[derive(Debug)]
struct Followed {
    tail: Tail,
    /// The subjects of the calls of the last reply, by id.
    subjects: BTreeMap<String, String>,
    running: Option<RunningCall>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunningCall {
    id: String,
    /// The subject of the call in words, of any length.
    pub(super) subject: String,
    /// The time at which the call was first seen.
    pub(super) since: Instant,
}

impl RunningCalls {
    /// Returns the call that a teammate runs; `None` if it is not known. Reads what was appended since the last look.
    pub(super) fn look(
        &mut self,
        team: &TeamDir,
        name: &str,
        now: Instant,
    ) -> Option<&RunningCall> {
        if !self.followed.contains_key(name) {
            let path = team.transcript(&AgentName::member(name).ok()?);
            let tail = Tail::of_last(path, SEARCHED_BYTES);
            let followed = Followed { tail, subjects: BTreeMap::new(), running: None };
            self.followed.insert(name.to_owned(), followed);
        }
        let followed = self.followed.get_mut(name)?;
        // A transcript that cannot be read names no call.
        for line in followed.tail.read_new().unwrap_or_default() {
            if let Some(line) = Line::read(&line) {
                followed.take_in(line.entry, now);
            }
        }
        followed.running.as_ref()
    }

    /// Ends the following of a teammate that runs no tool.
    pub(super) fn forget(&mut self, name: &str) {
        self.followed.remove(name);
    }
}

impl Followed {
    fn take_in(&mut self, entry: Entry, now: Instant) {
        if let Entry::Assistant { blocks, .. } = entry {
            let subject = |block: Block| {
                let Block::ToolUse { id, name, input } = block else { return None };
                Some((id, summary(find(&name), &input)))
            };
            self.subjects = blocks.into_iter().filter_map(subject).collect();
            self.running = None;
        } else if let Entry::ToolStart { tool_use_id: id, .. } = entry {
            let subject = self.subjects.get(&id).cloned().unwrap_or_default();
            self.running = Some(RunningCall { id, subject, since: now });
        } else if let Entry::ToolResult { tool_use_id, .. } = entry {
            self.running.take_if(|running| running.id == tool_use_id);
        }
    }
}
