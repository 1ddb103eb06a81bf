//! Whether somebody keeps within a budget: what is used and what may be used are arguments, the verdict
//! is a value with the words for it.

use crate::wire::budget::Budget;
use crate::wire::money::Money;
use crate::wire::roster::UsageCount;
use std::fmt;

/// Hundredths of a budget at which a warning is due.
const NEARLY: u128 = 80;

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The team's, from the settings.
    Team,
    /// One teammate's, from the settings.
    Member,
    /// One run's, from the command line.
    Run,
}

/// How things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is enough left, or no limit.
    Fine,
    /// Not much is left.
    Nearly(Limit),
    /// Nothing is left.
    Spent(Limit),
}

/// A limit and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    whose: Whose,
    of: Of,
}

/// Used, and the most that may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Tokens(u64, u64),
    Money(Money, Money),
    Turns(u64, u64),
    Minutes(u64, u64),
}

impl Limit {
    fn hundredths(&self) -> u128 {
        let share = |used: u64, most: u64| {
            (u128::from(used) * 100).checked_div(u128::from(most)).unwrap_or(u128::MAX)
        };
        match self.of {
            Of::Tokens(used, most) | Of::Turns(used, most) => share(used, most),
            // Seconds are what is counted.
            Of::Minutes(seconds, most) => share(seconds, most.saturating_mul(60)),
            Of::Money(used, most) => share(used.billionths(), most.billionths()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Of::Tokens(used, most) => write!(out, "{used} of {most} tokens"),
            Of::Money(used, most) => write!(out, "{used} of {most} in money"),
            Of::Turns(used, most) => write!(out, "{used} of {most} turns"),
            Of::Minutes(seconds, most) => write!(out, "{} of {most} minutes", seconds / 60),
        }?;
        out.write_str(match self.whose {
            Whose::Team => " of the budget of the team",
            Whose::Member => " of the budget of this teammate",
            Whose::Run => " of the budget of this run",
        })
    }
}

/// Judges what is used; the limit that is nearest counts.
pub(crate) fn judge(whose: Whose, budget: &Budget, used: &UsageCount) -> Verdict {
    let nearest = limits(whose, budget, used).max_by_key(Limit::hundredths);
    match nearest {
        Some(limit) if limit.hundredths() >= 100 => Verdict::Spent(limit),
        Some(limit) if limit.hundredths() >= NEARLY => Verdict::Nearly(limit),
        Some(_) | None => Verdict::Fine,
    }
}

/// Every limit of a budget with how much of it is used.
pub(crate) fn limits(
    whose: Whose,
    budget: &Budget,
    used: &UsageCount,
) -> impl Iterator<Item = Limit> + use<> {
    let used = *used;
    let all = [
        budget.tokens.map(|most| Of::Tokens(used.tokens(), most)),
        budget.money.map(|most| Of::Money(used.cost.unwrap_or_default(), most)),
        budget.turns.map(|most| Of::Turns(used.turns, most)),
        budget.minutes.map(|most| Of::Minutes(used.seconds, most)),
    ];
    all.into_iter().flatten().map(move |of| Limit { whose, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(budget: Budget, used: UsageCount) -> String {
        match judge(Whose::Team, &budget, &used) {
            Verdict::Fine => "fine".into(),
            Verdict::Nearly(limit) => format!("nearly {limit}"),
            Verdict::Spent(limit) => format!("spent {limit}"),
        }
    }

    #[test]
    fn a_warning_at_80_and_the_end_at_100() {
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
    fn the_nearest_limit_counts() {
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
