//! Programmed answers of the fake: a message or an error, complete or as a stream, with faults.

use super::{Api, RequestView, completions, gemini_reply, responses_reply};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// A programmed answer. Constructors set its content; methods set how it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    content: Content,
    headers: Vec<(String, String)>,
    form: Form,
    framing: Framing,
    line_end: &'static str,
    /// The kind of the error event that replaces everything after the first block.
    error_event: Option<String>,
    /// The code of the failure that ends a response of the Responses API after the first block.
    failure: Option<String>,
    /// Whether the request asked for reasoning that can be sent back.
    is_encrypted: bool,
    /// The details of an error in the format of Google's APIs.
    details: Vec<Value>,
    pings: u32,
    ping_pause: Duration,
    delay: Duration,
    piece: usize,
    fault: Fault,
    id: usize,
    model: String,
    api: Api,
}

#[derive(Debug, Clone)]
enum Content {
    Message { blocks: Vec<Value>, stop_reason: Option<String>, usage: [u64; 2] },
    Error { status: u16, kind: String, message: String },
    Raw { status: u16, media: String, bytes: Vec<u8> },
}

/// The form of the answer: a stream or one JSON body, by default the requested one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Asked,
    Stream,
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Chunked,
    UntilClose,
}

/// A fault of the connection. The number is the count of body bytes before the fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Mute,
    Cut(usize),
    Stall(usize),
}

impl Reply {
    fn new(content: Content) -> Self {
        Self {
            content,
            headers: Vec::new(),
            form: Form::Asked,
            framing: Framing::Chunked,
            line_end: "\n",
            error_event: None,
            failure: None,
            is_encrypted: false,
            details: Vec::new(),
            pings: 0,
            ping_pause: Duration::ZERO,
            delay: Duration::ZERO,
            piece: usize::MAX,
            fault: Fault::None,
            id: 0,
            model: String::new(),
            api: Api::Messages,
        }
    }

    /// Creates a message without blocks.
    pub(crate) fn message() -> Self {
        Self::new(Content::Message { blocks: vec![], stop_reason: None, usage: [11, 7] })
    }

    /// Creates a message with this text.
    pub(crate) fn text(text: &str) -> Self {
        Self::message().block(json!({"type": "text", "text": text}))
    }

    /// Creates an error with this status and type.
    pub(crate) fn error(status: u16, kind: &str, message: &str) -> Self {
        Self::new(Content::Error { status, kind: kind.into(), message: message.into() })
    }

    /// Creates an answer of these bytes.
    pub(crate) fn raw(status: u16, media: &str, bytes: &[u8]) -> Self {
        Self::new(Content::Raw { status, media: media.into(), bytes: bytes.to_vec() })
    }

    /// Adds a block in its complete form.
    pub(crate) fn block(mut self, block: Value) -> Self {
        if let Content::Message { blocks, .. } = &mut self.content {
            blocks.push(block);
        }
        self
    }

    /// Adds a tool call.
    pub(crate) fn tool(self, id: &str, name: &str, input: &Value) -> Self {
        self.block(json!({"type": "tool_use", "id": id, "name": name, "input": input}))
    }

    /// Adds a thinking block.
    pub(crate) fn thinking(self, thinking: &str, signature: &str) -> Self {
        self.block(json!({"type": "thinking", "thinking": thinking, "signature": signature}))
    }

    /// Sets the reported input and output tokens.
    pub(crate) fn usage(mut self, read: u64, written: u64) -> Self {
        if let Content::Message { usage, .. } = &mut self.content {
            *usage = [read, written];
        }
        self
    }

    /// Sets a stop reason that differs from the one that the blocks imply.
    pub(crate) fn stop(mut self, reason: &str) -> Self {
        if let Content::Message { stop_reason, .. } = &mut self.content {
            *stop_reason = Some(reason.into());
        }
        self
    }

    /// Sends the answer to a prompt that the Gemini API blocks.
    pub(crate) fn blocked(reason: &str) -> Self {
        Self::message().stop(&format!("{}{reason}", gemini_reply::BLOCKED))
    }

