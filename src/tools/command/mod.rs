//! Shell commands: the `bash` tool, the run of one command, its environment and its output.

mod bash;
#[cfg(test)]
mod containment;
pub(super) mod output;
pub(super) mod shell;

pub(super) use bash::Bash;
pub(crate) use output::OutputStore;

use crate::os::command::CommandSetup;

/// Ends of the names of variables with credentials of model endpoints. Commands never get them, even if the
/// caller's allow-list names one.
const CREDENTIALS: [&str; 2] = ["_API_KEY", "_AUTH_TOKEN"];

/// The search path of commands if the caller gives none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The setup of one agent's commands: the variables in `env` without credentials. `run_id`, which is unique
/// to the agent, marks every process of its commands.
pub(crate) fn command_setup(mut env: Vec<(String, String)>, run_id: String) -> CommandSetup {
    // The output goes to a model: no colours, no cursor movements.
    let is_credential = |name: &str| CREDENTIALS.iter().any(|end| name.ends_with(end));
    env.retain(|(name, _)| !is_credential(name) && name != "TERM");
    env.push(("TERM".into(), "dumb".into()));
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    CommandSetup { env, run_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_is_dumb_credentials_are_removed_and_a_path_is_there() {
        for (allowed, expected) in [
            ("PATH=/bin TERM=xterm OPENAI_API_KEY=canary X_AUTH_TOKEN=c", "PATH=/bin TERM=dumb"),
            ("HOME=/h", &*format!("HOME=/h TERM=dumb PATH={DEFAULT_PATH}")),
        ] {
            let pairs = |text: &str| -> Vec<(String, String)> {
                let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
                pairs.map(|(name, value)| (name.into(), value.into())).collect()
            };
            assert_eq!(command_setup(pairs(allowed), String::new()).env, pairs(expected));
        }
    }
}
