//! Faults of the endpoint and kills during model calls: the turn ends correctly, no tool runs twice, no mail is
//! lost or delivered twice, and no process is left.

use crate::support::fake::{Api, FAULTS, Reply, RequestView, Unopened};
use crate::support::fake_models::{
    ALL, KEY, LEAD, agent_of, assert_told, at_terminal, call, connect, conversation, headless,
    pieces, results, story, team_with_fake,
};
use crate::support::harness::Team;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;

/// Replies as `part` does, but spoils the first answer to every request.
fn spoilt(part: fn(&RequestView) -> Reply) -> impl Fn(&RequestView) -> Reply + Send + Sync {
    let met: Mutex<BTreeSet<Vec<String>>> = Mutex::default();
    move |view| {
        let mut met = met.lock().unwrap();
        let count = met.len();
        let first = met.insert(pieces(view));
        if first { FAULTS[count % FAULTS.len()](part(view)) } else { part(view) }
    }
}

/// The ids of all tool calls and of their results in a transcript, in order.
fn calls(team: &Team, name: &str) -> (Vec<String>, Vec<String>) {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let blocks = lines.iter().filter_map(|line| line["blocks"].as_array()).flatten();
    let asked = blocks.filter(|block| block["type"] == "tool_use").map(|block| id(&block["id"]));
    let answered = lines.iter().filter(|line| line["kind"] == "tool_result");
    (asked.collect(), answered.map(|line| id(&line["tool_use_id"])).collect())
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Every answer to three agents fails once, in turn by each fault. The outcome is the same as without faults.
#[test]
fn a_run_in_which_every_answer_fails_once_succeeds() {
    let (team, fake) = team_with_fake(spoilt(story));
    headless(&team, ALL, &[]).expect(0);
    assert_told(&team);
    let mut attempts: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for view in fake.requests() {
        attempts.entry(pieces(&view)).or_default().push(view.number);
    }
    assert!(attempts.len() >= FAULTS.len(), "only {} requests", attempts.len());
    for (request, attempts) in &attempts {
        assert_eq!(attempts.len(), 2, "one spoilt, one whole: {request:#?}");
    }
    let spoilt: Vec<String> = attempts.values().map(|both| format!("call-{}", both[0])).collect();
    for name in ["lead", "alice", "bob"] {
        let (asked, answered) = calls(&team, name);
        assert_eq!(asked, answered, "{name}");
        let half = asked.iter().find(|id| {
            spoilt.iter().any(|spoilt| *id == spoilt || id.starts_with(&format!("{spoilt}-")))
        });
        assert_eq!(half, None, "{name} ran a call of an answer that broke");
    }
}

#[test]
fn a_run_waits_for_an_endpoint_that_starts_late() {
    let (team, unopened) = (Team::new(), Unopened::new());
    team.variable("ANTHROPIC_API_KEY", KEY);
    team.variable("ANTHROPIC_BASE_URL", &unopened.base_url());
    let lead = team.start(&[&LEAD[..], &["-p", "hello", "--timeout", "600"]].concat());
    team.eventually("the refused connection is logged", || {
        let log = fs::read_to_string(team.path("log/lead.jsonl")).unwrap_or_default();
        log.contains("tried again") && log.contains("refused")
    });
    let fake = unopened.open(|_| Reply::text("good morning"));
    let output = lead.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "good morning\n");
    assert_eq!(fake.requests().len(), 1);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = format!("(connection refused by {}; trying again, for up to ", fake.base_url());
    assert!(told.starts_with(&refused), "it is said at once, before all else: {told}");
    assert_eq!(told.matches("Ctrl-C to stop; `team doctor`").count(), 1, "{told}");
    assert!(told.trim_end().ends_with("(the endpoint answers again)"), "{told}");
}

