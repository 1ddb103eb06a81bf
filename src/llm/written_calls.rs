//! Calls of tools that a small model has written as text.
//!
//! Such a model often writes a call as JSON in its answer, in a form that its server does not know: in a code fence, with
//! other names for the fields, with line breaks inside a string. Without this room its turn would end there.
//!
//! *Invariant:* a reply with a call of its own stays as it is, and a text is only taken for a call if it names a tool of
//! the request and nothing is said after it. So a model that quotes a call and goes on has called nothing.

use super::provider::{Provider, Sink, TurnFuture};
use super::reply_builder::ReplyBuilder;
use super::written_json;
use crate::wire::chat::{Block, Reply, Request, StopReason, ToolDefinition};
use serde_json::{Map, Value};
use std::ops::Range;
use std::rc::Rc;

/// The fields in which models write the name of a tool.
const NAMES: [&str; 6] = ["name", "tool", "function", "tool_name", "function_name", "action"];

/// The fields in which models write the arguments.
const ARGUMENTS: [&str; 6] = ["arguments", "parameters", "input", "args", "action_input", "params"];

/// The words that stand between calls and their marks: those of code fences, tags of calls, and lists.
const MARKS: [&str; 13] = [
    "```json",
    "```tool_call",
    "```tool_code",
    "```",
    "<tool_call>",
    "</tool_call>",
    "<function>",
    "</function>",
    "<tools>",
    "</tools>",
    ",",
    // Templates show some models their calls in two pairs of brackets.
    "{",
    "}",
];

/// A model whose written calls are calls.
pub(super) struct WrittenCalls(pub(super) Rc<dyn Provider>);

impl Provider for WrittenCalls {
    fn label(&self) -> String {
        self.0.label()
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(async move {
            let reply = self.0.turn(request, sink).await?;
            Ok(with_written_calls(reply, request))
        })
    }
}

#[derive(Debug, PartialEq)]
struct WrittenCall {
    tool: String,
    input: Value,
}

/// Returns the reply with its written calls as calls.
fn with_written_calls(reply: Reply, request: &Request) -> Reply {
    let is_text = |block: &Block| matches!(block, Block::Text { .. } | Block::Opaque { .. });
    if reply.stop_reason != StopReason::EndTurn || !reply.blocks.iter().all(is_text) {
        return reply;
    }
    let text = reply.text();
    let Some((said, calls)) = split(&text, &request.tools) else { return reply };
    let mut builder = ReplyBuilder::new(request, &reply.model);
    builder.text(said);
    for (at, call) in (0..).zip(calls) {
        builder.call(at, "", call.tool, call.input);
    }
    let opaque = reply.blocks.into_iter().filter(|block| matches!(block, Block::Opaque { .. }));
    let made = builder.finish(None);
    Reply { blocks: opaque.chain(made.blocks).collect(), usage: reply.usage, ..made }
}

/// Returns what is said before the first call, and all calls; `None` if the text does not end with a call.
fn split(text: &str, tools: &[ToolDefinition]) -> Option<(String, Vec<WrittenCall>)> {
    let found: Vec<(Range<usize>, Vec<WrittenCall>)> = written_json::values(text)
        .filter_map(|(span, value)| Some((span, calls(&value, tools)?)))
        .collect();
    let (first, last) = (found.first()?.0.start, found.last()?.0.end);
    if !without_marks(text.get(last..)?, str::trim_start, str::strip_prefix).is_empty() {
        return None;
    }
    let said = without_marks(text.get(..first)?, str::trim_end, str::strip_suffix);
    Some((said.to_owned(), found.into_iter().flat_map(|(_, calls)| calls).collect()))
}

/// Returns a text without the marks at one of its ends.
fn without_marks<'t>(
    mut text: &'t str,
    trim: impl Fn(&'t str) -> &'t str,
    strip: impl Fn(&'t str, &'static str) -> Option<&'t str>,
) -> &'t str {
    loop {
        text = trim(text);
        match MARKS.iter().find_map(|mark| strip(text, mark)) {
            Some(rest) => text = rest,
            None => return text,
        }
    }
}

