//! A team that is killed at every failpoint and restarted. No acknowledged message is lost or delivered twice, no
//! command runs twice, the killed process continues, and no process or claim is left behind.
//!
//! `fault::failpoints` and the score card choose failpoints and repetitions.

use crate::support::events::{EventKind, History, send};
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

/// The number of leads that one scenario may start: those that are killed, and those that recover.
const ROUNDS: u64 = 5;

/// The number of scenarios that run at the same time. They mostly wait; more of them would take longer in all.
const AT_ONCE: usize = if cfg!(debug_assertions) { 12 } else { 16 };

const AGENTS: [&str; 3] = ["lead", "alice", "bob"];

/// A kill: the process, the failpoint, and the kill that must precede it.
#[derive(Debug, Clone)]
struct Death {
    who: &'static str,
    point: &'static str,
    skip: u64,
    /// A kill that must come first: a process and a failpoint.
    first: Option<(&'static str, &'static str)>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// The number of kills at each failpoint.
    pub(crate) kills: BTreeMap<&'static str, u64>,
    /// The number of acknowledged messages.
    pub(crate) told: usize,
    /// The faults, with failpoint, process and seed.
    pub(crate) faults: Vec<String>,
}

/// Kills a team at each failpoint this many times, or until the time limit. A round that has begun is
/// completed.
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

/// Chooses the process to kill at a failpoint, at random if several processes reach it.
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
        // The next process that opens alice's inbox repairs it.
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

/// The shell command that waits until alice was killed between link and rename of her inbox, for at most ten seconds.
const HALF_CLAIMED: &str = "for i in $(seq 1000); do \
     [ -z \"$(find .team/inbox/alice.jsonl -links +1)\" ] || break; sleep 0.01; done";

/// Returns the script of a round. The calls of a later lead have other ids, because it has a new conversation.
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

/// Runs the scenario until the process was killed at the failpoint and all members have finished. Returns the
/// number of acknowledged messages.
fn play(death: &Death) -> usize {
    if matches!(death.point, "stop.terminate" | "stop.kill") {
        return play_stop(death.point);
    }
    let (team, tokens) = (Team::new(), tempfile::tempdir().unwrap());
    add_invalid_files(&team);
    if !needs_half_claim(death.point) {
        // A crashed member may be restarted immediately. With a half claim, the lead must find it before alice
        // restarts.
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
                // The first kill is armed again: the process that should find its leftovers may have started too
                // late.
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
        // Exit code 8 reports the tasks that the members have created and nobody does.
        let has_ended = matches!(ran.status.code(), Some(0 | 8));
        if skip > 0 && token_of_death.exists() && has_ended {
            // The process reaches the failpoint less often than that.
            return play(&Death { skip: skip - 1, ..death.clone() });
        }
        if is_clean && has_ended && all_done(&team) {
            finished = true;
            break;
        }
        let timed_out = ran.status.code() == Some(124);
        assert!(!timed_out, "{}\n{}", String::from_utf8_lossy(&ran.stderr), team.describe());
    }
    assert!(!token_of_death.exists(), "{death:?} was never reached\n{}", team.describe());
    assert!(finished, "{death:?}: the team never came to its end\n{}", team.describe());
    reap_members(&team, &["alice", "bob"]);
    check(&team)
}

/// Reaps members that outlived their lead and became children of this process. Otherwise thousands of zombies
/// would slow down every scan of the process table.
pub(crate) fn reap_members(team: &Team, names: &[impl AsRef<str>]) {
    for name in names {
        let name = name.as_ref();
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        for pid in lines.iter().filter_map(|line| line["pid"].as_i64()) {
            let pid = Pid::from_raw(pid.try_into().unwrap());
            let _nobody_of_ours = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Adds an invalid line to two inboxes, and a symbolic link among the claims.
fn add_invalid_files(team: &Team) {
    TeamDir::create(&team.path("")).unwrap();
    for name in ["alice", "lead"] {
        let mut inbox = fs::File::create(team.path(&format!("inbox/{name}.jsonl"))).unwrap();
        inbox.write_all(b"this is no message\n").unwrap();
    }
    let claim = team.path("inbox/.claim/alice.000000000008-0000beef");
    std::os::unix::fs::symlink("/etc/passwd", claim).unwrap();
}

fn all_done(team: &Team) -> bool {
    ["alice", "bob"].iter().all(|name| {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        let text = format!("{name} has done it all");
        lines.iter().any(|line| line["blocks"][0]["text"] == text.as_str())
    })
}

fn check(team: &Team) -> usize {
    assert_left_in_order(team);
    let history = History::of(team, &AGENTS);
    let faults = history.check();
    assert!(faults.is_empty(), "{faults:?}\n{}\n{}", history.text(), team.describe());
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
            assert!(times <= 1, "{name} ran command {n} {times} times\n{}", team.describe());
        }
    }
    history.count(EventKind::Told)
}

/// Stops a hung member with a process that is killed at the failpoint, and then stops it with another one.
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
