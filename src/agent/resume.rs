//! Taking up a conversation again: what was cut off is answered before the model is asked.

use super::Running;
use crate::store::transcript;
use crate::tools::Call;
use crate::wire::transcript::{Entry, Line};
use std::collections::VecDeque;

/// Tools whose repetition under the same call id changes nothing: their messages keep their ids.
const REPEATABLE: [&str; 2] = ["send_message", "broadcast"];

impl Running {
    /// Reads the transcript into the memory, answers interrupted calls, repeats interrupted sends. Of a
    /// turn that was under way it gives the calls that still are to run.
    pub(super) async fn resume(&mut self) -> Result<Option<VecDeque<Call>>, String> {
        let name = self.agent.me.name.clone();
        let lines =
            transcript::read_all(self.agent.bus.dir(), &name).map_err(|why| why.to_string())?;
        for Line { entry, .. } in &lines {
            self.memory.borrow_mut().push(entry);
        }
        self.record(Entry::Session {
            incarnation: self.agent.me.incarnation.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            model: self.agent.provider.label(),
        })?;
        if let Some(Line { entry: Entry::TurnEnd { outcome, report: Some(report), .. }, .. }) =
            lines.iter().rev().find(|line| !matches!(line.entry, Entry::Session { .. }))
        {
            self.send_report(*outcome, report.clone()).await;
        }
        let open = self.memory.borrow().open_calls().to_vec();
        // Where somebody was being asked, the question and what stands behind it come again.
        let asked = |id: &str| {
            lines.iter().any(|line| {
                matches!(&line.entry, Entry::Request { question, .. } if question.tool_use_id == id)
            })
        };
        let asks_again = open.iter().any(|open| !open.started && asked(&open.id));
        let mut to_run = VecDeque::new();
        for open in open {
            if asks_again && !open.started {
                to_run.push_back(Call { id: open.id, name: open.name, input: open.input });
                continue;
            }
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
        Ok(in_turn.then_some(to_run))
    }
}

const STATE_UNKNOWN: &str = "state unknown: the program ended while this was running; check what it \
    did before you repeat it";
