//! The versions of the protocol, and the metadata by which a request names its own.

use serde_json::{Map, Value, json};

/// The metadata of a request without a handshake, and of an answer to `server/discover`.
pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// The value of `resultType` of a result that asks for nothing more.
pub(crate) const COMPLETE: &str = "complete";

/// The way in which a connection begins. A server that was addressed in one way may refuse the other one for as long as
/// its process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// By the handshake of the versions up to 2025-11-25, which the servers of today know.
    Handshake,
    /// By `server/discover`, as of 2026-07-28. Each request has all that the server must know of the client.
    Discover,
}

/// A version of the protocol, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Version {
    pub(crate) const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The newest version with a handshake.
    pub(crate) const NEWEST_HANDSHAKE: Self = Self::V2025_11_25;

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the version of this name, if it is known.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == name)
    }

    pub(crate) fn era(self) -> Era {
        if self <= Self::NEWEST_HANDSHAKE { Era::Handshake } else { Era::Discover }
    }
}

/// Returns this program as the protocol describes a client or a server.
pub(crate) fn implementation(name: &str) -> Value {
    json!({ "name": name, "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the metadata that each request without a handshake has.
pub(super) fn request_meta(client: Value) -> Map<String, Value> {
    let fields = [
        (META_VERSION, Version::V2026_07_28.as_str().into()),
        (META_CLIENT, client),
        (META_CAPABILITIES, json!({})),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
