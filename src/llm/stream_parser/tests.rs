//! Properties of both APIs: the layout and the chunks of a stream never change its reply, and no input
//! breaks the parser.

use crate::llm::fixtures::{Outcome, read, request};
use crate::llm::{anthropic, openai};
use crate::wire::chat::Reply;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

/// A block of a message as a list of chunks, and whether it is a call or text.
type Block = (bool, Vec<String>);

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

/// Asserts that the stream gives the same result as a whole, in two, in single bytes and in the given chunks.
fn assert_same(read: Reader, stream: &[u8], cuts: &[Index]) -> Outcome {
    let whole = read(&[stream]);
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(read(&[head, tail]), whole, "cut at {at}");
    }
    assert_eq!(read(&bytes(stream)), whole, "in single bytes");
    assert_eq!(read(&cut(stream, cuts)), whole, "in many pieces");
    whole
}

/// Serializes events, each in its form.
fn lay_out(events: &[(&str, Value)], forms: &[Form], start: &str) -> Vec<u8> {
    let mut text = start.to_owned();
    for ((name, data), form) in events.iter().zip(forms.iter().cycle()) {
        let (end, space, before, is_wide) = form;
        let data = match data.as_str() {
            Some(raw) => raw.to_owned(),
            None if *is_wide => format!("{data:#}"),
            None => data.to_string(),
        };
        if !before.is_empty() {
            text.push_str(&[before, *end].concat());
        }
        if !name.is_empty() {
            text.push_str(&["event:", space, name, end].concat());
        }
        for line in data.lines() {
            text.push_str(&["data:", space, line, end].concat());
        }
        text.push_str(end);
    }
    text.into_bytes()
}

fn messages_events(blocks: &[Block]) -> Vec<(&'static str, Value)> {
    let mut events = vec![
        ("message_start", json!({"message": {"model": "m-1"}})),
        ("ping", json!({"type": "ping"})),
    ];
    for (index, (is_call, pieces)) in blocks.iter().enumerate() {
        let (opening, kind, key) = if *is_call {
            let id = format!("call-{index}");
            let opening = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
            (opening, "input_json_delta", "partial_json")
        } else {
            (json!({"type": "text", "text": ""}), "text_delta", "text")
        };
        events.push(("content_block_start", json!({"index": index, "content_block": opening})));
        events.extend(pieces.iter().map(|piece| {
            let delta = json!({"type": kind, key: piece});
            ("content_block_delta", json!({"index": index, "delta": delta}))
        }));
        events.push(("content_block_stop", json!({"index": index})));
    }
    events.push(("message_delta", json!({"delta": {"stop_reason": "end_turn"}})));
    events.push(("message_stop", json!({})));
    for (name, data) in &mut events {
        data["type"] = (*name).into();
    }
    events
}

fn completions_events(blocks: &[Block]) -> Vec<(&'static str, Value)> {
    let mut deltas = vec![json!({"role": "assistant", "content": null})];
    for (index, (is_call, pieces)) in blocks.iter().enumerate() {
        if !is_call {
            deltas.extend(pieces.iter().map(|piece| json!({"content": piece})));
            continue;
        }
        let (id, named) = (format!("call-{index}"), json!({"name": "bash", "arguments": ""}));
        deltas.push(json!({"tool_calls": [{"index": index, "id": id, "function": named}]}));
        deltas.extend(pieces.iter().map(
            |piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
        ));
    }
    let chunk = |delta| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut events: Vec<Value> = deltas.into_iter().map(chunk).collect();
    events.extend([
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        "[DONE]".into(),
    ]);
    events.into_iter().map(|event| ("", event)).collect()
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let pieces = proptest::collection::vec("[a-z \"\\\\\n\r{}:äß€🦀]{1,7}", 0..4);
    proptest::collection::vec((any::<bool>(), pieces), 0..4)
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
    fn a_reply_does_not_depend_on_the_chunks_of_its_stream(
        blocks in blocks(), forms in forms(), cuts in cuts(), start in select(vec!["", "\u{feff}"]),
    ) {
        let texts = blocks.iter().filter(|(is_call, _)| !is_call);
        let said: String = texts.map(|(_, pieces)| pieces.concat()).collect();
        let calls = blocks.iter().filter(|(is_call, _)| *is_call).count();
        let count = |reply: &Reply| {
            let is_call = |block: &&_| matches!(block, crate::wire::chat::Block::ToolUse { .. });
            reply.blocks.iter().filter(is_call).count()
        };

        let streams = [messages_events(&blocks), completions_events(&blocks)];
        for (read, events) in [messages as Reader, completions].into_iter().zip(streams) {
            let (reply, shown) = assert_same(read, &lay_out(&events, &forms, start), &cuts);
            prop_assert_eq!((&shown, count(&reply.unwrap())), (&said, calls));
        }
    }
}

/// Fragments of streams, and the data of events of both APIs.
const FRAGMENTS: [&str; 16] = [
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\r\n\r\n",
    "data:",
    "data: ",
    "data: {",
    "event: ",
    ":",
    "\u{feff}",
    "id: 1\n",
    "event: message_start\n",
    "event: content_block_delta\n",
    "event: vendor_event\n",
    "event: error\n",
];
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
    let known = select(FRAGMENTS.to_vec()).prop_map(str::to_owned);
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
