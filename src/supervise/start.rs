//! Starting one teammate: roster entry, process, hello, readiness; undone when any step fails.

use super::handshake::{self, Answer, Hello, StartReason};
use super::stop::kill;
use super::{Plan, write};
use crate::os::child::{self, Program};
use crate::os::failpoint::hit;
use crate::os::pidfd::Pidfd;
use crate::settings::model::ModelChoice;
use crate::store::inbox::{self, SendError};
use crate::store::{Fsync, StoreError, roster};
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, LastExit, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, WithUnknownFields};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a teammate may take to say that it is ready (RELIABILITY 4).
const READY_WITHIN: Duration = Duration::from_secs(15);

/// A teammate that has said it is ready.
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
    #[error("it was stopped, or started by somebody else, meanwhile")]
    CalledOff,
    #[error("its process could not be made: {0}")]
    Process(io::Error),
    #[error("it said: {0}")]
    Refused(String),
    #[error("it ended before it was ready; see {0}")]
    Ended(String),
    #[error("it was not ready within {} s; see {see}", READY_WITHIN.as_secs())]
    LateWriters { see: String },
}

/// Who is to be started.
#[derive(Debug, Clone)]
pub(super) struct SpawnSpec {
    pub(super) name: AgentName,
    pub(super) role: String,
    pub(super) model: String,
    pub(super) mode: PermissionMode,
    pub(super) start_reason: StartReason,
    /// The life it follows: it must still be the last one of the name, and expected back.
    pub(super) after: Option<String>,
}

/// Starts a teammate and waits until it is ready. What it needs on the disk is written while its process
/// starts.
pub(super) async fn start(plan: &Plan, spec: &SpawnSpec) -> Result<Started, StartError> {
    let incarnation = (plan.incarnation)();
    let before = reserve(plan, spec, &incarnation).await?;
    hit("spawn.reserved");
    let name = &spec.name;
    let why = match tokio::join!(keep(plan, name), launch(plan, spec, &incarnation)) {
        (Ok(()), Ok(started)) => {
            hit("spawn.ready");
            return Ok(started);
        }
        (Err(why), Ok(started)) => {
            drop(started.lifeline);
            end(name, started.process).await;
            why
        }
        (_, Err(why)) => why,
    };
    hit("spawn.failed");
    undo(plan, name, &incarnation, before).await?;
    hit("spawn.undone");
    Err(why)
}

/// Does what may wait for a lock or the disk beside the event loop.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| Err(StartError::Process(io::Error::other(why))))
}

/// Makes the inbox, and makes it and the entry survive power loss: nobody is told of the teammate before.
/// Who writes to it meanwhile waits for the lock of the inbox, so that no mail lies in one that may be lost.
async fn keep(plan: &Plan, name: &AgentName) -> Result<(), StartError> {
    let (bus, name) = (Arc::clone(&plan.bus), name.clone());
    let keep = move || {
        inbox::ensure(bus.dir(), &name)?;
        hit("spawn.inbox");
        Ok(roster::sync(bus.dir(), bus.fsync())?)
    };
    beside(keep).await
}

/// Writes the entry as `starting`, for [`keep`] to make durable; gives the entry that stood there
/// before.
async fn reserve(
    plan: &Plan,
    spec: &SpawnSpec,
    incarnation: &str,
) -> Result<Option<WithUnknownFields<Member>>, StartError> {
    let now = plan.clock.now();
    let cwd = plan.bus.dir().workspace().display().to_string();
    let (spec, incarnation) = (spec.clone(), incarnation.to_owned());
    let bus = Arc::clone(&plan.bus);
    let enter = move |roster: &mut WithUnknownFields<Roster>| {
        let before = roster.member(spec.name.as_str()).cloned();
        if let Some(after) = &spec.after
            && !before.as_ref().is_some_and(|member| is_expected_back(member, after))
        {
            return Err(StartError::CalledOff);
        }
        let member = roster.enter(spec.name.as_str(), now);
        member.restarts = match spec.start_reason {
            StartReason::Restarted(_) => member.restarts.saturating_add(1),
            StartReason::Spawned | StartReason::Resumed => member.restarts,
        };
        member.role = spec.role;
        (member.status, member.activity, member.since) = (Status::Starting, None, now);
        (member.pid, member.incarnation) = (None, incarnation);
        (member.model, member.mode) = (spec.model, spec.mode.word().into());
        (member.cwd, member.started_by) = (cwd, StartedBy::Lead);
        Ok(before)
    };
    beside(move || roster::update(bus.dir(), Fsync::Never, enter)?).await
}

/// Its last life was this one, and since then nobody wanted it gone.
pub(super) fn is_expected_back(member: &Member, life: &str) -> bool {
    member.incarnation == life && member.status == Status::Starting
}

