//! The start of teammates: roster entry, process, handshake, readiness. A failed step undoes the earlier ones. A
//! spawn by the lead's model starts a new teammate, or gives an idle one a new prompt.

use super::handshake::{self, Handshake, HandshakeAnswer, StartReason};
use super::members::MemberId;
use super::roster_updates::{self, Entry, SpawnSpec, write};
use super::supervisor::{Supervisor, SupervisorRole};
use super::teammate_models::chain_of;
use crate::bus::Outgoing;
use crate::os::Signal;
use crate::os::child::spawn_detached;
use crate::os::deadline::deadline;
use crate::os::failpoint::hit;
use crate::os::pidfd::Pidfd;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartHistory;
use crate::settings::model::ModelChoice;
use crate::store::asynchronous::offload;
use crate::store::inbox::{self, SendError};
use crate::store::process_log::open_printed;
use crate::store::{Fsync, RoleMatch, StoreError, UnclearRole, keyring, liveness, roster};
use crate::tools::{SpawnOrder, ToolError, find_by_alias};
use crate::wire::isolation::Isolation;
use crate::wire::limits::{AGENT_READY_TIMEOUT, READY_TIMEOUT, SPAWNS_PER_TEAMMATE};
use crate::wire::log_words;
use crate::wire::role::Role;
use crate::wire::roster::{Roster, Status};
use crate::wire::{AgentName, WithUnknownFields};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The attempts to undo a step of a failed start, and the pause between them.
const UNDO_ATTEMPTS: u32 = 20;
const UNDO_PAUSE: Duration = Duration::from_millis(50);

const USE_OURS: &str = "leave model out to use the lead's";

/// The time for which a spawn waits until a working member is idle: its report arrives shortly before its status.
const IDLE_AFTER_REPORT: Duration = Duration::from_secs(1);

/// The reason for which a teammate did not start.
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
    #[error("it was not ready within {} s; see {see}", limit.as_secs())]
    Late { see: String, limit: Duration },
}

impl Supervisor {
    pub(super) async fn spawn_ordered(
        self: &Rc<Self>,
        mut order: SpawnOrder,
    ) -> Result<String, ToolError> {
        let name = order.name.clone();
        if self.is_closing.get() {
            return Err(ToolError::reply("the team is stopping, so no teammate can be spawned"));
        }
        self.check_mode(&order)?;
        let before = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        let host = self.host_for(&order, &before).await?;
        if host.is_none() {
            self.check_model(&order)?;
        }
        let known_file = before.role_file_of(name.as_str(), &order.role).map(str::to_owned);
        // That of another host names a file there.
        let known_file = known_file.filter(|_| host.is_none());
        let known_clone = before.member(name.as_str()).and_then(|member| member.work.clone());
        let found = self.read_role(order.role.clone(), known_file);
        let (role, role_file) = found.await.map_err(ToolError::reply)?.unzip();
        if let Some(role) = &role {
            order.role.clone_from(&role.name);
        }
        if let Some(host) = host {
            if !self.is_alive(&name)? {
                self.check_caps()?;
                self.spawned.set(self.spawned.get() + 1);
            }
            return self.spawn_on_host(host, order, role.is_some()).await;
        }
        self.check_not_starting_elsewhere(&name)?;
        // A spawn does not wait for the pause before a restart.
        self.members.cancel_restart(&name);
        loop {
            self.members.wait_started(&name).await;
            if self.is_alive(&name)? {
                return self.give_new_prompt(order, role_file).await;
            }
            if !self.members.is_unreaped(&name) {
                break;
            }
            if !self.members.wait_reaped(std::slice::from_ref(&name)).await {
                let why = format!("the last process of {name} is still ending; try again");
                return Err(ToolError::Reply(why));
            }
        }
        self.check_caps()?;
        self.spawned.set(self.spawned.get() + 1);
        self.members.with_history(&name, |history| *history = RestartHistory::default());
        let of_role = role.as_ref().and_then(|role| role.isolation);
        let (fallbacks, left_out) = self.fallbacks_of(role.as_ref());
        let (model, mode, unused) = self.choose(&order, role)?;
        let clone = self.clone_for(&order, of_role, known_clone).await?;
        let (role, start_reason) = (order.role.clone(), StartReason::Spawned);
        let after = None;
        let work = clone.as_ref().map(|clone| clone.place.clone());
        let spec =
            SpawnSpec { name, role, role_file, model, fallbacks, mode, work, start_reason, after };
        let SpawnSpec { name, role, model, .. } = &spec;
        let pid = match self.launch(&spec).await {
            Ok(pid) => pid,
            Err(why) => {
                self.discard_clone(name, clone).await;
                let hint = "try again or go on without it";
                let why = format!("{name} could not be started: {why}; {hint}");
                return Err(ToolError::Reply(why));
            }
        };
        let place = spec.work.as_ref();
        let place = place.map(|work| format!(" It works in a clone of its own, {}.", work.path));
        let place = place.unwrap_or_default();
        self.deliver_prompt(order).await?;
        hit("spawn.prompted");
        tracing::info!(%name, pid, model, "teammate spawned");
        Ok(format!(
            "Spawned {name} ({role}) on {model}, pid {pid}. It has its prompt and is at work.{place}{unused}{left_out}"
        ))
    }

