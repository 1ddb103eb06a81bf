//! Taking members down: the shutdown ladder performed on real processes, whoever started them.
//!
//! Used by the lead for its teammates and by `team stop` from outside. Who lives is decided by the
//! life lock; a process is signalled only after its start time and boot id were compared.

use super::roster_updates::{self, Gone};
use crate::bus::{Bus, new_id};
use crate::os::async_fd::ReadableFd;
use crate::os::failpoint::hit;
use crate::os::identity;
use crate::os::pidfd::Pidfd;
use crate::os::{Clock, Signal, process_tree};
use crate::protocol::ladder::{LadderDeadlines, Rung, ShutdownLadder, Urgency};
use crate::store::{LifeRecord, Liveness, TeamDir, liveness, transcript};
use crate::tools::team::refusal_reason;
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation};
use crate::wire::roster::{ExitCause, Roster, Status};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the roster is waited for before the ladder begins without it.
const ROSTER_PATIENCE: Duration = Duration::from_millis(500);

/// How long the end of a killed process is waited for when no processor is free for it, and how often it
/// is looked whether that is the reason.
const BUSY: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks in a row that find it waiting for the kernel: then it may never end.
const STUCK_LOOKS: u32 = 5;

/// Who wants somebody gone, and why.
#[derive(Clone)]
pub(crate) struct StopPlan {
    /// The team's mail.
    pub(crate) bus: Arc<Bus>,
    /// Time.
    pub(crate) clock: Rc<dyn Clock>,
    /// In whose name the request is sent.
    pub(crate) by: AgentName,
    /// Told to the member.
    pub(crate) reason: String,
    /// What stands in `last_exit`.
    pub(crate) cause: ExitCause,
    /// How much patience there is; may grow shorter meanwhile.
    pub(crate) urgency: watch::Receiver<Urgency>,
}

/// How a member went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopOutcome {
    /// Who.
    pub(crate) name: AgentName,
    /// How.
    pub(crate) how: How,
    /// It was asked and said no: why.
    pub(crate) refusal: Option<String>,
}

impl StopOutcome {
    /// In words.
    pub(crate) fn words(&self) -> String {
        let Self { how, refusal, .. } = self;
        match (how, refusal) {
            (how, None) => how.words().into(),
            (How::Agreed, Some(why)) => {
                format!("refused at first ({why}), then ended by itself before its deadline")
            }
            (how, Some(why)) => format!("refused ({why}) and {}", how.words()),
        }
    }
}

/// The rung that did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It was not running.
    WasGone,
    /// It went when asked.
    Agreed,
    /// It went on SIGTERM.
    Terminated,
    /// It had to be killed.
    Killed,
    /// It is still there: stuck in the kernel, or not ours to signal.
    Stuck,
}

impl How {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::WasGone => "was not running",
            Self::Agreed => "ended when asked",
            Self::Terminated => "ended on SIGTERM",
            Self::Killed => "had to be killed",
            Self::Stuck => "is still there: it does not even react to SIGKILL",
        }
    }
}

/// Who is being taken down.
#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a AgentName,
    record: &'a LifeRecord,
    process: Option<&'a Pidfd>,
}

/// Takes several members down at once; bounded by one ladder.
pub(crate) async fn take_down_all(takedown: &StopPlan, names: Vec<AgentName>) -> Vec<StopOutcome> {
    let tasks: Vec<_> = names
        .into_iter()
        .map(|name| {
            let takedown = takedown.clone();
            tokio::task::spawn_local(async move { takedown.take_down(name).await })
        })
        .collect();
    let mut departures = Vec::new();
    for task in tasks {
        departures.extend(task.await.ok());
    }
    departures
}

