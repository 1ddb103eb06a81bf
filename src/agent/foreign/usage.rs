//! The tokens of prompts. Agents report them in different ways: for the prompt, for all prompts of the session, in an
//! extension, or with each call of the model. The larger of two reports counts.

use crate::wire::chat::Usage;
use crate::wire::money::Money;
use serde_json::Value;

#[derive(Debug)]
pub(super) struct UsageMeter {
    /// Whether a report is the sum of the session.
    is_of_session: bool,
    /// The report before, of an agent that sums the session up.
    before: Usage,
    /// The tokens of the calls of the model in this prompt.
    calls: Usage,
    /// The cost of the session in the last report.
    cost: Money,
    /// The cost that was reported and not taken yet.
    new_cost: Money,
}

impl UsageMeter {
    /// Creates a meter. Copilot CLI reports the sum of the session.
    pub(super) fn new(is_copilot: bool) -> Self {
        Self {
            is_of_session: is_copilot,
            before: Usage::default(),
            calls: Usage::default(),
            cost: Money::default(),
            new_cost: Money::default(),
        }
    }

    /// Notes the tokens of one call of the model.
    pub(super) fn note_call(&mut self, usage: &Value) {
        self.calls += read(usage);
    }

    /// Notes the cost of the session up to now. Some agents begin anew with each process, so less than before is a new sum.
    pub(super) fn note_cost(&mut self, cost: Money) {
        let before = std::mem::replace(&mut self.cost, cost);
        let more = if cost < before { cost } else { cost.minus(before) };
        self.new_cost = self.new_cost.plus(more);
    }

    /// Returns the cost since the last call of this.
    pub(super) fn take_cost(&mut self) -> Option<Money> {
        Some(std::mem::take(&mut self.new_cost)).filter(|cost| *cost != Money::default())
    }

    /// Begins the count of a new session.
    pub(super) fn begin_session(&mut self) {
        self.before = Usage::default();
        self.cost = Money::default();
    }

    /// Ends a prompt with this answer, and returns its tokens.
    pub(super) fn end_prompt(&mut self, answer: &Value) -> Usage {
        let told = answer.get("usage").or_else(|| answer.pointer("/_meta/quota/token_count"));
        let told = told.map(read).unwrap_or_default();
        let told = if self.is_of_session {
            let before = std::mem::replace(&mut self.before, told);
            since(told, before)
        } else {
            told
        };
        let calls = std::mem::take(&mut self.calls);
        if calls.total() > told.total() { calls } else { told }
    }
}

fn since(now: Usage, before: Usage) -> Usage {
    Usage {
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cache_read_input_tokens: now
            .cache_read_input_tokens
            .saturating_sub(before.cache_read_input_tokens),
        cache_creation_input_tokens: now
            .cache_creation_input_tokens
            .saturating_sub(before.cache_creation_input_tokens),
    }
}

fn read(usage: &Value) -> Usage {
    let count = |names: &[&str]| {
        names.iter().find_map(|name| usage.get(*name)?.as_u64()).unwrap_or_default()
    };
    Usage {
        input_tokens: count(&["inputTokens", "input_tokens"]),
        output_tokens: count(&["outputTokens", "output_tokens"]),
        cache_read_input_tokens: count(&["cachedReadTokens"]),
        cache_creation_input_tokens: count(&["cachedWriteTokens"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_way_of_a_report_is_the_sum_of_the_prompt() {
        let tokens =
            |input: u64, output: u64| json!({ "inputTokens": input, "outputTokens": output });
        let of_prompt = |input, output| json!({ "usage": tokens(input, output) });
        let counts = |usage: Usage| (usage.input_tokens, usage.output_tokens);
        let mut plain = UsageMeter::new(false);
        assert_eq!(counts(plain.end_prompt(&of_prompt(10, 2))), (10, 2));
        assert_eq!(counts(plain.end_prompt(&of_prompt(10, 2))), (10, 2));
        assert_eq!(counts(plain.end_prompt(&json!({ "usage": "odd" }))), (0, 0));
        let mut session = UsageMeter::new(true);
        assert_eq!(counts(session.end_prompt(&of_prompt(10, 2))), (10, 2));
        assert_eq!(counts(session.end_prompt(&of_prompt(15, 3))), (5, 1));
        session.begin_session();
        assert_eq!(counts(session.end_prompt(&of_prompt(4, 1))), (4, 1));
        let quota = json!({ "_meta": { "quota": { "token_count": { "input_tokens": 7, "output_tokens": 1 } } } });
        assert_eq!(counts(UsageMeter::new(false).end_prompt(&quota)), (7, 1));
        let mut calls = UsageMeter::new(false);
        calls.note_call(&tokens(5, 1));
        calls.note_call(&tokens(6, 1));
        assert_eq!(counts(calls.end_prompt(&of_prompt(6, 1))), (11, 2));
        assert_eq!(counts(calls.end_prompt(&json!({}))), (0, 0));
    }

    #[test]
    fn the_cost_of_a_session_is_counted_once() {
        let mut meter = UsageMeter::new(false);
        let cents = |cents: f64| Money::try_from(cents / 100.0).unwrap();
        assert_eq!(meter.take_cost(), None);
        meter.note_cost(cents(1.0));
        meter.note_cost(cents(3.0));
        assert_eq!((meter.take_cost(), meter.take_cost()), (Some(cents(3.0)), None));
        meter.note_cost(cents(4.0));
        meter.note_cost(cents(2.0));
        assert_eq!(meter.take_cost(), Some(cents(3.0)), "a new process begins anew");
        meter.begin_session();
        meter.note_cost(cents(2.0));
        assert_eq!(meter.take_cost(), Some(cents(2.0)));
    }
}
