//! Stops members: performs the shutdown ladder on their processes, whichever process started them.
//!
//! The lead uses it for its teammates, and `team stop` uses it from outside. The life lock decides whether
//! a member is alive.
//!
//! *Invariant:* a process is signalled only through a pidfd, after its start time and boot id were
//! compared.

use super::commands::end_commands;
use super::members::MemberId;
use super::roster_updates;
use crate::bus::{Bus, new_id};
use crate::os::async_fd::ReadableFd;
use crate::os::deadline::deadline;
use crate::os::failpoint::hit;
use crate::os::pidfd::Pidfd;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::os::{Clock, Signal, identity};
use crate::protocol::ladder::{LadderDeadlines, Rung, ShutdownLadder, Urgency};
use crate::store::{Liveness, TeamDir, liveness, roster, transcript};
use crate::tools::team::refusal_reason;
use crate::wire::carried::HostName;
use crate::wire::log_words;
use crate::wire::message::{Body, Correlation};
use crate::wire::roster::{ExitCause, Roster, Status};
use crate::wire::{AgentName, WithUnknownFields};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time for which a stop waits for the roster before it continues without it.
const ROSTER_WITHIN: Duration = Duration::from_millis(500);

/// The time in which a killed process must end, enough for a machine without a free processor.
pub(super) const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Interval at which a killed process is checked for being stuck in the kernel.
const STUCK_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Limit on consecutive checks that find a process inside the kernel; beyond it the process counts as stuck.
const STUCK_CHECKS: u32 = 5;

/// Interval at which a life lock is probed once the process has ended or cannot be watched.
const PROBE_EVERY: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(crate) struct StopPlan {
    pub(crate) bus: Arc<Bus>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) by: AgentName,
    pub(crate) reason: String,
    /// Cause that is recorded in `last_exit`.
    pub(crate) cause: ExitCause,
    /// Urgency, which may be raised meanwhile.
    pub(crate) urgency: watch::Receiver<Urgency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopOutcome {
    pub(crate) name: AgentName,
    /// The rung of the ladder that ended it, [`Rung::GiveUp`] if none did; `None` if it was not running.
    pub(crate) rung: Option<Rung>,
    pub(crate) refusal: Option<String>,
    /// The host on which it runs; `None` if that is this one.
    pub(crate) host: Option<String>,
    /// The reason for which its host did not stop it.
    pub(crate) unreached: Option<String>,
}

impl StopOutcome {
    fn not_running(name: AgentName) -> Self {
        Self { name, rung: None, refusal: None, host: None, unreached: None }
    }

    /// Whether its process is, or may be, still there: it is stuck in the kernel, or its host is not reached.
    pub(crate) fn is_stuck(&self) -> bool {
        self.rung == Some(Rung::GiveUp)
    }

    pub(crate) fn words(&self) -> String {
        if let (Some(host), Some(why)) = (&self.host, &self.unreached) {
            return format!("is on host {host}, and may still run: {why}");
        }
        match (self.rung, &self.refusal) {
            (rung, None) => words(rung).into(),
            (Some(Rung::Ask), Some(why)) => {
                format!("refused at first ({why}), then ended by itself before its deadline")
            }
            (rung, Some(why)) => format!("refused ({why}) and {}", words(rung)),
        }
    }
}

/// Returns the host of a member that does not run on this one, and its incarnation if its end is not recorded.
fn home_of(dir: &TeamDir, name: &AgentName) -> Option<(HostName, Option<String>)> {
    let roster = roster::read(dir).ok()?;
    let member = roster.member(name.as_str())?;
    let host = HostName::parse(member.host.as_deref()?).ok()?;
    let is_over = member.status.is_over() || member.given_up;
    Some((host, (!is_over).then(|| member.incarnation.clone())))
}

/// Describes the end of a member, as in [`StopOutcome::rung`], to a person.
pub(crate) fn words(rung: Option<Rung>) -> &'static str {
    match rung {
        None => "was not running",
        Some(Rung::Ask) => "ended when asked",
        Some(Rung::Terminate) => "ended on SIGTERM",
        Some(Rung::Kill) => "had to be killed",
        Some(Rung::GiveUp) => "is still there: SIGKILL had no effect",
    }
}

#[derive(Clone, Copy)]
struct Target<'a> {
    id: &'a MemberId,
    pid: i32,
    process: Option<&'a Pidfd>,
    request_id: &'a str,
    /// Whether the process may go on after the member has left the team.
    outlives: bool,
}