    /// Adds a detail to an error of the Gemini API.
    pub(crate) fn detail(mut self, detail: Value) -> Self {
        self.details.push(detail);
        self
    }

    /// Adds a response header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends one JSON body although a stream was requested.
    pub(crate) fn plain(mut self) -> Self {
        self.form = Form::Plain;
        self
    }

    /// Ends the body by closing the connection, so that a cut looks like an orderly end.
    pub(crate) fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self
    }

    /// Ends the lines of the stream with CR LF.
    pub(crate) fn crlf(mut self) -> Self {
        self.line_end = "\r\n";
        self
    }

    /// Sends an error event after the first block instead of the rest.
    pub(crate) fn error_event(mut self, kind: &str) -> Self {
        self.error_event = Some(kind.into());
        self
    }

    /// Ends the response of the Responses API with a failure after the first block.
    pub(crate) fn failed(mut self, code: &str) -> Self {
        self.failure = Some(code.into());
        self
    }

    /// Sends pings before everything else, each after a pause.
    pub(crate) fn pings(mut self, count: u32, pause: Duration) -> Self {
        (self.pings, self.ping_pause) = (count, pause);
        self
    }

    /// Delays the answer.
    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Writes the body in pieces of this many bytes.
    pub(crate) fn pieces(mut self, size: usize) -> Self {
        self.piece = size;
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub(crate) fn cut_after(mut self, bytes: usize) -> Self {
        self.fault = Fault::Cut(bytes);
        self
    }

    /// Stops after this many bytes of the body and keeps the connection open.
    pub(crate) fn stall_after(mut self, bytes: usize) -> Self {
        self.fault = Fault::Stall(bytes);
        self
    }

    /// Creates an answer that sends nothing and keeps the connection open.
    pub(crate) fn mute() -> Self {
        Self { fault: Fault::Mute, ..Self::message() }
    }

    /// Returns the body of the answer to a streaming request for this model.
    pub(crate) fn stream_bytes(&self, api: Api, model: &str) -> Vec<u8> {
        let form = Form::Stream;
        Self { form, api, model: model.into(), is_encrypted: true, ..self.clone() }.body().1
    }

    pub(super) fn asked(mut self, view: &RequestView) -> Self {
        if self.form == Form::Asked {
            self.form = if view.is_streamed() { Form::Stream } else { Form::Plain };
        }
        (self.id, self.model, self.api) = (view.number, view.model().into(), view.api);
        let include = view.body["include"].as_array().into_iter().flatten();
        self.is_encrypted = include.into_iter().any(|it| it == "reasoning.encrypted_content");
        self
    }

    /// Sets the API, in whose format an error is.
    pub(super) fn of(self, api: Api) -> Self {
        Self { api, ..self }
    }

    /// Returns the reply in the format of the Gemini API; `None` for an error and for another API.
    fn as_gemini(&self) -> Option<gemini_reply::Said<'_>> {
        let Content::Message { blocks, stop_reason, usage } = &self.content else { return None };
        (self.api == Api::Gemini).then_some(gemini_reply::Said {
            model: &self.model,
            number: self.id,
            blocks,
            reason: stop_reason.as_deref(),
            usage: *usage,
            error: self.error_event.as_deref(),
            line_end: self.line_end,
        })
    }

    /// Returns the parts with a signature that the reply has.
    pub(super) fn signed_parts(&self) -> Vec<Value> {
        let parts = self.as_gemini().map(|said| said.sent_parts(self.form == Form::Stream));
        parts
            .unwrap_or_default()
            .into_iter()
            .filter(|part| !part["thoughtSignature"].is_null())
            .collect()
    }

    pub(super) fn delay(&self) -> Duration {
        self.delay
    }

    pub(super) fn stalls(&self) -> bool {
        matches!(self.fault, Fault::Stall(_) | Fault::Mute)
    }

    pub(super) fn pauses(&self) -> bool {
        matches!(&self.content, Content::Message { stop_reason: Some(why), .. } if why == "pause_turn")
    }

    /// Writes the answer. Returns `false` if the connection has to be closed.
    pub(super) fn write(&self, stream: &mut impl Write, pause: impl Fn(Duration)) -> bool {
        if self.fault == Fault::Mute {
            return false;
        }
        let (media, body) = self.body();
        let status = match &self.content {
            Content::Message { .. } => 200,
            Content::Error { status, .. } | Content::Raw { status, .. } => *status,
        };
        let framing = match self.framing {
            Framing::Chunked => "transfer-encoding: chunked",
            Framing::UntilClose => "connection: close",
        };
        let mut head = format!("HTTP/1.1 {status} Fake\r\ncontent-type: {media}\r\n{framing}\r\n");
        for (name, value) in &self.headers {
            head.push_str(&[name, ": ", value, "\r\n"].concat());
        }
        head.push_str("\r\n");
        let mut ok = stream.write_all(head.as_bytes()).is_ok();
        if media == "text/event-stream" {
            for _ in 0..self.pings {
                pause(self.ping_pause);
                ok = ok && self.write_piece(stream, self.ping().as_bytes());
            }
        }
        let sent = match self.fault {
            Fault::None | Fault::Mute => body.len(),
            Fault::Cut(bytes) | Fault::Stall(bytes) => bytes.min(body.len()),
        };
        for piece in body[..sent].chunks(self.piece) {
            ok = ok && self.write_piece(stream, piece);
        }
        let whole = self.fault == Fault::None && self.framing == Framing::Chunked;
        if whole {
            ok = ok && stream.write_all(b"0\r\n\r\n").is_ok();
        }
        ok && whole
    }

    fn write_piece(&self, stream: &mut impl Write, piece: &[u8]) -> bool {
        let mut framed = piece.to_vec();
        if self.framing == Framing::Chunked {
            framed = format!("{:x}\r\n", piece.len()).into_bytes();
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
        }
        stream.write_all(&framed).and_then(|()| stream.flush()).is_ok()
    }

    fn body(&self) -> (String, Vec<u8>) {
        if let Some(said) = self.as_gemini() {
            return match self.form {
                Form::Plain => ("application/json".into(), said.whole().into_bytes()),
                Form::Asked | Form::Stream => {
                    ("text/event-stream".into(), said.stream().into_bytes())
                }
            };
        }
        match &self.content {
            Content::Error { status, kind, message } if self.api == Api::Gemini => {
                let body = gemini_reply::error(*status, kind, message, &self.details);
                ("application/json".into(), body.to_string().into_bytes())
            }
            Content::Raw { media, bytes, .. } => (media.clone(), bytes.clone()),
            Content::Error { kind, message, .. } => {
                let id = format!("req_fake_{}", self.id);
                // The error has the fields of both APIs: each client reads its own.
                let error = json!({"type": kind, "message": message, "code": kind, "param": null});
                let body = json!({"type": "error", "error": error, "request_id": id});
                ("application/json".into(), body.to_string().into_bytes())
            }
            Content::Message { blocks, stop_reason, usage } => {
                let calls = blocks.iter().any(|block| block["type"] == "tool_use");
                let unsaid = if calls { "tool_use" } else { "end_turn" };
                let reason = stop_reason.as_deref().unwrap_or(unsaid);
                if self.api == Api::Completions {
                    let said = completions::Said {
                        model: &self.model,
                        blocks,
                        reason,
                        usage: *usage,
                        error: self.error_event.as_deref(),
                        line_end: self.line_end,
                    };
                    return match self.form {
                        Form::Plain => ("application/json".into(), said.whole().into_bytes()),
                        Form::Asked | Form::Stream => {
                            ("text/event-stream".into(), said.stream().into_bytes())
                        }
                    };
                }
                if self.api == Api::Responses {
                    let said = responses_reply::Said {
                        number: self.id,
                        model: &self.model,
                        blocks,
                        reason,
                        usage: *usage,
                        is_encrypted: self.is_encrypted,
                        error: self.error_event.as_deref(),
                        failure: self.failure.as_deref(),
                        line_end: self.line_end,
                    };
                    return match self.form {
                        Form::Plain => ("application/json".into(), said.whole().into_bytes()),
                        Form::Asked | Form::Stream => {
                            ("text/event-stream".into(), said.stream().into_bytes())
                        }
                    };
                }
                if self.form == Form::Plain {
                    let message = self.envelope(blocks, &json!(reason), *usage);
                    return ("application/json".into(), message.to_string().into_bytes());
                }
                ("text/event-stream".into(), self.stream(blocks, reason, *usage).into_bytes())
            }
        }
    }

    fn envelope(&self, blocks: &[Value], reason: &Value, [read, written]: [u64; 2]) -> Value {
        json!({
            "id": "fake-message", "type": "message", "role": "assistant",
            "model": self.model, "content": blocks, "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": read, "output_tokens": written},
        })
    }

    fn ping(&self) -> String {
        match self.api {
            Api::Messages => self.event("ping", &json!({})),
            Api::Completions | Api::Gemini => ": still at work\n\n".into(),
            Api::Responses => "event: keepalive\ndata: still at work\n\n".into(),
        }
    }

    fn event(&self, name: &str, data: &Value) -> String {
        let mut typed = json!({"type": name});
        typed.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let end = self.line_end;
        format!("event: {name}{end}data: {typed}{end}{end}")
    }

    fn stream(&self, blocks: &[Value], reason: &str, usage: [u64; 2]) -> String {
        let start = self.envelope(&[], &Value::Null, [usage[0], 0]);
        let mut text = self.event("message_start", &json!({"message": start}));
        text.push_str(&self.event("ping", &json!({})));
        for (index, block) in blocks.iter().enumerate() {
            let (opening, deltas) = streamed(block);
            let opening = json!({"index": index, "content_block": opening});
            text.push_str(&self.event("content_block_start", &opening));
            for delta in deltas {
                let delta = json!({"index": index, "delta": delta});
                text.push_str(&self.event("content_block_delta", &delta));
            }
            if let Some(kind) = &self.error_event {
                let error = json!({"error": {"type": kind, "message": "in mid-stream"}});
                text.push_str(&self.event("error", &error));
                return text;
            }
            text.push_str(&self.event("content_block_stop", &json!({"index": index})));
        }
        let delta = json!({"delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": usage[1]}});
        text.push_str(&self.event("message_delta", &delta));
        text.push_str(&self.event("message_stop", &json!({})));
        text
    }
}

