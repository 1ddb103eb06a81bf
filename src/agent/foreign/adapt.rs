//! The parts of an agent's start that depend on its folder and on the server of the team tools.

use crate::acp::session::ToolServerAccess;
use crate::os::command::CommandSetup;
use crate::wire::agent_program::AgentProgram;
use std::path::Path;

/// The variable by which Gemini CLI takes its folder for trusted. In another folder it uses no server of tools.
const GEMINI_TRUST: &str = "GEMINI_CLI_TRUST_WORKSPACE";

/// The files of a folder by which Gemini CLI would run programs, or change its settings, once it trusts the folder.
const GEMINI_FILES: [&str; 2] = [".gemini", ".env"];

/// The effect of a cancellation on the calls of an agent that does not end them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelledCalls {
    /// Gemini CLI keeps a call without a result, for which the endpoint of its model refuses each later request.
    EndTheSession,
    /// Codex lets the command run on, as a terminal in the background.
    GoOn,
}

impl CancelledCalls {
    pub(super) fn of(program: &AgentProgram) -> Option<Self> {
        if is_program(program, "gemini") {
            return Some(Self::EndTheSession);
        }
        is_program(program, "codex-acp").then_some(Self::GoOn)
    }
}

/// Returns program and environment for one start of an agent in a folder.
pub(super) fn adapted(
    program: &AgentProgram,
    commands: &CommandSetup,
    folder: &Path,
    tools: Option<&ToolServerAccess>,
) -> (AgentProgram, CommandSetup) {
    let (mut program, mut commands) = (program.clone(), commands.clone());
    // Copilot CLI asks about each tool of a server, and does not say which server. The team judges its own tools itself.
    if let Some(tools) = tools.filter(|_| is_program(&program, "copilot")) {
        program.command.push(format!("--allow-tool={}", tools.name));
    }
    let is_set = commands.env.iter().any(|(name, _)| name == GEMINI_TRUST);
    if is_program(&program, "gemini") && !is_set {
        let home = commands.env.iter().find(|(name, _)| name == "HOME");
        let home = home.map(|(_, home)| Path::new(home));
        if has_nothing_for_gemini(folder, home) {
            commands.env.push((GEMINI_TRUST.into(), "true".into()));
        } else {
            tracing::warn!(
                "the folder has files of Gemini CLI, so it gets no tools of the team unless the user lets it trust the folder"
            );
        }
    }
    (program, commands)
}

/// Whether a program, or one that it runs, has this name.
pub(super) fn is_program(program: &AgentProgram, name: &str) -> bool {
    let is_name = |word: &String| word.rsplit('/').next() == Some(name);
    program.command.iter().any(is_name)
}

/// Whether trust in a folder has no effect: Gemini CLI also reads the files of the folders above it, up to that of the user.
fn has_nothing_for_gemini(folder: &Path, home: Option<&Path>) -> bool {
    let above = folder.ancestors().take_while(|folder| Some(*folder) != home);
    let mut files = above.flat_map(|folder| GEMINI_FILES.map(|file| folder.join(file)));
    files.all(|file| file.symlink_metadata().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gemini_trusts_a_folder_without_files_of_its_own_and_copilot_the_tools_of_the_team() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("code/work");
        std::fs::create_dir_all(&work).unwrap();
        std::fs::create_dir(home.path().join(".gemini")).unwrap();
        let access = ToolServerAccess {
            name: "team_1f".into(),
            url: String::new(),
            authorization: String::new(),
        };
        let start = |command: &[&str], env: &[(&str, &str)]| {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            let program = AgentProgram { command, ..AgentProgram::default() };
            let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let commands = CommandSetup {
                env,
                run_id: String::new(),
                walls: None,
                granted_hosts: Vec::new(),
                read_only: Vec::new(),
            };
            let (program, commands) = adapted(&program, &commands, &work, Some(&access));
            let trust = commands.env.into_iter().find(|(name, _)| name == GEMINI_TRUST);
            (program.command.last().unwrap().clone(), trust.map(|(_, value)| value))
        };
        let home_is = ("HOME", home.path().to_str().unwrap());
        let gemini = || start(&["/bin/gemini", "--acp"], &[home_is]).1;
        assert_eq!(gemini().as_deref(), Some("true"));
        let own = start(&["gemini"], &[home_is, (GEMINI_TRUST, "false")]).1;
        assert_eq!(own.as_deref(), Some("false"), "the user's own value stays");
        assert_eq!(start(&["claude-agent-acp"], &[home_is]).1, None);
        for file in ["code/work/.gemini", "code/.env"] {
            std::fs::create_dir(home.path().join(file)).unwrap();
            assert_eq!(gemini(), None, "{file}");
            std::fs::remove_dir(home.path().join(file)).unwrap();
        }
        assert_eq!(start(&["node", "/x/copilot", "--acp"], &[]).0, "--allow-tool=team_1f");
        assert_eq!(start(&["qwen", "--acp"], &[]).0, "--acp");
    }
}
