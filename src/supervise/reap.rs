//! The end of a teammate's process: taken notice of, told to whoever needs to know, and mended where the
//! policy says so.

use super::handshake::StartReason;
use super::start::{SpawnSpec, StartError, is_expected_back};
use super::{Supervisor, stop};
use crate::os::failpoint::hit;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::process_tree;
use crate::protocol::restart::{ProcessEnd, RestartDecision};
use crate::store::{StoreError, liveness, roster};
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::message::Body;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, LastExit, Member, Status};
use serde_json::json;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A life of a teammate, from its start on.
#[derive(Debug, Clone)]
pub(super) struct Lived {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    pub(super) since: Instant,
}

/// What the roster says shows in an entry that is about to be started again.
const COMING_BACK: &str = "restarting";

impl Supervisor {
    /// Waits for a teammate's end, takes its exit status, and sees to what follows.
    pub(super) async fn reap(self: Rc<Self>, lived: Lived, process: Pidfd) {
        let Lived { name, incarnation, .. } = &lived;
        if let Err(why) = stop::ended(&process).await {
            tracing::warn!(%name, %why, "the end of the teammate cannot be waited for");
        }
        hit("reap.ended");
        // Asked at once: whoever takes it down forgets about it when it sees the same end.
        let expected = self.expected.borrow().contains(name);
        let exit = process.wait();
        tracing::info!(%name, ?exit, "teammate ended");
        let released = self.release_tasks(name).await;
        let is_hung = self.hung.borrow_mut().remove(incarnation);
        let end = match exit {
            _ if is_hung => ProcessEnd::Hung,
            Ok(ExitKind::Code(code)) => ProcessEnd::Code(code),
            Ok(ExitKind::Signal(signal)) => ProcessEnd::Signal(signal),
            Err(_) => ProcessEnd::Signal(9),
        };
        let verdict =
            if expected { None } else { Some(self.take_notice(&lived, end, released).await) };
        // Guards and escapees of a dead teammate come to the lead, which adopts orphans.
        let run_id = self.plan.run_id.clone();
        let last = liveness::last_record(self.plan.bus.dir(), name).ok().flatten();
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
        self.children.send_if_modified(|children| children.remove(name).is_some());
        self.tell_hooks(&lived, exit.ok(), expected);
        if let Some(Some((pause, cause))) = verdict {
            let start_reason = StartReason::Restarted(cause);
            self.bring_back(lived.name, lived.incarnation, start_reason, pause).await;
        }
    }

    /// Runs the hooks for the end of a teammate, beside everything else.
    fn tell_hooks(self: &Rc<Self>, lived: &Lived, exit: Option<ExitKind>, asked: bool) {
        let (code, signal) = match exit {
            Some(ExitKind::Code(code)) => (Some(code), None),
            Some(ExitKind::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let fields = json!({
            "name": lived.name.as_str(), "incarnation": lived.incarnation,
            "code": code, "signal": signal, "asked_to_end": asked,
        });
        let supervisor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let asked = supervisor.plan.hooks.ask(HookEvent::TeammateExited, fields).await;
            if let Err(why) = asked {
                tracing::warn!(%why, "the end of a teammate cannot be refused");
            }
            supervisor.unheard.send_modify(|count| *count = count.saturating_sub(1));
        });
    }

    /// What the dead worked on is pending again. Says so in words, if there was anything.
    async fn release_tasks(&self, name: &AgentName) -> Option<String> {
        let tasks = Arc::clone(&self.plan.tasks);
        match tokio::task::spawn_blocking(move || tasks.release_abandoned()).await {
            Ok(Ok(released)) => {
                let its = released.iter().filter(|t| t.owner.as_deref() == Some(name.as_str()));
                let its: Vec<String> = its.map(|t| format!("{} ({})", t.id, t.subject)).collect();
                (!its.is_empty()).then(|| format!("Pending again: task {}", its.join(", task ")))
            }
            failed => {
                tracing::warn!(%name, ?failed, "its tasks are left to whoever looks at the list next");
                None
            }
        }
    }

