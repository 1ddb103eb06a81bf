//! The rows of the score card and their layout. Nothing is measured here.

use crate::Run;
use std::fmt::Write;

/// Whether a target was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// This machine does not support the figure. The result says why.
    Skipped,
    /// The target was met in a run that is shorter than the target asks for.
    Shorter,
    /// Not judged in this build or at this size.
    Unjudged,
}

impl Verdict {
    /// The verdict on a target that does not depend on speed.
    pub(crate) fn of(is_met: bool) -> Self {
        if is_met { Self::Met } else { Self::Missed }
    }

    /// The verdict on a speed. A debug build is not judged, because it is not optimised.
    pub(crate) fn of_speed(is_met: bool) -> Self {
        if cfg!(debug_assertions) { Self::Unjudged } else { Self::of(is_met) }
    }

    /// A target is met only by the full form: a shorter run shows less than was asked for.
    fn word(self, run: Run) -> &'static str {
        match self {
            Self::Met if run.is_full() => "yes",
            Self::Met | Self::Shorter => "shorter",
            Self::Missed => "**no**",
            Self::Skipped => "skipped",
            Self::Unjudged => "not judged",
        }
    }
}

/// One result of a figure.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) measure: String,
    pub(crate) target: String,
    pub(crate) result: String,
    pub(crate) verdict: Verdict,
}

impl Finding {
    pub(crate) fn new(measure: &str, target: &str, result: &str, verdict: Verdict) -> Self {
        let [measure, target, result] = [measure, target, result].map(str::to_owned);
        Self { measure, target, result, verdict }
    }

    /// Prints the reason, so that missing support is noticed.
    pub(crate) fn skipped(measure: &str, target: &str, why: &str) -> Self {
        eprintln!("SKIPPED, {why}: {measure}");
        Self::new(measure, target, why, Verdict::Skipped)
    }
}

/// A finding with the data of its figure.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) finding: Finding,
    pub(crate) seconds: f64,
    pub(crate) run: Run,
}

/// The cells of a line of the table.
pub(crate) type Cells = [String; 8];

/// The header of the table.
pub(crate) const HEAD: [&str; 8] =
    ["", "measure", "target", "result", "met", "form", "seconds", "seed"];

impl Row {
    pub(crate) fn cells(&self) -> Cells {
        let Finding { measure, target, result, verdict } = &self.finding;
        [
            self.id.into(),
            measure.clone(),
            target.clone(),
            result.clone(),
            verdict.word(self.run).into(),
            format!("{} {}", self.run.length.word(), build()),
            format!("{:.0}", self.seconds),
            self.run.seed.to_string(),
        ]
        .map(|cell| cell.replace('|', "/"))
    }

    /// One line for the progress output.
    pub(crate) fn line(&self) -> String {
        let [id, measure, target, result, verdict, _, seconds, _] = self.cells();
        format!("{id}: {measure}: {result} (target {target}: {verdict}; {seconds} s)")
    }
}

fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

/// The table for the terminal and the documentation.
pub(crate) fn table(rows: &[Cells]) -> String {
    let cells: Vec<Cells> = [HEAD.map(String::from)].into_iter().chain(rows.to_vec()).collect();
    let mut widths = [0; 8];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for (at, row) in cells.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            write!(text, "| {cell:width$} ").unwrap();
        }
        text += "|\n";
        if at == 0 {
            for width in widths {
                write!(text, "|{:-<1$}", "", width + 2).unwrap();
            }
            text += "|\n";
        }
    }
    text.trim_end().into()
}
