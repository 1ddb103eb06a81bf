//! Budgets as settings say them and a lead hands them on: numbers only. Who keeps within them is judged
//! by `protocol::budget`.

use super::money::Money;
use super::roster::UsageCount;
use serde::{Deserialize, Serialize};

/// The most that may be used; nothing where nobody has set a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Tokens, in and out, cached or not.
    pub tokens: Option<u64>,
    /// Money, where prices are set.
    pub money: Option<Money>,
    /// Turns.
    pub turns: Option<u64>,
    /// Minutes in which a process ran.
    pub minutes: Option<u64>,
}

/// What a team and each of its teammates may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// All together, the lead included.
    pub team: Budget,
    /// Each teammate.
    pub member: Budget,
}

/// What one run may use, all members together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBudget {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Tokens that were used before it began.
    pub before: u64,
}

impl RunBudget {
    /// As one among others.
    pub fn budget(&self) -> Budget {
        Budget { tokens: Some(self.tokens), ..Budget::default() }
    }

    /// What of all that was ever used belongs to the run.
    #[must_use]
    pub fn part_of(&self, all: &UsageCount) -> UsageCount {
        let tokens = all.tokens().saturating_sub(self.before);
        UsageCount { input_tokens: tokens, ..UsageCount::default() }
    }
}

impl Budgets {
    /// Whether money is limited, so that it must be known what a model costs.
    pub fn limit_money(&self) -> bool {
        self.team.money.or(self.member.money).is_some()
    }
}
