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
    use crate::llm::fixtures::{self, request, tool};
    use serde_json::{Value, json};

    fn text() -> Block {
        fixtures::text("x")
    }

    fn call(id: &str) -> Block {
        fixtures::call(id, "n", json!({}))
    }

    fn result(id: &str) -> Block {
        fixtures::result(id, "c", false)
    }

    #[test]
    fn each_rule_is_checked() {
        let two = vec![call("a"), call("b")];
        let table = [
            (vec![vec![text()]], ""),
            (vec![vec![text()], two, vec![result("b"), result("a"), text()]], ""),
            (vec![vec![text()], vec![text()]], ""),
            (vec![], "empty"),
            (vec![vec![text()], vec![call("a")], vec![text()]], "does not answer the call a"),
            (vec![vec![text()], vec![call("a")], vec![text(), result("a")]], "after text"),
            (vec![vec![text()], vec![call("a")], vec![result("a"), result("a")]], "not asked"),
            (vec![vec![text()], vec![text()], vec![result("a")]], "not asked"),
            (vec![vec![text()], vec![call("a"), call("a")], vec![result("a")]], "repeats"),
            (vec![vec![call("a")]], "other role"),
        ];
        let mut two_users = request(vec![vec![text()], vec![text()], vec![text()]]);
        two_users.messages[1].role = Role::User;
        let tools = vec![tool("n", Value::Null)];
        let bad_schema = Request { tools, ..request(vec![vec![text()]]) };
        let requests = table.map(|(messages, complaint)| (request(messages), complaint));
        let others = [(two_users, "roles alternate"), (bad_schema, "schema")];
        for (request, complaint) in requests.into_iter().chain(others) {
            let got = check(&request).err().unwrap_or_default();
            let fits = got.contains(complaint) && got.is_empty() == complaint.is_empty();
            assert!(fits, "{complaint}: {got}");
        }
    }
}
