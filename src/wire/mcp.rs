//! MCP servers: their definition in settings and in the lead's handshake, and the names of their tools.
//!
//! A tool of a server has the name `mcp__SERVER__TOOL` for models, rules and roles, as Claude Code writes it.

use super::file_view::ContentHash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The beginning of the name of each tool of a server.
pub const TOOL_PREFIX: &str = "mcp__";

/// The maximum number of characters of a tool's name, which the endpoints of models accept.
pub const MAX_TOOL_NAME_CHARS: usize = 64;

/// The maximum number of characters of a server's name.
const MAX_SERVER_NAME_CHARS: usize = 32;

/// The time in which a server answers a call if its definition names no other, in seconds.
pub const CALL_SECONDS: u64 = 60;

/// The longest `timeout` of a definition, in seconds.
const MAX_CALL_SECONDS: u64 = 3600;

/// The definition of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DefinitionFields", into = "DefinitionFields")]
pub struct McpServer {
    /// The way to the server.
    pub transport: McpTransport,
    /// The time in which it answers a call, in seconds; `None` means [`CALL_SECONDS`].
    pub timeout: Option<u64>,
    /// The tools, under the server's own names, that run without a question; `*` means all.
    pub allow: Vec<String>,
    /// The agents that have its tools; `None` means all.
    pub agents: Option<Vec<String>>,
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program, which speaks on its standard input and output.
    Stdio {
        /// The program: a path, or a name to look for in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables besides those of the agent's commands.
        env: BTreeMap<String, String>,
        /// The folder in which it starts, if not that in which the agent works.
        cwd: Option<String>,
    },
    /// An endpoint, spoken to by streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// The headers of each request.
        headers: BTreeMap<String, String>,
    },
}

/// A definition as files have it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DefinitionFields {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<String>>,
}

impl TryFrom<DefinitionFields> for McpServer {
    type Error = String;

    fn try_from(fields: DefinitionFields) -> Result<Self, String> {
        let DefinitionFields {
            kind,
            command,
            args,
            env,
            cwd,
            url,
            headers,
            timeout,
            allow,
            agents,
        } = fields;
        if let Some(kind) = kind.as_deref()
            && !matches!(kind, "stdio" | "http" | "streamable-http")
        {
            return Err(format!(
                "a server of the type {kind:?} is not supported; the types are \"stdio\" and \"http\""
            ));
        }
        if timeout.is_some_and(|timeout| !(1..=MAX_CALL_SECONDS).contains(&timeout)) {
            return Err(format!("the timeout of a server is from 1 to {MAX_CALL_SECONDS} seconds"));
        }
        let is_program = kind.as_deref() == Some("stdio");
        let is_endpoint = kind.as_deref().is_some_and(|kind| kind != "stdio");
        let transport = match (command, url) {
            (Some(command), None) if !is_endpoint => {
                if !headers.is_empty() {
                    return Err(
                        "a server with a command has no headers; `env` has its variables".into()
                    );
                }
                let parts = [&command].into_iter().chain(&args).chain(env.values());
                if command.trim().is_empty() || parts.chain(&cwd).any(|text| text.contains('\0')) {
                    return Err(
                        "the command of a server is empty or contains a NUL character".into()
                    );
                }
                McpTransport::Stdio { command, args, env, cwd }
            }
            (None, Some(url)) if !is_program => {
                if !(args.is_empty() && env.is_empty() && cwd.is_none()) {
                    return Err("a server with a url has no args, env or cwd".into());
                }
                McpTransport::Http { url, headers }
            }
            (Some(_), Some(_)) => return Err("a server has a command or a url, not both".into()),
            _ => return Err("a server has a `command`, or `type = \"http\"` and a `url`".into()),
        };
        Ok(Self { transport, timeout, allow, agents })
    }
}

