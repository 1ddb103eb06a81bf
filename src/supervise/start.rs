//! Starting one teammate: roster entry, process, handshake, readiness. A failed step undoes the earlier ones.

use super::handshake::{self, HandshakeAnswer, Hello};
use super::members::Life;
use super::roster_updates::{self, SpawnSpec, write};
use super::stop::kill;
use super::supervisor::Supervisor;
use crate::os::child::spawn_detached;
use crate::os::failpoint::hit;
use crate::os::pidfd::Pidfd;
use crate::settings::model::ModelChoice;
use crate::store::asynchronous::offload;
use crate::store::inbox::{self, SendError};
use crate::store::{Fsync, StoreError, liveness, roster};
use crate::wire::roster::{Member, Roster};
use crate::wire::{AgentName, WithUnknownFields};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a teammate may take to report that it is ready (RELIABILITY 4).
const READY_WITHIN: Duration = Duration::from_secs(15);

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
    Process(#[from] io::Error),
    #[error("it said: {0}")]
    Refused(String),
    #[error("it ended before it was ready; see {0}")]
    Ended(String),
    #[error("it was not ready within {} s; see {see}", READY_WITHIN.as_secs())]
    Late { see: String },
}

impl Supervisor {
    /// Starts a teammate and the task that reaps it. Returns its pid once it is ready.
    pub(super) async fn launch(self: &Rc<Self>, spec: &SpawnSpec) -> Result<i32, StartError> {
        self.members.begin_start(&spec.name);
        let incarnation = (self.config.incarnation)();
        let life = Life { name: spec.name.clone(), incarnation };
        let (process, lifeline) = match self.start(spec, &life).await {
            Ok(started) => started,
            Err(why) => {
                self.members.start_failed(&spec.name);
                return Err(why);
            }
        };
        self.members.started(&life, lifeline);
        hit("spawn.registered");
        let (pid, since) = (process.pid(), self.config.clock.monotonic());
        self.exit_hooks.send_modify(|count| *count += 1);
        tokio::task::spawn_local(Rc::clone(self).reap(life, since, process));
        Ok(pid)
    }

    /// Starts a process and waits until it is ready. Its inbox and its entry are made durable meanwhile.
    /// Returns its lifeline, too.
    async fn start(&self, spec: &SpawnSpec, life: &Life) -> Result<(Pidfd, OwnedFd), StartError> {
        let before = self.reserve(spec, life).await?;
        hit("spawn.reserved");
        let why = match tokio::join!(self.make_durable(&spec.name), self.greet(spec, life)) {
            (Ok(()), Ok(started)) => {
                hit("spawn.ready");
                return Ok(started);
            }
            (Err(why), Ok((process, lifeline))) => {
                drop(lifeline);
                kill_and_reap(&spec.name, process).await;
                why
            }
            (_, Err(why)) => why,
        };
        hit("spawn.failed");
        self.undo(life, before).await?;
        hit("spawn.undone");
        Err(why)
    }

    /// Creates the inbox, and makes it and the entry survive power loss before the start is reported. A
    /// sender that knows the name already waits for the lock of the inbox, so no mail is stored in an inbox
    /// that may be lost.
    async fn make_durable(&self, name: &AgentName) -> Result<(), StartError> {
        let (bus, name) = (Arc::clone(&self.config.bus), name.clone());
        let work = move || {
            inbox::ensure(bus.dir(), &name)?;
            hit("spawn.inbox");
            Ok(roster::sync(bus.dir(), bus.fsync())?)
        };
        offload(work).await
    }

    /// Writes the entry as `starting`; [`Self::make_durable`] syncs it. Returns the entry that the name had
    /// before.
    async fn reserve(
        &self,
        spec: &SpawnSpec,
        life: &Life,
    ) -> Result<Option<WithUnknownFields<Member>>, StartError> {
        let now = self.config.clock.now();
        let (spec, incarnation) = (spec.clone(), life.incarnation.clone());
        let bus = Arc::clone(&self.config.bus);
        let enter = move || {
            let dir = bus.dir();
            let cwd = dir.workspace().display().to_string();
            roster::update(dir, Fsync::Never, |roster: &mut WithUnknownFields<Roster>| {
                // Probed under the roster's lock: a process that takes the name later writes its entry later.
                if liveness::probe(dir, &spec.name).map_err(StoreError::from)?.is_alive() {
                    return Err(StartError::Cancelled);
                }
                let reserved = roster_updates::reserve(roster, spec, incarnation, cwd, now);
                reserved.map_err(|_| StartError::Cancelled)
            })?
        };
        offload(enter).await
    }

