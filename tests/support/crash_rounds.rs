//! A whole team that dies at every named place, and comes back: nothing that was acknowledged is lost or
//! doubled, no command runs twice, whoever died goes on, nothing is left behind.
//!
//! It knows no targets: `failpoints` and the score card say where and how often.

use crate::support::events::{History, What, send};
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, bash, calls, says, script, spawn, wait};
use agent_team::store::TeamDir;
use agent_team::store::failpoint::{HANG, POINTS, VARIABLE};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Instant;

/// Leads that may run for one scenario: those that die, those that clear up.
const ROUNDS: u64 = 5;

/// Scenarios at a time. They mostly wait, the more so in a build that is quick.
const AT_ONCE: usize = if cfg!(debug_assertions) { 12 } else { 36 };

const AGENTS: [&str; 3] = ["lead", "alice", "bob"];

/// Who dies where, and what has to happen for it to get there.
#[derive(Debug, Clone)]
struct Death {
    who: &'static str,
    point: &'static str,
    skip: u64,
    /// Somebody's death that comes first.
    first: Option<(&'static str, &'static str)>,
}

/// What a run has shown.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Processes that died at each place.
    pub(crate) kills: BTreeMap<&'static str, u64>,
    /// Messages whose senders were told that they are stored.
    pub(crate) told: usize,
    /// What went wrong, with place, process and seed.
    pub(crate) faults: Vec<String>,
}

/// Lets a team die at each of the places so many times, or fewer when time is up: a round that was begun is
/// finished.
pub(crate) fn run_at(
    points: &[&'static str],
    kills_per_point: u64,
    seed: u64,
    until: Option<Instant>,
) -> Summary {
    let round = |kill| points.iter().map(move |point| death(point, kill, seed));
    let deaths = (0..kills_per_point).flat_map(round).enumerate().peekable();
    let (waiting, summary) = (Mutex::new(deaths), Mutex::new(Summary::default()));
    let next = || {
        let mut waiting = waiting.lock().unwrap();
        let begins = waiting.peek().is_some_and(|(at, _)| at % points.len() == 0);
        let is_over = begins && until.is_some_and(|until| Instant::now() > until);
        if is_over { None } else { waiting.next() }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((_, death)) = next() else { return };
                    let played = catch_unwind(AssertUnwindSafe(|| play(&death)));
                    let mut summary = summary.lock().unwrap();
                    match played {
                        Ok(told) => {
                            *summary.kills.entry(death.point).or_default() += 1;
                            summary.told += told;
                        }
                        Err(why) => {
                            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
                            summary.faults.push(format!("{death:?}, seed {seed}: {why}"));
                        }
                    }
                }
            });
        }
    });
    summary.into_inner().unwrap()
}

