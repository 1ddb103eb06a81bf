//! Budget checks: usage and limits are arguments, and the verdict is a value that describes itself.

use crate::wire::budget::Budget;
use crate::wire::money::Money;
use crate::wire::roster::UsageCount;
use std::fmt;

/// Percentage of a budget at which a warning is due.
const NEARLY: u128 = 80;

/// The owner of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitOwner {
    /// The team; set in the settings.
    Team,
    /// One teammate; set in the settings.
    Member,
    /// One run of the lead; set on the command line.
    Run,
}

/// How much of a budget is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetVerdict {
    /// Enough, or there is no limit.
    Fine,
    /// At most a fifth.
    Nearly(BudgetLimit),
    /// Nothing.
    Spent(BudgetLimit),
}

/// A limit and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetLimit {
    whose: LimitOwner,
    of: LimitedQuantity,
}

/// A limited quantity: used amount and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedQuantity {
    Tokens(u64, u64),
    Money(Money, Money),
    Turns(u64, u64),
    /// Seconds used, and the limit in minutes.
    Minutes(u64, u64),
}

impl BudgetLimit {
    fn percentage(&self) -> u128 {
        let share = |used: u64, most: u64| {
            (u128::from(used) * 100).checked_div(u128::from(most)).unwrap_or(u128::MAX)
        };
        match self.of {
            LimitedQuantity::Tokens(used, most) | LimitedQuantity::Turns(used, most) => {
                share(used, most)
            }
            LimitedQuantity::Minutes(seconds, most) => share(seconds, most.saturating_mul(60)),
            LimitedQuantity::Money(used, most) => share(used.billionths(), most.billionths()),
        }
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            LimitedQuantity::Tokens(used, most) => write!(out, "{used} of {most} tokens"),
            LimitedQuantity::Money(used, most) => write!(out, "{used} of {most} in money"),
            LimitedQuantity::Turns(used, most) => write!(out, "{used} of {most} turns"),
            LimitedQuantity::Minutes(seconds, most) => {
                write!(out, "{} of {most} minutes", seconds / 60)
            }
        }?;
        out.write_str(match self.whose {
            LimitOwner::Team => " of the budget of the team",
            LimitOwner::Member => " of the budget of this teammate",
            LimitOwner::Run => " of the budget of this run",
        })
    }
}

/// Judges the usage by the limit that is nearest to its end.
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
        match judge(LimitOwner::Team, &budget, &used) {
            BudgetVerdict::Fine => "fine".into(),
            BudgetVerdict::Nearly(limit) => format!("nearly {limit}"),
            BudgetVerdict::Spent(limit) => format!("spent {limit}"),
        }
    }

    #[test]
    fn a_budget_warns_at_80_percent_and_ends_at_100() {
        let most = |tokens| Budget { tokens: Some(tokens), ..Budget::default() };
        let used = |input_tokens, output_tokens| UsageCount {
            input_tokens,
            output_tokens,
            ..UsageCount::default()
        };
        assert_eq!(verdict(Budget::default(), used(u64::MAX, 9)), "fine");
        assert_eq!(verdict(most(1000), used(700, 99)), "fine");
        assert_eq!(
            verdict(most(1000), used(700, 100)),
            "nearly 800 of 1000 tokens of the budget of the team"
        );
        assert_eq!(
            verdict(most(1000), used(999, 1)),
            "spent 1000 of 1000 tokens of the budget of the team"
        );
        assert!(verdict(most(u64::MAX), used(u64::MAX, 0)).starts_with("spent"));
    }

    #[test]
    fn the_nearest_limit_decides() {
        let money = |number: f64| Money::try_from(number).ok();
        let budget =
            Budget { tokens: Some(1000), money: money(2.0), turns: Some(10), minutes: Some(10) };
        let used = UsageCount {
            turns: 8,
            input_tokens: 100,
            seconds: 60,
            cost: money(1.7),
            ..UsageCount::default()
        };
        assert_eq!(verdict(budget, used), "nearly 1.70 of 2.00 in money of the budget of the team");
        let late = UsageCount { seconds: 600, ..used };
        assert_eq!(verdict(budget, late), "spent 10 of 10 minutes of the budget of the team");
        let done = UsageCount { turns: 10, cost: None, ..used };
        assert_eq!(verdict(budget, done), "spent 10 of 10 turns of the budget of the team");
        let priceless = UsageCount { cost: None, turns: 0, ..used };
        assert_eq!(verdict(budget, priceless), "fine");
    }
}
