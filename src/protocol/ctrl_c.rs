//! The meaning of Ctrl-C at the lead's prompt (SPEC 6): interrupt the turn, stop the team, kill it.

use std::time::{Duration, Instant};

/// Time within which a second Ctrl-C stops the team.
const AGAIN_WITHIN: Duration = crate::wire::limits::SECOND_CTRL_C;

/// The state of the lead when Ctrl-C is pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadActivity {
    /// It waits for input.
    Idle,
    /// It is in a turn.
    Turn,
    /// It is stopping the team.
    Stopping,
}

/// The effect of a Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CtrlCAction {
    /// Interrupt the turn; the team goes on.
    InterruptTurn,
    /// Stop the team, beginning with a request.
    StopTeam,
    /// Go on to SIGTERM.
    StopNow,
    /// Go on to SIGKILL.
    StopAtOnce,
    /// Show how to quit.
    SayHowToQuit,
}

/// Counts the presses.
#[derive(Debug, Default)]
pub(crate) struct CtrlC {
    interrupted_at: Option<Instant>,
    while_stopping: u32,
}

impl CtrlC {
    /// Handles Ctrl-C or SIGINT.
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
    fn each_press_escalates_by_one_step() {
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
    fn a_press_after_two_seconds_counts_as_the_first() {
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
            "mail has started another turn"
        );
    }
}
