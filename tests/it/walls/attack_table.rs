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
    /// Within namespaces, Landlock and seccomp.
    Namespaces,
}

impl Column {
    const ALL: [Self; 4] = [Self::User, Self::Root, Self::Landlock, Self::Namespaces];

    /// Returns the head of the column on the page.
    fn title(self) -> &'static str {
        match self {
            Self::User => "as a user",
            Self::Root => "as root",
            Self::Landlock | Self::Early(_) => "behind Landlock alone",
            Self::Namespaces => "behind walls",
        }
    }
}

/// A row: an attack with its outcomes. A column for commands within walls may be absent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// The attempt, in words for people.
    does: String,
    user: String,
    root: String,
    landlock: Option<String>,
    /// Other outcomes behind Landlock alone, by the latest version that has them.
    #[serde(default)]
    early: BTreeMap<String, String>,
    namespaces: Option<String>,
    /// The condition of the machine without which the attempt does not get out.
    pub(crate) needs: Option<String>,
}

impl Row {
    fn text(&self, column: Column) -> Option<&str> {
        match column {
            Column::User => Some(&self.user),
            Column::Root => Some(&self.root),
            Column::Landlock => self.landlock.as_deref(),
            Column::Early(version) => {
                let early = self.early().find(|(latest, _)| version <= *latest);
                early.map(|(_, text)| text).or(self.landlock.as_deref())
            }
            Column::Namespaces => self.namespaces.as_deref(),
        }
    }

    /// Returns the other outcomes of early versions of Landlock, the earliest version first.
    fn early(&self) -> impl Iterator<Item = (i32, &str)> {
        self.early.iter().map(|(version, text)| (version.parse().unwrap(), text.as_str()))
    }

    /// Returns the outcomes that a column allows. With more than one, it depends on the kernel or its settings.
    pub(crate) fn outcomes(&self, column: Column) -> Vec<Outcome<'_>> {
        let parse = |text| Outcome::parse(text).unwrap_or_else(|| panic!("{}: {text}", self.does));
        self.text(column).into_iter().flat_map(|text| text.split(" or ")).map(parse).collect()
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

/// Returns the table of the attempts that get out additionally behind an early Landlock alone.
fn early_table(table: &Table) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        "### Early versions of Landlock, without namespaces".into(),
        String::new(),
        "| attempt that has its effect, too | up to Landlock |".into(),
        "|---|---|".into(),
    ];
    for (topic, _) in TOPICS {
        for (_, row) in &table[topic] {
            let outs = (1..=LATEST_LANDLOCK)
                .filter(|version| row.outcomes(Column::Early(*version)).contains(&Outcome::Out));
            let has_it = row.outcomes(Column::Landlock).contains(&Outcome::Out);
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
    let is_given = |column: &Column| rows().any(|row| row.text(*column).is_some());
    let columns: Vec<Column> = Column::ALL.into_iter().filter(is_given).collect();
    let rule = format!("|---|{}", "---|".repeat(columns.len()));
    let head = |first: &str| line(first, &columns, |column| column.title().to_owned());
    let mut lines = vec![head("attempts that"), rule.clone()];
    for summary in SUMMARIES {
        let count = |column| rows().filter(|row| row.summary(column) == summary).count();
        lines.push(line(summary, &columns, |column| count(column).to_string()));
    }
    for (topic, heading) in TOPICS {
        lines.extend([String::new(), format!("### {heading}"), String::new()]);
        lines.extend([head("attempt"), rule.clone()]);
        lines.extend(table[topic].iter().map(|(_, row)| row.on_page(&columns)));
    }
    lines.extend(early_table(table));
    lines.join("\n") + "\n"
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
            "does = 'x'\nuser = 'out or refused EPERM'\nroot = 'refused'\nlandlock = 'refused EACCES'\nearly = { 2 = 'skip', 5 = 'out' }\n",
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
    ] {
        assert_eq!(row.allows(column, seen(text), met), is_allowed, "{column:?} {text} {met:?}");
    }
    assert_eq!(Outcome::parse("broken"), None);
}
