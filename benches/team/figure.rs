//! The figures: sizes, targets and output. This module measures nothing itself.

use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The sizes of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// The number of rounds; the median of the rounds is the figure.
    pub(crate) rounds: usize,
    /// The number of sends per round from one process.
    pub(crate) sends: usize,
    /// The number of sends with a sync per round from one process.
    pub(crate) synced: usize,
    /// The number of processes that send at the same time.
    pub(crate) writers: usize,
    /// The time for which the processes send, in seconds.
    pub(crate) seconds: f64,
    /// The number of notifications per round.
    pub(crate) wakes: usize,
    /// The number of unread messages.
    pub(crate) backlog: usize,
    /// The number of teammates in a team.
    pub(crate) members: usize,
    /// The number of teammates in a large team.
    pub(crate) many: usize,
    /// The number of teammates in a very large team.
    pub(crate) many_live: usize,
    /// The number of teammates in the largest team.
    pub(crate) most_live: usize,
    /// The number of messages in the conversations of a large team.
    pub(crate) messages: usize,
    /// The number of messages in the conversations of the largest team.
    pub(crate) most_messages: usize,
    /// The size of a long conversation in bytes.
    pub(crate) transcript: usize,
    /// The size of the longest conversation in bytes.
    pub(crate) longest_transcript: usize,
    /// The number of model calls of a long turn.
    pub(crate) calls: usize,
    /// The number of runs of a program per round.
    pub(crate) runs: usize,
}

pub(crate) const FULL: Size = Size {
    rounds: 5,
    sends: 5_000,
    synced: 300,
    writers: 32,
    seconds: 1.0,
    wakes: 300,
    backlog: 100_000,
    members: 50,
    many: 100,
    many_live: 200,
    most_live: 1_000,
    messages: 10_000,
    most_messages: 1_000_000,
    transcript: 100_000_000,
    longest_transcript: 1_000_000_000,
    calls: 50,
    runs: 60,
};

pub(crate) const TINY: Size = Size {
    rounds: 1,
    sends: 20,
    synced: 3,
    writers: 2,
    seconds: 0.05,
    wakes: 3,
    backlog: 10,
    members: 2,
    many: 3,
    many_live: 3,
    most_live: 4,
    messages: 30,
    most_messages: 40,
    transcript: 20_000,
    longest_transcript: 30_000,
    calls: 3,
    runs: 1,
};

impl Size {
    /// Scales a wait of the full run to this size.
    pub(crate) fn lasting(&self, full: Duration) -> Duration {
        full.mul_f64(self.seconds / FULL.seconds)
    }
}

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// At most this many times the reference.
    TimesAtMost(f64),
    /// At least this many times the reference.
    TimesAtLeast(f64),
    /// Below an absolute value.
    Below(f64),
    /// At most an absolute value.
    AtMost(f64),
    /// At least an absolute value.
    AtLeast(f64),
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// The number of the target.
    pub(crate) id: &'static str,
    /// The measure, and its reference.
    pub(crate) measure: String,
    /// The unit of both values.
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) reference: Option<f64>,
    pub(crate) target: Target,
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        self.reference.map(|reference| self.ours / reference)
    }

    fn is_met(&self) -> bool {
        let ratio = self.ratio().unwrap_or(f64::NAN);
        match self.target {
            Target::TimesAtMost(most) => ratio <= most,
            Target::TimesAtLeast(least) => ratio >= least,
            Target::Below(most) => self.ours < most,
            Target::AtMost(most) => self.ours <= most,
            Target::AtLeast(least) => self.ours >= least,
        }
    }

    fn target(&self) -> String {
        match self.target {
            Target::TimesAtMost(most) => format!("<= {most}x"),
            Target::TimesAtLeast(least) => format!(">= {least}x"),
            Target::Below(most) => format!("< {most} {}", self.unit).trim_end().into(),
            Target::AtMost(most) => format!("<= {most} {}", self.unit).trim_end().into(),
            Target::AtLeast(least) => format!(">= {least} {}", self.unit).trim_end().into(),
        }
    }

    fn value(&self, value: f64) -> String {
        format!("{} {}", digits(value), self.unit).trim_end().into()
    }
}

/// Formats a value with three significant digits, or with all digits of a whole number.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        whole if whole.fract() == 0.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Returns the median.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50.0)
}

/// Returns a percentile by the nearest rank.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a short list"
    )]
    let rank = ((sorted.len() as f64 * percent / 100.0).ceil() as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// Renders the table for the terminal and the documentation.
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["", "measure", "ours", "reference", "ratio", "target", "met"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(figures.iter().map(|figure| {
        vec![
            figure.id.into(),
            figure.measure.clone(),
            figure.value(figure.ours),
            figure.reference.map_or_else(String::new, |reference| figure.value(reference)),
            figure.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            figure.target(),
            if figure.is_met() { "yes" } else { "**no**" }.into(),
        ]
    }));
    align(&rows)
}

/// Renders a table in Markdown, whose first row is the head, with columns of equal width.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            write!(text, "| {cell:width$} ").unwrap();
        }
        text += "|\n";
        if at == 0 {
            for width in &widths {
                write!(text, "|{:-<1$}", "", width + 2).unwrap();
            }
            text += "|\n";
        }
    }
    text.trim_end().into()
}

/// Returns the figures as one JSON object.
pub(crate) fn json(figures: &[Figure]) -> Value {
    let figures: Vec<Value> = figures
        .iter()
        .map(|figure| {
            json!({
                "id": figure.id,
                "measure": figure.measure,
                "unit": figure.unit,
                "ours": figure.ours,
                "reference": figure.reference,
                "ratio": figure.ratio(),
                "target": figure.target(),
                "met": figure.is_met(),
            })
        })
        .collect();
    json!({ "schema": 1, "version": env!("CARGO_PKG_VERSION"), "figures": figures })
}

/// Asserts that every figure is a number, is in the table, and is valid JSON.
pub(crate) fn check(figures: &[Figure]) {
    let read: Value = serde_json::from_str(&json(figures).to_string()).unwrap();
    assert_eq!(read["figures"].as_array().unwrap().len(), figures.len());
    assert_eq!(table(figures).lines().count(), figures.len() + 2);
    for figure in figures {
        let reference = figure.reference.unwrap_or(1.0);
        assert!(figure.ours.is_finite() && reference.is_finite(), "{figure:?}");
    }
    let ids = ["P1", "P2", "P3", "P4", "P7", "P9", "P10", "P11", "P12", "P13", "P14", "P15", "P16"];
    for id in ids.into_iter().chain(["P17", "P19", "P20", "P21", "V1", "V5"]) {
        assert!(figures.iter().any(|figure| figure.id == id), "no figure for {id}");
    }
}
