//! Finds the agent whose command runs this process.
//!
//! The processes above this one decide. A command can change its environment and leave its process group, but every
//! process that it starts stays below the supervisor of the command, or below the agent if it kills the supervisor.

use crate::os::processes::{Process, ancestors};
use crate::os::program::COMMAND_SUPERVISOR_NAME;
use crate::settings::environment::Environment;
use crate::store::{TeamDir, liveness};
use crate::wire::AgentName;
use std::ffi::CStr;
use std::fmt;

/// The names in `ps` of the processes that run commands for a model.
const AGENTS: [&CStr; 2] = [c"lead", c"teammate"];

pub(crate) enum CallingAgent {
    /// The process is below this agent's process.
    Ancestor(Process),
    /// The process has the run id of an agent's commands, and no agent above it.
    RunId(String),
}

impl CallingAgent {
    /// Finds the agent; `None` if a person or another program has started this process.
    pub(crate) fn find(environment: &Environment) -> Option<Self> {
        let above = ancestors();
        let session = Process::read(std::process::id().cast_signed()).map(|me| me.session);
        let supervisor = above.iter().position(|it| it.is_named(COMMAND_SUPERVISOR_NAME));
        let is_agent = |process: &&Process| {
            // The person's editor runs below an agent, too, but in its session, which no command does.
            let is_command = supervisor.is_some() || Some(process.session) != session;
            is_command && AGENTS.iter().any(|name| process.is_named(name))
        };
        let agent = above.get(supervisor.unwrap_or_default()..)?.iter().find(is_agent);
        let supervisor = supervisor.and_then(|at| above.get(at));
        let run_id = || environment.get("TEAM_RUN").map(|id| Self::RunId(id.into()));
        agent.or(supervisor).map(|process| Self::Ancestor(*process)).or_else(run_id)
    }

    /// Returns the name of the agent; `None` if it is not a live agent of this team.
    pub(crate) fn name(&self, team: &TeamDir) -> Option<AgentName> {
        let found = match self {
            Self::Ancestor(process) => liveness::find_alive(team, |record| {
                (record.pid, record.start_time) == (process.pid, process.start)
            }),
            Self::RunId(id) => liveness::find_alive(team, |record| record.run_id == *id),
        };
        found.ok().flatten()
    }
}

impl fmt::Display for CallingAgent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ancestor(process) => {
                write!(formatter, "this runs below process {} of a team", process.pid)
            }
            Self::RunId(_) => formatter.write_str("TEAM_RUN is set"),
        }
    }
}
