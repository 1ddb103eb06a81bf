//! Taking up a conversation again: what was cut off is answered before the model is asked, and the model
//! is told what became of it meanwhile.

use super::Running;
use super::event::Ending;
use crate::os::failpoint::hit;
use crate::store::{transcript, unread};
use crate::tools::{Call, find, find_by_alias};
use crate::wire::message::Message;
use crate::wire::permission::RuleLists;
use crate::wire::tool::AfterCrash;
use crate::wire::transcript::{Entry, Line};
use std::collections::{BTreeSet, VecDeque};

impl Running {
    /// Reads the transcript into the memory, answers interrupted calls, repeats interrupted sends. Of a
    /// turn that was under way it gives the calls that still are to run.
    pub(super) async fn resume(&mut self) -> Result<Option<VecDeque<Call>>, Ending> {
        let name = self.agent.me.name.clone();
        let (mut has_past, mut last_report) = (false, None);
        let mut asked = BTreeSet::new();
        let read = transcript::each(self.agent.bus.dir(), &name, |Line { entry, .. }| {
            self.memory.borrow_mut().push(&entry);
            if matches!(entry, Entry::Session { .. }) {
                return;
            }
            has_past = true;
            last_report = None;
            if let Entry::Request { question, .. } = &entry {
                asked.insert(question.tool_use_id.clone());
            }
            if let Entry::TurnEnd { outcome, report: Some(report), .. } = entry {
                last_report = Some((outcome, report));
            }
        });
        read.map_err(|why| Ending::Broken(why.to_string()))?;
        self.record(Entry::Session {
            incarnation: self.agent.me.incarnation.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            model: self.agent.provider.label(),
        })
        .await?;
        if let Some((outcome, report)) = last_report {
            self.send_report(outcome, report).await;
        }
        let open = self.memory.borrow().open_calls().to_vec();
        // Where somebody was being asked, the question and what stands behind it come again.
        let asks_again = open.iter().any(|open| !open.started && asked.contains(&open.id));
        let mut to_run = VecDeque::new();
        let interrupted = open.iter().find(|call| call.started).map(|call| call.name.clone());
        for open in open {
            if asks_again && !open.started {
                to_run.push_back(Call { id: open.id, name: open.name, input: open.input });
                continue;
            }
            let after_crash = find(&open.name).map(|spec| spec.after_crash);
            let (content, is_error) = if after_crash == Some(AfterCrash::Repeat) && open.started {
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
            self.record(Entry::ToolResult { tool_use_id: open.id, content, is_error }).await?;
        }
        hit("turn.resumed");
        let in_turn = self.memory.borrow().in_turn();
        if let Some(content) = self.what_happened(has_past, in_turn, interrupted) {
            self.record(Entry::Note { content }).await?;
        }
        Ok(in_turn.then_some(to_run))
    }

    /// What the model is told about this start; nothing when there is nothing to tell.
    fn what_happened(
        &self,
        has_past: bool,
        in_turn: bool,
        interrupted: Option<String>,
    ) -> Option<String> {
        let mut parts = Vec::new();
        if has_past {
            parts.extend(self.agent.start_reason.clone());
        }
        if in_turn {
            let during = interrupted.map_or_else(String::new, |tool| format!(" (during {tool})"));
            parts.push(format!(
                "you were restarted in the middle of a turn{during}; go on from here"
            ));
        }
        // Only whoever had a life before can have mail from before.
        if has_past || self.agent.me.name.is_lead() {
            let waiting = unread::waiting(self.agent.bus.dir(), &self.agent.me.name);
            let waiting = waiting.unwrap_or_default();
            let wakes = |message: &Message| message.body.wakes();
            let old = waiting.iter().filter(|line| line.message.as_ref().is_some_and(wakes));
            match old.count() {
                0 => {}
                1 => parts.push("the message that comes next is older than this start".into()),
                more => parts
                    .push(format!("the {more} messages that come next are older than this start")),
            }
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// A lead that gives an idle member a new prompt may also give it a new role: the system prompt of
    /// this life stays as it is, so the model is told.
    pub(super) async fn notice_new_role(&mut self, mail: &[Message]) -> Result<(), Ending> {
        if self.agent.me.name.is_lead() || mail.iter().all(|message| message.from != "lead") {
            return Ok(());
        }
        let (dir, name) = (self.agent.bus.dir().clone(), self.agent.me.name.clone());
        let look = move || {
            let roster = crate::store::roster::read(&dir).ok()?;
            let role = roster.member(name.as_str())?.role.clone();
            let limits = dir.role(&role, find_by_alias).map(|file| file.role).unwrap_or_default();
            Some((role, limits))
        };
        let Ok(Some((role, limits))) = tokio::task::spawn_blocking(look).await else {
            return Ok(());
        };
        if role == self.agent.role {
            return Ok(());
        }
        tracing::info!(before = self.agent.role, role, "a new role");
        let mut content = format!("your role is {role} from now on, not {}", self.agent.role);
        if !limits.instructions.is_empty() {
            content.push_str("; instructions for your role:\n");
            content.push_str(&limits.instructions);
        }
        // What an earlier role could not do stays denied: rules only ever grow in a life.
        let deny = limits.denied_calls().cloned().collect();
        self.add_rules(&RuleLists { deny, ..RuleLists::default() });
        self.agent.tools.limit(limits);
        self.agent.role = role;
        self.record(Entry::Note { content }).await
    }
}

const STATE_UNKNOWN: &str = "state unknown: the program ended while this was running; check what it \
    did before you repeat it";
