//! R10, R13, R16, R24: figures that are measured by tests of tests/it. The short form leaves them to the test
//! suite; the other forms run those tests.

use crate::aftermath::run_and_reap;
use crate::card::{Finding, Verdict};
use crate::{Length, Run};
use std::process::{Command, Stdio};

pub(crate) fn of_system_calls(run: Run) -> Vec<Finding> {
    let measure = "errors of system calls, each call, its n-th time";
    measured(
        run,
        measure,
        "no panic, 0 lost, the error says why",
        &["--test", "it", "fault::syscalls::"],
    )
}

pub(crate) fn of_escapes(run: Run) -> Vec<Finding> {
    let (measure, target) = ("commands that try to outlive their end", "0 survivors");
    let mut found =
        measured(run, measure, target, &["--lib", "tools::command::containment_tests::"]);
    found.extend(measured(run, measure, target, &["--test", "it", "fault::containment::"]));
    found
}

pub(crate) fn of_pids(run: Run) -> Vec<Finding> {
    let suite = Suite { tests: &["--test", "it", "fault::pid_reuse::"], variables: &[] };
    // One of the tests reuses the pids of 20 members.
    let runs = run.of(0, 1, 50);
    let measure = format!("{} reused pids", 20 * runs);
    suite.run(run, runs, &measure, "0 wrong kills")
}

/// R24. The test suite itself uses 200 tasks.
pub(crate) fn of_tasks(run: Run) -> Vec<Finding> {
    let count = run.of("200", "300", "1000");
    let measure = format!("{count} tasks that wait for each other, 8 processes, 20 kills");
    let test = "lifecycle::task_work::eight_processes_do_all_tasks_in_order_while_members_die";
    let suite = Suite { tests: &["--test", "it", test], variables: &[("TEAM_TEST_TASKS", count)] };
    suite.run(run, run.of(0, 1, 1), &measure, "each once, in order")
}

/// The options of cargo that build the tests as this program was built, so that the row names their build.
const SAME_BUILD: &[&str] =
    if cfg!(debug_assertions) { &[] } else { &["--release", "--features", "failpoints"] };

/// Tests and their environment variables.
struct Suite<'a> {
    tests: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

fn measured(run: Run, measure: &str, target: &str, tests: &[&str]) -> Vec<Finding> {
    Suite { tests, variables: &[] }.run(run, run.of(0, 1, 10), measure, target)
}

impl Suite<'_> {
    /// Runs the tests this many times. The finding reports the tests that were skipped.
    fn run(&self, run: Run, times: u32, measure: &str, target: &str) -> Vec<Finding> {
        let measure = format!("{measure} (`cargo test {}`)", self.tests.join(" "));
        if run.length == Length::Short {
            return vec![Finding::new(&measure, target, "run beside this", Verdict::Unjudged)];
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--locked"]).args(SAME_BUILD).args(self.tests);
        cargo.args(["--", "--include-ignored", "--nocapture"]);
        cargo.envs(self.variables.iter().copied()).stdin(Stdio::null());
        let (mut passed, mut skipped) = (0, Vec::new());
        for _ in 0..times {
            let (has_succeeded, out, err) = run_and_reap(&mut cargo);
            passed += out.lines().find_map(passed_of).unwrap_or(0);
            if !has_succeeded || passed == 0 {
                eprintln!("{out}{err}");
                return vec![Finding::new(&measure, target, "a test failed", Verdict::Missed)];
            }
            let left_out = err.lines().filter_map(|line| line.strip_prefix("SKIPPED: "));
            skipped.extend(left_out.map(str::to_owned));
        }
        skipped.sort();
        skipped.dedup();
        let skipped =
            if skipped.is_empty() { String::new() } else { format!("; {}", skipped.join("; ")) };
        let result = format!("{passed} tests passed in {times} runs{skipped}");
        vec![Finding::new(&measure, target, &result, Verdict::Met)]
    }
}

/// The number of passed tests in a line like `test result: ok. 6 passed; 0 failed; …`.
fn passed_of(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("test result: ok. ")?;
    rest.split(' ').next()?.parse().ok()
}
