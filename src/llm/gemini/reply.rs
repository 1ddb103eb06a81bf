//! Assembles a [`Reply`] from the chunks or the complete body of a Gemini API response. Pure.
//!
//! *Invariant:* a streamed reply exists only after a finish reason. Only the first candidate counts. Unknown fields are
//! ignored; a signature is kept with the part that it came with (`opaque`).

use super::opaque;
use crate::llm::attempt_error::{AttemptError, ErrorReport};
use crate::llm::provider::{Delta, Sink};
use crate::llm::reply_builder::{ReplyBuilder, input};
use crate::llm::sse::Event;
use crate::llm::stream_parser::{self, Assemble, word};
use crate::wire::chat::{Reply, Request, StopReason, Usage};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ops::Range;

/// The fields of a part that are no content.
const NO_CONTENT: [&str; 3] = ["thought", "thoughtSignature", "partMetadata"];

#[derive(Debug, Default)]
pub(in crate::llm) struct Assembler {
    reply: ReplyBuilder,
    /// The model as it is asked for, to which signatures belong.
    model: String,
    pieces: Vec<Piece>,
    counts: Counts,
    finish_reason: String,
}

/// The largest of each count so far. Each chunk has its own, and some lack the cached tokens.
#[derive(Debug, Default)]
struct Counts {
    prompt: u64,
    tool_prompt: u64,
    /// Those of the prompt that came from the cache.
    cached: u64,
    answer: u64,
    thoughts: u64,
}

impl Counts {
    fn note(&mut self, metadata: &Value) {
        for (count, key) in [
            (&mut self.prompt, "promptTokenCount"),
            (&mut self.tool_prompt, "toolUsePromptTokenCount"),
            (&mut self.cached, "cachedContentTokenCount"),
            (&mut self.answer, "candidatesTokenCount"),
            (&mut self.thoughts, "thoughtsTokenCount"),
        ] {
            *count = metadata.get(key).and_then(Value::as_u64).unwrap_or_default().max(*count);
        }
    }

    fn usage(&self) -> Usage {
        let given = self.prompt.saturating_add(self.tool_prompt);
        Usage {
            input_tokens: given.saturating_sub(self.cached),
            output_tokens: self.answer.saturating_add(self.thoughts),
            cache_read_input_tokens: self.cached,
            cache_creation_input_tokens: 0,
        }
    }
}

/// A piece of the reply that becomes one block, with its signatures.
#[derive(Debug)]
enum Piece {
    /// The text of adjacent parts, and the signatures of some of them.
    Text(String, Vec<(Range<usize>, String)>),
    Call {
        id: String,
        name: String,
        input: Value,
        signature: String,
    },
    /// A part that is kept as a whole.
    Kept(Value),
}

/// The meaning of a finish reason.
enum Finish {
    /// The reply is complete; the reason follows from its content.
    Natural,
    Stop(StopReason),
    /// The rest of the reply, or all of it, was withheld.
    Blocked,
    /// The model broke a rule by chance; another attempt may succeed.
    Broken,
    /// The request lacks something.
    Faulty,
}

impl Finish {
    fn of(reason: &str) -> Self {
        match reason {
            "STOP" => Self::Natural,
            "MAX_TOKENS" | "CONTINUATION" => Self::Stop(StopReason::MaxTokens),
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "ESCALATION"
            | "PUP_LIMITED_DISABLED"
            | "MODEL_ARMOR" => Self::Blocked,
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MALFORMED_RESPONSE" => Self::Broken,
            "MISSING_THOUGHT_SIGNATURE" => Self::Faulty,
            image if image.starts_with("IMAGE_") => Self::Blocked,
            other => Self::Stop(StopReason::Other(other.to_lowercase())),
        }
    }
}

