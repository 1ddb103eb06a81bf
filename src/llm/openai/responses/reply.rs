//! Assembles a [`Reply`] from the events or the complete body of a response. Pure.
//!
//! *Invariant:* a streamed reply exists only after `response.completed` or `response.incomplete`. Reasoning is kept only
//! together with the item to which it led. Unknown events, items and fields are ignored.

use super::{PHASE, REASONING};
use crate::llm::attempt_error::AttemptError;
use crate::llm::openai::api_error::reported;
use crate::llm::provider::{Delta, Sink};
use crate::llm::reply_builder::{ReplyBuilder, input};
use crate::llm::sse::Event;
use crate::llm::stream_parser::{Assemble, parse, word};
use crate::wire::chat::{Reply, Request, StopReason, Usage};
use serde_json::{Value, json};
use std::mem;

#[derive(Debug)]
pub(in crate::llm) struct Assembler {
    reply: ReplyBuilder,
    /// The items in the order of their beginning.
    parts: Vec<Part>,
    /// The reason for which the response is incomplete.
    incomplete: Option<StopReason>,
}

/// An item: as it began, or complete.
#[derive(Debug, Default)]
struct Part {
    /// The server's index of the item.
    index: Option<u64>,
    item: Value,
    is_complete: bool,
    /// The chunks of the text or of the arguments.
    streamed: String,
    /// The chunks of the refusal.
    refusal: String,
}

