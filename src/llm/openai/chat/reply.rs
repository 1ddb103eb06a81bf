//! Assembles a [`Reply`] from the chunks or the complete body of a chat completion. Pure.
//!
//! *Invariant:* a streamed reply exists only after `[DONE]`, or after the end of a stream with a finish reason.
//! Only the first choice counts. Unknown fields, including reasoning, are ignored.

use crate::llm::attempt_error::{AttemptError, ErrorReport};
use crate::llm::provider::{Delta, Sink};
use crate::llm::reply_builder::{ReplyBuilder, input};
use crate::llm::sse::Event;
use crate::llm::stream_parser::{self, Assemble, word};
use crate::wire::chat::{Reply, Request, StopReason, Usage};
use serde_json::Value;

/// The data of the last event.
const DONE: &str = "[DONE]";

#[derive(Debug, Default)]
pub(in crate::llm) struct Assembler {
    reply: ReplyBuilder,
    text: String,
    refusal: String,
    calls: Vec<Part>,
    finish_reason: String,
}

#[derive(Debug, Default)]
struct Part {
    /// The server's index of the call; some servers send none, others the same index for all calls.
    index: Option<u64>,
    id: String,
    name: String,
    streamed: String,
    /// The arguments, if they arrived as a JSON value instead of text.
    given: Option<Value>,
}

