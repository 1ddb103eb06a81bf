//! The form of a reply of the Responses API: one body, or a stream of events.

use super::responses::encrypted;
use serde_json::{Value, json};

/// A reply in blocks of the Messages API, rendered as a response.
pub(super) struct Said<'a> {
    /// The number of the request, which makes the ids of items unique.
    pub(super) number: usize,
    pub(super) model: &'a str,
    pub(super) blocks: &'a [Value],
    pub(super) reason: &'a str,
    pub(super) usage: [u64; 2],
    /// Whether reasoning is sent in the form that can be sent back.
    pub(super) is_encrypted: bool,
    /// The code of an error event that replaces everything after the first item.
    pub(super) error: Option<&'a str>,
    /// The code of the failure that replaces everything after the first item.
    pub(super) failure: Option<&'a str>,
    pub(super) line_end: &'static str,
}

/// The events of a stream so far.
struct Events<'a> {
    said: &'a Said<'a>,
    text: String,
    count: usize,
}

impl Events<'_> {
    fn add(&mut self, name: &str, data: &Value) {
        let mut all = json!({"type": name, "sequence_number": self.count});
        all.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let end = self.said.line_end;
        self.text.push_str(&["event: ", name, end, "data: ", &all.to_string(), end, end].concat());
        self.count += 1;
    }

    /// Adds an event of a part of an item.
    fn part(&mut self, name: &str, at: usize, item: &Value, data: &Value) {
        let mut all = json!({"output_index": at, "item_id": item["id"]});
        all.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        self.add(name, &all);
    }
}

impl Said<'_> {
    /// Returns the reason for which the response is incomplete.
    fn incomplete(&self) -> Option<&str> {
        match self.reason {
            "end_turn" | "tool_use" => None,
            "max_tokens" => Some("max_output_tokens"),
            "refusal" => Some("content_filter"),
            other => Some(other),
        }
    }

    fn item(&self, at: usize, block: &Value) -> Value {
        let id = |prefix: &str| format!("{prefix}_{}_{at}", self.number);
        let is_last = at + 1 == self.blocks.len();
        let is_cut = is_last && self.incomplete().is_some();
        let status = if is_cut { "incomplete" } else { "completed" };
        let message = |content: Value| {
            let mut item = json!({"id": id("msg"), "type": "message", "status": status,
                "role": "assistant", "content": [content]});
            if block["phase"].is_string() {
                item["phase"] = block["phase"].clone();
            }
            item
        };
        match block["type"].as_str().unwrap_or_default() {
            "text" => message(json!({"type": "output_text", "text": block["text"],
                "annotations": [], "logprobs": []})),
            "refusal" => message(json!({"type": "refusal", "refusal": block["refusal"]})),
            "thinking" => {
                let (id, text) = (id("rs"), block["thinking"].as_str().unwrap());
                let parts = [json!({"type": "summary_text", "text": text})];
                let summary = if text.is_empty() { &parts[..0] } else { &parts };
                let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
                if self.is_encrypted {
                    let signature = block["signature"].as_str().unwrap();
                    item["encrypted_content"] = encrypted(&id, signature).into();
                }
                item
            }
            "tool_use" => {
                // A string input is sent verbatim, so that tests can send invalid JSON.
                let input = &block["input"];
                let arguments = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
                json!({"id": id("fc"), "type": "function_call", "status": status,
                    "call_id": block["id"], "name": block["name"], "arguments": arguments})
            }
            other => panic!("the Responses API has no {other}"),
        }
    }

    fn items(&self) -> Vec<Value> {
        self.blocks.iter().enumerate().map(|(at, block)| self.item(at, block)).collect()
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        let [read, written] = self.usage;
        let is_over = status == "completed" || status == "incomplete";
        let usage = json!({"input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written});
        let mut response = json!({
            "id": format!("resp_{}", self.number), "object": "response", "created_at": 1,
            "status": status, "background": false, "error": null, "incomplete_details": null,
            "instructions": null, "max_output_tokens": null, "model": self.model,
            "output": output, "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null}, "store": false, "temperature": 1.0,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
            "top_p": 1.0, "truncation": "disabled", "usage": null, "user": null, "metadata": {},
        });
        if is_over {
            response["usage"] = usage;
        }
        if let (true, Some(reason)) = (is_over, self.incomplete()) {
            response["incomplete_details"] = json!({"reason": reason});
        }
        response
    }

    fn end_status(&self) -> &'static str {
        if self.incomplete().is_some() { "incomplete" } else { "completed" }
    }

    fn failed(&self, code: &str) -> Value {
        let mut response = self.response("failed", &[]);
        response["error"] = json!({"code": code, "message": "the response failed"});
        response
    }

    /// Returns the reply as one JSON body.
    pub(super) fn whole(&self) -> String {
        match self.failure {
            Some(code) => self.failed(code).to_string(),
            None => self.response(self.end_status(), &self.items()).to_string(),
        }
    }

    /// Returns the reply as a stream of events.
    pub(super) fn stream(&self) -> String {
        let mut events = Events { said: self, text: String::new(), count: 0 };
        let begun = json!({"response": self.response("in_progress", &[])});
        events.add("response.created", &begun);
        events.add("response.in_progress", &begun);
        let items = self.items();
        for (at, item) in items.iter().enumerate() {
            add_item(&mut events, at, item);
            if let Some(code) = self.error {
                let error = json!({"code": code, "message": "in mid-stream", "param": null});
                events.add("error", &error);
                return events.text;
            }
            if let Some(code) = self.failure {
                events.add("response.failed", &json!({"response": self.failed(code)}));
                return events.text;
            }
            events.add("response.output_item.done", &json!({"output_index": at, "item": item}));
        }
        let status = self.end_status();
        let response = json!({"response": self.response(status, &items)});
        events.add(&format!("response.{status}"), &response);
        events.text
    }
}

