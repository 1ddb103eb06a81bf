//! A slow timer that fires in all processes at the same instants: the first wake fills the processor's
//! caches for the others, which makes each wake several times cheaper.

use super::async_fd::ReadableFd;
use nix::errno::Errno;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;
use std::io;
use std::time::Duration;

/// A timer that fires when the machine's monotonic clock is at a multiple of a period.
#[derive(Debug)]
pub(crate) struct AlignedInterval {
    timer: TimerFd,
    ready: ReadableFd,
}

impl AlignedInterval {
    /// Creates a timer that first fires at the next multiple of `period`.
    pub(crate) fn every(period: Duration) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let now = Duration::from(clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?);
        let into_period = now.as_nanos() % period.as_nanos().max(1);
        let next = now + period.saturating_sub(Duration::from_nanos_u128(into_period));
        let expiration = Expiration::IntervalDelayed(next.into(), period.into());
        timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(Self { ready: ReadableFd::to_read(&timer)?, timer })
    }

    /// Waits for the next multiple. Several missed ones count as one.
    pub(crate) async fn next(&self) -> io::Result<()> {
        loop {
            // Readiness is cleared before the read, which saves a second read.
            self.ready.woken().await?;
            match self.timer.wait() {
                Err(Errno::EAGAIN) => {}
                other => return Ok(other?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn ticks_of_two_intervals_coincide() {
        let period = Duration::from_millis(50);
        let first = AlignedInterval::every(period).unwrap();
        first.next().await.unwrap();
        let (start, second) = (Instant::now(), AlignedInterval::every(period).unwrap());
        for _ in 0..3 {
            let both = async { tokio::try_join!(first.next(), second.next()) };
            tokio::time::timeout(Duration::from_secs(10), both).await.unwrap().unwrap();
        }
        assert!(start.elapsed() > 2 * period);
    }
}
