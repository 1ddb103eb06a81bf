//! The environment variables of an agent's commands.

use crate::os::command::CommandSetup;

/// Ends of the names of variables with credentials of model endpoints. Commands never get them, even if the
/// caller's allow-list names one.
const CREDENTIALS: [&str; 2] = ["_API_KEY", "_AUTH_TOKEN"];

/// The search path of commands if the caller gives none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The environment of one agent's commands.
#[derive(Debug, Clone)]
pub(crate) struct CommandEnvironment {
    variables: Vec<(String, String)>,
    run_id: String,
}

impl CommandEnvironment {
    /// The variables in `allowed` without credentials. `run_id`, which is unique to the agent, marks
    /// every process of its commands.
    pub(crate) fn new(allowed: Vec<(String, String)>, run_id: String) -> Self {
        let mut variables = allowed;
        // The output goes to a model: no colours, no cursor movements.
        let is_credential = |name: &str| CREDENTIALS.iter().any(|end| name.ends_with(end));
        variables.retain(|(name, _)| !is_credential(name) && name != "TERM");
        variables.push(("TERM".into(), "dumb".into()));
        if !variables.iter().any(|(name, _)| name == "PATH") {
            variables.push(("PATH".into(), DEFAULT_PATH.into()));
        }
        Self { variables, run_id }
    }

    /// The setup of the agent's commands.
    pub(in crate::tools) fn setup(self) -> CommandSetup {
        CommandSetup { env: self.variables, run_id: self.run_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &[(&str, &str)], expected: &[(&str, &str)]) {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let environment = CommandEnvironment::new(owned(allowed), "run_id".into());
        assert_eq!(environment.variables, owned(expected));
    }

    #[test]
    fn the_terminal_is_dumb_and_credentials_are_removed() {
        let allowed = [("PATH", "/bin"), ("TERM", "xterm"), ("OPENAI_API_KEY", "canary")];
        check(&allowed, &[("PATH", "/bin"), ("TERM", "dumb")]);
    }

    #[test]
    fn a_missing_path_gets_the_default() {
        check(&[("HOME", "/h")], &[("HOME", "/h"), ("TERM", "dumb"), ("PATH", DEFAULT_PATH)]);
    }
}
