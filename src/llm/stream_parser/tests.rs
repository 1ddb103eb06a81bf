//! Properties of both APIs: the layout and the chunks of a stream never change its reply, and no input
//! breaks the parser.

use super::*;
use crate::llm::{anthropic, openai};
use crate::wire::chat::Request;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

/// The result of a stream, and the text that was shown.
type Outcome = (Result<Reply, Fault>, String);

/// A block of a message as a list of chunks.
#[derive(Debug, Clone)]
enum Block {
    Text(Vec<String>),
    Call(Vec<String>),
}

/// The textual form of an event.
#[derive(Debug, Clone)]
struct Form {
    end: &'static str,
    space: &'static str,
    before: &'static str,
    is_wide: bool,
}

fn request() -> Request {
    Request { system: String::new(), messages: vec![], tools: vec![], max_tokens: 1 }
}

fn messages() -> anthropic::Assembler {
    anthropic::Assembler::new(&request(), "m")
}

fn completions() -> openai::Assembler {
    openai::Assembler::new(&request(), "m")
}

fn read<'a, S: Assemble>(assembler: S, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut shown = String::new();
    let mut sink = |delta| {
        if let Delta::Text(text) = delta {
            shown.push_str(&text);
        }
    };
    let mut stream_parser = StreamParser::new(assembler);
    for piece in pieces {
        match stream_parser.push(piece, &mut sink) {
            Ok(false) => {}
            Ok(true) => return (Ok(stream_parser.finish()), shown),
            Err(fault) => return (Err(fault), shown),
        }
    }
    (stream_parser.close(), shown)
}

/// Splits the stream at the given places.
fn cut<'a>(stream: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect()
}

/// Asserts that the stream gives the same result as a whole, in single bytes and in the given chunks.
fn assert_same<S: Assemble>(make: fn() -> S, stream: &[u8], cuts: &[Index]) -> Outcome {
    let whole = read(make(), [stream]);
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(read(make(), [head, tail]), whole, "cut at {at}");
    }
    assert_eq!(read(make(), stream.chunks(1)), whole, "in single bytes");
    assert_eq!(read(make(), cut(stream, cuts)), whole, "in many pieces");
    whole
}

/// Serializes events, each in its form.
fn lay_out(events: &[(&str, Value)], forms: &[Form], start: &str) -> Vec<u8> {
    let mut text = start.to_owned();
    for ((name, data), form) in events.iter().zip(forms.iter().cycle()) {
        let Form { end, space, before, is_wide } = form;
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
        ("message_start", json!({"type": "message_start", "message": {"model": "m-1"}})),
        ("ping", json!({"type": "ping"})),
    ];
    for (index, block) in blocks.iter().enumerate() {
        let (opening, kind, key, pieces) = match block {
            Block::Text(pieces) => {
                (json!({"type": "text", "text": ""}), "text_delta", "text", pieces)
            }
            Block::Call(pieces) => {
                let id = format!("call-{index}");
                let opening = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
                (opening, "input_json_delta", "partial_json", pieces)
            }
        };
        let start =
            json!({"type": "content_block_start", "index": index, "content_block": opening});
        events.push(("content_block_start", start));
        events.extend(pieces.iter().map(|piece| {
            let delta = json!({"type": kind, key: piece});
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            ("content_block_delta", delta)
        }));
        events.push(("content_block_stop", json!({"type": "content_block_stop", "index": index})));
    }
    let end = json!({"stop_reason": "end_turn"});
    events.push(("message_delta", json!({"type": "message_delta", "delta": end})));
    events.push(("message_stop", json!({"type": "message_stop"})));
    events
}

fn completions_events(blocks: &[Block]) -> Vec<(&'static str, Value)> {
    let chunk = |delta: Value, reason: Value| {
        ("", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": null}), Value::Null)];
    for (index, block) in blocks.iter().enumerate() {
        let deltas = match block {
            Block::Text(pieces) => pieces.iter().map(|piece| json!({"content": piece})).collect(),
            Block::Call(pieces) => {
                let named = json!({"name": "bash", "arguments": ""});
                let mut calls = vec![json!({"index": index, "id": "c", "function": named})];
                calls[0]["id"] = format!("call-{index}").into();
                calls.extend(
                    pieces
                        .iter()
                        .map(|piece| json!({"index": index, "function": {"arguments": piece}})),
                );
                calls.into_iter().map(|call| json!({"tool_calls": [call]})).collect::<Vec<_>>()
            }
        };
        events.extend(deltas.into_iter().map(|delta| chunk(delta, Value::Null)));
    }
    events.push(chunk(json!({}), "stop".into()));
    events
        .push(("", json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})));
    events.push(("", "[DONE]".into()));
    events
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let pieces = || proptest::collection::vec("[a-z \"\\\\\n\r{}:äß€🦀]{1,7}", 0..4);
    let block = prop_oneof![pieces().prop_map(Block::Text), pieces().prop_map(Block::Call)];
    proptest::collection::vec(block, 0..4)
}

fn forms() -> impl Strategy<Value = Vec<Form>> {
    let ends = select(vec!["\n", "\r\n", "\r"]);
    let before = select(vec!["", ": a comment", ":", "id: 7", "retry: 10", "unknown", ": ü🦀"]);
    let form = (ends, select(vec!["", " "]), before, any::<bool>());
    let form = form.prop_map(|(end, space, before, is_wide)| Form { end, space, before, is_wide });
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
        let said: String = blocks.iter().map(|block| match block {
            Block::Text(pieces) => pieces.concat(),
            Block::Call(_) => String::new(),
        }).collect();
        let calls = blocks.iter().filter(|block| matches!(block, Block::Call(_))).count();
        let count = |reply: &Reply| {
            let is_call = |block: &&_| matches!(block, crate::wire::chat::Block::ToolUse { .. });
            reply.blocks.iter().filter(is_call).count()
        };

        let stream = lay_out(&messages_events(&blocks), &forms, start);
        let (reply, shown) = assert_same(messages, &stream, &cuts);
        prop_assert_eq!((&shown, count(&reply.unwrap())), (&said, calls));

        let stream = lay_out(&completions_events(&blocks), &forms, start);
        let (reply, shown) = assert_same(completions, &stream, &cuts);
        prop_assert_eq!((&shown, count(&reply.unwrap())), (&said, calls));
    }
}

/// Fragments of streams of both APIs, and malformed data.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
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
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":-1}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"ä\"}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":7}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
        "data: {\"type\":\"error\",\"error\":{}}\n\n",
        "data: []\n\n",
        "data: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"x\",\"arguments\":{}}}]}}]}\n\n",
    ]);
    let scrap = prop_oneof![
        6 => known.prop_map(|text| text.as_bytes().to_vec()),
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
        let pieces = cut(&stream, &cuts);
        let whole = read(messages(), [stream.as_slice()]);
        prop_assert_eq!(&read(messages(), pieces.iter().copied()), &whole);
        prop_assert_eq!(&read(messages(), stream.chunks(1)), &whole);
        let whole = read(completions(), [stream.as_slice()]);
        prop_assert_eq!(&read(completions(), pieces), &whole);
        prop_assert_eq!(&read(completions(), stream.chunks(1)), &whole);
        Ok(())
    };
    runner.run(&(scraps(), cuts()), same).unwrap();
}
