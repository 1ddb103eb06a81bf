//! Limits on what a team may use: numbers only. `protocol::budget` judges whether they are kept.

use super::money::Money;
use super::roster::UsageCount;
use serde::{Deserialize, Serialize};

/// The most that may be used; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Tokens, in and out, cached or not.
    pub tokens: Option<u64>,
    /// Money, in the currency of the prices.
    pub money: Option<Money>,
    /// Turns.
    pub turns: Option<u64>,
    /// Minutes in which a process of the member runs.
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
    /// Tokens, in and out.
    pub tokens: u64,
    /// Tokens that the team used before the run began.
    pub before: u64,
}

impl RunBudget {
    /// The limit as a budget.
    pub fn budget(&self) -> Budget {
        Budget { tokens: Some(self.tokens), ..Budget::default() }
    }

    /// The part of the team's total use that belongs to the run.
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
