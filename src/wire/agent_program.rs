//! The program of an agent of another vendor, as a lead hands it to the teammate that runs it.

use super::shell_word::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A program that speaks the Agent Client Protocol.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// The name in `acp/NAME`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment. It may hold the agent's own key, so `Debug` shows no value.
    pub env: Vec<(String, String)>,
    /// The names of the variables that hold secrets.
    pub secret: Vec<String>,
    /// The mode in which it asks before it acts; `None` if it has no modes.
    pub mode: Option<AgentMode>,
    /// The command by which a person logs in.
    pub login: Option<String>,
}

/// A mode of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMode {
    /// The agent's id of the mode.
    pub id: String,
    /// Whether the settings name it, so that an agent without modes cannot be used.
    pub is_chosen: bool,
}

impl fmt::Debug for AgentProgram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = out.debug_struct("AgentProgram");
        shown.field("name", &self.name).field("command", &self.command).field("env", &names);
        shown.finish_non_exhaustive()
    }
}

impl AgentProgram {
    /// Returns the values of the variables that hold secrets.
    pub fn secrets(&self) -> Vec<String> {
        let is_secret = |(name, _): &&(String, String)| self.secret.contains(name);
        self.env.iter().filter(is_secret).map(|(_, value)| value.clone()).collect()
    }

    /// Returns the command line for bash, which becomes the program.
    pub fn command_line(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        format!("exec {}", words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_value_and_words_are_quoted() {
        let program = AgentProgram {
            command: vec!["my agent".into(), "it's".into()],
            env: vec![("KEY".into(), "canary".into()), ("A".into(), "b".into())],
            secret: vec!["KEY".into()],
            ..AgentProgram::default()
        };
        assert!(!format!("{program:?}").contains("canary"));
        assert_eq!(program.secrets(), ["canary"]);
        assert_eq!(program.command_line(), r"exec 'my agent' 'it'\''s'");
    }
}
