//! A stage for the rehearsal: requests as an agent would send them, tool calls answered by a tiny team.

use super::super::Rehearsal;
use crate::llm::Provider;
use crate::wire::chat::{Block, ChatMessage, Request, Role, StopReason, ToolDefinition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// More calls than any sensible turn has.
pub(super) const ROUNDS: usize = 200;

const COMMON: &[&str] = &[
    "bash",
    "read_file",
    "write_file",
    "edit_file",
    "send_message",
    "read_inbox",
    "list_teammates",
    "broadcast",
    "create_task",
    "list_tasks",
    "get_task",
    "claim_task",
    "update_task",
    "complete_task",
];

/// One agent, its conversation, and the world its tools act on.
pub(super) struct Stage {
    provider: Rehearsal,
    request: Request,
    /// The files there are.
    pub(super) files: BTreeMap<String, String>,
    /// What `read_inbox` says.
    pub(super) inbox: String,
    /// Tools that fail, with what they say.
    pub(super) broken: BTreeMap<&'static str, &'static str>,
    /// Mail that comes with the first tool result.
    pub(super) meanwhile: Option<String>,
}

/// What an agent did in one turn.
#[derive(Debug, PartialEq)]
pub(super) struct Played {
    /// Its tool calls in order, without `idle`.
    pub(super) calls: Vec<(String, Value)>,
    /// Its closing text; empty when it called `idle`.
    pub(super) text: String,
}

pub(super) fn lead() -> Stage {
    Stage::new("Your name is lead.", &["spawn_teammate", "shutdown_teammate", "review_plan"])
}

pub(super) fn teammate(name: &str) -> Stage {
    let system = format!("You are part of a team.\nYour name is {name}.\nYour role: tester.\n");
    Stage::new(&system, &["shutdown_response", "submit_plan", "idle"])
}

/// Mail as the agent shows it to its model.
pub(super) fn inbox_block(mails: &[Value]) -> String {
    let json = Value::Array(mails.to_vec()).to_string();
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    format!("<inbox>\n{json}\n</inbox>")
}

/// One message of mail.
pub(super) fn letter(from: &str, content: &str) -> Value {
    json!({"type": "message", "from": from, "content": content, "id": format!("{from}:{content}")})
}

impl Stage {
    fn new(system: &str, own: &[&str]) -> Self {
        let tool = |name: &&str| ToolDefinition {
            name: (*name).into(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        };
        let request = Request {
            system: system.into(),
            messages: Vec::new(),
            tools: COMMON.iter().chain(own).map(tool).collect(),
            max_tokens: 1000,
        };
        Self {
            provider: Rehearsal::new("t"),
            request,
            files: BTreeMap::new(),
            inbox: String::new(),
            broken: BTreeMap::new(),
            meanwhile: None,
        }
    }

    /// A turn that begins with this text in a user message.
    pub(super) fn play(&mut self, text: &str) -> Played {
        self.push(Role::User, vec![Block::Text { text: text.into() }]);
        let mut calls = Vec::new();
        for _ in 0..ROUNDS {
            let blocks = self.turn();
            self.push(Role::Assistant, blocks.clone());
            let mut results = Vec::new();
            for block in &blocks {
                match block {
                    Block::Text { text } => return Played { calls, text: text.clone() },
                    Block::ToolUse { id, name, input } => {
                        results.push(self.answer(id, name, input));
                        if name == "idle" {
                            self.push(Role::User, results);
                            return Played { calls, text: String::new() };
                        }
                        calls.push((name.clone(), input.clone()));
                    }
                    Block::ToolResult { .. } | Block::Opaque { .. } => panic!("{block:?}"),
                }
            }
            let mail = self.meanwhile.take();
            results.extend(mail.map(|text| Block::Text { text }));
            self.push(Role::User, results);
        }
        panic!("no end after {ROUNDS} rounds of {text:?}");
    }

    fn push(&mut self, role: Role, blocks: Vec<Block>) {
        match self.request.messages.last_mut() {
            Some(last) if last.role == role => last.blocks.extend(blocks),
            Some(_) | None => self.request.messages.push(ChatMessage { role, blocks }),
        }
    }

    fn turn(&self) -> Vec<Block> {
        let mut shown = String::new();
        let mut sink = |delta| match delta {
            crate::llm::Delta::Text(text) => shown.push_str(&text),
            crate::llm::Delta::Retry { .. } => panic!("nothing to retry"),
        };
        let mut context = Context::from_waker(Waker::noop());
        let reply = match pin!(self.provider.turn(&self.request, &mut sink)).poll(&mut context) {
            Poll::Ready(reply) => reply.unwrap(),
            Poll::Pending => panic!("a rehearsal waits for nothing"),
        };
        assert_eq!(shown, reply.text());
        assert!(reply.usage.input_tokens > 0 && reply.usage.output_tokens > 0);
        let calls = reply.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        assert_eq!(calls, reply.stop_reason == StopReason::ToolUse);
        self.check_ids(&reply.blocks);
        reply.blocks
    }

    fn check_ids(&self, new: &[Block]) {
        let ids = |blocks: &[Block]| -> Vec<String> {
            let id = |block: &Block| match block {
                Block::ToolUse { id, .. } => Some(id.clone()),
                Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
            };
            blocks.iter().filter_map(id).collect()
        };
        let old: Vec<_> = self.request.messages.iter().flat_map(|m| ids(&m.blocks)).collect();
        assert!(ids(new).iter().all(|id| !old.contains(id)), "an id comes twice");
    }

    fn answer(&mut self, id: &str, name: &str, input: &Value) -> Block {
        assert!(self.request.tools.iter().any(|tool| tool.name == name), "{name} is not offered");
        let field = |key: &str| input[key].as_str().unwrap_or_default().to_owned();
        let result = match (self.broken.get(name), name) {
            (Some(error), _) => Err((*error).to_owned()),
            (None, "write_file") => {
                self.files.insert(field("path"), field("content"));
                Ok("written".into())
            }
            (None, "read_file") => {
                let found = self.files.get(&field("path")).cloned();
                found.ok_or_else(|| format!("{} does not exist", field("path")))
            }
            (None, "edit_file") => match self.files.get_mut(&field("path")) {
                Some(text) if text.contains(&field("old_text")) => {
                    *text = text.replace(&field("old_text"), &field("new_text"));
                    Ok("edited".into())
                }
                Some(_) | None => Err("old_text does not occur".into()),
            },
            (None, "bash") => match field("command").strip_prefix("ls -ld -- ") {
                Some(path) if !self.files.contains_key(path) => Ok(format!(
                    "ls: cannot access '{path}': No such file or directory\n[exit code 2]"
                )),
                Some(_) | None => Ok("output of the command".into()),
            },
            (None, "read_inbox") => Ok(self.inbox.clone()),
            (None, "create_task") => Ok("created task 7".into()),
            (None, _) => Ok("ok".into()),
        };
        let is_error = result.is_err();
        let content = result.unwrap_or_else(|error| error);
        Block::ToolResult { tool_use_id: id.into(), content, is_error }
    }
}
