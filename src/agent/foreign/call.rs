//! A tool call of a foreign agent, in the terms of this program: the tool of ours that does the same, for rules,
//! questions and the transcript.

use crate::acp::update::{FileChange, ToolUpdate, beginning};
use crate::tools::{Call, find_by_alias};
use crate::wire::tool::{SubjectArgument, ToolSpec};
use serde_json::{Map, Value, json};

/// The longest arguments that are recorded, in bytes.
const INPUT_BYTES: usize = 65_536;

/// The longest name of a tool, in characters.
const NAME_CHARS: usize = 64;

/// The names, for role files, of the tools of ours that do the same as tools of other programs.
const COMMAND: &str = "Bash";
const CHANGE: &str = "Write";
const READ: &str = "Read";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForeignCall {
    /// The id in the transcript, which no other call of this incarnation has.
    pub(crate) id: String,
    pub(crate) told: ToolUpdate,
}

/// The way in which a call is judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JudgedAs {
    /// As each of these calls of our tools.
    Own(Vec<Call>),
    /// By the name of a tool of another program.
    Named(String),
    /// A call of which too little is known for a rule.
    Unknown,
}

impl ForeignCall {
    pub(crate) fn judged_as(&self) -> JudgedAs {
        if let Some(name) = self.mcp_name() {
            return JudgedAs::Named(name);
        }
        let own = |alias: &str, subject: String| {
            let spec = find_by_alias(alias)?;
            let mut input = Map::new();
            input.insert(argument_of(spec)?.into(), subject.into());
            if alias == CHANGE {
                input.insert("content".into(), String::new().into());
            }
            Some(Call { id: self.id.clone(), name: spec.name.into(), input: input.into() })
        };
        let calls: Option<Vec<Call>> = match self.kind() {
            Kind::Command(line) => own(COMMAND, line).map(|call| vec![call]),
            Kind::Change(paths) => paths.into_iter().map(|path| own(CHANGE, path)).collect(),
            Kind::Read(paths) => paths.into_iter().map(|path| own(READ, path)).collect(),
            Kind::Other => None,
        };
        calls.filter(|calls| !calls.is_empty()).map_or(JudgedAs::Unknown, JudgedAs::Own)
    }

    /// Returns the name of the tool: of ours that does the same, or the agent's own.
    pub(crate) fn tool(&self) -> String {
        let own = |alias: &str| find_by_alias(alias).map(|spec| spec.name.to_owned());
        let known = match self.kind() {
            _ if self.mcp_name().is_some() => self.mcp_name(),
            Kind::Command(_) => own(COMMAND),
            Kind::Change(_) => own(CHANGE),
            Kind::Read(_) => own(READ),
            Kind::Other => None,
        };
        let ToolUpdate { name, kind, .. } = &self.told;
        let foreign = || name.as_deref().or(kind.as_deref()).map(word).filter(|it| !it.is_empty());
        known.or_else(foreign).unwrap_or_else(|| "tool".into())
    }

    /// Returns the arguments, as the tool of ours has them.
    pub(crate) fn input(&self) -> Value {
        let argument = |alias: &str| find_by_alias(alias).and_then(argument_of).unwrap_or_default();
        let input = match self.kind() {
            _ if self.mcp_name().is_some() => self.told.input.clone().unwrap_or_default(),
            Kind::Command(line) => json!({ argument(COMMAND): line }),
            Kind::Read(paths) => json!({ argument(READ): paths.join(", ") }),
            Kind::Change(paths) => {
                let mut input = json!({ argument(CHANGE): paths.join(", ") });
                if let (Some(FileChange { old_text, new_text, .. }), Some(fields)) =
                    (self.only_change(), input.as_object_mut())
                {
                    match old_text {
                        Some(old) => {
                            fields.insert("old_text".into(), old.clone().into());
                            fields.insert("new_text".into(), new_text.clone().into());
                        }
                        None => drop(fields.insert("content".into(), new_text.clone().into())),
                    }
                }
                input
            }
            Kind::Other => self.told.input.clone().unwrap_or_default(),
        };
        let text = input.to_string();
        if text.len() <= INPUT_BYTES {
            input
        } else {
            json!({ "cut": beginning(&text, INPUT_BYTES) })
        }
    }

    /// Describes the call for the person who decides.
    pub(crate) fn description(&self) -> String {
        match self.kind() {
            _ if self.mcp_name().is_some() => self.input().to_string(),
            Kind::Command(line) => line,
            Kind::Change(paths) | Kind::Read(paths) if !paths.is_empty() => paths.join(", "),
            Kind::Change(_) | Kind::Read(_) | Kind::Other => {
                let title =
                    self.told.title.as_deref().unwrap_or("a call that it does not describe");
                let input = self.told.input.as_ref().map(|input| format!(" {input}"));
                beginning(&format!("{title}{}", input.unwrap_or_default()), INPUT_BYTES)
            }
        }
    }

    fn only_change(&self) -> Option<&FileChange> {
        match self.told.changes.as_deref() {
            Some([only]) => Some(only),
            Some(_) | None => None,
        }
    }

