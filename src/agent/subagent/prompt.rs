//! The system prompt of a subagent.

use crate::tools::skills::SkillsInPrompt;
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
    /// The maximum size of the skills that a role names, in bytes.
    pub(crate) skill_bytes: usize,
}

impl SubagentBriefing {
    /// Returns the system prompt of the subagent with this id. It is the same in a process that goes on with it.
    pub(super) fn prompt(
        &self,
        id: &str,
        caller: &AgentName,
        (role, role_name): (&Role, Option<&str>),
        skills: &SkillsInPrompt,
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
        if !skills.list.is_empty() {
            let _infallible = write!(
                text,
                "\nSkills, instructions for certain kinds of work; call use_skill with the name before such work:\n{}",
                skills.list
            );
        }
        if !self.house_rules.is_empty() {
            let _infallible =
                write!(text, "\nInstructions of this workspace:\n{}", self.house_rules);
        }
        let instructions = format!("{}{}", role.instructions, skills.of_role);
        if !instructions.is_empty() {
            let _infallible =
                write!(text, "\nInstructions for your role:\n{}\n", instructions.trim());
        }
        text
    }
}
