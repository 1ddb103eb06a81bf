//! How freely an agent may act, as it stands in settings, messages and transcripts: modes, rules, what
//! is asked and what was decided.

use super::message::Scope;
use super::tool::{SubjectArgument, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A permission mode. Ordered from the strictest to the loosest.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// Nothing that changes anything, until a plan is approved.
    Plan,
    /// Reading is free, what changes something asks.
    #[default]
    Default,
    /// File tools are free as well, commands ask.
    AcceptEdits,
    /// Nothing asks.
    Bypass,
}

impl PermissionMode {
    /// All modes, the strictest first.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Default, Self::AcceptEdits, Self::Bypass];

    /// The words of all modes.
    pub const WORDS: [&str; 4] =
        [Self::Plan.word(), Self::Default.word(), Self::AcceptEdits.word(), Self::Bypass.word()];

    /// The word that stands in files and flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Default => "default",
            Self::AcceptEdits => "accept_edits",
            Self::Bypass => "bypass",
        }
    }

    /// The mode of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Plan => "nothing is changed until a plan is approved",
            Self::Default => "commands and changes to files ask first",
            Self::AcceptEdits => "files are changed without asking, commands ask first",
            Self::Bypass => "tools run without asking",
        }
    }
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

/// Lists of rules, each `tool` or `tool(pattern)`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleLists {
    /// What runs without asking.
    pub allow: Vec<String>,
    /// What asks in spite of an `allow`.
    pub ask: Vec<String>,
    /// What never runs.
    pub deny: Vec<String>,
}

impl RuleLists {
    /// Adds what is not there yet.
    pub fn add(&mut self, other: &Self) {
        let lists = [
            (&mut self.allow, &other.allow),
            (&mut self.ask, &other.ask),
            (&mut self.deny, &other.deny),
        ];
        for (mine, others) in lists {
            for rule in others {
                if !mine.contains(rule) {
                    mine.push(rule.clone());
                }
            }
        }
    }
}

/// Who decides about plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanApproval {
    /// The lead's model, with `review_plan`.
    #[default]
    Lead,
    /// The person.
    Person,
}

/// What a process must know about permissions when it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permissions {
    /// The mode.
    pub mode: PermissionMode,
    /// The rules.
    pub rules: RuleLists,
    /// Seconds after which an unanswered question counts as denied.
    pub timeout: u64,
    /// Who decides about plans.
    pub plan_approval: PlanApproval,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// One tool call.
    Permission,
    /// A plan.
    Plan,
    /// One call that leaves the workspace.
    Sandbox,
}

impl QuestionKind {
    /// The word that stands in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Plan => "plan",
            Self::Sandbox => "sandbox",
        }
    }
}

/// Something that an agent may not do before somebody decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Unique, derived from the tool call: asking again after a crash is the same question.
    pub request_id: String,
    /// What it is about.
    pub about: QuestionKind,
    /// The call that waits.
    pub tool_use_id: String,
    /// Its tool.
    pub tool: String,
    /// Its arguments.
    pub input: Value,
    /// What it would do, in words.
    pub description: String,
}

impl Question {
    /// The arguments with another command; `None` if the tool, which `tool` describes, runs no command.
    pub fn with_command(&self, tool: Option<&ToolSpec>, command: String) -> Option<Value> {
        let SubjectArgument::Command(argument) = tool?.subject else { return None };
        let mut input = self.input.clone();
        input.as_object_mut()?.insert(argument.into(), command.into());
        Some(input)
    }
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionOutcome {
    /// Yes.
    Approved,
    /// No.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// It no longer matters.
    Withdrawn,
}

/// The decision about a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Which question.
    pub request_id: String,
    /// How it ended.
    pub outcome: DecisionOutcome,
    /// Who said so; `program` when nobody did.
    pub by: String,
    /// For how long it holds.
    #[serde(default)]
    pub scope: Scope,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Arguments to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_input: Option<Value>,
    /// The mode to go on in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
}

impl Decision {
    /// A decision that nobody made.
    pub fn by_program(request_id: &str, outcome: DecisionOutcome, reason: &str) -> Self {
        Self {
            request_id: request_id.into(),
            outcome,
            by: "program".into(),
            scope: Scope::Once,
            reason: Some(reason.into()),
            updated_input: None,
            mode: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_ordered_and_have_their_words() {
        assert!(
            PermissionMode::Plan < PermissionMode::Default
                && PermissionMode::AcceptEdits < PermissionMode::Bypass
        );
        for mode in PermissionMode::ALL {
            assert_eq!(PermissionMode::parse(mode.word()), Some(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.word());
        }
        assert_eq!(PermissionMode::parse("Bypass"), None);
    }

    #[test]
    fn a_rule_is_added_once() {
        let lists = |allow: &[&str]| RuleLists {
            allow: allow.iter().map(ToString::to_string).collect(),
            ..RuleLists::default()
        };
        let mut mine = lists(&["a"]);
        mine.add(&lists(&["b", "a", "b"]));
        assert_eq!(mine, lists(&["a", "b"]));
    }

    #[test]
    fn only_a_command_can_be_replaced() {
        let question = |input: Value| Question {
            request_id: "alice:t".into(),
            about: QuestionKind::Permission,
            tool_use_id: "t".into(),
            tool: "run".into(),
            input,
            description: "ls".into(),
        };
        let tool = |subject| ToolSpec { subject, ..ToolSpec::STRICT };
        let runs = tool(SubjectArgument::Command("line"));
        let asked = question(serde_json::json!({ "line": "ls", "timeout": 5 }));
        let replaced = asked.with_command(Some(&runs), "pwd".into()).unwrap();
        assert_eq!(replaced, serde_json::json!({ "line": "pwd", "timeout": 5 }));
        for other in [SubjectArgument::None, SubjectArgument::File("path")] {
            assert_eq!(asked.with_command(Some(&tool(other)), "pwd".into()), None);
        }
        assert_eq!(asked.with_command(None, "pwd".into()), None, "an unknown tool");
        assert_eq!(question(Value::Null).with_command(Some(&runs), "pwd".into()), None);
    }
}
