//! R17: an endpoint of whose answers a fifth goes wrong, in every way that a network and a server know,
//! and eight teammates that work with it.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::cast::{LEAD, call, conversation, stage, who};
use crate::dice::Dice;
use crate::fake::{FAULTS, Reply, RequestView};
use crate::harness::Team;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

const TEAMMATES: usize = 8;

/// More tries for one answer than this are a storm.
const TRIES: usize = 10;

fn name(n: usize) -> String {
    format!("t{n}")
}

/// A teammate runs so many commands, one after the other, and reports.
fn teammate(view: &RequestView, commands: usize) -> Reply {
    let turn = view.turn();
    if turn >= commands {
        return Reply::text(&format!("{} is done", who(view)));
    }
    let command = format!("echo {}-{turn} >> effects", who(view));
    call(view, "bash", &json!({ "command": command }))
}

/// The lead spawns all, and waits for their reports.
fn lead(view: &RequestView) -> Reply {
    let past = conversation(view);
    if !past.contains("\"spawn_teammate\"") {
        return (0..TEAMMATES).fold(Reply::message(), |reply, n| {
            let order = json!({ "name": name(n), "role": "worker", "prompt": "Work." });
            reply.tool(&format!("call-{}-{n}", view.number), "spawn_teammate", &order)
        });
    }
    let done = (0..TEAMMATES).all(|n| past.contains(&format!("{} is done", name(n))));
    Reply::text(if done { "All is done." } else { "I wait." })
}

/// The bodies of requests, and how often each was sent.
fn attempts(views: &[RequestView]) -> BTreeMap<String, usize> {
    let mut attempts = BTreeMap::new();
    for view in views {
        *attempts.entry(format!("{} {}", who(view), view.body)).or_default() += 1;
    }
    attempts
}

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let (rounds, commands) = run.of((1, 4), (3, 12), (60, 40));
    let (mut requests, mut most, mut spoilt) = (0, 0, 0);
    for round in 0..rounds {
        let [met, tries, bad] = one(run.dice(17 + round), commands);
        requests += met;
        spoilt += bad;
        most = most.max(tries);
    }
    let measure = format!("{TEAMMATES} teammates, 20 % of all answers go wrong: {rounds} runs");
    let result = format!(
        "all turns right, every tool once; {requests} requests, {spoilt} spoilt, at most {most} tries"
    );
    let target = format!("every turn right, no tool twice, at most {TRIES} tries");
    vec![Finding::new(&measure, &target, &result, Verdict::of(most <= TRIES && spoilt > 0))]
}

/// One run; how many requests, how many for one answer, how many spoilt.
fn one(dice: Dice, commands: usize) -> [usize; 3] {
    let trouble = Arc::new(Mutex::new((dice, 0)));
    let mine = Arc::clone(&trouble);
    let (team, fake) = stage(move |view| {
        let reply = if who(view) == "lead" { lead(view) } else { teammate(view, commands) };
        let (dice, spoilt) = &mut *mine.lock().unwrap();
        if dice.below(5) > 0 {
            return reply;
        }
        *spoilt += 1;
        FAULTS[dice.index(FAULTS.len())](reply)
    });
    let prompt = ["-p", "Let the eight work.", "--timeout", "900"];
    let lead = team.start(&[&LEAD[..], &prompt].concat());
    let output = lead.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", team.picture());
    team.wait_no_process();
    assert_worked(&team, commands);
    let views = fake.requests();
    let spoilt = trouble.lock().unwrap().1;
    let most = attempts(&views).into_values().max().unwrap();
    [views.len(), most, spoilt]
}

/// Every command of everybody has run once, in order.
fn assert_worked(team: &Team, commands: usize) {
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    for n in 0..TEAMMATES {
        let prefix = format!("{}-", name(n));
        let ran: Vec<&str> =
            effects.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let expected: Vec<String> = (0..commands).map(|at| at.to_string()).collect();
        assert_eq!(ran, expected, "{}", name(n));
        let lines = team.lines(&format!("transcript/{}.jsonl", name(n)));
        let ends: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "turn_end").collect();
        assert!(ends.iter().all(|end| end["outcome"] == "done"), "{ends:?}");
    }
}
