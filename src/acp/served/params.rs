//! The parameters of a client's requests.

use super::incoming::{INVALID_PARAMS, NOT_FOUND, RpcError};
use serde_json::Value;
use std::path::PathBuf;

/// The maximum length of an id of a session in an error, in characters.
const ID_CHARS: usize = 80;

/// The folder of a session, and the servers that the client wants it to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionPlace {
    /// An absolute path.
    pub(crate) cwd: PathBuf,
    /// The names of the MCP servers that the client has listed.
    pub(crate) mcp_servers: Vec<String>,
}

impl SessionPlace {
    /// Reads the place of a session that begins. Fails if there is no absolute path.
    pub(crate) fn read(params: &Value) -> Result<Self, RpcError> {
        let cwd = text(params, "cwd")?;
        if !cwd.starts_with('/') {
            let why = format!("`cwd` must be an absolute path, not {cwd:?}");
            return Err(RpcError::new(INVALID_PARAMS, why));
        }
        let servers = params.get("mcpServers").and_then(Value::as_array).into_iter().flatten();
        let names = servers.filter_map(|server| server.get("name")?.as_str());
        Ok(Self { cwd: cwd.into(), mcp_servers: names.map(ToOwned::to_owned).collect() })
    }
}

/// Reads the id of a session. Fails if there is none.
pub(crate) fn session_id(params: &Value) -> Result<&str, RpcError> {
    text(params, "sessionId")
}

/// Reads a text. Fails if there is none.
pub(crate) fn text<'v>(params: &'v Value, name: &str) -> Result<&'v str, RpcError> {
    params
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("`{name}` must be a text")))
}

/// Returns the error about a session that is not the one of this process.
pub(crate) fn no_such_session(id: &str, current: Option<&str>) -> RpcError {
    let id: String = id.chars().take(ID_CHARS).collect();
    let why = match current {
        Some(current) => format!(
            "there is no open session {id:?}: this process has session {current}; open the other one with session/load"
        ),
        None => format!("there is no open session {id:?}; begin with session/new or session/load"),
    };
    RpcError::new(NOT_FOUND, why)
}

/// The text of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptText {
    pub(crate) text: String,
    /// Whether a person has typed all of it, so that it may be a command.
    pub(crate) is_typed: bool,
}

/// Reads the content of a prompt: texts as they are, names of resources in place, and contents of resources after the
/// texts, in fences that they cannot close. Fails for an empty prompt, and for content that no model here can be given.
pub(crate) fn prompt(params: &Value) -> Result<PromptText, RpcError> {
    let invalid = |why: String| RpcError::new(INVALID_PARAMS, why);
    let blocks = params.get("prompt").and_then(Value::as_array);
    let blocks = blocks.ok_or_else(|| invalid("`prompt` must be a list of content".into()))?;
    let (mut said, mut attached, mut is_typed) = (String::new(), String::new(), true);
    for block in blocks {
        let kind = text(block, "type")?;
        is_typed &= kind == "text";
        match kind {
            "text" => said.push_str(text(block, "text")?),
            "resource_link" => {
                let (name, uri) = (block.get("name").and_then(Value::as_str), text(block, "uri")?);
                said.push_str(&reference(name, uri));
            }
            "resource" => {
                let resource = block.get("resource").unwrap_or(&Value::Null);
                let uri = text(resource, "uri")?;
                said.push_str(&reference(None, uri));
                let content = resource.get("text").and_then(Value::as_str);
                let content = content.map_or_else(|| unreadable(uri), |text| fenced(uri, text));
                attached.push_str(&content);
            }
            other => {
                let other: String = other.chars().take(ID_CHARS).collect();
                let why = format!(
                    "a prompt may have text and resources, not {other}; see promptCapabilities"
                );
                return Err(invalid(why));
            }
        }
    }
    let text = said + &attached;
    if text.trim().is_empty() {
        return Err(invalid("the prompt is empty".into()));
    }
    Ok(PromptText { text, is_typed })
}

/// Returns the words for a resource: its path if it is a file, else its name and URI.
fn reference(name: Option<&str>, uri: &str) -> String {
    if uri.starts_with("file://") || uri.starts_with('/') {
        return format!("`{}`", path_of(uri));
    }
    name.map_or_else(|| uri.to_owned(), |name| format!("[{name}]({uri})"))
}

/// Returns the path of a file's URI, with percent escapes resolved; another URI as it is.
fn path_of(uri: &str) -> String {
    let Some(path) = uri.strip_prefix("file://") else { return uri.to_owned() };
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| *first == b'%');
        let code = digits.and_then(|digits| {
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            u8::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
        });
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

/// Returns the words for a content that is no text.
fn unreadable(uri: &str) -> String {
    format!("\n\n{}: not a text, so only its place is given", path_of(uri))
}

/// Returns a content below its place, in a fence that is longer than each one in the content.
fn fenced(uri: &str, content: &str) -> String {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if content.ends_with('\n') { "" } else { "\n" };
    format!("\n\n{}:\n{fence}\n{content}{end}{fence}", path_of(uri))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(blocks: &Value) -> Result<PromptText, RpcError> {
        prompt(&json!({ "prompt": blocks }))
    }

    #[test]
    fn resources_are_named_in_place_and_no_content_closes_its_fence() {
        let blocks = json!([
            { "type": "text", "text": "Compare " },
            { "type": "resource_link", "name": "a", "uri": "file:///w/a%20b.rs" },
            { "type": "text", "text": " with " },
            { "type": "resource", "resource": { "uri": "file:///w/c.md", "text": "x\n```\ny" } },
            { "type": "resource_link", "name": "issue", "uri": "https://example.org/1" },
            { "type": "resource", "resource": { "uri": "zed:///x", "blob": "AA==" } },
        ]);
        let made = read(&blocks).unwrap();
        let wanted = "Compare `/w/a b.rs` with `/w/c.md`[issue](https://example.org/1)zed:///x\n\n\
                      /w/c.md:\n````\nx\n```\ny\n````\n\nzed:///x: not a text, so only its place is given";
        assert_eq!((made.text.as_str(), made.is_typed), (wanted, false));
        assert!(read(&json!([{ "type": "text", "text": "/team" }])).unwrap().is_typed);
    }

    #[test]
    fn a_prompt_that_cannot_be_given_to_a_model_is_refused() {
        for blocks in [
            json!(null),
            json!([]),
            json!([{ "type": "text", "text": " \n" }]),
            json!([{ "type": "text" }]),
            json!([{ "type": "image", "data": "", "mimeType": "image/png" }]),
            json!([{ "type": "resource", "resource": { "text": "no uri" } }]),
        ] {
            let code = read(&blocks).unwrap_err().code;
            assert_eq!(code, INVALID_PARAMS, "{blocks}");
        }
    }

    #[test]
    fn an_escape_that_is_none_stays() {
        for (uri, path) in [
            ("file:///a%2", "/a%2"),
            ("file:///a%zz", "/a%zz"),
            ("file://localhost/a%25", "/a%"),
            ("file:///%ff", "/%ff"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(path_of(uri), path, "{uri}");
        }
    }

    #[test]
    fn a_place_has_an_absolute_path() {
        let place = SessionPlace::read(&json!({ "cwd": "/w", "mcpServers": [{ "name": "s" }] }));
        let wanted = SessionPlace { cwd: "/w".into(), mcp_servers: vec!["s".into()] };
        assert_eq!(place, Ok(wanted));
        for wrong in [json!({}), json!({ "cwd": "w" }), json!({ "cwd": 1 }), json!(null)] {
            assert!(SessionPlace::read(&wrong).is_err(), "{wrong}");
        }
    }
}