/// Returns the first event of a block in a stream, and the deltas that complete it.
fn streamed(block: &Value) -> (Value, Vec<Value>) {
    let pieces = |text: &str, kind: &str, key: &str| -> Vec<Value> {
        let letters: Vec<char> = text.chars().collect();
        let parts = letters.chunks(7).map(|part| part.iter().collect::<String>());
        parts.map(|part| json!({"type": kind, key: part})).collect()
    };
    let word = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let mut opening = block.clone();
    match block["type"].as_str().unwrap_or_default() {
        "text" => {
            opening["text"] = "".into();
            (opening, pieces(&word("text"), "text_delta", "text"))
        }
        "thinking" => {
            opening["thinking"] = "".into();
            opening["signature"] = "".into();
            let mut deltas = pieces(&word("thinking"), "thinking_delta", "thinking");
            deltas.push(json!({"type": "signature_delta", "signature": word("signature")}));
            (opening, deltas)
        }
        "tool_use" => {
            // A string input is sent verbatim, so that tests can send invalid JSON.
            let raw = block["input"].as_str().map(str::to_owned);
            let input = raw.unwrap_or_else(|| block["input"].to_string());
            opening["input"] = json!({});
            (opening, pieces(&input, "input_json_delta", "partial_json"))
        }
        _ => (opening, vec![]),
    }
}
