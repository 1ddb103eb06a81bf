//! The conversation of the lead as the reports with which an editor shows it again.

use super::calls::AgentCall;
use super::mail::mail_text;
use crate::acp::served::updates::{Speaker, chunk};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the reports of a conversation, from the lines of its transcript.
pub(super) fn replay(lines: impl Iterator<Item = Line>, folder: &Path) -> Vec<Value> {
    let mut replayed = Vec::new();
    let mut calls: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for (number, line) in lines.enumerate() {
        let message_id = format!("past-{number}");
        let mut say = |speaker, text: &str| {
            if !text.trim().is_empty() {
                replayed.push(chunk(speaker, &message_id, text));
            }
        };
        if let Entry::User { content } = line.entry {
            say(Speaker::User, &content);
        } else if let Entry::Mail { message, .. } = line.entry {
            let text = Message::read(&message).ok().and_then(|message| mail_text(&message));
            say(Speaker::Agent, &text.unwrap_or_default());
        } else if let Entry::Compacted { .. } = line.entry {
            say(Speaker::Agent, "\n\n(The conversation was summarized for the model here.)\n\n");
        } else if let Entry::Assistant { blocks, .. } = line.entry {
            for block in blocks {
                match block {
                    Block::Text { text } => say(Speaker::Agent, &text),
                    Block::ToolUse { id, name, input } => {
                        calls.insert(id, (name, input));
                    }
                    Block::ToolResult { .. } | Block::Image { .. } | Block::Opaque { .. } => {}
                }
            }
        } else if let Entry::ToolResult { tool_use_id, content, is_error, .. } = line.entry
            && let Some((tool, input)) = calls.remove(&tool_use_id)
        {
            let (id, tool, input) = (tool_use_id.as_str(), tool.as_str(), &input);
            let call = AgentCall { teammate: None, id, tool, input, folder };
            replayed.push(call.whole_end(false, is_error, &content).update(true));
        }
    }
    replayed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_conversation_is_told_in_order_with_the_ends_of_its_calls() {
        let lines = [
            json!({"kind":"session","at":1.0,"incarnation":"x","pid":1,"model":"m"}),
            json!({"kind":"user","at":1.0,"content":"hi"}),
            json!({"kind":"assistant","at":1.0,"stop_reason":"tool_use","model":"m","usage":{},
                "blocks":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t","name":"x","input":{"a":"b"}}]}),
            json!({"kind":"tool_result","at":1.0,"tool_use_id":"t","content":"no","is_error":true}),
            json!({"kind":"mail","at":1.0,"gen":"1","offset":0,"message":{"id":"alice:1","from":"alice","to":"lead","type":"message","content":"found it"}}),
            json!({"kind":"note","at":1.0,"content":"for the model"}),
        ];
        let lines = lines.iter().map(|line| Line::read(line.to_string().as_bytes()).unwrap());
        let told = replay(lines, Path::new("/w"));
        let kinds: Vec<&str> =
            told.iter().map(|update| update["sessionUpdate"].as_str().unwrap()).collect();
        let wanted =
            ["user_message_chunk", "agent_message_chunk", "tool_call", "agent_message_chunk"];
        assert_eq!(kinds, wanted);
        assert_eq!((&told[2]["status"], &told[2]["title"]), (&json!("failed"), &json!("x: a=b")));
        assert!(told[3]["content"]["text"].as_str().unwrap().contains("found it"));
    }
}
