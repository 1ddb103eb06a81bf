//! The roster entry of this agent: status, activity, usage.
//!
//! A change of status is written at once, a change of activity or usage at most once a second, so that a busy team
//! does not rewrite the roster all the time (RELIABILITY, fault 73). A process that holds the roster's lock does
//! not stop the agent: a write that takes longer than [`WRITE_TIMEOUT`] continues beside the agent's work. A foreign
//! agent gets its prompt without waiting for the write ([`StatusReporter::publish_beside`]).

use crate::os::Clock;
use crate::os::spawn::spawn_blocking;
use crate::protocol::lifecycle::{self, IllegalTransition, LifecycleEvent};
use crate::store::{Fsync, StoreError, TeamDir, roster, usage};
use crate::wire::activity::Activity;
use crate::wire::chat::Usage;
use crate::wire::limits::ACTIVITY_PERIOD;
use crate::wire::money::{Money, Price};
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, LastExit, Lead, Member, Status, UsageCount};
use crate::wire::{AgentName, WallTime};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The time for which the agent waits for a write. A write usually ends within it, so that the roster shows a
/// member as idle before its lead is notified.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer of one agent's roster entry.
pub(crate) struct StatusReporter {
    dir: TeamDir,
    name: AgentName,
    incarnation: String,
    clock: Rc<dyn Clock>,
    price: Option<Price>,
    /// The start of this incarnation (monotonic clock), and the seconds of the earlier ones.
    began: (Instant, u64),
    shown: Shown,
    written: Option<Shown>,
    /// The time of the last attempt to write (monotonic clock).
    tried: Option<Instant>,
    writing: Option<JoinHandle<Result<Shown, StoreError>>>,
    /// Whether the agent has waited for this write for [`WRITE_TIMEOUT`].
    is_late: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Shown {
    reported: Status,
    activity: Option<Activity>,
    /// The reason for which the model refused a shutdown request, if it did.
    refusal: Option<String>,
    usage: UsageCount,
    /// The permission mode, if it has changed since the start.
    mode: Option<PermissionMode>,
    last_exit: Option<(Option<i32>, ExitCause)>,
}

impl StatusReporter {
    /// Creates the reporter of an agent that is starting. `usage` is the usage of its earlier incarnations,
    /// `price` the price of its model.
    pub(crate) fn new(
        dir: TeamDir,
        name: AgentName,
        incarnation: String,
        clock: Rc<dyn Clock>,
        usage: UsageCount,
        price: Option<Price>,
    ) -> Self {
        let began = (clock.monotonic(), usage.seconds);
        let (activity, refusal, mode, last_exit) = (None, None, None, None);
        let shown = Shown { reported: Status::Starting, activity, refusal, usage, mode, last_exit };
        let (written, tried, writing, is_late) = (None, None, None, false);
        Self {
            dir,
            name,
            incarnation,
            clock,
            price,
            began,
            shown,
            written,
            tried,
            writing,
            is_late,
        }
    }

    pub(super) fn shown(&self) -> (Status, Option<&Activity>) {
        (self.shown.reported, self.shown.activity.as_ref())
    }

    /// Sets the price of the next model calls.
    pub(super) fn set_price(&mut self, price: Option<Price>) {
        self.price = price;
    }

    pub(super) fn count(&mut self, usage: Usage) {
        self.count_at(usage, self.price);
    }

    /// Counts a model call at the price of another model.
    pub(super) fn count_at(&mut self, usage: Usage, price: Option<Price>) {
        self.shown.usage.add_call(usage, price);
    }

    pub(super) fn count_switch(&mut self) {
        let switches = &mut self.shown.usage.model_switches;
        *switches = switches.saturating_add(1);
    }

    /// Counts a cost that an agent of another vendor reports. Where the price of its model is set, the tokens count.
    pub(super) fn count_cost(&mut self, cost: Money) {
        if self.price.is_none() {
            let known = self.shown.usage.cost.unwrap_or_default();
            self.shown.usage.cost = Some(known.plus(cost));
        }
    }

    /// Writes the usage for the agents that share a budget with this one.
    pub(super) fn share(&self) {
        log_error(usage::write(&self.dir, &self.name, &self.incarnation, self.used()));
    }

    pub(super) fn used(&self) -> UsageCount {
        let (began, before) = self.began;
        let lived = self.clock.monotonic().saturating_duration_since(began).as_secs();
        UsageCount { seconds: before.saturating_add(lived), ..self.shown.usage }
    }

    pub(super) fn count_turn(&mut self) {
        self.shown.usage.turns = self.shown.usage.turns.saturating_add(1);
    }

    /// Sets status and activity. A new status is written now, a new activity at the time that
    /// [`StatusReporter::due`] returns.
    pub(crate) async fn publish(&mut self, status: Status, activity: Option<Activity>) {
        (self.shown.reported, self.shown.activity) = (status, activity);
        if self.written.as_ref().is_none_or(|written| written.reported != status) {
            self.write().await;
        }
    }

