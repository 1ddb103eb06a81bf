//! The team as its files show it: its state, its changes, and the path of one message.
//!
//! *Invariants:* a view changes nothing below `.team/`, calls no model and starts no process. It returns
//! data; `ui` and `web` lay it out and make untrusted text harmless.

pub(crate) mod change;
mod feed;
mod members;
mod opened;
pub(crate) mod requests;
mod snapshot;
pub(crate) mod trace;

pub(crate) use change::{Change, MessageProgress, Stage};
pub(crate) use feed::Feed;
pub(crate) use members::{MemberView, SubagentView, members};
#[cfg(test)]
pub(crate) use opened::OpenedMessage;
pub(crate) use snapshot::{Observer, Snapshot};

#[cfg(test)]
mod testing {
    use crate::store::TeamDir;
    use serde_json::Value;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    pub(super) fn team_folder() -> (tempfile::TempDir, TeamDir) {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, team)
    }

    pub(super) fn append(path: &Path, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Adds a line to a conversation or an inbox.
    pub(super) fn record(path: &Path, line: &Value) {
        append(path, &format!("{line}\n"));
    }
}
