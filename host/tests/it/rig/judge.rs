//! The judge of a run: it compares the messages that senders logged as accepted with those that arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The number of examples of each fault in a report.
const EXAMPLES: usize = 5;

/// One numbered message. The numbers of a sender rise per receiver; gaps are allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mail {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) number: u64,
}

impl Mail {
    pub(crate) fn new(from: &str, to: &str, number: u64) -> Self {
        Self { from: from.into(), to: to.into(), number }
    }

    fn link(&self) -> (&str, &str) {
        (&self.from, &self.to)
    }
}

impl fmt::Display for Mail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} -> {} number {}", self.from, self.to, self.number)
    }
}

/// Parses a log with one `FROM TO NUMBER` per line. A last line without a newline is ignored: its writer was killed
/// while it wrote, so nothing was logged.
#[track_caller]
pub(crate) fn parse_log(text: &str) -> Vec<Mail> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to, number) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        words.next().is_none().then(|| Mail::new(from, to, number))
    };
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("{line:?} is no record"))).collect()
}

/// The cases of one fault, with the first examples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cases {
    pub(crate) count: usize,
    pub(crate) examples: Vec<String>,
}

impl Cases {
    fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// The findings of the judge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The number of messages that senders logged as accepted.
    pub(crate) accepted: usize,
    /// The number of arrivals, copies included.
    pub(crate) arrived: usize,
    /// Accepted, and never arrived.
    pub(crate) lost: Cases,
    /// Each arrival after the first of the same message. It does not count as out of order.
    pub(crate) twice: Cases,
    /// The first arrival of a message after one with a higher number of the same sender and receiver.
    pub(crate) out_of_order: Cases,
    /// Arrived, although no sender logged it. It is no fault: the sender may have been killed before it wrote the log.
    pub(crate) not_logged: Cases,
}

impl Report {
    /// Whether each accepted message arrived once and in order.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.count + self.twice.count + self.out_of_order.count == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accepted, arrived, lost, twice, out_of_order, not_logged } = self;
        write!(out, "{accepted} accepted, {arrived} arrived")?;
        let kinds = [
            ("lost", lost),
            ("twice", twice),
            ("out of order", out_of_order),
            ("not logged", not_logged),
        ];
        for (kind, cases) in kinds {
            write!(out, "\n{} {kind}", cases.count)?;
            for example in &cases.examples {
                write!(out, "\n  {example}")?;
            }
        }
        Ok(())
    }
}

