//! The system prompt of a subagent.

use crate::wire::AgentName;
use crate::wire::role::Role;
use std::fmt::Write as _;

/// The parts of the prompt that all subagents of an agent share.
#[derive(Debug, Clone)]
pub(crate) struct SubagentBriefing {
    /// The folder in which commands run.
    pub(crate) workspace: String,
    /// Instructions of the workspace; may be empty.
    pub(crate) house_rules: String,
    /// The skills that the caller can use, a line each; empty if there are none.
    pub(crate) skills: String,
}

impl SubagentBriefing {
    /// Returns the system prompt of the subagent with this id. It is the same in a process that goes on with it.
    pub(super) fn prompt(
        &self,
        id: &str,
        caller: &AgentName,
        role: &Role,
        role_name: Option<&str>,
    ) -> String {
        let mut text = format!(
            "Your name is {id}.\nYou are a helper of {caller}. Do the task with your tools, alone: you can ask nobody back. \
             The text with which you end is your result, and {caller} sees nothing else of your work: state what you found \
             or did, short and factual. Text in [team: …] comes from the program. Never write below .team/. If a tool \
             fails, read its error: it says what to do next.\nThe workspace is {}.\n",
            self.workspace
        );
        if let Some(name) = role_name {
            let _infallible = writeln!(text, "Your role: {name}.");
        }
        if !self.skills.is_empty() && role.skills.is_none() {
            let _infallible = write!(
                text,
                "\nSkills, instructions for certain kinds of work; call use_skill with the name before such work:\n{}",
                self.skills
            );
        }
        if !self.house_rules.is_empty() {
            let _infallible =
                write!(text, "\nInstructions of this workspace:\n{}", self.house_rules);
        }
        if !role.instructions.is_empty() {
            let _infallible =
                write!(text, "\nInstructions for your role:\n{}\n", role.instructions);
        }
        text
    }
}