/// The lead's stderr and its events say that a teammate's model call fails, while the teammate still tries.
#[test]
fn the_lead_says_that_the_model_call_of_a_teammate_is_tried_again() {
    let unopened = Unopened::new();
    let (team, _fake) = team_with_fake(|view| {
        let order =
            json!({"name": "alice", "role": "r", "prompt": "Work.", "model": "openai/fake"});
        match view.turn() {
            0 => call(view, "spawn_teammate", &order),
            _ => Reply::text("Noted."),
        }
    });
    team.variable("OPENAI_API_KEY", KEY);
    team.variable("OPENAI_BASE_URL", &format!("{}/v1", unopened.base_url()));
    let args = ["-p", "Let alice work.", "--timeout", "600", "--output", "stream-json"];
    let mut lead = team.command("team", &[&LEAD[..], &args].concat());
    let [out, err] = ["out", "err"].map(|name| team.workspace().join(name));
    lead.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
    let mut lead = lead.spawn().unwrap();
    let refused = format!("connection refused by {}", unopened.base_url());
    team.eventually("the lead tells of alice's call", || {
        let told = fs::read_to_string(&err).unwrap();
        told.contains(&format!("alice: {refused}; trying again\n"))
    });
    let activity = team.member("alice")["activity"].clone();
    assert_eq!(activity, format!("retrying: {refused}"));
    let events = fs::read_to_string(&out).unwrap();
    let event = json!({"type": "member_retry", "name": "alice", "why": refused}).to_string();
    assert!(events.lines().any(|line| line == event), "{events}");
    let _fake = unopened.open(|_| Reply::text("I have worked."));
    assert_eq!(lead.wait().unwrap().code(), Some(0), "{}", fs::read_to_string(&err).unwrap());
    assert!(team.has_mail("lead", "alice", "I have worked."), "{}", team.describe());
    let told = fs::read_to_string(&err).unwrap();
    assert_eq!(told.matches(&format!("alice: {refused}")).count(), 1, "{told}");
}

#[test]
fn the_exit_code_tells_why_the_model_gave_no_answer() {
    let final_error =
        |status, kind: &str| Reply::error(status, kind, "no").header("x-should-retry", "false");
    let table = [
        (Reply::error(429, "rate_limit_error", "monthly limit"), 6, "spend cap"),
        (Reply::error(402, "billing_error", "pay first"), 6, "spend cap"),
        (final_error(503, "api_error"), 6, "unavailable"),
        (Reply::error(401, "authentication_error", "bad key"), 4, "credentials"),
        (Reply::error(403, "permission_error", "not you"), 4, "credentials"),
        (Reply::error(400, "invalid_request_error", "odd field"), 3, "odd field"),
        (Reply::error(404, "not_found_error", "no such model"), 3, "no such model"),
        (
            Reply::error(400, "invalid_request_error", "prompt is too long: 9 > 5"),
            3,
            "context window",
        ),
        (Reply::error(413, "request_too_large", "too large"), 3, "context window"),
        (Reply::text("").stop("model_context_window_exceeded"), 3, "context window"),
        (Reply::raw(200, "text/html", b"<html>log in</html>"), 3, "base URL"),
    ];
    for (reply, code, words) in table {
        let told = format!("{reply:?}");
        let (team, fake) = team_with_fake(move |_| reply.clone());
        let ran = headless(&team, "hello", &[]).expect(code);
        assert!(ran.err.contains(words), "{told}: {}", ran.err);
        assert_eq!(fake.requests().len(), 1, "{told} was asked for again");
        let ends = team.lines("transcript/lead.jsonl");
        let end = ends.iter().find(|line| line["kind"] == "turn_end").unwrap();
        assert_eq!(end["outcome"], "failed", "{told}");
    }
}

/// A teammate reports a failed result to the lead if its endpoint refuses its calls.
#[test]
fn the_lead_gets_the_failed_turn_of_a_teammate() {
    let (team, _fake) = team_with_fake(|view| match agent_of(view).as_str() {
        "alice" => Reply::error(400, "invalid_request_error", "this model cannot do that"),
        _ if conversation(view).contains("cannot do that") => Reply::text("Alice failed."),
        _ if view.turn() > 0 => Reply::text("I wait."),
        _ => call(view, "spawn_teammate", &json!({"name": "alice", "role": "r", "prompt": "go"})),
    });
    let ran = headless(&team, "Let alice do it.", &[]).expect(0);
    assert_eq!(ran.out, "Alice failed.\n");
    let mail = team.mail_of("lead");
    let result = mail.iter().find(|mail| mail["type"] == "result").unwrap();
    assert_eq!(result["outcome"], "failed");
}

/// Replies for a lead that spawns alice. The answer after her bash call stalls.
fn alice_hangs(view: &RequestView) -> Reply {
    let work = json!({"command": "echo worked >> effects"});
    let order = json!({"name": "alice", "role": "coder", "prompt": "Work."});
    match agent_of(view).as_str() {
        "lead" if view.last_text().contains("Spawn") => call(view, "spawn_teammate", &order),
        "lead" => Reply::text(&format!("Noted: {}", results(view))),
        _ if conversation(view).contains("you were restarted") => {
            Reply::text("I went on where I was.")
        }
        _ if view.results().is_empty() => call(view, "bash", &work),
        _ => Reply::text("I have worked and talk").stall_after(600),
    }
}

