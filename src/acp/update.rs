//! The reports of an agent in a session: its text, its tool calls, its questions, its usage.

use crate::wire::money::Money;
use crate::wire::shell_word::quoted_if_needed;
use serde_json::Value;

/// The longest text that is kept of the output of a tool call, in bytes.
const OUTPUT_BYTES: usize = 50_000;

/// The places at which Claude Code and Qwen Code name the tool of a call.
const OWN_NAMES: [&str; 2] = ["/_meta/claudeCode/toolName", "/_meta/toolName"];

/// The tool of Gemini CLI and Qwen Code that runs commands.
const GEMINI_SHELL: &str = "run_shell_command";

/// A report of an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Update {
    /// A piece of a message of the model.
    Text {
        message_id: Option<String>,
        text: String,
        /// The tokens of a model call that ended with this piece.
        usage: Option<Value>,
    },
    Tool(Box<ToolUpdate>),
    /// The cost of the session up to now, in US dollars.
    Cost(Money),
    /// A word of the agent's program, and not of its model.
    Notice(String),
    /// Another kind, by its name.
    Other(String),
}

/// A tool call, or what has changed of it. A field that is `None` has not changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolUpdate {
    pub(crate) id: String,
    /// The name of the tool.
    pub(crate) name: Option<String>,
    /// The call in words.
    pub(crate) title: Option<String>,
    /// The kind of the call, such as `execute` or `edit`.
    pub(crate) kind: Option<String>,
    pub(crate) progress: Option<ToolStatus>,
    /// The arguments.
    pub(crate) input: Option<Value>,
    /// The files that the call is about.
    pub(crate) paths: Option<Vec<String>>,
    pub(crate) changes: Option<Vec<FileChange>>,
    /// The output.
    pub(crate) output: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// A change of a file by a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileChange {
    pub(crate) path: String,
    /// The text before; `None` for a new file.
    pub(crate) old_text: Option<String>,
    pub(crate) new_text: String,
}

/// A question of an agent about a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PermissionRequest {
    pub(crate) call: ToolUpdate,
    /// The id of the option that allows this call alone.
    pub(crate) allow_once: Option<String>,
    /// The id of the option that refuses this call alone.
    pub(crate) reject_once: Option<String>,
}

fn text_of<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn owned(value: &Value, key: &str) -> Option<String> {
    text_of(value, key).map(ToOwned::to_owned)
}

fn items<'v>(value: &'v Value, key: &str) -> Option<&'v Vec<Value>> {
    value.get(key).and_then(Value::as_array)
}

/// Returns the beginning of a text.
pub(crate) fn beginning(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!(
        "{}\n[the rest of {} bytes was left out]",
        text.get(..end).unwrap_or_default(),
        text.len()
    )
}

impl Update {
    /// Reads the parameters of a `session/update`; `None` if they are of another session, or no update.
    pub(crate) fn read(params: &Value, session: &str) -> Option<Self> {
        if text_of(params, "sessionId") != Some(session) {
            return None;
        }
        let update = params.get("update")?;
        let kind = text_of(update, "sessionUpdate")?;
        Some(match kind {
            "agent_message_chunk" => Self::Text {
                message_id: owned(update, "messageId"),
                text: update.get("content").and_then(content_text).unwrap_or_default(),
                usage: update.pointer("/_meta/usage").cloned(),
            },
            "tool_call" | "tool_call_update" => Self::Tool(Box::new(ToolUpdate::read(update)?)),
            "usage_update" => Self::cost(update).unwrap_or_else(|| Self::Other(kind.into())),
            other => Self::Other(other.chars().take(64).collect()),
        })
    }

    fn cost(update: &Value) -> Option<Self> {
        let cost = update.get("cost").filter(|cost| text_of(cost, "currency") == Some("USD"))?;
        Some(Self::Cost(Money::try_from(cost.get("amount")?.as_f64()?).ok()?))
    }
}

impl Update {
    /// Tells the words of Copilot CLI from those of its model, which come in the same way.
    pub(crate) fn of_copilot(self) -> Self {
        let is_notice = |text: &str| ["Info: ", "Warning: "].iter().any(|it| text.starts_with(it));
        if let Self::Text { message_id: None, text, usage: None } = &self
            && is_notice(text)
        {
            return Self::Notice(text.clone());
        }
        self
    }
}

impl ToolUpdate {
    fn read(update: &Value) -> Option<Self> {
        let id = owned(update, "toolCallId")?;
        let name = owned(update, "name").or_else(|| {
            OWN_NAMES.iter().find_map(|path| update.pointer(path)?.as_str().map(ToOwned::to_owned))
        });
        let name = name.or_else(|| codex_tool(update));
        let name = name.or_else(|| name_in_id(&id).map(ToOwned::to_owned));
        let paths = items(update, "locations").map(|places| {
            let paths = places.iter().filter_map(|place| owned(place, "path"));
            paths.collect()
        });
        let content = items(update, "content");
        let changes = content.map(|parts| parts.iter().filter_map(FileChange::read).collect());
        Some(Self {
            id,
            name,
            title: owned(update, "title"),
            kind: owned(update, "kind"),
            progress: text_of(update, "status").and_then(ToolStatus::read),
            input: update.get("rawInput").filter(|input| !input.is_null()).cloned(),
            paths,
            changes,
            output: output_of(update, content),
        })
    }

