//! R12: the shutdown ladder on members in every state. R14: `kill -9` of a lead with a team. R15: many
//! processes that start under one name.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::contention::{one_lead_of, one_teammate_of};
use crate::support::crash_rounds::reap_members;
use crate::support::harness::Team;
use crate::support::machines::Machine;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, last_exit, says, scripted_lead, spawn, stop_process,
};
use crate::support::scripts::{headless, wait_file};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The sum of the ladder's timeouts for a working member, plus one second.
const LADDER: Duration = Duration::from_secs(20 + 5 + 2 + 1);

/// The same for `team stop --now`.
const LADDER_NOW: Duration = Duration::from_millis(1_000 + 500 + 1_000);

/// The time limit for the members to exit after their lead.
const GRACE: Duration = Duration::from_secs(35);

/// The names of the members to stop, and the command that each one runs. `idler` runs none; the process of
/// `frozen` also gets SIGSTOP.
const BEHAVIOURS: [(&str, &str); 6] = [
    ("idler", ""),
    ("sleeper", "touch sleeper.here; sleep 1000"),
    ("ignores", "trap '' TERM INT HUP; touch ignores.here; while :; do sleep 1; done"),
    ("daemon", "setsid nohup sleep 1000 >/dev/null 2>&1 & touch daemon.here; sleep 1000"),
    ("forker", "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; touch forker.here; sleep 1000"),
    ("frozen", "touch frozen.here; sleep 1000"),
];

/// A member whose model call takes ten minutes.
const THINKER: &str = "thinker";

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let (politely, now) = run.of((0, 1), (4, 4), (72, 72));
    let mut late = Vec::new();
    let mut slowest = [Duration::ZERO; 2];
    let rounds = [
        (politely, LADDER, &["stop", "--all"][..]),
        (now, LADDER_NOW, &["stop", "--all", "--now"]),
    ];
    for ((times, limit, args), slowest) in rounds.into_iter().zip(&mut slowest) {
        // Each kind of walls in turn.
        for machine in Machine::ALL.into_iter().cycle().take(times) {
            let took = stop_all(args, machine);
            *slowest = took.max(*slowest);
            if took > limit {
                late.push(format!("{took:.1?}"));
            }
        }
    }
    let members = (politely + now) * (BEHAVIOURS.len() + 1);
    let result = format!(
        "{members} members in {} stops, 0 left, {} late {}; \
         longest {:.1?} politely, {:.1?} at once",
        politely + now,
        late.len(),
        late.join(", "),
        slowest[0],
        slowest[1],
    );
    let measure = "`team stop --all`: idle, in a model call, in a tool, ignoring signals, daemons, stopped; in turn \
         without walls, with all, without namespaces, without Landlock";
    let verdict = if late.is_empty() { Verdict::Met } else { Verdict::of_speed(false) };
    vec![Finding::new(measure, "all within the ladder + 1 s, 0 processes left", &result, verdict)]
}

/// Runs a `team stop` command on a team with all behaviours. Returns its duration. No process may be left.
fn stop_all(args: &[&str], machine: Machine) -> Duration {
    let team = machine.team();
    let names = BEHAVIOURS.iter().map(|(name, _)| *name).chain([THINKER]);
    let spawned: Vec<(&str, Value)> = names.clone().map(spawn).collect();
    let mut lines = vec![calls("lead", &spawned)];
    for (name, command) in BEHAVIOURS {
        lines.push(if command.is_empty() {
            says(name, "ready")
        } else {
            calls(name, &[bash(command)])
        });
    }
    lines.push(json!({ "agent": THINKER, "text": "late", "delay_ms": 600_000 }));
    let mut lead = scripted_lead(&team, &lines);
    for (name, command) in BEHAVIOURS {
        if command.is_empty() {
            team.wait_status(name, "idle");
        } else {
            wait_file(&team, &format!("{name}.here"));
        }
    }
    team.wait_status(THINKER, "working");
    stop_process(&team, "frozen");
    machine.assert_walls(&team);
    let begun = Instant::now();
    team.team(args);
    let took = begun.elapsed();
    lead.wait();
    team.wait_no_process();
    assert_left_in_order(&team);
    took
}

pub(crate) fn of_leads(run: Run) -> Vec<Finding> {
    let (rounds, members, busy) = run.of((2, 4, 0), (4, 16, 0), (100, 16, 4));
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        longest = longest.max(kill_lead(members, busy));
    }
    let measure =
        format!("kill -9 of a lead with {members} teammates, {rounds} times ({busy} in a tool)");
    let result = format!("0 left, 0 listed as alive; longest {:.1} s", longest.as_secs_f64());
    vec![Finding::new(
        &measure,
        "all exited in 35 s, 0 left, 0 listed as alive",
        &result,
        Verdict::of(longest < GRACE),
    )]
}

/// Kills a lead. Returns the time until its team has exited. The next lead must be able to work in the folder.
fn kill_lead(members: usize, busy: usize) -> Duration {
    let team = Team::new();
    let names: Vec<String> = (0..members).map(|n| format!("t{n}")).collect();
    let spawned: Vec<(&str, Value)> = names.iter().map(|name| spawn(name)).collect();
    let mut lines = vec![calls("lead", &spawned)];
    for (at, name) in names.iter().enumerate() {
        let works = bash(&format!("touch {name}.here; sleep 1000"));
        lines.push(if at < busy { calls(name, &[works]) } else { says(name, "ready") });
    }
    let mut lead = scripted_lead(&team, &lines);
    for (at, name) in names.iter().enumerate() {
        if at < busy {
            wait_file(&team, &format!("{name}.here"));
        } else {
            team.wait_status(name, "idle");
        }
    }
    let begun = Instant::now();
    kill_9(&team, "lead");
    lead.wait();
    team.wait_no_process();
    let took = begun.elapsed();
    reap_members(&team, &names);
    for name in &names {
        assert_eq!(last_exit(&team, name).0, "lead_lost", "{name}: {}", team.describe());
    }
    headless(&team, "rehearsal", "Check the lead inbox for any messages").expect(0);
    let shown = team.team(&["ls", "--json"]).expect(0).json();
    let ghosts =
        shown["members"].as_array().unwrap().iter().filter(|member| member["alive"] == true);
    assert_eq!(ghosts.count(), 0, "{shown}");
    team.wait_no_process();
    took
}

pub(crate) fn of_races(run: Run) -> Vec<Finding> {
    let (rounds, many) = run.of((1, 16), (3, 50), (200, 50));
    for _ in 0..rounds {
        one_lead_of(many);
        one_teammate_of(many);
    }
    let measure =
        format!("{many} leads, and {many} teammates of one name, at once: {rounds} rounds");
    let result = format!("1 winner in each of {}", 2 * rounds);
    vec![Finding::new(&measure, "exactly 1 winner each", &result, Verdict::Met)]
}
