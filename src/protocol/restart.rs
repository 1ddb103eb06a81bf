//! Decides whether and when a teammate whose process has ended is restarted (RELIABILITY 4): backoff with jitter,
//! and limits.

use crate::wire::RestartPolicy;
use crate::wire::limits::{
    RESTART_HEALTHY, RESTART_LONGEST_PAUSE, RESTARTS_OF_MEMBER, RESTARTS_OF_TEAM,
};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Exit codes after which a restart is useless: success, usage, failed turn, no model, name in use, budget.
const FINAL: [i32; 6] = [0, 2, 3, 4, 5, 7];

/// Exit codes of an orderly exit after a signal.
const SIGNALLED: [i32; 2] = [130, 143];

/// The numbers of the signals that ask a process to stop: SIGHUP, SIGINT and SIGTERM.
const ASKING: [i32; 3] = [1, 2, 15];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Code(i32),
    Signal(i32),
    Hung,
    NotStarted,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "exit {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
            Self::Hung => out.write_str("hung"),
            Self::NotStarted => out.write_str("not started"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// No restart: the policy does not cover such an end.
    Leave,
    After(Duration),
    /// No restart, because a limit is reached.
    GiveUp(RestartLimit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartLimit {
    Member,
    Team,
}

impl fmt::Display for RestartLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, (times, within)) = match self {
            Self::Member => ("it was", RESTARTS_OF_MEMBER),
            Self::Team => ("members of the team were", RESTARTS_OF_TEAM),
        };
        write!(out, "{subject} started again {times} times within {} s", within.as_secs())
    }
}

/// Decides on restarts, and counts those of the whole team.
#[derive(Debug)]
pub(crate) struct RestartTracker {
    policy: RestartPolicy,
    first_pause: Duration,
    random: u64,
    team: VecDeque<Instant>,
}

/// The restarts of one teammate since it was last spawned.
#[derive(Debug, Default)]
pub(crate) struct RestartHistory {
    /// The number of restarts since it was last healthy.
    step: u32,
    recent: VecDeque<Instant>,
}

impl RestartTracker {
    /// Creates a tracker. Each pause is twice as long as the one before; the jitter depends only on `seed`.
    pub(crate) fn new(policy: RestartPolicy, first_pause: Duration, seed: u64) -> Self {
        Self { policy, first_pause, random: seed.max(1), team: VecDeque::new() }
    }

    /// Decides on the restart of a teammate whose process ran for `lived` before it ended.
    pub(crate) fn ended(
        &mut self,
        history: &mut RestartHistory,
        end: ProcessEnd,
        lived: Duration,
        now: Instant,
    ) -> RestartDecision {
        if !self.covers(end) {
            return RestartDecision::Leave;
        }
        if lived >= RESTART_HEALTHY {
            history.step = 0;
        }
        if is_used_up(&mut history.recent, RESTARTS_OF_MEMBER, now) {
            return RestartDecision::GiveUp(RestartLimit::Member);
        }
        if is_used_up(&mut self.team, RESTARTS_OF_TEAM, now) {
            return RestartDecision::GiveUp(RestartLimit::Team);
        }
        history.recent.push_back(now);
        self.team.push_back(now);
        let factor = 1_u32.checked_shl(history.step).unwrap_or(u32::MAX);
        history.step = history.step.saturating_add(1);
        let pause = self.first_pause.saturating_mul(factor).min(RESTART_LONGEST_PAUSE);
        RestartDecision::After(pause.mul_f64(0.8 + 0.4 * self.next()))
    }

    fn covers(&self, end: ProcessEnd) -> bool {
        let (asked, is_final) = match end {
            ProcessEnd::Code(code) => (SIGNALLED.contains(&code), FINAL.contains(&code)),
            ProcessEnd::Signal(signal) => (ASKING.contains(&signal), false),
            ProcessEnd::Hung | ProcessEnd::NotStarted => (false, false),
        };
        match self.policy {
            RestartPolicy::Never => false,
            RestartPolicy::OnCrash => !asked && !is_final,
            RestartPolicy::Always => !asked,
        }
    }