    /// Adds what a later report says.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self { id: _, name, title, kind, progress, input, paths, changes, output } = later;
        self.name = name.or(self.name.take());
        self.title = title.or(self.title.take());
        self.kind = kind.or(self.kind.take());
        self.progress = progress.or(self.progress);
        let is_empty = |input: &Value| input.as_object().is_some_and(serde_json::Map::is_empty);
        self.input = input.filter(|input| !is_empty(input)).or(self.input.take());
        self.paths = paths.filter(|paths| !paths.is_empty()).or(self.paths.take());
        self.changes = changes.filter(|changes| !changes.is_empty()).or(self.changes.take());
        self.output = output.or(self.output.take());
    }

    /// Returns the command that the call runs. Gemini CLI tells no arguments; the title of its shell is the command.
    pub(crate) fn command(&self) -> Option<String> {
        let Some(input) = &self.input else {
            let is_shell = self.name.as_deref() == Some(GEMINI_SHELL)
                && self.kind.as_deref() == Some("execute");
            return self.title.clone().filter(|_| is_shell);
        };
        let command = input.get("command")?;
        if let Some(words) = command.as_array() {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            return Some(shell_words(&words?));
        }
        command.as_str().map(ToOwned::to_owned)
    }
}

/// Returns the name of the tool in an id of Gemini CLI, which is `TOOL__ID`. Only names that matter for a judgement are taken.
fn name_in_id(id: &str) -> Option<&str> {
    let (name, _) = id.split_once("__")?;
    (name == GEMINI_SHELL || name.starts_with("mcp_")).then_some(name)
}

/// Returns the name of the tool of a server that Codex calls. Its question names neither; it is about the same call.
fn codex_tool(update: &Value) -> Option<String> {
    let is_of_server = update.pointer("/_meta/is_mcp_tool_call") == Some(&Value::Bool(true));
    let input = update.get("rawInput").filter(|_| is_of_server)?;
    Some(format!("mcp__{}__{}", text_of(input, "server")?, text_of(input, "tool")?))
}

/// Returns the words of a command as a command line. A script that a shell gets stands alone.
fn shell_words(words: &[&str]) -> String {
    if let [shell, "-c" | "-lc", script] = words
        && shell.ends_with("sh")
    {
        return (*script).to_owned();
    }
    words.iter().map(|word| quoted_if_needed(word)).collect::<Vec<_>>().join(" ")
}

impl ToolStatus {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "failed" | "cancelled" => Self::Failed,
            _ => return None,
        })
    }
}

impl FileChange {
    fn read(part: &Value) -> Option<Self> {
        if text_of(part, "type") != Some("diff") {
            return None;
        }
        let (path, new_text) = (owned(part, "path")?, owned(part, "newText")?);
        Some(Self { path, old_text: owned(part, "oldText"), new_text })
    }
}

/// Returns the text in a block of content.
fn content_text(content: &Value) -> Option<String> {
    match text_of(content, "type")? {
        "text" => owned(content, "text"),
        other => Some(format!("[{}, not shown]", other.chars().take(40).collect::<String>())),
    }
}

/// Returns the output of a tool call: its content, or else its raw output.
fn output_of(update: &Value, content: Option<&Vec<Value>>) -> Option<String> {
    let parts = content.into_iter().flatten();
    let texts = parts.filter(|part| text_of(part, "type") == Some("content"));
    let texts: Vec<String> = texts.filter_map(|part| content_text(part.get("content")?)).collect();
    let text = if texts.is_empty() {
        let raw = update.get("rawOutput").filter(|raw| !raw.is_null())?;
        let known = ["formatted_output", "output", "stdout"].iter();
        let told = raw.as_str().map(ToOwned::to_owned);
        told.or_else(|| known.clone().find_map(|key| owned(raw, key)))
            .unwrap_or_else(|| raw.to_string())
    } else {
        texts.join("\n")
    };
    Some(beginning(&text, OUTPUT_BYTES))
}

