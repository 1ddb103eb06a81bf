//! Fuzzes the parser of inbox lines: it must not panic, and the parser for most lines must agree with the one for
//! all lines.

#![no_main]

use agent_team::wire::message::Message;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|line: &str| {
    let whole = serde_json::from_str::<Map<String, Value>>(line).ok();
    let whole = whole.as_ref().map(Message::read);
    if let Some(plain) = Message::read_plain(line) {
        assert_eq!(Some(Ok(plain)), whole);
    }
});
