//! The process of an agent, before and after the agent's loop: its name, its signals, its log, its end.

use super::event_loop::SignalStream;
use crate::agent::{Finished, event::Ending};
use crate::error::{Exit, Failure};
use crate::leases;
use crate::llm::{ModelError, Redactor, Secret};
use crate::os::event_loop::check_blocking;
use crate::os::{Clock, SystemClock, failpoint::hit, local_time, process_tree, program};
use crate::settings::environment::Environment;
use crate::store::process_log::ProcessLog;
use crate::store::{
    Fsync, LifeLock, LifeRecord, TeamDir, asynchronous::offload, liveness::LifeError, relay, roster,
};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, Status};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

/// The time in which a relay gives back the life lock of an agent that has ended on another host.
const RELEASED_WITHIN: Duration = Duration::from_secs(3);

/// The pause between two tries to take it.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A process that holds an agent's life lock and is ready to run that agent.
pub(super) struct AgentProcess {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    /// The id in the environment of the agent's commands, by which their processes are found.
    pub(super) run_id: String,
    pub(super) life: LifeLock,
    pub(super) signals: SignalStream,
    pub(super) secrets: Redactor,
}

impl AgentProcess {
    /// Takes the life lock before any access to the agent's files, and collects the secrets before the log starts.
    pub(super) async fn start(
        team: &TeamDir,
        name: AgentName,
        incarnation: String,
        started_by: &str,
        secrets: Vec<String>,
    ) -> Result<Self, Failure> {
        let run_id = fresh_id();
        let life = take_life_lock(team, &name, &incarnation, &run_id, started_by).await?;
        if !name.is_lead() {
            hit("child.named");
        }
        let signals = SignalStream::begin()?;
        let environment = Environment::read();
        let keys = secrets.into_iter().chain(environment.proxy_passwords());
        let secrets = Redactor::new(keys.flat_map(Secret::new));
        start_log(team, &name, &secrets)?;
        // Processes that a command leaves behind become children of this process, which kills them.
        if let Err(why) = process_tree::become_subreaper() {
            tracing::warn!(%why, "orphans of commands cannot be adopted");
        }
        // Other processes of the same user must not read the keys in the memory of this process.
        if let Err(why) = program::forbid_inspection() {
            tracing::warn!(%why, "other processes of this user can read this one's memory");
        }
        Ok(Self { name, incarnation, run_id, life, signals, secrets })
    }
}

pub(super) async fn take_life_lock(
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
    let (team, name) = (team.clone(), name.clone());
    offload(move || {
        let life = take_from_relay(&team, &name, &record).map_err(|why| life_failure(&why))?;
        // With the lock: the relay writes the entry before it takes the mailbox of an agent of another host.
        take_home(&team, &name)?;
        Ok(life)
    })
    .await
}

/// Takes the life lock. A relay that holds it for an agent of another host gives it back soon after that one has ended.
fn take_from_relay(
    team: &TeamDir,
    name: &AgentName,
    record: &LifeRecord,
) -> Result<LifeLock, LifeError> {
    check_blocking("wait for the relay");
    let until = SystemClock.monotonic() + RELEASED_WITHIN;
    loop {
        let taken = LifeLock::take(team, name, record.clone());
        let Err(LifeError::InUse { record: Some(holder), .. }) = &taken else { return taken };
        let is_free_soon = || {
            let home = roster::read(team).ok()?.home_of(name.as_str())?;
            (!home.is_alive).then_some(())
        };
        if holder.host.is_empty() || SystemClock.monotonic() > until || is_free_soon().is_none() {
            return taken;
        }
        std::thread::park_timeout(TRY_AGAIN_AFTER);
    }
}

/// Makes the agent one of this host. Fails if it runs on another one, or if nobody here knows whether it does. If it is
/// started there at the same moment, the relays decide.
fn take_home(team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
    let Some(home) = roster::read(team)?.home_of(name.as_str()) else { return Ok(()) };
    let host = &home.host;
    if home.is_alive {
        return Err(runs_elsewhere(name, host));
    }
    let unknown = |why: String, hint: String| {
        let what = format!("{name} may run on {host}");
        Err(Failure::new(Exit::InUse, what, why, hint))
    };
    let known = relay::known_hosts(team)?;
    let is_heard = known.iter().any(|known| known.host.as_str() == host && known.is_heard);
    if relay::is_served(team)? && !home.is_given_up && (home.is_away || !is_heard) {
        let why = format!("{host} is not heard, and {name} belonged to it");
        return unknown(
            why,
            format!(
                "wait until {host} is back, or choose another name or folder; if it is gone for good: team host give-up {host}"
            ),
        );
    }
    if !relay::is_served(team)? {
        let why = format!("{name} belonged to it, and no relay runs here to hear it");
        return unknown(why, "start the relay first, and leave it running: team-host run".into());
    }
    roster::update(team, Fsync::Always, |roster| roster.take_home(name.as_str()))?;
    tracing::info!(%name, %host, home.is_given_up, "an agent that had ended on another host starts here");
    Ok(())
}

