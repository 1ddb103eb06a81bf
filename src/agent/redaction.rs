//! What an agent must not repeat: its own credentials.
//!
//! Whatever a model, a tool or a person says comes in as an [`Event`]. It is cleaned here, so that
//! neither the transcript nor mail, commands or the screen ever get to see a key. Mail of others is
//! kept as it was received. Knows nothing of where the secrets come from.

use super::compact::Compacted;
use super::event::Event;
use crate::llm::Redactor;
use crate::tools::ToolError;
use crate::wire::chat::{Block, Reply};
use serde_json::Value;

/// The event without known secrets.
pub(super) fn redact_event(event: Event, secrets: &Redactor) -> Event {
    let hide = |text: String| secrets.hide(&text).into_owned();
    match event {
        Event::Prompt(text) => Event::Prompt(hide(text)),
        Event::Replied(Ok(reply)) => {
            let blocks = reply.blocks.into_iter().filter_map(|block| clean(block, secrets));
            Event::Replied(Ok(Reply { blocks: blocks.collect(), ..reply }))
        }
        Event::Compacted(Ok(compacted)) => {
            Event::Compacted(Ok(Compacted { summary: hide(compacted.summary), ..compacted }))
        }
        Event::ToolEnded(result) => Event::ToolEnded(match result {
            Ok(text) => Ok(hide(text)),
            Err(ToolError::Reply(why)) => Err(ToolError::Reply(hide(why))),
            Err(ToolError::Fatal(why)) => Err(ToolError::Fatal(hide(why))),
        }),
        Event::IdleHookAnswered(leave) => Event::IdleHookAnswered(leave.map_err(hide)),
        other @ (Event::Mail
        | Event::Drained(_)
        | Event::DrainFailed(_)
        | Event::Notice(_)
        | Event::DiskFull
        | Event::TeamGone(_)
        | Event::Replied(Err(_))
        | Event::Judged(_)
        | Event::Answered(_)
        | Event::Settled(_)
        | Event::SetMode(_)
        | Event::AddRules(_)
        | Event::Compacted(Err(_))
        | Event::Interrupt
        | Event::Stop(_)
        | Event::TaskInSight
        | Event::TaskTaken
        | Event::PatienceOver) => other,
    }
}

/// A block that is signed cannot be changed: with a secret in it, it is left out.
fn clean(block: Block, secrets: &Redactor) -> Option<Block> {
    let hide = |text: &str| secrets.hide(text).into_owned();
    Some(match block {
        Block::Text { text } => Block::Text { text: hide(&text) },
        Block::ToolUse { id, name, input } => {
            Block::ToolUse { id, name, input: clean_value(input, secrets) }
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            Block::ToolResult { tool_use_id, content: hide(&content), is_error }
        }
        Block::Opaque { value } => {
            let signed = value.to_string();
            (hide(&signed) == signed).then_some(Block::Opaque { value })?
        }
    })
}

fn clean_value(value: Value, secrets: &Redactor) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.hide(&text).into_owned()),
        Value::Array(items) => {
            items.into_iter().map(|item| clean_value(item, secrets)).collect::<Vec<_>>().into()
        }
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(key, value)| (secrets.hide(&key).into_owned(), clean_value(value, secrets)));
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
    fn nothing_that_comes_in_keeps_a_secret() {
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
        let events = [
            Event::Prompt(CANARY.into()),
            Event::Replied(Ok(reply)),
            Event::ToolEnded(Ok(CANARY.into())),
            Event::ToolEnded(Err(ToolError::Reply(CANARY.into()))),
            Event::ToolEnded(Err(ToolError::Fatal(CANARY.into()))),
        ];
        for event in events {
            let told = format!("{:?}", redact_event(event, &secrets));
            assert!(!told.contains("canary") && told.contains("[redacted]"), "{told}");
            assert!(!told.contains("Replied") || told.contains("fine"), "{told}");
        }
    }
}