    /// Sends the prompt to a running member if it is idle. The member's process informs its model of a changed role.
    async fn give_new_prompt(
        &self,
        order: SpawnOrder,
        role_file: Option<String>,
    ) -> Result<String, ToolError> {
        let (name, role) = (order.name.clone(), order.role.clone());
        let asked = self.config.clock.monotonic();
        let read = || roster::read(self.config.bus.dir()).map_err(ToolError::reply);
        let mut roster = read()?;
        while roster.member(name.as_str()).is_some_and(|member| member.status == Status::Working)
            && self.config.clock.monotonic().duration_since(asked) < deadline(IDLE_AFTER_REPORT)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
            roster = read()?;
        }
        let Some(member) = roster.member(name.as_str()) else {
            return Err(ToolError::Reply(format!(
                "a process holds the name {name} but is not on the roster; choose another name"
            )));
        };
        if member.status != Status::Idle {
            return Err(ToolError::Reply(format!(
                "{name} is {} and was not given the prompt; send it a message instead, or wait \
                 until it is idle",
                member.status.word()
            )));
        }
        let is_elsewhere =
            |wanted: Isolation| (wanted == Isolation::Clone) != member.work.is_some();
        if order.isolation.is_some_and(is_elsewhere) {
            return Err(ToolError::Reply(format!(
                "{name} is idle in another folder; shut it down first to start it in that one, or \
                 leave isolation out"
            )));
        }
        if order.mode.is_some_and(|mode| member.mode != mode.word()) {
            return Err(ToolError::Reply(format!(
                "{name} is idle in another mode; shut it down first to start it in that one, or \
                 leave mode out"
            )));
        }
        let idle = name.clone();
        let note_role = write(&self.config.bus, move |roster| {
            if let Some(member) = roster.member_mut(idle.as_str()) {
                (member.role, member.role_file) = (role, role_file);
            }
        });
        note_role.await.map_err(ToolError::reply)?;
        self.deliver_prompt(order).await?;
        Ok(format!("{name} was idle and has the new prompt (same process, same memory)."))
    }

    async fn deliver_prompt(&self, order: SpawnOrder) -> Result<(), ToolError> {
        let bus = Arc::clone(&self.config.bus);
        let SpawnOrder { name, prompt, message_id, .. } = order;
        let send = move || {
            let outgoing = Outgoing { id: Some(message_id), ..Outgoing::text(prompt) };
            bus.send(&AgentName::lead(), name.as_str(), outgoing)
        };
        let sent = spawn_blocking(send).await.map_err(ToolError::reply)?;
        sent.map(drop).map_err(ToolError::reply)
    }

    /// Reads the file of a role, and returns the role with the path of the file; `None` if the role is free text.
    /// Fails if it is unclear, or if it came from `known_file` when the member was last started and no longer does.
    pub(super) async fn read_role(
        &self,
        name: String,
        known_file: Option<String>,
    ) -> Result<Option<(Role, String)>, UnclearRole> {
        let dir = self.config.bus.dir().clone();
        let find = move || {
            dir.find_role(&name, find_by_alias).with_known_file(&name, known_file.as_deref())
        };
        match offload(find).await {
            RoleMatch::File(file) => {
                let path = file.path.display().to_string();
                Ok(Some((file.role, path)))
            }
            RoleMatch::FreeText => Ok(None),
            RoleMatch::Unclear(why) => Err(why),
        }
    }

    fn check_mode(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let mine = self.config.permissions.borrow().mode;
        if let Some(mode) = order.mode.filter(|mode| *mode > mine) {
            return Err(ToolError::Reply(format!(
                "mode {mode} is looser than the lead's ({mine}), which only the user can change; \
                 leave mode out, or give a stricter one"
            )));
        }
        Ok(())
    }

    /// Fails if the ordered model cannot be used on this host.
    fn check_model(&self, order: &SpawnOrder) -> Result<(), ToolError> {
        let model = order.model.as_ref().filter(|_| !self.plays_record());
        let Some(model) = model else { return Ok(()) };
        let chosen = ModelChoice::parse(model)
            .map_err(|why| ToolError::Reply(format!("{}; {USE_OURS}", why.what)))?;
        if let Some(agent) = chosen.agent() {
            let found = self.config.agents.program(agent);
            return found.map(drop).map_err(|(why, hint)| {
                ToolError::Reply(format!(
                    "{model} cannot be used: {why}; {USE_OURS}, or tell the user: {hint}"
                ))
            });
        }
        if self.config.credentials.borrow().suffice_for(&chosen) {
            return Ok(());
        }
        Err(ToolError::Reply(format!("there are no credentials for {model}; {USE_OURS}")))
    }

    fn check_caps(&self) -> Result<(), ToolError> {
        let (max, spawned) = (self.config.max_teammates, self.spawned.get());
        let roster = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        let names = roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok());
        let living = names.filter(|name| self.is_alive(name).unwrap_or(false)).count();
        if living >= max {
            return Err(ToolError::Reply(format!(
                "{living} teammates are alive and max_teammates is {max}; shut one down first"
            )));
        }
        if spawned >= max.saturating_mul(SPAWNS_PER_TEAMMATE) {
            return Err(ToolError::Reply(format!(
                "{spawned} teammates were started in this run, the most that max_teammates {max} \
                 allows; use the existing ones"
            )));
        }
        Ok(())
    }

    pub(super) fn is_alive(&self, name: &AgentName) -> Result<bool, ToolError> {
        let probed = liveness::probe(self.config.bus.dir(), name);
        Ok(probed.map_err(ToolError::reply)?.is_alive())
    }

    /// Starts a teammate and the task that reaps it. Returns its pid once it is ready.
    pub(super) async fn launch(self: &Rc<Self>, spec: &SpawnSpec) -> Result<i32, StartError> {
        self.members.begin_start(&spec.name);
        let incarnation = (self.config.incarnation)();
        let id = MemberId { name: spec.name.clone(), incarnation };
        let (process, lifeline) = match self.start(spec, &id).await {
            Ok(started) => started,
            Err(why) => {
                self.members.start_failed(&spec.name);
                return Err(why);
            }
        };
        self.members.started(&id, lifeline);
        hit("spawn.registered");
        let (pid, since) = (process.pid(), self.config.clock.monotonic());
        self.exit_hooks.send_modify(|count| *count += 1);
        spawn_local(Rc::clone(self).reap(id, since, process));
        Ok(pid)
    }

    /// Writes the entry, starts the process, makes inbox and entry durable, and waits until the process is ready.
    /// Returns the process and its lifeline.
    async fn start(&self, spec: &SpawnSpec, id: &MemberId) -> Result<(Pidfd, OwnedFd), StartError> {
        let before = self.reserve(spec, id).await?;
        hit("spawn.reserved");
        let why = match tokio::join!(self.make_durable(&spec.name), self.greet(spec, id)) {
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
        self.config.bus.keyring().retire_control_key(&spec.name, &id.incarnation);
        self.undo(id, before).await?;
        hit("spawn.undone");
        Err(why)
    }

    /// Makes the new inbox and the entry durable before the start is reported. A sender that knows the name waits for
    /// the lock of the inbox, so no mail is stored in an inbox that a power loss may remove.
    async fn make_durable(&self, name: &AgentName) -> Result<(), StartError> {
        let (bus, name) = (Arc::clone(&self.config.bus), name.clone());
        let work = move || {
            inbox::ensure(bus.dir(), &name)?;
            hit("spawn.inbox");
            Ok(roster::sync(bus.dir(), bus.fsync())?)
        };
        offload(work).await
    }

    /// Writes the entry as `starting`; [`Self::make_durable`] syncs it. Returns the name's earlier entry.
    async fn reserve(&self, spec: &SpawnSpec, id: &MemberId) -> Result<Option<Entry>, StartError> {
        let now = self.config.clock.now();
        let (spec, incarnation) = (spec.clone(), id.incarnation.clone());
        let (bus, sandbox) = (Arc::clone(&self.config.bus), self.config.sandbox.entry());
        let enter = move || {
            let dir = bus.dir();
            // Mail to the name is accepted, and sealed, as soon as the entry is there.
            keyring::ensure(dir, &spec.name)?;
            let shared = || dir.workspace().display().to_string();
            let cwd = spec.work.as_ref().map_or_else(shared, |work| work.folder.clone());
            roster::update(dir, Fsync::Never, |roster: &mut WithUnknownFields<Roster>| {
                // Probed under the roster's lock: a process that takes the name later writes its entry later.
                if liveness::probe(dir, &spec.name).map_err(StoreError::from)?.is_alive() {
                    return Err(StartError::Cancelled);
                }
                // It has ended on the host to which it belonged, or that was given up.
                roster.take_home(spec.name.as_str());
                let name = spec.name.clone();
                let reserved = roster_updates::reserve(roster, spec, incarnation, cwd, now);
                let before = reserved.map_err(|_| StartError::Cancelled)?;
                if let Some(member) = roster.member_mut(name.as_str()) {
                    member.sandbox = Some(sandbox);
                }
                Ok(before)
            })?
        };
        offload(enter).await
    }

    async fn undo(&self, id: &MemberId, before: Option<Entry>) -> Result<(), StartError> {
        let now = self.config.clock.now();
        let undo_entry = || {
            let (failed, before) = (id.clone(), before.clone());
            write(&self.config.bus, move |roster| {
                roster_updates::undo(roster, &failed, before, now)
            })
        };
        if patiently(undo_entry).await? {
            patiently(|| self.forget_name(&id.name)).await?;
        }
        Ok(())
    }

    /// Removes the inbox and the mailbox key of a name that never started.
    async fn forget_name(&self, name: &AgentName) -> Result<(), SendError> {
        let (dir, name) = (self.config.bus.dir().clone(), name.clone());
        let forget = move || {
            inbox::forget(&dir, &name)?;
            Ok(keyring::forget(&dir, &name)?)
        };
        offload(forget).await
    }

    /// Starts the process, sends it the handshake and waits for its answer. Kills it if it does not become ready.
    async fn greet(&self, spec: &SpawnSpec, id: &MemberId) -> Result<(Pidfd, OwnedFd), StartError> {
        let config = &self.config;
        let (ours, theirs) = UnixStream::pair()?;
        let control_key = match config.role {
            SupervisorRole::Lead(_) => Some(keyring::new_key()?),
            // Its lead, on another host, has no key of this one.
            SupervisorRole::Host => None,
        };
        let process = spawn_detached(self.command(spec, &theirs)?, theirs.into())?;
        let mut permissions = config.permissions.borrow().clone();
        permissions.mode = spec.mode;
        hit("spawn.started");
        if let Some(key) = &control_key {
            config.bus.keyring().add_control_key(&spec.name, &id.incarnation, key.clone());
        }
        // The teammate refuses an invalid model name by itself, and needs no credentials for that.
        let chosen = ModelChoice::parse(&spec.model).unwrap_or_else(|_| ModelChoice::fallback());
        let models = chain_of(chosen.clone(), &spec.fallbacks);
        let handshake = Handshake {
            incarnation: id.incarnation.clone(),
            control_key,
            role: spec.role.clone(),
            model: spec.model.clone(),
            credentials: self.access_of(&spec.name).only_for(&models),
            facts: config.known.borrow().facts(&spec.model),
            fallbacks: self.known_fallbacks(&models),
            rules: config.rules,
            hooks: config.hooks.list.clone(),
            mcp_servers: config.mcp_servers.clone(),
            pass_environment: config.pass_environment.clone(),
            permissions,
            sandbox: config.sandbox.clone(),
            work: spec.work.clone(),
            agent: match chosen.agent() {
                Some(agent) => {
                    let refused = |(why, hint)| StartError::Refused(format!("{why}; {hint}"));
                    Some(config.agents.program(agent).map_err(refused)?)
                }
                None => None,
            },
            start_reason: spec.start_reason,
        };
        let limit = if handshake.agent.is_some() { AGENT_READY_TIMEOUT } else { READY_TIMEOUT };
        let see = config.bus.dir().printed(&spec.name).display().to_string();
        let socket = ours.try_clone();
        let exchange = offload(move || {
            let socket = socket?;
            handshake::send(&socket, &handshake)?;
            hit("spawn.greeted");
            handshake::receive(&socket)
        });
        let why = tokio::select! {
            answer = tokio::time::timeout(limit, exchange) => match answer {
                Ok(Ok(Some(HandshakeAnswer::Ready))) => return Ok((process, ours.into())),
                Ok(Ok(Some(HandshakeAnswer::Failed(why)))) => StartError::Refused(why),
                Ok(Ok(None)) => StartError::Ended(see),
                Ok(Err(why)) => StartError::Process(why),
                Err(_elapsed) => StartError::Late { see, limit },
            },
            () = self.is_urgent() => StartError::Cancelled,
        };
        drop(ours);
        kill_and_reap(&spec.name, process).await;
        tracing::warn!(name = %spec.name, %why, "teammate did not start");
        Err(why)
    }

    /// Waits until the team is stopped without requests. A process that is not ready then is killed.
    async fn is_urgent(&self) {
        let mut urgency = self.urgency.subscribe();
        // Fails only once the sender is dropped, and `self` owns it.
        let _raised = urgency.wait_for(|urgency| *urgency > Urgency::Polite).await;
    }

    /// Returns the command that starts a teammate with `control`, its end of the control socket.
    fn command(&self, spec: &SpawnSpec, control: &UnixStream) -> Result<Command, StartError> {
        let dir = self.config.bus.dir();
        let output = open_printed(dir, &spec.name)?;
        let mut command = Command::new(self.config.program.path());
        command.arg0("teammate").arg(spec.name.as_str()).arg("--dir").arg(dir.root());
        command.args(["--role", &spec.role, "--model", &spec.model, "--mode", spec.mode.word()]);
        command.args(["--control-fd", &control.as_raw_fd().to_string()]);
        command.env_clear().envs(self.config.environment.iter().cloned());
        let folder = spec.work.as_ref().map(|work| Path::new(&work.folder));
        command.current_dir(folder.unwrap_or_else(|| dir.workspace()));
        command.stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

/// Repeats a step of an undo while it fails. A lack of descriptors, which may have failed the start, passes as the other
/// work of this process ends.
async fn patiently<T, E: Display>(step: impl AsyncFn() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..UNDO_ATTEMPTS {
        match step().await {
            Ok(done) => return Ok(done),
            Err(why) => tracing::warn!(%why, "a failed start is undone later"),
        }
        tokio::time::sleep(UNDO_PAUSE).await;
    }
    step().await
}

async fn kill_and_reap(name: &AgentName, process: Pidfd) {
    if let Err(why) = process.signal_group(Signal::SIGKILL) {
        tracing::warn!(%name, %why, "cannot kill the teammate whose start failed");
    }
    let reaped = spawn_blocking(move || process.wait()).await;
    let reaped = log_words::work_done(&reaped);
    tracing::info!(%name, reaped, "the teammate whose start failed has ended");
}
