//! A role as it stands in a file: what an agent is for, with which tools, model and freedom.
//!
//! It does not know where the file lies; keys and names of tools are also taken as other tools write them.

use super::front_matter::{self, Field, Problem};
use super::permission::PermissionMode;

/// What is described by a role file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// Its name, by which agents are given it.
    pub name: String,
    /// What it is good for, in a line.
    pub description: String,
    /// The work tools it has; all of them if nothing is said.
    pub tools: Option<Vec<String>>,
    /// Tools it does not have, and `tool(pattern)` rules for what it may not do with one.
    pub disallowed: Vec<String>,
    /// Its model, as `provider/name`.
    pub model: Option<String>,
    /// Its permission mode.
    pub mode: Option<PermissionMode>,
    /// Model calls that one turn of it may take.
    pub max_turns: Option<u32>,
    /// What its model is told.
    pub instructions: String,
}

/// Tools for work in the folder: those that `tools` limits.
const WORK_TOOLS: [&str; 4] = ["bash", "read_file", "write_file", "edit_file"];

/// Tools by which agents work together: there for every role that does not refuse them.
const TEAM_TOOLS: [&str; 14] = [
    "send_message",
    "broadcast",
    "read_inbox",
    "list_teammates",
    "spawn_teammate",
    "shutdown_teammate",
    "review_plan",
    "create_task",
    "list_tasks",
    "get_task",
    "claim_task",
    "update_task",
    "complete_task",
    "submit_plan",
];

/// Without these an agent could not end or rest: no role refuses them.
const KEPT_TOOLS: [&str; 2] = ["idle", "shutdown_response"];

/// What other programs call our tools.
const FOREIGN_TOOLS: [(&str, &str); 5] = [
    ("Bash", "bash"),
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("MultiEdit", "edit_file"),
];

/// What other programs call our permission modes.
const FOREIGN_MODES: [(&str, PermissionMode); 2] =
    [("acceptEdits", PermissionMode::AcceptEdits), ("bypassPermissions", PermissionMode::Bypass)];

impl Role {
    /// Reads a role file; `stem` is its name without the ending.
    pub fn parse(stem: &str, text: &str) -> (Self, Vec<Problem>) {
        let document = front_matter::parse(text);
        let mut problems = document.problems;
        let mut role = Self { name: stem.into(), instructions: document.body, ..Self::default() };
        for field in &document.fields {
            if let Err(what) = role.take(field) {
                problems.push(Problem { line: field.line, what });
            }
        }
        problems.sort_by_key(|problem| problem.line);
        (role, problems)
    }

    /// Takes over one key; what is wrong with it otherwise.
    fn take(&mut self, field: &Field) -> Result<(), String> {
        let text = field.value.text();
        match field.key.as_str() {
            "name" if is_name(&text) => self.name = text,
            "name" => {
                return Err(format!(
                    "{text:?} is no name of a role (letters, digits, `-`, `_`): it is called {:?}",
                    self.name
                ));
            }
            "description" => self.description = text,
            "tools" => {
                let (tools, unknown) = known(field.value.items());
                let patterns: Vec<&String> = tools.iter().filter(|it| it.contains('(')).collect();
                let whole = patterns.first().map(|it| format!("{it} gives all of {}", bare(it)));
                self.tools = Some(tools.iter().map(|tool| bare(tool).to_owned()).collect());
                without(&unknown)?;
                return whole.map_or(Ok(()), |whole| {
                    Err(format!("{whole}: what a role may not do stands in disallowedTools"))
                });
            }
            "disallowedTools" => {
                let (tools, mut unknown) = known(field.value.items());
                let (kept, tools) =
                    tools.into_iter().partition(|tool| KEPT_TOOLS.contains(&tool.as_str()));
                self.disallowed = tools;
                unknown.extend::<Vec<String>>(kept);
                return without(&unknown);
            }
            "model" => self.model = model(&text)?,
            "permissionMode" => {
                let foreign = FOREIGN_MODES.iter().find(|(word, _)| *word == text);
                let mode = foreign.map(|(_, mode)| *mode).or_else(|| PermissionMode::parse(&text));
                self.mode = Some(mode.ok_or_else(|| {
                    format!("{text:?} is no permission mode, so the lead's is in force")
                })?);
            }
            "maxTurns" => match text.parse() {
                Ok(most) if most > 0 => self.max_turns = Some(most),
                Ok(_) | Err(_) => {
                    return Err(format!(
                        "{text:?} is no positive number, so max_rounds is in force"
                    ));
                }
            },
            other => return Err(format!("the key {other:?} is not known, so it is ignored")),
        }
        Ok(())
    }

