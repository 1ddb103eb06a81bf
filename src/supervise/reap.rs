//! The end of a teammate's process: it is reaped, recorded and reported, and restarted if the policy says so.

use super::handshake::StartReason;
use super::process::ended;
use super::roster_updates::{self, cause_of};
use super::supervisor::Supervisor;
use crate::os::failpoint::hit;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::process_tree;
use crate::protocol::restart::{ProcessEnd, RestartDecision};
use crate::store::{liveness, roster};
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::message::Body;
use crate::wire::roster::{ExitCause, Status};
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One life of a teammate.
#[derive(Debug, Clone)]
pub(super) struct StartedLife {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    pub(super) since: Instant,
}

impl Supervisor {
    /// Waits for the end of a teammate's process, reaps it and handles the end.
    pub(super) async fn reap(self: Rc<Self>, life: StartedLife, process: Pidfd) {
        let StartedLife { name, incarnation, .. } = &life;
        if let Err(why) = ended(&process).await {
            tracing::warn!(%name, %why, "cannot wait for the end of the teammate");
        }
        hit("reap.ended");
        // Asked at once: a stop is over as soon as it has seen the same end.
        let known = self.members.ended(name, incarnation);
        let exit = process.wait();
        tracing::info!(%name, ?exit, "teammate ended");
        let released = self.release_tasks(name).await;
        let end = match exit {
            _ if known.was_hung => ProcessEnd::Hung,
            Ok(ExitKind::Code(code)) => ProcessEnd::Code(code),
            Ok(ExitKind::Signal(signal)) => ProcessEnd::Signal(signal),
            Err(_) => ProcessEnd::Signal(9),
        };
        let restart =
            if known.was_expected { None } else { self.record_exit(&life, end, released).await };
        self.end_strays(&life).await;
        self.members.cleaned_up(name, incarnation);
        self.run_exit_hooks(&life, exit.ok(), known.was_expected);
        if let Some((pause, cause)) = restart {
            let start_reason = StartReason::Restarted(cause);
            self.restart(life.name, life.incarnation, start_reason, pause).await;
        }
    }