    async fn undo(
        &self,
        life: &Life,
        before: Option<WithUnknownFields<Member>>,
    ) -> Result<(), StartError> {
        let (now, failed) = (self.config.clock.now(), life.clone());
        let undone = write(&self.config.bus, move |roster| {
            roster_updates::undo(roster, &failed, before, now)
        });
        if undone.await? {
            let (dir, name) = (self.config.bus.dir().clone(), life.name.clone());
            offload(move || inbox::forget(&dir, &name)).await?;
        }
        Ok(())
    }

    /// Starts the process and says hello to it.
    async fn greet(&self, spec: &SpawnSpec, life: &Life) -> Result<(Pidfd, OwnedFd), StartError> {
        let config = &self.config;
        let (ours, theirs) = UnixStream::pair()?;
        let process = spawn_detached(self.command(spec, &theirs)?, theirs.into())?;
        let mut permissions = config.permissions.borrow().clone();
        permissions.mode = spec.mode;
        hit("spawn.started");
        // The teammate refuses a word that names no model. It needs no credentials for that.
        let chosen = ModelChoice::parse(&spec.model).unwrap_or_else(|_| ModelChoice::fallback());
        let hello = Hello {
            incarnation: life.incarnation.clone(),
            role: spec.role.clone(),
            model: spec.model.clone(),
            credentials: config.credentials.only_for(&chosen),
            price: config.prices.get(&spec.model).copied(),
            rules: config.rules,
            hooks: config.hooks.list.clone(),
            permissions,
            start_reason: spec.start_reason,
        };
        let see = config.bus.dir().printed(&spec.name).display().to_string();
        let why = match shake_hands(&ours, hello).await {
            Some(Ok(Some(HandshakeAnswer::Ready))) => return Ok((process, ours.into())),
            Some(Ok(Some(HandshakeAnswer::Failed(why)))) => StartError::Refused(why),
            Some(Ok(None)) => StartError::Ended(see),
            Some(Err(why)) => StartError::Process(why),
            None => StartError::Late { see },
        };
        drop(ours);
        kill_and_reap(&spec.name, process).await;
        tracing::warn!(name = %spec.name, %why, "teammate did not start");
        Err(why)
    }

    /// Returns the command line of a teammate with this end of the control socket.
    fn command(&self, spec: &SpawnSpec, control: &UnixStream) -> Result<Command, StartError> {
        let dir = self.config.bus.dir();
        let output = dir.open_printed(&spec.name)?;
        let mut command = Command::new(self.config.program.path());
        command.arg0("teammate").arg(spec.name.as_str()).arg("--dir").arg(dir.root());
        command.args(["--role", &spec.role, "--model", &spec.model, "--mode", spec.mode.word()]);
        command.args(["--control-fd", &control.as_raw_fd().to_string()]);
        command.env_clear().envs(self.config.environment.iter().cloned());
        command.current_dir(dir.workspace());
        command.stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

/// Ends a process whose start has failed.
async fn kill_and_reap(name: &AgentName, process: Pidfd) {
    if let Err(why) = kill(&process) {
        tracing::warn!(%name, %why, "cannot kill the teammate whose start failed");
    }
    let reaped = tokio::task::spawn_blocking(move || process.wait()).await;
    tracing::info!(%name, ?reaped, "the teammate whose start failed has ended");
}

/// Sends the hello and waits for the answer; `None` when the deadline has passed.
async fn shake_hands(
    ours: &UnixStream,
    hello: Hello,
) -> Option<io::Result<Option<HandshakeAnswer>>> {
    let socket = ours.try_clone();
    let exchange = offload(move || {
        let socket = socket?;
        handshake::send(&socket, &hello)?;
        hit("spawn.greeted");
        handshake::receive(&socket)
    });
    tokio::time::timeout(READY_WITHIN, exchange).await.ok()
}
