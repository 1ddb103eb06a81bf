//! The start of a foreign agent: its process, the agreement on the protocol, its session, its mode.

use super::adapt::adapted;
use crate::acp::connection::{CallError, Connection, Incoming};
use crate::acp::session::{
    AgentInfo, PromptEnd, Session, SessionError, SessionRequest, ToolServerAccess, begin,
    initialize,
};
use crate::os::command::CommandSetup;
use crate::tools::{Call, Registry};
use crate::wire::agent_program::AgentProgram;
use crate::wire::transcript::Entry;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The parts of a foreign agent that stay the same for each of its processes.
pub(crate) struct ForeignSetup {
    pub(crate) program: AgentProgram,
    /// The environment of the process, which has no walls.
    pub(crate) commands: CommandSetup,
    /// The folder in which it works.
    pub(crate) folder: PathBuf,
    /// The rules of the team, for its system prompt.
    pub(crate) instructions: String,
    /// The tools of the team.
    pub(crate) tools: Rc<Registry>,
    /// The idle time after which the process is ended; `None` for never.
    pub(crate) sleep_after: Option<Duration>,
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
    /// The agent has answered whether it has put these entries into its prompt.
    Steered(Vec<Entry>, Result<bool, CallError>),
    /// The agent has had no prompt since the one of this number, for the time after which it is ended.
    SleepDue(u64),
}

/// An event of the server of the team tools.
#[derive(Debug)]
pub(crate) enum FromTools {
    /// The agent calls a tool; answered by the reason for which it may not run, if there is one.
    Call(Call, oneshot::Sender<Result<(), String>>),
    /// The agent has got entries with the result of a call.
    HandedOver,
}

impl RunningAgent {
    /// Ends the session and the process, as far as the agent lets itself be ended in an orderly way.
    pub(super) async fn end(self) {
        let Self { connection, info, session } = self;
        session.close(&connection, &info).await;
        connection.end().await;
    }
}

/// The result of the start of a process. An event cannot carry it, since it belongs to the thread of the event loop.
pub(super) type StartedAgent = Rc<RefCell<Option<Result<RunningAgent, String>>>>;

impl ForeignSetup {
    /// Starts the agent, and continues the session with the id `known` if it can. The error says what to do.
    pub(super) async fn start(
        self: Rc<Self>,
        known: Option<String>,
        tools: Option<ToolServerAccess>,
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
        let folder = &self.folder;
        let (program, commands) = adapted(&self.program, &self.commands, folder, tools.as_ref());
        let opened = Connection::open(&program.command_line(), folder, &commands, sink);
        let connection = opened.map_err(|why| format!("acp/{name} could not be started: {why}"))?;
        let info = initialize(&connection).await.map_err(failed)?;
        let request = SessionRequest {
            folder,
            instructions: &self.instructions,
            meta: self.extensions(tools.as_ref()),
            tools: tools.as_ref(),
        };
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

    /// Whether the program is the adapter of Claude Code.
    pub(super) fn is_claude(&self) -> bool {
        self.program.command.iter().any(|word| word.contains("claude-agent-acp"))
    }

    /// Returns the extensions of this agent. Tools of Claude Code that would compete with those of the team are left out.
    fn extensions(&self, tools: Option<&ToolServerAccess>) -> Option<Value> {
        let free = tools.map(|it| format!("mcp__{}", it.name));
        let options = json!({
            "disallowedTools": ["SendMessage", "ListAgents", "Agent", "Task", "Workflow"],
            "allowedTools": free.into_iter().collect::<Vec<_>>(),
            "promptSuggestions": false,
        });
        self.is_claude().then(|| json!({ "claudeCode": { "options": options } }))
    }
}
