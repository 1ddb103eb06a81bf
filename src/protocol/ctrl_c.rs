//! The meaning of Ctrl-C at the lead's prompt (SPEC 6): interrupt the turn, stop the team, kill it. A second press
//! does not stop the team, because it often means only that the first was not seen to act.

use crate::wire::limits::SECOND_CTRL_C;
use std::time::Instant;

/// The state of the lead when Ctrl-C is pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadActivity {
    Idle,
    Turn,
    Stopping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CtrlCAction {
    /// Interrupt the turn; the team continues.
    InterruptTurn,
    /// Say that another press stops the team.
    Warn,
    /// Stop the team, beginning with a request.
    StopTeam,
    /// Continue the stop with SIGTERM.
    StopNow,
    /// Continue the stop with SIGKILL.
    StopAtOnce,
    SayHowToQuit,
}

#[derive(Debug, Default)]
pub(crate) struct CtrlC {
    /// The time of the last press that counts, and whether it was the warning.
    interrupted_at: Option<Instant>,
    has_warned: bool,
    was_pressed_while_stopping: bool,
}

impl CtrlC {
    pub(crate) fn pressed(&mut self, doing: LeadActivity, now: Instant) -> CtrlCAction {
        let again = self.interrupted_at.is_some_and(|at| now.duration_since(at) < SECOND_CTRL_C);
        match doing {
            LeadActivity::Stopping if self.was_pressed_while_stopping => CtrlCAction::StopAtOnce,
            LeadActivity::Stopping => {
                self.was_pressed_while_stopping = true;
                CtrlCAction::StopNow
            }
            LeadActivity::Idle | LeadActivity::Turn if again && self.has_warned => {
                CtrlCAction::StopTeam
            }
            LeadActivity::Idle | LeadActivity::Turn if again => {
                (self.interrupted_at, self.has_warned) = (Some(now), true);
                CtrlCAction::Warn
            }
            LeadActivity::Turn => {
                (self.interrupted_at, self.has_warned) = (Some(now), false);
                CtrlCAction::InterruptTurn
            }
            LeadActivity::Idle => CtrlCAction::SayHowToQuit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CtrlCAction::{InterruptTurn, SayHowToQuit, StopAtOnce, StopNow, StopTeam, Warn};
    use LeadActivity::{Idle, Stopping, Turn};
    use std::time::Duration;

    #[test]
    fn each_press_escalates_by_one_step_and_one_after_two_seconds_is_the_first() {
        let escalating = [
            (Idle, 0, SayHowToQuit),
            (Turn, 100, InterruptTurn),
            (Idle, 1900, Warn),
            (Idle, 1950, StopTeam),
            (Stopping, 2000, StopNow),
            (Stopping, 2100, StopAtOnce),
            (Stopping, 2200, StopAtOnce),
        ];
        // Mail has started another turn before the last press.
        let slow = [
            (Turn, 0, InterruptTurn),
            (Idle, 3000, SayHowToQuit),
            (Turn, 3000, InterruptTurn),
            (Turn, 4000, Warn),
            (Turn, 6100, InterruptTurn),
            (Idle, 6200, Warn),
            (Turn, 8100, StopTeam),
        ];
        for presses in [&escalating[..], &slow] {
            let (start, mut keys) = (Instant::now(), CtrlC::default());
            for (doing, millis, action) in presses {
                let now = start + Duration::from_millis(*millis);
                assert_eq!(keys.pressed(*doing, now), *action, "at {millis} ms");
            }
        }
    }
}
