//! The rules of a request to a model, which the scripted provider checks in place of an endpoint. Pure.

use crate::wire::chat::{Block, Request, Role};
use std::collections::BTreeSet;

/// Checks a request: roles alternate and start with user; exactly one result answers each tool call in the next
/// message, before any text; inputs of calls and schemas of tools are objects; the ids of calls are unique. The
/// error names the first rule that the request breaks.
pub(crate) fn check(request: &Request) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in request.messages.iter().enumerate() {
        let turn = if at % 2 == 0 { Role::User } else { Role::Assistant };
        if message.role != turn {
            let why = "roles alternate, user first";
            return Err(format!("message {at} is not of role {turn:?}: {why}"));
        }
        let mut past_results = false;
        for block in &message.blocks {
            match (turn, block) {
                (Role::User, Block::ToolResult { tool_use_id, .. }) => {
                    let id = tool_use_id.as_str();
                    if past_results {
                        return Err(format!("message {at} has the result of {id} after text"));
                    }
                    if !open.remove(id) {
                        return Err(format!("message {at} answers {id}, which is not asked"));
                    }
                }
                (Role::Assistant, Block::ToolUse { id, input, .. }) => {
                    if !seen.insert(id) || !open.insert(id) {
                        return Err(format!("message {at} repeats the call id {id}"));
                    }
                    if !input.is_object() {
                        return Err(format!("message {at}: the input of {id} is not an object"));
                    }
                }
                (_, Block::Text { .. } | Block::Image { .. } | Block::Opaque { .. }) => {
                    past_results = true;
                }
                (Role::User, Block::ToolUse { .. })
                | (Role::Assistant, Block::ToolResult { .. }) => {
                    return Err(format!("message {at} has a tool block of the other role"));
                }
            }
        }
        if let (Role::User, Some(id)) = (turn, open.first()) {
            return Err(format!("message {at} does not answer the call {id}"));
        }
    }
    if request.messages.is_empty() {
        return Err("the conversation is empty".into());
    }
    match request.tools.iter().find(|tool| !tool.input_schema.is_object()) {
        Some(tool) => Err(format!("the schema of the tool {} is not an object", tool.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{call, request, result, text, tool};
    use serde_json::{Value, json};

    /// Parses messages in short form, separated by `/`: `x` is text, `?a` the call a, `!a` its result.
    fn conversation(messages: &str) -> Request {
        let block = |word: &str| match word.split_at(1) {
            ("?", id) => call(id, "n", json!({})),
            ("!", id) => result(id, "c", false),
            _ => text(word),
        };
        let blocks = |message: &str| message.split_whitespace().map(block).collect();
        request(messages.split('/').map(blocks).collect())
    }

    #[test]
    fn each_rule_is_checked() {
        let mut two_users = conversation("x/x/x");
        two_users.messages[1].role = Role::User;
        let tools = vec![tool("n", Value::Null)];
        let bad_schema = Request { tools, ..conversation("x") };
        let table = [
            ("x", ""),
            ("x / ?a ?b / !b !a x", ""),
            ("x / x", ""),
            ("x / ?a / x", "does not answer the call a"),
            ("x / ?a / x !a", "after text"),
            ("x / ?a / !a !a", "not asked"),
            ("x / x / !a", "not asked"),
            ("x / ?a ?a / !a", "repeats"),
            ("?a", "other role"),
        ];
        let requests = table.map(|(messages, complaint)| (conversation(messages), complaint));
        let others =
            [(request(vec![]), "empty"), (two_users, "roles alternate"), (bad_schema, "schema")];
        for (request, complaint) in requests.into_iter().chain(others) {
            let got = check(&request).err().unwrap_or_default();
            let fits = got.contains(complaint) && got.is_empty() == complaint.is_empty();
            assert!(fits, "{complaint}: {got}");
        }
    }
}