/// Stops several members in parallel. The deadlines of one ladder bound the whole stop.
pub(crate) async fn stop_in_parallel(plan: &StopPlan, names: Vec<AgentName>) -> Vec<StopOutcome> {
    let stop = |name| {
        let plan = plan.clone();
        spawn_local(async move { plan.stop(name).await })
    };
    let tasks: Vec<_> = names.into_iter().map(stop).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.extend(task.await.ok());
    }
    outcomes
}

impl StopPlan {
    /// Stops one member. Returns when it has ended or is stuck.
    pub(crate) async fn stop(&self, name: AgentName) -> StopOutcome {
        let dir = self.bus.dir();
        let record = loop {
            if let Ok(Liveness::Alive(Some(record))) = liveness::probe(dir, &name) {
                break record;
            }
            if let Some((host, incarnation)) = home_of(dir, &name) {
                let Some(incarnation) = incarnation else {
                    let host = Some(host.to_string());
                    return StopOutcome { host, ..StopOutcome::not_running(name) };
                };
                // It may be about to be started again there.
                return self.stop_on_host(host, MemberId { name, incarnation }).await;
            }
            if self.cancel_start(&name).await {
                return StopOutcome::not_running(name);
            }
        };
        let id = MemberId { name: name.clone(), incarnation: record.incarnation.clone() };
        if let Ok(host) = HostName::parse(&record.host) {
            // Its host writes its entry, ends its commands and records its end.
            return self.stop_on_host(host, id).await;
        }
        let process = record.open_process();
        let status = self.mark_stopping(&id).await;
        hit("stop.written");
        let request_id = new_id(&self.by);
        let (process, request_id) = (process.as_ref(), request_id.as_str());
        let outlives = record.outlives_membership;
        let target = Target { id: &id, pid: record.pid, process, request_id, outlives };
        let rung = self.climb_down(target, status).await;
        // Commands run in sessions of their own, and carry the run id of this incarnation.
        let (bus, owner) = (Arc::clone(&self.bus), name.clone());
        let end = move || end_commands(bus.dir(), &owner, &record.run_id, bus.fsync());
        match spawn_blocking(end).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => {
                tracing::warn!(%name, stuck = log_words::work_listed(&stuck), "commands could not be ended");
            }
        }
        if rung != Rung::GiveUp {
            hit("stop.gone");
            let (was_killed, cause) = (rung == Rung::Kill, self.cause);
            let now = self.clock.now();
            self.write(move |roster| {
                roster_updates::stop_confirmed(roster, &id, was_killed, cause, now);
            })
            .await;
            hit("stop.noted");
        }
        let refusal = self.refusal(&name, request_id);
        let outcome = StopOutcome { rung: Some(rung), refusal, ..StopOutcome::not_running(name) };
        tracing::info!(name = %outcome.name, outcome = outcome.words(), "member stopped");
        outcome
    }

    /// Performs the ladder until the member has exited or is stuck. Returns the last rung.
    async fn climb_down(&self, target: Target<'_>, status: Status) -> Rung {
        let mut urgency = self.urgency.clone();
        let first = *urgency.borrow_and_update();
        let name = &target.id.name;
        let waits = |urgency| {
            let waits = if name.is_lead() {
                LadderDeadlines::for_lead()
            } else {
                LadderDeadlines::for_member(status, urgency)
            };
            waits.map(deadline)
        };
        let mut ladder = ShutdownLadder::begin(waits(first), first, self.clock.monotonic());
        self.perform(&ladder, target);
        let awaited = target.process.filter(|_| !target.outlives);
        let mut gone = pin!(wait_gone(self.bus.dir(), name, awaited));
        let mut exited_on = None;
        loop {
            let before = ladder.rung();
            let next = tokio::select! {
                () = &mut gone => return exited_on.unwrap_or(before),
                () = tokio::time::sleep_until(ladder.until().into()) => {
                    ladder.tick(self.clock.monotonic())
                }
                Ok(()) = urgency.changed() => {
                    let urgency = *urgency.borrow_and_update();
                    ladder.raise_urgency(waits(urgency), urgency, self.clock.monotonic())
                }
            };
            let Some(next) = next else { continue };
            // If the exit and the next rung become known at the same moment, the rung has not caused the exit.
            if target.process.is_some_and(|process| process.ends_within(Duration::ZERO)) {
                exited_on.get_or_insert(before);
            }
            if next == Rung::GiveUp {
                let last = gone_after_kill(target.process, gone).await;
                return exited_on.filter(|_| last == Rung::Kill).unwrap_or(last);
            }
            self.perform(&ladder, target);
        }
    }

    /// Reads the reason for a refusal from the member's transcript, which has it even if the refusal was not drained.
    fn refusal(&self, name: &AgentName, request_id: &str) -> Option<String> {
        let refusal = transcript::find_call(self.bus.dir(), name, |tool, input| {
            refusal_reason(tool, input, request_id)
        });
        refusal.inspect_err(|why| tracing::warn!(%name, %why, "its answer is unknown")).ok()?
    }

    /// Cancels a start or restart that has not begun. Returns `false` if the member is alive by now.
    async fn cancel_start(&self, name: &AgentName) -> bool {
        let (name, cause, now) = (name.clone(), self.cause, self.clock.now());
        let bus = Arc::clone(&self.bus);
        let write = self.write(move |roster| {
            // A starting process takes its life lock first and reads its entry under the roster's lock: either this
            // probe finds it alive, or it reads the entry that is written here.
            let is_dead =
                !matches!(liveness::probe(bus.dir(), &name), Ok(Liveness::Alive(Some(_))));
            if is_dead {
                roster_updates::start_cancelled(roster, &name, cause, now);
            }
            is_dead
        });
        let written = tokio::time::timeout(deadline(ROSTER_WITHIN), write).await;
        written.ok().flatten().unwrap_or(true)
    }

    fn perform(&self, ladder: &ShutdownLadder, target: Target<'_>) {
        let Target { id, pid, process, request_id, .. } = target;
        let (name, rung) = (&id.name, ladder.rung());
        let within = ladder.until().saturating_duration_since(self.clock.monotonic());
        tracing::info!(%name, rung = rung.word(), pid, "shutdown ladder");
        let done = match rung {
            Rung::Ask if !name.is_lead() => {
                hit("stop.ask");
                drop(self.ask(id, within, request_id.to_owned()));
                Ok(())
            }
            Rung::Ask | Rung::Terminate => {
                hit("stop.terminate");
                process.map_or(Ok(()), terminate)
            }
            Rung::Kill => {
                hit("stop.kill");
                process.map_or(Ok(()), |process| process.signal_group(Signal::SIGKILL))
            }
            Rung::GiveUp => Ok(()),
        };
        if let Err(why) = done.map_err(|why| why.to_string()) {
            tracing::warn!(%name, rung = rung.word(), why, "a rung of the ladder failed");
        }
    }

    /// Sends the request on another thread: the ladder continues even if the member holds the inbox's lock. A process that ends at
    /// once may end before it: then the outcome is to be awaited.
    pub(super) fn ask(
        &self,
        id: &MemberId,
        within: Duration,
        request_id: String,
    ) -> JoinHandle<Result<(), String>> {
        let (bus, by) = (Arc::clone(&self.bus), self.by.clone());
        let MemberId { name: to, incarnation } = id.clone();
        let body = Body::ShutdownRequest {
            reason: Some(self.reason.clone()),
            deadline: Some(self.clock.now() + within),
        };
        spawn_blocking(move || {
            let correlation = Correlation { request_id, incarnation };
            let sent = bus.control(&by, &to, body, correlation);
            if let Err(why) = &sent {
                tracing::warn!(%to, %why, "the shutdown request could not be sent");
            }
            hit("stop.asked");
            sent.map(drop).map_err(|why| why.to_string())
        })
    }

    /// Writes `stopping`; does not wait for a slow write. Returns the status before, or `working` if it is unknown.
    async fn mark_stopping(&self, id: &MemberId) -> Status {
        let (id, now) = (id.clone(), self.clock.now());
        let write = self.write(move |roster| roster_updates::stop_asked(roster, &id, now));
        let written = tokio::time::timeout(deadline(ROSTER_WITHIN), write).await;
        written.ok().flatten().flatten().unwrap_or(Status::Working)
    }

    async fn write<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
    ) -> Option<R> {
        let written = roster_updates::write(&self.bus, change).await;
        written.inspect_err(|why| tracing::warn!(%why, "the roster could not be written")).ok()
    }
}