/// Adds the events of an item up to its end.
fn add_item(events: &mut Events<'_>, at: usize, item: &Value) {
    let mut begun = item.clone();
    let kind = item["type"].as_str().unwrap();
    match kind {
        "message" => begun["content"] = json!([]),
        "reasoning" => {
            begun["summary"] = json!([]);
            // The endpoint sends a part of it at first.
            if item["encrypted_content"].is_string() {
                begun["encrypted_content"] = "gAAAA".into();
            }
        }
        _ => begun["arguments"] = "".into(),
    }
    if kind != "reasoning" {
        begun["status"] = "in_progress".into();
    }
    events.add("response.output_item.added", &json!({"output_index": at, "item": begun}));
    match kind {
        "message" => {
            let part = &item["content"][0];
            let (key, name) = match part["type"].as_str() {
                Some("refusal") => ("refusal", "refusal"),
                _ => ("text", "output_text"),
            };
            let mut empty = part.clone();
            empty[key] = "".into();
            events.part(
                "response.content_part.added",
                at,
                item,
                &json!({"content_index": 0, "part": empty}),
            );
            let text = part[key].as_str().unwrap();
            for piece in pieces(text) {
                let data = json!({"content_index": 0, "delta": piece, "logprobs": []});
                events.part(&format!("response.{name}.delta"), at, item, &data);
            }
            let data = json!({"content_index": 0, key: text, "logprobs": []});
            events.part(&format!("response.{name}.done"), at, item, &data);
            let data = json!({"content_index": 0, "part": part});
            events.part("response.content_part.done", at, item, &data);
        }
        "reasoning" => {
            for (index, part) in item["summary"].as_array().unwrap().iter().enumerate() {
                let empty = json!({"type": "summary_text", "text": ""});
                let data = json!({"summary_index": index, "part": empty});
                events.part("response.reasoning_summary_part.added", at, item, &data);
                let text = part["text"].as_str().unwrap();
                for piece in pieces(text) {
                    let data = json!({"summary_index": index, "delta": piece});
                    events.part("response.reasoning_summary_text.delta", at, item, &data);
                }
                let data = json!({"summary_index": index, "text": text});
                events.part("response.reasoning_summary_text.done", at, item, &data);
                let data = json!({"summary_index": index, "part": part});
                events.part("response.reasoning_summary_part.done", at, item, &data);
            }
        }
        _ => {
            let arguments = item["arguments"].as_str().unwrap();
            for piece in pieces(arguments) {
                let data = json!({"delta": piece});
                events.part("response.function_call_arguments.delta", at, item, &data);
            }
            let data = json!({"arguments": arguments, "name": item["name"]});
            events.part("response.function_call_arguments.done", at, item, &data);
        }
    }
}

fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(7).map(|part| part.iter().collect()).collect()
}
