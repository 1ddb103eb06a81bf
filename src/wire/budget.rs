//! Limits on the usage of a team, as numbers. `protocol::budget` judges whether they are kept.

use super::money::Money;
use super::roster::UsageCount;
use serde::{Deserialize, Serialize};

/// The maximum usage; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// The number of input and output tokens, cached or not.
    pub tokens: Option<u64>,
    /// The amount of money, in dollars.
    pub money: Option<Money>,
    /// The number of turns.
    pub turns: Option<u64>,
    /// The number of minutes in which a process of the member runs.
    pub minutes: Option<u64>,
}

/// The limits of a team and of each of its teammates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budgets {
    /// The limits of all members together, the lead included.
    pub team: Budget,
    /// The limits of each teammate.
    pub member: Budget,
}

/// The limit of one run of a lead, all members together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBudget {
    /// The number of input and output tokens.
    pub tokens: u64,
    /// The number of tokens that the team used before the run began.
    pub before: u64,
}

impl RunBudget {
    /// Returns the limit as a budget.
    pub fn budget(&self) -> Budget {
        Budget { tokens: Some(self.tokens), ..Budget::default() }
    }

    /// Returns the part of the team's total usage that belongs to the run.
    #[must_use]
    pub fn part_of(&self, all: &UsageCount) -> UsageCount {
        let tokens = all.tokens().saturating_sub(self.before);
        UsageCount { input_tokens: tokens, ..UsageCount::default() }
    }
}

impl Budgets {
    /// Whether money is limited, so that the price of each model must be known.
    pub fn limit_money(&self) -> bool {
        self.team.money.or(self.member.money).is_some()
    }
}