impl From<McpServer> for DefinitionFields {
    fn from(McpServer { transport, timeout, allow, agents }: McpServer) -> Self {
        let common = Self { timeout, allow, agents, ..Self::default() };
        match transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                Self { command: Some(command), args, env, cwd, ..common }
            }
            McpTransport::Http { url, headers } => {
                Self { kind: Some("http".into()), url: Some(url), headers, ..common }
            }
        }
    }
}

impl McpServer {
    /// Applies `change` to each text in which a variable may stand: command, arguments, variables, folder, address
    /// and headers.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn map_texts(
        &self,
        change: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let all =
            |texts: &[String]| texts.iter().map(|text| change(text)).collect::<Result<_, _>>();
        let values = |texts: &BTreeMap<String, String>| {
            let changed = texts.iter().map(|(name, text)| Ok((name.clone(), change(text)?)));
            changed.collect::<Result<_, String>>()
        };
        let transport = match &self.transport {
            McpTransport::Stdio { command, args, env, cwd } => McpTransport::Stdio {
                command: change(command)?,
                args: all(args)?,
                env: values(env)?,
                cwd: cwd.as_deref().map(&change).transpose()?,
            },
            McpTransport::Http { url, headers } => {
                McpTransport::Http { url: change(url)?, headers: values(headers)? }
            }
        };
        Ok(Self { transport, ..self.clone() })
    }

    /// Returns the command line or the address, for people. Values of variables and headers are left out, since they may
    /// be secrets.
    pub fn summary(&self) -> String {
        match &self.transport {
            McpTransport::Stdio { command, args, .. } => {
                [command].into_iter().chain(args).cloned().collect::<Vec<_>>().join(" ")
            }
            // The part before an @ may be a password.
            McpTransport::Http { url, .. } => url.rsplit('@').next().unwrap_or_default().into(),
        }
    }
}

/// The file that defines a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpOrigin {
    /// The user's own settings. What such a server says of its tools counts.
    User,
    /// A file of the folder.
    Folder,
}

/// A server that agents may use, with the values of all variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMcpServer {
    /// The name, which is part of the names of its tools.
    pub name: String,
    /// The file that defines it.
    pub origin: McpOrigin,
    /// The definition.
    pub server: McpServer,
}

impl NamedMcpServer {
    /// Returns the digest of the definition, with all values.
    pub fn digest(&self) -> String {
        let definition = serde_json::to_string(&self.server).unwrap_or_default();
        ContentHash::of(definition.as_bytes()).as_str().to_owned()
    }
}

/// The name of a server in settings. It is a part of the names of its tools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct McpServerName(String);

impl TryFrom<String> for McpServerName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let rule = "letters, digits, `-` and single `_` inside, at most 32";
        let refused = || format!("{name:?} is not a name for an MCP server ({rule})");
        if is_server_name(&name) { Ok(Self(name)) } else { Err(refused()) }
    }
}

impl From<McpServerName> for String {
    fn from(name: McpServerName) -> Self {
        name.0
    }
}

impl fmt::Display for McpServerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Whether settings can name a server so: its tools' names must be legible, and split in one way.
pub fn is_server_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=MAX_SERVER_NAME_CHARS).contains(&name.len())
        && name.chars().all(fits)
        && !name.contains("__")
        && !name.starts_with('_')
        && !name.ends_with('_')
}

