//! The agents of other vendors that teammates can run: the known ones, and those of the settings.

use super::environment::{Environment, PassedNames};
use super::layers::SettingMap;
use super::value::SettingEntry;
use crate::llm::secret::REDACTED;
use crate::wire::agent_program::{AgentMode, AgentProgram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An agent that needs no setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownAgent {
    pub(crate) name: &'static str,
    command: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// The strictest mode in which it works and asks.
    mode: Option<&'static str>,
    /// The package that has it.
    pub(crate) package: &'static str,
    /// The command by which a person logs in.
    login: &'static str,
}

pub(crate) const KNOWN_AGENTS: [KnownAgent; 6] = [
    KnownAgent {
        name: "claude",
        command: &["claude-agent-acp"],
        env: &[
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("ENABLE_TOOL_SEARCH", "false"),
        ],
        mode: Some("default"),
        package: "@agentclientprotocol/claude-agent-acp",
        login: "claude",
    },
    KnownAgent {
        name: "codex",
        command: &["codex-acp"],
        env: &[],
        mode: Some("read-only"),
        package: "@agentclientprotocol/codex-acp",
        login: "codex login",
    },
    KnownAgent {
        name: "opencode",
        command: &["opencode", "acp"],
        env: &[("OPENCODE_PERMISSION", r#"{"edit":"ask","bash":"ask","webfetch":"ask"}"#)],
        mode: None,
        package: "opencode-ai",
        login: "opencode auth login",
    },
    KnownAgent {
        name: "qwen",
        command: &["qwen", "--acp"],
        env: &[],
        mode: Some("default"),
        package: "@qwen-code/qwen-code",
        login: "qwen",
    },
    KnownAgent {
        name: "gemini",
        command: &["gemini", "--acp"],
        env: &[("GEMINI_CLI_NO_RELAUNCH", "true")],
        mode: Some("default"),
        package: "@google/gemini-cli",
        login: "gemini",
    },
    KnownAgent {
        name: "copilot",
        command: &["copilot", "--acp"],
        env: &[],
        mode: None,
        package: "@github/copilot",
        login: "copilot login",
    },
];

/// Further variables that agents get besides those of commands: they keep their state in these folders.
const FOLDERS: [&str; 3] = ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];

/// An agent of the settings, or a change of a known one.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSetting {
    /// The program and its arguments; empty for those of a known agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    /// Variables for its environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    /// The names of variables of the user that are handed on, such as that of its key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pass: Vec<String>,
    /// The mode in which it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

impl fmt::Debug for AgentSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AgentSetting").field("command", &self.command).finish_non_exhaustive()
    }
}

impl SettingEntry for AgentSetting {
    type Name = String;
    const IS_TRUSTED_AS_A_WHOLE: bool = true;
    const EXPECTED: &'static str = "a table of agents, each with command, env, pass or mode";

    fn shown(&self, _name: &String) -> String {
        let env = self.env.keys().map(|name| format!("{name}={REDACTED}"));
        let pass = self.pass.iter().map(|name| format!("pass {name}"));
        let mode = self.mode.iter().map(|mode| format!("mode {mode}"));
        let command = (!self.command.is_empty()).then(|| self.command.join(" "));
        command.into_iter().chain(env).chain(pass).chain(mode).collect::<Vec<_>>().join(", ")
    }

    fn acts_untrusted(&self, _: &Self::Name, _own: Option<&Self>) -> bool {
        false
    }
}

/// The agents that this team can run, with the variables of the user.
#[derive(Debug, Clone)]
pub(crate) struct AgentPrograms {
    settings: BTreeMap<String, AgentSetting>,
    environment: Environment,
    /// The variables that every agent gets.
    common: Vec<(String, String)>,
}

impl AgentPrograms {
    /// Takes the agents of the settings, and the names of further variables that every agent gets.
    pub(crate) fn of(
        agents: &SettingMap<AgentSetting>,
        further: &PassedNames,
        environment: &Environment,
    ) -> Self {
        let mut common = environment.passed_on(further);
        common.retain(|(name, _)| name != "TERM");
        let folders = FOLDERS.iter().filter_map(|name| Some((*name, environment.get(name)?)));
        let plain = [("TERM", "dumb"), ("NO_COLOR", "1")];
        let more = folders.chain(plain).map(|(name, value)| (name.to_owned(), value.to_owned()));
        common.extend(more);
        let own = |agents: &SettingMap<AgentSetting>| {
            agents.iter().map(|(name, agent)| (name.clone(), agent.value.clone())).collect()
        };
        Self { settings: own(agents), environment: environment.clone(), common }
    }

    /// Returns the names of all agents.
    pub(crate) fn names(&self) -> Vec<&str> {
        let own = self.settings.keys().map(String::as_str);
        let own = own.filter(|name| known(name).is_none());
        KNOWN_AGENTS.iter().map(|agent| agent.name).chain(own).collect()
    }

