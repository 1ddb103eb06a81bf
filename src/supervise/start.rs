//! Starting one teammate: roster entry, process, handshake, readiness. A failed step undoes the earlier ones.

use super::config::SupervisorConfig;
use super::handshake::{self, HandshakeAnswer, Hello, StartReason};
use super::process::kill;
use super::roster_updates::{self, NewLife, Undone, write};
use crate::os::child::{self, Program};
use crate::os::failpoint::hit;
use crate::os::pidfd::Pidfd;
use crate::settings::model::ModelChoice;
use crate::store::inbox::{self, SendError};
use crate::store::{Fsync, StoreError, liveness, roster};
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{Member, Roster};
use crate::wire::{AgentName, WithUnknownFields};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a teammate may take to report that it is ready (RELIABILITY 4).
const READY_WITHIN: Duration = Duration::from_secs(15);

/// A teammate that has reported that it is ready.
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) incarnation: String,
    pub(super) process: Pidfd,
    pub(super) lifeline: OwnedFd,
}

/// Why a teammate did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Inbox(#[from] SendError),
    #[error("it was stopped, or started by another process, meanwhile")]
    Cancelled,
    #[error("its process could not be created: {0}")]
    Process(io::Error),
    #[error("it said: {0}")]
    Refused(String),
    #[error("it ended before it was ready; see {0}")]
    Ended(String),
    #[error("it was not ready within {} s; see {see}", READY_WITHIN.as_secs())]
    Late { see: String },
}

/// The teammate that is to be started.
#[derive(Debug, Clone)]
pub(super) struct SpawnSpec {
    pub(super) name: AgentName,
    pub(super) role: String,
    pub(super) model: String,
    pub(super) mode: PermissionMode,
    pub(super) start_reason: StartReason,
    /// The life that it follows, which must still be expected back.
    pub(super) after: Option<String>,
}

/// Starts a teammate and waits until it is ready. Its inbox and its entry are made durable while its process
/// starts.
pub(super) async fn start(
    config: &SupervisorConfig,
    spec: &SpawnSpec,
) -> Result<Started, StartError> {
    let incarnation = (config.incarnation)();
    let before = reserve(config, spec, &incarnation).await?;
    hit("spawn.reserved");
    let name = &spec.name;
    let why = match tokio::join!(make_durable(config, name), launch(config, spec, &incarnation)) {
        (Ok(()), Ok(started)) => {
            hit("spawn.ready");
            return Ok(started);
        }
        (Err(why), Ok(started)) => {
            drop(started.lifeline);
            kill_and_reap(name, started.process).await;
            why
        }
        (_, Err(why)) => why,
    };
    hit("spawn.failed");
    undo(config, name, &incarnation, before).await?;
    hit("spawn.undone");
    Err(why)
}

/// Does work that may wait for a lock or the disk beside the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| Err(StartError::Process(io::Error::other(why))))
}

/// Creates the inbox, and makes it and the entry survive power loss before the start is reported. A sender
/// that knows the name already waits for the lock of the inbox, so no mail is stored in an inbox that may be
/// lost.
async fn make_durable(config: &SupervisorConfig, name: &AgentName) -> Result<(), StartError> {
    let (bus, name) = (Arc::clone(&config.bus), name.clone());
    let work = move || {
        inbox::ensure(bus.dir(), &name)?;
        hit("spawn.inbox");
        Ok(roster::sync(bus.dir(), bus.fsync())?)
    };
    blocking(work).await
}

/// Writes the entry as `starting`; [`make_durable`] syncs it. Returns the entry that the name had before.
async fn reserve(
    config: &SupervisorConfig,
    spec: &SpawnSpec,
    incarnation: &str,
) -> Result<Option<WithUnknownFields<Member>>, StartError> {
    let now = config.clock.now();
    let spec = spec.clone();
    let new = NewLife {
        name: spec.name.clone(),
        incarnation: incarnation.to_owned(),
        role: spec.role,
        model: spec.model,
        mode: spec.mode.word(),
        cwd: config.bus.dir().workspace().display().to_string(),
        after: spec.after,
        is_restart: matches!(spec.start_reason, StartReason::Restarted(_)),
    };
    let bus = Arc::clone(&config.bus);
    let enter = move || {
        roster::update(bus.dir(), Fsync::Never, |roster: &mut WithUnknownFields<Roster>| {
            // Probed under the roster's lock: a process that takes the name later writes its entry later.
            if liveness::probe(bus.dir(), &spec.name).map_err(StoreError::from)?.is_alive() {
                return Err(StartError::Cancelled);
            }
            roster_updates::reserve(roster, new, now).map_err(|_| StartError::Cancelled)
        })?
    };
    blocking(enter).await
}