/// Returns the calls that a value is; `None` if it is anything else.
fn calls(value: &Value, tools: &[ToolDefinition]) -> Option<Vec<WrittenCall>> {
    match value {
        Value::Array(items) => {
            let calls: Option<Vec<_>> = items.iter().map(|item| calls(item, tools)).collect();
            calls.map(|calls| calls.into_iter().flatten().collect())
        }
        Value::Object(fields) => {
            if let Some(list) = fields.get("tool_calls") {
                return calls(list, tools);
            }
            if let Some(function @ Value::Object(_)) = fields.get("function") {
                return calls(function, tools);
            }
            call(fields, tools).map(|call| vec![call])
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
    .filter(|calls| !calls.is_empty())
}

fn call(fields: &Map<String, Value>, tools: &[ToolDefinition]) -> Option<WrittenCall> {
    let offered = |name: &str| {
        let name = name.strip_prefix("functions.").unwrap_or(name);
        tools.iter().find(|tool| tool.name == name)
    };
    if let (1, Some((name, input @ Value::Object(_)))) = (fields.len(), fields.iter().next())
        && let Some(tool) = offered(name)
    {
        return Some(WrittenCall { tool: tool.name.clone(), input: input.clone() });
    }
    let (key, tool) =
        NAMES.iter().find_map(|key| Some((*key, offered(fields.get(*key)?.as_str()?)?)))?;
    let given = ARGUMENTS.iter().find_map(|key| fields.get(*key));
    let input = match given {
        Some(input @ Value::Object(_)) => input.clone(),
        Some(Value::String(written)) => {
            written_json::values(written).next().map(|(_, value)| value).filter(Value::is_object)?
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => return None,
        // The arguments stand beside the name.
        None => {
            let known = tool.input_schema.get("properties")?;
            let others = fields.iter().filter(|(name, _)| *name != key);
            let input: Map<String, Value> = others.map(|(k, v)| (k.clone(), v.clone())).collect();
            input.keys().all(|name| known.get(name).is_some()).then_some(Value::Object(input))?
        }
    };
    Some(WrittenCall { tool: tool.name.clone(), input })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::request;
    use crate::wire::chat::Usage;
    use serde_json::json;

    fn answer(text: &str) -> Vec<Block> {
        let tool = |name: &str, properties: Value| ToolDefinition {
            name: name.into(),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": properties}),
        };
        let mut request = request(vec![]);
        request.tools = vec![
            tool("bash", json!({"command": {}})),
            tool("write_file", json!({"path": {}, "content": {}})),
        ];
        let blocks = vec![Block::Text { text: text.into() }];
        let stop_reason = StopReason::EndTurn;
        let reply = Reply { blocks, stop_reason, usage: Usage::default(), model: "m".into() };
        let reply = with_written_calls(reply, &request);
        let has_call = reply.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        assert_eq!(reply.stop_reason == StopReason::ToolUse, has_call);
        reply.blocks
    }

    fn bash(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "bash".into(), input: json!({"command": "ls"}) }
    }

    #[test]
    fn a_call_is_found_in_each_form_that_models_write() {
        for text in [
            r#"{"name": "bash", "arguments": {"command": "ls"}}"#,
            "```json\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n```\n",
            "<tool_call>\n{\"name\": \"bash\", \"parameters\": {\"command\": \"ls\"}}\n</tool_call>",
            "<tools></tools>\n<function>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}</function>",
            r#"{"name": "functions.bash", "arguments": "{\"command\": \"ls\"}"}"#,
            r#"{"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}"#,
            r#"{"tool_calls": [{"name": "bash", "args": {"command": "ls"}}]}"#,
            r#"[{"tool": "bash", "command": "ls"}]"#,
            r#"{"bash": {"command": "ls"}}"#,
            r#"{{"name": "bash", "arguments": {"command": "ls"}}}"#,
            r#"{"name": "bash", "arguments": {"command": "ls"}"#,
        ] {
            assert_eq!(answer(text), [bash("call_0")], "{text}");
        }
    }

    #[test]
    fn several_calls_keep_their_order_and_what_is_said_before_them() {
        let call = r#"{"name": "bash", "arguments": {"command": "ls"}}"#;
        let text =
            format!("I look twice.\n\n```json\n{call}\n```\nand again\n```json\n{call}\n```");
        let said = Block::Text { text: "I look twice.".into() };
        assert_eq!(answer(&text), [said, bash("call_0"), bash("call_1")]);
    }

    #[test]
    fn a_text_that_quotes_a_call_or_names_no_tool_stays_a_text() {
        let call = r#"{"name": "bash", "arguments": {"command": "ls"}}"#;
        for text in [
            format!("The file has {call}, which I have not run."),
            call.replace("bash", "format_disk"),
            r#"{"name": "bash", "arguments": {"command": "l"#.into(),
            r#"{"name": "bash", "path": "ls"}"#.into(),
            r#"{"name": "bash", "arguments": [1]}"#.into(),
            "[]".into(),
            "done".into(),
        ] {
            assert_eq!(answer(&text), [Block::Text { text: text.clone() }]);
        }
    }
}
