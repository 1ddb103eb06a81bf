//! Budgets as settings say them and a lead hands them on: numbers only. Who keeps within them is judged
//! by `protocol::budget`.

use super::money::Money;
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

impl Budgets {
    /// Whether money is limited, so that it must be known what a model costs.
    pub fn limit_money(&self) -> bool {
        self.team.money.or(self.member.money).is_some()
    }
}
