//! Replies of the Gemini API: a reply in blocks of the Messages API, rendered as chunks or as one body.
//!
//! A model that signs gives the first call of a reply a signature, or a reply without calls an empty last part with one,
//! unless the reply names signatures of its own.

use super::Reply;
use super::gemini::is_signing;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The beginning of a stop reason that stands for a blocked prompt.
pub(super) const BLOCKED: &str = "blocked ";

/// The models in the list.
const MODELS: [(&str, &str); 3] = [
    ("text-embedding-small", "embedContent"),
    ("gemini-3-fake", "generateContent"),
    ("gemini-2.5-fake", "generateContent"),
];

/// Returns the answer to a request for the list of models.
pub(super) fn models(headers: &BTreeMap<String, String>) -> Reply {
    if !headers.contains_key("x-goog-api-key") {
        let body = error(403, "PERMISSION_DENIED", "there is no key", &[]);
        return Reply::raw(403, "application/json", body.to_string().as_bytes());
    }
    let models = MODELS.map(|(name, method)| {
        json!({"name": format!("models/{name}"), "supportedGenerationMethods": [method, "countTokens"]})
    });
    let list = json!({ "models": models });
    Reply::raw(200, "application/json", list.to_string().as_bytes())
}

/// Returns the body of an error.
pub(super) fn error(status: u16, kind: &str, message: &str, details: &[Value]) -> Value {
    let mut error = json!({"code": status, "message": message, "status": kind});
    if !details.is_empty() {
        error["details"] = details.into();
    }
    json!({ "error": error })
}

pub(super) struct Said<'a> {
    pub(super) model: &'a str,
    /// The number of the request, for signatures that are unique.
    pub(super) number: usize,
    pub(super) blocks: &'a [Value],
    pub(super) reason: Option<&'a str>,
    pub(super) usage: [u64; 2],
    /// An error that replaces everything after the first block.
    pub(super) error: Option<&'a str>,
    pub(super) line_end: &'static str,
}

impl Said<'_> {
    /// Returns the parts, each in one piece.
    pub(super) fn parts(&self) -> Vec<Value> {
        let mut parts: Vec<Value> = self.blocks.iter().map(part).collect();
        let is_signed = |part: &Value| !part["thoughtSignature"].is_null();
        let signature = format!("c2ln{:04}+/{:02}", self.number % 10_000, parts.len());
        let is_call = |part: &Value| !part["functionCall"].is_null();
        if !is_signing(self.model) || self.blocked().is_some() {
            return parts;
        }
        if let Some(first) = parts.iter_mut().find(|part| is_call(part)) {
            if !is_signed(first) {
                first["thoughtSignature"] = signature.into();
            }
        } else if !parts.iter().any(|part| is_signed(part) && part["thought"] != true) {
            parts.push(json!({"text": "", "thoughtSignature": signature}));
        }
        parts
    }

    /// Returns the parts as they are sent.
    pub(super) fn sent_parts(&self, is_streamed: bool) -> Vec<Value> {
        let parts = self.parts();
        if is_streamed { parts.iter().flat_map(pieces).collect() } else { parts }
    }

    fn blocked(&self) -> Option<&str> {
        self.reason?.strip_prefix(BLOCKED)
    }

    fn reason(&self) -> &str {
        match self.reason.unwrap_or("end_turn") {
            "end_turn" | "tool_use" => "STOP",
            "max_tokens" => "MAX_TOKENS",
            other => other,
        }
    }

    fn usage(&self) -> Value {
        let [read, written] = self.usage;
        // The thoughts are counted apart.
        let thoughts = u64::from(self.blocks.iter().any(|block| block["type"] == "thinking"));
        let candidates = written.saturating_sub(thoughts);
        json!({"promptTokenCount": read, "candidatesTokenCount": candidates,
            "thoughtsTokenCount": written - candidates, "totalTokenCount": read + written})
    }

    fn response(&self, parts: &[Value], reason: Option<&str>) -> Value {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        if let Some(reason) = reason {
            candidate["finishReason"] = reason.into();
        }
        json!({"candidates": [candidate], "usageMetadata": self.usage(),
            "modelVersion": self.model, "responseId": "fake"})
    }

    fn blocked_response(&self, reason: &str) -> Value {
        json!({"promptFeedback": {"blockReason": reason}, "usageMetadata": self.usage(),
            "modelVersion": self.model})
    }

    /// Returns the reply as one JSON body.
    pub(super) fn whole(&self) -> String {
        match self.blocked() {
            Some(reason) => self.blocked_response(reason).to_string(),
            None => self.response(&self.parts(), Some(self.reason())).to_string(),
        }
    }

    fn event(&self, data: &Value) -> String {
        format!("data: {data}{end}{end}", end = self.line_end)
    }

    /// Returns the reply as a stream of events. The last one has the finish reason.
    pub(super) fn stream(&self) -> String {
        if let Some(reason) = self.blocked() {
            return self.event(&self.blocked_response(reason));
        }
        let mut text = String::new();
        let parts = self.parts();
        let mut last = json!({"text": ""});
        for part in &parts {
            if part["text"] == "" {
                last = part.clone();
                continue;
            }
            for piece in pieces(part) {
                text.push_str(&self.event(&self.response(&[piece], None)));
            }
            if let Some(kind) = self.error {
                let status = match kind {
                    "INVALID_ARGUMENT" => 400,
                    "RESOURCE_EXHAUSTED" => 429,
                    "UNAVAILABLE" => 503,
                    _ => 500,
                };
                text.push_str(&self.event(&error(status, kind, "in mid-stream", &[])));
                return text;
            }
        }
        text.push_str(&self.event(&self.response(&[last], Some(self.reason()))));
        text
    }
}

/// Returns a block as a part.
fn part(block: &Value) -> Value {
    let mut part = Map::new();
    let signature = block["signature"].as_str().filter(|text| !text.is_empty());
    match block["type"].as_str().unwrap_or_default() {
        "text" => drop(part.insert("text".into(), block["text"].clone())),
        "thinking" => {
            part.insert("text".into(), block["thinking"].clone());
            part.insert("thought".into(), true.into());
        }
        "tool_use" => {
            let mut call = json!({"name": block["name"], "args": block["input"]});
            if block["id"] != "" {
                call["id"] = block["id"].clone();
            }
            part.insert("functionCall".into(), call);
        }
        other => panic!("the Gemini API has no {other}"),
    }
    if let Some(signature) = signature {
        part.insert("thoughtSignature".into(), signature.into());
    }
    part.into()
}

/// Splits a part into those of single chunks. A signature is in the last one of a thought, and keeps a text whole.
fn pieces(part: &Value) -> Vec<Value> {
    let signature = &part["thoughtSignature"];
    let Some(text) =
        part["text"].as_str().filter(|_| part["thought"] == true || signature.is_null())
    else {
        return vec![part.clone()];
    };
    let letters: Vec<char> = text.chars().collect();
    let texts = letters.chunks(7).map(|part| part.iter().collect::<String>());
    let mut pieces: Vec<Value> = texts.map(|text| json!({ "text": text })).collect();
    for piece in &mut pieces {
        if part["thought"] == true {
            piece["thought"] = true.into();
        }
    }
    if let (Some(last), false) = (pieces.last_mut(), signature.is_null()) {
        last["thoughtSignature"] = signature.clone();
    }
    pieces
}
