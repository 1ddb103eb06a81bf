//! R18: the history checker itself, on injected faults.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::history::{InjectedFault, injected_faults};

pub(crate) fn measure(_: Run) -> Vec<Finding> {
    let injected = injected_faults();
    let missed: Vec<String> = injected
        .iter()
        .filter(|injected| !injected.is_right)
        .map(|InjectedFault { name, found, .. }| format!("{name}: {found:?}"))
        .collect();
    let found = injected.len() - missed.len();
    let verdict = Verdict::of(missed.is_empty() && injected.len() == 8);
    let result = format!("{found}/{} {}", injected.len(), missed.join(", "));
    vec![Finding::new(
        "faults injected in a history that the checker finds",
        "8/8",
        result.trim(),
        verdict,
    )]
}
