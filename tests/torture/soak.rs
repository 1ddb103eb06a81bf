//! R21: a team that works for hours under faults. Eight teammates get messages all the time, run commands and write
//! to each other on an endpoint that spoils some of its answers. One after the other is killed and comes back. Mail
//! must arrive once, and descriptors, memory and disk must not grow.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::rng::Rng;
use crate::support::fake::{FAULTS, Fake, Reply, RequestView};
use crate::support::fake_models::{agent_of, at_terminal, call, connect};
use crate::support::harness::Team;
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TEAMMATES: usize = 8;

/// The duration that the target asks for.
const WHOLE: Duration = Duration::from_secs(8 * 3600);

/// Shorter runs hardly leave the warm-up: their growth is told, but not judged.
const JUDGED: Duration = Duration::from_secs(20 * 60);

/// The context of the fake model in tokens. Each conversation is summarized again and again.
const CONTEXT: u64 = 14_000;

/// The average pause between two messages.
const PACE: Duration = Duration::from_millis(750);

/// One of this many answers is spoiled.
const SPOILED: u64 = 20;

/// The number of samples of a run. The first fifth is the warm-up; the second is compared with the last.
const SAMPLES: u32 = 60;

/// The growth that counts as flat.
const FLAT: f64 = 0.05;

fn name(n: usize) -> String {
    format!("t{n}")
}

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let time = run.limit.unwrap_or_else(|| run.of(Duration::from_secs(20), WHOLE / 240, WHOLE));
    Soak::begin(run).run_for(time)
}

/// The team, what was sent to it, and its samples.
struct Soak {
    team: Team,
    fake: Fake,
    lead: Terminal,
    rng: Rng,
    /// The ids of the acknowledged messages and their recipients.
    sent: BTreeMap<String, String>,
    refused: usize,
    kills: usize,
    samples: Vec<Sample>,
}

impl Soak {
    fn begin(run: Run) -> Self {
        let faults = Mutex::new(run.rng(21));
        let fake = Fake::without_history(move |view| {
            let reply = answer(view);
            let mut rng = faults.lock().unwrap();
            if rng.below(SPOILED) > 0 { reply } else { FAULTS[rng.index(FAULTS.len())](reply) }
        });
        let team = Team::of_copies();
        connect(&team, &fake);
        team.variable("TEAM_CONTEXT_TOKENS", &CONTEXT.to_string());
        let mut lead = at_terminal(&team);
        team.wait_status("lead", "idle");
        lead.type_line("Let the eight work.");
        for n in 0..TEAMMATES {
            team.wait_status(&name(n), "idle");
        }
        let (sent, samples) = (BTreeMap::new(), Vec::new());
        Self { team, fake, lead, rng: run.rng(22), sent, refused: 0, kills: 0, samples }
    }

    fn run_for(mut self, time: Duration) -> Vec<Finding> {
        let begun = Instant::now();
        let kill_each = (time / 4).min(Duration::from_secs(60));
        let (mut next_kill, mut next_sample) = (begun + kill_each / 2, begun);
        while begun.elapsed() < time {
            let now = Instant::now();
            if now >= next_kill {
                self.kill_one();
                next_kill = now + kill_each;
            }
            if now >= next_sample {
                self.samples.push(Sample::of(&self.team));
                next_sample += time / SAMPLES;
            }
            self.send_one();
            self.rng.pause(2 * PACE);
        }
        self.come_to_rest();
        self.judged(begun.elapsed(), time)
    }

    fn send_one(&mut self) {
        let to = name(self.rng.index(TEAMMATES));
        let content = format!("note {}", self.sent.len() + self.refused);
        let ran = self.team.team(&["send", &to, &content, "--json"]);
        match ran.code {
            Some(0) => {
                let id = ran.json()["id"].as_str().unwrap().to_owned();
                self.sent.insert(id, to);
            }
            // A member that was just killed has no process to receive it.
            _ => self.refused += 1,
        }
    }

    /// Kills a teammate at any moment. A teammate that is just coming back is left alone.
    fn kill_one(&mut self) {
        let victim = name(self.rng.index(TEAMMATES));
        if let Some(pid) = pid_of(&self.team, &victim) {
            let pid = nix::unistd::Pid::from_raw(pid);
            let killed = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            self.kills += usize::from(killed.is_ok());
        }
    }

    /// Lets the members work off their mail, then ends the team.
    fn come_to_rest(&mut self) {
        let is_idle = |name: String| self.team.status(&name) == "idle";
        self.team.eventually("all members are idle", || {
            (0..TEAMMATES).map(name).chain(["lead".to_owned()]).all(is_idle)
        });
        self.lead.type_line("/quit");
        self.lead.wait();
        self.team.wait_no_process();
        assert!(self.fake.take_violations().is_empty(), "a request was not valid");
    }

