//! The output of a comparison: tables for the documentation, JSON for `scripts/plot`.

use crate::figure::{align, digits};
use serde_json::{Value, json};

/// The medians of one way.
#[derive(Debug)]
pub(crate) struct WayFigures {
    pub(crate) name: &'static str,
    pub(crate) version: Option<String>,
    /// Messages per second, for each number of writers.
    pub(crate) per_second: Vec<f64>,
    /// The median of one send in microseconds, for each backlog.
    pub(crate) send_us: Vec<f64>,
    /// The median of one send that is on disk when it returns.
    pub(crate) synced_us: f64,
    /// The time from a send until the owner has the message, the median.
    pub(crate) wake_ms: f64,
    /// The same, its 99th percentile.
    pub(crate) wake_late_ms: f64,
    /// The number of messages that were lost, arrived twice or out of order.
    pub(crate) wrong: f64,
    /// With the most writers: the sends of the slowest writer divided by those of the fastest.
    pub(crate) slowest_of_fastest: f64,
    /// With the most writers: the longest send.
    pub(crate) longest_ms: f64,
    /// The memory of the server with the largest backlog.
    pub(crate) server_mib: Option<f64>,
}

/// A peer that is not installed.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) name: &'static str,
    /// The program to install.
    pub(crate) install: &'static str,
}

impl Missing {
    /// Returns the line that tells about it.
    pub(crate) fn words(&self) -> String {
        format!("{} is left out, because it is not installed: get {}", self.name, self.install)
    }
}

/// All results.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) writers: &'static [usize],
    pub(crate) backlogs: &'static [usize],
    pub(crate) ways: Vec<WayFigures>,
    pub(crate) missing: Vec<Missing>,
}

impl Report {
    /// Renders the tables in Markdown.
    pub(crate) fn tables(&self) -> String {
        let numbers = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>();
        let values = |values: &[f64]| values.iter().map(|it| digits(*it)).collect::<Vec<_>>();
        let rates = self.table("messages a second, by writers", numbers(self.writers), |way| {
            way.per_second.iter().map(|rate| format!("{rate:.0}")).collect()
        });
        let sends =
            self.table("one send in us, p50, by unread messages", numbers(self.backlogs), |way| {
                values(&way.send_us)
            });
        let most = self.writers.last().copied().unwrap_or_default();
        let columns = [
            "synced send, p50".to_owned(),
            "wake, p50".into(),
            "wake, p99".into(),
            format!("slowest / fastest of {most} writers"),
            format!("longest send among {most}"),
            "lost, twice or out of order".into(),
            "server's memory".into(),
        ];
        let rest = self.table("", columns.into(), |way| {
            vec![
                format!("{} us", digits(way.synced_us)),
                format!("{} ms", digits(way.wake_ms)),
                format!("{} ms", digits(way.wake_late_ms)),
                digits(way.slowest_of_fastest),
                format!("{} ms", digits(way.longest_ms)),
                digits(way.wrong),
                way.server_mib.map_or_else(|| "no server".into(), |mib| format!("{mib:.0} MiB")),
            ]
        });
        let versions = self.ways.iter().filter_map(|way| {
            let version = way.version.as_ref()?;
            Some(format!("{} {version}", way.name))
        });
        let versions = versions.collect::<Vec<_>>().join(", ");
        [rates, sends, rest, versions].join("\n\n")
    }

    fn table(
        &self,
        corner: &str,
        columns: Vec<String>,
        cells: impl Fn(&WayFigures) -> Vec<String>,
    ) -> String {
        let row = |name: &str, cells: Vec<String>| [vec![name.to_owned()], cells].concat();
        let ways = self.ways.iter().map(|way| row(way.name, cells(way)));
        align(&[vec![row(corner, columns)], ways.collect()].concat())
    }

    /// Returns all results as one JSON object.
    pub(crate) fn json(&self) -> Value {
        let way = |way: &WayFigures| {
            json!({
                "name": way.name,
                "version": way.version,
                "per_second": way.per_second,
                "send_us": way.send_us,
                "synced_us": way.synced_us,
                "wake_p50_ms": way.wake_ms,
                "wake_p99_ms": way.wake_late_ms,
                "wrong": way.wrong,
                "slowest_of_fastest": way.slowest_of_fastest,
                "longest_ms": way.longest_ms,
                "server_mib": way.server_mib,
            })
        };
        let missing = |it: &Missing| json!({ "name": it.name, "install": it.install });
        json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "writers": self.writers,
            "backlogs": self.backlogs,
            "ways": self.ways.iter().map(way).collect::<Vec<_>>(),
            "missing": self.missing.iter().map(missing).collect::<Vec<_>>(),
        })
    }

    /// Asserts that every way has all figures, and lost nothing.
    pub(crate) fn check(&self) {
        let read: Value = serde_json::from_str(&self.json().to_string()).unwrap();
        assert_eq!(read["ways"].as_array().unwrap().len(), self.ways.len());
        assert!(self.ways.len() >= 2);
        for way in &self.ways {
            assert_eq!(way.per_second.len(), self.writers.len());
            assert_eq!(way.send_us.len(), self.backlogs.len());
            let others = [way.synced_us, way.wake_ms, way.wake_late_ms];
            for value in way.per_second.iter().chain(&way.send_us).chain(&others) {
                assert!(value.is_finite() && *value > 0.0, "{way:?}");
            }
            assert!(way.wrong.abs() < 0.5, "{way:?}");
            assert!(self.tables().contains(way.name));
        }
    }
}