impl StopPlan {
    /// Takes one member down; answers when it is gone or given up on.
    pub(crate) async fn take_down(&self, name: AgentName) -> StopOutcome {
        let dir = self.bus.dir();
        let Ok(Liveness::Alive(Some(record))) = liveness::probe(dir, &name) else {
            self.call_off(&name).await;
            return StopOutcome { name, how: How::WasGone, refusal: None };
        };
        let process = open_checked(&record);
        let status = self.say_stopping(&name, &record).await;
        hit("stop.written");
        let now = self.clock.monotonic();
        let mut urgency = self.urgency.clone();
        let hurry = *urgency.borrow_and_update();
        let is_lead = name.is_lead();
        let waits = if is_lead {
            LadderDeadlines::for_lead()
        } else {
            LadderDeadlines::for_member(status, hurry)
        };
        let mut ladder = ShutdownLadder::begin(waits, hurry, now);
        let request_id = new_id(&self.by);
        let target = Target { name: &name, record: &record, process: process.as_ref() };
        self.perform(&ladder, &target, &request_id);
        let waited_for = name.clone();
        let gone = wait_gone(dir, &waited_for, process.as_ref());
        tokio::pin!(gone);
        let how = loop {
            let next = tokio::select! {
                () = &mut gone => break went(ladder.rung()),
                () = tokio::time::sleep_until(ladder.until().into()) => {
                    ladder.tick(self.clock.monotonic())
                }
                Ok(()) = urgency.changed() => {
                    let urgency = *urgency.borrow_and_update();
                    ladder.hurry(urgency, self.clock.monotonic())
                }
            };
            match next {
                Some(Rung::GiveUp) => break outlast(process.as_ref(), gone.as_mut()).await,
                Some(_) => self.perform(&ladder, &target, &request_id),
                None => {}
            }
        };
        // Commands live in sessions of their own: what carries this life's run_id goes with it.
        let run_id = record.run_id.clone();
        match tokio::task::spawn_blocking(move || process_tree::end_run(&run_id)).await {
            Ok(stuck) if stuck.is_empty() => {}
            stuck => tracing::warn!(%name, ?stuck, "commands that could not be ended"),
        }
        if how != How::Stuck {
            let (name, incarnation) = (name.clone(), record.incarnation.clone());
            let (cause, now) = (self.cause, self.clock.now());
            let gone = Gone { name, incarnation, how, cause, now };
            hit("stop.gone");
            self.write(move |roster| roster_updates::gone(roster, &gone)).await;
            hit("stop.noted");
        }
        let refusal = self.refusal(&name, &request_id);
        let departure = StopOutcome { name, how, refusal };
        tracing::info!(name = %departure.name, how = departure.words(), "member taken down");
        departure
    }

    /// What the member said against its end, as it stands in its own transcript: whoever takes the
    /// answer in, and when, makes no difference.
    fn refusal(&self, name: &AgentName, request_id: &str) -> Option<String> {
        let refusal = transcript::find_call(self.bus.dir(), name, |tool, input| {
            refusal_reason(tool, input, request_id)
        });
        refusal.inspect_err(|why| tracing::warn!(%name, %why, "its answer is unknown")).ok()?
    }

    /// Who is not running yet, or is about to be started again, stays ended.
    async fn call_off(&self, name: &AgentName) {
        let (name, cause, now) = (name.clone(), self.cause, self.clock.now());
        let change =
            move |roster: &mut Roster| roster_updates::called_off(roster, &name, cause, now);
        let write = self.write(change);
        let _in_time = tokio::time::timeout(ROSTER_PATIENCE, write).await;
    }

    fn perform(&self, ladder: &ShutdownLadder, target: &Target<'_>, request_id: &str) {
        let Target { name, record, process } = *target;
        let rung = ladder.rung();
        let within = ladder.until().saturating_duration_since(self.clock.monotonic());
        tracing::info!(%name, ?rung, pid = record.pid, "shutdown ladder");
        let done = match rung {
            Rung::Ask if !name.is_lead() => {
                hit("stop.ask");
                self.ask(name, record, within, request_id.to_owned());
                Ok(())
            }
            Rung::Ask | Rung::Terminate => {
                hit("stop.terminate");
                process.map_or(Ok(()), terminate).map_err(|why| why.to_string())
            }
            Rung::Kill => {
                hit("stop.kill");
                process.map_or(Ok(()), kill).map_err(|why| why.to_string())
            }
            Rung::GiveUp => Ok(()),
        };
        if let Err(why) = done {
            tracing::warn!(%name, ?rung, why, "a rung of the ladder failed");
        }
    }

    /// Writes the request beside the event loop: the inbox may be locked by the very process that is
    /// to be taken down, and the ladder must go on.
    fn ask(&self, name: &AgentName, record: &LifeRecord, within: Duration, request_id: String) {
        let (bus, by, to) = (Arc::clone(&self.bus), self.by.clone(), name.clone());
        let body = Body::ShutdownRequest {
            reason: Some(self.reason.clone()),
            deadline: Some(self.clock.now() + within),
        };
        let incarnation = record.incarnation.clone();
        tokio::task::spawn_blocking(move || {
            let correlation = Correlation { request_id, incarnation };
            if let Err(why) = bus.control(&by, &to, body, correlation) {
                tracing::warn!(%to, %why, "the shutdown request could not be sent");
            }
            hit("stop.asked");
        });
    }