/// Kills a hung process without a shutdown request. Returns the last rung. Leaves the entry on the roster, so that
/// mail waits for the next incarnation.
pub(super) async fn kill_hung(dir: &TeamDir, id: &MemberId) -> Option<Rung> {
    let name = &id.name;
    let Ok(Liveness::Alive(Some(record))) = liveness::probe(dir, name) else { return None };
    if record.incarnation != id.incarnation {
        return None;
    }
    let process = record.open_process()?;
    let waits = LadderDeadlines::for_member(Status::Working, Urgency::Polite);
    for (rung, wait) in [(Rung::Terminate, waits.terminate), (Rung::Kill, waits.kill)] {
        let is_last = rung == Rung::Kill;
        let sent =
            if is_last { process.signal_group(Signal::SIGKILL) } else { terminate(&process) };
        if let Err(why) = sent {
            tracing::warn!(%name, rung = rung.word(), %why, "cannot signal the process");
        }
        if tokio::time::timeout(wait, wait_gone(dir, name, Some(&process))).await.is_ok() {
            return Some(rung);
        }
    }
    let gone = pin!(wait_gone(dir, name, Some(&process)));
    Some(gone_after_kill(Some(&process), gone).await)
}

/// Sends SIGTERM, and SIGCONT so that a stopped process receives it.
pub(super) fn terminate(process: &Pidfd) -> io::Result<()> {
    process.send_signal(Signal::SIGTERM)?;
    process.send_signal(Signal::SIGCONT)
}

