//! `--timeout` of a run that waits for something that never comes.

use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::connect;
use crate::support::harness::{ASK_DEADLINE, Team, in_parallel};
use crate::support::scripts::{bash, calls, script, spawn, stop_process, wait};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// The reason for which a run does not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hang {
    LeadsEndpoint,
    TeammatesEndpoint,
    RefusedEndpoint,
    Tool,
    StoppedTeammate,
    LockedRoster,
}

/// Runs a lead with this timeout. Returns whether the run has hung in the intended way before the timeout.
fn ends_in_time(hang: Hang, timeout: Duration) -> bool {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::mute()));
    connect(&team, &fake);
    if hang == Hang::RefusedEndpoint {
        team.variable("ANTHROPIC_BASE_URL", "http://127.0.0.1:9");
    }
    let on_model = (
        "spawn_teammate",
        json!({"name": "bob", "role": "r", "prompt": "Work.", "model": "anthropic/fake"}),
    );
    let lines: Vec<Value> = match hang {
        Hang::TeammatesEndpoint | Hang::RefusedEndpoint => vec![calls("lead", &[on_model])],
        Hang::LeadsEndpoint => Vec::new(),
        Hang::Tool | Hang::StoppedTeammate | Hang::LockedRoster => vec![
            calls("lead", &[spawn("bob"), bash("touch lead.here; sleep 1000")]),
            calls("bob", &[bash("touch bob.here; sleep 1000")]),
        ],
    };
    let model = script(&team, &lines);
    let model = if hang == Hang::LeadsEndpoint { "anthropic/fake" } else { &model };
    let seconds = timeout.as_secs().to_string();
    let began = Instant::now();
    let mut run = team.start(&["lead", "-p", "go", "--model", model, "--timeout", &seconds]);
    let exists = |file: &str| team.workspace().join(file).exists();
    let mut is_over = || run.try_wait().unwrap().is_some();
    let mut has_hung = false;
    team.eventually("the run hangs, or is over", || {
        let retries =
            || team.member("bob")["activity"].as_str().is_some_and(|it| it.starts_with("retrying"));
        has_hung = match hang {
            Hang::LeadsEndpoint | Hang::TeammatesEndpoint => !fake.requests().is_empty(),
            Hang::RefusedEndpoint => retries(),
            Hang::Tool | Hang::StoppedTeammate | Hang::LockedRoster => {
                exists("lead.here") && exists("bob.here")
            }
        };
        has_hung || is_over()
    });
    let (mut lock, mut is_sent) = (None, false);
    if has_hung && hang == Hang::StoppedTeammate {
        stop_process(&team, "bob");
        is_sent = team.team(&["send", "bob", "read this later"]).code == Some(0);
    }
    if has_hung && hang == Hang::LockedRoster {
        let roster = fs::File::open(team.path("run/.state/config.lock")).unwrap();
        fs4::FileExt::lock(&roster).unwrap();
        lock = Some(roster);
    }
    let was_in_time = began.elapsed() < timeout;
    assert_eq!(wait(&team, &mut run), Some(124), "{hang:?}");
    let took = began.elapsed();
    // The time of a whole stop is not waited for: a run has its timeout and its grace.
    assert!(took < timeout + ASK_DEADLINE, "{hang:?}: {took:?}");
    team.wait_no_process();
    drop(lock);
    if is_sent {
        let left = team.team(&["inbox", "bob"]).expect(0).out;
        assert!(left.contains("read this later"), "{left}");
    }
    has_hung && was_in_time
}

#[test]
fn a_timeout_holds_whatever_the_run_waits_for() {
    let hangs = [
        Hang::LeadsEndpoint,
        Hang::TeammatesEndpoint,
        Hang::RefusedEndpoint,
        Hang::Tool,
        Hang::StoppedTeammate,
        Hang::LockedRoster,
    ];
    in_parallel(hangs, |hang| {
        // On a loaded machine, the run may not have come so far when the first timeout passes.
        let was_hung =
            [8, 30].map(Duration::from_secs).into_iter().any(|timeout| ends_in_time(hang, timeout));
        assert!(was_hung, "{hang:?}");
    });
}
