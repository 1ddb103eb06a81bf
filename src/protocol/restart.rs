//! Whether and when a teammate that has ended is started again (RELIABILITY 4): back-off with jitter,
//! and limits after which it is given up.
//!
//! Knows no processes: how one ended, how long it had lived and the time are arguments.

use crate::wire::limits;
use crate::wire::restart::RestartPolicy;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// Exit codes that say "do not try this again": done, wrong use, a failed turn, no model or refused
/// credentials, a name in use, a budget, and ends that a signal asked for.
const FINAL: [i32; 8] = [0, 2, 3, 4, 5, 7, 130, 143];

/// The exit codes of an end that a signal asked for.
const SIGNALLED: [i32; 2] = [130, 143];

/// The numbers of SIGHUP, SIGINT and SIGTERM.
const ASKING: [i32; 3] = [1, 2, 15];

/// How often, and within which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intensity {
    /// So many restarts.
    pub(crate) times: usize,
    /// In so much time.
    pub(crate) within: Duration,
}

/// The figures of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartLimits {
    /// The first pause; each further one is twice as long.
    pub(crate) first: Duration,
    /// The longest pause.
    pub(crate) longest: Duration,
    /// After this much life, the next pause is the first one again.
    pub(crate) healthy: Duration,
    /// What one teammate may need.
    pub(crate) member: Intensity,
    /// What all of them together may need.
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
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It no longer moved, and was ended for that.
    Hung,
    /// It could not even be started.
    NotStarted,
}

/// What to do about an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// It stays ended: the policy does not cover such an end.
    Leave,
    /// Start it again after this pause.
    After(Duration),
    /// It would be started again, but for a limit.
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
        let (who, Intensity { times, within }) = match self {
            Self::Member(intensity) => ("it was", intensity),
            Self::Team(intensity) => ("members of the team were", intensity),
        };
        write!(out, "{who} started again {times} times within {} s", within.as_secs())
    }
}

/// Remembers what was started again, and decides.
#[derive(Debug)]
pub(crate) struct RestartTracker {
    policy: RestartPolicy,
    limits: RestartLimits,
    random: u64,
    members: BTreeMap<String, History>,
    team: VecDeque<Instant>,
}

#[derive(Debug, Default)]
struct History {
    /// RestartTracker since it was last healthy.
    step: u32,
    recent: VecDeque<Instant>,
}

impl RestartTracker {
    /// Nothing has been started again yet. The jitter follows from `seed` alone.
    pub(crate) fn new(policy: RestartPolicy, limits: RestartLimits, seed: u64) -> Self {
        let (members, team) = (BTreeMap::new(), VecDeque::new());
        Self { policy, limits, random: seed.max(1), members, team }
    }