/// A name that never lived leaves nothing behind; an old member is again what it was.
async fn undo(
    plan: &Plan,
    name: &AgentName,
    incarnation: &str,
    before: Option<WithUnknownFields<Member>>,
) -> Result<(), StartError> {
    let now = plan.clock.now();
    let is_new = before.is_none();
    let (failed, incarnation) = (name.clone(), incarnation.to_owned());
    let undone = write(&plan.bus, move |roster: &mut WithUnknownFields<Roster>| {
        // Who was stopped meanwhile stays stopped.
        let is_ours = |member: &Member| {
            member.name == failed.as_str()
                && member.incarnation == incarnation
                && member.status != Status::Shutdown
        };
        let Some(at) = roster.members.iter().position(|member| is_ours(member)) else {
            return false;
        };
        let old = roster.members.remove(at);
        if let Some(mut before) = before {
            before.status = Status::Failed;
            before.since = now;
            before.last_exit =
                Some(LastExit { code: None, signal: None, cause: ExitCause::Error, at: now });
            before.role.clone_from(&old.role);
            before.restarts = old.restarts;
            roster.members.insert(at, before);
        }
        true
    });
    if undone.await? && is_new {
        let (dir, name) = (plan.bus.dir().clone(), name.clone());
        beside(move || Ok(inbox::forget(&dir, &name)?)).await?;
    }
    Ok(())
}

async fn launch(plan: &Plan, spec: &SpawnSpec, incarnation: &str) -> Result<Started, StartError> {
    let dir = plan.bus.dir();
    let errors = dir.printed(&spec.name);
    let (ours, theirs) = child::socket_pair().map_err(StartError::Process)?;
    let output = dir.open_printed(&spec.name)?;
    let program = Program {
        path: plan.program.path(),
        arg0: "teammate".into(),
        args: arguments(plan, spec, theirs.as_raw_fd()),
        env: plan.environment.iter().map(|(key, value)| (key.into(), value.into())).collect(),
        cwd: dir.workspace().to_path_buf(),
        stdout_err: output,
    };
    let spawned = child::spawn_detached(program, theirs).map_err(StartError::Process)?;
    let mut permissions = plan.permissions.borrow().clone();
    permissions.mode = spec.mode;
    hit("spawn.started");
    // What is no model is refused by the teammate; it needs no credentials for that.
    let chosen = ModelChoice::parse(&spec.model).unwrap_or_else(|_| ModelChoice::fallback());
    let hello = Hello {
        incarnation: incarnation.into(),
        role: spec.role.clone(),
        model: spec.model.clone(),
        credentials: plan.credentials.only_for(&chosen),
        price: plan.prices.get(&spec.model).copied(),
        rules: plan.rules,
        hooks: plan.hooks.list(),
        permissions,
        start_reason: spec.start_reason,
    };
    let see = errors.display().to_string();
    let refused = match shake_hands(&ours, hello).await {
        Some(Ok(Some(Answer::Ready))) => {
            return Ok(Started {
                pid: spawned.pid,
                incarnation: incarnation.into(),
                process: spawned.pidfd,
                lifeline: ours,
            });
        }
        Some(Ok(Some(Answer::Failed(why)))) => StartError::Refused(why),
        Some(Ok(None)) => StartError::Ended(see),
        Some(Err(why)) => StartError::Process(why),
        None => StartError::LateWriters { see },
    };
    drop(ours);
    end(&spec.name, spawned.pidfd).await;
    tracing::warn!(name = %spec.name, %refused, "teammate did not start");
    Err(refused)
}

/// Ends a process that nobody is to be told of.
async fn end(name: &AgentName, process: Pidfd) {
    if let Err(why) = kill(&process) {
        tracing::warn!(%name, %why, "the failed teammate could not be killed");
    }
    let reaped = tokio::task::spawn_blocking(move || process.wait()).await;
    tracing::info!(%name, ?reaped, "the failed teammate has ended");
}

fn arguments(plan: &Plan, spec: &SpawnSpec, control: i32) -> Vec<std::ffi::OsString> {
    let dir = plan.bus.dir().root().as_os_str().to_owned();
    let mut args: Vec<std::ffi::OsString> = vec![spec.name.as_str().into()];
    args.extend(["--dir".into(), dir]);
    args.extend(["--role".into(), spec.role.as_str().into()]);
    args.extend(["--model".into(), spec.model.as_str().into()]);
    args.extend(["--mode".into(), spec.mode.word().into()]);
    args.extend(["--control-fd".into(), control.to_string().into()]);
    args
}

/// Says hello and hears the answer; `None` when time is up.
async fn shake_hands(ours: &OwnedFd, hello: Hello) -> Option<io::Result<Option<Answer>>> {
    let socket = ours.try_clone();
    let talk = tokio::task::spawn_blocking(move || {
        let socket = File::from(socket?);
        handshake::say(&socket, &hello)?;
        hit("spawn.greeted");
        handshake::hear(&socket)
    });
    match tokio::time::timeout(READY_WITHIN, talk).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(why)) => Some(Err(io::Error::other(why))),
        Err(_) => None,
    }
}
