//! P9, P10: the cost of starting many teammates, and of idle ones.

use crate::bench_team::BenchTeam;
use crate::figure::{Figure, Size, Target, median};
use crate::scripts::Scripts;
use std::fs;
use std::io::{Write, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

/// The time after the start until all teammates are idle, helper threads have ended, and each has polled its mail once.
const REST: Duration = Duration::from_secs(25);

/// The time over which the processor time of idle processes is counted. Each polls its mail once in it.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours] = [(); 2].map(|()| Vec::new());
    let mut idle = [Vec::new(), Vec::new()];
    for _ in 0..size.rounds {
        let members = Scripts::of_runtimes(size.members);
        raw.push(members.took.as_secs_f64() * 1e3);
        idle[0].push(Idle::of(&members));
        drop(members);
        let team = BenchTeam::new();
        let members = Scripts::of_teammates(&team, size.members);
        ours.push(members.took.as_secs_f64() * 1e3);
        idle[1].push(Idle::of(&members));
    }
    let count = size.members;
    let figure = |id, measure: String, unit, ours, reference, target| Figure {
        id,
        measure,
        unit,
        ours,
        reference: Some(reference),
        target,
    };
    let both = |value: fn(&Idle) -> f64| {
        idle.each_ref().map(|seen| median(&seen.iter().map(value).collect::<Vec<_>>()))
    };
    let [(raw_rss, rss), (raw_pss, pss), (raw_cpu, cpu)] =
        [both(|idle| idle.rss), both(|idle| idle.pss), both(|idle| idle.cpu)].map(|[a, b]| (a, b));
    let started =
        format!("{count} teammates started to ready; {count} tokio current_thread programs");
    vec![
        figure("P9", started, "ms", median(&ours), median(&raw), Target::TimesAtMost(3.0)),
        figure("P10", "idle teammate: RSS".into(), "MiB", rss, raw_rss, Target::AtMost(5.0)),
        figure(
            "P10",
            format!("idle teammate: PSS among {count}"),
            "MiB",
            pss,
            raw_pss,
            Target::AtMost(0.8),
        ),
        figure(
            "P10",
            format!("processor time of all {count} idle"),
            "ms/s",
            cpu,
            raw_cpu,
            Target::Below(0.5),
        ),
    ]
}

/// The cost of idle processes.
struct Idle {
    rss: f64,
    pss: f64,
    cpu: f64,
}

impl Idle {
    fn of(members: &Scripts) -> Self {
        std::thread::park_timeout(REST);
        let before: f64 = members.pids().map(processor_ms).sum();
        std::thread::park_timeout(WATCHED);
        let after: f64 = members.pids().map(processor_ms).sum();
        let middle =
            |field| median(&members.pids().map(|pid| mebibytes(pid, field)).collect::<Vec<_>>());
        Self {
            rss: middle("Rss:"),
            pss: middle("Pss:"),
            cpu: (after - before) / WATCHED.as_secs_f64(),
        }
    }
}

/// Returns a field of a process's memory map, in MiB.
pub(crate) fn mebibytes(pid: u32, field: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap() / 1024.0
}

/// Returns the processor time of all threads of a process, including exited ones, in milliseconds.
pub(crate) fn processor_ms(pid: u32) -> f64 {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    let used = nix::time::clock_getcpuclockid(pid).unwrap().now().unwrap();
    Duration::from(used).as_secs_f64() * 1e3
}

/// Runs the reference process, which is ready as soon as its runtime is and exits with its parent.
pub(crate) fn idle() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket =
            std::os::unix::net::UnixStream::from(stdin().as_fd().try_clone_to_owned().unwrap());
        (&socket).write_all(b"ready\n").unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = tokio::net::UnixStream::from_std(socket).unwrap();
        socket.readable().await.unwrap();
    });
}