/// Which process dies at a place; by the rng where several come there.
fn death(point: &'static str, kill: u64, seed: u64) -> Death {
    let pick = mix(seed ^ mix(kill.wrapping_mul(131) ^ u64::try_from(position(point)).unwrap()));
    let one_of = |names: &[&'static str]| names[usize::try_from(pick).unwrap_or(0) % names.len()];
    let (kind, _) = point.split_once('.').unwrap();
    let who = match kind {
        "spawn" | "lead" | "reap" | "stop" => "lead",
        "looked" => "team",
        "config" | "replace" | "life" => one_of(&AGENTS),
        "send" | "tasks" | "tool" | "turn" if !matches!(point, "turn.idle" | "turn.resumed") => {
            one_of(&["alice", "bob"])
        }
        // Alice's inbox is put right by whoever opens it next.
        _ if needs_half_claim(point) => "lead",
        _ if matches!(point, "recover.gathered" | "recover.archived") => "lead",
        _ => "alice",
    };
    let first = match point {
        "recover.half_claim" | "recover.undone" => Some(("alice", "drain.linked")),
        "recover.counted" | "recover.cleared" => Some(("alice", "drain.claimed")),
        "spawn.failed" | "spawn.undone" => Some(("bob", "child.entered")),
        "turn.resumed" => Some(("alice", "tool.intended")),
        "reap.noted" | "reap.restart" => Some(("bob", "tool.started")),
        _ => None,
    };
    Death { who, point, skip: if kill == 0 { 0 } else { pick % 3 }, first }
}

fn needs_half_claim(point: &str) -> bool {
    matches!(point, "recover.half_claim" | "recover.undone")
}

fn position(point: &str) -> usize {
    POINTS.iter().position(|known| *known == point).unwrap()
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Until alice has died between the two names of her inbox, for a second at most.
const HALF_CLAIMED: &str = "for i in $(seq 100); do \
     [ -z \"$(find .team/inbox/alice.jsonl -links +1)\" ] || break; sleep 0.01; done";

/// The script of a round. What a later lead does has other call ids: it is another conversation.
fn scripts(round: u64, death: &Death) -> Vec<Value> {
    let looks = || (0..round).map(|_| ("list_teammates", json!({})));
    let begin = looks().chain([spawn("alice"), spawn("bob")]).collect::<Vec<_>>();
    let n = 2 * round;
    let write = |n| {
        let both = [send("lead", "alice", n), send("lead", "bob", n)];
        looks().chain(both).collect::<Vec<_>>()
    };
    let mut last = write(n + 1);
    if needs_half_claim(death.point) {
        last.insert(0, bash(HALF_CLAIMED));
    }
    let mut lines = vec![
        calls("lead", &begin),
        calls("lead", &write(n)),
        calls("lead", &last),
        says("lead", "the lead waits"),
    ];
    for (me, other) in [("alice", "bob"), ("bob", "alice")] {
        let ran = |n: u32| bash(&format!("echo {n} >> ran.{me}"));
        lines.push(calls(me, &[send(me, other, 0), ran(0), send(me, "lead", 0)]));
        let task = ("create_task", json!({ "subject": format!("a wish of {me}") }));
        lines.push(calls(me, &[task, ran(1), send(me, other, 1), send(me, "lead", 1)]));
        lines.push(says(me, &format!("{me} has done it all")));
    }
    lines
}

fn token(folder: &Path, name: &str, says: &str) -> PathBuf {
    let path = folder.join(name);
    fs::File::create(&path).unwrap().write_all(says.as_bytes()).unwrap();
    path
}

/// Plays the scenario until the process has died there and everybody has finished all the same. Gives
/// how many messages were acknowledged.
fn play(death: &Death) -> usize {
    if matches!(death.point, "stop.terminate" | "stop.kill") {
        return play_stop(death.point);
    }
    let (team, tokens) = (Team::new(), tempfile::tempdir().unwrap());
    plant(&team);
    if !needs_half_claim(death.point) {
        // Who crashed may come back at once: but to find what she left, the lead has to be first.
        team.variable("TEAM_FIRST_PAUSE_MS", "50");
    }
    let token_of_death = token(tokens.path(), "death", "");
    let first = death.first.map(|(who, point)| (who, point, token(tokens.path(), "first", "")));
    let mut finished = false;
    for round in 0..ROUNDS {
        let skip = if round == 0 { death.skip } else { 0 };
        let is_clean = !token_of_death.exists();
        let mut armed =
            format!("{}/{}+{skip}={}", death.who, death.point, token_of_death.display());
        if let Some((who, point, token)) = &first {
            if !is_clean {
                // The one who was to find what it leaves may have come too late.
                fs::File::create(token).unwrap();
            }
            write!(armed, ",{who}/{point}={}", token.display()).unwrap();
        }
        let model = script(&team, &scripts(round, death));
        let args = ["lead", "-p", "begin", "--model", &model, "--timeout", "300"];
        let mut lead = team.command("team", &args);
        lead.env(VARIABLE, &armed).stdin(Stdio::null());
        lead.stdout(Stdio::null()).stderr(Stdio::piped());
        let ran = lead.spawn().unwrap().wait_with_output().unwrap();
        team.wait_no_process();
        if death.who == "team" {
            let mut look = team.command("team", &["inbox", "alice"]);
            look.env(VARIABLE, &armed).stdout(Stdio::null());
            look.status().unwrap();
        }
        if skip > 0 && token_of_death.exists() && ran.status.code() == Some(0) {
            // It does not come there so often.
            return play(&Death { skip: skip - 1, ..death.clone() });
        }
        if is_clean && ran.status.code() == Some(0) && everybody_is_done(&team) {
            finished = true;
            break;
        }
        let timed_out = ran.status.code() == Some(124);
        assert!(!timed_out, "{}\n{}", String::from_utf8_lossy(&ran.stderr), team.picture());
    }
    assert!(!token_of_death.exists(), "{death:?} was never reached\n{}", team.picture());
    assert!(finished, "{death:?}: the team never came to its end\n{}", team.picture());
    bury(&team);
    judge(&team)
}

/// Whoever outlived its lead may be a child of ours now. While nobody waits for the dead they stay in the
/// list of processes, which everybody looks through, and thousands make everybody slow.
fn bury(team: &Team) {
    for name in ["alice", "bob"] {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        for pid in lines.iter().filter_map(|line| line["pid"].as_i64()) {
            let pid = Pid::from_raw(pid.try_into().unwrap());
            let _nobody_of_ours = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Garbage, and a link among the claims.
fn plant(team: &Team) {
    TeamDir::create(&team.path("")).unwrap();
    for name in ["alice", "lead"] {
        let mut inbox = fs::File::create(team.path(&format!("inbox/{name}.jsonl"))).unwrap();
        inbox.write_all(b"this is no message\n").unwrap();
    }
    let claim = team.path("inbox/.claim/alice.000000000008-0000beef");
    std::os::unix::fs::symlink("/etc/passwd", claim).unwrap();
}

fn everybody_is_done(team: &Team) -> bool {
    ["alice", "bob"].iter().all(|name| {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        let text = format!("{name} has done it all");
        lines.iter().any(|line| line["blocks"][0]["text"] == text.as_str())
    })
}

fn judge(team: &Team) -> usize {
    assert_left_in_order(team);
    let history = History::of(team, &AGENTS);
    let faults = history.judge();
    assert!(faults.is_empty(), "{faults:?}\n{}\n{}", history.text(), team.picture());
    for name in AGENTS {
        let mut ids = BTreeSet::new();
        for mail in team.mail_of(name) {
            let id = mail["id"].as_str().unwrap().to_owned();
            assert!(ids.insert(id), "{name} has taken {} in twice", mail["id"]);
        }
    }
    for name in ["alice", "bob"] {
        let ran = fs::read_to_string(team.workspace().join(format!("ran.{name}")));
        let ran = ran.unwrap_or_default();
        for n in ["0", "1"] {
            let times = ran.lines().filter(|line| *line == n).count();
            assert!(times <= 1, "{name} ran command {n} {times} times\n{}", team.picture());
        }
    }
    history.count(What::Told)
}

/// A member that hangs for good is taken down; whoever does it dies on the way and begins again.
fn play_stop(point: &str) -> usize {
    let (team, tokens) = (Team::new(), tempfile::tempdir().unwrap());
    let model = script(&team, &[calls("bob", &[bash("true")])]);
    let hang = token(tokens.path(), "hang", HANG);
    let args = ["teammate", "bob", "--model", &model, "--prompt", "begin"];
    let mut bob = team.command("team", &args);
    bob.env(VARIABLE, format!("turn.replied={}", hang.display()));
    bob.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bob = bob.spawn().unwrap();
    team.eventually("bob hangs", || !hang.exists());
    let death = token(tokens.path(), "death", "");
    let mut stop = team.command("team", &["stop", "bob", "--now"]);
    stop.env(VARIABLE, format!("team/{point}={}", death.display()));
    stop.stdout(Stdio::null());
    assert_eq!(stop.status().unwrap().code(), None, "it dies at {point}");
    let said = team.team(&["stop", "bob", "--now"]).expect(0);
    assert!(said.out.contains("had to be killed"), "{said:?}");
    assert_eq!(wait(&team, &mut bob), None);
    team.wait_no_process();
    assert_eq!(team.status("bob"), "shutdown");
    0
}
