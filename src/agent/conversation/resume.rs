//! Resumes a conversation whose process ended: tool calls that were cut off get an answer before the
//! model is called again.

use super::journal::{DiskFullHandler, Journal, RecordError};
use super::tool_runner::ToolRunner;
use crate::os::failpoint::hit;
use crate::tools::{Call, find};
use crate::wire::tool::AfterCrash;
use crate::wire::transcript::Entry;
use std::collections::{BTreeSet, VecDeque};

const STATE_UNKNOWN: &str = "state unknown: the program ended while this was running; check what it \
    did before you repeat it";

/// What an earlier process left unfinished.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    /// The tool that was running.
    pub(crate) tool: Option<String>,
    /// The calls still to run, if the transcript ends within a turn.
    pub(crate) turn: Option<VecDeque<Call>>,
}

/// Answers the open calls. If the user was being asked about one of them
/// (`asked` holds its id), the calls that had not started are returned instead.
///
/// # Errors
/// An answer could not be recorded.
pub(super) async fn answer_open_calls(
    journal: &mut Journal,
    tools: &ToolRunner,
    asked: &BTreeSet<String>,
    disk_full: &mut impl DiskFullHandler,
) -> Result<CutOff, RecordError> {
    let open = journal.memory().open_calls().to_vec();
    let asks_again = open.iter().any(|call| !call.started && asked.contains(&call.id));
    let tool = open.iter().find(|call| call.started).map(|call| call.name.clone());
    let mut to_run = VecDeque::new();
    for open in open {
        let after_crash = find(&open.name).map(|spec| spec.after_crash);
        let (started, is_repeatable) = (open.started, after_crash == Some(AfterCrash::Repeat));
        let call = Call { id: open.id, name: open.name, input: open.input };
        let (content, is_error) = match (started, is_repeatable) {
            (false, _) if asks_again => {
                to_run.push_back(call);
                continue;
            }
            (false, _) => ("not run: the program ended before it began".into(), true),
            (true, false) => (STATE_UNKNOWN.into(), true),
            (true, true) => match tools.repeat(&call).await {
                Ok(content) => (content, false),
                Err(why) => (why.to_string(), true),
            },
        };
        let result = Entry::ToolResult { tool_use_id: call.id, content, is_error };
        journal.record(result, disk_full).await?;
    }
    hit("turn.resumed");
    let turn = journal.memory().in_turn().then_some(to_run);
    Ok(CutOff { tool, turn })
}
