//! The line by which a host tells one that it has added over ssh what to serve. It goes through the standard input of the
//! other relay, so that the password of the server is in no argument and no file there.

use crate::own_server::ServerAccess;
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<(String, String)>,
}

impl Invitation {
    pub(crate) fn access(&self) -> ServerAccess {
        ServerAccess { addresses: self.servers.clone(), credentials: self.credentials.clone() }
    }
}

/// The line by which the other relay says that it serves.
pub(crate) const SERVING: &str = "serving";
