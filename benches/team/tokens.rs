//! P16: the tokens of the prompts that a full lead and a teammate send, and the part of a long turn that a cache can hold.
//!
//! Real agents send them to an endpoint in this process. The tokens are estimated from the bytes of system prompt and
//! tools.

use crate::figure::{Figure, Size, Target};
use crate::support::prompt_cost::{LongTurns, cached_bytes, prompt_tokens};

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let turns = LongTurns::of_calls(size.calls);
    let mut figures = Vec::new();
    let mut add = |measure: String, unit, ours, target| {
        figures.push(Figure { id: "P16", measure, unit, ours, reference: None, target });
    };
    let agents = [("a full lead", &turns.lead, 3_500.0), ("a teammate", &turns.teammate, 2_500.0)];
    for (who, requests, most) in agents {
        let tokens = |at: usize| count(prompt_tokens(&turns.team, requests.get(at).unwrap()));
        let last = requests.len();
        let target = Target::AtMost(most);
        add(format!("{who}: system prompt and tools, first call"), "tokens", tokens(0), target);
        add(format!("the same, call {last}"), "tokens", tokens(last - 1), target);
        let (read, all) = cached_bytes(requests);
        let share = count(read) / count(all) * 100.0;
        let measure = format!("the same: what a cache can hold of {last} calls");
        add(measure, "%", share, Target::AtLeast(90.0));
    }
    figures
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
fn count(bytes: usize) -> f64 {
    bytes as f64
}
