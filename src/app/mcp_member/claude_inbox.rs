//! The inbox socket of Claude Code, by which other programs write to its session: mail wakes its model there. Claude Code
//! names the socket and a token in the environment of the programs that it starts.

use crate::settings::environment::Environment;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The time within which the session must accept a message.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) struct ClaudeInbox {
    socket: PathBuf,
    token: String,
}

impl ClaudeInbox {
    /// Finds the socket of the session that has started this process.
    pub(super) fn find(environment: &Environment) -> Option<Self> {
        let socket = environment.get("CLAUDE_CODE_MESSAGING_SOCKET")?.into();
        let token = environment.get("CLAUDE_CODE_MESSAGING_TOKEN")?.to_owned();
        Some(Self { socket, token })
    }

    /// Writes a message to the session. Fails if the session does not accept it.
    pub(super) async fn write(&self, content: &str) -> io::Result<()> {
        let auth = serde_json::json!({ "type": "auth", "token": self.token });
        let message = serde_json::json!({ "role": "user", "content": content });
        let message = serde_json::json!({ "type": "user", "message": message, "from": "team" });
        let lines = format!("{auth}\n{message}\n");
        let write = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            stream.write_all(lines.as_bytes()).await?;
            stream.shutdown().await
        };
        timeout(LIMIT, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