    /// Writes down an end that this supervisor did not bring about. Tells after which pause the
    /// teammate is to be started again, if it is; else the lead's model is told that it is gone.
    async fn take_notice(
        &self,
        lived: &Lived,
        end: ProcessEnd,
        released: Option<String>,
    ) -> Option<(Duration, ExitCause)> {
        let Lived { name, incarnation, since } = lived;
        let now = self.plan.clock.monotonic();
        let verdict = if self.closing.get() || self.was_asked_to_end(name, incarnation, end) {
            RestartDecision::Leave
        } else {
            let lived = now.saturating_duration_since(*since);
            self.restarts.borrow_mut().ended(name.as_str(), end, lived, now)
        };
        let comes_back = matches!(verdict, RestartDecision::After(_));
        if comes_back {
            self.coming_back.borrow_mut().insert(name.clone());
        }
        let at = self.plan.clock.now();
        let (noted, life) = (name.clone(), incarnation.clone());
        let written = self.write(move |roster| {
            let member = roster.member_mut(noted.as_str())?;
            (member.incarnation == life).then(|| note_end(member, end, comes_back, at))
        });
        let cause = match written.await {
            Ok(Some(cause)) => cause,
            // It is somebody else's by now.
            Ok(None) => {
                self.coming_back.borrow_mut().remove(name);
                return None;
            }
            Err(why) => {
                tracing::warn!(%name, %why, "the roster could not be told of the end");
                cause_of(end)
            }
        };
        hit("reap.noted");
        match verdict {
            RestartDecision::After(pause) => {
                tracing::warn!(%name, ?end, ?pause, "the teammate is started again");
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

    /// Somebody else is taking it down, or it said itself that it was told to end.
    fn was_asked_to_end(&self, name: &AgentName, incarnation: &str, end: ProcessEnd) -> bool {
        let Ok(roster) = roster::read(self.plan.bus.dir()) else { return false };
        let Some(member) = roster.member(name.as_str()) else { return false };
        let ended_as = |cause| member.last_exit.as_ref().is_some_and(|exit| exit.cause == cause);
        let in_order = member.status == Status::Shutdown
            && end != ProcessEnd::Hung
            && [ExitCause::Stopped, ExitCause::TeamStopped, ExitCause::LeadLost, ExitCause::Budget]
                .map(ended_as)
                .contains(&true);
        member.incarnation == incarnation && (member.status == Status::Stopping || in_order)
    }

    /// Starts it after the pause, as often as the policy allows, unless somebody calls that off.
    pub(super) async fn bring_back(
        self: &Rc<Self>,
        name: AgentName,
        mut after: String,
        start_reason: StartReason,
        mut pause: Duration,
    ) {
        loop {
            tokio::time::sleep(pause).await;
            hit("reap.restart");
            if !self.coming_back.borrow_mut().remove(&name) {
                return;
            }
            let Some(spec) = self.respawn_spec(&name, &after, start_reason) else { return };
            let Err(why) = self.launch(&spec).await else {
                tracing::info!(%name, ?start_reason, "the teammate is back");
                return;
            };
            if matches!(why, StartError::CalledOff) {
                return;
            }
            tracing::error!(%name, %why, "the teammate could not be started again");
            let dir = self.plan.bus.dir();
            let entry = roster::read(dir).ok().and_then(|r| r.member(name.as_str()).cloned());
            let Some(entry) = entry else { return };
            after.clone_from(&entry.incarnation);
            let since = self.plan.clock.monotonic();
            let lived = Lived { name: name.clone(), incarnation: after.clone(), since };
            match self.take_notice(&lived, ProcessEnd::NotStarted, None).await {
                Some((again, _)) => pause = again,
                None => return,
            }
        }
    }

    /// Brings back members of an earlier team, each with its memory. They can be written to when this
    /// returns; their processes are being started.
    pub(crate) async fn resume(self: &Rc<Self>, names: &[AgentName]) -> Result<(), StoreError> {
        let (at, wanted) = (self.plan.clock.now(), names.to_vec());
        let lives = self.write(move |roster| {
            let is_wanted =
                |member: &Member| wanted.iter().any(|name| name.as_str() == member.name);
            let members = roster.members.iter_mut().filter(|member| is_wanted(member));
            let marked = members.map(|member| {
                (member.status, member.since) = (Status::Starting, at);
                (member.name.clone(), member.incarnation.clone())
            });
            marked.collect::<BTreeMap<String, String>>()
        });
        let lives = lives.await?;
        for name in names {
            let Some(life) = lives.get(name.as_str()).cloned() else { continue };
            self.coming_back.borrow_mut().insert(name.clone());
            let (supervisor, name) = (Rc::clone(self), name.clone());
            tokio::task::spawn_local(async move {
                supervisor.bring_back(name, life, StartReason::Resumed, Duration::ZERO).await;
            });
        }
        Ok(())
    }

    /// Who is to be started, as the roster knows it; nobody when that was called off.
    fn respawn_spec(
        &self,
        name: &AgentName,
        after: &str,
        start_reason: StartReason,
    ) -> Option<SpawnSpec> {
        let roster = roster::read(self.plan.bus.dir()).ok()?;
        let member =
            roster.member(name.as_str()).filter(|member| is_expected_back(member, after))?;
        // It keeps its mode, unless the lead has become stricter.
        let lead_mode = self.plan.permissions.borrow().mode;
        let mode = PermissionMode::parse(&member.mode).unwrap_or_default().min(lead_mode);
        Some(SpawnSpec {
            name: name.clone(),
            role: member.role.clone(),
            model: member.model.clone(),
            mode,
            start_reason,
            after: Some(after.to_owned()),
        })
    }

    /// Tells the lead's model that a teammate is gone.
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
            ProcessEnd::Hung => "it no longer moved".into(),
            ProcessEnd::NotStarted => "it could not be started".into(),
        };
        let more = why.map_or_else(String::new, |why| format!(" {why}."));
        let content = format!("{name} is gone ({}, {exit}).{more}", cause.word());
        let cause = cause.word().into();
        let body = Body::TeammateTerminated { name: name.to_string(), cause, exit };
        let id = format!("system:{name}:{incarnation}");
        let bus = Arc::clone(&self.plan.bus);
        let told = tokio::task::spawn_blocking(move || bus.notify_lead(body, content, id)).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::error!(%name, ?told, "the lead could not be told of the end");
        }
    }
}