    fn judged(self, took: Duration, asked: Duration) -> Vec<Finding> {
        let mut arrived: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut summaries = 0;
        for to in (0..TEAMMATES).map(name) {
            for line in self.team.lines(&format!("transcript/{to}.jsonl")) {
                if let Some(id) = line["message"]["id"].as_str() {
                    *arrived.entry((id.to_owned(), to.clone())).or_default() += 1;
                }
                summaries += usize::from(line["kind"] == "compacted");
            }
        }
        let is_there = |(id, to): &(&String, &String)| {
            arrived.contains_key(&(String::clone(id), String::clone(to)))
        };
        let lost = self.sent.iter().filter(|one| !is_there(one)).count();
        let twice = arrived.values().filter(|times| **times > 1).count();
        let story = format!(
            "{:.1} min, {TEAMMATES} teammates under faults: {} killed, {summaries} summaries",
            took.as_secs_f64() / 60.0,
            self.kills
        );
        let is_whole = asked >= WHOLE;
        let of_length = |is_met: bool| match is_met {
            true if !is_whole => Verdict::Shorter,
            is_met => Verdict::of(is_met),
        };
        let mail = Finding::new(
            &format!("{story}: mail"),
            "each acknowledged message once",
            &format!(
                "{} acknowledged, {} refused, {lost} lost, {twice} twice",
                self.sent.len(),
                self.refused
            ),
            of_length(lost + twice == 0 && self.kills > 0),
        );
        let mut findings = vec![mail];
        for Part { what, unit, of } in PARTS {
            let typical = |samples: &[Sample]| median(samples.iter().map(of).collect());
            let fifth = self.samples.len() / 5;
            let first = typical(&self.samples[fifth..2 * fifth]);
            let last = typical(&self.samples[4 * fifth..]);
            let growth = last / first - 1.0;
            findings.push(Finding::new(
                &format!("the same: {what}, early and late in the run"),
                "grows by less than 5 %",
                &format!("{first:.1} and {last:.1}{unit}, {:+.1} %", growth * 100.0),
                if asked < JUDGED { Verdict::Unjudged } else { of_length(growth < FLAT) },
            ));
        }
        findings
    }
}

/// A part of a sample.
struct Part {
    what: &'static str,
    unit: &'static str,
    of: fn(&Sample) -> f64,
}

const PARTS: [Part; 5] = [
    Part { what: "open descriptors of all agents", unit: "", of: |it| it.descriptors },
    Part { what: "resident memory of the lead", unit: " MiB", of: |it| it.lead },
    Part { what: "resident memory of a teammate", unit: " MiB", of: |it| it.teammate },
    Part { what: "files under .team", unit: "", of: |it| it.files },
    Part { what: "disk without conversations and logs", unit: " KiB", of: |it| it.disk },
];

/// The resources of the team at one moment.
struct Sample {
    descriptors: f64,
    /// Resident memory in MiB: of the lead, and the median of the teammates.
    lead: f64,
    teammate: f64,
    files: f64,
    /// The size of `.team` in KiB, without what only grows by contract: conversations and logs.
    disk: f64,
}

impl Sample {
    fn of(team: &Team) -> Self {
        let of = |name: &str| pid_of(team, name).and_then(cost);
        let (lead_descriptors, lead) = of("lead").unwrap_or_default();
        let teammates: Vec<(f64, f64)> = (0..TEAMMATES).filter_map(|n| of(&name(n))).collect();
        // A teammate that is coming back counts as one of the others.
        let each = median(teammates.iter().map(|cost| cost.0).collect());
        #[expect(clippy::cast_precision_loss, reason = "eight")]
        let descriptors = lead_descriptors + each * TEAMMATES as f64;
        let (mut files, mut disk) = (0.0, 0.0);
        count(&team.path(""), &mut files, &mut disk);
        let teammate = median(teammates.iter().map(|cost| cost.1).collect());
        Self { descriptors, lead, teammate, files, disk }
    }
}

/// Counts the files under a folder and their KiB on the disk, the latter without conversations and logs.
fn count(folder: &Path, files: &mut f64, disk: &mut f64) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.path().symlink_metadata() else { continue };
        if found.is_dir() {
            let (mut inner_files, mut inner_disk) = (0.0, 0.0);
            count(&entry.path(), &mut inner_files, &mut inner_disk);
            let only_grows = ["transcript", "log"].iter().any(|name| entry.file_name() == *name);
            *files += inner_files;
            *disk += if only_grows { 0.0 } else { inner_disk };
        } else {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let kibibytes = found.blocks() as f64 / 2.0;
            *files += 1.0;
            *disk += kibibytes;
        }
    }
}

/// The open descriptors and the resident memory in MiB of a process, unless it has ended.
fn cost(pid: i32) -> Option<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().split(' ').next()?.parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((f64::from(u32::try_from(descriptors).ok()?), kibibytes / 1024.0))
}

/// The pid of an agent by the roster.
fn pid_of(team: &Team, name: &str) -> Option<i32> {
    let entry = if name == "lead" { team.roster()["lead"].clone() } else { team.member(name) };
    entry["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The reply of the fake model: the lead spawns all, a note leads to a command and sometimes to a message.
fn answer(view: &RequestView) -> Reply {
    let used = view.body.to_string().len() as u64 / 4;
    if used > CONTEXT {
        let message = format!("prompt is too long: {used} tokens > {CONTEXT} maximum");
        return Reply::error(400, "invalid_request_error", &message);
    }
    let reply = if view.body["tools"].is_null() {
        Reply::text("NOTES: notes came and were worked on.")
    } else if agent_of(view) == "lead" {
        lead(view)
    } else {
        teammate(view)
    };
    reply.usage(used, 20)
}

fn lead(view: &RequestView) -> Reply {
    if !view.last_text().contains("Let the eight work.") || !view.results().is_empty() {
        return Reply::text("I see.");
    }
    (0..TEAMMATES).fold(Reply::message(), |reply, n| {
        let order = json!({ "name": name(n), "role": "worker", "prompt": "Wait for notes." });
        reply.tool(&format!("call-{}-{n}", view.number), "spawn_teammate", &order)
    })
}

fn teammate(view: &RequestView) -> Reply {
    if !view.results().is_empty() || !view.last_text().contains("note ") {
        return Reply::text("It is done.");
    }
    let at = view.number;
    if at.is_multiple_of(4) {
        let mine = agent_of(view);
        let to = (0..TEAMMATES).map(name).find(|name| *name != mine).unwrap();
        let greeting: Value = json!({ "to": to, "content": format!("greetings {at}") });
        return call(view, "send_message", &greeting);
    }
    call(view, "bash", &json!({ "command": format!("echo {at}; seq 200") }))
}
