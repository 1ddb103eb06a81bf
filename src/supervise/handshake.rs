//! The handshake between a lead and a teammate that it spawns, over the control socket.
//!
//! The lead sends one message with all data for the teammate, including credentials, which never appear in
//! arguments or environment. The teammate answers once: ready, or the reason for its failure. After that the
//! socket carries no data; its end of file tells the teammate that the lead is gone.

use crate::settings::Rules;
use crate::settings::environment::PassedNames;
use crate::settings::model::ProviderCredentials;
use crate::wire::agent_program::AgentProgram;
use crate::wire::hook::Hook;
use crate::wire::isolation::ClonePlace;
use crate::wire::limits::MIB;
use crate::wire::mcp::NamedMcpServer;
use crate::wire::model_facts::ModelFacts;
use crate::wire::permission::Permissions;
use crate::wire::roster::ExitCause;
use crate::wire::sandbox::Sandbox;
use crate::wire::seal::SealKey;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};

const MAX_HANDSHAKE_BYTES: u64 = MIB;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handshake {
    pub(crate) incarnation: String,
    /// The key that seals the mail between the two; a teammate that is started by hand has none.
    pub(crate) control_key: Option<SealKey>,
    pub(crate) role: String,
    /// `provider/name` of its model.
    pub(crate) model: String,
    pub(crate) credentials: ProviderCredentials,
    /// The facts about its model.
    #[serde(default)]
    pub(crate) facts: ModelFacts,
    /// The models that go on if its own fails.
    #[serde(default)]
    pub(crate) fallbacks: Vec<FallbackModel>,
    pub(crate) rules: Rules,
    pub(crate) hooks: Vec<Hook>,
    /// The MCP servers that it may use.
    #[serde(default)]
    pub(crate) mcp_servers: Vec<NamedMcpServer>,
    /// The names of further variables that its commands get.
    pub(crate) pass_environment: PassedNames,
    pub(crate) permissions: Permissions,
    /// The walls around its commands.
    #[serde(default)]
    pub(crate) sandbox: Sandbox,
    /// The clone in which it works; `None` for the workspace.
    #[serde(default)]
    pub(crate) work: Option<ClonePlace>,
    /// The program of the agent of another vendor that does its work.
    #[serde(default)]
    pub(crate) agent: Option<AgentProgram>,
    pub(crate) start_reason: StartReason,
}

/// A model that goes on if another one fails.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FallbackModel {
    /// `provider/name`.
    pub(crate) model: String,
    /// The facts about it.
    pub(crate) facts: ModelFacts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StartReason {
    /// The lead's model has spawned it.
    Spawned,
    /// Its last process ended for this cause.
    Restarted(ExitCause),
    Resumed,
}

impl StartReason {
    /// Returns the text that is sent to the model of a restarted or resumed teammate.
    pub(crate) fn words(self) -> Option<String> {
        match self {
            Self::Spawned => None,
            Self::Restarted(ExitCause::Hung) => Some("your process hung and was restarted".into()),
            Self::Restarted(_) => Some("your process crashed and was restarted".into()),
            Self::Resumed => Some("the team had ended and has been resumed".into()),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HandshakeAnswer {
    /// It accepts mail.
    Ready,
    /// It cannot start, for this reason.
    Failed(String),
}

pub(crate) fn send(mut socket: impl Write, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(format!("{}\n", serde_json::to_string(message)?).as_bytes())
}

/// Reads a message, which is one line; `None` at end of file.
pub(crate) fn receive<T: for<'de> Deserialize<'de>>(socket: impl Read) -> io::Result<Option<T>> {
    let mut line = String::new();
    BufReader::new(socket.take(MAX_HANDSHAKE_BYTES)).read_line(&mut line)?;
    let message = line.ends_with('\n').then(|| serde_json::from_str(&line));
    Ok(message.transpose()?)
}
