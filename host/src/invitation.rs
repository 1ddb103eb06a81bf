//! The lines by which a host and one that it has added over ssh come to know each other: they go through the standard streams of
//! the other relay, which `ssh` protects.
//!
//! ```text
//!   here  -> there   the invitation: name, team, servers
//!   there -> here    the public keys, which were made there
//!   here  -> there   the membership: the certificate of these keys
//!   there -> here    "serving"
//! ```

use crate::own_server::ServerAccess;
use crate::trust::PublicKeys;
use agent_team::wire::carried::HostName;
use serde::{Deserialize, Serialize};

/// The name and the team of a host that was added, and the way to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    pub(crate) host: HostName,
    pub(crate) team: String,
    pub(crate) servers: Vec<String>,
    /// The labels of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    /// Whether the host logs in at the server by its key.
    #[serde(default)]
    pub(crate) asks_for_login: bool,
    /// The fingerprint of the certificate of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<String>,
    /// The keys with which it is signed in.
    #[serde(default)]
    pub(crate) keys: InvitedKeys,
}

/// The keys of a host that is invited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InvitedKeys {
    /// Those that it has.
    #[default]
    Kept,
    /// New ones: it is not signed in now, and those of before were perhaps withdrawn because somebody else has them.
    New,
}

impl Invitation {
    pub(crate) fn access(&self) -> ServerAccess {
        let (addresses, pin) = (self.servers.clone(), self.pin.clone());
        ServerAccess { addresses, asks_for_login: self.asks_for_login, pin }
    }
}

/// The line with the public keys of the other host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeysLine {
    pub(crate) keys: PublicKeys,
}

impl KeysLine {
    /// Finds the line in what the other host has said so far; greetings may stand before it.
    pub(crate) fn find(said: &[u8]) -> Option<Self> {
        let end = said.iter().rposition(|byte| *byte == b'\n')?;
        let mut lines = said.get(..end)?.split(|byte| *byte == b'\n');
        lines.find_map(|line| serde_json::from_slice(line).ok())
    }
}

/// The line by which the other relay says that it serves.
pub(crate) const SERVING: &str = "serving";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_found_between_the_lines_of_a_greeting() {
        let line = r#"{"keys":{"signing":"s","connection":"U1"}}"#;
        let found = |text: &str| KeysLine::find(text.as_bytes()).map(|it| it.keys.connection);
        assert_eq!(found(&format!("Welcome!\n{line}\nmore")).as_deref(), Some("U1"));
        assert_eq!(found(line), None, "the rest of the line is on its way");
        assert_eq!(found("Welcome!\n{}\n"), None);
    }
}