/// Returns the name of a server's tool. Characters that endpoints refuse become `_`; a name that is too long is cut and
/// gets a hash of the whole as its end.
pub fn tool_name(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain: String = tool.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = format!("{TOOL_PREFIX}{server}__{plain}");
    if name.len() <= MAX_TOOL_NAME_CHARS {
        return name;
    }
    // FNV-1a, so that the name is the same in each process and version.
    let hash = format!("{server}\0{tool}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let kept: String = name.chars().take(MAX_TOOL_NAME_CHARS - 7).collect();
    format!("{kept}_{:06x}", hash & 0x00ff_ffff)
}

/// Whether a rule or a role means a tool of a server by this word: a tool's name, `mcp__SERVER` or `mcp__SERVER__*` for
/// all tools of a server, or `mcp__SERVER__BEGIN*`.
pub fn is_tool_pattern(word: &str) -> bool {
    let Some(rest) = word.strip_prefix(TOOL_PREFIX) else { return false };
    let plain = rest.strip_suffix('*').unwrap_or(rest);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !plain.is_empty() && plain.chars().all(fits)
}

/// Whether such a word covers the tool of this name.
pub fn covers_tool(word: &str, name: &str) -> bool {
    if word == name {
        return true;
    }
    let Some(rest) = word.strip_prefix(TOOL_PREFIX) else { return false };
    match word.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        // The name of a server alone.
        None => {
            is_server_name(rest)
                && name.strip_prefix(word).is_some_and(|tool| tool.starts_with("__"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_a_program_or_an_endpoint() {
        let parse =
            |value| serde_json::from_value::<McpServer>(value).map_err(|why| why.to_string());
        let program =
            json!({"command": "git-mcp", "args": ["-q"], "env": {"A": "b"}, "allow": ["x"]});
        let server = parse(program.clone()).unwrap();
        assert_eq!(serde_json::to_value(&server).unwrap(), program);
        assert_eq!(server.summary(), "git-mcp -q");
        let endpoint = json!({"type": "http", "url": "https://u:p@h/mcp", "headers": {"X": "y"}});
        let server = parse(endpoint.clone()).unwrap();
        assert_eq!(serde_json::to_value(&server).unwrap(), endpoint);
        assert_eq!(server.summary(), "h/mcp");
        for (wrong, why) in [
            (json!({}), "has a `command`"),
            (json!({"command": " "}), "empty"),
            (json!({"command": "a\u{0}"}), "NUL"),
            (json!({"command": "a", "url": "b"}), "not both"),
            (json!({"command": "a", "headers": {"X": "y"}}), "no headers"),
            (json!({"type": "http", "command": "a"}), "has a `command`"),
            (json!({"type": "sse", "url": "b"}), "\"sse\" is not supported"),
            (json!({"url": "b", "args": ["x"]}), "no args"),
            (json!({"command": "a", "timeout": 0}), "from 1 to 3600"),
            (json!({"command": "a", "comand": "b"}), "comand"),
        ] {
            let found = parse(wrong.clone()).unwrap_err();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }

    #[test]
    fn a_word_of_a_rule_covers_one_tool_those_of_a_server_or_those_with_a_beginning() {
        for (word, name, covers) in [
            ("mcp__git__git_log", "mcp__git__git_log", true),
            ("mcp__git__git_log", "mcp__git__git_log2", false),
            ("mcp__git", "mcp__git__git_log", true),
            ("mcp__git", "mcp__github__x", false),
            ("mcp__git__*", "mcp__git__git_log", true),
            ("mcp__git__git_*", "mcp__git__reset", false),
            ("mcp__*", "mcp__any__tool", true),
            ("bash*", "bash_more", false),
        ] {
            assert_eq!(covers_tool(word, name), covers, "{word} {name}");
        }
        for (word, is_one) in [
            ("mcp__a__b", true),
            ("mcp__a*", true),
            ("mcp__", false),
            ("mcp__a b", false),
            ("bash", false),
        ] {
            assert_eq!(is_tool_pattern(word), is_one, "{word}");
        }
    }

    proptest! {
        #[test]
        fn a_tool_name_is_one_that_endpoints_accept(server in "[a-z]{1,32}", tool in ".{0,90}") {
            let name = tool_name(&server, &tool);
            prop_assert!(name.len() <= MAX_TOOL_NAME_CHARS && name.starts_with("mcp__"));
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
            let other = tool_name(&server, &format!("{tool}\u{7}"));
            prop_assert!(other != name, "{other}");
        }
    }
}