    /// Sets status and activity. A new status is written beside the agent's work, which does not wait for it;
    /// [`StatusReporter::written`] does.
    pub(super) fn publish_beside(&mut self, status: Status, activity: Option<Activity>) {
        (self.shown.reported, self.shown.activity) = (status, activity);
        let is_known = self.written.as_ref().is_some_and(|written| written.reported == status);
        if !is_known && self.writing.is_none() {
            self.begin();
        }
    }

    /// Waits for the end of the write under way, forever if there is none. Dropping the future does not end the write.
    pub(super) async fn written(&mut self) {
        if self.writing.is_none() {
            std::future::pending::<()>().await;
        }
        log_error(self.finish().await);
    }

    /// Sets the reason for which the model refused to shut down. The roster shows it until the agent ends.
    pub(super) async fn refuse_to_end(&mut self, why: String) {
        self.shown.refusal = Some(why);
        self.write().await;
    }

    pub(super) async fn set_mode(&mut self, mode: PermissionMode) {
        self.shown.mode = Some(mode);
        self.write().await;
    }

    /// Writes the last status and the exit of an agent that ends in order.
    pub(crate) async fn publish_end(
        &mut self,
        status: Status,
        code: i32,
        cause: ExitCause,
    ) -> Result<(), StoreError> {
        self.shown.last_exit = Some((Some(code), cause));
        self.shown.reported = status;
        (self.shown.activity, self.shown.refusal) = (None, None);
        if let Some(writing) = self.writing.take() {
            let _older = writing.await;
        }
        self.begin();
        self.finish().await
    }

    /// Whether the roster holds the current status.
    pub(super) fn is_published(&self) -> bool {
        let written = self.written.as_ref().map(|written| written.reported);
        self.writing.is_none() && written == Some(self.shown.reported)
    }

    /// Returns the time at which unwritten changes are due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let tried = self.tried?;
        let is_open = self.writing.is_some() || self.written.as_ref() != Some(&self.shown);
        is_open.then_some(tried + ACTIVITY_PERIOD)
    }

    /// Writes the changes. A write that takes longer than [`WRITE_TIMEOUT`] continues beside the agent's work.
    pub(crate) async fn write(&mut self) {
        log_error(self.try_write().await);
    }

    /// Starts a write, unless a late one is under way. Fails if this write, or the one before, failed.
    async fn try_write(&mut self) -> Result<(), StoreError> {
        let is_under_way = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if is_under_way && self.is_late {
            self.tried = Some(self.clock.monotonic());
            return Ok(());
        }
        self.finish_in_time().await?;
        if self.writing.is_none() {
            self.begin();
            self.finish_in_time().await?;
        }
        Ok(())
    }

    /// Waits for the write under way for at most [`WRITE_TIMEOUT`].
    async fn finish_in_time(&mut self) -> Result<(), StoreError> {
        let done = timeout(WRITE_TIMEOUT, self.finish()).await;
        self.is_late = done.is_err();
        done.unwrap_or(Ok(()))
    }

    fn begin(&mut self) {
        self.is_late = false;
        self.tried = Some(self.clock.monotonic());
        self.shown.usage = self.used();
        let (shown, now) = (self.shown.clone(), self.clock.now());
        let (dir, name, incarnation) =
            (self.dir.clone(), self.name.clone(), self.incarnation.clone());
        self.writing = Some(spawn_blocking(move || {
            // The status need not survive a power cut, because the agent does not either.
            show(&dir, &name, &incarnation, &shown, now)?;
            Ok(shown)
        }));
    }

    /// Waits for the write under way. Dropping the future does not end the write.
    async fn finish(&mut self) -> Result<(), StoreError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let done = writing.await;
        self.writing = None;
        if let Ok(written) = done {
            self.written = Some(written?);
        }
        Ok(())
    }
}

/// Logs a failed write to the team folder. The agent continues.
fn log_error(done: Result<(), StoreError>) {
    if let Err(why) = done {
        tracing::error!(%why, "the team folder could not be written");
    }
}

/// Changes the agent's entry. An entry of another incarnation is left alone. The table in [`lifecycle`] decides
/// the new status from the entry's status and the report.
fn show(
    dir: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    shown: &Shown,
    now: WallTime,
) -> Result<(), StoreError> {
    let told = if name.is_lead() {
        roster::update(dir, Fsync::Never, |roster| {
            let lead = roster.lead.as_mut().filter(|lead| lead.incarnation == incarnation);
            lead.map(|lead| show_lead(lead, shown, now))
        })?
    } else {
        roster::update_member(dir, name, Fsync::Never, |member| {
            let member = member.filter(|member| member.incarnation == incarnation);
            member.map(|member| show_member(member, shown, now))
        })?
    };
    if let Some(Err(why)) = told {
        tracing::warn!(%name, %why, "the status was not reported");
    }
    Ok(())
}

