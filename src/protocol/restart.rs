//! Decides whether and when an ended teammate is restarted (RELIABILITY 4): backoff with jitter, and limits.
//!
//! The end of the process, its lifetime and the current time are arguments.

use crate::wire::limits;
use crate::wire::restart::RestartPolicy;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Exit codes after which a restart is useless: success, wrong usage, a failed turn, no model or refused
/// credentials, a name in use, a budget, and ends by a signal.
const FINAL: [i32; 8] = [0, 2, 3, 4, 5, 7, 130, 143];

/// Exit codes of orderly ends by a signal.
const SIGNALLED: [i32; 2] = [130, 143];

/// The numbers of SIGHUP, SIGINT and SIGTERM.
const ASKING: [i32; 3] = [1, 2, 15];

/// A limit on restarts within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intensity {
    /// Number of restarts.
    pub(crate) times: usize,
    /// Time that they are counted over.
    pub(crate) within: Duration,
}

/// Pauses and limits of restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartLimits {
    /// First pause. Each further one is twice as long.
    pub(crate) first: Duration,
    /// Longest pause.
    pub(crate) longest: Duration,
    /// Lifetime after which the next pause is the first one again.
    pub(crate) healthy: Duration,
    /// Limit for one teammate.
    pub(crate) member: Intensity,
    /// Limit for all teammates together.
    pub(crate) team: Intensity,
}

impl Default for RestartLimits {
    fn default() -> Self {
        Self {
            first: limits::RESTART_FIRST_PAUSE,
            longest: limits::RESTART_LONGEST_PAUSE,
            healthy: limits::RESTART_HEALTHY,
            member: Intensity {
                times: limits::RESTART_MEMBER_TIMES,
                within: limits::RESTART_MEMBER_WINDOW,
            },
            team: Intensity {
                times: limits::RESTART_TEAM_TIMES,
                within: limits::RESTART_TEAM_WINDOW,
            },
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It hung and was killed.
    Hung,
    /// It could not be started.
    NotStarted,
}

/// The decision about an ended process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// No restart: the policy does not cover such an end.
    Leave,
    /// Restart after this pause.
    After(Duration),
    /// No restart, because a limit is reached.
    GiveUp(RestartLimit),
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartLimit {
    /// The teammate's own.
    Member(Intensity),
    /// The team's.
    Team(Intensity),
}

impl fmt::Display for RestartLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, Intensity { times, within }) = match self {
            Self::Member(intensity) => ("it was", intensity),
            Self::Team(intensity) => ("members of the team were", intensity),
        };
        write!(out, "{subject} started again {times} times within {} s", within.as_secs())
    }
}

/// Decides about restarts; counts those of the whole team.
#[derive(Debug)]
pub(crate) struct RestartTracker {
    policy: RestartPolicy,
    limits: RestartLimits,
    random: u64,
    team: VecDeque<Instant>,
}

/// The restarts that one teammate has had since it was last spawned.
#[derive(Debug, Default)]
pub(crate) struct RestartHistory {
    /// Restarts since it was last healthy.
    step: u32,
    recent: VecDeque<Instant>,
}

impl RestartTracker {
    /// Creates a tracker. The jitter depends only on `seed`.
    pub(crate) fn new(policy: RestartPolicy, limits: RestartLimits, seed: u64) -> Self {
        Self { policy, limits, random: seed.max(1), team: VecDeque::new() }
    }

