//! Files about MCP servers, below `run/.state/mcp`: the lists of their tools, so that a server runs only while it is used,
//! and the servers of living agents.
//!
//! `SERVER-DIGEST.json` has the tools of a server with one definition. `AGENT.SERVER.state` is a view for people, which
//! only that agent writes and which is never synced. Neither is trusted: the digests of accepted tools are in the
//! user's own state folder ([`crate::store::tool_pins`]).

use super::file::atomic::{Fsync, json_line, remove, replace};
use super::file::read::{names_in, read_json};
use super::teamdir::make_folder;
use super::{StoreError, TeamDir};
use crate::os::file::{Access, create_new};
use crate::os::identity::ProcessIdentity;
use crate::wire::limits::MIB;
use crate::wire::{AgentName, WallTime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;

/// The maximum size of a list of tools, in bytes.
const MAX_LIST_BYTES: u64 = 32 * MIB;

/// The suffix of the records of servers.
const STATE: &str = ".state";

/// A server of one agent, as `team mcp-servers` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerRecord {
    pub(crate) agent: String,
    pub(crate) server: String,
    /// The supervisor of its process; `None` if it does not run, and for an endpoint.
    #[serde(default)]
    pub(crate) process: Option<ProcessIdentity>,
    /// The time of its last start, or of the attempt.
    pub(crate) since: WallTime,
    /// The calls that it has answered since.
    #[serde(default)]
    pub(crate) calls: u64,
    /// The reason for which it could not be used last.
    #[serde(default)]
    pub(crate) problem: Option<String>,
}

/// Returns the tools of a server with one definition, as they were listed last; `None` if they were not, or cannot be
/// read.
pub(crate) fn tools<T: DeserializeOwned>(dir: &TeamDir, server: &str, digest: &str) -> Option<T> {
    read_json(&dir.mcp_tools(server, digest), MAX_LIST_BYTES).ok().flatten()
}

/// Keeps the tools of a server. Fails if the disk is full.
pub(crate) fn keep_tools(
    dir: &TeamDir,
    server: &str,
    digest: &str,
    tools: &impl Serialize,
) -> Result<(), StoreError> {
    let path = dir.mcp_tools(server, digest);
    make_folder(&dir.mcp())?;
    Ok(replace(&path, &json_line(tools, &path)?, Fsync::Never)?)
}

/// Publishes the record of a server.
pub(crate) fn publish(
    dir: &TeamDir,
    agent: &AgentName,
    record: &ServerRecord,
) -> Result<(), StoreError> {
    let path = dir.mcp_state(agent, &record.server);
    make_folder(&dir.mcp())?;
    Ok(replace(&path, &json_line(record, &path)?, Fsync::Never)?)
}

/// Removes the record of a server.
pub(crate) fn withdraw(dir: &TeamDir, agent: &AgentName, server: &str) -> Result<(), StoreError> {
    Ok(remove(&dir.mcp_state(agent, server))?)
}

/// Returns the records of all servers, by agent and server.
pub(crate) fn records(dir: &TeamDir) -> Result<Vec<ServerRecord>, StoreError> {
    let mut records = Vec::new();
    for path in state_files(dir)? {
        records.extend(read_json::<ServerRecord>(&path, MAX_LIST_BYTES).ok().flatten());
    }
    records.sort_by(|one, other| (&one.agent, &one.server).cmp(&(&other.agent, &other.server)));
    Ok(records)
}

/// Returns the files of this folder that belong to no living process, once no agent runs.
pub(crate) fn files(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let names = names_in(&dir.mcp())?;
    Ok(names.into_iter().map(|name| dir.mcp().join(name)).collect())
}

fn state_files(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let is_state = |path: &PathBuf| path.to_string_lossy().ends_with(STATE);
    Ok(files(dir)?.into_iter().filter(is_state).collect())
}

/// Creates the file for what a server prints on standard error, in the place of the earlier one.
pub(crate) fn printed_by(
    dir: &TeamDir,
    agent: &AgentName,
    server: &str,
) -> Result<File, StoreError> {
    let path = dir.printed_by_server(agent, server);
    remove(&path)?;
    Ok(create_new(&path, Access::Append)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn lists_and_records_are_read_as_they_were_written() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(tools::<Vec<u8>>(&dir, "git", "0f"), None);
        assert_eq!(records(&dir).unwrap(), []);
        keep_tools(&dir, "git", "0f", &[1, 2]).unwrap();
        assert_eq!(tools::<Vec<u8>>(&dir, "git", "0f"), Some(vec![1, 2]));
        assert_eq!(tools::<Vec<u8>>(&dir, "git", "1f"), None);
        let long = vec!["a description".repeat(100); 1000];
        keep_tools(&dir, "git", "1f", &long).unwrap();
        assert_eq!(tools::<Vec<String>>(&dir, "git", "1f"), Some(long));
        let process = Some(ProcessIdentity::current());
        let record = ServerRecord {
            agent: "alice".into(),
            server: "git".into(),
            process,
            since: WallTime::from_secs(7.5),
            calls: 2,
            problem: None,
        };
        publish(&dir, &alice, &record).unwrap();
        assert_eq!(records(&dir).unwrap(), [record]);
        withdraw(&dir, &alice, "git").unwrap();
        assert_eq!((records(&dir).unwrap().len(), files(&dir).unwrap().len()), (0, 2));
    }
}