async fn undo(
    config: &SupervisorConfig,
    name: &AgentName,
    incarnation: &str,
    before: Option<WithUnknownFields<Member>>,
) -> Result<(), StartError> {
    let now = config.clock.now();
    let (failed, incarnation) = (name.clone(), incarnation.to_owned());
    let undone = write(&config.bus, move |roster| {
        roster_updates::undo(roster, &failed, &incarnation, before, now)
    });
    if undone.await? == Undone::Removed {
        let (dir, name) = (config.bus.dir().clone(), name.clone());
        blocking(move || Ok(inbox::forget(&dir, &name)?)).await?;
    }
    Ok(())
}

async fn launch(
    config: &SupervisorConfig,
    spec: &SpawnSpec,
    incarnation: &str,
) -> Result<Started, StartError> {
    let dir = config.bus.dir();
    let errors = dir.printed(&spec.name);
    let (ours, theirs) = child::socket_pair().map_err(StartError::Process)?;
    let output = dir.open_printed(&spec.name)?;
    let program = Program {
        path: config.program.path(),
        arg0: "teammate".into(),
        args: arguments(config, spec, theirs.as_raw_fd()),
        env: config.environment.iter().map(|(key, value)| (key.into(), value.into())).collect(),
        cwd: dir.workspace().to_path_buf(),
        stdout_err: output,
    };
    let spawned = child::spawn_detached(program, theirs).map_err(StartError::Process)?;
    let mut permissions = config.permissions.borrow().clone();
    permissions.mode = spec.mode;
    hit("spawn.started");
    // The teammate refuses a word that names no model. It needs no credentials for that.
    let chosen = ModelChoice::parse(&spec.model).unwrap_or_else(|_| ModelChoice::fallback());
    let hello = Hello {
        incarnation: incarnation.into(),
        role: spec.role.clone(),
        model: spec.model.clone(),
        credentials: config.credentials.only_for(&chosen),
        price: config.prices.get(&spec.model).copied(),
        rules: config.rules,
        hooks: config.hooks.list.clone(),
        permissions,
        start_reason: spec.start_reason,
    };
    let see = errors.display().to_string();
    let why = match shake_hands(&ours, hello).await {
        Some(Ok(Some(HandshakeAnswer::Ready))) => {
            return Ok(Started {
                pid: spawned.pid,
                incarnation: incarnation.into(),
                process: spawned.pidfd,
                lifeline: ours,
            });
        }
        Some(Ok(Some(HandshakeAnswer::Failed(why)))) => StartError::Refused(why),
        Some(Ok(None)) => StartError::Ended(see),
        Some(Err(why)) => StartError::Process(why),
        None => StartError::Late { see },
    };
    drop(ours);
    kill_and_reap(&spec.name, spawned.pidfd).await;
    tracing::warn!(name = %spec.name, %why, "teammate did not start");
    Err(why)
}

/// Ends a process whose start has failed.
async fn kill_and_reap(name: &AgentName, process: Pidfd) {
    if let Err(why) = kill(&process) {
        tracing::warn!(%name, %why, "cannot kill the teammate whose start failed");
    }
    let reaped = tokio::task::spawn_blocking(move || process.wait()).await;
    tracing::info!(%name, ?reaped, "the teammate whose start failed has ended");
}

fn arguments(config: &SupervisorConfig, spec: &SpawnSpec, control: i32) -> Vec<OsString> {
    let dir = config.bus.dir().root().as_os_str().to_owned();
    let mut args: Vec<OsString> = vec![spec.name.as_str().into()];
    args.extend(["--dir".into(), dir]);
    args.extend(["--role".into(), spec.role.as_str().into()]);
    args.extend(["--model".into(), spec.model.as_str().into()]);
    args.extend(["--mode".into(), spec.mode.word().into()]);
    args.extend(["--control-fd".into(), control.to_string().into()]);
    args
}

/// Sends the hello and waits for the answer; `None` when the deadline has passed.
async fn shake_hands(ours: &OwnedFd, hello: Hello) -> Option<io::Result<Option<HandshakeAnswer>>> {
    let socket = ours.try_clone();
    let exchange = tokio::task::spawn_blocking(move || {
        let socket = File::from(socket?);
        handshake::send(&socket, &hello)?;
        hit("spawn.greeted");
        handshake::receive(&socket)
    });
    match tokio::time::timeout(READY_WITHIN, exchange).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(why)) => Some(Err(io::Error::other(why))),
        Err(_) => None,
    }
}
