//! Starting one teammate: roster entry, process, hello, readiness; undone when any step fails.

use super::Plan;
use super::hello::{self, Answer, Hello};
use super::takedown::kill;
use crate::os::child::{self, Program};
use crate::os::pidfd::Pidfd;
use crate::store::inbox::{self, SendError};
use crate::store::{StoreError, roster};
use crate::tools::team::SpawnOrder;
use crate::wire::permission::{Mode, Permissions};
use crate::wire::roster::{ExitCause, LastExit, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, Open};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// How long a teammate may take to say that it is ready (RELIABILITY 4).
const READY_WITHIN: Duration = Duration::from_secs(15);

/// A teammate that has said it is ready.
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) incarnation: String,
    pub(super) model: String,
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
    #[error("its process could not be made: {0}")]
    Process(io::Error),
    #[error("it said: {0}")]
    Refused(String),
    #[error("it ended before it was ready; see {0}")]
    Ended(String),
    #[error("it was not ready within {} s; see {see}", READY_WITHIN.as_secs())]
    Late { see: String },
}

/// What it is started with.
struct Terms {
    incarnation: String,
    model: String,
    permissions: Permissions,
}

/// Starts a teammate and waits until it is ready.
pub(super) async fn start(plan: &Plan, order: &SpawnOrder) -> Result<Started, StartError> {
    let dir = plan.bus.dir();
    let name = &order.name;
    let incarnation = (plan.incarnation)();
    let model = order.model.clone().unwrap_or_else(|| plan.model.clone());
    let mut permissions = plan.permissions.borrow().clone();
    permissions.mode = order.mode.unwrap_or(permissions.mode);
    let terms = Terms { incarnation, model, permissions };
    let before = reserve(plan, order, &terms)?;
    inbox::ensure(dir, name)?;
    let incarnation = terms.incarnation.clone();
    match launch(plan, order, terms).await {
        Ok(started) => Ok(started),
        Err(why) => {
            undo(plan, name, &incarnation, before)?;
            Err(why)
        }
    }
}

/// Writes the entry as `starting`; gives the entry that stood there before.
fn reserve(
    plan: &Plan,
    order: &SpawnOrder,
    terms: &Terms,
) -> Result<Option<Open<Member>>, StoreError> {
    let now = plan.clock.now();
    let cwd = plan.bus.dir().workspace().display().to_string();
    roster::update(plan.bus.dir(), plan.bus.fsync(), |roster: &mut Open<Roster>| {
        let before = roster.member(order.name.as_str()).cloned();
        let member = roster.enter(order.name.as_str(), now);
        member.role.clone_from(&order.role);
        (member.status, member.activity, member.since) = (Status::Starting, None, now);
        (member.pid, member.incarnation) = (None, terms.incarnation.clone());
        member.model.clone_from(&terms.model);
        member.mode = terms.permissions.mode.word().into();
        (member.cwd, member.started_by) = (cwd, StartedBy::Lead);
        before
    })
}

/// A name that never lived leaves nothing behind; an old member is again what it was.
fn undo(
    plan: &Plan,
    name: &AgentName,
    incarnation: &str,
    before: Option<Open<Member>>,
) -> Result<(), StartError> {
    let now = plan.clock.now();
    let is_new = before.is_none();
    roster::update(plan.bus.dir(), plan.bus.fsync(), |roster: &mut Open<Roster>| {
        let Some(at) = roster
            .members
            .iter()
            .position(|member| member.name == name.as_str() && member.incarnation == incarnation)
        else {
            return;
        };
        let old = roster.members.remove(at);
        if let Some(mut before) = before {
            before.status = Status::Failed;
            before.since = now;
            before.last_exit =
                Some(LastExit { code: None, signal: None, cause: ExitCause::Error, at: now });
            before.role.clone_from(&old.role);
            roster.members.insert(at, before);
        }
    })?;
    if is_new {
        inbox::forget(plan.bus.dir(), name)?;
    }
    Ok(())
}

async fn launch(plan: &Plan, order: &SpawnOrder, terms: Terms) -> Result<Started, StartError> {
    let Terms { incarnation, model, permissions } = terms;
    let dir = plan.bus.dir();
    let errors = dir.printed(&order.name);
    let (ours, theirs) = child::socket_pair().map_err(StartError::Process)?;
    let output = dir.open_printed(&order.name)?;
    let program = Program {
        path: plan.program.path(),
        arg0: "teammate".into(),
        args: arguments(plan, order, &model, permissions.mode, theirs.as_raw_fd()),
        env: plan.environment.iter().map(|(key, value)| (key.into(), value.into())).collect(),
        cwd: dir.workspace().to_path_buf(),
        stdout_err: output,
    };
    let spawned = child::spawn_detached(program, theirs).map_err(StartError::Process)?;
    let hello = Hello {
        incarnation: incarnation.clone(),
        role: order.role.clone(),
        model: model.clone(),
        credentials: plan.credentials.clone(),
        rules: plan.rules,
        permissions,
    };
    let answer = shake_hands(&ours, hello).await;
    let see = errors.display().to_string();
    let refused = match answer {
        Some(Ok(Some(Answer::Ready))) => {
            return Ok(Started {
                pid: spawned.pid,
                incarnation,
                model,
                process: spawned.pidfd,
                lifeline: ours,
            });
        }
        Some(Ok(Some(Answer::Failed(why)))) => StartError::Refused(why),
        Some(Ok(None)) => StartError::Ended(see),
        Some(Err(why)) => StartError::Process(why),
        None => StartError::Late { see },
    };
    drop(ours);
    if let Err(why) = kill(&spawned.pidfd) {
        tracing::warn!(name = %order.name, %why, "the failed teammate could not be killed");
    }
    let reaped = tokio::task::spawn_blocking(move || spawned.pidfd.wait()).await;
    tracing::warn!(name = %order.name, ?reaped, %refused, "teammate did not start");
    Err(refused)
}

fn arguments(
    plan: &Plan,
    order: &SpawnOrder,
    model: &str,
    mode: Mode,
    control: i32,
) -> Vec<std::ffi::OsString> {
    let dir = plan.bus.dir().root().as_os_str().to_owned();
    let mut args: Vec<std::ffi::OsString> = vec![order.name.as_str().into()];
    args.extend(["--dir".into(), dir]);
    args.extend(["--role".into(), order.role.as_str().into()]);
    args.extend(["--model".into(), model.into()]);
    args.extend(["--mode".into(), mode.word().into()]);
    args.extend(["--control-fd".into(), control.to_string().into()]);
    args
}

/// Says hello and hears the answer; `None` when time is up.
async fn shake_hands(ours: &OwnedFd, hello: Hello) -> Option<io::Result<Option<Answer>>> {
    let socket = ours.try_clone();
    let talk = tokio::task::spawn_blocking(move || {
        let socket = File::from(socket?);
        hello::say(&socket, &hello)?;
        hello::hear(&socket)
    });
    match tokio::time::timeout(READY_WITHIN, talk).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(why)) => Some(Err(io::Error::other(why))),
        Err(_) => None,
    }
}
