//! What Ctrl-C means at the lead's prompt (SPEC 6): the turn, then the team, then at once.

use std::time::{Duration, Instant};

/// How soon a second Ctrl-C must follow to mean the team.
const AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// What the lead is doing when Ctrl-C comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing.
    Idle,
    /// A turn.
    Turn,
    /// The team is being stopped.
    Stopping,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// End the turn, keep the team.
    InterruptTurn,
    /// Stop the team, politely.
    StopTeam,
    /// Skip the polite rung.
    StopNow,
    /// Kill.
    StopAtOnce,
    /// Say how to quit.
    SayHowToQuit,
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct CtrlC {
    interrupted_at: Option<Instant>,
    while_stopping: u32,
}

impl CtrlC {
    /// Ctrl-C was pressed (or SIGINT came).
    pub(crate) fn pressed(&mut self, doing: Doing, now: Instant) -> Verdict {
        let again = self.interrupted_at.is_some_and(|at| now.duration_since(at) < AGAIN_WITHIN);
        match doing {
            Doing::Stopping => {
                self.while_stopping += 1;
                if self.while_stopping == 1 { Verdict::StopNow } else { Verdict::StopAtOnce }
            }
            Doing::Idle | Doing::Turn if again => Verdict::StopTeam,
            Doing::Turn => {
                self.interrupted_at = Some(now);
                Verdict::InterruptTurn
            }
            Doing::Idle => Verdict::SayHowToQuit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_press_goes_one_step_further() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut keys = CtrlC::default();
        assert_eq!(keys.pressed(Doing::Idle, at(0)), Verdict::SayHowToQuit);
        assert_eq!(keys.pressed(Doing::Turn, at(100)), Verdict::InterruptTurn);
        assert_eq!(keys.pressed(Doing::Idle, at(1900)), Verdict::StopTeam);
        assert_eq!(keys.pressed(Doing::Stopping, at(2000)), Verdict::StopNow);
        assert_eq!(keys.pressed(Doing::Stopping, at(2100)), Verdict::StopAtOnce);
    }

    #[test]
    fn after_two_seconds_it_is_a_first_press_again() {
        let start = Instant::now();
        let mut keys = CtrlC::default();
        keys.pressed(Doing::Turn, start);
        let later = start + Duration::from_secs(3);
        assert_eq!(keys.pressed(Doing::Idle, later), Verdict::SayHowToQuit);
        assert_eq!(keys.pressed(Doing::Turn, later), Verdict::InterruptTurn);
        let soon = later + Duration::from_secs(1);
        assert_eq!(keys.pressed(Doing::Turn, soon), Verdict::StopTeam, "a turn began by mail");
    }
}
