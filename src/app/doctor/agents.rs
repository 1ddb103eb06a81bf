//! The check of agents of other vendors: each one that is installed is started, gets a session, and is ended.

use super::{DoctorReport, State};
use crate::agent::foreign::process::AgentSetup;
use crate::app::agent_process::fresh_id;
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::error::Failure;
use crate::os::command::CommandSetup;
use crate::settings::Settings;
use crate::tools::command::command_setup;
use crate::wire::agent_program::AgentProgram;
use std::time::Duration;
use tokio::time::timeout;

/// The time that an agent has to start and begin a session.
const TRY_WITHIN: Duration = Duration::from_secs(30);

impl DoctorReport {
    /// Tries the agents that are installed, one after the other since each takes much memory, and names those of the
    /// settings that are not installed.
    pub(super) fn agents(&mut self, context: &Context, settings: &Settings) -> Result<(), Failure> {
        let programs = settings.agent_programs(&context.environment);
        for name in programs.names() {
            // One that nobody has set may be installed for other work.
            let state = if programs.is_set(name) { State::Wrong } else { State::Note };
            match programs.program(name) {
                Ok(program) => self.agent(context, program, state)?,
                Err((why, hint)) if state == State::Wrong => {
                    self.wrong("agents", format!("acp/{name}: {why}"), &hint);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Tries an agent. `failed` is the state if it cannot be used.
    fn agent(
        &mut self,
        context: &Context,
        program: AgentProgram,
        failed: State,
    ) -> Result<(), Failure> {
        let command = program.command.join(" ");
        let shown = format!("acp/{} ({command})", program.name);
        let workspace = context.team_path.parent().filter(|folder| folder.is_dir());
        let setup = AgentSetup {
            commands: CommandSetup {
                env: program.env.clone(),
                ..command_setup(Vec::new(), fresh_id(), None)
            },
            program,
            folder: workspace.unwrap_or(&context.cwd).to_owned(),
            instructions: String::new(),
        };
        let tried = block_on(async { timeout(TRY_WITHIN, setup.try_out()).await })?;
        let (why, hint) = match tried {
            Ok(Ok(tried)) if tried.takes_tools => {
                self.fine("agents", format!("{shown} {}: a session can begin", tried.version));
                return Ok(());
            }
            Ok(Ok(tried)) => {
                let found = format!("{shown} {}: it takes no tools over HTTP", tried.version);
                self.note("agents", found, "it gets mail, and sends nothing but its reports");
                return Ok(());
            }
            Ok(Err(why)) => why,
            Err(_) => {
                let why = format!("began no session within {} s", TRY_WITHIN.as_secs());
                (why, None)
            }
        };
        let hint = hint.unwrap_or_else(|| format!("run `{command}` to see what it says"));
        self.add("agents", failed, format!("{shown} {why}"), &hint);
        Ok(())
    }
}