fn show_lead(lead: &mut Lead, shown: &Shown, now: WallTime) -> Result<(), IllegalTransition> {
    lead.usage = shown.usage;
    let before = lead.status;
    if before == Status::Stopping {
        lifecycle::apply(&mut lead.status, LifecycleEvent::StopOverridden)?;
    }
    lifecycle::apply(&mut lead.status, LifecycleEvent::Reported(shown.reported))?;
    if lead.status != before {
        lead.since = now;
    }
    lead.activity.clone_from(&shown.activity);
    if let Some(mode) = shown.mode {
        lead.mode = mode.word().into();
    }
    Ok(())
}

fn show_member(member: &mut Member, shown: &Shown, now: WallTime) -> Result<(), IllegalTransition> {
    member.usage = shown.usage;
    let before = lifecycle::apply(&mut member.status, LifecycleEvent::Reported(shown.reported))?;
    if member.status != before {
        member.since = now;
    }
    // From the first report of an incarnation on, the entry holds its process id.
    member.pid = i32::try_from(std::process::id()).ok();
    let refused = shown.refusal.clone().map(Activity::Refused);
    member.activity = refused.or_else(|| shown.activity.clone());
    if let Some(mode) = shown.mode {
        member.mode = mode.word().into();
    }
    if let Some((code, cause)) = shown.last_exit {
        member.last_exit = Some(LastExit { code, signal: None, cause, at: now });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::SystemClock;

    fn reporter_of_a_lead() -> (tempfile::TempDir, TeamDir, StatusReporter) {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        roster::update(&dir, Fsync::Never, |roster| {
            let lead = Lead { incarnation: "l1".into(), ..Lead::default() };
            roster.lead = Some(lead.into());
        })
        .unwrap();
        let (clock, usage, name) = (Rc::new(SystemClock), UsageCount::default(), AgentName::lead());
        let reporter = StatusReporter::new(dir.clone(), name, "l1".into(), clock, usage, None);
        (folder, dir, reporter)
    }

    /// A process that was stopped (SIGSTOP) may hold the roster's lock for any time.
    #[test]
    fn a_locked_roster_does_not_stop_the_agent_and_is_written_later() {
        let (_folder, dir, mut status) = reporter_of_a_lead();
        let shown = || roster::read(&dir).unwrap().lead.clone().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            status.publish(Status::Idle, None).await;
            while !status.is_published() {
                status.write().await;
            }
            assert_eq!(shown().status, Status::Idle);
            let held = std::fs::File::open(dir.root().join("run/.state/config.lock")).unwrap();
            fs4::FileExt::lock(&held).unwrap();
            let bash = Activity::Tool("bash".into());
            for activity in [Activity::Model, bash.clone()] {
                status.publish(Status::Working, Some(activity)).await;
            }
            assert_eq!(shown().status, Status::Idle);
            assert!(!status.is_published());
            status.publish(Status::Idle, None).await;
            assert!(!status.is_published(), "what is being written says something else");
            status.publish(Status::Working, Some(bash.clone())).await;
            fs4::FileExt::unlock(&held).unwrap();
            while let Some(due) = status.due() {
                tokio::time::sleep_until(due.into()).await;
                status.write().await;
            }
            assert!(status.is_published());
            assert_eq!(shown().activity, Some(bash));
            fs4::FileExt::lock(&held).unwrap();
            status.publish(Status::Working, Some(Activity::Model)).await;
            status.write().await;
            fs4::FileExt::unlock(&held).unwrap();
            status.publish_end(Status::Shutdown, 0, ExitCause::TeamStopped).await.unwrap();
            assert_eq!((shown().status, shown().activity.clone()), (Status::Shutdown, None));
        });
    }

    #[test]
    fn a_status_is_written_after_the_one_that_is_written_beside_the_work() {
        let (_folder, dir, mut status) = reporter_of_a_lead();
        let shown = || roster::read(&dir).unwrap().lead.clone().unwrap().status;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            status.publish(Status::Idle, None).await;
            while !status.is_published() {
                status.write().await;
            }
            let held = std::fs::File::open(dir.root().join("run/.state/config.lock")).unwrap();
            fs4::FileExt::lock(&held).unwrap();
            status.publish_beside(Status::Working, Some(Activity::Model));
            assert!(!status.is_published());
            assert_eq!(shown(), Status::Idle);
            fs4::FileExt::unlock(&held).unwrap();
            status.written().await;
            assert!(status.is_published());
            assert_eq!(shown(), Status::Working);
            status.publish_beside(Status::Waiting, None);
            status.publish(Status::Idle, None).await;
            // The write may be late on a busy machine.
            while !status.is_published() {
                status.write().await;
            }
            assert_eq!(shown(), Status::Idle);
        });
    }
}
