//! R10, R13, R16: figures that tests of tests/it measure. The short form of this program is run beside
//! them; the long forms run them, as often as they say.

use crate::card::{Finding, Verdict};
use crate::{Length, Run};
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn of_system_calls(run: Run) -> Vec<Finding> {
    let measure = "errors of system calls, each call, its n-th time";
    measured(run, measure, "no panic, 0 lost, the error says why", "syscalls")
}

pub(crate) fn of_escapes(run: Run) -> Vec<Finding> {
    measured(run, "commands that try to outlive their end", "0 survivors", "escape")
}

pub(crate) fn of_pids(run: Run) -> Vec<Finding> {
    measured(run, "process numbers given to somebody else", "0 wrong kills", "pid_reuse")
}

/// Runs the tests of a topic so many times.
fn measured(run: Run, measure: &str, target: &str, topic: &str) -> Vec<Finding> {
    let measure = format!("{measure} (tests/it/{topic}.rs)");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/{topic}.rs"));
    if !file.exists() {
        return vec![Finding::skipped(&measure, target, "there is no such test yet")];
    }
    if run.length == Length::Short {
        return vec![Finding::new(&measure, target, "run beside this", Verdict::Unjudged)];
    }
    let times = run.of(0, 1, 10);
    let mut cargo = Command::new(env!("CARGO"));
    let filter = format!("{topic}::");
    cargo.args(["test", "--quiet", "--locked", "--test", "it", &filter]).stdin(Stdio::null());
    for _ in 0..times {
        let output = cargo.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || said.contains(" 0 passed") {
            eprintln!("{said}");
            return vec![Finding::new(&measure, target, "a test failed", Verdict::Missed)];
        }
    }
    vec![Finding::new(&measure, target, &format!("all passed, {times} times"), Verdict::Met)]
}
