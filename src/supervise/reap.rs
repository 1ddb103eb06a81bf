//! The end of a teammate's process: it is reaped, recorded and reported, and restarted if the policy says so.
//! The members of a resumed team are started in the same way.

use super::commands::end_commands;
use super::handshake::StartReason;
use super::members::MemberId;
use super::roster_updates::{self, SpawnSpec, cause_of, is_expected_back, write};
use super::start::StartError;
use super::stop::ended;
use super::supervisor::Supervisor;
use crate::leases;
use crate::os::failpoint::hit;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::process_tree;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::protocol::restart::{ProcessEnd, RestartDecision};
use crate::store::{StoreError, liveness, roster};
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::log_words;
use crate::wire::message::Body;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, Status};
use crate::work::clone;
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause between two attempts to write the end of a member into the roster.
const RECORD_PAUSE: Duration = Duration::from_secs(1);

/// A restart that the policy demands.
struct PlannedRestart {
    /// The time to wait before it.
    pause: Duration,
    cause: ExitCause,
    /// The end of the last process, if it could not be written into the roster yet.
    unrecorded: Option<ProcessEnd>,
}

impl Supervisor {
    /// Waits for the end of a teammate's process, reaps it and handles the end.
    pub(super) async fn reap(self: Rc<Self>, id: MemberId, since: Instant, process: Pidfd) {
        let name = &id.name;
        if let Err(why) = ended(&process).await {
            tracing::warn!(%name, %why, "cannot wait for the end of the teammate");
        }
        hit("reap.ended");
        self.config.bus.keyring().retire_control_key(name, &id.incarnation);
        // Read before any other step, because a stop under way is over as soon as it has seen the same end.
        let known = self.members.ended(&id);
        let exit = process.wait();
        let how = exit.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        tracing::info!(%name, exit = how, "teammate ended");
        let released = self.release_tasks(name).await;
        let end = match exit {
            _ if known.was_hung => ProcessEnd::Hung,
            Ok(ExitKind::Code(code)) => ProcessEnd::Code(code),
            Ok(ExitKind::Signal(signal)) => ProcessEnd::Signal(signal),
            Err(_) => ProcessEnd::Signal(9),
        };
        let restart = if known.was_expected {
            None
        } else {
            self.record_exit(&id, end, since, released).await
        };
        self.end_strays(&id).await;
        self.save_work(&id).await;
        self.members.cleaned_up(&id);
        self.run_exit_hooks(&id, exit.ok(), known.was_expected);
        if let Some(PlannedRestart { pause, cause, unrecorded }) = restart {
            self.restart(id, StartReason::Restarted(cause), pause, unrecorded).await;
        }
    }

