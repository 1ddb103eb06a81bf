//! The table of the attacks, tests/attacks/expected.toml: the outcome that each must have, and the page that shows it.

use crate::support::child_process::write;
use crate::support::harness::has_python;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// An outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    /// It had its effect.
    Out,
    /// It had none; the word is an error number or a reason. Without a word, every refusal is meant.
    Refused(Option<&'a str>),
    /// The test cannot make the attempt.
    Skip,
}

impl<'a> Outcome<'a> {
    /// Parses `out`, `skip WHY` or `refused WHY`.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (word, why) = text.split_once(' ').map_or((text, None), |(a, b)| (a, Some(b)));
        match word {
            "out" => Some(Self::Out),
            "refused" => Some(Self::Refused(why)),
            "skip" => Some(Self::Skip),
            _ => None,
        }
    }

    /// Whether an observed outcome is the one that the table has.
    fn includes(self, seen: Self) -> bool {
        match (self, seen) {
            (Self::Refused(None), Self::Refused(_)) => true,
            (expected, seen) => expected == seen,
        }
    }
}

/// The columns of the table: the circumstances under which a command makes an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Without walls, as an ordinary user.
    User,
    /// Without walls, as root.
    Root,
    /// Within Landlock and seccomp.
    Landlock,
    /// The same, with this version of Landlock.
    Early(i32),
    /// The default level on a machine without namespaces: Landlock and seccomp, with the team folder in the workspace.
    NoNamespaces,
    /// The default level on a machine without Landlock: namespaces and seccomp.
    NoLandlock,
    /// Within namespaces, Landlock and seccomp.
    Namespaces,
    /// The same, with this version of Landlock.
    Capped(i32),
    /// Within namespaces, Landlock and seccomp, with this network.
    Network(SandboxNetwork),
}

/// A network of walled commands that is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxNetwork {
    Hosts,
    Own,
    Off,
}

impl SandboxNetwork {
    /// Returns the word of the settings.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Own => "own",
            Self::Off => "off",
        }
    }
}

impl Column {
    /// The columns for all topics.
    const ALL: [Self; 6] = [
        Self::User,
        Self::Root,
        Self::Landlock,
        Self::NoNamespaces,
        Self::NoLandlock,
        Self::Namespaces,
    ];

    /// The columns for the topic of sockets, behind all walls.
    const NETWORKS: [Self; 4] = [
        Self::Namespaces,
        Self::Network(SandboxNetwork::Hosts),
        Self::Network(SandboxNetwork::Own),
        Self::Network(SandboxNetwork::Off),
    ];

    /// Returns the head of the column on the page.
    fn title(self) -> &'static str {
        match self {
            Self::User => "as a user",
            Self::Root => "as root",
            Self::Landlock | Self::Early(_) => "`read-only`, Landlock alone",
            Self::NoNamespaces => "default, Landlock alone",
            Self::NoLandlock => "default, namespaces alone",
            Self::Namespaces | Self::Capped(_) => "behind all walls",
            Self::Network(network) => network.word(),
        }
    }
}

/// A row: an attack with its outcomes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// The attempt, in words for people.
    does: String,
    user: String,
    root: String,
    landlock: String,
    /// Other outcomes behind Landlock alone, by the latest version that has them.
    #[serde(default)]
    early: BTreeMap<String, String>,
    /// The outcome at the default level without namespaces, if it is not that behind Landlock alone.
    no_namespaces: Option<String>,
    /// The outcome at the default level without Landlock, if it is not that behind all walls.
    no_landlock: Option<String>,
    namespaces: String,
    /// Other outcomes behind all walls, by the latest version of Landlock that has them.
    #[serde(default)]
    capped: BTreeMap<String, String>,
    /// The outcomes behind all walls with these networks, if they are not those with an open network.
    hosts: Option<String>,
    own: Option<String>,
    off: Option<String>,
    /// The condition of the machine without which the attempt does not get out.
    pub(crate) needs: Option<String>,
}

impl Row {
    fn text(&self, column: Column) -> &str {
        match column {
            Column::User => &self.user,
            Column::Root => &self.root,
            Column::Landlock => &self.landlock,
            Column::Early(version) => of_version(&self.early, version).unwrap_or(&self.landlock),
            Column::NoNamespaces => self.no_namespaces.as_ref().unwrap_or(&self.landlock),
            Column::NoLandlock => self.no_landlock.as_ref().unwrap_or(&self.namespaces),
            Column::Namespaces => &self.namespaces,
            Column::Capped(version) => {
                of_version(&self.capped, version).unwrap_or(&self.namespaces)
            }
            Column::Network(network) => {
                let text = match network {
                    SandboxNetwork::Hosts => &self.hosts,
                    SandboxNetwork::Own => &self.own,
                    SandboxNetwork::Off => &self.off,
                };
                text.as_ref().unwrap_or(&self.namespaces)
            }
        }
    }