    /// Returns the name of a tool of an MCP server.
    fn mcp_name(&self) -> Option<String> {
        let name = self.told.name.as_deref().filter(|name| name.starts_with("mcp_"))?;
        Some(word(name))
    }

    fn kind(&self) -> Kind {
        if let Some(line) = self.told.command() {
            return Kind::Command(line);
        }
        match self.told.kind.as_deref() {
            Some("edit" | "delete" | "move") => Kind::Change(self.paths()),
            Some("read" | "search") => Kind::Read(self.paths()),
            Some(_) | None => Kind::Other,
        }
    }

    fn paths(&self) -> Vec<String> {
        let changed = self.told.changes.iter().flatten().map(|change| change.path.clone());
        let mut paths: Vec<String> =
            changed.chain(self.told.paths.iter().flatten().cloned()).collect();
        if paths.is_empty() {
            let input = self.told.input.as_ref();
            let keys = ["file_path", "path", "abs_path", "filePath"];
            let given = keys.iter().filter_map(|key| input?.get(key)?.as_str());
            paths.extend(given.map(ToOwned::to_owned));
        }
        let mut seen = std::collections::BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }
}

/// The effect of a call, as far as it is told.
enum Kind {
    Command(String),
    Change(Vec<String>),
    Read(Vec<String>),
    Other,
}

fn argument_of(spec: &ToolSpec) -> Option<&'static str> {
    match spec.subject {
        SubjectArgument::Command(argument)
        | SubjectArgument::File(argument)
        | SubjectArgument::Patch(argument)
        | SubjectArgument::Url(argument) => Some(argument),
        SubjectArgument::None => None,
    }
}

/// Returns a name in the characters of a rule.
fn word(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().take(NAME_CHARS).map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(told: ToolUpdate) -> ForeignCall {
        ForeignCall { id: "t".into(), told }
    }

    #[test]
    fn the_subject_of_a_call_is_that_of_our_tool() {
        let kind = |kind: &str, input: Value| ToolUpdate {
            kind: Some(kind.into()),
            input: Some(input),
            ..ToolUpdate::default()
        };
        let path = || json!({ "file_path": "/w/a" });
        let named = |name: &str, input: Value| ToolUpdate {
            name: Some(name.into()),
            input: Some(input),
            ..ToolUpdate::default()
        };
        let listed = |paths: &[&str]| ToolUpdate {
            paths: Some(paths.iter().map(|it| (*it).to_owned()).collect()),
            ..kind("edit", json!({}))
        };
        for (told, judged) in [
            (kind("execute", json!({ "command": "ls" })), "bash command=ls"),
            (kind("other", json!({ "command": ["sh", "-c", "a | b"] })), "bash command=a | b"),
            (kind("read", json!({ "command": "rm x", "path": "a" })), "bash command=rm x"),
            (kind("edit", path()), "write_file path=/w/a"),
            (listed(&["a", "b", "a"]), "write_file path=a; write_file path=b"),
            (kind("read", path()), "read_file path=/w/a"),
            (kind("delete", json!({})), "unknown"),
            (kind("execute", json!({})), "unknown"),
            (kind("brand_new", path()), "unknown"),
            (ToolUpdate::default(), "unknown"),
            (named("mcp__git__log", json!({ "command": "rm" })), "named mcp__git__log"),
            (named("mcp_git_a b", Value::Null), "named mcp_git_a_b"),
        ] {
            let found = match call(told.clone()).judged_as() {
                JudgedAs::Unknown => "unknown".to_owned(),
                JudgedAs::Named(name) => format!("named {name}"),
                JudgedAs::Own(calls) => {
                    let of = |call: &Call| {
                        let fields = call.input.as_object().unwrap();
                        let (name, value) = fields.iter().next().unwrap();
                        format!("{} {name}={}", call.name, value.as_str().unwrap())
                    };
                    calls.iter().map(of).collect::<Vec<_>>().join("; ")
                }
            };
            assert_eq!(found, judged, "{told:?}");
        }
    }

    #[test]
    fn a_change_is_shown_with_its_texts_and_a_long_input_is_cut() {
        let change = |old_text: Option<&str>| {
            let old_text = old_text.map(ToOwned::to_owned);
            let changes = vec![FileChange { path: "a".into(), old_text, new_text: "n".into() }];
            let (changes, kind) = (Some(changes), Some("edit".into()));
            call(ToolUpdate { kind, changes, ..ToolUpdate::default() }).input()
        };
        assert_eq!(change(None), json!({ "path": "a", "content": "n" }));
        assert_eq!(change(Some("o")), json!({ "path": "a", "old_text": "o", "new_text": "n" }));
        let input = Some(json!({ "x": "y".repeat(INPUT_BYTES) }));
        let long = call(ToolUpdate { input, ..ToolUpdate::default() });
        assert!(long.input().get("cut").is_some() && long.description().len() < INPUT_BYTES + 100);
        assert_eq!(call(ToolUpdate::default()).tool(), "tool");
    }
}