impl Assembler {
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        Self { reply: ReplyBuilder::new(request, model), model: model.into(), ..Self::default() }
    }

    /// Adds a chunk, or a body that holds the complete response.
    fn add(&mut self, chunk: &Value, sink: Sink<'_>) -> Result<(), AttemptError> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(AttemptError::Reported(ErrorReport::from_event(chunk)));
        }
        self.note(chunk);
        if let Some(feedback) = chunk.get("promptFeedback")
            && let reason = word(feedback, "blockReason")
            && !reason.is_empty()
        {
            return Err(refused(
                "the prompt is blocked",
                reason,
                word(feedback, "blockReasonMessage"),
            ));
        }
        let Some(candidate) = chunk.pointer("/candidates/0") else { return Ok(()) };
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten().filter_map(Value::as_object) {
            self.part(part, sink);
        }
        let reason = word(candidate, "finishReason");
        if reason.is_empty() || reason == "FINISH_REASON_UNSPECIFIED" {
            return Ok(());
        }
        let told = word(candidate, "finishMessage");
        match Finish::of(reason) {
            Finish::Blocked if self.pieces.is_empty() => {
                return Err(refused("the answer is blocked", reason, told));
            }
            Finish::Faulty => return Err(refused("the request is not complete", reason, told)),
            Finish::Broken => {
                let why = format!("the model ended with {reason} {told}");
                return Err(AttemptError::Garbled(why.trim_end().into()));
            }
            Finish::Natural | Finish::Stop(_) | Finish::Blocked => {}
        }
        reason.clone_into(&mut self.finish_reason);
        Ok(())
    }

    fn note(&mut self, chunk: &Value) {
        if let Some(metadata) = chunk.get("usageMetadata") {
            self.counts.note(metadata);
        }
        self.reply.note(&json!({"model": word(chunk, "modelVersion")}), Usage::default());
    }

    fn part(&mut self, part: &Map<String, Value>, sink: Sink<'_>) {
        let text_of = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
        let (text, signature) = (text_of("text"), text_of("thoughtSignature"));
        let is_thought = part.get("thought").is_some_and(|thought| thought == true);
        if is_thought && !text.is_empty() {
            sink(Delta::Thought(text.into()));
        }
        if let Some(call) = part.get("functionCall") {
            let (id, name) = (word(call, "id").into(), word(call, "name").into());
            let (input, signature) = (input("", call.get("args")), signature.into());
            self.pieces.push(Piece::Call { id, name, input, signature });
        } else if part.contains_key("text") && !is_thought && !text.is_empty() {
            sink(Delta::Text(text.into()));
            self.text(text, signature);
        } else if !signature.is_empty() || part.keys().any(|key| is_foreign(key)) {
            let mut kept = part.clone();
            if kept.keys().all(|key| NO_CONTENT.contains(&key.as_str())) {
                kept.insert("text".into(), "".into());
            }
            self.pieces.push(Piece::Kept(kept.into()));
        }
    }

    fn text(&mut self, more: &str, signature: &str) {
        if !matches!(self.pieces.last(), Some(Piece::Text(..))) {
            self.pieces.push(Piece::Text(String::new(), Vec::new()));
        }
        if let Some(Piece::Text(text, signatures)) = self.pieces.last_mut() {
            let start = text.len();
            text.push_str(more);
            if !signature.is_empty() {
                signatures.push((start..text.len(), signature.into()));
            }
        }
    }
}

/// Whether a field holds content other than text, such as code that the API has run.
fn is_foreign(key: &str) -> bool {
    key != "text" && !NO_CONTENT.contains(&key)
}

/// Returns the error for a request whose answer the API withholds. It would do so again.
fn refused(what: &str, reason: &str, told: &str) -> AttemptError {
    let message = if told.is_empty() { what.into() } else { format!("{what}: {told}") };
    let report =
        ErrorReport { status: 200, kind: reason.into(), message, ..ErrorReport::default() };
    AttemptError::Reported(report)
}

