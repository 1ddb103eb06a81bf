//! A streamed answer as it comes in: pieces to events to one [`Reply`]. Pure.
//!
//! *Invariant:* how the stream was cut into pieces never changes the reply, nor what is said to be wrong
//! with it. Knows neither HTTP nor what an event of either API means.

use super::Delta;
use super::sse::{Decoder, Event, TooLong};
use crate::wire::chat::Reply;
use serde_json::Value;

/// Puts an answer together, from events or from one whole body. Pure.
pub(super) trait Assemble {
    /// Takes one event in. True when it was the last.
    fn take(&mut self, event: &Event, sink: &mut dyn FnMut(Delta)) -> Result<bool, Fault>;

    /// Takes in one plain body that holds the whole answer.
    fn take_whole(&mut self, body: &[u8], sink: &mut dyn FnMut(Delta)) -> Result<(), Fault>;

    /// Whether nothing that counts can be missing when the stream ends here.
    fn is_whole(&self) -> bool;

    /// The reply, once everything has been taken in.
    fn finish(self) -> Reply;
}

/// Why an answer gives no reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// It does not follow the format.
    Garbled(String),
    /// It is at its end and says nothing.
    Empty,
    /// It is at its end before the message is.
    Cut,
    /// An event of it is too long.
    Oversized(TooLong),
    /// The server reported an error: the whole body, as that of an error status.
    Error(Value),
}

impl From<TooLong> for Fault {
    fn from(cause: TooLong) -> Self {
        Self::Oversized(cause)
    }
}

/// An answer between two of its pieces.
#[derive(Debug)]
pub(super) struct StreamParser<S> {
    decoder: Decoder,
    assembler: S,
    has_begun: bool,
}

impl<S: Assemble> StreamParser<S> {
    /// An answer of which nothing has come.
    pub(super) fn new(assembler: S) -> Self {
        Self { decoder: Decoder::default(), assembler, has_begun: false }
    }

    /// Takes the next piece in. True when the last event was in it: nothing after it is looked at.
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

    /// The reply, once its last event has come.
    pub(super) fn finish(self) -> Reply {
        self.assembler.finish()
    }

    /// The reply of a stream that has ended without a last event, if it can do without.
    pub(super) fn close(self) -> Result<Reply, Fault> {
        if self.assembler.is_whole() {
            return Ok(self.assembler.finish());
        }
        Err(if self.has_begun { Fault::Cut } else { Fault::Empty })
    }
}

#[cfg(test)]
mod tests;
