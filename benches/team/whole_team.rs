//! P20: the start and the idle cost of both views of the largest team.
//!
//! The members are entries of the roster whose life locks this process holds, and conversations; no agent runs.

use crate::bench_team::BenchTeam;
use crate::bulk::join;
use crate::figure::{Figure, Size, Target};
use crate::terminal::{Watcher, start};
use crate::views::{program, remember, start_page};
use std::fs;
use std::time::{Duration, Instant};

/// The time after the first frame until a view is idle.
const REST: Duration = Duration::from_secs(3);

/// The costs of one view.
struct Cost {
    first_s: f64,
    most_mib: f64,
    idle_percent: f64,
}

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let team = BenchTeam::new();
    let members = size.most_live;
    (0..members).for_each(|number| remember(&team, number, size.most_messages / members));
    crate::large::allow_many_files();
    let _lives: Vec<_> = (0..members).map(|number| join(&team.dir, number)).collect();
    let of_top = in_a_terminal(&team, size);
    let of_page = in_a_browser(&team, size);
    let scale = format!("{members} members, {} messages", size.most_messages);
    let figure = |measure: String, unit, ours, most| {
        let target = Target::Below(most);
        Figure { id: "P20", measure, unit, ours, reference: None, target }
    };
    let of = |view: &str, first: &str, cost: &Cost| {
        [
            figure(format!("`team {view}`, {scale}: {first}"), "s", cost.first_s, 1.0),
            figure("the same: largest resident memory".into(), "MiB", cost.most_mib, 150.0),
            figure("the same, idle: of one core".into(), "%", cost.idle_percent, 2.0),
        ]
    };
    let top = of("top", "start to the first frame with the team", &of_top);
    let page = of("web", "start to the first state of the team", &of_page);
    top.into_iter().chain(page).collect()
}

fn in_a_terminal(team: &BenchTeam, size: &Size) -> Cost {
    let began = Instant::now();
    let (top, mut screen, keys) = start(program(team, "top"));
    while !String::from_utf8_lossy(&screen.next()).contains("member-") {}
    let first = began.elapsed();
    // Frames without input must not fill the pseudo-terminal while it is not read.
    std::thread::scope(|scope| {
        scope.spawn(|| screen.discard());
        let cost = cost(&top, first, size);
        // The screen ends with the program.
        drop((top, keys));
        cost
    })
}

fn in_a_browser(team: &BenchTeam, size: &Size) -> Cost {
    let began = Instant::now();
    let (web, _events) = start_page(team);
    let first = began.elapsed();
    cost(&web, first, size)
}

fn cost(view: &Watcher, first: Duration, size: &Size) -> Cost {
    std::thread::park_timeout(size.lasting(REST));
    // 10 ms of each second are one percent.
    let idle_percent = view.idle(size) / 10.0;
    Cost { first_s: first.as_secs_f64(), most_mib: largest_mib(view.0.id()), idle_percent }
}

/// Returns the largest resident memory that a process has had, in MiB.
pub(crate) fn largest_mib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap() / 1024.0
}
