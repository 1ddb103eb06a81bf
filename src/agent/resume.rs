//! Taking up a conversation again: what was cut off is answered before the model is asked.

use super::Running;
use crate::store::transcript;
use crate::tools::Call;
use crate::wire::transcript::{Entry, Line};

/// Tools whose repetition under the same call id changes nothing: their messages keep their ids.
const REPEATABLE: [&str; 2] = ["send_message", "broadcast"];

impl Running {
    /// Reads the transcript into the memory, answers interrupted calls, repeats interrupted sends.
    /// Tells whether a turn was under way.
    pub(super) async fn resume(&mut self) -> Result<bool, String> {
        let name = self.agent.me.name.clone();
        let mut last_report = None;
        let read = transcript::each(self.agent.bus.dir(), &name, |Line { entry, .. }| {
            self.memory.borrow_mut().push(&entry);
            if let Entry::TurnEnd { outcome, report, .. } = entry {
                last_report = report.map(|report| (outcome, report));
            } else if !matches!(entry, Entry::Session { .. }) {
                last_report = None;
            }
        });
        read.map_err(|why| why.to_string())?;
        self.record(Entry::Session {
            incarnation: self.agent.me.incarnation.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            model: self.agent.provider.label(),
        })?;
        if let Some((outcome, report)) = last_report {
            self.send_report(outcome, report).await;
        }
        let open = self.memory.borrow().open_calls().to_vec();
        for open in open {
            let (content, is_error) = if REPEATABLE.contains(&open.name.as_str()) && open.started {
                let (id, name, input) = (open.id.clone(), open.name.clone(), open.input.clone());
                match self.agent.tools.call(&Call { id, name, input }).await {
                    Ok(content) => (content, false),
                    Err(why) => (why.to_string(), true),
                }
            } else if open.started {
                (STATE_UNKNOWN.into(), true)
            } else {
                ("not run: the program ended before it began".into(), true)
            };
            self.record(Entry::ToolResult { tool_use_id: open.id, content, is_error })?;
        }
        let in_turn = self.memory.borrow().in_turn();
        if in_turn {
            let content = "you were restarted in the middle of a turn; go on from here".into();
            self.record(Entry::Note { content })?;
        }
        Ok(in_turn)
    }
}

const STATE_UNKNOWN: &str = "state unknown: the program ended while this was running; check what it \
    did before you repeat it";
