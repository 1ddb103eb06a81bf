//! The start of a foreign agent: its process, the agreement on the protocol, its session, its mode.

use super::adapt::adapted;
use crate::acp::connection::{CallError, Connection, Incoming};
use crate::acp::session::{
    AgentInfo, Capability, PromptEnd, Session, SessionError, SessionRequest, ToolServerAccess,
    begin, initialize,
};
use crate::os::command::CommandSetup;
use crate::store::agent_places::{AgentPlace, AgentPlaces, GivingAway};
use crate::tools::{Call, Registry};
use crate::wire::agent_program::AgentProgram;
use crate::wire::transcript::Entry;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The program of a foreign agent, and what each of its processes begins with.
pub(crate) struct AgentSetup {
    pub(crate) program: AgentProgram,
    /// The environment of the process, which has no walls.
    pub(crate) commands: CommandSetup,
    /// The folder in which it works.
    pub(crate) folder: PathBuf,
    /// The rules of the team, for its system prompt.
    pub(crate) instructions: String,
}

/// The parts of a foreign agent that stay the same for each of its processes.
pub(crate) struct ForeignSetup {
    pub(crate) agent: AgentSetup,
    /// The tools of the team.
    pub(crate) tools: Rc<Registry>,
    /// The idle time after which the process is ended; `None` for never.
    pub(crate) sleep_after: Option<Duration>,
    /// The time without a sign of it in a prompt after which it is started again; `None` for never.
    pub(crate) hung_after: Option<Duration>,
    /// The places for the agents of the team.
    pub(crate) places: AgentPlaces,
}

/// An agent with a session.
pub(super) struct RunningAgent {
    pub(super) connection: Connection,
    pub(super) info: AgentInfo,
    pub(super) session: Session,
    /// The place of its process, which is dropped after the connection.
    place: AgentPlace,
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
    /// The agent has had no prompt since the one of this number, and is to be ended: after the time of the settings, or
    /// because another member wants its place.
    SleepDue(u64, Option<GivingAway>),
    /// The start waits for a place.
    Queued,
}

/// An event of the server of the team tools.
#[derive(Debug)]
pub(crate) enum FromTools {
    /// The agent calls a tool.
    Call(Call, oneshot::Sender<ToolVerdict>),
    /// The agent has got entries with the result of a call.
    HandedOver,
}

/// The verdict on a call of a team tool.
#[derive(Debug)]
pub(crate) enum ToolVerdict {
    Run,
    /// It is not run, for this reason.
    Refuse(String),
    /// It is answered by this text, and not run.
    Answer(String),
}

impl RunningAgent {
    /// Ends the session and the process, as far as the agent lets itself be ended in an orderly way.
    pub(super) async fn end(self) {
        let Self { connection, info, session, place } = self;
        session.close(&connection, &info).await;
        connection.end().await;
        drop(place);
    }
}

/// The result of the start of a process. An event cannot carry it, since it belongs to the thread of the event loop.
pub(super) type StartedAgent = Rc<RefCell<Option<Result<RunningAgent, String>>>>;

/// An agent that has been tried out.
pub(crate) struct TriedAgent {
    /// The version that it names.
    pub(crate) version: String,
    /// Whether it can use the tools of a team.
    pub(crate) takes_tools: bool,
}

impl ForeignSetup {
    /// Starts the agent, and continues the session with the id `known` if it can. The error says what to do.
    pub(super) async fn start(
        self: Rc<Self>,
        place: AgentPlace,
        known: Option<String>,
        tools: Option<ToolServerAccess>,
        sink: impl Fn(Incoming) + 'static,
    ) -> Result<RunningAgent, String> {
        let started = self.agent.start(known, tools, sink).await;
        let name = &self.agent.program.name;
        let (connection, info, session) = started.map_err(|(why, hint)| {
            let hint = hint.unwrap_or_else(|| "`team doctor` says what is missing".into());
            format!("acp/{name} {why}; {hint}")
        })?;
        tracing::info!(
            agent = name,
            version = info.version,
            session = session.id,
            "the agent has a session"
        );
        if !info.has(Capability::HttpTools) {
            tracing::warn!("the agent takes no tools over HTTP: it has none of the team");
        }
        Ok(RunningAgent { connection, info, session, place })
    }
}

impl AgentSetup {
    /// Starts the agent, begins a session, and ends both. The error is the reason, with a remedy if one is known.
    pub(crate) async fn try_out(&self) -> Result<TriedAgent, (String, Option<String>)> {
        let (connection, info, session) = self.start(None, None, |_| {}).await?;
        session.close(&connection, &info).await;
        connection.end().await;
        let takes_tools = info.has(Capability::HttpTools);
        Ok(TriedAgent { version: info.version, takes_tools })
    }

    async fn start(
        &self,
        known: Option<String>,
        tools: Option<ToolServerAccess>,
        sink: impl Fn(Incoming) + 'static,
    ) -> Result<(Connection, AgentInfo, Session), (String, Option<String>)> {
        let name = &self.program.name;
        let failed = |why: SessionError| {
            let login =
                self.program.login.as_ref().filter(|_| matches!(why, SessionError::LoggedOut(_)));
            let hint = login.map(|login| {
                format!("run `{login}` and log in, or name the variable of its key under pass in [agents.{name}]")
            });
            (format!("cannot be used: {why}"), hint)
        };
        let folder = &self.folder;
        let (program, commands) = adapted(&self.program, &self.commands, folder, tools.as_ref());
        let opened = Connection::open(&program.command_line(), folder, &commands, sink);
        let connection = opened.map_err(|why| (format!("could not be started: {why}"), None))?;
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
        Ok((connection, info, session))
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