/// Writes an end into an entry. What the member wrote about it itself stands.
fn note_end(
    member: &mut Member,
    end: ProcessEnd,
    comes_back: bool,
    at: crate::wire::WallTime,
) -> ExitCause {
    let in_order = member.status == Status::Stopping || member.status == Status::Shutdown;
    let told =
        member.last_exit.as_ref().filter(|_| member.status.is_over() && end != ProcessEnd::Hung);
    let cause = match told {
        Some(exit) => exit.cause,
        None if end == ProcessEnd::Hung || !in_order => cause_of(end),
        None => ExitCause::Stopped,
    };
    if told.is_none() {
        let (code, signal) = match end {
            ProcessEnd::Code(code) => (Some(code), None),
            ProcessEnd::Signal(signal) => (None, Some(signal)),
            ProcessEnd::Hung | ProcessEnd::NotStarted => (None, None),
        };
        member.last_exit = Some(LastExit { code, signal, cause, at });
    }
    member.status = match member.status {
        _ if comes_back => Status::Starting,
        over @ (Status::Shutdown | Status::Failed) if end != ProcessEnd::Hung => over,
        Status::Stopping => Status::Shutdown,
        Status::Starting
        | Status::Working
        | Status::Idle
        | Status::Waiting
        | Status::Shutdown
        | Status::Failed => Status::Failed,
    };
    (member.since, member.pid) = (at, None);
    member.activity = comes_back.then(|| COMING_BACK.into());
    cause
}

fn cause_of(end: ProcessEnd) -> ExitCause {
    match end {
        ProcessEnd::Code(_) | ProcessEnd::Signal(_) => ExitCause::Crash,
        ProcessEnd::Hung => ExitCause::Hung,
        ProcessEnd::NotStarted => ExitCause::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: Status, told: Option<ExitCause>, end: ProcessEnd, comes_back: bool) -> Member {
        let last_exit =
            told.map(|cause| LastExit { code: Some(0), signal: None, cause, at: 1.0.into() });
        let activity = Some("bash".into());
        let mut member = Member { status, last_exit, activity, pid: Some(7), ..Member::default() };
        let cause = note_end(&mut member, end, comes_back, 2.0.into());
        assert_eq!(member.last_exit.as_ref().unwrap().cause, cause);
        assert_eq!((member.pid, member.since), (None, 2.0.into()));
        member
    }

    #[test]
    fn an_end_is_written_down_as_it_was() {
        use ExitCause::{Crash, Error, Hung, Stopped};
        use Status::{Failed, Idle, Shutdown, Starting, Stopping, Working};
        let (killed, left) = (ProcessEnd::Signal(9), ProcessEnd::Code(0));
        let cases = [
            (Working, None, killed, false, Failed, Crash),
            (Working, None, killed, true, Starting, Crash),
            (Idle, None, ProcessEnd::Hung, true, Starting, Hung),
            // Told to end by SIGTERM, it left in order: that it was hung counts.
            (Shutdown, Some(Stopped), ProcessEnd::Hung, true, Starting, Hung),
            (Shutdown, Some(Stopped), ProcessEnd::Hung, false, Failed, Hung),
            (Shutdown, Some(Stopped), left, false, Shutdown, Stopped),
            (Failed, Some(Error), ProcessEnd::Code(1), true, Starting, Error),
            (Failed, Some(Error), ProcessEnd::Code(1), false, Failed, Error),
            (Stopping, None, killed, false, Shutdown, Stopped),
            // What an earlier life left behind is not this one's end.
            (Working, Some(Stopped), killed, false, Failed, Crash),
        ];
        for (status, told, end, comes_back, becomes, cause) in cases {
            let member = ended(status, told, end, comes_back);
            let now = member.last_exit.unwrap().cause;
            assert_eq!((member.status, now), (becomes, cause), "{status:?} {told:?} {end:?}");
            assert_eq!(member.activity.is_some(), comes_back);
        }
    }
}
