//! The embedded default "model", which turns short English commands into the tool calls that a model would make.
//!
//! It gives the same answer to the same conversation, and says that it is not a model. `conversation` reads a
//! request, `commands` turns texts into steps by its table of templates, `plan` selects the next call, `reply`
//! writes the closing text. Between two calls the provider keeps only a counter for ids.

mod commands;
mod conversation;
mod plan;
mod reply;
mod template;

use super::provider::{Delta, Provider, Sink, TurnFuture};
use super::registry::{Connected, ProviderSpec};
use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use plan::NextReply;
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;

/// `rehearsal`: the embedded substitute for a model.
pub static SPEC: ProviderSpec = ProviderSpec {
    notice: Some(
        "REHEARSAL MODEL: this is not a language model. It understands short commands and turns them \
         into real tool calls.",
    ),
    connect: |connection| {
        let provider = Rc::new(Rehearsal::new(connection.incarnation));
        Ok(Connected { provider, warning: None })
    },
    ..ProviderSpec::new(NAME, "the program")
};

/// The provider's label, and the model's name.
const NAME: &str = "rehearsal";

/// The provider of one agent process.
#[derive(Debug)]
pub struct Rehearsal {
    session: String,
    calls: Cell<u64>,
}

impl Rehearsal {
    /// Creates a provider whose call ids contain `session`, the agent's incarnation. Ids of messages derive from
    /// call ids, so a call id must never repeat.
    pub fn new(session: impl Into<String>) -> Self {
        Self { session: session.into(), calls: Cell::new(0) }
    }

    fn reply(&self, request: &Request) -> Reply {
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let turn = conversation::current_turn(&request.messages);
        let (block, stop_reason) = match plan::next(&turn, own_name(request), &tools) {
            NextReply::Call(tool, input) => {
                self.calls.set(self.calls.get() + 1);
                let id = format!("{NAME}-{}-{}", self.session, self.calls.get());
                (Block::ToolUse { id, name: tool.into(), input }, StopReason::ToolUse)
            }
            NextReply::Close(text) => (Block::Text { text }, StopReason::EndTurn),
        };
        let usage = Usage {
            input_tokens: tokens(&json!([request.system, request.messages, request.tools])),
            output_tokens: tokens(&json!(block)),
            ..Usage::default()
        };
        Reply { blocks: vec![block], stop_reason, usage, model: NAME.into() }
    }
}

impl Provider for Rehearsal {
    fn label(&self) -> String {
        NAME.into()
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(async move {
            let reply = self.reply(request);
            for word in reply.text().split_inclusive(char::is_whitespace) {
                sink(Delta::Text(word.to_owned()));
            }
            Ok(reply)
        })
    }
}

/// Returns the agent's name from the system prompt, where it stands as `Your name is NAME.`
fn own_name(request: &Request) -> &str {
    let (_, name) = request.system.split_once("Your name is ").unwrap_or(("", "lead"));
    name.split(['.', ',', ' ', '\n']).next().unwrap_or(name)
}

/// Estimates the tokens of a JSON value: one for each four bytes.
fn tokens(text: &Value) -> u64 {
    u64::try_from(text.to_string().len().div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