    /// Returns the outcomes that a column allows. With more than one, it depends on the kernel or its settings.
    pub(crate) fn outcomes(&self, column: Column) -> Vec<Outcome<'_>> {
        let parse = |text| Outcome::parse(text).unwrap_or_else(|| panic!("{}: {text}", self.does));
        self.text(column).split(" or ").map(parse).collect()
    }

    /// Whether a seen outcome is allowed. `is_met` is the state of the row's condition, if it is known.
    pub(crate) fn allows(&self, column: Column, seen: Outcome<'_>, is_met: Option<bool>) -> bool {
        let outcomes = self.outcomes(column);
        let is_listed = outcomes.iter().any(|outcome| outcome.includes(seen));
        match is_met {
            Some(true) => is_listed,
            _ if !outcomes.contains(&Outcome::Out) => is_listed || seen == Outcome::Skip,
            Some(false) if outcomes == [Outcome::Out] => seen != Outcome::Out,
            _ => is_listed || seen != Outcome::Out,
        }
    }

    /// Returns whether an attempt has its effect: one of `SUMMARIES`.
    fn summary(&self, column: Column) -> &'static str {
        let [yes, depends, no, untried] = SUMMARIES;
        match self.outcomes(column).as_slice() {
            [Outcome::Out] => yes,
            [Outcome::Skip] => untried,
            outcomes if outcomes.contains(&Outcome::Out) => depends,
            _ => no,
        }
    }

    /// Returns the row of the page.
    fn on_page(&self, columns: &[Column]) -> String {
        let needs = self.needs.as_ref().map_or(String::new(), |need| format!(" (needs {need})"));
        line(&format!("{}{needs}", self.does), columns, |column| {
            let outcomes = self.outcomes(column).into_iter().map(in_words);
            outcomes.collect::<Vec<_>>().join(" or ")
        })
    }
}

/// Returns the other outcome of a version of Landlock, if there is one.
fn of_version(others: &BTreeMap<String, String>, version: i32) -> Option<&String> {
    let is_meant = |latest: &String| version <= latest.parse().unwrap();
    others.iter().find(|(latest, _)| is_meant(latest)).map(|(_, text)| text)
}

/// The rows of the count on the page.
const SUMMARIES: [&str; 4] =
    ["have their effect", "have it on some kernels", "have none", "are not tried by the tests"];

/// Returns an outcome in the words of the page.
fn in_words(outcome: Outcome<'_>) -> String {
    match outcome {
        Outcome::Out => "**yes**".into(),
        Outcome::Refused(why) => {
            format!("no{}", why.map_or(String::new(), |why| format!(", {why}")))
        }
        Outcome::Skip => "not tried".into(),
    }
}

/// The rows of each topic with their names, in the order of the file.
pub(crate) type Table = BTreeMap<String, Vec<(String, Row)>>;

/// The latest version of Landlock whose rights the walls use.
pub(crate) const LATEST_LANDLOCK: i32 = 6;

/// The topics of the table in the order of the page, each with its heading.
const TOPICS: [(&str, &str); 8] = [
    ("team_folder", "The mail and the state of the team, by paths"),
    ("authority", "Orders and answers in the names of others"),
    ("home", "Files of the user outside of the workspace"),
    ("git", "The next git command of the user"),
    ("processes", "Other processes of the user"),
    ("services", "Programs of the user that obey a socket"),
    ("network", "Sockets"),
    ("privileges", "Rights that the kernel gives"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the table of tests/attacks/expected.toml.
pub(crate) fn table() -> Table {
    let text = fs::read_to_string(root().join("tests/attacks/expected.toml")).unwrap();
    let topics: BTreeMap<String, BTreeMap<String, Row>> = toml::from_str(&text).unwrap();
    let in_order = |rows: BTreeMap<String, Row>| {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(name, _)| text.find(&format!("\n{name} = ")));
        rows
    };
    topics.into_iter().map(|(topic, rows)| (topic, in_order(rows))).collect()
}

/// Returns a row of a table on the page.
fn line(first: &str, columns: &[Column], cell: impl Fn(Column) -> String) -> String {
    let cells = columns.iter().map(|column| cell(*column));
    let cells: Vec<String> = [first.to_owned()].into_iter().chain(cells).collect();
    format!("| {} |", cells.join(" | "))
}

/// Returns the table of the attempts that get out additionally behind an early Landlock.
fn early_table(
    table: &Table,
    heading: &str,
    early: impl Fn(i32) -> Column,
    latest: Column,
) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("### Early versions of Landlock, {heading}"),
        String::new(),
        "| attempt that has its effect, too | up to Landlock |".into(),
        "|---|---|".into(),
    ];
    for (topic, _) in TOPICS {
        for (_, row) in &table[topic] {
            let outs = (1..=LATEST_LANDLOCK)
                .filter(|version| row.outcomes(early(*version)).contains(&Outcome::Out));
            let has_it = row.outcomes(latest).contains(&Outcome::Out);
            if let Some(version) = outs.max().filter(|_| !has_it) {
                lines.push(format!("| {} | {version} |", row.does));
            }
        }
    }
    lines
}

