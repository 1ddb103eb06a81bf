//! `kill -9` of an agent during a model call: in the middle of the answer, and in the wait that the endpoint
//! requested. The resumed agent continues as if that call had not been made. The fake endpoint accepts no request
//! that the API would refuse.

use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{agent_of, connect, connect_openai, conversation, pieces};
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, kill_9, wait};
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The point at which the call of the killed agent blocks. Alice is killed in the call after her command; the lead
/// in the call after alice's report, when only the lead is busy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stuck {
    /// The answer stops just before its end. It contains a complete tool call, which must not count.
    Stream,
    /// The endpoint refuses with a `retry-after`.
    Wait,
}

/// The wait that the endpoint requests.
const ASKED: Duration = Duration::from_secs(4);

/// The text of the answer that is never completed.
const UNSAID: &str = "words of a call that died";

/// Replies of the models: every agent runs one command and then reports; the lead also spawns alice.
fn play(view: &RequestView) -> Reply {
    let name = agent_of(view);
    let id = |what: &str| format!("{what}-{}", view.number);
    let command = json!({"command": format!("echo {name} >> effects")});
    match (name.as_str(), view.turn()) {
        (_, 0) => {
            let reply = Reply::message().tool(&id("run"), "bash", &command);
            let order = json!({"name": "alice", "role": "worker", "prompt": "Begin."});
            if name == "lead" { reply.tool(&id("spawn"), "spawn_teammate", &order) } else { reply }
        }
        _ => Reply::text(&format!("{name} is done.")),
    }
}

fn get_stuck(stuck: Stuck, view: &RequestView) -> Reply {
    match stuck {
        Stuck::Stream => {
            let id = format!("unsaid-{}", view.number);
            let command = json!({"command": "echo never >> effects"});
            let reply = Reply::text(UNSAID).tool(&id, "bash", &command);
            let length = reply.stream_bytes(view.api, view.model()).len();
            reply.stall_after(length - 4)
        }
        Stuck::Wait => Reply::error(429, "rate_limit_error", "slow down")
            .header("retry-after", &ASKED.as_secs().to_string()),
    }
}

/// A request, its time, and whether its answer blocked.
struct Asked {
    at: Instant,
    view: RequestView,
    stuck: bool,
}

type Log = Arc<Mutex<Vec<Asked>>>;

/// A team, its endpoint, and the log of requests.
fn team_with_fake(victim: &'static str, stuck: Stuck, provider: &str) -> (Team, Fake, Log) {
    let (team, log) = (Team::new(), Log::default());
    let seen = Arc::clone(&log);
    let fake = Fake::start(move |view| {
        let mut seen = seen.lock().unwrap();
        let is_due = match victim {
            "lead" => conversation(view).contains("alice is done."),
            _ => view.turn() == 1,
        };
        let is_stuck = is_due && agent_of(view) == victim && !seen.iter().any(|asked| asked.stuck);
        seen.push(Asked { at: Instant::now(), view: view.clone(), stuck: is_stuck });
        if is_stuck { get_stuck(stuck, view) } else { play(view) }
    });
    match provider {
        "openai" => connect_openai(&team, &fake),
        _ => connect(&team, &fake),
    }
    (team, fake, log)
}

/// Waits until the call of the victim blocks, and kills the victim.
fn kill_there(team: &Team, fake: &Fake, victim: &str, stuck: Stuck) {
    let holds = || {
        let state = fs::read_dir(team.path("run/.state")).into_iter().flatten().flatten();
        state.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|it| it == "hold"))
    };
    team.eventually("the call is stuck", || match stuck {
        Stuck::Stream => fake.stalls() == 1,
        Stuck::Wait => holds(),
    });
    kill_9(team, victim);
}

fn count(team: &Team, file: &str, fits: impl Fn(&Value) -> bool) -> usize {
    team.lines(file).iter().filter(|line| fits(line)).count()
}

