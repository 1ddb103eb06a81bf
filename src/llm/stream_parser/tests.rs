//! Properties of both APIs: the layout and the chunks of a stream never change its reply, and no input
//! breaks the parser.

use super::word;
use crate::llm::fixtures::{Outcome, call, read, request, text};
use crate::llm::{anthropic, openai};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

/// The textual form of an event: its line ends, the space behind a colon, a line before it, and whether its JSON
/// has line breaks.
type Form = (&'static str, &'static str, &'static str, bool);

/// Reads a stream with the assembler of one API.
type Reader = fn(&[&[u8]]) -> Outcome;

fn messages(pieces: &[&[u8]]) -> Outcome {
    let assembler = anthropic::reply::Assembler::new(&request(vec![]), "m");
    read(assembler, pieces.iter().copied())
}

fn completions(pieces: &[&[u8]]) -> Outcome {
    let assembler = openai::reply::Assembler::new(&request(vec![]), "m");
    read(assembler, pieces.iter().copied())
}

/// Splits the stream at the given places.
pub(in crate::llm) fn cut<'a>(stream: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect()
}

fn bytes(stream: &[u8]) -> Vec<&[u8]> {
    stream.chunks(1).collect()
}

/// The data of the events of one reply, by API.
const MESSAGES: &str = r#"{"type":"message_start","message":{"model":"m-1"}}
{"type":"ping"}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ä€ \"{\\"}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\r\nß🦀:"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"bash","input":{}}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":" \"ü🦀\"}"}}
{"type":"content_block_stop","index":1}
{"type":"message_delta","delta":{"stop_reason":"end_turn"}}
{"type":"message_stop"}"#;
const COMPLETIONS: &str = r#"{"model":"m-1","choices":[{"delta":{"role":"assistant","content":null}}]}
{"choices":[{"index":0,"delta":{"content":"ä€ \"{\\"},"finish_reason":null}]}
{"choices":[{"index":0,"delta":{"content":"\r\nß🦀:"},"finish_reason":null}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"a","function":{"name":"bash","arguments":""}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"command\":"}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":" \"ü🦀\"}"}}]}}]}
{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}
[DONE]"#;

/// Serializes events, each in its form.
fn lay_out(events: &str, forms: &[Form], start: &str) -> String {
    let mut stream = start.to_owned();
    for (data, (end, space, before, is_wide)) in events.lines().zip(forms.iter().cycle()) {
        let json: Option<Value> = serde_json::from_str(data).ok();
        let name = json.as_ref().map_or("", |json| word(json, "type"));
        let wide = json.as_ref().filter(|_| *is_wide).map(|json| format!("{json:#}"));
        if !before.is_empty() {
            stream.extend([before, *end]);
        }
        if !name.is_empty() {
            stream.extend(["event:", space, name, end]);
        }
        for line in wide.as_deref().unwrap_or(data).lines() {
            stream.extend(["data:", space, line, end]);
        }
        stream.push_str(end);
    }
    stream
}

fn forms() -> impl Strategy<Value = Vec<Form>> {
    let ends = select(vec!["\n", "\r\n", "\r"]);
    let before = select(vec!["", ": a comment", ":", "id: 7", "retry: 10", "unknown", ": ü🦀"]);
    let form = (ends, select(vec!["", " "]), before, any::<bool>());
    proptest::collection::vec(form, 1..6)
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    proptest::collection::vec(any::<Index>(), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_reply_does_not_depend_on_the_layout_and_the_chunks_of_its_stream(
        forms in forms(), cuts in cuts(), start in select(vec!["", "\u{feff}"]),
    ) {
        let said = "ä€ \"{\\\r\nß🦀:";
        for (read, events) in [(messages as Reader, MESSAGES), (completions, COMPLETIONS)] {
            let stream = lay_out(events, &forms, start).into_bytes();
            let whole = read(&[&stream]);
            for at in 0..=stream.len() {
                let (head, tail) = stream.split_at(at);
                prop_assert_eq!(&read(&[head, tail]), &whole, "cut at {}", at);
            }
            prop_assert_eq!(&read(&bytes(&stream)), &whole, "in single bytes");
            prop_assert_eq!(&read(&cut(&stream, &cuts)), &whole, "in many pieces");
            let (reply, shown) = whole;
            let call = call("a", "bash", json!({"command": "ü🦀"}));
            prop_assert_eq!((reply.unwrap().blocks, shown.as_str()), (vec![text(said), call], said));
        }
    }
}

/// Fragments of streams with `|` between, and the data of events of both APIs.
const FRAGMENTS: &str = "\n|\n\n|\r|\r\n|\r\n\r\n|data:|data: |data: {|event: |:|\u{feff}|id: 1\n|\
    event: message_start\n|event: content_block_delta\n|event: vendor_event\n|event: error\n";
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
{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":{}}}]}}]}"#;

/// Fragments of streams of both APIs, and malformed data.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let known = select(FRAGMENTS.split('|').collect::<Vec<_>>()).prop_map(str::to_owned);
    let events =
        select(EVENTS.lines().collect::<Vec<_>>()).prop_map(|it| format!("data: {it}\n\n"));
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
        for read in [messages as Reader, completions] {
            let whole = read(&[&stream]);
            prop_assert_eq!(&read(&cut(&stream, &cuts)), &whole);
            prop_assert_eq!(&read(&bytes(&stream)), &whole);
        }
        Ok(())
    };
    runner.run(&(scraps(), cuts()), same).unwrap();
}
