//! Parses a streamed response: from chunks to events, from events to one [`Reply`]. Pure.
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

    /// Whether the reply is complete if the stream ends here, without a last event.
    fn is_whole(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Reply;
}

#[derive(Debug)]
pub(super) struct StreamParser {
    decoder: Decoder,
    assembler: Box<dyn Assemble>,
    has_begun: bool,
    has_ended: bool,
}

impl StreamParser {
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

    /// Returns the reply, if the last event has arrived or the reply is complete without it.
    pub(super) fn close(self) -> Result<Reply, AttemptError> {
        if self.has_ended || self.assembler.is_whole() {
            return Ok(self.assembler.finish());
        }
        Err(if self.has_begun { AttemptError::Cut } else { AttemptError::Empty })
    }
}

/// Parses the JSON of an event or of a complete response.
pub(super) fn parse(text: &[u8]) -> Result<Value, AttemptError> {
    let garbled = |why| AttemptError::Garbled(format!("not JSON: {why}"));
    serde_json::from_slice(text).map_err(garbled)
}

/// Returns a text field, empty if there is none.
pub(super) fn word<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use crate::llm::fixtures::{Outcome, read, request, tool_inputs};
    use crate::llm::{anthropic, gemini, openai};
    use proptest::prelude::*;
    use proptest::sample::{Index, select};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    /// Reads a stream with the assembler of one API.
    type StreamReader = fn(&[&[u8]]) -> Outcome;

    fn messages(pieces: &[&[u8]]) -> Outcome {
        read(anthropic::reply::Assembler::new(&request(vec![]), "m"), pieces)
    }

    fn completions(pieces: &[&[u8]]) -> Outcome {
        read(openai::chat::reply::Assembler::new(&request(vec![]), "m"), pieces)
    }

    fn responses(pieces: &[&[u8]]) -> Outcome {
        read(openai::responses::reply::Assembler::new(&request(vec![]), "m"), pieces)
    }

    fn chunks(pieces: &[&[u8]]) -> Outcome {
        read(gemini::reply::Assembler::new(&request(vec![]), "m"), pieces)
    }

    #[test]
    fn the_pieces_of_a_call_are_shown_while_they_arrive() {
        let lines = r#"
            {"type":"message_start","message":{"usage":{}}}
            {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"run","input":{}}}
            {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}
            {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":":1}"}}
            {"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web","input":{}}}
            {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
        let assembler = anthropic::reply::Assembler::new(&request(vec![]), "m");
        assert_eq!(tool_inputs(assembler, lines), ["run: {\"a\"", "run: :1}"]);
        let lines = r#"
            {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"run","arguments":""}}]}}]}
            {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]}
            {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#;
        let assembler = openai::chat::reply::Assembler::new(&request(vec![]), "m");
        assert_eq!(tool_inputs(assembler, lines), ["run: ", "run: {\"a\"", "run: :1}"]);
        let lines = r#"
            {"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"a","name":"run","arguments":""}}
            {"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"a\""}
            {"type":"response.function_call_arguments.delta","output_index":2,"delta":":1}"}"#;
        let assembler = openai::responses::reply::Assembler::new(&request(vec![]), "m");
        assert_eq!(tool_inputs(assembler, lines), ["run: {\"a\"", "run: :1}"]);
    }

    /// Splits the stream at the given positions.
    pub(in crate::llm) fn cut<'a>(stream: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect()
    }

    fn bytes(stream: &[u8]) -> Vec<&[u8]> {
        stream.chunks(1).collect()
    }

    fn cuts() -> impl Strategy<Value = Vec<Index>> {
        proptest::collection::vec(any::<Index>(), 0..40)
    }

    /// Fragments of streams, separated by `|`; `EVENTS` has the data of events of all APIs.
    const FRAGMENTS: &str = "\n|\n\n|\r|\r\n|\r\n\r\n|data:|data: |data: {|event: |:|\u{feff}|id: 1\n|\
        event: message_start\n|event: content_block_delta\n|event: vendor_event\n|event: error\n|\
        event: response.created\n";
    const EVENTS: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":-1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"ä"}}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":7}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}
{"type":"message_delta","delta":{"stop_reason":"tool_use"}}
{"type":"message_stop"}
{"type":"error","error":{}}
[]
[DONE]
{"choices":[{"delta":{"content":"a"}}]}
{"choices":[{"finish_reason":"stop"}]}
{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":{}}}]}}]}
{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}
{"type":"response.output_text.delta","output_index":0,"delta":"c"}
{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{"}
{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":7}}
{"type":"response.completed","response":{"output":[{"type":"reasoning"},{}]}}
{"candidates":[{"content":{"parts":[{"text":"a"},{"text":"b","thoughtSignature":"s"},7]}}]}
{"candidates":[{"content":{"parts":[{"functionCall":{"name":7}},{"thought":true,"text":"c"}]}}]}
{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":-1}}
{"promptFeedback":{"blockReason":"OTHER"}}"#;

    /// Generates fragments of streams of all APIs, and malformed data.
    fn scraps() -> impl Strategy<Value = Vec<u8>> {
        let known = select(FRAGMENTS.split('|').collect::<Vec<_>>()).prop_map(str::to_owned);
        let events = (select(EVENTS.lines().collect::<Vec<_>>()), select(vec!["\n", "\r\n", "\r"]));
        let events = events.prop_map(|(event, end)| format!("data: {event}{end}{end}"));
        let scrap = prop_oneof![
            6 => prop_oneof![known, events].prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..12),
        ];
        proptest::collection::vec(scrap, 0..24).prop_map(|scraps| scraps.concat())
    }

    /// A short deterministic fuzz run; `scripts/fuzz` runs longer.
    #[test]
    fn no_bytes_break_the_parser_or_parse_differently_in_chunks() {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { cases: 4000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let same = |(stream, cuts): (Vec<u8>, Vec<Index>)| {
            for read in [messages as StreamReader, completions, responses, chunks] {
                let whole = read(&[&stream]);
                prop_assert_eq!(&read(&cut(&stream, &cuts)), &whole);
                prop_assert_eq!(&read(&bytes(&stream)), &whole);
            }
            Ok(())
        };
        runner.run(&(scraps(), cuts()), same).unwrap();
    }
}
