//! Parses a streamed response: chunks to events to one [`Reply`]. Pure.
//!
//! *Invariant:* the chunk boundaries never change the reply or the error. The parser knows neither HTTP nor the
//! meaning of events.

use super::attempt_error::AttemptError;
use super::provider::Sink;
use super::sse::{Decoder, Event};
use crate::wire::chat::Reply;
use serde_json::Value;

/// Assembles a reply from events or from one complete body. Pure.
pub(super) trait Assemble: std::fmt::Debug {
    /// Adds an event; returns true if it was the last one.
    fn take(&mut self, event: &Event, sink: Sink<'_>) -> Result<bool, AttemptError>;

    /// Adds a body that holds the complete response.
    fn take_whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), AttemptError>;

    /// Whether the reply is complete if the stream ends here.
    fn is_whole(&self) -> bool;

    /// Returns the reply.
    fn finish(self: Box<Self>) -> Reply;
}

/// A partially received response.
#[derive(Debug)]
pub(super) struct StreamParser {
    decoder: Decoder,
    assembler: Box<dyn Assemble>,
    has_begun: bool,
    has_ended: bool,
}

impl StreamParser {
    /// Creates a parser for a response.
    pub(super) fn new(assembler: Box<dyn Assemble>) -> Self {
        Self { decoder: Decoder::default(), assembler, has_begun: false, has_ended: false }
    }

    /// Adds a chunk; returns true if it contained the last event. Data after that event is ignored.
    pub(super) fn push(&mut self, piece: &[u8], sink: Sink<'_>) -> Result<bool, AttemptError> {
        self.has_begun |= !piece.is_empty();
        let (events, end) = self.decoder.push(piece);
        for event in &events {
            if self.assembler.take(event, sink)? {
                self.has_ended = true;
                return Ok(true);
            }
        }
        end?;
        Ok(false)
    }

    /// Returns the reply after the last event, or of a stream that ended without one, if it is complete.
    pub(super) fn close(self) -> Result<Reply, AttemptError> {
        if self.has_ended || self.assembler.is_whole() {
            return Ok(self.assembler.finish());
        }
        Err(if self.has_begun { AttemptError::Cut } else { AttemptError::Empty })
    }
}

/// Parses the JSON of an event or of a complete response.
pub(super) fn parse(text: &[u8]) -> Result<Value, AttemptError> {
    let garbled = |why| AttemptError::Garbled(format!("not json: {why}"));
    serde_json::from_slice(text).map_err(garbled)
}

/// Returns a text field, empty if there is none.
pub(super) fn word<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests;
