//! A timer at a time of the wall clock. It expires when that clock has reached the time, however it came there: the
//! machine may sleep meanwhile, and a person may set the clock.

use super::async_fd::ReadableFd;
use crate::wire::WallTime;
use nix::errno::Errno;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::time::Duration;

/// A timer that expires once.
#[derive(Debug)]
pub(crate) struct WallTimer {
    timer: TimerFd,
    ready: ReadableFd,
}

impl WallTimer {
    /// Sets a timer. One in the past expires at once.
    pub(crate) fn at(time: WallTime) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
        // A time of zero would switch the timer off.
        let since_1970 = time.since(WallTime::default()).max(Duration::from_nanos(1));
        // An absolute time: the kernel compares it again when the clock is set, and when the machine wakes.
        timer.set(Expiration::OneShot(since_1970.into()), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(Self { ready: ReadableFd::to_read(&timer)?, timer })
    }

    /// Waits until the timer expires.
    pub(crate) async fn expired(&self) -> io::Result<()> {
        loop {
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
    use crate::os::{Clock, SystemClock};

    #[tokio::test]
    async fn a_timer_expires_when_its_time_has_come_and_at_once_in_the_past() {
        let now = SystemClock.now();
        let soon = now + Duration::from_millis(50);
        for time in [soon, now, WallTime::from_secs(-5.0), WallTime::default()] {
            let timer = WallTimer::at(time).unwrap();
            tokio::time::timeout(Duration::from_secs(10), timer.expired()).await.unwrap().unwrap();
            assert!(SystemClock.now() + Duration::from_millis(1) > time);
        }
        let later = WallTimer::at(now + Duration::from_secs(3600)).unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), later.expired()).await;
        assert!(early.is_err(), "a timer of the next hour has expired");
    }
}