fn end(team: &Team, lead: &mut crate::support::terminal::Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

#[test]
fn ctrl_c_ends_the_model_call_and_keeps_the_team() {
    let (team, fake) = team_with_fake(|view| match agent_of(view).as_str() {
        "lead" if view.last_text().contains("Spawn") => {
            let order = json!({"name": "alice", "role": "coder", "prompt": "Wait."});
            call(view, "spawn_teammate", &order)
        }
        "lead" if view.last_text().ends_with("Tell me everything.") => {
            let tale = Reply::text(&format!("Once upon a time\n{}", "and then ".repeat(50)));
            let half = tale.stream_bytes(Api::Messages, "fake").len() / 2;
            tale.stall_after(half)
        }
        _ => Reply::text("Ready."),
    });
    let mut lead = at_terminal(&team);
    lead.type_line("Spawn alice.");
    team.eventually("alice has had her turn", || team.has_mail("lead", "alice", "Ready."));
    team.eventually("both rest", || {
        team.status("alice") == "idle" && team.status("lead") == "idle"
    });
    let alice = team.pid_of("alice");
    lead.type_line("Tell me everything.");
    lead.expect("Once upon");
    lead.press("\u{3}");
    fake.wait_for_hangups(1);
    team.wait_status("lead", "idle");
    assert_eq!(team.pid_of("alice"), alice);
    assert!(team.processes().iter().any(|(pid, _)| *pid == alice), "the team is gone");
    let turns = || {
        let lines = team.lines("transcript/lead.jsonl");
        lines.iter().filter(|line| line["kind"] == "turn_end").count()
    };
    let before = turns();
    lead.type_line("Are you there?");
    team.eventually("the next turn is over", || turns() > before);
    let last = fake.requests().pop().unwrap();
    assert!(conversation(&last).contains("the user interrupted this turn"));
    assert!(!conversation(&last).contains("Once upon"), "half an answer was kept");
    end(&team, &mut lead);
}

#[test]
fn a_teammate_killed_during_an_answer_resumes_when_spawned_again() {
    let (team, fake) = team_with_fake(alice_hangs);
    team.variable("TEAM_RESTART", "never");
    let mut lead = at_terminal(&team);
    lead.type_line("Spawn alice.");
    let alices = || -> Vec<RequestView> {
        fake.requests().into_iter().filter(|view| agent_of(view) == "alice").collect()
    };
    team.eventually("alice's second answer streams", || alices().len() == 2);
    for text in ["first", "second"] {
        team.team(&["send", "alice", text]).expect(0);
    }
    signal(team.pid_of("alice"), Signal::SIGKILL);
    fake.wait_for_hangups(1);
    team.eventually("the lead is told", || team.has_mail("lead", "system", "alice is gone"));
    team.wait_status("alice", "failed");
    lead.type_line("Spawn alice again.");
    team.eventually("alice's report", || team.has_mail("lead", "alice", "where I was"));
    let views = alices();
    let [before, after] = [pieces(&views[1]), pieces(&views[2])];
    assert!(after.starts_with(&before), "{before:#?}\nthen {after:#?}");
    let (asked, answered) = calls(&team, "alice");
    assert_eq!((asked.len(), &asked), (1, &answered));
    assert_eq!(fs::read_to_string(team.workspace().join("effects")).unwrap(), "worked\n");
    let mail = team.mail_of("alice");
    let from_user = mail.iter().filter(|mail| mail["from"] == "user");
    let texts: Vec<&Value> = from_user.map(|mail| &mail["content"]).collect();
    assert_eq!(texts, ["first", "second"], "mail was lost or doubled");
    assert!(after.iter().any(|piece| piece.contains("second")), "{after:#?}");
    end(&team, &mut lead);
}

#[test]
fn a_lead_killed_during_an_answer_ends_its_teammates() {
    let (team, fake) = team_with_fake(|view| match agent_of(view).as_str() {
        "lead" if view.turn() > 0 => Reply::text("I have spawned alice and").stall_after(500),
        "lead" => alice_hangs(view),
        _ => Reply::text("Ready."),
    });
    let mut lead = team.start(&[&LEAD[..], &["-p", "Spawn alice."]].concat());
    team.eventually("the lead's second answer streams", || {
        fake.requests().iter().any(|view| agent_of(view) == "lead" && view.turn() > 0)
    });
    signal(team.pid_of("lead"), Signal::SIGKILL);
    assert_eq!(lead.wait().unwrap().code(), None);
    fake.wait_for_hangups(1);
    team.wait_no_process();
    assert_eq!(team.member("alice")["last_exit"]["cause"], "lead_lost", "{}", team.describe());
    // The next lead can work in the folder.
    let fake = crate::support::fake::Fake::start(|_| Reply::text("I am the new one."));
    connect(&team, &fake);
    headless(&team, "Who are you?", &[]).expect(0);
}