/// Whether the API refuses a signature of the conversation, or misses one.
pub(super) fn is_bad_signature(error: &AttemptError) -> bool {
    let AttemptError::Reported(ErrorReport { status, kind, message, .. }) = error else {
        return false;
    };
    let said = if *status == 400 { message } else { kind };
    said.to_lowercase().replace('_', " ").contains("thought signature")
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: Sink<'_>) -> Result<bool, AttemptError> {
        self.add(&stream_parser::parse(event.data.as_bytes())?, sink)?;
        // The end of the stream is the last event: chunks may follow the one with the finish reason.
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), AttemptError> {
        // A server that does not know `alt=sse` sends the chunks as a list.
        let whole = stream_parser::parse(body)?;
        let chunks = whole.as_array().map_or(std::slice::from_ref(&whole), Vec::as_slice);
        chunks.iter().try_for_each(|chunk| self.add(chunk, sink))?;
        if self.is_whole() {
            Ok(())
        } else {
            Err(AttemptError::Garbled("the answer has no end".into()))
        }
    }

    fn is_whole(&self) -> bool {
        !self.finish_reason.is_empty()
    }

    fn finish(self: Box<Self>) -> Reply {
        let Self { mut reply, model, pieces, counts, finish_reason } = *self;
        reply.note(&Value::Null, counts.usage());
        let mut ids = BTreeSet::new();
        let mut calls = 0;
        for piece in pieces {
            match piece {
                Piece::Text(text, signatures) => {
                    for (bytes, signature) in signatures {
                        reply.opaque(opaque::signature(&model, &signature, Some(bytes)));
                    }
                    reply.text(text);
                }
                // A call that repeats an id is dropped, and its signature with it.
                Piece::Call { id, .. } if !id.is_empty() && !ids.insert(id.clone()) => {}
                Piece::Call { id, name, input, signature } => {
                    if !signature.is_empty() {
                        reply.opaque(opaque::signature(&model, &signature, None));
                    }
                    reply.call(calls, &id, name, input);
                    calls += 1;
                }
                Piece::Kept(part) => reply.opaque(opaque::part(&model, &part)),
            }
        }
        reply.finish(match Finish::of(&finish_reason) {
            Finish::Stop(reason) => Some(reason),
            Finish::Blocked => Some(StopReason::Refusal),
            Finish::Natural | Finish::Broken | Finish::Faulty => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{call, replay, request, text};
    use crate::wire::chat::Block;

    fn assembler() -> Assembler {
        Assembler::new(&request(vec![vec![], vec![call("call_0", "x", json!({}))]]), "m")
    }

    fn chunk(parts: &Value, reason: &str) -> String {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if !reason.is_empty() {
            candidate["finishReason"] = reason.into();
        }
        json!({"candidates": [candidate]}).to_string()
    }

    fn kept(value: Value) -> Block {
        Block::Opaque { value }
    }

    #[test]
    fn a_stream_with_everything_in_it() {
        let chunks = [
            r#"{"candidates":[{"content":{"parts":[{"text":"**Hm**","thought":true}]}}],"usageMetadata":{"promptTokenCount":20,"cachedContentTokenCount":15},"modelVersion":"m-001"}"#.to_owned(),
            chunk(&json!([{"text": "so", "thought": true, "thoughtSignature": "t=="}]), ""),
            chunk(&json!([{"text": "I lo"}]), ""),
            chunk(&json!([{"text": "ök", "thoughtSignature": "u"}, {"text": ""}, {"text": "."}]), ""),
            chunk(&json!([{"functionCall": {"name": "run", "args": {"n": 1}, "id": "a"}, "thoughtSignature": "s+/="},
                {"functionCall": {"name": "run", "args": {"n": 2}, "id": "a"}, "thoughtSignature": "v"},
                {"functionCall": {"name": "rest"}}]), ""),
            chunk(&json!([{"executableCode": {"code": "1"}}, {"thoughtSignature": "w"}]), "STOP"),
            r#"{"usageMetadata":{"promptTokenCount":20,"cachedContentTokenCount":15,"candidatesTokenCount":5,"thoughtsTokenCount":4},"brandNew":1}"#.to_owned(),
        ];
        let (reply, shown) = replay(assembler(), &chunks.join("\n"));
        let Reply { blocks, stop_reason, usage, model } = reply.unwrap();
        let thought = json!({"text": "so", "thought": true, "thoughtSignature": "t=="});
        let expected = [
            kept(json!({"type": "gemini", "model": "m", "part": thought})),
            kept(json!({"type": "gemini", "model": "m", "signature": "u", "bytes": [4, 7]})),
            text("I lo\u{f6}k."),
            kept(json!({"type": "gemini", "model": "m", "signature": "s+/="})),
            call("a", "run", json!({"n": 1})),
            call("call_1", "rest", json!({})),
            kept(
                json!({"type": "gemini", "model": "m", "part": {"executableCode": {"code": "1"}}}),
            ),
            kept(
                json!({"type": "gemini", "model": "m", "part": {"thoughtSignature": "w", "text": ""}}),
            ),
        ];
        assert_eq!(blocks, expected);
        assert_eq!((shown.as_str(), model.as_str()), ("[**Hm**][so]I lo\u{f6}k.", "m-001"));
        assert_eq!(stop_reason, StopReason::ToolUse);
        assert_eq!((usage.input_tokens, usage.output_tokens), (5, 9));
        assert_eq!(usage.cache_read_input_tokens, 15);
    }

    #[test]
    fn tokens_from_the_cache_count_once_though_only_some_chunks_tell_them() {
        let metadata = |counts: Value| json!({ "usageMetadata": counts }).to_string();
        let first = metadata(json!({"promptTokenCount": 1000}));
        let cached = json!({"promptTokenCount": 1000, "cachedContentTokenCount": 900, "candidatesTokenCount": 3});
        let end = chunk(&json!([{"text": "x"}]), "STOP");
        for chunks in [
            [&first, &metadata(cached.clone()), &end],
            [&metadata(cached.clone()), &first, &end],
            [&first, &end, &metadata(cached.clone())],
        ] {
            let lines = chunks.map(String::as_str).join("\n");
            let usage = replay(assembler(), &lines).0.unwrap().usage;
            assert_eq!((usage.input_tokens, usage.cache_read_input_tokens), (100, 900), "{lines}");
            assert_eq!(usage.output_tokens, 3);
        }
    }

    #[test]
    fn a_call_without_an_id_gets_one_that_is_unique() {
        let calls = json!([{"functionCall": {"name": "a", "args": null}}, {"functionCall": {"name": "b", "args": [1]}}]);
        let reply = replay(assembler(), &chunk(&calls, "STOP")).0.unwrap();
        let unreadable = json!({"_invalid_json": "[1]"});
        assert_eq!(
            reply.blocks,
            [call("call_0-2", "a", json!({})), call("call_1", "b", unreadable)]
        );
    }

    #[test]
    fn every_finish_reason_has_its_meaning() {
        let end = |parts: &Value, reason| replay(assembler(), &chunk(parts, reason)).0;
        let said = json!([{"text": "x"}]);
        for (reason, meaning) in [
            ("STOP", "end_turn"),
            ("MAX_TOKENS", "max_tokens"),
            ("SAFETY", "refusal"),
            ("RECITATION", "refusal"),
            ("IMAGE_SAFETY", "refusal"),
            ("OTHER", "other"),
            ("BRAND_NEW", "brand_new"),
        ] {
            let reply = end(&said, reason).unwrap();
            assert_eq!(serde_json::to_value(reply.stop_reason).unwrap(), meaning, "{reason}");
        }
        for (reason, is_retried) in [
            ("SAFETY", false),
            ("PROHIBITED_CONTENT", false),
            ("MISSING_THOUGHT_SIGNATURE", false),
            ("MALFORMED_FUNCTION_CALL", true),
            ("UNEXPECTED_TOOL_CALL", true),
        ] {
            let error = end(&json!([]), reason).unwrap_err();
            assert!(
                error.is_retryable() == is_retried && error.to_string().contains(reason),
                "{error}"
            );
        }
        let nothing = end(&json!([{"text": ""}]), "STOP").unwrap();
        assert_eq!((nothing.blocks, nothing.stop_reason), (vec![], StopReason::EndTurn));
        for no_end in ["", "FINISH_REASON_UNSPECIFIED"] {
            assert_eq!(end(&said, no_end), Err(AttemptError::Cut));
        }
    }

    #[test]
    fn a_blocked_prompt_and_an_error_in_the_stream_are_reported() {
        let error = |line: &str| replay(assembler(), line).0.unwrap_err();
        let blocked = error(
            r#"{"promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"too hot"},"usageMetadata":{"promptTokenCount":9}}"#,
        );
        assert_eq!(blocked.to_string(), "200 SAFETY: the prompt is blocked: too hot");
        assert!(!blocked.is_retryable());
        let busy = error(
            r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}"#,
        );
        assert_eq!(busy.to_string(), "503 UNAVAILABLE: overloaded");
        assert_eq!(
            (busy.is_retryable(), busy.asked_wait().map(|wait| wait.as_secs())),
            (true, Some(2))
        );
    }

    #[test]
    fn a_complete_body_and_a_list_of_chunks_are_complete_replies() {
        let whole = |body: &str| {
            let mut assembler = assembler();
            assembler.take_whole(body.as_bytes(), &mut |_| ())?;
            Ok::<_, AttemptError>(Box::new(assembler).finish().text())
        };
        let (first, last) =
            (chunk(&json!([{"text": "a"}]), ""), chunk(&json!([{"text": "b"}]), "STOP"));
        assert_eq!(whole(&last).as_deref(), Ok("b"));
        assert_eq!(whole(&format!("[{first},{last}]")).as_deref(), Ok("ab"));
        for part in [first.as_str(), "{}", "[]"] {
            assert_eq!(whole(part), Err(AttemptError::Garbled("the answer has no end".into())));
        }
    }
}