/// Asserts that no command and no report was repeated, and that the victim continued its turn.
fn assert_went_on(team: &Team, log: &Log, victim: &str, stuck: Stuck) {
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap();
    let mut effects: Vec<&str> = effects.lines().collect();
    effects.sort_unstable();
    assert_eq!(effects, ["alice", "lead"], "every command ran once");

    let log = log.lock().unwrap();
    let mut own = log.iter().filter(|asked| agent_of(&asked.view) == victim);
    let (call, again) = (own.find(|asked| asked.stuck).unwrap(), own.next().unwrap());
    let [before, after] = [pieces(&call.view), pieces(&again.view)];
    assert!(after.starts_with(&before), "{before:#?}\nthen {after:#?}");
    let told = conversation(&again.view);
    assert!(told.contains("restarted in the middle of a turn"), "{told}");
    assert!(log.iter().all(|asked| !conversation(&asked.view).contains(UNSAID)));
    if stuck == Stuck::Wait {
        let waited = again.at - call.at;
        assert!(waited >= ASKED, "a new life cut the wait short: {waited:?}");
    }

    let transcript = format!("transcript/{victim}.jsonl");
    let calls =
        count(team, &transcript, |line| line["kind"] == "tool_start" && line["name"] == "bash");
    let done = format!("{victim} is done.");
    let begun = count(team, &transcript, |line| {
        line["kind"] == "assistant" && !line.to_string().contains(&done)
    });
    assert_eq!((calls, begun), (1, 1), "{}", team.describe());
    let results = team.mail_of("lead").into_iter().filter(|mail| mail["type"] == "result");
    let results: Vec<Value> = results.map(|mail| mail["content"].clone()).collect();
    assert_eq!(results, ["alice is done."], "{}", team.describe());
}

/// Alice is killed, her lead restarts her, and the run succeeds.
fn a_teammate_goes_on(stuck: Stuck, provider: &str) {
    let (team, fake, log) = team_with_fake("alice", stuck, provider);
    let model = format!("{provider}/fake");
    let mut lead = team.start(&["lead", "-p", "Begin.", "--model", &model, "--timeout", "600"]);
    kill_there(&team, &fake, "alice", stuck);
    assert_eq!(wait(&team, &mut lead), Some(0), "{}", team.describe());
    assert_eq!(team.member("alice")["restarts"], 1);
    assert_went_on(&team, &log, "alice", stuck);
    let ends = count(&team, "transcript/alice.jsonl", |line| line["kind"] == "turn_end");
    assert_eq!(ends, 1, "{}", team.describe());
    assert_left_in_order(&team);
}

/// The lead is killed, alice shuts down, and a resumed lead ends the turn.
fn a_lead_goes_on(stuck: Stuck, provider: &str) {
    let (team, fake, log) = team_with_fake("lead", stuck, provider);
    let model = format!("{provider}/fake");
    let mut lead = team.start(&["lead", "-p", "Begin.", "--model", &model, "--timeout", "600"]);
    kill_there(&team, &fake, "lead", stuck);
    assert_eq!(wait(&team, &mut lead), None);
    team.wait_no_process();
    let args = ["lead", "--resume", "-p", "--model", &model, "--timeout", "600"];
    team.team(&args).expect(0);
    assert_went_on(&team, &log, "lead", stuck);
    let prompts = count(&team, "transcript/lead.jsonl", |line| line["kind"] == "user");
    assert_eq!(prompts, 1, "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_teammate_killed_during_an_answer_resumes() {
    a_teammate_goes_on(Stuck::Stream, "anthropic");
}

#[test]
fn a_teammate_killed_during_an_answer_resumes_over_chat_completions() {
    a_teammate_goes_on(Stuck::Stream, "openai");
}

#[test]
fn a_teammate_killed_in_a_retry_wait_keeps_the_wait() {
    a_teammate_goes_on(Stuck::Wait, "anthropic");
}

#[test]
fn a_lead_killed_during_an_answer_resumes() {
    a_lead_goes_on(Stuck::Stream, "anthropic");
}

#[test]
fn a_lead_killed_in_a_retry_wait_resumes() {
    a_lead_goes_on(Stuck::Wait, "openai");
}