impl Assembler {
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        Self { reply: ReplyBuilder::new(request, model), parts: Vec::new(), incomplete: None }
    }

    fn note(&mut self, response: &Value) {
        let read = |at: &str| response.pointer(at).and_then(Value::as_u64).unwrap_or_default();
        let cached = read("/usage/input_tokens_details/cached_tokens");
        let written = read("/usage/input_tokens_details/cache_write_tokens");
        let input = read("/usage/input_tokens");
        let usage = Usage {
            input_tokens: input.saturating_sub(cached.saturating_add(written)),
            // The tokens of the reasoning are among them.
            output_tokens: read("/usage/output_tokens"),
            cache_read_input_tokens: cached,
            cache_creation_input_tokens: written,
        };
        self.reply.note(response, usage);
    }

    /// Returns the item that a chunk belongs to; `None` if the only items with its index are complete, as some servers
    /// send the end of the arguments after that of their item.
    fn open_part(&mut self, event: &Value) -> Option<&mut Part> {
        let index = event.get("output_index").and_then(Value::as_u64);
        let mut same = self.parts.iter().filter(|part| index.is_some() && part.index == index);
        let is_late = same.clone().next().is_some() && same.all(|part| part.is_complete);
        if is_late { None } else { Some(self.part(event)) }
    }

    /// Returns the item that an event belongs to: the last one that began with its index, otherwise a new one.
    fn part(&mut self, event: &Value) -> &mut Part {
        let index = event.get("output_index").and_then(Value::as_u64);
        let is_it = |part: &Part| part.index == index && !part.is_complete;
        let at = self.parts.iter().rposition(is_it).unwrap_or_else(|| {
            self.parts.push(Part { index, ..Part::default() });
            self.parts.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was just found or filled")]
        &mut self.parts[at]
    }

    /// Reads the end of a response: its status, its usage, and its items if the stream had not all of them.
    fn end(&mut self, response: &Value, sink: Sink<'_>) -> Result<(), AttemptError> {
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(reported(error));
        }
        self.note(response);
        let output = response.get("output").and_then(Value::as_array);
        let is_streamed = !self.parts.is_empty() && self.parts.iter().all(|part| part.is_complete);
        if let Some(items) = output.filter(|items| !is_streamed && !items.is_empty()) {
            let begun = mem::take(&mut self.parts);
            let was_shown = begun.iter().any(|part| !part.shown().is_empty());
            for (at, item) in (0..).zip(items) {
                let mut part = Part { index: Some(at), ..Part::default() };
                part.complete(item, &mut |delta| {
                    if !was_shown {
                        sink(delta);
                    }
                });
                self.parts.push(part);
            }
        }
        match word(response, "status") {
            "" | "completed" => {}
            "incomplete" => {
                let reason = response.pointer("/incomplete_details/reason");
                self.incomplete = Some(match reason.and_then(Value::as_str).unwrap_or_default() {
                    "max_output_tokens" => StopReason::MaxTokens,
                    "content_filter" => StopReason::Refusal,
                    other => StopReason::Other(other.into()),
                });
            }
            other => return Err(AttemptError::Garbled(format!("the response is {other}"))),
        }
        Ok(())
    }
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: Sink<'_>) -> Result<bool, AttemptError> {
        // The data of other events need not be JSON. Some servers end the stream as chat completions do.
        let is_known = matches!(event.name.as_str(), "" | "message" | "error")
            || event.name.starts_with("response.");
        if !is_known || event.data.trim() == "[DONE]" {
            return Ok(false);
        }
        let data = parse(event.data.as_bytes())?;
        let field = |key: &str| data.get(key).unwrap_or(&Value::Null);
        match field("type").as_str().unwrap_or(&event.name) {
            "response.created" | "response.in_progress" => self.note(field("response")),
            "response.output_item.added" => {
                let index = field("output_index").as_u64();
                self.parts.push(Part { index, item: field("item").clone(), ..Part::default() });
            }
            "response.output_text.delta" => {
                if let Some(part) = self.open_part(&data) {
                    let delta = word(&data, "delta");
                    part.streamed.push_str(delta);
                    sink(Delta::Text(delta.into()));
                }
            }
            "response.refusal.delta" => {
                if let Some(part) = self.open_part(&data) {
                    let delta = word(&data, "delta");
                    part.refusal.push_str(delta);
                    sink(Delta::Text(delta.into()));
                }
            }
            "response.function_call_arguments.delta" => {
                if let Some(part) = self.open_part(&data) {
                    let piece = word(&data, "delta");
                    part.streamed.push_str(piece);
                    let tool = word(&part.item, "name").to_owned();
                    sink(Delta::ToolInput { tool, piece: piece.into() });
                }
            }
            "response.function_call_arguments.done" => {
                if let (Some(arguments), Some(part)) =
                    (field("arguments").as_str(), self.open_part(&data))
                {
                    arguments.clone_into(&mut part.streamed);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                sink(Delta::Thought(word(&data, "delta").into()));
            }
            "response.reasoning_summary_part.added"
                if field("summary_index").as_u64().is_some_and(|index| index > 0) =>
            {
                sink(Delta::Thought("\n\n".into()));
            }
            "response.output_item.done" => self.part(&data).complete(field("item"), sink),
            "response.completed" | "response.incomplete" => {
                self.end(field("response"), sink)?;
                return Ok(true);
            }
            "response.failed" => {
                let error = field("response").get("error");
                return Err(reported(error.filter(|it| !it.is_null()).unwrap_or(&data)));
            }
            "error" => {
                return Err(reported(
                    data.get("error").filter(|it| it.is_object()).unwrap_or(&data),
                ));
            }
            _ => {}
        }
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), AttemptError> {
        let response = parse(body)?;
        let is_failed = response.get("error").is_some_and(|error| !error.is_null());
        if !is_failed && !response.get("output").is_some_and(Value::is_array) {
            return Err(AttemptError::Garbled("the response has no output".into()));
        }
        self.end(&response, sink)
    }

    fn finish(self: Box<Self>) -> Reply {
        let Self { mut reply, parts, incomplete } = *self;
        let mut is_refusal = false;
        let mut reasoning = Vec::new();
        // A call that reached the limit is refused by the agent, which says so to the model.
        let is_cut = incomplete.as_ref().is_some_and(|reason| *reason != StopReason::MaxTokens);
        for (at, part) in (0..).zip(parts) {
            let kind = word(&part.item, "type");
            if kind == REASONING {
                reasoning.push(part.item);
                continue;
            }
            let reasoning = mem::take(&mut reasoning).into_iter();
            match kind {
                "message" | "" => {
                    let (text, refusal) = part.said();
                    is_refusal |= !refusal.is_empty();
                    if text.is_empty() && refusal.is_empty() {
                        continue;
                    }
                    reasoning.for_each(|item| reply.opaque(item));
                    if let Some(phase) = part.item.get("phase").filter(|phase| phase.is_string()) {
                        reply.opaque(json!({"type": PHASE, "phase": phase}));
                    }
                    reply.text(text + &refusal);
                }
                "function_call" if is_cut && !part.is_whole_call() => {}
                "function_call" => {
                    reasoning.for_each(|item| reply.opaque(item));
                    let (id, name) = (part.call_id(), word(&part.item, "name").to_owned());
                    reply.call(at, id, name, part.arguments());
                }
                _ => {}
            }
        }
        let refusal = is_refusal.then_some(StopReason::Refusal);
        reply.finish(incomplete.or(refusal))
    }
}

