//! The embedded default "model": short English commands -> the tool calls a model would make.
//!
//! It needs no key and no network, gives the same answer to the same conversation, and never pretends
//! to be a model. Text goes through `lexer` (tokens), `grammar` (intents; `scope` keeps what names and
//! pronouns stand for), `plan` (the next call, or `report`). It keeps nothing between two calls but a
//! counter for ids.

mod compose;
mod conversation;
mod cursor;
mod grammar;
mod intent;
mod lexer;
// Word lists read better in lines than in columns.
#[rustfmt::skip]
mod lexicon;
mod plan;
mod report;
mod scope;
pub mod spec;

use super::provider::{Delta, Provider, TurnFuture};
use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use plan::{Agent, Next};
use std::cell::Cell;

/// The label, and the model's name.
const NAME: &str = "rehearsal";

/// The provider. One belongs to one life of one agent.
#[derive(Debug)]
pub struct Rehearsal {
    session: String,
    calls: Cell<u64>,
}

impl Rehearsal {
    /// A provider whose call ids begin with `session`: a text that no other life of the agent has
    /// (its incarnation), because ids of messages derive from them and must never come twice.
    pub fn new(session: impl Into<String>) -> Self {
        Self { session: session.into(), calls: Cell::new(0) }
    }

    fn reply(&self, request: &Request) -> Reply {
        let agent = Agent {
            name: own_name(request),
            tools: request.tools.iter().map(|tool| tool.name.as_str()).collect(),
        };
        let turn = conversation::turn(&request.messages);
        let (block, stop_reason) = match plan::next(&turn, &agent) {
            Next::Call { tool, input } => {
                self.calls.set(self.calls.get() + 1);
                let id = format!("{NAME}-{}-{}", self.session, self.calls.get());
                (Block::ToolUse { id, name: tool.into(), input }, StopReason::ToolUse)
            }
            Next::Close(text) => (Block::Text { text }, StopReason::EndTurn),
        };
        let usage = Usage {
            input_tokens: tokens_read(request),
            output_tokens: tokens(weight(&block)),
            ..Usage::default()
        };
        Reply { blocks: vec![block], stop_reason, usage, model: NAME.into() }
    }
}

impl Provider for Rehearsal {
    fn label(&self) -> String {
        NAME.into()
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: &'a mut dyn FnMut(Delta)) -> TurnFuture<'a> {
        Box::pin(async move {
            let reply = self.reply(request);
            for word in reply.text().split_inclusive(char::is_whitespace) {
                sink(Delta::Text(word.to_owned()));
            }
            Ok(reply)
        })
    }
}

/// The name that the system prompt gives the agent: `Your name is NAME.`
fn own_name(request: &Request) -> String {
    let named = request.system.lines().find_map(|line| {
        let (_, name) = line.split_once("Your name is ")?;
        let end = |c: char| c == '.' || c == ',' || c.is_whitespace();
        name.split(end).next().filter(|name| !name.is_empty())
    });
    named.unwrap_or("lead").to_owned()
}

fn tokens_read(request: &Request) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks).map(weight);
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len());
    tokens(request.system.len() + blocks.sum::<usize>() + tools.sum::<usize>())
}

/// Bytes of a block that a model would read or write.
fn weight(block: &Block) -> usize {
    match block {
        Block::Text { text } => text.len(),
        Block::ToolUse { name, input, .. } => name.len() + input.to_string().len(),
        Block::ToolResult { content, .. } => content.len(),
        Block::Opaque { value } => value.to_string().len(),
    }
}

/// A token is about four bytes.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
