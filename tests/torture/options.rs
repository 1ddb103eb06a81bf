//! Command-line arguments: own options, or the options and filters of the standard test harness.

use crate::run::{Length, Run};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The name of the score card as a test.
pub(crate) const NAME: &str = "scorecard";

pub(crate) const USAGE: &str =
    "usage: scripts/torture [--ci|--full] [--minutes N] [--seed N] [--only R1,R5] [--publish]";

/// The seed of the short form, fixed to make failures reproducible.
const SHORT_SEED: u64 = 20_251_121;

/// The options of the standard test harness that take a value.
const WITH_VALUE: [&str; 6] =
    ["--test-threads", "--format", "--logfile", "--color", "--shuffle-seed", "-Z"];

/// The run, and the selection of its figures.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) run: Run,
    only: Vec<String>,
    pub(crate) publish: Publish,
}

/// Whether the figures are written into the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publish {
    Yes,
    No,
}

/// The action that the arguments request.
#[derive(Debug)]
pub(crate) enum Action {
    Run(Options),
    /// Print the names of the tests.
    List,
    /// Report the test as ignored.
    Ignored,
    /// Do nothing, because the filters exclude this test.
    Nothing,
}

impl Options {
    pub(crate) fn read(
        words: impl Iterator<Item = String>,
        is_figure: &dyn Fn(&str) -> bool,
    ) -> Result<Action, String> {
        let words: Vec<String> = words.collect();
        let ours = ["--ci", "--full", "--minutes", "--seed", "--only", "--publish"];
        if words.iter().any(|word| ours.contains(&word.as_str())) {
            return Self::of_ours(&words, is_figure).map(Action::Run);
        }
        Ok(of_harness(&words))
    }

    fn of_ours(words: &[String], is_figure: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let (mut length, mut seed, mut limit) = (Length::Short, None, None);
        let (mut only, mut publish) = (Vec::new(), Publish::No);
        let mut left = words.iter();
        while let Some(word) = left.next() {
            let mut value = || left.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &str| -> Result<u64, String> {
                text.parse().map_err(|why| format!("{word} {text}: {why}"))
            };
            match word.as_str() {
                "--ci" => length = Length::Ci,
                "--full" => length = Length::Full,
                "--publish" => publish = Publish::Yes,
                "--seed" => seed = Some(number(value()?)?),
                "--minutes" => limit = Some(Duration::from_secs(60 * number(value()?)?)),
                "--only" => only = value()?.split(',').map(str::to_owned).collect(),
                other => return Err(format!("{other:?} is no option")),
            }
        }
        if let Some(id) = only.iter().find(|id: &&String| !is_figure(id)) {
            return Err(format!("there is no figure {id:?}"));
        }
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(Duration::ZERO) >> 16);
        Ok(Self { run: Run { length, seed, limit }, only, publish })
    }

    pub(crate) fn is_chosen(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }
}

/// Parses the arguments of `cargo test -- …`: options of the standard test harness, and filters. The score card
/// acts as an ignored test.
fn of_harness(words: &[String]) -> Action {
    let (mut filters, mut skipped) = (Vec::new(), Vec::new());
    let (mut is_list, mut is_exact, mut is_ignored, mut is_included) = (false, false, false, false);
    let mut left = words.iter().map(String::as_str);
    while let Some(word) = left.next() {
        match word {
            "--list" => is_list = true,
            "--exact" => is_exact = true,
            "--ignored" => is_ignored = true,
            "--include-ignored" => is_included = true,
            "--skip" => skipped.extend(left.next()),
            value if WITH_VALUE.contains(&value) => drop(left.next()),
            flag if flag.starts_with('-') => skipped.extend(flag.strip_prefix("--skip=")),
            filter => filters.push(filter),
        }
    }
    let matches = |filter: &&str| if is_exact { *filter == NAME } else { NAME.contains(*filter) };
    let is_meant =
        (filters.is_empty() || filters.iter().any(matches)) && !skipped.iter().any(matches);
    if !is_meant {
        Action::Nothing
    } else if is_list {
        Action::List
    } else if is_ignored || is_included {
        let run = Run { length: Length::Short, seed: SHORT_SEED, limit: None };
        Action::Run(Options { run, only: Vec::new(), publish: Publish::No })
    } else {
        Action::Ignored
    }
}
