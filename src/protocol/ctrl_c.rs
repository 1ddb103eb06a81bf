//! What Ctrl-C means at the lead's prompt (SPEC 6): the turn, then the team, then at once.

use std::time::{Duration, Instant};

/// How soon a second Ctrl-C must follow to mean the team.
const AGAIN_WITHIN: Duration = crate::wire::limits::SECOND_CTRL_C;

/// What the lead is doing when Ctrl-C comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadActivity {
    /// Nothing.
    Idle,
    /// A turn.
    Turn,
    /// The team is being stopped.
    Stopping,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CtrlCAction {
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
    pub(crate) fn pressed(&mut self, doing: LeadActivity, now: Instant) -> CtrlCAction {
        let again = self.interrupted_at.is_some_and(|at| now.duration_since(at) < AGAIN_WITHIN);
        match doing {
            LeadActivity::Stopping => {
                self.while_stopping += 1;
                if self.while_stopping == 1 {
                    CtrlCAction::StopNow
                } else {
                    CtrlCAction::StopAtOnce
                }
            }
            LeadActivity::Idle | LeadActivity::Turn if again => CtrlCAction::StopTeam,
            LeadActivity::Turn => {
                self.interrupted_at = Some(now);
                CtrlCAction::InterruptTurn
            }
            LeadActivity::Idle => CtrlCAction::SayHowToQuit,
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
        assert_eq!(keys.pressed(LeadActivity::Idle, at(0)), CtrlCAction::SayHowToQuit);
        assert_eq!(keys.pressed(LeadActivity::Turn, at(100)), CtrlCAction::InterruptTurn);
        assert_eq!(keys.pressed(LeadActivity::Idle, at(1900)), CtrlCAction::StopTeam);
        assert_eq!(keys.pressed(LeadActivity::Stopping, at(2000)), CtrlCAction::StopNow);
        assert_eq!(keys.pressed(LeadActivity::Stopping, at(2100)), CtrlCAction::StopAtOnce);
    }

    #[test]
    fn after_two_seconds_it_is_a_first_press_again() {
        let start = Instant::now();
        let mut keys = CtrlC::default();
        keys.pressed(LeadActivity::Turn, start);
        let later = start + Duration::from_secs(3);
        assert_eq!(keys.pressed(LeadActivity::Idle, later), CtrlCAction::SayHowToQuit);
        assert_eq!(keys.pressed(LeadActivity::Turn, later), CtrlCAction::InterruptTurn);
        let soon = later + Duration::from_secs(1);
        assert_eq!(
            keys.pressed(LeadActivity::Turn, soon),
            CtrlCAction::StopTeam,
            "a turn began by mail"
        );
    }
}
