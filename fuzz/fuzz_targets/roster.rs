//! Fuzzes the parser of `config.json`: it must not panic, and what it accepts must survive a rewrite.

#![no_main]

use agent_team::wire::WithUnknownFields;
use agent_team::wire::roster::Roster;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(roster) = serde_json::from_slice::<WithUnknownFields<Roster>>(file) else { return };
    let written = serde_json::to_vec(&roster).unwrap();
    let read: WithUnknownFields<Roster> = serde_json::from_slice(&written).unwrap();
    assert_eq!(serde_json::to_vec(&read).unwrap(), written);
});
