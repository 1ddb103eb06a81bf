//! R17: eight teammates on an endpoint that spoils a fifth of its answers, with every fault of `FAULTS`.

use crate::card::{Finding, Verdict};
use crate::rng::Rng;
use crate::support::fake::{FAULTS, Fake, Reply, RequestView};
use crate::support::fake_models::{LEAD, agent_of, call, connect, conversation};
use crate::support::harness::Team;
use crate::{Length, Run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TEAMMATES: usize = 8;

/// The limit of attempts for one answer. More would be a retry storm.
const TRIES: usize = 10;

fn name(n: usize) -> String {
    format!("t{n}")
}

/// The amount of work of a teammate.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// A number of commands.
    Commands(usize),
    /// A duration. In this mode answers are delayed, and some never end.
    Time(Duration),
}

impl Until {
    fn is_over(self, commands: usize, begun: Instant) -> bool {
        match self {
            Self::Commands(most) => commands >= most,
            Self::Time(time) => begun.elapsed() >= time,
        }
    }
}

/// The delay of an answer in a timed run.
const PACE: Duration = Duration::from_millis(1500);

/// One in this many faults of a timed run is a stall, which only the client's own timeout ends.
const SILENT: u64 = 60;

/// The reply to a teammate: one command after the other, then a report.
fn teammate(view: &RequestView, until: Until, begun: Instant) -> Reply {
    let turn = view.turn();
    if until.is_over(turn, begun) {
        return Reply::text(&format!("{} is done", agent_of(view)));
    }
    let command = format!("echo {}-{turn} >> effects", agent_of(view));
    call(view, "bash", &json!({ "command": command }))
}

/// The reply to the lead: it spawns all teammates and waits for their reports.
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

/// The requests and answers so far.
struct Tally {
    rng: Rng,
    requests: usize,
    faulty: usize,
    silent: usize,
    /// The number of attempts of each request, by its hash.
    tries: BTreeMap<u64, usize>,
}

impl Tally {
    fn count(&mut self, view: &RequestView) {
        self.requests += 1;
        let mut hasher = DefaultHasher::new();
        (agent_of(view), view.body.to_string()).hash(&mut hasher);
        *self.tries.entry(hasher.finish()).or_default() += 1;
    }

    /// Spoils one in five answers.
    fn spoil(&mut self, reply: Reply, until: Until) -> Reply {
        if self.rng.below(5) > 0 {
            return reply;
        }
        self.faulty += 1;
        if matches!(until, Until::Time(_)) && self.rng.below(SILENT) == 0 {
            self.silent += 1;
            return reply.stall_after(40);
        }
        FAULTS[self.rng.index(FAULTS.len())](reply)
    }
}

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let usual = (run.length == Length::Full).then_some(Duration::from_secs(600));
    let (rounds, until, length) = match run.limit.or(usual) {
        Some(time) => (1, Until::Time(time), format!("{} min", time.as_secs() / 60)),
        None => {
            let (rounds, commands) = run.of((1, 4), (3, 12), (3, 12));
            (rounds, Until::Commands(commands), format!("{rounds} runs"))
        }
    };
    let tallies: Vec<Tally> = (0..rounds).map(|round| one(run.rng(17 + round), until)).collect();
    let sum = |part: fn(&Tally) -> usize| tallies.iter().map(part).sum::<usize>();
    let (requests, faulty, silent) =
        (sum(|it| it.requests), sum(|it| it.faulty), sum(|it| it.silent));
    let most = tallies.iter().flat_map(|it| it.tries.values()).copied().max().unwrap();
    let measure = format!("{TEAMMATES} teammates, 20 % of all answers go wrong: {length}");
    let result = format!(
        "all turns right, every tool once; {requests} requests, {faulty} faulty \
         ({silent} stalled), at most {most} tries"
    );
    let target = format!("every turn right, no tool twice, at most {TRIES} tries");
    vec![Finding::new(&measure, &target, &result, Verdict::of(most <= TRIES && faulty > 0))]
}

fn one(rng: Rng, until: Until) -> Tally {
    let tries = BTreeMap::new();
    let tally = Arc::new(Mutex::new(Tally { rng, requests: 0, faulty: 0, silent: 0, tries }));
    let (mine, begun) = (Arc::clone(&tally), Instant::now());
    let fake = Fake::without_history(move |view| {
        let reply = match agent_of(view).as_str() {
            "lead" => lead(view),
            _ => teammate(view, until, begun),
        };
        let mut tally = mine.lock().unwrap();
        tally.count(view);
        let reply = tally.spoil(reply, until);
        if matches!(until, Until::Time(_)) { reply.after(PACE) } else { reply }
    });
    let team = Team::of_copies();
    connect(&team, &fake);
    team.variable("TEAM_MAX_ROUNDS", "100000");
    let prompt = ["-p", "Let the eight work.", "--timeout", "3600"];
    let lead = team.start(&[&LEAD[..], &prompt].concat());
    let output = lead.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", team.describe());
    team.wait_no_process();
    assert_worked(&team, until);
    drop(fake);
    Arc::into_inner(tally).unwrap().into_inner().unwrap()
}

/// Asserts that every command of every teammate ran once, in order.
fn assert_worked(team: &Team, until: Until) {
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    for n in 0..TEAMMATES {
        let prefix = format!("{}-", name(n));
        let ran: Vec<&str> =
            effects.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let commands = match until {
            Until::Commands(commands) => commands,
            Until::Time(_) => ran.len().max(1),
        };
        let expected: Vec<String> = (0..commands).map(|at| at.to_string()).collect();
        assert_eq!(ran, expected, "{}", name(n));
        let lines = team.lines(&format!("transcript/{}.jsonl", name(n)));
        let ends: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "turn_end").collect();
        assert!(!ends.is_empty() && ends.iter().all(|end| end["outcome"] == "done"), "{ends:?}");
    }
}