    /// Decides about a teammate whose process has ended after `lived`.
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
        let RestartLimits { first, longest, healthy, member, team } = self.limits;
        if lived >= healthy {
            history.step = 0;
        }
        if is_used_up(&mut history.recent, member, now) {
            return RestartDecision::GiveUp(RestartLimit::Member(member));
        }
        if is_used_up(&mut self.team, team, now) {
            return RestartDecision::GiveUp(RestartLimit::Team(team));
        }
        history.recent.push_back(now);
        self.team.push_back(now);
        let factor = 1_u32.checked_shl(history.step).unwrap_or(u32::MAX);
        history.step = history.step.saturating_add(1);
        let pause = first.saturating_mul(factor).min(longest);
        RestartDecision::After(pause.mul_f64(0.8 + 0.4 * self.next()))
    }

    fn covers(&self, end: ProcessEnd) -> bool {
        let asked = match end {
            ProcessEnd::Code(code) => SIGNALLED.contains(&code),
            ProcessEnd::Signal(signal) => ASKING.contains(&signal),
            ProcessEnd::Hung | ProcessEnd::NotStarted => false,
        };
        match self.policy {
            RestartPolicy::Never => false,
            RestartPolicy::OnCrash => {
                !asked && !matches!(end, ProcessEnd::Code(code) if FINAL.contains(&code))
            }
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

fn is_used_up(recent: &mut VecDeque<Instant>, most: Intensity, now: Instant) -> bool {
    while recent.front().is_some_and(|at| now.saturating_duration_since(*at) >= most.within) {
        recent.pop_front();
    }
    recent.len() >= most.times
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn restarts(policy: RestartPolicy) -> RestartTracker {
        RestartTracker::new(policy, RestartLimits::default(), 7)
    }

    fn pause(verdict: RestartDecision) -> f64 {
        match verdict {
            RestartDecision::After(pause) => pause.as_secs_f64(),
            other @ (RestartDecision::Leave | RestartDecision::GiveUp(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_policy_decides_which_ends_lead_to_a_restart() {
        let now = Instant::now();
        let is_restarted = |policy, end| {
            restarts(policy).ended(&mut RestartHistory::default(), end, SECOND, now)
                != RestartDecision::Leave
        };
        for code in [0, 2, 3, 4, 5, 7] {
            assert!(!is_restarted(RestartPolicy::OnCrash, ProcessEnd::Code(code)), "{code}");
            assert!(is_restarted(RestartPolicy::Always, ProcessEnd::Code(code)), "{code}");
        }
        for end in [
            ProcessEnd::Code(130),
            ProcessEnd::Code(143),
            ProcessEnd::Signal(15),
            ProcessEnd::Signal(2),
        ] {
            assert!(!is_restarted(RestartPolicy::Always, end), "{end:?} was asked for");
        }
        let crashes = [
            ProcessEnd::Code(1),
            ProcessEnd::Code(101),
            ProcessEnd::Signal(9),
            ProcessEnd::Hung,
            ProcessEnd::NotStarted,
        ];
        for end in crashes {
            assert!(!is_restarted(RestartPolicy::Never, end), "{end:?}");
            assert!(is_restarted(RestartPolicy::OnCrash, end), "{end:?}");
            assert!(is_restarted(RestartPolicy::Always, end), "{end:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_a_healthy_time() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let (mut now, mut history) = (Instant::now(), RestartHistory::default());
        let mut crash = |lived: u64| {
            now += Duration::from_secs(lived + 61);
            let lived = Duration::from_secs(lived);
            pause(restarts.ended(&mut history, ProcessEnd::Signal(9), lived, now))
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
    fn a_teammate_over_its_limit_is_given_up_alone() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let (start, mut history) = (Instant::now(), RestartHistory::default());
        for second in 0..5 {
            let now = start + second * SECOND;
            let verdict = restarts.ended(&mut history, ProcessEnd::Code(1), SECOND, now);
            assert!(matches!(verdict, RestartDecision::After(_)), "{second}: {verdict:?}");
        }
        let soon = start + 59 * SECOND;
        let limit = match restarts.ended(&mut history, ProcessEnd::Code(1), SECOND, soon) {
            RestartDecision::GiveUp(limit) => limit,
            other @ (RestartDecision::Leave | RestartDecision::After(_)) => panic!("{other:?}"),
        };
        assert_eq!(limit.to_string(), "it was started again 5 times within 60 s");
        let mut other = RestartHistory::default();
        assert!(pause(restarts.ended(&mut other, ProcessEnd::Code(1), SECOND, soon)) <= 1.2);
    }

    #[test]
    fn a_team_over_its_limit_is_given_up() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let now = Instant::now();
        let mut ended =
            |now| restarts.ended(&mut RestartHistory::default(), ProcessEnd::Code(1), SECOND, now);
        for n in 0..20 {
            let verdict = ended(now);
            assert!(matches!(verdict, RestartDecision::After(_)), "{n}");
        }
        let verdict = ended(now + 299 * SECOND);
        assert!(matches!(verdict, RestartDecision::GiveUp(RestartLimit::Team(_))), "{verdict:?}");
        let verdict = ended(now + 300 * SECOND);
        assert!(matches!(verdict, RestartDecision::After(_)), "{verdict:?}");
    }

    proptest! {
        #[test]
        fn no_window_holds_more_restarts_than_the_limit(
            gaps in proptest::collection::vec(0_u64..30, 1..60), seed: u64,
        ) {
            let limits = RestartLimits::default();
            let mut restarts = RestartTracker::new(RestartPolicy::Always, limits, seed);
            let (mut now, mut history) = (Instant::now(), RestartHistory::default());
            let mut granted: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_secs(gap);
                let decision = restarts.ended(&mut history, ProcessEnd::Code(1), SECOND, now);
                if let RestartDecision::After(pause) = decision {
                    prop_assert!(pause <= limits.longest.mul_f64(1.2));
                    granted.push(now);
                }
                let recent = granted.iter().filter(|at| now - **at < limits.member.within);
                prop_assert!(recent.count() <= limits.member.times);
            }
        }
    }
}
