//! The environment of an agent's commands.

use crate::os::command::{CommandSetup, SupervisorProgram};

/// Endings of the names of variables that hold a model's credentials. The caller's allow list names none
/// of them; no list can add one.
const CREDENTIALS: [&str; 2] = ["_API_KEY", "_AUTH_TOKEN"];

/// Where commands are looked for when nobody says.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The environment of one agent's commands.
#[derive(Debug, Clone)]
pub(crate) struct CommandEnvironment {
    variables: Vec<(String, String)>,
    run_id: String,
}

impl CommandEnvironment {
    /// Of `allowed` what is no credential. All processes of the agent's commands can be recognised by
    /// `run_id`, which is unique to the agent.
    pub(crate) fn new(allowed: Vec<(String, String)>, run_id: String) -> Self {
        let mut variables = allowed;
        // Nobody looks at a terminal: no colours, no cursor movements.
        let is_credential = |name: &str| CREDENTIALS.iter().any(|end| name.ends_with(end));
        variables.retain(|(name, _)| !is_credential(name) && name != "TERM");
        variables.push(("TERM".into(), "dumb".into()));
        if !variables.iter().any(|(name, _)| name == "PATH") {
            variables.push(("PATH".into(), USUAL_PATH.into()));
        }
        Self { variables, run_id }
    }

    /// What commands run with.
    pub(super) fn setting(self) -> CommandSetup {
        CommandSetup {
            guard: SupervisorProgram::default(),
            env: self.variables,
            run_id: self.run_id,
        }
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
    fn the_terminal_is_a_dumb_one_and_credentials_never_pass() {
        let allowed = [("PATH", "/bin"), ("TERM", "xterm"), ("OPENAI_API_KEY", "canary")];
        check(&allowed, &[("PATH", "/bin"), ("TERM", "dumb")]);
    }

    #[test]
    fn there_is_always_a_path() {
        check(&[("HOME", "/h")], &[("HOME", "/h"), ("TERM", "dumb"), ("PATH", USUAL_PATH)]);
    }
}