impl Assembler {
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        Self { reply: ReplyBuilder::new(request, model), ..Self::default() }
    }

    fn note(&mut self, body: &Value) {
        let read = |at: &str| body.pointer(at).and_then(Value::as_u64).unwrap_or_default();
        let cached = read("/usage/prompt_tokens_details/cached_tokens");
        let usage = Usage {
            input_tokens: read("/usage/prompt_tokens").saturating_sub(cached),
            output_tokens: read("/usage/completion_tokens"),
            cache_read_input_tokens: cached,
            cache_creation_input_tokens: 0,
        };
        self.reply.note(body, usage);
    }

    fn end(&mut self, choice: &Value) {
        let reason = word(choice, "finish_reason");
        if !reason.is_empty() {
            reason.clone_into(&mut self.finish_reason);
        }
    }

    fn say(&mut self, message: &Value, sink: Sink<'_>) {
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

    /// Returns the stop reason that the server named, unless it follows from the presence of tool calls.
    fn stop_reason(&self) -> Option<StopReason> {
        match self.finish_reason.as_str() {
            "" | "stop" | "tool_calls" | "function_call" if self.refusal.is_empty() => None,
            "length" => Some(StopReason::MaxTokens),
            "" | "stop" | "content_filter" => Some(StopReason::Refusal),
            other => Some(StopReason::Other(other.into())),
        }
    }
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: Sink<'_>) -> Result<bool, AttemptError> {
        if event.data.trim() == DONE {
            let said = !self.text.is_empty() || !self.refusal.is_empty() || !self.calls.is_empty();
            let ended = said || !self.finish_reason.is_empty();
            return if ended { Ok(true) } else { Err(AttemptError::Empty) };
        }
        let chunk = parse(event.data.as_bytes())?;
        self.note(&chunk);
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(false) };
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        self.say(delta, sink);
        for piece in tool_calls(delta) {
            let part = self.part(piece);
            let known = part.streamed.len();
            part.grow(piece);
            let piece = part.streamed.get(known..).unwrap_or_default().to_owned();
            sink(Delta::ToolInput { tool: part.name.clone(), piece });
        }
        self.end(choice);
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), AttemptError> {
        let answer = parse(body)?;
        self.note(&answer);
        let choice = answer.pointer("/choices/0");
        let message = choice.and_then(|choice| choice.get("message"));
        let (Some(choice), Some(message)) = (choice, message) else {
            return Err(AttemptError::Garbled("the answer has no message".into()));
        };
        self.say(message, sink);
        for call in tool_calls(message) {
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

    fn finish(self: Box<Self>) -> Reply {
        let stop_reason = self.stop_reason();
        let Self { mut reply, text, refusal, calls, .. } = *self;
        reply.text(text + &refusal);
        for (at, part) in (0..).zip(calls) {
            reply.call(at, &part.id, part.name, input(&part.streamed, part.given.as_ref()));
        }
        reply.finish(stop_reason)
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

fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(|part| word(part, "text")).collect(),
        _ => String::new(),
    }
}

fn tool_calls(message: &Value) -> impl Iterator<Item = &Value> {
    message.get("tool_calls").and_then(Value::as_array).into_iter().flatten()
}

/// Parses a chunk or a complete response. An `error` field becomes the reported error.
fn parse(text: &[u8]) -> Result<Value, AttemptError> {
    let value = stream_parser::parse(text)?;
    match value.get("error") {
        None | Some(Value::Null) => Ok(value),
        Some(_) => Err(AttemptError::Reported(ErrorReport::from_event(&value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{self, call, request};
    use serde_json::json;

    fn assembler() -> Assembler {
        Assembler::new(&request(vec![]), "asked")
    }

    /// Returns the reply of a stream of choices, and the text that was shown.
    fn replay(choices: &[Value]) -> (Reply, String) {
        let chunks = choices.iter().map(|choice| json!({"choices": [choice]}).to_string());
        let lines: Vec<String> = chunks.chain([DONE.to_owned()]).collect();
        let (reply, shown) = fixtures::replay(assembler(), &lines.join("\n"));
        (reply.unwrap(), shown)
    }

    fn calls(pieces: &[Value]) -> Value {
        json!({"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": null})
    }

    fn piece(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn interleaved_chunks_of_calls_are_assembled() {
        let more = |index, text| json!({"index": index, "function": {"arguments": text}});
        let (reply, shown) = replay(&[
            json!({"delta": {"role": "assistant", "content": "I ", "reasoning_content": "hm"}}),
            json!({"delta": {"content": "look.", "thinking": "hm", "reasoning": "hm"}}),
            calls(&[piece(0, "a", "bash", ""), piece(1, "b", "idle", "{")]),
            calls(&[more(0, "{\"command\":"), more(1, "}")]),
            calls(&[more(0, "\"ls\"}")]),
            json!({"delta": {}, "finish_reason": "tool_calls"}),
        ]);
        let looked = fixtures::text("I look.");
        let list = call("a", "bash", json!({"command": "ls"}));
        assert_eq!(reply.blocks, [looked, list, call("b", "idle", json!({}))]);
        assert_eq!((shown.as_str(), reply.stop_reason), ("I look.", StopReason::ToolUse));
    }

    #[test]
    fn calls_are_told_apart_however_a_server_numbers_them() {
        let two = [call("a", "x", json!({"n": 1})), call("b", "y", json!({"n": 2}))];
        let bare = |id: &str, name: &str, arguments: Value| json!({"id": id, "function": {"name": name, "arguments": arguments}});
        let last = || piece(1, "b", "y", "{\"n\":2}");
        let more = json!({"function": {"arguments": ":1}"}});
        let streams = [
            // Every call has the index 0.
            vec![piece(0, "a", "x", "{\"n\":1}"), piece(0, "b", "y", "{\"n\":2}")],
            // The calls have no index, and are complete with arguments as objects.
            vec![bare("a", "x", json!({"n": 1})), bare("b", "y", json!({"n": 2}))],
            // Each chunk has id and name.
            vec![piece(0, "a", "x", "{\"n\""), piece(0, "a", "x", ":1}"), last()],
            // The calls have no index, and arrive in chunks.
            vec![bare("a", "x", json!("{\"n\"")), more, bare("b", "y", json!("{\"n\":2}"))],
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
        for (reason, meaning) in [
            ("stop", "end_turn"),
            ("length", "max_tokens"),
            ("tool_calls", "end_turn"),
            ("content_filter", "refusal"),
            ("brand_new", "brand_new"),
        ] {
            let choice = json!({"delta": {"content": "x"}, "finish_reason": reason});
            assert_eq!(serde_json::to_value(replay(&[choice]).0.stop_reason).unwrap(), meaning);
        }
        let (reply, shown) =
            replay(&[json!({"delta": {"refusal": "no."}, "finish_reason": "stop"})]);
        assert_eq!((reply.text().as_str(), shown.as_str()), ("no.", "no."));
        assert_eq!(reply.stop_reason, StopReason::Refusal);
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
        let reply = Box::new(assembler).finish();
        let named = (reply.text(), reply.model.as_str(), reply.blocks.len());
        assert_eq!(named, ("hi".into(), "m-2", 2));
        let usage = reply.usage;
        assert_eq!((usage.input_tokens, usage.cache_read_input_tokens), (3, 7));
        assert_eq!((usage.output_tokens, usage.total()), (4, 14));
    }

    /// `provider::chat_completions` covers empty and malformed responses, and errors.
    #[test]
    fn a_chunk_without_a_choice_whose_error_is_null_is_no_error_and_no_end() {
        let event = Event { name: String::new(), data: r#"{"choices":[],"error":null}"#.into() };
        let mut assembler = assembler();
        assert_eq!(assembler.take(&event, &mut |_| ()), Ok(false));
        assert!(!assembler.is_whole());
    }
}
