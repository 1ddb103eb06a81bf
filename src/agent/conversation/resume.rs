//! Resumes a conversation whose process ended: tool calls that were cut off get an answer before the
//! model is called again.

use super::Conversation;
use super::journal::{DiskFullHandler, RecordError};
use super::memory::OpenCall;
use crate::os::failpoint::hit;
use crate::tools::{Call, ToolOutput, find};
use crate::wire::tool::AfterCrash;
use crate::wire::transcript::Entry;
use std::collections::{BTreeSet, VecDeque};

const STATE_UNKNOWN: &str = "state unknown: the program ended while this was running; check what it \
    did before you repeat it";

/// The treatment of the calls that an earlier process had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRestart {
    /// Calls that can go on are returned.
    GoOn,
    /// The turn is over, and no call goes on.
    TurnOver,
    /// They are calls of a foreign agent, which only look like our own.
    Foreign,
}

/// The work that an earlier process did not finish.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    pub(crate) tool: Option<String>,
    /// The calls still to run, if the transcript ends within a turn.
    pub(crate) turn: Option<VecDeque<Call>>,
    /// Whether the turn is mail that came after a turn that a person had interrupted.
    pub(crate) follows_interrupted: bool,
    /// Whether the model had replied in the turn, so that it is in the middle of it.
    pub(crate) is_begun: bool,
}

impl Conversation {
    /// Answers the calls that an earlier process did not finish, but those that go on, which are returned. If a question about one of them was open (`asked`
    /// holds its id), the calls of an agent of our own that had not started are returned, to be judged and asked about again. Fails if an
    /// answer cannot be recorded.
    pub(crate) async fn answer_open_calls(
        &mut self,
        asked: &BTreeSet<String>,
        restart: AfterRestart,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<CutOff, RecordError> {
        let is_foreign = restart == AfterRestart::Foreign;
        let open = self.journal.memory.open_calls.clone();
        let asks_again =
            !is_foreign && open.iter().any(|open| !open.started && asked.contains(&open.call.id));
        let tool = open.iter().find(|open| open.started).map(|open| open.call.name.clone());
        let mut to_run = VecDeque::new();
        for OpenCall { call, started } in open {
            let after_crash = find(&call.name).filter(|_| !is_foreign);
            let after_crash = after_crash.map(|spec| spec.after_crash);
            let can_go_on = started && restart == AfterRestart::GoOn;
            let result = if can_go_on && after_crash == Some(AfterCrash::Continue) {
                to_run.push_back(call);
                continue;
            } else if started && after_crash == Some(AfterCrash::Repeat) {
                self.tools.call(&call).await.map_err(|why| why.to_string())
            } else if started {
                Err(STATE_UNKNOWN.into())
            } else if asks_again {
                to_run.push_back(call);
                continue;
            } else {
                Err("not run: the program ended before it began".into())
            };
            let is_error = result.is_err();
            let ToolOutput { text, files, images, .. } = result.unwrap_or_else(ToolOutput::from);
            let entry = Entry::tool_result(call.id, text, is_error, files).with_images(images);
            self.journal.record(entry, disk_full).await?;
        }
        hit("turn.resumed");
        let memory = &self.journal.memory;
        let turn = memory.in_turn.then_some(to_run);
        let (follows_interrupted, is_begun) = (memory.was_interrupted, memory.replies > 0);
        Ok(CutOff { tool, turn, follows_interrupted, is_begun })
    }
}
