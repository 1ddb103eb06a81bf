//! Budget checks. Usage and limits are arguments, and the verdict is a value that can be displayed.

use crate::wire::budget::Budget;
use crate::wire::money::Money;
use crate::wire::roster::UsageCount;
use std::fmt;

/// The percentage of a budget at which a warning is due.
const NEARLY: u128 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitOwner {
    /// The team; set in the settings.
    Team,
    /// One teammate; set in the settings.
    Member,
    /// One run of the lead; set on the command line.
    Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetVerdict {
    /// Enough is left, or there is no limit.
    Fine,
    /// At most a fifth of the limit is left.
    Nearly(BudgetLimit),
    Spent(BudgetLimit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetLimit {
    whose: LimitOwner,
    of: LimitedQuantity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedQuantity {
    Tokens(u64, u64),
    Money(Money, Money),
    Turns(u64, u64),
    /// The used seconds, and the limit in minutes.
    Minutes(u64, u64),
}

impl BudgetLimit {
    fn percentage(&self) -> u128 {
        use LimitedQuantity::{Minutes, Money, Tokens, Turns};
        let (used, most) = match self.of {
            Tokens(used, most) | Turns(used, most) => (used, most),
            Minutes(seconds, most) => (seconds, most.saturating_mul(60)),
            Money(used, most) => (used.billionths(), most.billionths()),
        };
        (u128::from(used) * 100).checked_div(u128::from(most)).unwrap_or(u128::MAX)
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            LimitedQuantity::Tokens(used, most) => write!(out, "{used} of {most} tokens"),
            LimitedQuantity::Money(used, most) => write!(out, "{used} of {most} in money"),
            LimitedQuantity::Turns(used, most) => write!(out, "{used} of {most} turns"),
            LimitedQuantity::Minutes(used, most) => write!(out, "{} of {most} minutes", used / 60),
        }?;
        out.write_str(match self.whose {
            LimitOwner::Team => " of the team's budget",
            LimitOwner::Member => " of this teammate's budget",
            LimitOwner::Run => " of this run's budget",
        })
    }
}

pub(crate) fn judge(whose: LimitOwner, budget: &Budget, used: &UsageCount) -> BudgetVerdict {
    let nearest = limits(whose, budget, used).max_by_key(BudgetLimit::percentage);
    match nearest {
        Some(limit) if limit.percentage() >= 100 => BudgetVerdict::Spent(limit),
        Some(limit) if limit.percentage() >= NEARLY => BudgetVerdict::Nearly(limit),
        Some(_) | None => BudgetVerdict::Fine,
    }
}

/// Lists the limits of a budget with the amount used.
pub(crate) fn limits(
    whose: LimitOwner,
    budget: &Budget,
    used: &UsageCount,
) -> impl Iterator<Item = BudgetLimit> + use<> {
    let used = *used;
    let all = [
        budget.tokens.map(|most| LimitedQuantity::Tokens(used.tokens(), most)),
        budget.money.map(|most| LimitedQuantity::Money(used.cost.unwrap_or_default(), most)),
        budget.turns.map(|most| LimitedQuantity::Turns(used.turns, most)),
        budget.minutes.map(|most| LimitedQuantity::Minutes(used.seconds, most)),
    ];
    all.into_iter().flatten().map(move |of| BudgetLimit { whose, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(budget: Budget, used: UsageCount) -> String {
        let text = match judge(LimitOwner::Team, &budget, &used) {
            BudgetVerdict::Fine => return "fine".into(),
            BudgetVerdict::Nearly(limit) => format!("nearly {limit}"),
            BudgetVerdict::Spent(limit) => format!("spent {limit}"),
        };
        text.strip_suffix(" of the team's budget").unwrap().to_owned()
    }

    #[test]
    fn a_budget_warns_at_80_percent_and_ends_at_100_and_the_nearest_limit_decides() {
        let money = |number: f64| Money::try_from(number).ok();
        let none = Budget::default();
        let most = |tokens| Budget { tokens: Some(tokens), ..none };
        let four = Budget { money: money(2.0), turns: Some(10), minutes: Some(10), ..most(1000) };
        let all = u64::MAX;
        let spent_all = format!("spent {all} of {all} tokens");
        for (budget, (input_tokens, output_tokens), (turns, seconds), cost, wanted) in [
            (none, (all, 9), (0, 0), None, "fine"),
            (most(1000), (700, 99), (0, 0), None, "fine"),
            (most(1000), (700, 100), (0, 0), None, "nearly 800 of 1000 tokens"),
            (most(1000), (999, 1), (0, 0), None, "spent 1000 of 1000 tokens"),
            (most(all), (all, 0), (0, 0), None, spent_all.as_str()),
            (four, (100, 0), (8, 60), money(1.7), "nearly 1.70 of 2.00 in money"),
            (four, (100, 0), (8, 600), money(1.7), "spent 10 of 10 minutes"),
            (four, (100, 0), (10, 60), None, "spent 10 of 10 turns"),
            (four, (100, 0), (0, 60), None, "fine"),
        ] {
            let tokens = UsageCount { input_tokens, output_tokens, ..UsageCount::default() };
            assert_eq!(verdict(budget, UsageCount { turns, seconds, cost, ..tokens }), wanted);
        }
    }
}
