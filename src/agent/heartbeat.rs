//! Signs of life: while an agent is busy, its loop says so at regular times. An idle one writes nothing.

use crate::os::{Clock, uptime};
use crate::store::TeamDir;
use crate::store::heartbeat::{Heartbeat, HeartbeatFile};
use crate::wire::{AgentName, WallTime};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Beats for one life of an agent.
pub(crate) struct HeartbeatWriter {
    incarnation: String,
    clock: Rc<dyn Clock>,
    every: Duration,
    due: Option<Instant>,
    file: Option<HeartbeatFile>,
    count: u64,
    /// What it was last said to do, and since when.
    doing: (String, WallTime),
}

impl HeartbeatWriter {
    /// Beats every so often.
    pub(crate) fn new(
        dir: &TeamDir,
        name: &AgentName,
        incarnation: String,
        clock: Rc<dyn Clock>,
        every: Duration,
    ) -> Self {
        let doing = (String::new(), WallTime::default());
        // Made now: a disk that is full later still takes signs of life.
        let file = HeartbeatFile::open(dir, name);
        let file = file.inspect_err(|why| tracing::warn!(%why, "no sign of life")).ok();
        Self { incarnation, clock, every, due: None, file, count: 0, doing }
    }

    /// Something happened: the next beat will come.
    pub(super) fn stir(&mut self) {
        let next = self.clock.monotonic() + self.every;
        self.due.get_or_insert(next);
    }

    /// When the next beat is due; never while nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Falls quiet until something happens.
    pub(super) fn rest(&mut self) {
        self.due = None;
    }

    /// Says what is done now.
    pub(super) fn beat(&mut self, state: &str, limit: Option<u64>) {
        self.due = Some(self.clock.monotonic() + self.every);
        if self.doing.0 != state {
            self.doing = (state.to_owned(), self.clock.now());
        }
        self.count += 1;
        let beat = Heartbeat {
            incarnation: self.incarnation.clone(),
            count: self.count,
            state: state.to_owned(),
            since: self.doing.1,
            limit,
            uptime: uptime(),
        };
        if let Some(file) = &self.file
            && let Err(why) = file.write(&beat).or_else(|_| file.touch(self.clock.now()))
        {
            tracing::warn!(%why, "a sign of life could not be written");
        }
    }
}
