//! R9: the resource use of an idle team, and a team with many teammates.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::contention::run_together;
use crate::support::harness::Team;
use crate::support::scripts::{calls, says, scripted_lead, spawn};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const MEMBERS: usize = 16;

/// The clock ticks per second in `/proc/PID/stat`, on every Linux.
const TICKS: f64 = 100.0;

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let time = Duration::from_secs(run.of(2, 20, 600));
    let team = Team::new();
    let names: Vec<String> = (0..MEMBERS).map(|n| format!("t{n}")).collect();
    let spawned: Vec<(&str, Value)> = names.iter().map(|name| spawn(name)).collect();
    let mut lines = vec![calls("lead", &spawned)];
    lines.extend(names.iter().map(|name| says(name, "ready")));
    let mut lead = scripted_lead(&team, &lines);
    for name in names.iter().map(String::as_str).chain(["lead"]) {
        team.wait_status(name, "idle");
    }
    let pids: Vec<i32> = names.iter().map(|name| team.pid_of(name)).collect();
    // Claims are removed within seconds of the last mail.
    settle(&pids);
    let before: Vec<Cost> = pids.iter().map(|pid| Cost::of(*pid)).collect();
    let begun = Instant::now();
    std::thread::park_timeout(time);
    let seconds = begun.elapsed().as_secs_f64();
    let after: Vec<Cost> = pids.iter().map(|pid| Cost::of(*pid)).collect();
    lead.type_line("/quit");
    lead.wait();
    team.wait_no_process();

    let pairs = || before.iter().zip(&after);
    let cpu = pairs().map(|(a, b)| (b.cpu - a.cpu) / seconds * 100.0).fold(0.0, f64::max);
    let rss = after.iter().map(|cost| cost.rss).fold(0.0, f64::max);
    let writes: Option<u64> = pairs().map(|(a, b)| Some(b.writes? - a.writes?)).sum();
    let finding = |measure: &str, target, result: String, verdict| {
        let measure = format!("{MEMBERS} idle teammates for {seconds:.0} s: {measure}");
        Finding::new(&measure, target, &result, verdict)
    };
    let mut findings = vec![
        finding(
            "most processor time",
            "< 0.1 %",
            format!("{cpu:.2} %"),
            Verdict::of_speed(cpu < 0.1),
        ),
        finding(
            "largest resident",
            "< 15 MiB",
            format!("{rss:.1} MiB"),
            Verdict::of_speed(rss < 15.0),
        ),
    ];
    let of_writes =
        |writes: u64| finding("writes", "0", writes.to_string(), Verdict::of(writes == 0));
    findings.extend(writes.map(of_writes));
    findings
}

/// A team larger than any in practice. The short form is small, because a test in tests/it runs sixty teammates.
pub(crate) fn of_many(run: Run) -> Vec<Finding> {
    let count = run.of(20, 200, 200);
    let begun = Instant::now();
    run_together(count);
    let measure = format!("{count} teammates run at once, answer a broadcast, and exit");
    let result = format!("all of them, in {:.0} s", begun.elapsed().as_secs_f64());
    vec![Finding::new(&measure, "each answers, 0 left", &result, Verdict::Met)]
}

/// Waits until none of the processes has written for three seconds, at most a minute.
fn settle(pids: &[i32]) {
    let written =
        || -> u64 { pids.iter().map(|pid| Cost::of(*pid).writes.unwrap_or_default()).sum() };
    let mut last = written();
    for _ in 0..20 {
        std::thread::park_timeout(Duration::from_secs(3));
        let now = written();
        if now == last {
            return;
        }
        last = now;
    }
}

/// The resources that a process has used so far.
struct Cost {
    /// CPU time in seconds.
    cpu: f64,
    /// Resident memory in MiB.
    rss: f64,
    /// The number of write system calls; `None` if this user may not look into an agent.
    writes: Option<u64>,
}

impl Cost {
    fn of(pid: i32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = [11, 12].map(|at: usize| fields[at].parse::<f64>().unwrap()).iter().sum();
        let number = |text: &str, name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let writes = |io: String| number(&io, "syscw:") as u64;
        let writes = fs::read_to_string(format!("/proc/{pid}/io")).ok().map(writes);
        Self { cpu: ticks / TICKS, rss: number(&read("status"), "VmRSS:") / 1024.0, writes }
    }
}
