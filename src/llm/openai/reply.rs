//! Assembles a [`Reply`] from the chunks or the complete body of a chat completion. Pure.
//!
//! *Invariant:* a reply exists only after `[DONE]`, or after the end of a stream that named its finish reason. Only
//! the first choice counts. Unknown fields, including reasoning, are ignored.

use super::super::calls::{Ids, input};
use super::super::provider::Delta;
use super::super::sse::Event;
use super::super::stream_parser::{Assemble, Fault};
use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use serde_json::Value;

/// The data of the last event.
const DONE: &str = "[DONE]";

/// A partial reply.
#[derive(Debug)]
pub(in crate::llm) struct Assembler {
    ids: Ids,
    model: String,
    text: String,
    refusal: String,
    calls: Vec<Part>,
    finish_reason: String,
    usage: Usage,
}

/// A partial tool call.
#[derive(Debug, Default)]
struct Part {
    /// The server's index of the call; some servers send none, others the same one for all calls.
    index: Option<u64>,
    id: String,
    name: String,
    /// The chunks of the arguments.
    streamed: String,
    /// The arguments, if they arrived as an object.
    given: Option<Value>,
}

impl Assembler {
    /// Creates an assembler for the reply to a request. `model` holds until the server names another one.
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        Self {
            ids: Ids::of(request),
            model: model.into(),
            text: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            finish_reason: String::new(),
            usage: Usage::default(),
        }
    }

    fn begin(&mut self, body: &Value) {
        let model = word(body, "model");
        if !model.is_empty() {
            self.model = model.into();
        }
        let read = |at: &str| body.pointer(at).and_then(Value::as_u64).unwrap_or_default();
        let cached = read("/usage/prompt_tokens_details/cached_tokens");
        let fresh = read("/usage/prompt_tokens").saturating_sub(cached);
        let usage = &mut self.usage;
        usage.input_tokens = usage.input_tokens.max(fresh);
        usage.cache_read_input_tokens = usage.cache_read_input_tokens.max(cached);
        usage.output_tokens = usage.output_tokens.max(read("/usage/completion_tokens"));
    }

    fn end(&mut self, choice: &Value) {
        let reason = word(choice, "finish_reason");
        if !reason.is_empty() {
            reason.clone_into(&mut self.finish_reason);
        }
    }

    fn say(&mut self, message: &Value, sink: &mut dyn FnMut(Delta)) {
        let text = text_of(message.get("content"));
        if !text.is_empty() {
            self.text.push_str(&text);
            sink(Delta::Text(text));
        }
        let refusal = word(message, "refusal");
        if !refusal.is_empty() {
            self.refusal.push_str(refusal);
            sink(Delta::Text(refusal.into()));
        }
    }

    /// Returns the call that a chunk belongs to, or a new one if it matches no known call.
    fn part(&mut self, piece: &Value) -> &mut Part {
        let (index, id) = (piece.get("index").and_then(Value::as_u64), word(piece, "id"));
        let name = piece.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
        let same_id = |part: &Part| id.is_empty() || part.id.is_empty() || part.id == id;
        let known = match index {
            Some(_) => self.calls.iter().rposition(|part| part.index == index && same_id(part)),
            None if !id.is_empty() => self.calls.iter().rposition(|part| part.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let at = known.unwrap_or_else(|| {
            self.calls.push(Part { index, ..Part::default() });
            self.calls.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was just found or filled")]
        &mut self.calls[at]
    }

    fn stop_reason(&self) -> StopReason {
        let unsaid = if self.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        match self.finish_reason.as_str() {
            "" | "stop" | "tool_calls" | "function_call" if self.refusal.is_empty() => unsaid,
            "length" => StopReason::MaxTokens,
            "" | "stop" | "content_filter" => StopReason::Refusal,
            other => StopReason::Other(other.into()),
        }
    }
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: &mut dyn FnMut(Delta)) -> Result<bool, Fault> {
        if event.data.trim() == DONE {
            let said = !self.text.is_empty() || !self.refusal.is_empty() || !self.calls.is_empty();
            let ended = said || !self.finish_reason.is_empty();
            return if ended { Ok(true) } else { Err(Fault::Empty) };
        }
        let chunk = parse(event.data.as_bytes())?;
        self.begin(&chunk);
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(false) };
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        self.say(delta, sink);
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.part(piece).grow(piece);
        }
        self.end(choice);
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: &mut dyn FnMut(Delta)) -> Result<(), Fault> {
        let answer = parse(body)?;
        self.begin(&answer);
        let choice = answer.pointer("/choices/0");
        let message = choice.and_then(|choice| choice.get("message"));
        let (Some(choice), Some(message)) = (choice, message) else {
            return Err(Fault::Garbled("the answer has no message".into()));
        };
        self.say(message, sink);
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let mut part = Part::default();
            part.grow(call);
            self.calls.push(part);
        }
        self.end(choice);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        !self.finish_reason.is_empty()
    }

    fn finish(mut self) -> Reply {
        let stop_reason = self.stop_reason();
        self.text.push_str(&self.refusal);
        let mut blocks = Vec::new();
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: std::mem::take(&mut self.text) });
        }
        for (at, part) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let id = if part.id.is_empty() { format!("call_{at}") } else { part.id };
            if let Some(id) = self.ids.admit(&id) {
                let input = input(&part.streamed, part.given.as_ref());
                blocks.push(Block::ToolUse { id, name: part.name, input });
            }
        }
        Reply { blocks, stop_reason, usage: self.usage, model: self.model }
    }
}

