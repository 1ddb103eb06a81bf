//! Removes the agent's own credentials from the texts of models, tools and people.
//!
//! Everything that enters a conversation is redacted, so that no key reaches the transcript, mail, commands or the
//! screen. Mail from others stays as it was received.

use super::compact::Compacted;
use super::event::WorkResult;
use crate::llm::Redactor;
use crate::tools::{ToolError, ToolOutput};
use crate::wire::chat::{Block, Reply};
use crate::wire::text_change::TextChange;
use serde_json::Value;

pub(super) fn redact(result: WorkResult, secrets: &Redactor) -> WorkResult {
    let hide = |text: String| secrets.hide(&text).into_owned();
    match result {
        WorkResult::Replied(Ok(reply)) => {
            let blocks = reply.blocks.into_iter().filter_map(|block| redact_block(block, secrets));
            WorkResult::Replied(Ok(Reply { blocks: blocks.collect(), ..reply }))
        }
        WorkResult::Compacted(Ok(made)) => {
            WorkResult::Compacted(Ok(Compacted { summary: hide(made.summary), ..made }))
        }
        WorkResult::ToolsEnded(results) => {
            let results = results.into_iter().map(|result| redact_output(result, secrets));
            WorkResult::ToolsEnded(results.collect())
        }
        // The provider's text about a failure holds no credentials.
        failed @ (WorkResult::Replied(Err(_)) | WorkResult::Compacted(Err(_))) => failed,
    }
}

fn redact_output(
    result: Result<ToolOutput, ToolError>,
    secrets: &Redactor,
) -> Result<ToolOutput, ToolError> {
    let hide = |text: String| secrets.hide(&text).into_owned();
    match result {
        Ok(output) => {
            let changes = output.changes.into_iter();
            let changes = changes.map(|change| redact_change(change, secrets)).collect();
            Ok(ToolOutput { text: hide(output.text), changes, ..output })
        }
        Err(ToolError::Reply(why)) => Err(ToolError::Reply(hide(why))),
        Err(ToolError::Fatal(why)) => Err(ToolError::Fatal(hide(why))),
    }
}

fn redact_change(change: TextChange, secrets: &Redactor) -> TextChange {
    let hide = |text: String| secrets.hide(&text).into_owned();
    let TextChange { path, before, after } = change;
    TextChange { path, before: before.map(hide), after: hide(after) }
}

/// Redacts a block. A signed block cannot be changed, so a signed block that holds a secret is left out.
fn redact_block(block: Block, secrets: &Redactor) -> Option<Block> {
    let hide = |text: &str| secrets.hide(text).into_owned();
    Some(match block {
        Block::Text { text } => Block::Text { text: hide(&text) },
        Block::ToolUse { id, name, input } => {
            Block::ToolUse { id, name, input: redact_value(input, secrets) }
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            Block::ToolResult { tool_use_id, content: hide(&content), is_error }
        }
        Block::Image { image, data } => Block::Image { image, data },
        Block::Opaque { value } => {
            let signed = value.to_string();
            (hide(&signed) == signed).then_some(Block::Opaque { value })?
        }
    })
}

fn redact_value(value: Value, secrets: &Redactor) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.hide(&text).into_owned()),
        Value::Array(items) => {
            items.into_iter().map(|item| redact_value(item, secrets)).collect::<Vec<_>>().into()
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| {
                (secrets.hide(&key).into_owned(), redact_value(value, secrets))
            });
            Value::Object(fields.collect())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::Secret;
    use crate::wire::chat::{StopReason, Usage};
    use serde_json::json;

    const CANARY: &str = "canary-0123456789";

    #[test]
    fn no_result_keeps_a_secret() {
        let secrets = Redactor::new([Secret::new(CANARY).unwrap()]);
        let signed = |thinking: &str| Block::Opaque {
            value: json!({"type": "thinking", "thinking": thinking, "signature": "s"}),
        };
        let input = json!({"a": [CANARY, 1], CANARY: {"b": format!("x {CANARY}")}});
        let reply = Reply {
            blocks: vec![
                signed(CANARY),
                signed("fine"),
                Block::Text { text: CANARY.into() },
                Block::ToolUse { id: "t".into(), name: "bash".into(), input },
            ],
            stop_reason: StopReason::ToolUse,
            usage: Usage::default(),
            model: "m".into(),
        };
        let results = [
            WorkResult::Replied(Ok(reply)),
            WorkResult::ToolsEnded(vec![Ok(CANARY.to_owned().into())]),
            WorkResult::ToolsEnded(vec![Err(ToolError::Reply(CANARY.into()))]),
            WorkResult::ToolsEnded(vec![Err(ToolError::Fatal(CANARY.into()))]),
        ];
        for result in results {
            let told = format!("{:?}", redact(result, &secrets));
            assert!(!told.contains("canary") && told.contains("[redacted]"), "{told}");
            assert!(!told.contains("Replied") || told.contains("fine"), "{told}");
        }
    }
}
