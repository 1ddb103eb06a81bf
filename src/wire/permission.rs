//! Permissions in settings, messages and transcripts: modes, rules, questions and decisions.

use super::host::HostPattern;
use super::message::Scope;
use super::tool::ToolSpec;
use super::words::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

words! {
    /// A permission mode; the order is from the strictest to the loosest.
    #[derive(PartialOrd, Ord, Hash, Default)]
    pub enum PermissionMode {
        /// No change before a plan is approved.
        Plan = "plan",
        /// Every change needs an approval.
        #[default]
        Default = "default",
        /// Changes by file tools need no approval, commands do.
        AcceptEdits = "accept_edits",
        /// No call needs an approval.
        Bypass = "bypass",
    }
}

impl PermissionMode {
    /// The words of all modes.
    pub const WORDS: [&str; 4] =
        [Self::Plan.word(), Self::Default.word(), Self::AcceptEdits.word(), Self::Bypass.word()];

    /// Returns the mode of that word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// Returns the meaning of the mode, for a person.
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
    /// Calls that run without an approval.
    pub allow: Vec<String>,
    /// Calls that need an approval in spite of an `allow` rule.
    pub ask: Vec<String>,
    /// Calls that never run.
    pub deny: Vec<String>,
}

impl fmt::Display for RuleLists {
    /// Writes the lists that have rules, such as `allow bash(ls), bash(pwd); deny bash(rm:*)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("allow", &self.allow), ("ask", &self.ask), ("deny", &self.deny)];
        let lists = lists.iter().filter(|(_, rules)| !rules.is_empty());
        let lists: Vec<String> =
            lists.map(|(list, rules)| format!("{list} {}", rules.join(", "))).collect();
        out.write_str(&lists.join("; "))
    }
}

impl RuleLists {
    /// Adds the rules of `other`, each once.
    pub fn add(&mut self, other: &Self) {
        let Self { allow, ask, deny } = self;
        for (mine, more) in [(allow, &other.allow), (ask, &other.ask), (deny, &other.deny)] {
            for rule in more {
                if !mine.contains(rule) {
                    mine.push(rule.clone());
                }
            }
        }
    }
}

words! {
    /// The agents and the time for which an answer allows the same call again.
    #[derive(PartialOrd, Ord)]
    pub enum RuleScope {
        /// The agent that asked, until the lead ends.
        Agent = "agent",
        /// All agents, until the lead ends.
        Session = "session",
        /// All agents, also after the lead is resumed.
        Team = "team",
        /// All agents of every team in the folder.
        Good = "good",
    }
}

impl RuleScope {
    /// Returns the scope of that word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }

    /// Returns the meaning for a person; `agent` is the agent that asked.
    pub fn meaning(self, agent: &str) -> String {
        match self {
            Self::Agent => format!("{agent}, until the lead ends"),
            Self::Session => "all agents, until the lead ends".into(),
            Self::Team => "all agents, also after --resume".into(),
            Self::Good => "all agents in this folder, for good".into(),
        }
    }

    /// Returns the scope of an answer, which older programs give without its `rule_scope`; `None` if the answer holds for
    /// one call.
    pub fn of_answer(scope: Scope, word: Option<&str>) -> Option<Self> {
        let known = word.and_then(Self::parse);
        match scope {
            Scope::Once => None,
            // This one never covers another agent.
            Scope::Session => Some(Self::Agent),
            Scope::Always => Some(known.unwrap_or(Self::Team)),
        }
    }

    /// Returns the scope for programs that know no other.
    pub fn answer(self) -> Scope {
        if self == Self::Agent { Scope::Session } else { Scope::Always }
    }
}

/// A call that an answer of the person allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedAllow {
    /// The rule, under the tool's own name.
    pub rule: String,
    /// The only agent for which it holds; `None` for all.
    pub agent: Option<String>,
}

/// The decider on plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanApproval {
    /// The lead's model.
    #[default]
    Lead,
    /// The person.
    Person,
}

/// The permissions that a process starts with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permissions {
    /// The mode.
    pub mode: PermissionMode,
    /// The rules.
    pub rules: RuleLists,
    /// The number of seconds after which an unanswered question counts as denied.
    pub timeout: u64,
    /// The decider on plans.
    pub plan_approval: PlanApproval,
    /// The calls that answers of the person allow.
    #[serde(default)]
    pub granted: Vec<GrantedAllow>,
}