/// Compares accepted messages with arrivals, which are in the order in which each receiver got them.
///
/// # Panics
///
/// Panics if a message was accepted twice: a sender that numbers messages anew would conceal losses.
pub(crate) fn judge(accepted: &[Mail], arrived: &[Mail]) -> Report {
    let mut missing: BTreeSet<&Mail> = BTreeSet::new();
    for mail in accepted {
        assert!(missing.insert(mail), "{mail} was logged as accepted twice");
    }
    let logged = missing.clone();
    let mut report =
        Report { accepted: accepted.len(), arrived: arrived.len(), ..Report::default() };
    let mut seen: BTreeSet<&Mail> = BTreeSet::new();
    let mut highest: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for mail in arrived {
        missing.remove(mail);
        if !seen.insert(mail) {
            report.twice.add(|| mail.to_string());
            continue;
        }
        if !logged.contains(mail) {
            report.not_logged.add(|| mail.to_string());
        }
        let highest = highest.entry(mail.link()).or_insert(mail.number);
        if mail.number < *highest {
            report.out_of_order.add(|| format!("{mail} after {highest}"));
        }
        *highest = mail.number.max(*highest);
    }
    for mail in missing {
        report.lost.add(|| mail.to_string());
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mails(from: &str, to: &str, numbers: &[u64]) -> Vec<Mail> {
        numbers.iter().map(|number| Mail::new(from, to, *number)).collect()
    }

    /// Judges the arrivals of messages from `a` to `b` that were accepted with the numbers 1 to 4.
    fn of_four(arrived: &[u64]) -> Report {
        judge(&mails("a", "b", &[1, 2, 3, 4]), &mails("a", "b", arrived))
    }

    /// Returns the numbers of lost messages, copies, and messages out of order.
    fn counts(report: &Report) -> [usize; 3] {
        [report.lost.count, report.twice.count, report.out_of_order.count]
    }

    #[test]
    fn a_clean_run_has_no_fault() {
        let report = of_four(&[1, 2, 3, 4]);
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.accepted, report.arrived, report.not_logged.count), (4, 4, 0));
        assert!(judge(&[], &[]).is_clean());
    }

    #[test]
    fn each_fault_is_found_alone() {
        assert_eq!(counts(&of_four(&[1, 3, 4])), [1, 0, 0]);
        assert_eq!(of_four(&[1, 3, 4]).lost.examples, ["a -> b number 2"]);
        assert_eq!(counts(&of_four(&[1, 2, 3])), [1, 0, 0], "the last one");
        assert_eq!(counts(&of_four(&[])), [4, 0, 0]);
        assert_eq!(counts(&of_four(&[1, 2, 2, 3, 4])), [0, 1, 0]);
        assert_eq!(counts(&of_four(&[1, 2, 3, 4, 1])), [0, 1, 0], "a late copy");
        assert_eq!(counts(&of_four(&[1, 1, 1, 2, 3, 4])), [0, 2, 0]);
        assert_eq!(counts(&of_four(&[1, 3, 2, 4])), [0, 0, 1]);
        assert_eq!(of_four(&[1, 3, 2, 4]).out_of_order.examples, ["a -> b number 2 after 3"]);
        assert_eq!(counts(&of_four(&[4, 1, 2, 3])), [0, 0, 3]);
        for faulty in [&[1, 3, 4][..], &[1, 2, 2, 3, 4], &[1, 3, 2, 4]] {
            assert!(!of_four(faulty).is_clean());
        }
    }

    #[test]
    fn faults_of_a_run_are_counted_together() {
        assert_eq!(counts(&of_four(&[3, 1, 3])), [2, 1, 1]);
    }

    /// Order is promised per sender and receiver only, and numbers are those of a link.
    #[test]
    fn links_are_judged_one_by_one() {
        let links = [("a", "b"), ("a", "c"), ("c", "b"), ("b", "a")];
        let accepted: Vec<_> =
            links.iter().flat_map(|(from, to)| mails(from, to, &[1, 2])).collect();
        let mut mixed: Vec<_> = links.iter().flat_map(|(from, to)| mails(from, to, &[1])).collect();
        mixed.extend(links.iter().rev().flat_map(|(from, to)| mails(from, to, &[2])));
        assert!(judge(&accepted, &mixed).is_clean());
        let to_the_wrong_one = mails("a", "c", &[1, 2]);
        let report = judge(&mails("a", "b", &[1, 2]), &to_the_wrong_one);
        assert_eq!((counts(&report), report.not_logged.count), ([2, 0, 0], 2));
    }

    #[test]
    fn a_message_of_a_killed_sender_may_arrive_and_only_once() {
        let accepted = mails("a", "b", &[1, 2]);
        let report = judge(&accepted, &mails("a", "b", &[1, 2, 3]));
        assert!(report.is_clean() && report.not_logged.count == 1, "{report}");
        let report = judge(&accepted, &mails("a", "b", &[1, 2, 3, 3]));
        assert_eq!(counts(&report), [0, 1, 0]);
        let report = judge(&accepted, &mails("a", "b", &[1, 3, 2]));
        assert_eq!(counts(&report), [0, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "a -> b number 1 was logged as accepted twice")]
    fn numbers_that_begin_anew_are_refused() {
        drop(judge(&mails("a", "b", &[1, 2, 1]), &[]));
    }

    #[test]
    fn a_report_shows_the_first_examples() {
        let accepted: Vec<_> = (0..100).map(|number| Mail::new("a", "b", number)).collect();
        let report = judge(&accepted, &accepted[..10]);
        assert_eq!((report.lost.count, report.lost.examples.len()), (90, EXAMPLES));
        assert!(report.to_string().contains("90 lost\n  a -> b number 10\n"), "{report}");
    }

    #[test]
    fn a_torn_last_line_of_a_log_is_no_record() {
        assert_eq!(parse_log("a b 1\na b 2\n"), mails("a", "b", &[1, 2]));
        assert_eq!(parse_log("a b 1\na b 22"), mails("a", "b", &[1]));
        assert_eq!(parse_log("a b 1"), []);
        assert_eq!(parse_log(""), []);
    }

    #[test]
    #[should_panic(expected = "is no record")]
    fn a_torn_line_in_the_middle_of_a_log_is_refused() {
        drop(parse_log("a b\na b 2\n"));
    }
}