    /// Whether an agent in this role has a tool.
    pub fn has(&self, tool: &str) -> bool {
        let limited = self.tools.as_ref().filter(|_| WORK_TOOLS.contains(&tool));
        let given = limited.is_none_or(|tools| tools.iter().any(|given| given == tool));
        given && !self.disallowed.iter().any(|refused| refused == tool)
    }

    /// What may not be done with tools that it has: `tool(pattern)` rules.
    pub fn refused(&self) -> impl Iterator<Item = &String> {
        self.disallowed.iter().filter(|rule| rule.contains('('))
    }
}

/// Whether a text can name a role: no path, nothing that looks odd in a list.
pub fn is_name(text: &str) -> bool {
    let is_fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(is_fine)
        && text.starts_with(char::is_alphanumeric)
        && !text.ends_with(' ')
}

/// The tool of a rule.
fn bare(rule: &str) -> &str {
    rule.split_once('(').map_or(rule, |(tool, _)| tool)
}

/// Our names of tools, and what is none.
fn known(given: Vec<String>) -> (Vec<String>, Vec<String>) {
    let ours = |tool: &str| {
        let foreign = FOREIGN_TOOLS.iter().find(|(name, _)| *name == tool).map(|(_, ours)| *ours);
        let mut all = WORK_TOOLS.iter().chain(&TEAM_TOOLS).chain(&KEPT_TOOLS).copied();
        foreign.or_else(|| all.find(|name| *name == tool))
    };
    let (mut tools, mut unknown) = (Vec::new(), Vec::new());
    for rule in given {
        let tool = bare(&rule);
        match ours(tool) {
            Some(ours) => {
                tools.push(format!("{ours}{}", rule.strip_prefix(tool).unwrap_or_default()));
            }
            None => unknown.push(rule),
        }
    }
    (tools, unknown)
}

fn without(unknown: &[String]) -> Result<(), String> {
    if unknown.is_empty() {
        return Ok(());
    }
    Err(format!("no such tool for a role: {}; that is ignored", unknown.join(", ")))
}

/// A model as `provider/name`; nothing where the lead's is meant.
fn model(text: &str) -> Result<Option<String>, String> {
    match text {
        "" | "inherit" => Ok(None),
        claude if claude.starts_with("claude-") => Ok(Some(format!("anthropic/{claude}"))),
        "rehearsal" => Ok(Some(text.into())),
        named if named.contains('/') => Ok(Some(named.into())),
        other => Err(format!("{other:?} is not PROVIDER/NAME, so the lead's model is used")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_program_is_understood() {
        let (role, problems) = Role::parse(
            "reviewer",
            "---\nname: code-reviewer\ndescription: Reads: everything\ntools: Read, Grep, Bash(git diff:*)\n\
             disallowedTools: Write, Bash(rm:*), idle\nmodel: sonnet\npermissionMode: acceptEdits\n\
             maxTurns: 7\ncolor: blue\n---\nRead it.\n",
        );
        assert_eq!((&*role.name, &*role.description), ("code-reviewer", "Reads: everything"));
        assert_eq!(role.tools.as_deref().unwrap(), ["read_file", "bash"]);
        assert_eq!(role.disallowed, ["write_file", "bash(rm:*)"]);
        assert_eq!((role.mode, role.max_turns), (Some(PermissionMode::AcceptEdits), Some(7)));
        assert_eq!((role.model.as_deref(), &*role.instructions), (None, "Read it."));
        let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [4, 5, 6, 9], "{problems:?}");
        assert!(role.has("bash") && role.has("read_file") && role.has("send_message"));
        assert!(!role.has("write_file") && !role.has("edit_file"));
        assert_eq!(role.refused().collect::<Vec<_>>(), ["bash(rm:*)"]);
    }

    #[test]
    fn a_role_without_front_matter_has_every_tool() {
        let (role, problems) = Role::parse("coder", "Code.\n");
        assert_eq!((&*role.name, &*role.instructions, problems), ("coder", "Code.", Vec::new()));
        assert!(role.has("bash") && role.has("idle"));
    }

    #[test]
    fn a_wrong_value_is_named_and_changes_nothing() {
        for wrong in ["name: ../x", "maxTurns: 0", "maxTurns: many", "permissionMode: yolo"] {
            let (role, problems) = Role::parse("x", &format!("---\n{wrong}\n---\n"));
            assert_eq!(role, Role { name: "x".into(), ..Role::default() }, "{wrong}");
            assert_eq!(problems.len(), 1, "{wrong}");
        }
        for (word, model) in [("inherit", None), ("claude-x", Some("anthropic/claude-x"))] {
            let (role, _) = Role::parse("x", &format!("---\nmodel: {word}\n---\n"));
            assert_eq!(role.model.as_deref(), model);
        }
    }
}