impl PermissionRequest {
    /// Reads the parameters of a `session/request_permission`; `None` if they are of another session, or no request.
    pub(crate) fn read(params: &Value, session: &str) -> Option<Self> {
        if text_of(params, "sessionId") != Some(session) {
            return None;
        }
        let call = ToolUpdate::read(params.get("toolCall")?)?;
        let options = items(params, "options");
        let id_of = |kind: &str| {
            let mut options = options.into_iter().flatten();
            options
                .find(|option| text_of(option, "kind") == Some(kind))
                .and_then(|it| owned(it, "optionId"))
        };
        let (allow_once, reject_once) = (id_of("allow_once"), id_of("reject_once"));
        Some(Self { call, allow_once, reject_once })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn update(update: &Value) -> Option<Update> {
        Update::read(&json!({ "sessionId": "s", "update": update }), "s")
    }

    #[test]
    fn a_cost_is_read_in_dollars_alone() {
        let told = |cost: Value| {
            update(&json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost }))
        };
        let some = Money::try_from(0.25).unwrap();
        assert_eq!(told(json!({ "amount": 0.25, "currency": "USD" })), Some(Update::Cost(some)));
        for other in [
            json!({ "amount": 0.25, "currency": "EUR" }),
            json!({ "amount": -1, "currency": "USD" }),
            json!({ "amount": "1", "currency": "USD" }),
            Value::Null,
        ] {
            assert_eq!(told(other), Some(Update::Other("usage_update".into())));
        }
    }

    #[test]
    fn an_unknown_kind_is_kept_and_an_update_of_another_session_is_none() {
        let unknown = json!({ "sessionUpdate": "new_kind", "x": 1 });
        assert_eq!(update(&unknown), Some(Update::Other("new_kind".into())));
        let forged = json!({ "sessionId": "t", "update": unknown });
        assert_eq!(Update::read(&forged, "s"), None);
        for none in [
            json!({}),
            json!(1),
            json!({ "sessionUpdate": 1 }),
            json!({ "sessionUpdate": "tool_call" }),
        ] {
            assert_eq!(update(&none), None, "{none}");
        }
        let image = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "image", "data": "x" } });
        let text = "[image, not shown]".to_owned();
        assert_eq!(update(&image), Some(Update::Text { message_id: None, text, usage: None }));
    }

    #[test]
    fn a_call_is_told_in_pieces_and_fields_of_a_wrong_type_count_as_absent() {
        let read = |value: Value| match update(&value) {
            Some(Update::Tool(tool)) => *tool,
            other => panic!("{other:?}"),
        };
        let mut call =
            read(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "kind": "execute",
            "title": 7, "status": "odd", "rawInput": {}, "locations": "none" }));
        assert_eq!(
            (call.kind.as_deref(), &call.title, call.progress),
            (Some("execute"), &None, None)
        );
        call.merge(read(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "rawInput": { "command": ["bash", "-lc", "ls -l"] } })));
        assert_eq!(call.command().as_deref(), Some("ls -l"));
        call.merge(read(
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
            "content": [{ "type": "content", "content": { "type": "text", "text": "out" } },
                { "type": "diff", "path": "a", "newText": "b" }] }),
        ));
        assert_eq!(
            (call.progress, call.output.as_deref()),
            (Some(ToolStatus::Completed), Some("out"))
        );
        assert_eq!(call.changes.unwrap()[0].old_text, None);
        let raw = read(
            json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "rawOutput": { "stdout": "o" } }),
        );
        assert_eq!(raw.output.as_deref(), Some("o"));
        let words = read(
            json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "rawInput": { "command": ["echo", "it's", ""] } }),
        );
        assert_eq!(words.command().as_deref(), Some(r"echo 'it'\''s' ''"));
    }

    #[test]
    fn the_tool_is_named_by_an_extension_or_the_id_and_gemini_tells_its_command_as_title() {
        let named = |call: Value| match update(&call) {
            Some(Update::Tool(tool)) => (tool.name.clone(), tool.command()),
            other => panic!("{other:?}"),
        };
        let told = |id: &str, kind: &str, more: Value| {
            let mut call = json!({ "sessionUpdate": "tool_call", "toolCallId": id, "kind": kind, "title": "rm -rf x" });
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            named(call)
        };
        let name = |name: &str| Some(name.to_owned());
        let shell = "run_shell_command__run_shell_command_17_0";
        for (id, kind, more, expected) in [
            (shell, "execute", json!({}), (name("run_shell_command"), name("rm -rf x"))),
            ("run_shell_command__x", "other", json!({}), (name("run_shell_command"), None)),
            ("mcp_team_send_message__x", "other", json!({}), (name("mcp_team_send_message"), None)),
            ("call_1__x", "execute", json!({}), (None, None)),
            (
                "call_1",
                "execute",
                json!({ "_meta": { "toolName": "mcp__git__log" } }),
                (name("mcp__git__log"), None),
            ),
            (
                "call_1",
                "execute",
                json!({ "_meta": { "is_mcp_tool_call": true }, "rawInput": { "server": "git", "tool": "log" } }),
                (name("mcp__git__log"), None),
            ),
            (
                "call_1",
                "execute",
                json!({ "rawInput": { "server": "team", "tool": "send_message" } }),
                (None, None),
            ),
            (
                shell,
                "execute",
                json!({ "name": "own", "rawInput": { "command": "ls" } }),
                (name("own"), name("ls")),
            ),
        ] {
            assert_eq!(told(id, kind, more), expected, "{id} {kind}");
        }
    }

    #[test]
    fn only_options_for_one_call_are_taken() {
        let request = json!({ "sessionId": "s", "toolCall": { "toolCallId": "t" }, "options": [
            { "kind": "allow_always", "optionId": "aa" }, { "kind": "allow_once", "optionId": "a" }] });
        let read = PermissionRequest::read(&request, "s").unwrap();
        assert_eq!((read.allow_once.as_deref(), read.reject_once), (Some("a"), None));
        assert_eq!(PermissionRequest::read(&request, "t"), None);
    }
}
