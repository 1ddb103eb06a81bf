//! The accessibility checker axe-core for the page in a browser, installed once by npm in `target/`. Without npm
//! or its registry, the check is skipped with a notice.

use crate::support::skips::skipped;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The npm package and its version.
const PACKAGE: &str = "axe-core@4.10.3";

/// The script that runs the checker. Its rules are WCAG 2.2, levels A and AA, and best practices.
const ASK: &str = "
  return axe.run(document, { preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa',
    'wcag22aa', 'best-practice'] }).then((told) => ({
      passed: told.passes.length,
      faults: told.violations.flatMap((fault) => fault.nodes.map((node) =>
        `${fault.id}: ${node.target.join(' ')}: ${node.failureSummary}`)),
    }));
";

/// The source of the checker, or `None` if it cannot be installed.
fn source() -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe");
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.exists() {
        if let Err(why) = fs::create_dir_all(&folder) {
            skipped(&format!("{PACKAGE} cannot be installed in {}: {why}", folder.display()));
            return None;
        }
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]);
        npm.args(["--fetch-timeout=20000", "--fetch-retries=0", "--prefix"]).arg(&folder);
        npm.stdin(Stdio::null());
        let ran = npm.output();
        if !ran.as_ref().is_ok_and(|ran| ran.status.success()) {
            skipped(&format!("npm cannot fetch {PACKAGE}: {ran:?}"));
            return None;
        }
    }
    Some(fs::read_to_string(script).unwrap())
}

/// Loads the checker into the page. Returns whether the checker is available.
pub(crate) fn load(run: impl Fn(&str) -> Value) -> bool {
    let Some(source) = source() else { return false };
    run(&format!("{source}; return typeof axe;"));
    true
}

/// Asserts that the current page has no violations.
#[track_caller]
pub(crate) fn assert_no_fault(run: impl Fn(&str) -> Value, where_: &str) {
    let told = run(ASK);
    assert_eq!(told["faults"], json!([]), "{where_}");
    assert!(told["passed"].as_u64().unwrap() > 10, "{where_}: hardly anything was checked");
}

/// Asserts that the checker finds an injected violation.
pub(crate) fn assert_it_sees(run: impl Fn(&str) -> Value) {
    run("document.querySelector('#mail').removeAttribute('aria-label');
        document.querySelector('#theme').textContent = '';");
    let told: Value = run(ASK);
    assert!(told["faults"].to_string().contains("button-name"), "{told:#}");
    run("document.querySelector('#mail').setAttribute('aria-label', 'The last messages');
        nameTheme();");
}