fn runs_elsewhere(name: &AgentName, host: &str) -> Failure {
    let (what, hint) = if name.is_lead() {
        let hint = format!("work with it on {host}, or start another team in another folder");
        ("the lead of this team runs on another host".to_owned(), hint)
    } else {
        (
            format!("{name} belongs to another host"),
            format!("choose another name, or start it on {host}"),
        )
    };
    Failure::new(Exit::InUse, what, format!("its host is {host}"), hint)
}

fn life_failure(why: &LifeError) -> Failure {
    let LifeError::InUse { name, record } = why else {
        let hint = "check the team folder's permissions and free space";
        let what = "the life lock cannot be taken";
        return Failure::new(Exit::Failure, what, why.to_string(), hint);
    };
    if let Some(record) = record.as_ref().filter(|record| !record.host.is_empty()) {
        return runs_elsewhere(name, &record.host);
    }
    let holder = record.as_ref().map_or_else(
        || why.to_string(),
        |record| format!("pid {}, since {}", record.pid, local_time(record.started_at)),
    );
    let (what, hint) = if name.is_lead() {
        let others = "take its place with `team lead --takeover`, or work in another folder";
        let what = "a lead is already running in this folder";
        (what.into(), format!("talk to that one, {others}"))
    } else {
        let hint = format!("choose another name, or stop it with `team stop {name}`");
        (format!("{name} is already running"), hint)
    };
    Failure::new(Exit::InUse, what, holder, hint)
}

/// Creates an id that was never used before: an incarnation or a run id.
pub(super) fn fresh_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Reserves room on the disk for the orderly end of the team.
pub(super) fn reserve_disk_space(team: &TeamDir) {
    if let Err(why) = team.keep_reserve() {
        tracing::warn!(%why, "no disk space is reserved for an orderly exit: the disk is nearly full");
    }
}

/// Starts the structured log of this process. Redacts known secrets; logs panics, too.
fn start_log(team: &TeamDir, name: &AgentName, secrets: &Redactor) -> Result<(), Failure> {
    start_log_at(ProcessLog::open(team, name)?, name.as_str(), secrets);
    Ok(())
}

/// Starts the structured log of this process at a place, into which each line is one write.
pub(super) fn start_log_at(log: impl Write + Send + 'static, name: &str, secrets: &Redactor) {
    let log: Box<dyn Write + Send> = Box::new(log);
    let writer = LogWriter { log: Arc::new(Mutex::new(log)), redactor: Arc::new(secrets.clone()) };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        // The library would print a failed write, and panic if stderr is on the same full disk.
        .log_internal_errors(false)
        .with_writer((move || writer.clone()).with_filter(is_for_people))
        .finish();
    // A process has one log: the call fails only if there is one already.
    let _first_wins = tracing::subscriber::set_global_default(subscriber);
    let name = name.to_owned();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(name, %panic, "panicked");
    }));
}

/// Whether an event belongs in the log: a library tells each step of its protocol.
fn is_for_people(event: &tracing::Metadata<'_>) -> bool {
    *event.level() <= tracing::Level::WARN || event.target().starts_with("agent_team")
}

#[derive(Clone)]
struct LogWriter {
    log: Arc<Mutex<Box<dyn Write + Send>>>,
    redactor: Arc<Redactor>,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let line = self.redactor.redact(&text);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The end of an agent, for the exit code of its process.
#[derive(Default)]
pub(super) struct AgentEnd {
    /// The failure that ended the agent; `None` after an orderly end.
    pub(super) broken: Option<String>,
    /// The error of its last model call, if that gave no reply.
    pub(super) model_error: Option<ModelError>,
    /// The members that a lead has left behind, in words: their host is not reached, or the kernel holds them.
    pub(super) left_running: Option<String>,
}

/// Releases the leases of an agent at its end. Those that stay end with its process.
pub(super) async fn release_leases(team: &TeamDir, name: &AgentName) {
    let (team, name) = (team.clone(), name.clone());
    if let Err(why) = offload(move || leases::release(&team, &name, None)).await {
        tracing::warn!(%why, "leases are removed by the next claim");
    }
}

pub(super) async fn publish_end(finished: Finished, exit: i32, cause: ExitCause) -> AgentEnd {
    let Finished { ending, model_error, mut reporter } = finished;
    let (status, broken) = match ending {
        Ending::Broken(why) => (Status::Failed, Some(why)),
        Ending::Stopped(_) => (Status::Shutdown, None),
    };
    if let Err(why) = reporter.publish_end(status, exit, cause).await {
        tracing::error!(%why, "the exit could not be written to the roster");
    }
    AgentEnd { broken, model_error, left_running: None }
}