impl Part {
    fn grow(&mut self, piece: &Value) {
        if self.id.is_empty() {
            word(piece, "id").clone_into(&mut self.id);
        }
        let function = piece.get("function").unwrap_or(&Value::Null);
        let name = word(function, "name");
        // Some servers repeat the name in each chunk.
        if self.name != name {
            self.name.push_str(name);
        }
        match function.get("arguments") {
            Some(Value::String(more)) => self.streamed.push_str(more),
            Some(Value::Null) | None => {}
            Some(whole) => self.given = Some(whole.clone()),
        }
    }
}

/// Returns the text of a content, which is a string or a list of parts.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| word(part, "text")).collect(),
        _ => String::new(),
    }
}

/// Parses a chunk or a complete response; an error object in its place is an error of the server.
fn parse(text: &[u8]) -> Result<Value, Fault> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|cause| Fault::Garbled(format!("not json: {cause}")))?;
    match value.get("error") {
        None | Some(Value::Null) => Ok(value),
        Some(_) => Err(Fault::Error(value)),
    }
}

fn word<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assembler() -> Assembler {
        let request =
            Request { system: String::new(), messages: vec![], tools: vec![], max_tokens: 1 };
        Assembler::new(&request, "asked")
    }

    fn event(data: &str) -> Event {
        Event { name: String::new(), data: data.into() }
    }

    /// Returns the reply of a stream of choices, and the text that was shown.
    fn replay(choices: &[Value]) -> (Reply, String) {
        let (mut assembler, mut shown) = (assembler(), String::new());
        let mut sink = |delta| {
            if let Delta::Text(text) = delta {
                shown.push_str(&text);
            }
        };
        for choice in choices {
            let chunk = json!({"object": "chat.completion.chunk", "choices": [choice]});
            assert_eq!(assembler.take(&event(&chunk.to_string()), &mut sink), Ok(false));
        }
        assert_eq!(assembler.take(&event(DONE), &mut sink), Ok(true));
        (assembler.finish(), shown)
    }

    fn calls(pieces: &[Value]) -> Value {
        json!({"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": null})
    }

    fn piece(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}})
    }

    fn more(index: u64, arguments: &str) -> Value {
        json!({"index": index, "function": {"arguments": arguments}})
    }

    fn call(id: &str, name: &str, input: Value) -> Block {
        Block::ToolUse { id: id.into(), name: name.into(), input }
    }

    #[test]
    fn interleaved_chunks_of_calls_are_assembled() {
        let (reply, shown) = replay(&[
            json!({"delta": {"role": "assistant", "content": "I ", "reasoning_content": "hm"}}),
            json!({"delta": {"content": "look.", "thinking": "hm", "reasoning": "hm"}}),
            calls(&[piece(0, "a", "bash", ""), piece(1, "b", "idle", "{")]),
            calls(&[more(0, "{\"command\":"), more(1, "}")]),
            calls(&[more(0, "\"ls\"}")]),
            json!({"delta": {}, "finish_reason": "tool_calls"}),
        ]);
        let expected = [
            Block::Text { text: "I look.".into() },
            call("a", "bash", json!({"command": "ls"})),
            call("b", "idle", json!({})),
        ];
        assert_eq!(reply.blocks, expected);
        assert_eq!((shown.as_str(), reply.stop_reason), ("I look.", StopReason::ToolUse));
    }

    #[test]
    fn calls_are_told_apart_however_a_server_numbers_them() {
        let two = [call("a", "x", json!({"n": 1})), call("b", "y", json!({"n": 2}))];
        let bare = |id: &str, name: &str, arguments: Value| json!({"id": id, "function": {"name": name, "arguments": arguments}});
        let streams = [
            // Every call has the index 0.
            vec![piece(0, "a", "x", "{\"n\":1}"), piece(0, "b", "y", "{\"n\":2}")],
            // No index, complete calls, arguments as objects.
            vec![bare("a", "x", json!({"n": 1})), bare("b", "y", json!({"n": 2}))],
            // Id and name in each chunk.
            vec![
                piece(0, "a", "x", "{\"n\""),
                piece(0, "a", "x", ":1}"),
                piece(1, "b", "y", "{\"n\":2}"),
            ],
            // No index, in chunks.
            vec![
                bare("a", "x", json!("{\"n\"")),
                json!({"function": {"arguments": ":1}"}}),
                bare("b", "y", json!("{\"n\":2}")),
            ],
        ];
        for pieces in streams {
            let choices: Vec<Value> =
                pieces.iter().map(|one| calls(std::slice::from_ref(one))).collect();
            assert_eq!(replay(&choices).0.blocks, two, "{pieces:?}");
        }
        let nameless = [calls(&[json!({"index": 0, "function": {"name": "x"}})])];
        assert_eq!(replay(&nameless).0.blocks, [call("call_0", "x", json!({}))]);
    }

    #[test]
    fn every_finish_reason_has_its_meaning() {
        let end = |reason: &str| {
            let choice = json!({"delta": {"content": "x"}, "finish_reason": reason});
            serde_json::to_value(replay(&[choice]).0.stop_reason).unwrap()
        };
        for (reason, meaning) in [
            ("stop", "end_turn"),
            ("length", "max_tokens"),
            ("tool_calls", "end_turn"),
            ("content_filter", "refusal"),
            ("brand_new", "brand_new"),
        ] {
            assert_eq!(end(reason), meaning);
        }
        let refused = json!({"delta": {"refusal": "no."}, "finish_reason": "stop"});
        let (reply, shown) = replay(&[refused]);
        assert_eq!((reply.stop_reason.clone(), reply.text()), (StopReason::Refusal, "no.".into()));
        assert_eq!(shown, "no.");
        let called = [calls(&[piece(0, "a", "x", "{}")]), json!({"finish_reason": "stop"})];
        assert_eq!(replay(&called).0.stop_reason, StopReason::ToolUse);
    }

    #[test]
    fn a_complete_body_is_a_complete_reply() {
        let mut assembler = assembler();
        let body = json!({"model": "m-2", "choices": [{"finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": [{"type": "text", "text": "hi"}],
            "tool_calls": [piece(0, "a", "x", "{\"n\":1}"), piece(0, "a", "x", "{}")]}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 7}}});
        assembler.take_whole(body.to_string().as_bytes(), &mut |_| ()).unwrap();
        let reply = assembler.finish();
        assert_eq!(
            (reply.text(), reply.model.as_str(), reply.blocks.len()),
            ("hi".into(), "m-2", 2)
        );
        let usage = reply.usage;
        assert_eq!((usage.input_tokens, usage.cache_read_input_tokens), (3, 7));
        assert_eq!((usage.output_tokens, usage.total()), (4, 14));
    }

    #[test]
    fn empty_malformed_and_error_responses_are_distinguished() {
        let take = |data: &str| assembler().take(&event(data), &mut |_| ());
        assert_eq!(take(DONE), Err(Fault::Empty));
        assert!(matches!(take("{\"choices\""), Err(Fault::Garbled(_))));
        assert!(matches!(take("{\"error\":{\"message\":\"x\"}}"), Err(Fault::Error(_))));
        assert_eq!(take("{\"choices\":[],\"error\":null}"), Ok(false));
        let whole = assembler().take_whole(b"{\"choices\":[]}", &mut |_| ());
        assert_eq!(whole, Err(Fault::Garbled("the answer has no message".into())));
        assert!(!assembler().is_whole());
    }
}
