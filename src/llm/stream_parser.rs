//! Parses a streamed response: chunks to events to one [`Reply`]. Pure.
//!
//! *Invariant:* the chunk boundaries never change the reply or the fault. The parser knows neither HTTP nor the
//! meaning of events.

use super::provider::Delta;
use super::sse::{Decoder, Event, TooLong};
use crate::wire::chat::Reply;
use serde_json::Value;

/// Assembles a reply from events or from one complete body. Pure.
pub(super) trait Assemble {
    /// Adds an event; returns true if it was the last one.
    fn take(&mut self, event: &Event, sink: &mut dyn FnMut(Delta)) -> Result<bool, Fault>;

    /// Adds a body that holds the complete response.
    fn take_whole(&mut self, body: &[u8], sink: &mut dyn FnMut(Delta)) -> Result<(), Fault>;

    /// Whether the reply is complete if the stream ends here.
    fn is_whole(&self) -> bool;

    /// Returns the reply.
    fn finish(self) -> Reply;
}

/// The reason that a response gives no reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// The response violates the format.
    Garbled(String),
    /// The response ended without content.
    Empty,
    /// The response ended before the message did.
    Cut,
    /// An event is too long.
    Oversized(TooLong),
    /// The server reported an error; the value is its body.
    Error(Value),
}

impl From<TooLong> for Fault {
    fn from(cause: TooLong) -> Self {
        Self::Oversized(cause)
    }
}

/// A partially received response.
#[derive(Debug)]
pub(super) struct StreamParser<S> {
    decoder: Decoder,
    assembler: S,
    has_begun: bool,
}

impl<S: Assemble> StreamParser<S> {
    /// Creates a parser for a response.
    pub(super) fn new(assembler: S) -> Self {
        Self { decoder: Decoder::default(), assembler, has_begun: false }
    }

    /// Adds a chunk; returns true if it contained the last event. Data after that event is ignored.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        sink: &mut dyn FnMut(Delta),
    ) -> Result<bool, Fault> {
        self.has_begun |= !piece.is_empty();
        let (events, end) = self.decoder.push(piece);
        for event in &events {
            if self.assembler.take(event, sink)? {
                return Ok(true);
            }
        }
        end?;
        Ok(false)
    }

    /// Returns the reply after the last event.
    pub(super) fn finish(self) -> Reply {
        self.assembler.finish()
    }

    /// Returns the reply of a stream that ended without a last event, if it is complete.
    pub(super) fn close(self) -> Result<Reply, Fault> {
        if self.assembler.is_whole() {
            return Ok(self.assembler.finish());
        }
        Err(if self.has_begun { Fault::Cut } else { Fault::Empty })
    }
}

#[cfg(test)]
mod tests;