    /// A teammate has ended after having lived for `lived`.
    pub(crate) fn ended(
        &mut self,
        name: &str,
        end: ProcessEnd,
        lived: Duration,
        now: Instant,
    ) -> RestartDecision {
        if !self.covers(end) {
            return RestartDecision::Leave;
        }
        let RestartLimits { first, longest, healthy, member, team } = self.limits;
        let history = self.members.entry(name.to_owned()).or_default();
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

    /// A person or the lead's model starts it anew: what was before does not count any more.
    pub(crate) fn forget(&mut self, name: &str) {
        self.members.remove(name);
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

    /// The next of a sequence of numbers from 0 to 1 (xorshift).
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
    fn the_policy_decides_which_ends_are_mended() {
        let now = Instant::now();
        let is_mended =
            |policy, end| restarts(policy).ended("a", end, SECOND, now) != RestartDecision::Leave;
        for code in [0, 2, 3, 4, 5, 7] {
            assert!(!is_mended(RestartPolicy::OnCrash, ProcessEnd::Code(code)), "{code}");
            assert!(is_mended(RestartPolicy::Always, ProcessEnd::Code(code)), "{code}");
        }
        for end in [
            ProcessEnd::Code(130),
            ProcessEnd::Code(143),
            ProcessEnd::Signal(15),
            ProcessEnd::Signal(2),
        ] {
            assert!(!is_mended(RestartPolicy::Always, end), "{end:?} was asked for");
        }
        let crashes = [
            ProcessEnd::Code(1),
            ProcessEnd::Code(101),
            ProcessEnd::Signal(9),
            ProcessEnd::Hung,
            ProcessEnd::NotStarted,
        ];
        for end in crashes {
            assert!(!is_mended(RestartPolicy::Never, end), "{end:?}");
            assert!(is_mended(RestartPolicy::OnCrash, end), "{end:?}");
            assert!(is_mended(RestartPolicy::Always, end), "{end:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_health() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let mut now = Instant::now();
        let mut crash = |lived: u64| {
            now += Duration::from_secs(lived + 61);
            pause(restarts.ended("a", ProcessEnd::Signal(9), Duration::from_secs(lived), now))
        };
        for wanted in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let got = crash(10);
            assert!(got >= wanted * 0.8 && got <= wanted * 1.2, "{got} for {wanted}");
        }
        assert!(crash(299) >= 48.0, "not healthy yet");
        assert!(crash(300) <= 1.2, "it had been well for five minutes");
        assert!(crash(10) >= 1.6);
    }

    #[test]
    fn who_crashes_all_the_time_is_given_up_alone() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let start = Instant::now();
        for second in 0..5 {
            let verdict = restarts.ended("a", ProcessEnd::Code(1), SECOND, start + second * SECOND);
            assert!(matches!(verdict, RestartDecision::After(_)), "{second}: {verdict:?}");
        }
        let soon = start + 59 * SECOND;
        let limit = match restarts.ended("a", ProcessEnd::Code(1), SECOND, soon) {
            RestartDecision::GiveUp(limit) => limit,
            other @ (RestartDecision::Leave | RestartDecision::After(_)) => panic!("{other:?}"),
        };
        assert_eq!(limit.to_string(), "it was started again 5 times within 60 s");
        assert!(matches!(
            restarts.ended("b", ProcessEnd::Code(1), SECOND, soon),
            RestartDecision::After(_)
        ));
        restarts.forget("a");
        assert!(pause(restarts.ended("a", ProcessEnd::Code(1), SECOND, soon)) <= 1.2);
    }

    #[test]
    fn a_team_that_crashes_all_the_time_is_given_up() {
        let mut restarts = restarts(RestartPolicy::OnCrash);
        let now = Instant::now();
        for n in 0..20 {
            let verdict = restarts.ended(&format!("m{n}"), ProcessEnd::Code(1), SECOND, now);
            assert!(matches!(verdict, RestartDecision::After(_)), "{n}");
        }
        let verdict = restarts.ended("m20", ProcessEnd::Code(1), SECOND, now + 299 * SECOND);
        assert!(matches!(verdict, RestartDecision::GiveUp(RestartLimit::Team(_))), "{verdict:?}");
        let verdict = restarts.ended("m20", ProcessEnd::Code(1), SECOND, now + 300 * SECOND);
        assert!(matches!(verdict, RestartDecision::After(_)), "{verdict:?}");
    }

    proptest! {
        #[test]
        fn no_window_holds_more_restarts_than_the_limit(
            gaps in proptest::collection::vec(0_u64..30, 1..60), seed: u64,
        ) {
            let limits = RestartLimits::default();
            let mut restarts = RestartTracker::new(RestartPolicy::Always, limits, seed);
            let mut now = Instant::now();
            let mut granted: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_secs(gap);
                if let RestartDecision::After(pause) = restarts.ended("a", ProcessEnd::Code(1), SECOND, now) {
                    prop_assert!(pause <= limits.longest.mul_f64(1.2));
                    granted.push(now);
                }
                let recent = granted.iter().filter(|at| now - **at < limits.member.within);
                prop_assert!(recent.count() <= limits.member.times);
            }
        }
    }
}
