//! Amounts of money and prices of tokens, exact to a billionth.
//!
//! Every amount is in dollars, as the prices of the table and of the settings are.

use super::chat::Usage;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of billionths in a dollar.
const BILLION: f64 = 1e9;

/// The number of tokens that a price is for.
const MILLION: u128 = 1_000_000;

/// An amount of money. On disk and in settings it is a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Money {
    billionths: u64,
}

impl Money {
    /// Returns the sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { billionths: self.billionths.saturating_add(other.billionths) }
    }

    /// Returns the difference; 0 if `other` is larger.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { billionths: self.billionths.saturating_sub(other.billionths) }
    }

    /// Returns an amount of so many billionths.
    #[must_use]
    pub fn of_billionths(billionths: u64) -> Self {
        Self { billionths }
    }

    /// Returns the amount in billionths.
    pub fn billionths(self) -> u64 {
        self.billionths
    }

    /// Returns the cost of `tokens` in millionths of a billionth, if `self` is the price of a million tokens.
    fn times(self, tokens: u64) -> u128 {
        u128::from(self.billionths) * u128::from(tokens)
    }
}

impl TryFrom<f64> for Money {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if !number.is_finite() || number < 0.0 {
            return Err("an amount of money is a number that is not below 0");
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is finite and not negative, and a cast of a float saturates"
        )]
        Ok(Self { billionths: (number * BILLION).round() as u64 })
    }
}

impl From<Money> for f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "above nine million, rounding to a billionth does not matter"
    )]
    fn from(money: Money) -> Self {
        money.billionths as Self / BILLION
    }
}

impl fmt::Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = f64::from(*self);
        if amount < 1.0 { write!(out, "{amount:.4}") } else { write!(out, "{amount:.2}") }
    }
}

/// The price of a million tokens of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of input tokens.
    pub input: Money,
    /// The price of output tokens.
    pub output: Money,
    /// The price of tokens read from the provider's cache; `input` if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Money>,
    /// The price of tokens written to the provider's cache; `input` if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
}

impl Price {
    /// Returns the cost of a call, rounded up to a billionth.
    pub fn of(&self, usage: Usage) -> Money {
        let whole = self.input.times(usage.input_tokens)
            + self.output.times(usage.output_tokens)
            + self.cache_read.unwrap_or(self.input).times(usage.cache_read_input_tokens)
            + self.cache_write.unwrap_or(self.input).times(usage.cache_creation_input_tokens);
        Money { billionths: u64::try_from(whole.div_ceil(MILLION)).unwrap_or(u64::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(number: f64) -> Money {
        Money::try_from(number).unwrap()
    }

    #[test]
    fn an_amount_is_a_plain_number_that_is_not_negative() {
        let read = |text: &str| serde_json::from_str::<Money>(text);
        assert_eq!(serde_json::to_string(&money(0.1).plus(money(0.2))).unwrap(), "0.3");
        assert_eq!(read("3").unwrap(), money(3.0));
        for text in ["-1", "\"3\"", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(money(1.0).minus(money(2.0)), Money::default());
        assert_eq!([0.01234, 12.345].map(|it| money(it).to_string()), ["0.0123", "12.35"]);
    }

    #[test]
    fn cached_tokens_cost_their_own_price_or_that_of_input() {
        let mut usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
        (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) = (10_000, 2_000);
        let price = |text: &str| serde_json::from_str::<Price>(text).unwrap();
        let plain = price(r#"{"input":3,"output":15}"#);
        assert_eq!(plain.of(usage), money(0.0405));
        let cached = price(r#"{"input":3,"output":15,"cache_read":0.3,"cache_write":3.75}"#);
        assert_eq!(cached.of(usage), money(0.015));
        let endless = Usage { output_tokens: u64::MAX, ..usage };
        assert_eq!(plain.of(endless).billionths(), u64::MAX);
        assert_eq!(plain.of(Usage::default()), Money::default());
    }
}