pub(super) async fn ended(process: &Pidfd) -> io::Result<()> {
    ReadableFd::to_read(process)?.wait().await
}

/// Waits until the process has ended and its life lock is free.
pub(super) async fn wait_gone(dir: &TeamDir, name: &AgentName, process: Option<&Pidfd>) {
    if let Some(process) = process
        && let Err(why) = ended(process).await
    {
        tracing::warn!(%name, %why, "cannot wait for the process");
    }
    // The kernel releases the lock when the process ends. Without a pidfd, only the lock shows the end.
    while matches!(liveness::probe(dir, name), Ok(Liveness::Alive(_))) {
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

/// Waits for a killed process. Returns [`Rung::GiveUp`] if it is stuck in the kernel or exceeds [`KILLED_WITHIN`].
pub(super) async fn gone_after_kill(
    process: Option<&Pidfd>,
    mut gone: Pin<&mut impl Future<Output = ()>>,
) -> Rung {
    let mut stuck = 0;
    for _ in 0..KILLED_WITHIN.as_millis() / STUCK_CHECK_EVERY.as_millis() {
        let is_in_kernel = process.is_none_or(|process| identity::is_in_kernel(process.pid()));
        stuck = if is_in_kernel { stuck + 1 } else { 0 };
        if stuck > STUCK_CHECKS {
            break;
        }
        if tokio::time::timeout(STUCK_CHECK_EVERY, gone.as_mut()).await.is_ok() {
            return Rung::Kill;
        }
    }
    Rung::GiveUp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::MailLimits;
    use crate::os::{SystemClock, child};
    use crate::store::test_team;

    /// The urgency rises after the process has exited, but before the event loop has noticed it.
    #[tokio::test]
    async fn the_rung_that_ended_a_process_is_the_outcome_even_if_the_next_one_is_taken() {
        let (_folder, dir) = test_team();
        let bus = Arc::new(Bus::new(dir, MailLimits::default(), Arc::new(SystemClock)));
        let id = MemberId { name: AgentName::member("bob").unwrap(), incarnation: "b1".into() };
        // Often enough for the event loop to look at the urgency first.
        for _ in 0..16 {
            let (sender, urgency) = watch::channel(Urgency::Now);
            let plan = StopPlan {
                bus: Arc::clone(&bus),
                clock: Rc::new(SystemClock),
                by: AgentName::lead(),
                reason: String::new(),
                cause: ExitCause::Stopped,
                urgency,
            };
            let sleeper = child::spawn(std::process::Command::new("sleep").arg("300")).unwrap();
            let (pid, process) = (sleeper.pid(), Some(&sleeper));
            let target = Target { id: &id, pid, process, request_id: "r", outlives: false };
            let third_ctrl_c = async {
                assert!(sleeper.ends_within(Duration::from_secs(60)));
                sender.send_replace(Urgency::AtOnce);
            };
            let (rung, ()) = tokio::join!(plan.climb_down(target, Status::Working), third_ctrl_c);
            assert_eq!(rung, Rung::Terminate);
            sleeper.wait().unwrap();
        }
    }

    #[test]
    fn an_outcome_tells_of_the_refusal_and_of_the_end() {
        for (rung, refusal, words) in [
            (Rung::Terminate, None, "ended on SIGTERM"),
            (
                Rung::Ask,
                Some("busy".to_owned()),
                "refused at first (busy), then ended by itself before its deadline",
            ),
            (Rung::Kill, Some("busy".to_owned()), "refused (busy) and had to be killed"),
        ] {
            let name = AgentName::member("alice").unwrap();
            let outcome =
                StopOutcome { rung: Some(rung), refusal, ..StopOutcome::not_running(name) };
            assert_eq!(outcome.words(), words);
        }
    }
}
