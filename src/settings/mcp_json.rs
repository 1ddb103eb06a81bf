//! The file `.mcp.json` of the workspace, as other programs write it.

use crate::wire::mcp::{McpServer, McpServerName};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the workspace's file.
const FILE: &str = ".mcp.json";

/// The key of its servers, which is also its name in the list of trusted settings.
pub(super) const FILE_KEY: &str = "mcpServers";

/// The maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// The keys of a definition in that file that this program knows.
const KNOWN_KEYS: [&str; 8] =
    ["type", "command", "args", "env", "cwd", "url", "headers", "timeout"];

/// Keys of a definition that this program cannot honour. Without them the server would fail in an obscure way.
const UNSUPPORTED_KEYS: [&str; 2] = ["oauth", "headersHelper"];

/// The content of the workspace's file.
#[derive(Debug, Clone)]
pub(super) struct WorkspaceServers {
    pub(super) path: PathBuf,
    /// The value as it stands in the file, which is what the user trusts.
    pub(super) given: Value,
    pub(super) found: BTreeMap<McpServerName, McpServer>,
    /// In words for people.
    pub(super) problems: Vec<String>,
}

impl WorkspaceServers {
    /// Reads the file of the workspace of a team folder's settings file; `None` if it names no server. A file that is
    /// not understood is a problem and no failure, since it belongs to other programs.
    pub(super) fn read(folder_file: &Path) -> Option<Self> {
        let path = folder_file.parent()?.parent()?.join(FILE);
        let bytes = match std::fs::metadata(&path) {
            Ok(known) if !known.is_file() => Err("it is not a file".to_owned()),
            Ok(known) if known.len() > MAX_BYTES => Err("it has more than 1 MiB".to_owned()),
            Ok(_) => std::fs::read(&path).map_err(|why| why.to_string()),
            Err(_) => return None,
        };
        let value = bytes.and_then(|bytes| {
            serde_json::from_slice::<Value>(&bytes).map_err(|why| format!("it is not JSON ({why})"))
        });
        let nothing = |why: String| Self {
            problems: vec![format!("{} is ignored: {why}", path.display())],
            path: path.clone(),
            given: Value::Null,
            found: BTreeMap::new(),
        };
        match value.map(|mut value| value.get_mut(FILE_KEY).map(Value::take)) {
            Err(why) => Some(nothing(why)),
            Ok(None) => None,
            Ok(Some(Value::Object(mut servers))) => {
                servers.retain(|_, definition| !is_own_server(definition));
                (!servers.is_empty()).then(|| Self::of(path, servers))
            }
            Ok(Some(_)) => Some(nothing(format!("`{FILE_KEY}` is no object"))),
        }
    }

    fn of(path: PathBuf, servers: Map<String, Value>) -> Self {
        let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, definition) in &servers {
            let server = McpServerName::try_from(name.clone()).and_then(|name| {
                let Some(server) = parse(definition)? else { return Ok(None) };
                Ok(Some((name, server)))
            });
            match server {
                Ok(Some((name, server))) => drop(found.insert(name, server)),
                Ok(None) => {}
                Err(why) => {
                    problems
                        .push(format!("{}: the server {name:?} is ignored: {why}", path.display()));
                }
            }
        }
        Self { path, given: Value::Object(servers), found, problems }
    }
}

/// Whether a definition is the one by which other programs join the team (`team mcp install`). It is no server for the
/// team's own agents, and needs no trust, since it is never started for them.
fn is_own_server(definition: &Value) -> bool {
    let command = definition.get("command").and_then(Value::as_str).unwrap_or_default();
    let program = Path::new(command).file_name().and_then(|name| name.to_str());
    let first = definition.get("args").and_then(|args| args.get(0)).and_then(Value::as_str);
    program == Some("team") && first == Some("mcp")
}

/// Parses a definition of the workspace's file; `None` for one that is switched off. Unknown keys are those of other
/// programs.
fn parse(definition: &Value) -> Result<Option<McpServer>, String> {
    let Some(fields) = definition.as_object() else {
        return Err("its definition is no object".into());
    };
    if fields.get("disabled").and_then(Value::as_bool) == Some(true) {
        return Ok(None);
    }
    if let Some(key) = UNSUPPORTED_KEYS.into_iter().find(|key| fields.contains_key(*key)) {
        return Err(format!(
            "`{key}` is not supported; give the server a header or a variable instead"
        ));
    }
    let known = fields.iter().filter(|(key, _)| KNOWN_KEYS.contains(&key.as_str()));
    let mut known: Map<String, Value> =
        known.map(|(key, value)| (key.clone(), value.clone())).collect();
    // Other programs count this in milliseconds.
    if let Some(timeout) = known.get_mut("timeout")
        && let Some(given) = timeout.as_u64()
        && given >= 1000
    {
        *timeout = (given / 1000).into();
    }
    serde_json::from_value(Value::Object(known)).map(Some).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn read(content: &str) -> Option<WorkspaceServers> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), content).unwrap();
        WorkspaceServers::read(&folder.path().join(".team/settings.toml"))
    }

    #[test]
    fn the_definitions_of_other_programs_are_understood_or_named() {
        let file = json!({ "other": 1, "mcpServers": {
            "git": { "command": "git-mcp", "timeout": 30_000, "autoApprove": ["x"] },
            "off": { "command": "x", "disabled": true },
            "team": { "command": "/opt/bin/team", "args": ["mcp", "--as", "eve"] },
            "old": { "type": "sse", "url": "http://h" },
            "login": { "type": "http", "url": "https://h", "oauth": {} },
            "a b": { "command": "x" },
            "none": 7,
        } });
        let servers = read(&file.to_string()).unwrap();
        let names: Vec<String> = servers.found.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["git"]);
        assert_eq!(servers.found.values().next().unwrap().timeout, Some(30));
        assert_eq!(servers.problems.len(), 4, "{:?}", servers.problems);
        let trusted = servers.given.as_object().unwrap();
        assert!(trusted.contains_key("off") && !trusted.contains_key("team"));
        let own = json!({ "mcpServers": { "team": { "command": "team", "args": ["mcp"] } } });
        assert!(read(&own.to_string()).is_none() && read("{}").is_none());
        let broken = read("{\"mcpServers\":").unwrap();
        assert!(broken.given.is_null() && broken.problems[0].contains("it is not JSON"));
    }
}
