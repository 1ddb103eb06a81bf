//! The values that follow from the settings of a team.

use super::table::Rules;
use crate::wire::budget::{Budget, Budgets};
use crate::wire::chat::Thinking;
use crate::wire::limits;
use std::time::Duration;

/// The shortest and the longest time between two heartbeats of a busy agent.
const HEARTBEAT_INTERVALS: [Duration; 2] = [Duration::from_millis(100), limits::HEARTBEAT_PERIOD];

/// The number of heartbeats in the time after which an agent counts as hung.
const HEARTBEATS_UNTIL_HUNG: u32 = 12;

impl Rules {
    /// Returns the thinking that requests ask for.
    pub(crate) fn thinking(&self) -> Thinking {
        Thinking { effort: self.effort, budget_tokens: self.thinking_tokens }
    }

    pub(crate) fn budgets(&self) -> Budgets {
        Budgets {
            team: Budget {
                tokens: self.budget_team_tokens,
                money: self.budget_team_money,
                turns: self.budget_team_turns,
                minutes: self.budget_team_minutes,
            },
            member: Budget {
                tokens: self.budget_member_tokens,
                money: self.budget_member_money,
                turns: self.budget_member_turns,
                minutes: self.budget_member_minutes,
            },
        }
    }

    /// Returns the idle time after which an agent of another vendor is ended; `None` for never.
    pub(crate) fn agent_sleeps_after(&self) -> Option<Duration> {
        let time = Duration::from_secs(self.agents_sleep_after);
        (!time.is_zero()).then_some(time)
    }

    /// Returns the time between two heartbeats of a busy agent: short enough that a few may be missed.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        let [shortest, longest] = HEARTBEAT_INTERVALS;
        let interval = Duration::from_secs(self.hung_after) / HEARTBEATS_UNTIL_HUNG;
        if self.hung_after == 0 { longest } else { interval.clamp(shortest, longest) }
    }
}
