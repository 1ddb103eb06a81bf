//! Fuzzes the check of names: a name that is accepted never leaves its folder, and a suggestion is a valid name.

#![no_main]

use agent_team::wire::AgentName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: &str| {
    match AgentName::mailbox(given) {
        Ok(name) => {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
            assert_eq!(name.as_str(), given);
            assert!((1..=32).contains(&given.len()) && given.bytes().all(is_plain));
        }
        Err(error) => {
            assert!(error.suggestion.is_none_or(|name| AgentName::member(&name).is_ok()));
        }
    }
});