    /// Returns the next pseudo-random number from 0 to 1 (xorshift).
    fn next(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from(u32::try_from(self.random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

fn is_used_up(
    recent: &mut VecDeque<Instant>,
    (times, within): (usize, Duration),
    now: Instant,
) -> bool {
    while recent.front().is_some_and(|at| now.saturating_duration_since(*at) >= within) {
        recent.pop_front();
    }
    recent.len() >= times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::RESTART_FIRST_PAUSE;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const CRASH: ProcessEnd = ProcessEnd::Code(1);

    fn restarts(policy: RestartPolicy) -> RestartTracker {
        RestartTracker::new(policy, RESTART_FIRST_PAUSE, 7)
    }

    /// Returns the seconds of a pause; `None` without a restart.
    fn pause(decision: RestartDecision) -> Option<f64> {
        let RestartDecision::After(pause) = decision else { return None };
        Some(pause.as_secs_f64())
    }

    #[test]
    fn the_policy_decides_which_ends_lead_to_a_restart() {
        let policies = [RestartPolicy::Never, RestartPolicy::OnCrash, RestartPolicy::Always];
        let check = |end, wanted: [bool; 3]| {
            let ended = |policy| {
                let history = &mut RestartHistory::default();
                restarts(policy).ended(history, end, SECOND, Instant::now())
            };
            assert_eq!(policies.map(|policy| pause(ended(policy)).is_some()), wanted, "{end:?}");
        };
        let [code, signal] = [ProcessEnd::Code, ProcessEnd::Signal];
        for last in FINAL {
            check(code(last), [false, false, true]);
        }
        for asked in [code(130), code(143), signal(15), signal(2), signal(1)] {
            check(asked, [false, false, false]);
        }
        for crash in [CRASH, code(101), signal(9), ProcessEnd::Hung, ProcessEnd::NotStarted] {
            check(crash, [false, true, true]);
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_a_healthy_time() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let (mut now, mut history) = (Instant::now(), RestartHistory::default());
        let mut crash = |lived: u64| {
            now += Duration::from_secs(lived + 61);
            let lived = Duration::from_secs(lived);
            pause(restarts.ended(&mut history, ProcessEnd::Signal(9), lived, now)).unwrap()
        };
        for wanted in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let got = crash(10);
            assert!(got >= wanted * 0.8 && got <= wanted * 1.2, "{got} for {wanted}");
        }
        assert!(crash(299) >= 48.0, "not healthy yet");
        assert!(crash(300) <= 1.2, "it had been healthy for five minutes");
        assert!(crash(10) >= 1.6);
    }

    #[test]
    fn a_teammate_over_its_limit_is_given_up_alone_and_every_one_with_the_team() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let (start, mut history) = (Instant::now(), RestartHistory::default());
        let mut ended_at = |history: &mut RestartHistory, seconds| {
            restarts.ended(history, CRASH, SECOND, start + seconds * SECOND)
        };
        for second in 0..5 {
            assert!(pause(ended_at(&mut history, second)).is_some(), "{second}");
        }
        let limit = RestartLimit::Member;
        assert_eq!(ended_at(&mut history, 59), RestartDecision::GiveUp(limit));
        assert_eq!(limit.to_string(), "it was started again 5 times within 60 s");
        let mut other_ended_at = |seconds| ended_at(&mut RestartHistory::default(), seconds);
        assert!(pause(other_ended_at(59)).unwrap() <= 1.2);
        for n in 6..20 {
            assert!(pause(other_ended_at(60)).is_some(), "{n}");
        }
        let team = RestartDecision::GiveUp(RestartLimit::Team);
        assert_eq!(other_ended_at(299), team, "20 restarts of all members");
        assert!(pause(other_ended_at(300)).is_some());
    }

    proptest! {
        #[test]
        fn no_window_holds_more_restarts_than_the_limit(
            gaps in proptest::collection::vec(0_u64..30, 1..60), seed: u64,
        ) {
            let (times, within) = RESTARTS_OF_MEMBER;
            let mut restarts = RestartTracker::new(RestartPolicy::Always, RESTART_FIRST_PAUSE, seed);
            let (mut now, mut history) = (Instant::now(), RestartHistory::default());
            let mut granted: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_secs(gap);
                if let Some(pause) = pause(restarts.ended(&mut history, CRASH, SECOND, now)) {
                    prop_assert!(pause <= RESTART_LONGEST_PAUSE.mul_f64(1.2).as_secs_f64());
                    granted.push(now);
                }
                prop_assert!(granted.iter().filter(|at| now - **at < within).count() <= times);
            }
        }
    }
}
