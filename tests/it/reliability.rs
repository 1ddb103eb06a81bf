//! Tests that docs/reliability.md is complete: every fault has a row, and every test that a row names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The results that a fault may have.
const RESULTS: [&str; 3] = ["holds", "in part", "open"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/reliability.md")).unwrap()
}

/// The rows of the table of faults, as cells.
fn faults() -> Vec<Vec<String>> {
    let document = document();
    let table = document.split("## Faults").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The words between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The files that may contain a test with this module path: in tests/it, tests/support and src.
fn places(modules: &str) -> Vec<PathBuf> {
    let inside = modules.replace("::", "/");
    [
        format!("tests/it/{inside}.rs"),
        format!("tests/{inside}.rs"),
        format!("src/{inside}.rs"),
        format!("src/{inside}/mod.rs"),
        format!("src/{inside}/tests.rs"),
    ]
    .map(|place| root().join(place))
    .into()
}

fn is_test(path: &str) -> bool {
    let Some((modules, name)) = path.rsplit_once("::") else { return false };
    let holds = |place: &Path| {
        let text = fs::read_to_string(place).unwrap_or_default();
        let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
        before.rsplit("\n\n").next().is_some_and(|head| head.contains("test"))
    };
    places(modules).iter().any(|place| holds(place))
}

#[test]
fn every_fault_has_a_row_and_a_result() {
    let rows = faults();
    let numbers: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let expected: Vec<String> = (1..=80).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let result = row[3].as_str();
        assert!(RESULTS.contains(&result), "{row:?}");
        let names = quoted(&row[2]).len();
        assert!(names > 0 || result == "open", "what holds is tested: {row:?}");
        assert!(!row[2].is_empty(), "why not tested: {row:?}");
    }
}

#[test]
fn every_named_test_exists() {
    let card = fs::read_to_string(root().join("tests/torture/main.rs")).unwrap();
    for row in faults() {
        for name in quoted(&row[2]) {
            let is_there = match name.strip_prefix("torture ") {
                Some(figure) => card.contains(&format!("(\"{figure}\",")),
                None => is_test(name),
            };
            assert!(is_there, "fault {}: there is no test {name}", row[0]);
        }
    }
    let document = document();
    let is_path = |word: &&str| word.contains("::") && !word.contains(' ');
    for name in quoted(&document).into_iter().filter(is_path) {
        assert!(is_test(name), "the page names {name}, which is no test");
    }
    assert!(!is_test("mailbox::no_such_test") && !is_test("mailbox::alice"));
}

#[test]
fn the_published_card_has_every_figure() {
    let document = document();
    let card = document.split("## Score card").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown: BTreeSet<&str> =
        card.lines().filter_map(|line| line.strip_prefix("| R")?.split(' ').next()).collect();
    let expected: Vec<String> =
        (1..=18).chain([21, 23, 24]).map(|number| number.to_string()).collect();
    assert_eq!(shown, expected.iter().map(String::as_str).collect());
}