    /// The status the member had; it is `stopping` from now on, as soon as the roster can be written.
    async fn say_stopping(&self, name: &AgentName, record: &LifeRecord) -> Status {
        let (name, incarnation) = (name.clone(), record.incarnation.clone());
        let now = self.clock.now();
        let write =
            self.write(move |roster| roster_updates::stopping(roster, &name, &incarnation, now));
        match tokio::time::timeout(ROSTER_PATIENCE, write).await {
            Ok(Some(status)) => status,
            Ok(None) | Err(_) => Status::Working,
        }
    }

    /// Changes the roster beside the event loop, for the same reason as [`StopPlan::ask`].
    async fn write<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Roster) -> R + Send + 'static,
    ) -> Option<R> {
        let change = |roster: &mut crate::wire::WithUnknownFields<Roster>| change(roster);
        let (dir, fsync) = (self.bus.dir(), self.bus.fsync());
        let written = crate::store::asynchronous::update_roster(dir, fsync, change).await;
        written.inspect_err(|why| tracing::warn!(%why, "the roster could not be written")).ok()
    }
}

/// Ends a life that no longer moves: it is not asked, and the roster is left alone, so that mail to it
/// waits for its next life.
pub(super) async fn end_by_force(dir: &TeamDir, name: &AgentName, life: &str) -> How {
    let record = match liveness::probe(dir, name) {
        Ok(Liveness::Alive(Some(record))) if record.incarnation == life => record,
        Ok(_) | Err(_) => return How::WasGone,
    };
    let Some(process) = open_checked(&record) else { return How::WasGone };
    let waits = LadderDeadlines::for_member(Status::Working, Urgency::Polite);
    for (rung, wait) in [(Rung::Terminate, waits.terminate), (Rung::Kill, waits.kill)] {
        let sent = if rung == Rung::Kill { kill(&process) } else { terminate(&process) };
        if let Err(why) = sent {
            tracing::warn!(%name, ?rung, %why, "it could not be signalled");
        }
        if tokio::time::timeout(wait, wait_gone(dir, name, Some(&process))).await.is_ok() {
            return went(rung);
        }
    }
    outlast(Some(&process), pin!(wait_gone(dir, name, Some(&process)))).await
}

/// There is nothing stronger than SIGKILL; but on a busy machine a process dies only when it is its turn.
async fn outlast(process: Option<&Pidfd>, mut gone: Pin<&mut impl Future<Output = ()>>) -> How {
    let mut stuck = 0;
    for _ in 0..BUSY.as_millis() / LOOK_EVERY.as_millis() {
        let is_in_kernel = process.is_none_or(|process| identity::is_in_kernel(process.pid()));
        stuck = if is_in_kernel { stuck + 1 } else { 0 };
        if stuck > STUCK_LOOKS {
            break;
        }
        if tokio::time::timeout(LOOK_EVERY, gone.as_mut()).await.is_ok() {
            return How::Killed;
        }
    }
    How::Stuck
}

/// SIGTERM; a stopped process is woken to receive it.
fn terminate(process: &Pidfd) -> io::Result<()> {
    process.send_signal(Signal::SIGTERM)?;
    process.send_signal(Signal::SIGCONT)
}

/// SIGKILL to the process, and to its group if it leads one: a member started by hand may be part of its
/// shell's.
pub(super) fn kill(process: &Pidfd) -> io::Result<()> {
    process.signal_group(Signal::SIGKILL)
}

fn went(rung: Rung) -> How {
    match rung {
        Rung::Ask => How::Agreed,
        Rung::Terminate => How::Terminated,
        Rung::Kill => How::Killed,
        Rung::GiveUp => How::Stuck,
    }
}

/// The process of a life record, if it is still the one that wrote it.
fn open_checked(record: &LifeRecord) -> Option<Pidfd> {
    // WithUnknownFields first, compare then: a descriptor refers to one process for ever, a number does not.
    let process = Pidfd::open(record.pid).ok()?;
    record.process().is_running().then_some(process)
}

/// LadderDeadlines until a process has ended.
pub(super) async fn ended(process: &Pidfd) -> io::Result<()> {
    ReadableFd::to_read(process)?.wait().await
}

/// LadderDeadlines until the process has ended and its life lock is free.
async fn wait_gone(dir: &TeamDir, name: &AgentName, process: Option<&Pidfd>) {
    if let Some(process) = process
        && let Err(why) = ended(process).await
    {
        tracing::warn!(%name, %why, "the end of the process cannot be waited for");
    }
    // The lock goes with the process; where its end could not be watched, the lock is asked.
    while matches!(liveness::probe(dir, name), Ok(Liveness::Alive(_))) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
