//! R18: the history checker itself, on injected faults.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::history::{InjectedFault, injected_faults};

pub(crate) fn measure(_: Run) -> Vec<Finding> {
    let planted = injected_faults();
    let missed: Vec<String> = planted
        .iter()
        .filter(|planted| !planted.is_right)
        .map(|InjectedFault { name, found, .. }| format!("{name}: {found:?}"))
        .collect();
    let found = planted.len() - missed.len();
    let verdict = Verdict::of(missed.is_empty() && planted.len() == 8);
    let result = format!("{found}/{} {}", planted.len(), missed.join(", "));
    vec![Finding::new(
        "faults planted in a history that the checker finds",
        "8/8",
        result.trim(),
        verdict,
    )]
}
