//! The rules of a request to a model, checked by the providers that stand in for one. Pure.

use crate::wire::chat::{Block, Request, Role};
use std::collections::BTreeSet;

/// Checks a request: roles alternate and start with user; exactly one result answers each tool call in the next
/// message, before any text; the schemas of tools are objects; the ids of calls are unique.
///
/// # Errors
/// The text names the first rule that the request breaks.
pub(crate) fn check(request: &Request) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in request.messages.iter().enumerate() {
        let turn = if at % 2 == 0 { Role::User } else { Role::Assistant };
        if message.role != turn {
            return Err(format!(
                "message {at} is not of role {turn:?}: roles alternate, user first"
            ));
        }
        let mut past_results = false;
        for block in &message.blocks {
            match (turn, block) {
                (Role::User, Block::ToolResult { tool_use_id, .. }) => {
                    if past_results {
                        return Err(format!(
                            "message {at} has the result of {tool_use_id} after text"
                        ));
                    }
                    if !open.remove(tool_use_id.as_str()) {
                        return Err(format!(
                            "message {at} answers {tool_use_id}, which is not asked"
                        ));
                    }
                }
                (Role::Assistant, Block::ToolUse { id, input, .. }) => {
                    if !seen.insert(id) || !open.insert(id) {
                        return Err(format!("message {at} repeats the call id {id}"));
                    }
                    if !input.is_object() {
                        return Err(format!("message {at}: the input of {id} is no object"));
                    }
                }
                (_, Block::Text { .. } | Block::Opaque { .. }) => past_results = true,
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
        Some(tool) => Err(format!("the schema of the tool {} is no object", tool.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{ChatMessage, ToolDefinition};
    use serde_json::{Value, json};

    fn text() -> Block {
        Block::Text { text: "x".into() }
    }

    fn call(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "n".into(), input: json!({}) }
    }

    fn result(id: &str) -> Block {
        Block::ToolResult { tool_use_id: id.into(), content: "c".into(), is_error: false }
    }

    fn request(messages: Vec<Vec<Block>>) -> Request {
        let roles = [Role::User, Role::Assistant].into_iter().cycle();
        let messages = roles.zip(messages).map(|(role, blocks)| ChatMessage { role, blocks });
        Request {
            system: String::new(),
            messages: messages.collect(),
            tools: vec![],
            max_tokens: 1,
        }
    }

    #[test]
    fn each_rule_is_checked() {
        let table = [
            (vec![vec![text()]], ""),
            (
                vec![
                    vec![text()],
                    vec![call("a"), call("b")],
                    vec![result("b"), result("a"), text()],
                ],
                "",
            ),
            (vec![vec![text()], vec![text()]], ""),
            (vec![], "empty"),
            (vec![vec![text()], vec![call("a")], vec![text()]], "does not answer the call a"),
            (vec![vec![text()], vec![call("a")], vec![text(), result("a")]], "after text"),
            (vec![vec![text()], vec![call("a")], vec![result("a"), result("a")]], "not asked"),
            (vec![vec![text()], vec![text()], vec![result("a")]], "not asked"),
            (vec![vec![text()], vec![call("a"), call("a")], vec![result("a")]], "repeats"),
            (vec![vec![call("a")]], "other role"),
        ];
        for (messages, complaint) in table {
            let got = check(&request(messages)).err().unwrap_or_default();
            assert!(
                got.contains(complaint) && got.is_empty() == complaint.is_empty(),
                "{complaint}: {got}"
            );
        }
        let mut two_users = request(vec![vec![text()], vec![text()], vec![text()]]);
        two_users.messages[1].role = Role::User;
        assert!(check(&two_users).unwrap_err().contains("roles alternate"));
        let mut tool = request(vec![vec![text()]]);
        tool.tools = vec![ToolDefinition {
            name: "n".into(),
            description: "d".into(),
            input_schema: Value::Null,
        }];
        assert!(check(&tool).unwrap_err().contains("schema"));
    }
}
