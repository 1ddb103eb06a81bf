//! A rate-limited endpoint and a large team: all members wait for the back-off that one of them has received.

use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::{agent_of, connect, headless};
use crate::support::harness::{PATIENCE, Team};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MEMBERS: usize = 16;

/// Waits until a refused member has recorded the wait for the others.
fn wait_for_hold(state: &Path) {
    let is_hold = |entry: DirEntry| entry.path().extension().is_some_and(|it| it == "hold");
    let until = Instant::now() + PATIENCE;
    while !fs::read_dir(state).into_iter().flatten().flatten().any(is_hold) {
        assert!(Instant::now() < until, "no member has recorded the wait");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The time after the first call in which the endpoint refuses calls, and the value of its `retry-after`.
const CLOSED: Duration = Duration::from_secs(2);

/// The endpoint refuses the first call of a teammate for two seconds. Fifteen more teammates start meanwhile: none of
/// them is refused, because each waits from the beginning.
#[test]
fn sixteen_teammates_share_a_backoff() {
    let team = Team::new();
    // Every request at the limited endpoint: time, agent, and whether it was accepted.
    let arrivals: Arc<Mutex<Vec<(Instant, String, bool)>>> = Arc::default();
    let log = Arc::clone(&arrivals);
    let spawn = |members: Range<usize>| {
        members.fold(Reply::text("I spawn."), |reply, at| {
            let order = json!({"name": format!("m{at}"), "role": "worker", "prompt": "Say hello."});
            reply.tool(&format!("spawn-{at}"), "spawn_teammate", &order)
        })
    };
    let state = team.path("run/.state");
    let lead = move |turn: usize| match turn {
        0 => spawn(0..1),
        1 => {
            wait_for_hold(&state);
            spawn(1..MEMBERS)
        }
        _ => Reply::text("I wait."),
    };
    let fake = Fake::start(move |view| {
        let name = agent_of(view);
        if name == "lead" {
            return lead(view.turn());
        }
        let mut log = log.lock().unwrap();
        let now = Instant::now();
        let first = log.first().map(|(at, ..)| *at);
        let is_open = first.is_some_and(|first| now >= first + CLOSED);
        log.push((now, name, is_open));
        if is_open {
            Reply::text("hello")
        } else {
            Reply::error(429, "rate_limit_error", "slow down")
                .header("retry-after", &CLOSED.as_secs().to_string())
        }
    });
    connect(&team, &fake);
    headless(&team, "Begin.", &[]).expect(0);
    let arrivals = arrivals.lock().unwrap();
    let first = arrivals[0].0;
    let mut histogram: BTreeMap<u128, usize> = BTreeMap::new();
    for (at, ..) in arrivals.iter() {
        *histogram.entry((*at - first).as_millis() / 250).or_default() += 1;
    }
    let picture: Vec<String> = histogram
        .iter()
        .map(|(slot, count)| format!("{:>6} ms  {}", slot * 250, "#".repeat(*count)))
        .collect();
    println!("arrivals of {MEMBERS} teammates:\n{}", picture.join("\n"));
    let refused = arrivals.iter().filter(|(.., let_in)| !let_in).count();
    assert_eq!(refused, 1, "{}", picture.join("\n"));
    let served: Vec<&String> =
        arrivals.iter().filter(|(.., let_in)| *let_in).map(|(_, name, _)| name).collect();
    for at in 0..MEMBERS {
        assert!(served.contains(&&format!("m{at}")), "m{at} was never served");
    }
}
