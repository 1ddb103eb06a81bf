//! The start of a foreign agent: its process, the agreement on the protocol, its session, its mode.

use crate::acp::connection::{CallError, Connection, Incoming};
use crate::acp::session::{
    AgentInfo, PromptEnd, Session, SessionError, SessionRequest, begin, initialize,
};
use crate::os::command::CommandSetup;
use crate::wire::agent_program::AgentProgram;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// The parts of a foreign agent that stay the same for each of its processes.
#[derive(Debug)]
pub(crate) struct ForeignSetup {
    pub(crate) program: AgentProgram,
    /// The environment of the process, which has no walls.
    pub(crate) commands: CommandSetup,
    /// The folder in which it works.
    pub(crate) folder: PathBuf,
    /// The rules of the team, for its system prompt.
    pub(crate) instructions: String,
}

/// An agent with a session.
pub(super) struct RunningAgent {
    pub(super) connection: Connection,
    pub(super) info: AgentInfo,
    pub(super) session: Session,
}

/// An event of the process of a foreign agent.
#[derive(Debug)]
pub(crate) enum FromAgent {
    Incoming(Incoming),
    /// The start of a process has ended; [`StartedAgent`] holds its result.
    Started,
    Prompted(Result<PromptEnd, CallError>),
    CancelOverdue,
}

/// The result of the start of a process. An event cannot carry it, since it belongs to the thread of the event loop.
pub(super) type StartedAgent = Rc<RefCell<Option<Result<RunningAgent, String>>>>;

impl ForeignSetup {
    /// Starts the agent, and continues the session with the id `known` if it can. The error says what to do.
    pub(super) async fn start(
        self: Rc<Self>,
        known: Option<String>,
        sink: impl Fn(Incoming) + 'static,
    ) -> Result<RunningAgent, String> {
        let name = &self.program.name;
        let failed = |why: SessionError| match (&why, &self.program.login) {
            (SessionError::LoggedOut(_), Some(login)) => {
                format!(
                    "acp/{name} cannot be used: {why}; run `{login}` and log in, or name the variable of its key under pass in [agents.{name}]"
                )
            }
            _ => format!("acp/{name} cannot be used: {why}; `team doctor` says what is missing"),
        };
        let (line, folder) = (self.program.command_line(), &self.folder);
        let opened = Connection::open(&line, folder, &self.commands, sink);
        let connection = opened.map_err(|why| format!("acp/{name} could not be started: {why}"))?;
        let info = initialize(&connection).await.map_err(failed)?;
        let request =
            SessionRequest { folder, instructions: &self.instructions, meta: self.extensions() };
        let session =
            begin(&connection, &info, &request, known.as_deref()).await.map_err(failed)?;
        if let Some(mode) = &self.program.mode
            && (mode.is_chosen || session.has_modes())
        {
            session.set_mode(&connection, &mode.id).await.map_err(failed)?;
        }
        tracing::info!(
            agent = name,
            version = info.version,
            session = session.id,
            "the agent has a session"
        );
        Ok(RunningAgent { connection, info, session })
    }

    /// Returns the extensions of this agent. Tools of Claude Code that would compete with those of the team are left out.
    fn extensions(&self) -> Option<Value> {
        let is_claude =
            self.program.command.first().is_some_and(|it| it.ends_with("claude-agent-acp"));
        let options = json!({
            "disallowedTools": ["SendMessage", "ListAgents", "Agent", "Task", "Workflow"],
            "promptSuggestions": false,
        });
        is_claude.then(|| json!({ "claudeCode": { "options": options } }))
    }
}
