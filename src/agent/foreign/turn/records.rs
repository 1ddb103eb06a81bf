//! The records of a turn: messages and calls of the agent, as the transcript and the viewer get them.

use super::State;
use crate::acp::update::Update;
use crate::agent::conversation::{HostAction, TurnEffect};
use crate::agent::progress::Progress;
use crate::wire::activity::Activity;
use crate::wire::chat::{Block, StopReason, Usage};
use crate::wire::transcript::Entry;

impl State {
    pub(super) fn update(&mut self, update: Update) {
        match update {
            Update::Text { message_id, text, usage: _ } => {
                if self.messages.is_next(message_id.as_deref()) {
                    self.finish_message(StopReason::EndTurn);
                }
                self.refusals.is_last &= text.trim().is_empty();
                self.messages.add(message_id, &text);
                self.push(TurnEffect::Show(Progress::Text(text)));
            }
            Update::Tool(told) => {
                let id = self.calls.told(*told);
                self.follow(&id);
            }
            Update::Notice(text) => {
                self.finish_message(StopReason::EndTurn);
                self.push(TurnEffect::Show(Progress::Text(text)));
            }
            Update::Cost(_) | Update::Other(_) => {}
        }
    }

    /// Records the message that is being received, if it has a text.
    pub(super) fn finish_message(&mut self, stop_reason: StopReason) {
        let text = self.messages.finish();
        if text.is_empty() && self.usage == Usage::default() {
            return;
        }
        let blocks = if text.is_empty() { Vec::new() } else { vec![Block::Text { text }] };
        let (usage, model) = (std::mem::take(&mut self.usage), self.model.clone());
        self.record(Entry::Assistant { blocks, stop_reason, usage, model });
    }

    /// Records what is new about a call.
    pub(super) fn follow(&mut self, id: &str) {
        let Some(news) = self.calls.news(id) else { return };
        if news.is_announced {
            self.announce(id);
        }
        if news.is_started {
            self.start(id);
        }
        if let Some((output, is_error)) = news.result {
            self.finish(id, output, is_error);
        }
    }

    pub(super) fn announce(&mut self, id: &str) {
        let Some(call) = self.calls.announce(id) else { return };
        self.finish_message(StopReason::ToolUse);
        let block = Block::ToolUse { id: call.id.clone(), name: call.tool(), input: call.input() };
        let (usage, model) = (Usage::default(), self.model.clone());
        let stop_reason = StopReason::ToolUse;
        self.record(Entry::Assistant { blocks: vec![block], stop_reason, usage, model });
    }

    pub(super) fn start(&mut self, id: &str) {
        let Some(call) = self.calls.start(id) else { return };
        let (name, id, input) = (call.tool(), call.id.clone(), call.input());
        let summary = call.description();
        self.record(Entry::ToolStart { tool_use_id: id.clone(), name: name.clone() });
        self.push(HostAction::Doing(Activity::Tool(name.clone())));
        self.push(TurnEffect::Show(Progress::ToolStarted { id, name, input, summary }));
    }

    pub(super) fn finish(&mut self, id: &str, content: String, is_error: bool) {
        let Some(call) = self.calls.finish(id) else { return };
        self.has_worked |= !is_error;
        let (name, tool_use_id) = (call.tool(), call.id);
        let id = tool_use_id.clone();
        self.push(TurnEffect::Show(Progress::ended_call(id, name, content.clone(), is_error)));
        self.record(Entry::tool_result(tool_use_id, content, is_error, Vec::new()));
        if self.asked.is_empty() {
            self.push(HostAction::Doing(Activity::Model));
        }
    }
}