words! {
    /// The kind of a question.
    pub enum QuestionKind {
        /// One tool call.
        Permission = "permission",
        /// A plan.
        Plan = "plan",
        /// One tool call that leaves the workspace.
        Sandbox = "sandbox",
    }
}

/// A request of an agent for a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The unique id, derived from the tool call: a question that is repeated after a crash is the same question.
    pub request_id: String,
    /// The kind of the question.
    pub about: QuestionKind,
    /// The id of the call that waits.
    pub tool_use_id: String,
    /// The call's tool.
    pub tool: String,
    /// The call's arguments.
    pub input: Value,
    /// The effect of the call, in words.
    pub description: String,
    /// The subagent that asks, as `CALLER:NUMBER`; `None` if the agent itself asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

impl Question {
    /// Returns the name of the asker for people: that of the subagent or, if there is none, of the agent.
    pub fn asker<'a>(&'a self, agent: &'a str) -> &'a str {
        self.subagent.as_deref().unwrap_or(agent)
    }

    /// Whether it is about a plan.
    pub fn is_plan(&self) -> bool {
        self.about == QuestionKind::Plan
    }

    /// Returns the hosts that the call is to reach.
    pub fn hosts(&self) -> Vec<HostPattern> {
        let listed = self.input.get("hosts").and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(|host| HostPattern::parse(host.as_str()?).ok()).collect()
    }

    /// Returns the arguments with another command; `None` if the tool, which `tool` describes, runs no command.
    pub fn with_command(&self, tool: Option<&ToolSpec>, command: String) -> Option<Value> {
        let argument = tool?.command_argument()?;
        let mut input = self.input.clone();
        input.as_object_mut()?.insert(argument.into(), command.into());
        Some(input)
    }
}

words! {
    /// The outcome of a question.
    pub enum DecisionOutcome {
        /// The call may run.
        Approved = "approved",
        /// The call may not run.
        Rejected = "rejected",
        /// No answer came in time.
        Expired = "expired",
        /// The agent no longer waits.
        Withdrawn = "withdrawn",
    }
}

/// The decider of a call that nobody decided: the question expired, or nobody could be asked.
pub const PROGRAM: &str = "program";

/// The decision on a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The id of the question.
    pub request_id: String,
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The decider: an agent, `user`, or [`PROGRAM`].
    pub by: String,
    /// The calls that it covers.
    #[serde(default)]
    pub scope: Scope,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Arguments that replace the call's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_input: Option<Value>,
    /// The agent's next permission mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
}

impl Decision {
    /// Returns a decision of the program itself.
    pub fn by_program(request_id: &str, outcome: DecisionOutcome, reason: &str) -> Self {
        Self {
            request_id: request_id.into(),
            outcome,
            by: PROGRAM.into(),
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
    use crate::wire::tool::SubjectArgument;
    use serde_json::json;

    #[test]
    fn modes_are_ordered_and_parse_from_their_words() {
        assert!(PermissionMode::ALL.is_sorted());
        for mode in PermissionMode::ALL {
            assert_eq!(PermissionMode::parse(mode.word()), Some(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.word());
        }
        assert_eq!(PermissionMode::parse("Bypass"), None);
    }

    #[test]
    fn a_rule_is_added_once() {
        let lists = |allow: &str| {
            let allow = allow.split(' ').map(ToOwned::to_owned).collect();
            RuleLists { allow, ..RuleLists::default() }
        };
        let mut mine = lists("a");
        mine.add(&lists("b a b"));
        assert_eq!(mine, lists("a b"));
    }

    #[test]
    fn only_a_command_can_be_replaced() {
        let replaced = |subject: Option<SubjectArgument>, input: Value| {
            let question: Question =
                serde_json::from_value(json!({ "request_id": "", "input": input,
                "about": "permission", "tool_use_id": "", "tool": "", "description": "" }))
                .unwrap();
            let tool = subject.map(|subject| ToolSpec { subject, ..ToolSpec::STRICT });
            question.with_command(tool.as_ref(), "pwd".into())
        };
        let (runs, asked) =
            (Some(SubjectArgument::Command("line")), json!({ "line": "ls", "n": 5 }));
        assert_eq!(replaced(runs, asked.clone()), Some(json!({ "line": "pwd", "n": 5 })));
        assert_eq!(replaced(runs, Value::Null), None, "no arguments");
        for other in [Some(SubjectArgument::None), Some(SubjectArgument::File("path")), None] {
            assert_eq!(replaced(other, asked.clone()), None, "{other:?}");
        }
    }
}