    /// Whether the settings have an entry for an agent.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.settings.contains_key(name)
    }

    /// Returns the program of an agent. Fails with the reason and a remedy if there is none, or if it is not installed.
    pub(crate) fn program(&self, name: &str) -> Result<AgentProgram, (String, String)> {
        let (known, own) = (known(name), self.settings.get(name));
        if known.is_none() && own.is_none_or(|own| own.command.is_empty()) {
            let why = format!("there is no agent {name:?}");
            let listed = self.names().join(", ");
            return Err((
                why,
                format!("name one of {listed}, or set command under [agents.{name}]"),
            ));
        }
        let own = own.cloned().unwrap_or_default();
        let command: Vec<String> = match known {
            Some(known) if own.command.is_empty() => {
                known.command.iter().map(|word| (*word).to_owned()).collect()
            }
            Some(_) | None => own.command,
        };
        let program = command.first().map_or("", String::as_str);
        if !self.is_installed(program) {
            let why = format!("its program {program:?} is not on the PATH");
            let install = known.map(|it| format!("npm install -g {}", it.package));
            let install = install.unwrap_or_else(|| "install it".into());
            return Err((
                why,
                format!("{install}, or set command under [agents.{name}]; see `team doctor`"),
            ));
        }
        let mut env: BTreeMap<String, String> = self.common.iter().cloned().collect();
        let of_known = known.map(|known| known.env).unwrap_or_default();
        env.extend(of_known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let passed = own
            .pass
            .iter()
            .filter_map(|name| Some((name.clone(), self.environment.get(name)?.to_owned())));
        env.extend(passed);
        let secret = own.pass.iter().chain(own.env.keys()).cloned().collect();
        env.extend(own.env);
        let chosen = own.mode.map(|id| AgentMode { id, is_chosen: true });
        let usual = || Some(AgentMode { id: known?.mode?.to_owned(), is_chosen: false });
        Ok(AgentProgram {
            name: name.to_owned(),
            command,
            env: env.into_iter().collect(),
            secret,
            mode: chosen.or_else(usual),
            login: known.map(|known| known.login.to_owned()),
        })
    }

    fn is_installed(&self, program: &str) -> bool {
        let is_program = |path: &Path| {
            path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        };
        if program.contains('/') {
            return is_program(Path::new(program));
        }
        let path = self.environment.get("PATH").unwrap_or_default();
        !program.is_empty()
            && path.split(':').any(|folder| is_program(&Path::new(folder).join(program)))
    }
}

fn known(name: &str) -> Option<&'static KnownAgent> {
    KNOWN_AGENTS.iter().find(|agent| agent.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flags, Settings};
    use std::io::Write;

    fn programs(file: &str) -> AgentPrograms {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("team")).unwrap();
        let mut out = std::fs::File::create(folder.path().join("team/settings.toml")).unwrap();
        out.write_all(file.as_bytes()).unwrap();
        let home = folder.path().display().to_string();
        let environment = Environment::of(&[
            ("XDG_CONFIG_HOME", &home),
            ("PATH", "/usr/bin:/bin"),
            ("MY_KEY", "canary"),
            ("OTHER_KEY", "x"),
        ]);
        let none = folder.path().join("none.toml");
        let settings = Settings::load(&environment, &none, &Flags::default()).unwrap();
        settings.agent_programs(&environment)
    }

    #[test]
    fn an_agent_gets_the_named_variables_and_no_others() {
        let agents = programs(
            "[agents.mine]\ncommand = [\"sh\", \"-x\"]\nenv = { A = \"b\" }\npass = [\"MY_KEY\", \"UNSET\"]\nmode = \"ask\"\n\
             [agents.claude]\ncommand = [\"/bin/sh\"]\n",
        );
        let mine = agents.program("mine").unwrap();
        assert_eq!(mine.command, ["sh", "-x"]);
        assert_eq!(mine.mode, Some(AgentMode { id: "ask".into(), is_chosen: true }));
        let value = |name: &str| mine.env.iter().find(|it| it.0 == name).map(|it| it.1.as_str());
        let values = ["A", "MY_KEY", "UNSET", "OTHER_KEY", "NO_COLOR"].map(value);
        assert_eq!(values, [Some("b"), Some("canary"), None, None, Some("1")]);
        assert_eq!(mine.secrets(), ["b", "canary"]);
        let claude = agents.program("claude").unwrap();
        assert_eq!(
            (&*claude.command, claude.mode.unwrap().id.as_str()),
            (&["/bin/sh".to_owned()][..], "default")
        );
        assert!(claude.env.iter().any(|(name, _)| name == "DISABLE_AUTOUPDATER"));
        assert!(agents.names().ends_with(&["copilot", "mine"]));
        let why = |name: &str| agents.program(name).unwrap_err();
        assert!(why("codex").1.contains("npm install -g @agentclientprotocol/codex-acp"));
        assert!(why("other").0.contains("no agent"));
    }
}