/// Returns the part of docs/security.md that shows the table.
fn page(table: &Table) -> String {
    let rows = || table.values().flatten().map(|(_, row)| row);
    let mut lines = head("attempts that", &Column::ALL);
    for summary in SUMMARIES {
        let count = |column| rows().filter(|row| row.summary(column) == summary).count();
        lines.push(line(summary, &Column::ALL, |column| count(column).to_string()));
    }
    let mut show = |topic: &str, heading: &str, columns: &[Column]| {
        lines.extend([String::new(), format!("### {heading}"), String::new()]);
        lines.extend(head("attempt", columns));
        lines.extend(table[topic].iter().map(|(_, row)| row.on_page(columns)));
    };
    for (topic, heading) in TOPICS {
        show(topic, heading, &Column::ALL);
    }
    show("network", "Sockets behind all walls, by `sandbox.network`", &Column::NETWORKS);
    let alone = early_table(table, "without namespaces", Column::Early, Column::Landlock);
    let walls = early_table(table, "behind all walls", Column::Capped, Column::Namespaces);
    lines.extend(alone.into_iter().chain(walls));
    lines.join("\n") + "\n"
}

/// Returns the head of a table on the page.
fn head(first: &str, columns: &[Column]) -> Vec<String> {
    let is_open = |column| column == Column::Namespaces && columns == Column::NETWORKS;
    let title = |column: Column| if is_open(column) { "open" } else { column.title() };
    let titles = line(first, columns, |column| title(column).to_owned());
    vec![titles, format!("|---|{}", "---|".repeat(columns.len()))]
}

#[test]
fn the_page_shows_the_table() {
    let (begin, end) = ("<!-- begin: the table of the attacks -->\n", "<!-- end -->\n");
    let path = root().join("docs/security.md");
    let committed = fs::read_to_string(&path).unwrap();
    let (before, rest) = committed.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    let table = table();
    let topics: Vec<&str> = table.keys().map(String::as_str).collect();
    assert!(TOPICS.iter().all(|(topic, _)| topics.contains(topic)), "{topics:?}");
    assert_eq!(TOPICS.len(), topics.len(), "{topics:?}");
    let generated = page(&table);
    #[expect(clippy::disallowed_methods, reason = "it asks the person that runs this test")]
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    if shown != generated && is_update {
        write(&path, format!("{before}{begin}{generated}{end}{after}"));
    } else {
        assert!(
            shown == generated,
            "docs/security.md is out of date: run UPDATE_DOCS=1 cargo test --test it attack_table"
        );
    }
}

#[test]
fn every_attack_has_a_row() {
    if !has_python("whether each attack has a row") {
        return;
    }
    let mut list = Command::new("python3");
    list.arg("-B").arg(root().join("tests/attacks/attacks.py")).arg("--list");
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(ToOwned::to_owned).collect();
    let rows = table()
        .into_iter()
        .flat_map(|(topic, rows)| rows.into_iter().map(move |(name, _)| format!("{topic} {name}")));
    assert_eq!(listed, rows.collect());
}

#[test]
fn an_outcome_is_compared_with_the_alternatives_and_the_condition() {
    let row: Row =
        toml::from_str(
            "does = 'x'\nuser = 'out or refused EPERM'\nroot = 'refused'\nlandlock = 'refused EACCES'\nearly = { 2 = 'skip', 5 = 'out' }\nno_landlock = 'out'\nnamespaces = 'refused'\ncapped = { 5 = 'out' }\n",
        )
        .unwrap();
    let seen = |text| Outcome::parse(text).unwrap();
    for (column, text, met, is_allowed) in [
        (Column::User, "out", Some(true), true),
        (Column::User, "refused EPERM", Some(true), true),
        (Column::User, "refused EACCES", Some(true), false),
        (Column::User, "skip no program", Some(true), false),
        (Column::User, "skip no program", Some(false), true),
        (Column::User, "out", Some(false), true),
        (Column::Root, "refused EACCES", Some(true), true),
        (Column::Root, "out", None, false),
        (Column::Root, "skip no program", None, true),
        (Column::Landlock, "refused EACCES", Some(true), true),
        (Column::Early(6), "refused EACCES", Some(true), true),
        (Column::Early(5), "out", Some(true), true),
        (Column::Early(3), "refused EACCES", Some(true), false),
        (Column::Early(2), "out", Some(true), false),
        (Column::NoNamespaces, "refused EACCES", Some(true), true),
        (Column::NoNamespaces, "out", Some(true), false),
        (Column::NoLandlock, "out", Some(true), true),
        (Column::Capped(5), "out", Some(true), true),
        (Column::Capped(6), "out", Some(true), false),
        (Column::Network(SandboxNetwork::Off), "refused EPERM", Some(true), true),
    ] {
        assert_eq!(row.allows(column, seen(text), met), is_allowed, "{column:?} {text} {met:?}");
    }
    assert_eq!(Outcome::parse("broken"), None);
}