    /// Kills the remaining processes of a dead teammate: the lead has adopted its command supervisors and escaped
    /// processes.
    async fn end_strays(&self, id: &MemberId) {
        let run_id = self.config.run_id.clone();
        let last = liveness::last_record(self.config.bus.dir(), &id.name).ok().flatten();
        let last = last.filter(|record| record.incarnation == id.incarnation);
        let (bus, name) = (Arc::clone(&self.config.bus), id.name.clone());
        let end = move || {
            let mut stuck = process_tree::end_strays(&run_id);
            // Its command supervisors may have been killed before they could remove their control groups.
            stuck
                .extend(last.iter().flat_map(|record| {
                    end_commands(bus.dir(), &name, &record.run_id, bus.fsync())
                }));
            stuck
        };
        match spawn_blocking(end).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => {
                let name = &id.name;
                tracing::warn!(%name, stuck = log_words::work_listed(&stuck), "leftover processes of the teammate could not be ended");
            }
        }
    }

    /// Runs the hooks for the end of a teammate in the background.
    fn run_exit_hooks(self: &Rc<Self>, id: &MemberId, exit: Option<ExitKind>, asked: bool) {
        let (code, signal) = match exit {
            Some(ExitKind::Code(code)) => (Some(code), None),
            Some(ExitKind::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let fields = json!({
            "name": id.name.as_str(), "incarnation": id.incarnation,
            "code": code, "signal": signal, "asked_to_end": asked,
        });
        let supervisor = Rc::clone(self);
        spawn_local(async move {
            let asked = supervisor.config.hooks.ask(HookEvent::TeammateExited, fields).await;
            if let Err(why) = asked {
                tracing::warn!(%why, "a hook cannot refuse the end of a teammate");
            }
            supervisor.exit_hooks.send_modify(|count| *count = count.saturating_sub(1));
        });
    }

    /// Makes the tasks of dead owners pending again, and removes their leases on files. Returns a sentence about those of this teammate.
    async fn release_tasks(&self, name: &AgentName) -> Option<String> {
        let tasks = Arc::clone(&self.config.tasks);
        let release = move || {
            if let Err(why) = leases::release_abandoned(tasks.dir()) {
                tracing::warn!(%why, "leases of dead owners are removed by the next claim");
            }
            tasks.release_abandoned()
        };
        match spawn_blocking(release).await {
            Ok(Ok(released)) => {
                let its = released.iter().filter(|t| t.owner.as_deref() == Some(name.as_str()));
                let its: Vec<String> = its.map(|t| format!("{} ({})", t.id, t.subject)).collect();
                (!its.is_empty()).then(|| format!("Pending again: task {}", its.join(", task ")))
            }
            failed => {
                tracing::warn!(%name, why = log_words::work_done(&failed), "its tasks stay claimed until the list is read again");
                None
            }
        }
    }

    /// Records an end that this supervisor did not cause, of a process that was ready at `since`. Returns the
    /// restart if the policy demands one; otherwise notifies the lead's model.
    async fn record_exit(
        &self,
        id: &MemberId,
        end: ProcessEnd,
        since: Instant,
        released: Option<String>,
    ) -> Option<PlannedRestart> {
        let name = &id.name;
        let decision = self.decide_restart(id, end, since);
        let will_restart = matches!(decision, RestartDecision::After(_));
        if will_restart {
            self.members.plan_restart(id);
        }
        let mut unrecorded = None;
        let cause = match self.write_exit(id, end, will_restart).await {
            Ok(Some(cause)) => cause,
            // The entry belongs to another incarnation.
            Ok(None) => {
                if will_restart {
                    self.members.cancel_restart(name);
                }
                return None;
            }
            Err(why) => {
                tracing::warn!(%name, %why, "the exit could not be written to the roster");
                unrecorded = Some(end);
                cause_of(end)
            }
        };
        hit("reap.noted");
        let why = match decision {
            RestartDecision::After(pause) => {
                tracing::warn!(%name, %end, pause_ms = pause.as_millis(), "the teammate will be restarted");
                return Some(PlannedRestart { pause, cause, unrecorded });
            }
            RestartDecision::Leave => None,
            RestartDecision::GiveUp(limit) => {
                Some(format!("{limit}, so it is not restarted automatically"))
            }
        };
        let why: Vec<String> = why.into_iter().chain(released).collect();
        // A member takes a SIGTERM for the end of its team.
        let is_stopped_alone = cause == ExitCause::TeamStopped && !self.is_closing.get();
        let cause = if is_stopped_alone { ExitCause::Stopped } else { cause };
        self.tell_lead(id, cause, end, &why.join(". ")).await;
        None
    }

    async fn write_exit(
        &self,
        id: &MemberId,
        end: ProcessEnd,
        will_restart: bool,
    ) -> Result<Option<ExitCause>, StoreError> {
        let (at, id) = (self.config.clock.now(), id.clone());
        let written = write(&self.config.bus, move |roster| {
            roster_updates::exited(roster, &id, end, will_restart, at)
        });
        written.await
    }

    /// Writes the end of a member into the roster, which was not possible before: the disk may have been full. The
    /// restart needs that entry. Returns `false` if the restart was cancelled or the entry is another incarnation's.
    async fn write_exit_at_last(&self, id: &MemberId, end: ProcessEnd) -> bool {
        while self.members.is_restart_planned(id) {
            match self.write_exit(id, end, true).await {
                Ok(Some(_)) => return true,
                // The entry belongs to another incarnation.
                Ok(None) => {
                    self.members.take_restart(id);
                    return false;
                }
                Err(_) => tokio::time::sleep(RECORD_PAUSE).await,
            }
        }
        false
    }

    fn decide_restart(&self, id: &MemberId, end: ProcessEnd, since: Instant) -> RestartDecision {
        let now = self.config.clock.monotonic();
        if self.is_closing.get() || self.was_asked_to_end(id, end) {
            return RestartDecision::Leave;
        }
        let lived = now.saturating_duration_since(since);
        let mut restarts = self.config.restarts.borrow_mut();
        self.members.with_history(&id.name, |history| restarts.ended(history, end, lived, now))
    }

    /// Whether another process is stopping the member, or the member has recorded that it was asked to end.
    fn was_asked_to_end(&self, id: &MemberId, end: ProcessEnd) -> bool {
        use ExitCause::{Budget, LeadLost, Stopped, TeamStopped};
        let Ok(roster) = roster::read(self.config.bus.dir()) else { return false };
        let Some(member) = roster.member(id.name.as_str()) else { return false };
        let cause = member.last_exit.as_ref().map(|exit| exit.cause);
        let in_order = member.status == Status::Shutdown
            && end != ProcessEnd::Hung
            && matches!(cause, Some(Stopped | TeamStopped | LeadLost | Budget));
        member.incarnation == id.incarnation && (member.status == Status::Stopping || in_order)
    }

    /// Notifies the lead's model of the end of a teammate. `why` is a sentence without its full stop, or empty.
    pub(super) async fn tell_lead(
        &self,
        id: &MemberId,
        cause: ExitCause,
        end: ProcessEnd,
        why: &str,
    ) {
        let (name, cause) = (&id.name, cause.word());
        let exit = match end {
            ProcessEnd::Code(code) => format!("exit {code}"),
            ProcessEnd::Signal(signal) => format!("signal {signal}"),
            ProcessEnd::Hung => "it hung and was killed".into(),
            ProcessEnd::NotStarted => "it could not be started".into(),
        };
        let more = if why.is_empty() { String::new() } else { format!(" {why}.") };
        let content = format!("{name} is gone ({cause}, {exit}).{more}");
        let body = Body::TeammateTerminated { name: name.to_string(), cause: cause.into(), exit };
        let message_id = format!("system:{name}:{}", id.incarnation);
        let bus = Arc::clone(&self.config.bus);
        let told = spawn_blocking(move || bus.notify_lead(body, content, message_id)).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::error!(%name, why = log_words::work_done(&told), "the lead could not be told of the end");
        }
    }

    /// Restarts the member of the ended incarnation `last` after the pause. Repeats a failed start as often as the
    /// policy allows. Returns early if the restart is cancelled.
    async fn restart(
        self: &Rc<Self>,
        mut last: MemberId,
        start_reason: StartReason,
        mut pause: Duration,
        mut unrecorded: Option<ProcessEnd>,
    ) {
        loop {
            tokio::time::sleep(pause).await;
            hit("reap.restart");
            if let Some(end) = unrecorded
                && !self.write_exit_at_last(&last, end).await
            {
                return;
            }
            if !self.members.take_restart(&last) {
                return;
            }
            let Some(mut spec) = self.respawn_spec(&last, start_reason) else { return };
            let name = &last.name;
            match self.read_role(spec.role.clone(), spec.role_file.clone()).await {
                Ok(found) => {
                    (spec.fallbacks, _) = self.fallbacks_of(found.map(|(role, _)| role).as_ref());
                }
                Err(why) => {
                    let hint = "then spawn it again with that role: it keeps its memory";
                    return self.leave_unstarted(&last, &format!("{why}; {hint}")).await;
                }
            }
            // It never works in the workspace instead.
            if let Some(Err(why)) = spec.work.as_ref().map(|place| clone::check(name, place)) {
                return self.leave_unstarted(&last, &why.to_string()).await;
            }
            let why = match self.launch(&spec).await {
                Ok(_) => {
                    tracing::info!(%name, reason = start_reason.words(), "teammate restarted");
                    return;
                }
                Err(StartError::Cancelled) => return,
                Err(why) => why,
            };
            tracing::error!(%name, %why, "the teammate could not be restarted");
            let roster = roster::read(self.config.bus.dir()).ok();
            let entry = roster.as_ref().and_then(|roster| roster.member(name.as_str()));
            let Some(entry) = entry else { return };
            last.incarnation.clone_from(&entry.incarnation);
            let now = self.config.clock.monotonic();
            match self.record_exit(&last, ProcessEnd::NotStarted, now, None).await {
                Some(next) => (pause, unrecorded) = (next.pause, next.unrecorded),
                None => return,
            }
        }
    }

    /// Records that the member is not started again, because its role is unclear or its clone is missing: that would
    /// stay so.
    async fn leave_unstarted(&self, last: &MemberId, why: &str) {
        tracing::error!(name = %last.name, why, "the teammate is not started again");
        let end = ProcessEnd::NotStarted;
        match self.write_exit(last, end, false).await {
            Ok(Some(cause)) => {
                self.tell_lead(last, cause, end, why).await;
            }
            // The entry belongs to another incarnation.
            Ok(None) => {}
            Err(why) => {
                tracing::warn!(name = %last.name, %why, "the exit could not be written to the roster");
            }
        }
    }

    /// Restarts members of an earlier team, each with its memory. Mail to them is accepted when this
    /// returns; their processes start in the background.
    pub(crate) async fn resume(self: &Rc<Self>, names: &[AgentName]) -> Result<(), StoreError> {
        let (at, wanted) = (self.config.clock.now(), names.to_vec());
        let resumed =
            write(&self.config.bus, move |roster| roster_updates::resumed(roster, &wanted, at));
        for id in resumed.await? {
            self.members.plan_restart(&id);
            let supervisor = Rc::clone(self);
            spawn_local(async move {
                supervisor.restart(id, StartReason::Resumed, Duration::ZERO, None).await;
            });
        }
        Ok(())
    }

    /// Describes the teammate from its entry, without the models that go on; `None` if its restart was cancelled.
    fn respawn_spec(&self, last: &MemberId, start_reason: StartReason) -> Option<SpawnSpec> {
        let roster = roster::read(self.config.bus.dir()).ok()?;
        let member = roster.member(last.name.as_str());
        let member = member.filter(|member| is_expected_back(member, &last.incarnation))?;
        // It keeps its mode, unless the lead's mode has become stricter.
        let lead_mode = self.config.permissions.borrow().mode;
        Some(SpawnSpec {
            name: last.name.clone(),
            role: member.role.clone(),
            role_file: member.role_file.clone(),
            model: member.model.clone(),
            fallbacks: Vec::new(),
            mode: PermissionMode::parse(&member.mode).unwrap_or_default().min(lead_mode),
            work: member.work.clone().or_else(|| self.known_clone(&last.name)),
            start_reason,
            after: Some(last.incarnation.clone()),
        })
    }
}
