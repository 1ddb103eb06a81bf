//! The MCP servers of all layers: the tables `[mcp.servers.NAME]` of the settings files, and the file `.mcp.json` of the
//! workspace, as other programs write it.
//!
//! A folder's servers run programs, so both its tables and the whole value of its `.mcp.json` need trust.

use super::environment::{Environment, PassedNames};
use super::layers::{ConfigRow, Layers, Setting, SettingField, SettingMap, SettingSpec};
use super::mcp_json::{FILE_KEY, WorkspaceServers};
use super::value::SettingEntry;
use crate::error::Failure;
use crate::wire::mcp::{McpOrigin, McpServer, McpServerName, NamedMcpServer};
use std::collections::BTreeMap;

impl SettingEntry for McpServer {
    type Name = McpServerName;
    const IS_TRUSTED_AS_A_WHOLE: bool = false;
    const EXPECTED: &'static str =
        "a table of servers, each with a `command`, or with `type = \"http\"` and a `url`";

    fn shown(&self, _name: &McpServerName) -> String {
        self.summary()
    }

    fn acts_untrusted(&self, _: &Self::Name, own: Option<&Self>) -> bool {
        own == Some(self)
    }
}

/// The MCP servers of all layers.
#[derive(Debug, Clone, Default)]
pub(crate) struct McpServers {
    servers: SettingMap<McpServer>,
    /// The files of the folder; a server from another file is the user's own.
    folder_files: Vec<String>,
    /// The servers of the workspace's file that are not in force.
    pub(crate) untrusted: Vec<(String, McpServer)>,
    /// The problems of the workspace's file, in words for people.
    pub(crate) problems: Vec<String>,
}

impl SettingField for McpServers {
    type Default = ();

    fn read(spec: &SettingSpec, (): (), layers: &mut Layers<'_>) -> Result<Self, Failure> {
        let mut servers = SettingMap::<McpServer>::read(spec, (), layers)?;
        let Some(WorkspaceServers { path, given, found, problems }) = layers.workspace_servers()
        else {
            let folder_files = layers.folder_source().into_iter().collect();
            return Ok(Self { servers, folder_files, ..Self::default() });
        };
        if !given.is_null() {
            layers.risks.insert(FILE_KEY.into(), given.clone());
        }
        let source = path.display().to_string();
        let folder_files: Vec<String> =
            layers.folder_source().into_iter().chain([source.clone()]).collect();
        let mut untrusted = Vec::new();
        if layers.is_trusted {
            for (name, server) in found {
                // The folder's settings are nearer than this file, and the user's are farther.
                let is_nearer = |known: &Setting<McpServer>| folder_files.contains(&known.source);
                if !servers.get(&name).is_some_and(is_nearer) {
                    servers.insert(name, Setting { value: server, source: source.clone() });
                }
            }
        } else if !given.is_null() {
            layers.ignored.insert(FILE_KEY.into(), given);
            untrusted =
                found.into_iter().map(|(name, server)| (name.to_string(), server)).collect();
        }
        Ok(Self { servers, folder_files, untrusted, problems })
    }

    fn rows(&self, spec: &SettingSpec) -> Vec<ConfigRow> {
        self.servers.rows(spec)
    }
}

impl McpServers {
    /// Returns the file that defines a server.
    pub(crate) fn source(&self, name: &str) -> Option<&str> {
        let is_it = |(known, _): &(&McpServerName, &Setting<McpServer>)| known.to_string() == name;
        self.servers.iter().find(is_it).map(|(_, setting)| &*setting.source)
    }

    /// Returns the servers with the values of their variables, and a sentence about each that lacks one. A folder's
    /// servers get only the variables that commands get.
    pub(crate) fn resolved(
        &self,
        environment: &Environment,
        further: &PassedNames,
    ) -> (Vec<NamedMcpServer>, Vec<String>) {
        let passed: BTreeMap<String, String> = environment.passed_on(further).into_iter().collect();
        let (mut servers, mut problems) = (Vec::new(), Vec::new());
        for (name, Setting { value, source }) in &self.servers {
            let is_folders = self.folder_files.contains(source);
            let origin = if is_folders { McpOrigin::Folder } else { McpOrigin::User };
            let variable = |name: &str| match origin {
                McpOrigin::User => environment.get(name).map(ToOwned::to_owned),
                McpOrigin::Folder => passed.get(name).cloned(),
            };
            match value.map_texts(|text| with_variables(text, &variable)) {
                Ok(server) => {
                    servers.push(NamedMcpServer { name: name.to_string(), origin, server });
                }
                Err(missing) => problems.push(format!(
                    "the MCP server {name} ({source}) is not available: {}",
                    missing_variable(&missing, origin)
                )),
            }
        }
        (servers, problems)
    }
}

/// Says what to do about a variable that has no value.
fn missing_variable(name: &str, origin: McpOrigin) -> String {
    match origin {
        McpOrigin::User => {
            format!("the variable {name} is not set; set it, or write the value into the file")
        }
        McpOrigin::Folder => format!(
            "the variable {name} is not set, or not passed on to commands; name it in `pass_environment`, or define \
             the server with its credential in your own settings"
        ),
    }
}

/// Replaces `${NAME}` and `${NAME:-default}`.
///
/// # Errors
/// The name of a variable that has neither a value nor a default.
fn with_variables(
    text: &str,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, behind)) = after.split_once('}') else { break };
        out.push_str(before);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        out.push_str(&variable(name).or(default).ok_or_else(|| name.to_owned())?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stands_for_its_value_or_its_default() {
        let variable = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        for (text, expected) in [
            ("${HOME}/x", Ok("/h/x")),
            ("a${NOT:-b}c${HOME}", Ok("abc/h")),
            ("${NOT:-}", Ok("")),
            ("${NOT}", Err("NOT")),
            ("$HOME ${HOME", Ok("$HOME ${HOME")),
        ] {
            let expected = expected.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
            assert_eq!(with_variables(text, &variable), expected, "{text}");
        }
    }
}
