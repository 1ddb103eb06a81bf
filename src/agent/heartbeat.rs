//! The heartbeat of an agent: a busy event loop writes one at regular intervals, an idle one writes none.

use crate::os::{Clock, uptime};
use crate::store::TeamDir;
use crate::store::heartbeat::{Heartbeat, HeartbeatFile};
use crate::wire::{AgentName, WallTime};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(crate) struct HeartbeatWriter {
    incarnation: String,
    clock: Rc<dyn Clock>,
    every: Duration,
    /// The time at which the next heartbeat is due; `None` while the agent is idle.
    pub(super) due: Option<Instant>,
    file: Option<HeartbeatFile>,
    count: u64,
    /// The last state that was written, and the time since which it holds (wall clock).
    doing: (String, WallTime),
}

impl HeartbeatWriter {
    /// Creates a writer of one heartbeat per `every`.
    pub(crate) fn new(
        dir: &TeamDir,
        name: &AgentName,
        incarnation: String,
        clock: Rc<dyn Clock>,
        every: Duration,
    ) -> Self {
        let doing = (String::new(), WallTime::default());
        // The file is created now, so that heartbeats can be written even when the disk is full later.
        let file = HeartbeatFile::open(dir, name);
        let file = file
            .inspect_err(|why| tracing::warn!(%why, "the heartbeat file cannot be opened"))
            .ok();
        Self { incarnation, clock, every, due: None, file, count: 0, doing }
    }

    /// Schedules a heartbeat after an event, unless one is scheduled.
    pub(super) fn note_event(&mut self) {
        let next = self.clock.monotonic() + self.every;
        self.due.get_or_insert(next);
    }

    /// Writes a heartbeat with this state; `limit` is the time limit of the running tool, in seconds.
    pub(super) fn write(&mut self, state: &str, limit: Option<u64>) {
        self.due = Some(self.clock.monotonic() + self.every);
        if self.doing.0 != state {
            self.doing = (state.to_owned(), self.clock.now());
        }
        self.count += 1;
        let heartbeat = Heartbeat {
            incarnation: self.incarnation.clone(),
            count: self.count,
            state: state.to_owned(),
            since: self.doing.1,
            limit,
            uptime: uptime(),
        };
        if let Some(file) = &self.file
            && let Err(why) = file.write(&heartbeat).or_else(|_| file.touch(self.clock.now()))
        {
            tracing::warn!(%why, "a heartbeat could not be written");
        }
    }
}

/// Waits until `due`, or forever if it is `None`.
pub(crate) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
