//! The shutdown ladder (RELIABILITY 4): each rung has a deadline and is taken only after the previous one failed.

use crate::wire::limits;
use crate::wire::roster::Status;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Begins with a request.
    Polite,
    /// Begins with SIGTERM (`--now`, a second Ctrl-C).
    Now,
    /// Begins with SIGKILL (a third Ctrl-C).
    AtOnce,
}

/// The rungs of the ladder, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rung {
    /// A `shutdown_request` is in the member's inbox. A lead gets SIGTERM, because no message can stop it.
    Ask,
    Terminate,
    /// The process group got SIGKILL.
    Kill,
    /// The process survives SIGKILL, because it is stuck in the kernel. It is reported, and the stop does not
    /// wait for it.
    GiveUp,
}

impl Rung {
    /// Returns the word for the rung in the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::GiveUp => "give up",
        }
    }
}

impl Urgency {
    fn first_rung(self) -> Rung {
        match self {
            Self::Polite => Rung::Ask,
            Self::Now => Rung::Terminate,
            Self::AtOnce => Rung::Kill,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LadderDeadlines {
    pub(crate) ask: Duration,
    pub(crate) terminate: Duration,
    pub(crate) kill: Duration,
}

impl LadderDeadlines {
    /// Returns the deadlines of the contract. An idle member needs less time to answer than a busy one.
    pub(crate) fn for_member(status: Status, urgency: Urgency) -> Self {
        let is_idle = status == Status::Idle;
        let ask = if is_idle { limits::STOP_ASK_IDLE } else { limits::STOP_ASK };
        let (terminate, kill) = (limits::STOP_NOW_TERMINATE, limits::STOP_NOW_KILL);
        match urgency {
            Urgency::Polite => Self { ask, ..Self::for_lead() },
            Urgency::Now | Urgency::AtOnce => Self { ask: Duration::ZERO, terminate, kill },
        }
    }

    /// Returns the deadlines for a lead, which stops its team and drains its mail at any urgency.
    pub(crate) fn for_lead() -> Self {
        Self { ask: limits::STOP_ASK, terminate: limits::STOP_TERMINATE, kill: limits::STOP_KILL }
    }

    /// Returns these deadlines, each changed by `change`.
    pub(crate) fn map(self, change: impl Fn(Duration) -> Duration) -> Self {
        let Self { ask, terminate, kill } = self;
        Self { ask: change(ask), terminate: change(terminate), kill: change(kill) }
    }

    fn of(&self, rung: Rung) -> Duration {
        match rung {
            Rung::Ask => self.ask,
            Rung::Terminate => self.terminate,
            Rung::Kill => self.kill,
            Rung::GiveUp => Duration::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShutdownLadder {
    rung: Rung,
    until: Instant,
    waits: LadderDeadlines,
}

impl ShutdownLadder {
    /// Begins on the first rung of `urgency`. The caller performs [`ShutdownLadder::rung`] at once.
    pub(crate) fn begin(waits: LadderDeadlines, urgency: Urgency, now: Instant) -> Self {
        let rung = urgency.first_rung();
        Self { rung, until: now + waits.of(rung), waits }
    }

    pub(crate) fn rung(&self) -> Rung {
        self.rung
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Advances if the deadline has passed. Returns the rung to perform now, if it is a new one.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Rung> {
        let next = match self.rung {
            _ if now < self.until => return None,
            Rung::Ask => Rung::Terminate,
            Rung::Terminate => Rung::Kill,
            Rung::Kill => Rung::GiveUp,
            Rung::GiveUp => return None,
        };
        Some(self.take(next, now))
    }

    /// Advances to the first rung of `urgency`, with these deadlines from then on, unless that rung is reached
    /// already. Returns the rung to perform now, if it is a new one.
    pub(crate) fn raise_urgency(
        &mut self,
        waits: LadderDeadlines,
        urgency: Urgency,
        now: Instant,
    ) -> Option<Rung> {
        let least = urgency.first_rung();
        if self.rung >= least {
            return None;
        }
        self.waits = waits;
        Some(self.take(least, now))
    }

    fn take(&mut self, next: Rung, now: Instant) -> Rung {
        (self.rung, self.until) = (next, now + self.waits.of(next));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists the time in milliseconds at which each rung is taken if the member never answers.
    fn walk(status: Status, urgency: Urgency) -> Vec<(u128, Rung)> {
        let start = Instant::now();
        let mut ladder =
            ShutdownLadder::begin(LadderDeadlines::for_member(status, urgency), urgency, start);
        let mut taken = vec![(0, ladder.rung())];
        while ladder.rung() != Rung::GiveUp {
            let now = ladder.until();
            let early = now.checked_sub(Duration::from_millis(1)).unwrap();
            assert_eq!(ladder.tick(early), None, "too early");
            let rung = ladder.tick(now).unwrap();
            taken.push(((now - start).as_millis(), rung));
        }
        assert_eq!(ladder.tick(start + Duration::from_secs(999)), None);
        taken
    }

    #[test]
    fn every_rung_has_its_deadline() {
        use Rung::{Ask, GiveUp, Kill, Terminate};
        let polite = [(0, Ask), (20_000, Terminate), (25_000, Kill), (27_000, GiveUp)];
        assert_eq!(walk(Status::Working, Urgency::Polite), polite);
        let idle = [(0, Ask), (3_000, Terminate), (8_000, Kill), (10_000, GiveUp)];
        assert_eq!(walk(Status::Idle, Urgency::Polite), idle);
        let now = [(0, Terminate), (1_000, Kill), (1_500, GiveUp)];
        assert_eq!(walk(Status::Working, Urgency::Now), now);
        assert_eq!(walk(Status::Idle, Urgency::AtOnce), [(0, Kill), (500, GiveUp)]);
    }

    #[test]
    fn hurry_skips_rungs_but_never_goes_back() {
        let now = Instant::now();
        let waits = |urgency| LadderDeadlines::for_member(Status::Working, urgency);
        let mut ladder = ShutdownLadder::begin(waits(Urgency::Polite), Urgency::Polite, now);
        let mut raise_urgency = |urgency| ladder.raise_urgency(waits(urgency), urgency, now);
        assert_eq!(raise_urgency(Urgency::Now), Some(Rung::Terminate));
        assert_eq!(raise_urgency(Urgency::Now), None, "already there");
        assert_eq!(raise_urgency(Urgency::AtOnce), Some(Rung::Kill));
        assert_eq!(raise_urgency(Urgency::Polite), None);
        assert_eq!(ladder.until(), now + Duration::from_millis(500));
    }
}