impl Part {
    /// Returns the text that was shown so far.
    fn shown(&self) -> &str {
        let is_message = matches!(word(&self.item, "type"), "message" | "");
        if is_message && !self.streamed.is_empty() { &self.streamed } else { &self.refusal }
    }

    /// Replaces the item by its complete form, and shows text of which no chunk has come.
    fn complete(&mut self, item: &Value, sink: Sink<'_>) {
        (self.item, self.is_complete) = (item.clone(), true);
        if word(item, "type") == "message" && self.shown().is_empty() {
            let (text, refusal) = self.said();
            let said = text + &refusal;
            if !said.is_empty() {
                sink(Delta::Text(said));
            }
        }
    }

    /// Returns the text and the refusal of a message.
    fn said(&self) -> (String, String) {
        let parts = self.item.get("content").and_then(Value::as_array).into_iter().flatten();
        let all = |key| -> String { parts.clone().map(|part| word(part, key)).collect() };
        let (text, refusal) = (all("text"), all("refusal"));
        if text.is_empty() && refusal.is_empty() {
            return (self.streamed.clone(), self.refusal.clone());
        }
        (text, refusal)
    }

    fn call_id(&self) -> &str {
        let id = word(&self.item, "call_id");
        if id.is_empty() { word(&self.item, "id") } else { id }
    }

    fn is_whole_call(&self) -> bool {
        self.is_complete && word(&self.item, "status") != "incomplete"
    }

