//! The process of an agent, before and after the agent's loop: its name, its signals, its log, its end.

use super::failures::life_failure;
use super::log_file::start_log;
use super::signal_stream::SignalStream;
use crate::agent::Finished;
use crate::agent::event::Ending;
use crate::error::Failure;
use crate::llm::{ModelError, Redactor, Secret};
use crate::os::failpoint::hit;
use crate::os::{Clock, SystemClock, process_tree, program};
use crate::settings::model::Credentials;
use crate::store::liveness::LifeLock;
use crate::store::{LifeRecord, TeamDir};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, Status};

/// A process that holds an agent's name and is ready to become that agent.
pub(super) struct AgentProcess {
    pub(super) incarnation: String,
    /// In the environment of every command that the agent runs, so that its processes can be found.
    pub(super) run_id: String,
    pub(super) life: LifeLock,
    pub(super) signals: SignalStream,
    pub(super) secrets: Redactor,
}

impl AgentProcess {
    /// Takes the life lock, then prepares the process. The order matters: nothing of the agent's may be
    /// touched without the lock, and nothing is logged before the secrets are known.
    ///
    /// # Errors
    /// The name is in use, or signals or the log are not to be had.
    pub(super) fn start(
        team: &TeamDir,
        name: &AgentName,
        incarnation: &str,
        started_by: &str,
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let run_id = fresh_id();
        let life = take_life_lock(team, name, incarnation, &run_id, started_by)?;
        if !name.is_lead() {
            hit("child.named");
        }
        let signals = SignalStream::begin()?;
        let secrets = Redactor::new(credentials.secrets().into_iter().flat_map(Secret::new));
        start_log(team, name, &secrets)?;
        adopt_orphans();
        protect_memory(credentials);
        Ok(Self { incarnation: incarnation.to_owned(), run_id, life, signals, secrets })
    }
}

/// Takes a name for this process.
pub(crate) fn take_life_lock(
    team: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    run_id: &str,
    started_by: &str,
) -> Result<LifeLock, Failure> {
    let record = LifeRecord {
        incarnation: incarnation.into(),
        run_id: run_id.into(),
        started_at: SystemClock.now(),
        started_by: started_by.into(),
        ..LifeRecord::of_this_process()
    };
    LifeLock::take(team, name, record).map_err(|why| life_failure(&why))
}

/// Makes an id that was never used before: an incarnation or a run id.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Processes that a command leaves behind become children of this one, which ends them.
fn adopt_orphans() {
    if let Err(why) = process_tree::become_subreaper() {
        tracing::warn!(%why, "orphans of commands cannot be adopted");
    }
}

/// Forbids other processes of the same user to read the memory of a process that holds a key.
fn protect_memory(credentials: &Credentials) {
    if !credentials.secrets().is_empty()
        && let Err(why) = program::forbid_inspection()
    {
        tracing::warn!(%why, "other processes of this user can read this one's memory");
    }
}

/// Reserves room on the disk for the orderly end of the team.
pub(super) fn reserve_disk_space(team: &TeamDir) {
    if let Err(why) = team.keep_reserve() {
        tracing::warn!(%why, "no room is kept for the end; the disk is nearly full");
    }
}

/// How an agent ended, for the exit code of its process.
pub(super) struct AgentEnd {
    /// Why the agent could not go on; `None` after an orderly end.
    pub(super) broken: Option<String>,
    /// Why its last model call gave no reply.
    pub(super) model_error: Option<ModelError>,
}

/// Writes the end of an agent into the roster.
pub(super) async fn publish_end(finished: Finished, exit: i32, cause: ExitCause) -> AgentEnd {
    let Finished { ending, model_error, mut reporter } = finished;
    let broken = match ending {
        Ending::Broken(why) => Some(why),
        Ending::Stopped(_) => None,
    };
    let status = if broken.is_some() { Status::Failed } else { Status::Shutdown };
    if let Err(why) = reporter.publish_end(status, exit, cause).await {
        tracing::error!(%why, "the end cannot be written into the roster");
    }
    AgentEnd { broken, model_error }
}
