//! The model of a member that plays a record again: its replies are the recorded ones.

use super::moved::{moved_folder, replace_in};
use super::script::{Answer, RecordedCall};
use super::shared::{Shared, Window};
use super::{LOOK_INTERVAL, Player};
use crate::llm::{Delta, ModelError, Provider, Sink, TurnFuture};
use crate::os::program::kill_this_process;
use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use crate::wire::message::Outcome;
use crate::wire::replay::Fault;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The provider of a member that plays a record again.
pub(crate) struct RecordedModel(pub(crate) Rc<Player>);

/// The next recorded call of the model.
enum Next {
    Call(RecordedCall),
    /// The turn ends without a reply.
    NoReply(Outcome),
    /// The record ends here.
    Over,
}

impl Provider for RecordedModel {
    fn label(&self) -> String {
        "replay".into()
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(async move {
            // Only a request for a summary has no tools.
            let is_summary = request.tools.is_empty();
            self.0.be_killed().await;
            self.0.crash_if_recorded().await;
            let next = self.0.look(|shared| shared.next_call()).await;
            match next {
                Next::NoReply(outcome) if !is_summary => Err(self.0.no_reply(outcome).await),
                Next::Call(call) => {
                    let reply = self.0.reply(call, is_summary).await?;
                    for word in reply.text().split_inclusive(char::is_whitespace) {
                        sink(Delta::Text(word.to_owned()));
                    }
                    Ok(reply)
                }
                Next::NoReply(_) | Next::Over => {
                    self.0.stay_for_kill().await;
                    Err(ModelError::Script("the record has no further reply".into()))
                }
            }
        })
    }
}

impl Player {
    /// Returns the answer to a call, at its time.
    async fn reply(&self, call: RecordedCall, is_summary: bool) -> Result<Reply, ModelError> {
        let RecordedCall { at, asked_at, answer } = call;
        let began = Instant::now();
        self.stay_at_cut(at).await;
        self.wait_for_others(at).await;
        self.keep_pace(began, at.since(asked_at)).await;
        for fault in &self.plan.faults {
            if let Fault::SlowModel { ms } = fault {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
            }
        }
        match answer {
            Answer::Reply(reply) if !is_summary => {
                let due = |shared: &Shared| shared.due_ahead().to_vec();
                self.deliver_before_next_call(Window::Ahead, due).await;
                Ok(self.adapted(reply).await)
            }
            Answer::Summary(text, usage) if is_summary => Ok(summary(text, usage)),
            // The conversation is summarized where it was in the record, and nowhere else.
            Answer::Summary(..) => {
                Err(ModelError::ContextFull("the record has a summary here".into()))
            }
            Answer::Reply(_) => Ok(summary(String::new(), Usage::default())),
        }
    }

    /// Ends a call that has got no reply in the record.
    async fn no_reply(&self, outcome: Outcome) -> ModelError {
        let missing = || "a turn that was interrupted in the record goes on".to_owned();
        let is_over = move |shared: &mut Shared| {
            shared.has_no_reply = true;
            shared.has_strayed(missing)
        };
        if outcome != Outcome::Failed {
            self.wait_until(LOOK_INTERVAL, is_over).await;
        }
        ModelError::Script("the recorded call of the model has failed here, too".into())
    }

    /// Kills this process if a fault says so.
    async fn be_killed(&self) {
        let place = self.look(|shared| shared.place()).await;
        let is_mine = |fault: &&Fault| {
            matches!(fault, Fault::Kill { name, call }
                if name == self.me.as_str() && *call <= place.replies + 1)
        };
        let faults: Vec<_> = self.plan.faults.iter().filter(is_mine).collect();
        let is_now = faults
            .iter()
            .any(|fault| matches!(fault, Fault::Kill { call, .. } if *call == place.replies + 1));
        // A process that came back after its kill is a session more.
        if is_now && place.sessions < self.script.sessions_before(&place) + faults.len() {
            kill_this_process();
        }
    }

    /// Returns a reply with the folder and the requests of the new team.
    async fn adapted(&self, mut reply: Reply) -> Reply {
        let mut changes = self.look(|shared| shared.request_ids.clone()).await;
        let team = self.look(|shared| shared.dir.clone()).await;
        changes.extend(moved_folder(&self.plan, &team));
        for block in &mut reply.blocks {
            if let Block::ToolUse { input, .. } = block {
                for (old, new) in &changes {
                    replace_in(input, old, new);
                }
            }
        }
        reply
    }
}

fn summary(text: String, usage: Usage) -> Reply {
    let blocks = vec![Block::Text { text }];
    Reply { blocks, stop_reason: StopReason::EndTurn, usage, model: "replay".into() }
}

impl Shared {
    fn next_call(&self) -> Next {
        let place = self.place();
        if let Some(outcome) = self.script.end_without_reply(&place) {
            return Next::NoReply(outcome);
        }
        self.script.next_call(&place).cloned().map_or(Next::Over, Next::Call)
    }
}