    /// Kills what a dead teammate left behind. Its guards and escaped processes come to the lead, which
    /// adopts orphans.
    async fn end_strays(&self, life: &StartedLife) {
        let StartedLife { name, incarnation, .. } = life;
        let run_id = self.config.run_id.clone();
        let last = liveness::last_record(self.config.bus.dir(), name).ok().flatten();
        let last = last.filter(|record| record.incarnation == *incarnation);
        let end = move || {
            let mut stuck = process_tree::end_strays(&run_id);
            // Its guards may have been killed before they could remove their control groups.
            stuck.extend(last.iter().flat_map(|record| process_tree::end_run(&record.run_id)));
            stuck
        };
        match tokio::task::spawn_blocking(end).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(%name, ?stuck, "strays of the teammate could not be ended"),
        }
    }

    /// Runs the hooks for the end of a teammate in the background.
    fn run_exit_hooks(self: &Rc<Self>, life: &StartedLife, exit: Option<ExitKind>, asked: bool) {
        let (code, signal) = match exit {
            Some(ExitKind::Code(code)) => (Some(code), None),
            Some(ExitKind::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let fields = json!({
            "name": life.name.as_str(), "incarnation": life.incarnation,
            "code": code, "signal": signal, "asked_to_end": asked,
        });
        let supervisor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let asked = supervisor.config.hooks.ask(HookEvent::TeammateExited, fields).await;
            if let Err(why) = asked {
                tracing::warn!(%why, "a hook cannot refuse the end of a teammate");
            }
            supervisor.exit_hooks.send_modify(|count| *count = count.saturating_sub(1));
        });
    }

    /// Makes the tasks of dead owners pending again. Returns a sentence about those of this teammate.
    async fn release_tasks(&self, name: &AgentName) -> Option<String> {
        let tasks = Arc::clone(&self.config.tasks);
        match tokio::task::spawn_blocking(move || tasks.release_abandoned()).await {
            Ok(Ok(released)) => {
                let its = released.iter().filter(|t| t.owner.as_deref() == Some(name.as_str()));
                let its: Vec<String> = its.map(|t| format!("{} ({})", t.id, t.subject)).collect();
                (!its.is_empty()).then(|| format!("Pending again: task {}", its.join(", task ")))
            }
            failed => {
                tracing::warn!(%name, ?failed, "its tasks stay claimed until the list is read again");
                None
            }
        }
    }

    /// Records an end that this supervisor did not bring about. Returns the pause before the restart, if the
    /// policy wants one; otherwise the lead's model is told of the end.
    pub(super) async fn record_exit(
        &self,
        life: &StartedLife,
        end: ProcessEnd,
        released: Option<String>,
    ) -> Option<(Duration, ExitCause)> {
        let StartedLife { name, incarnation, .. } = life;
        let decision = self.decide_restart(life, end);
        let will_restart = matches!(decision, RestartDecision::After(_));
        if will_restart {
            self.members.plan_restart(name, incarnation);
        }
        let at = self.config.clock.now();
        let (member, its_life) = (name.clone(), incarnation.clone());
        let written = self.write(move |roster| {
            let member = roster.member_mut(member.as_str())?;
            (member.incarnation == its_life)
                .then(|| roster_updates::exited(member, end, will_restart, at))
        });
        let cause = match written.await {
            Ok(Some(cause)) => cause,
            // The entry belongs to another life.
            Ok(None) => {
                if will_restart {
                    self.members.cancel_restart(name);
                }
                return None;
            }
            Err(why) => {
                tracing::warn!(%name, %why, "the end could not be written into the roster");
                cause_of(end)
            }
        };
        hit("reap.noted");
        match decision {
            RestartDecision::After(pause) => {
                tracing::warn!(%name, ?end, ?pause, "the teammate will be restarted");
                return Some((pause, cause));
            }
            RestartDecision::Leave => self.tell_lead(name, incarnation, cause, end, released).await,
            RestartDecision::GiveUp(limit) => {
                let why = format!("{limit}, so it is not started again by itself");
                let why = std::iter::once(why).chain(released).collect::<Vec<_>>().join(". ");
                self.tell_lead(name, incarnation, cause, end, Some(why)).await;
            }
        }
        None
    }

    fn decide_restart(&self, life: &StartedLife, end: ProcessEnd) -> RestartDecision {
        let now = self.config.clock.monotonic();
        if self.is_closing.get() || self.was_asked_to_end(&life.name, &life.incarnation, end) {
            return RestartDecision::Leave;
        }
        let lived = now.saturating_duration_since(life.since);
        let mut restarts = self.restarts.borrow_mut();
        self.members.with_history(&life.name, |history| restarts.ended(history, end, lived, now))
    }

    /// Whether another process is stopping it, or it has recorded that it was asked to end.
    fn was_asked_to_end(&self, name: &AgentName, incarnation: &str, end: ProcessEnd) -> bool {
        let Ok(roster) = roster::read(self.config.bus.dir()) else { return false };
        let Some(member) = roster.member(name.as_str()) else { return false };
        let ended_as = |cause| member.last_exit.as_ref().is_some_and(|exit| exit.cause == cause);
        let in_order = member.status == Status::Shutdown
            && end != ProcessEnd::Hung
            && [ExitCause::Stopped, ExitCause::TeamStopped, ExitCause::LeadLost, ExitCause::Budget]
                .map(ended_as)
                .contains(&true);
        member.incarnation == incarnation && (member.status == Status::Stopping || in_order)
    }

    /// Tells the lead's model that a teammate has ended.
    pub(super) async fn tell_lead(
        &self,
        name: &AgentName,
        incarnation: &str,
        cause: ExitCause,
        end: ProcessEnd,
        why: Option<String>,
    ) {
        let exit = match end {
            ProcessEnd::Code(code) => format!("exit {code}"),
            ProcessEnd::Signal(signal) => format!("signal {signal}"),
            ProcessEnd::Hung => "it hung and was killed".into(),
            ProcessEnd::NotStarted => "it could not be started".into(),
        };
        let more = why.map_or_else(String::new, |why| format!(" {why}."));
        let content = format!("{name} is gone ({}, {exit}).{more}", cause.word());
        let cause = cause.word().into();
        let body = Body::TeammateTerminated { name: name.to_string(), cause, exit };
        let id = format!("system:{name}:{incarnation}");
        let bus = Arc::clone(&self.config.bus);
        let told = tokio::task::spawn_blocking(move || bus.notify_lead(body, content, id)).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::error!(%name, ?told, "the lead could not be told of the end");
        }
    }
}
