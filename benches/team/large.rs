//! P11: large teams of live teammates, and the lead of one.

use crate::bench_team::{BenchTeam, bus, new_folder};
use crate::figure::{Figure, Size, Target, median};
use crate::members::mebibytes;
use crate::scripts::Scripts;
use crate::support::child_process::write;
use crate::terminal::{Watcher, start};
use agent_team::bus::Outgoing;
use agent_team::store::{Fsync, TeamDir, roster};
use agent_team::wire::AgentName;
use agent_team::wire::roster::Status;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time limit for a teammate's result.
const PATIENCE: Duration = Duration::from_secs(20);

/// The poll interval of the inbox.
const GLANCE: Duration = Duration::from_micros(500);

/// The time limit for the start and for the end of a lead with the largest team.
const LEAD_PATIENCE: Duration = Duration::from_secs(600);

/// The time after the last report until a lead is idle.
const REST: Duration = Duration::from_secs(5);

/// The targets of a team: seconds to ready, seconds through all, and MiB of all.
type Targets = [f64; 3];

/// Measures P11.
pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let mut figures = of_team(size.many_live, size.rounds, [1.5, 2.0, 300.0]);
    allow_many_files();
    figures.extend(of_team(size.most_live, 1, [12.0, 10.0, 900.0]));
    figures.push(of_lead(size));
    figures
}

/// Raises the limit of open files of this process and of those that it starts from now on: one for each teammate.
pub(crate) fn allow_many_files() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

fn of_team(
    count: usize,
    rounds: usize,
    [most_ready, most_round, most_memory]: Targets,
) -> Vec<Figure> {
    let [mut ready, mut round, mut memory] = [(); 3].map(|()| Vec::new());
    for _ in 0..rounds {
        let team = BenchTeam::new();
        let members = Scripts::of_teammates(&team, count);
        ready.push(members.took.as_secs_f64());
        let mut results = Results::of(&team.dir);
        let start = Instant::now();
        (0..count).for_each(|number| results.pass_through(&team.dir, number));
        round.push(start.elapsed().as_secs_f64());
        memory.push(members.pids().map(|pid| mebibytes(pid, "Pss:")).sum());
    }
    let figure = |measure, unit, ours: &[f64], most| Figure {
        id: "P11",
        measure,
        unit,
        ours: median(ours),
        reference: None,
        target: Target::Below(most),
    };
    vec![
        figure(format!("{count} teammates started to ready"), "s", &ready, most_ready),
        figure(
            format!("through all {count} in turn: message, turn, result to the lead"),
            "s",
            &round,
            most_round,
        ),
        figure(format!("PSS of all {count}"), "MiB", &memory, most_memory),
    ]
}

/// Measures the memory of a real lead that has spawned all teammates of the largest team and has got a result of each.
fn of_lead(size: &Size) -> Figure {
    let folder = new_folder();
    let count = size.most_live;
    let spawn = |number| {
        let input = json!({ "name": format!("member-{number}"), "role": "tester", "model": "rehearsal",
            "prompt": "How far are you?" });
        json!({ "name": "spawn_teammate", "input": input })
    };
    let spawns: Vec<Value> = (0..count).map(spawn).collect();
    let script = folder.path().join("script.jsonl");
    write(&script, format!("{}\n", json!({ "tools": spawns })));
    let mut lead = Command::new(env!("CARGO_BIN_EXE_team"));
    lead.args(["lead", "begin", "--model", &format!("script:{}", script.display())]);
    // Without it, the folder of a team around this one would be taken.
    lead.arg("--dir").arg(folder.path().join(".team"));
    lead.current_dir(folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    lead.env("HOME", folder.path()).env("TERM", "xterm-256color");
    lead.env("TEAM_MAX_TEAMMATES", count.to_string());
    let (mut lead, screen, keys) = start(lead);
    std::thread::scope(|scope| {
        scope.spawn(|| screen.discard());
        let team = wait_for_results(folder.path(), count);
        std::thread::park_timeout(size.lasting(REST));
        let ours = mebibytes(lead.0.id(), "Rss:");
        let members = roster::read(&team).unwrap();
        let members: Vec<i32> = members.members.iter().filter_map(|it| it.pid).collect();
        end(&mut lead);
        // The teammates end with their lead, at the latest when its sockets are closed.
        let start = Instant::now();
        while members.iter().any(|pid| fs::exists(format!("/proc/{pid}")).unwrap()) {
            assert!(
                start.elapsed() < LEAD_PATIENCE,
                "teammates of a lead that has exited are left"
            );
            std::thread::park_timeout(Duration::from_millis(50));
        }
        // The screen ends with the program.
        drop((lead, keys));
        let measure = format!("a lead with {count} live teammates: RSS");
        let target = Target::Below(60.0);
        Figure { id: "P11", measure, unit: "MiB", ours, reference: None, target }
    })
}

/// Waits until all teammates of the lead in a folder are idle and the lead has a result of each.
fn wait_for_results(folder: &Path, count: usize) -> TeamDir {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LEAD_PATIENCE, "the teammates of a lead do not become idle");
        std::thread::park_timeout(Duration::from_millis(100));
        let Ok(team) = TeamDir::open(&folder.join(".team")) else { continue };
        let Ok(roster) = roster::read(&team) else { continue };
        let idle = roster.members.iter().filter(|member| member.status == Status::Idle).count();
        let transcript =
            fs::read_to_string(team.transcript(&AgentName::lead())).unwrap_or_default();
        if idle == count && transcript.matches(r#""type":"result""#).count() >= count {
            return team;
        }
    }
}

/// Ends a lead as a person does who closes its terminal, and kills it if it does not exit in time.
fn end(lead: &mut Watcher) {
    let pid = Pid::from_raw(i32::try_from(lead.0.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let start = Instant::now();
    while lead.0.try_wait().unwrap().is_none() && start.elapsed() < LEAD_PATIENCE {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A reader of the lead's inbox, to which the results of turns are sent. No process drains it.
struct Results {
    inbox: BufReader<File>,
    line: String,
}

impl Results {
    fn of(dir: &TeamDir) -> Self {
        agent_team::store::inbox::ensure(dir, &AgentName::lead()).unwrap();
        let inbox = BufReader::new(File::open(dir.inbox(&AgentName::lead())).unwrap());
        Self { inbox, line: String::new() }
    }

    /// Sends a message to a teammate and waits for the result of its turn.
    fn pass_through(&mut self, dir: &TeamDir, number: usize) {
        let name = format!("member-{number}");
        let outgoing = Outgoing::text("How far are you?");
        // Sent as the lead, because the rehearsal model follows no other sender.
        bus(dir, Fsync::Always).send(&AgentName::lead(), &name, outgoing).unwrap();
        let start = Instant::now();
        while !self.has_result_of(&name) {
            assert!(start.elapsed() < PATIENCE, "no result of {name}");
            // Polls, because the teammates use all inotify instances of this user.
            std::thread::park_timeout(GLANCE);
        }
    }

    fn has_result_of(&mut self, name: &str) -> bool {
        // A line may be read in pieces, so an incomplete one is kept.
        while self.inbox.read_line(&mut self.line).unwrap() > 0 && self.line.ends_with('\n') {
            let message: Value = serde_json::from_str(&self.line).unwrap();
            self.line.clear();
            if message["type"] == "result" && message["from"] == name {
                return true;
            }
        }
        false
    }
}
