//! The digests of the tools of MCP servers as the user has accepted them, in the user's own state folder.
//!
//! A server that changes the description or the arguments of a tool could give orders to a model, so such a tool is asked
//! about. A server's tools are accepted at its first use with one definition; no file below `.team/` counts.

use super::StoreError;
use super::file::atomic::{Fsync, pretty_json, replace};
use super::file::lock::exclusive;
use super::file::read::read_json;
use crate::os::file::At;
use crate::wire::limits::{LOCK_TIMEOUT, MIB};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The maximum size of the file, in bytes.
const MAX_BYTES: u64 = 64 * MIB;

/// The digest of each tool of a server, by the server's own name of the tool.
pub(crate) type ToolDigests = BTreeMap<String, String>;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct PinFile {
    version: u32,
    /// By the digest of the server's definition.
    servers: BTreeMap<String, PinnedServer>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct PinnedServer {
    /// For people: the name of the server when it was used first.
    name: String,
    tools: ToolDigests,
}

/// The file of the digests; without one, each tool counts as accepted.
#[derive(Debug, Clone)]
pub(crate) struct ToolPins {
    file: Option<PathBuf>,
}

impl ToolPins {
    /// Returns the pins in the user's state folder.
    pub(crate) fn below(state_home: Option<PathBuf>) -> Self {
        Self { file: state_home.map(|home| home.join("team/mcp-tools.json")) }
    }

    /// Returns the accepted digests of a server with this definition; `None` if it was not used.
    pub(crate) fn known(&self, definition: &str) -> Option<ToolDigests> {
        let known = read_json::<PinFile>(self.file.as_ref()?, MAX_BYTES).ok().flatten()?;
        known.servers.get(definition).map(|pinned| pinned.tools.clone())
    }

    /// Returns the accepted digests of a server with this definition. At its first use, the present ones are accepted.
    pub(crate) fn accepted(
        &self,
        (server, definition): (&str, &str),
        present: &ToolDigests,
    ) -> Result<ToolDigests, StoreError> {
        let Some(file) = &self.file else { return Ok(present.clone()) };
        let known = read_json::<PinFile>(file, MAX_BYTES)?.unwrap_or_default();
        if let Some(pinned) = known.servers.get(definition) {
            return Ok(pinned.tools.clone());
        }
        self.change((server, definition), |tools| {
            if tools.is_empty() {
                tools.clone_from(present);
            }
        })
    }

    /// Accepts these digests of a server, besides those that were accepted before.
    pub(crate) fn accept(
        &self,
        server: (&str, &str),
        digests: &ToolDigests,
    ) -> Result<ToolDigests, StoreError> {
        self.change(server, |tools| tools.extend(digests.clone()))
    }

    fn change(
        &self,
        (server, definition): (&str, &str),
        change: impl FnOnce(&mut ToolDigests),
    ) -> Result<ToolDigests, StoreError> {
        let Some(file) = &self.file else { return Ok(ToolDigests::new()) };
        if let Some(folder) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).at(folder)?;
        }
        // Agents that use a server for the first time at the same moment lose no entry.
        let lock = exclusive(&file.with_extension("lock"), LOCK_TIMEOUT)?;
        let mut known = read_json::<PinFile>(file, MAX_BYTES)?.unwrap_or_default();
        known.version = 1;
        let pinned = known.servers.entry(definition.to_owned()).or_default();
        server.clone_into(&mut pinned.name);
        change(&mut pinned.tools);
        let tools = pinned.tools.clone();
        replace(file, &pretty_json(&known, file)?, Fsync::Always)?;
        drop(lock);
        Ok(tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tools_are_accepted_and_later_ones_only_by_a_person() {
        let home = tempfile::tempdir().unwrap();
        let pins = ToolPins::below(Some(home.path().join("state")));
        let digests = |pairs: &[(&str, &str)]| -> ToolDigests {
            pairs.iter().map(|(name, digest)| ((*name).into(), (*digest).into())).collect()
        };
        let (first, git) = (digests(&[("log", "1"), ("diff", "2")]), ("git", "def"));
        assert_eq!(pins.accepted(git, &first).unwrap(), first);
        let later = digests(&[("log", "9"), ("diff", "2"), ("push", "3")]);
        assert_eq!(pins.accepted(git, &later).unwrap(), first);
        let accepted = pins.accept(git, &digests(&[("log", "9")])).unwrap();
        assert_eq!(accepted, digests(&[("log", "9"), ("diff", "2")]));
        assert_eq!(pins.accepted(git, &later).unwrap(), accepted);
        assert_eq!(pins.accepted(("git", "other"), &later).unwrap(), later);
        // A file that is not understood accepts nothing anew.
        let file = home.path().join("state/team/mcp-tools.json");
        crate::store::file::atomic::replace(&file, b"{", Fsync::Never).unwrap();
        assert!(pins.accepted(git, &later).is_err() && pins.accept(git, &first).is_err());
        let none = ToolPins::below(None);
        assert_eq!(none.accepted(git, &later).unwrap(), later);
    }
}