    fn arguments(&self) -> Value {
        let given = self.item.get("arguments");
        let is_said = given.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        input(if is_said { "" } else { &self.streamed }, given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{self, call, request, text};
    use crate::wire::chat::Block;

    fn assembler() -> Assembler {
        Assembler::new(&request(vec![]), "asked")
    }

    fn replay(lines: &str) -> fixtures::Outcome {
        fixtures::replay(assembler(), lines)
    }

    /// Returns the reply of a complete body with these items, and with further fields.
    fn whole(output: &Value, more: &Value) -> Reply {
        let mut body = json!({"model": "m-2", "status": "completed", "output": output});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut assembler = assembler();
        assembler.take_whole(body.to_string().as_bytes(), &mut |_| ()).unwrap();
        Box::new(assembler).finish()
    }

    fn message(said: &str) -> Value {
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]})
    }

    fn function_call(id: &str, arguments: &str) -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "run", "arguments": arguments})
    }

    fn reasoning(id: &str) -> Value {
        json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "g=="})
    }

    #[test]
    fn a_stream_with_everything_in_it() {
        let (reply, shown) = replay(
            r#"
            {"type":"response.created","response":{"model":"m-1","status":"in_progress","usage":null}}
            {"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"half"}}
            {"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}
            {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"h"}
            {"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}
            {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"m"}
            {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"h"}],"encrypted_content":"g==","new":1}}
            {"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","content":[]}}
            {"type":"response.content_part.added","output_index":1,"part":{"type":"output_text","text":""}}
            {"type":"response.output_text.delta","output_index":1,"delta":"a"}
            {"type":"response.output_text.delta","output_index":1,"delta":"b"}
            {"type":"response.output_text.annotation.added","output_index":1,"annotation":{}}
            {"type":"response.brand_new","output_index":9}
            {"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","phase":"commentary","content":[{"type":"output_text","text":"ab"}]}}
            {"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"a","name":"run","arguments":""}}
            {"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","call_id":"b","name":"rest","arguments":""}}
            {"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"n\":"}
            {"type":"response.function_call_arguments.delta","output_index":3,"delta":"{}"}
            {"type":"response.function_call_arguments.delta","output_index":2,"delta":"1}"}
            {"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"a","name":"run","arguments":"{\"n\":1}"}}
            {"type":"response.output_item.done","output_index":3,"item":{"type":"function_call","call_id":"b","name":"rest","arguments":"{}"}}
            {"type":"response.completed","response":{"model":"m-1-new","status":"completed","output":[],"usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":4},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":39}}}
            "#,
        );
        let Reply { blocks, stop_reason, usage, model } = reply.unwrap();
        let expected = json!([
            {"type": "opaque", "value": {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "h"}], "encrypted_content": "g==", "new": 1}},
            {"type": "opaque", "value": {"type": "message_phase", "phase": "commentary"}},
            {"type": "text", "text": "ab"},
            {"type": "tool_use", "id": "a", "name": "run", "input": {"n": 1}},
            {"type": "tool_use", "id": "b", "name": "rest", "input": {}},
        ]);
        assert_eq!(json!(blocks), expected);
        assert_eq!((shown.as_str(), model.as_str()), ("[h][\n\n][m]ab", "m-1-new"));
        assert_eq!(stop_reason, StopReason::ToolUse);
        let counts = (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens);
        assert_eq!((counts, usage.cache_creation_input_tokens, usage.total()), ((6, 20, 9), 4, 39));
    }

    /// Some servers send no event for the end of an item, and some none at all for an item.
    #[test]
    fn items_that_were_not_streamed_completely_come_from_the_end_or_from_their_chunks() {
        let end = |output: Value| {
            json!({"type": "response.completed", "response": {"output": output}}).to_string()
        };
        let begin = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}
            {"type":"response.output_text.delta","output_index":0,"delta":"a"}
            {"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a","name":"run","arguments":""}}
            {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"n\""}
            {"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"n\":1}"}"#;
        let both = [text("a"), call("a", "run", json!({"n": 1}))];
        for lines in [
            [begin.to_owned(), end(json!([]))].join("\n"),
            [begin.to_owned(), end(json!([message("a"), function_call("a", "{\"n\":1}")]))]
                .join("\n"),
            end(json!([message("a"), function_call("a", "{\"n\":1}")])),
        ] {
            let (reply, shown) = replay(&lines);
            assert_eq!(
                (reply.unwrap().blocks.as_slice(), shown.as_str()),
                (&both[..], "a"),
                "{lines}"
            );
        }
        let bare = r#"{"type":"response.output_text.delta","delta":"a"}"#;
        let (reply, _) = replay(&[bare.to_owned(), end(json!([]))].join("\n"));
        assert_eq!(reply.unwrap().text(), "a");
    }

    #[test]
    fn chunks_that_come_after_their_item_is_complete_are_ignored() {
        let lines = [
            json!({"type": "response.output_item.done", "output_index": 0, "item": message("a")}),
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": "a"}),
            json!({"type": "response.refusal.delta", "output_index": 0, "delta": "a"}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": function_call("a", "")}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": function_call("a", "{}")}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"}),
            json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{}"}),
            json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
        ];
        let lines = lines.map(|line| line.to_string()).join("\n");
        let (reply, shown) = replay(&lines);
        assert_eq!(reply.unwrap().blocks, [text("a"), call("a", "run", json!({}))]);
        assert_eq!(shown, "a");
    }

    #[test]
    fn reasoning_is_kept_only_with_the_item_to_which_it_led() {
        let opaque = |id: &str| Block::Opaque { value: reasoning(id) };
        let run = call("a", "run", json!({}));
        let web = json!({"type": "web_search_call", "id": "ws_1"});
        for (output, blocks) in [
            (vec![reasoning("r"), function_call("a", "{}")], vec![opaque("r"), run.clone()]),
            (
                vec![reasoning("r"), reasoning("s"), message("x")],
                vec![opaque("r"), opaque("s"), text("x")],
            ),
            (vec![message("x"), reasoning("r")], vec![text("x")]),
            (vec![reasoning("r"), message(""), function_call("a", "")], vec![run.clone()]),
            (
                vec![reasoning("r"), web, reasoning("s"), function_call("a", "{}")],
                vec![opaque("s"), run],
            ),
        ] {
            assert_eq!(whole(&json!(output), &json!({})).blocks, blocks, "{output:?}");
        }
    }

    #[test]
    fn an_incomplete_response_has_its_reason_and_only_whole_calls() {
        let incomplete = |reason: &str| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
        for (reason, meaning) in [
            ("max_output_tokens", "max_tokens"),
            ("content_filter", "refusal"),
            ("brand_new", "brand_new"),
        ] {
            let mut half = function_call("b", "{\"n\"");
            half["status"] = "incomplete".into();
            let reply = whole(&json!([function_call("a", "{}"), half]), &incomplete(reason));
            assert_eq!(serde_json::to_value(reply.stop_reason).unwrap(), meaning);
            let calls = if reason == "max_output_tokens" { 2 } else { 1 };
            assert_eq!(reply.blocks.len(), calls, "{reason}: {:?}", reply.blocks);
        }
        let refusal =
            json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
        let reply = whole(&json!([refusal]), &json!({}));
        assert_eq!((reply.text(), reply.stop_reason), ("No.".into(), StopReason::Refusal));
        let (reply, shown) = replay(
            r#"{"type":"response.refusal.delta","output_index":0,"delta":"No."}
            {"type":"response.completed","response":{}}"#,
        );
        assert_eq!((reply.unwrap().stop_reason, shown.as_str()), (StopReason::Refusal, "No."));
    }

    #[test]
    fn errors_are_reported_in_every_form() {
        let failed = |error: &str| {
            format!(
                r#"{{"type":"response.failed","response":{{"status":"failed","error":{error}}}}}"#
            )
        };
        let server = r#"{"code":"server_error","message":"oops"}"#;
        for (line, said, is_retried) in [
            (failed(server), "500 server_error: oops", true),
            (failed(r#"{"code":"rate_limit_exceeded","message":"slow"}"#), "429 rate_limit_exceeded: slow", true),
            (failed(r#"{"code":"slow_down","message":"busy"}"#), "529 slow_down: busy", true),
            (failed(r#"{"code":"invalid_prompt","message":"no"}"#), "400 invalid_prompt: no", false),
            (failed(r#"{"code":"bio_policy","message":"no"}"#), "400 bio_policy: no", false),
            (failed("null"), "500 response.failed: ", true),
            (r#"{"type":"error","code":"server_error","message":"oops","sequence_number":1}"#.into(), "500 server_error: oops", true),
            (r#"{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"too long"}}"#.into(), "400 invalid_request_error: too long", false),
            (format!(r#"{{"type":"response.completed","response":{{"error":{server}}}}}"#), "500 server_error: oops", true),
        ] {
            let error = replay(&line).0.unwrap_err();
            assert!(error.to_string().starts_with(said), "{line}: {error}");
            assert_eq!(error.is_retryable(), is_retried, "{line}");
        }
    }

    #[test]
    fn a_rate_limit_says_in_words_for_how_long_to_wait() {
        for (message, millis) in [
            ("Limit 30000. Please try again in 1.898s. Visit", Some(1898)),
            ("Please try again in 20ms.", Some(20)),
            ("Please try again in 6m0s.", None),
            ("Please try again in a while", None),
            ("Please try again in 99999999999999999999999s", None),
        ] {
            let error = reported(&json!({"code": "rate_limit_exceeded", "message": message}));
            assert_eq!(error.asked_wait().map(|wait| wait.as_millis()), millis, "{message}");
        }
    }

    #[test]
    fn a_stream_without_its_end_and_a_body_without_output_are_faults() {
        let text = r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#;
        assert_eq!(replay(text).0, Err(AttemptError::Cut));
        assert_eq!(replay(&format!("{text}\n[DONE]")).0, Err(AttemptError::Cut));
        assert!(matches!(replay("{\"type\"").0, Err(AttemptError::Garbled(_))));
        let take = |name: &str, data: &str| {
            let event = Event { name: name.into(), data: data.into() };
            assembler().take(&event, &mut |_| ())
        };
        assert_eq!(take("keepalive", "not json"), Ok(false));
        assert!(matches!(take("response.created", "not json"), Err(AttemptError::Garbled(_))));
        for body in ["{}", r#"{"status":"queued","output":[]}"#, "[]"] {
            let error = assembler().take_whole(body.as_bytes(), &mut |_| ());
            assert!(matches!(error, Err(AttemptError::Garbled(_))), "{body}");
        }
    }
}
