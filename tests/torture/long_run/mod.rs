//! R23: a long run. Four teammates and their lead work through a copy of this project's source tree with real
//! tools, with a context that is too small for it and a token limit. Halfway all processes are killed. After
//! one `--resume` the work continues, and the job's own tests pass at the end.
//!
//! The fake endpoint replaces the models: the figure measures the program, not the abilities of a model.

mod job;
mod play;

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::child_process::write;
use crate::support::fake::Fake;
use crate::support::fake_models::{LEAD, connect};
use crate::support::harness::Team;
use job::Job;
use play::{MEMBERS, Play, name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The context of the fake models in tokens, for long and for short runs. Both are too small for the whole run.
const CONTEXT: u64 = 32_000;
const SHORT_CONTEXT: u64 = 14_000;

/// Runs below this duration get `SHORT_CONTEXT`.
const SHORT: Duration = Duration::from_secs(5 * 60);

/// The number of model calls of a member for ten files, including messages and summaries.
const CALLS_OF_TEN: u32 = 44;

/// The shortest delay of an answer.
const FASTEST: Duration = Duration::from_millis(400);

/// The maximum number of files of each member.
const ALL: usize = 1_000;

/// The limit of an agent's resident memory, in KiB.
const MOST_RESIDENT: u64 = 64 * 1024;

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let time = run.limit.unwrap_or_else(|| Duration::from_secs(run.of(25, 120, 3600)));
    // Half of the time is left for the tools, the start and the end.
    let each = (time / 2).as_millis() / (FASTEST * CALLS_OF_TEN / 10).as_millis();
    Story::begin(run, time, usize::try_from(each).unwrap().clamp(3, ALL)).tell()
}

/// The team and its measurements.
struct Story {
    team: Team,
    fake: Fake,
    play: Arc<Play>,
    time: Duration,
    cap: u64,
    begun: Instant,
    /// The highest resident memory of each agent, in KiB.
    resident: BTreeMap<String, u64>,
}

impl Story {
    fn begin(run: Run, time: Duration, each: usize) -> Self {
        let team = Team::of_copies();
        let job = Job::lay_out(team.workspace(), MEMBERS, each);
        let calls = CALLS_OF_TEN * u32::try_from(job.share(0).len()).unwrap() / 10;
        let pace = (time / calls).max(FASTEST);
        let context = if time < SHORT { SHORT_CONTEXT } else { CONTEXT };
        let cap = u64::from(calls) * MEMBERS as u64 * context;
        let play = Arc::new(Play::new(job, context, pace, run.rng(23)));
        let player = Arc::clone(&play);
        let fake = Fake::without_history(move |view| player.answer(view));
        connect(&team, &fake);
        for (variable, value) in
            [("TEAM_CONTEXT_TOKENS", context.to_string()), ("TEAM_MAX_ROUNDS", "100000".into())]
        {
            team.variable(variable, &value);
        }
        // The job uses the tools on the user's `PATH`, and rustup.
        let mine: BTreeMap<String, String> = std::env::vars().collect();
        let home = mine.get("HOME").map(|home| format!("{home}/.rustup"));
        let rustup = mine.get("RUSTUP_HOME").cloned().or(home);
        for (variable, value) in [("PATH", mine.get("PATH").cloned()), ("RUSTUP_HOME", rustup)] {
            team.variable(variable, &value.unwrap_or_default());
        }
        let story =
            Self { team, fake, play, time, cap, begun: Instant::now(), resident: BTreeMap::new() };
        assert_eq!(story.team.team(&["init"]).code, Some(0));
        story.cap_at(cap);
        story
    }

    fn cap_at(&self, tokens: u64) {
        write(&self.team.path("settings.toml"), format!("[budget.team]\ntokens = {tokens}\n"));
    }

    /// Starts a headless lead whose output goes to a file.
    fn lead(&self, further: &[&str]) -> Child {
        let limit = (self.time * 3).as_secs().to_string();
        let words = [&LEAD[..], &["--timeout", &limit, "--output", "json"], further].concat();
        let mut command = self.team.command("team", &words);
        let file = |name: &str| {
            File::options()
                .create(true)
                .append(true)
                .open(self.team.workspace().join(name))
                .unwrap()
        };
        command
            .stdin(std::process::Stdio::null())
            .stdout(file("said.json"))
            .stderr(file("said.log"));
        command.spawn().unwrap()
    }

    /// Samples the peak memory of every agent until a condition holds.
    fn watch_until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let limit = Instant::now() + self.time * 3;
        while !is_so(self) {
            assert!(Instant::now() < limit, "it takes too long\n{}", self.team.describe());
            for agent in (0..MEMBERS).map(name).chain(["lead".to_owned()]) {
                let most = peak(&self.team, &agent);
                let known = self.resident.entry(agent).or_default();
                *known = most.max(*known);
            }
            std::thread::park_timeout(Duration::from_millis(250));
        }
    }

    fn tell(mut self) -> Vec<Finding> {
        let mut first = self.lead(&["-p", "Let the four work."]);
        let half = self.play.job.files() / 2;
        self.watch_until(|story| {
            assert!(first.try_wait().unwrap().is_none(), "it ended\n{}", story.team.describe());
            story.play.job.checked() >= half
        });
        let (killed, at) = (self.team.kill_all(), self.begun.elapsed());
        first.wait().unwrap();
        self.play.all_died();
        let before = self.counted();
        let dealt_before = self.dealt();
        let mut second = self.lead(&["-p", "Go on.", "--resume"]);
        let mut ended = None;
        self.watch_until(|_| {
            ended = second.try_wait().unwrap();
            ended.is_some()
        });
        let code = ended.unwrap().code();
        self.team.wait_no_process();
        let took = self.begun.elapsed();
        let green = self.play.told().verdict.clone();
        assert_eq!(code, Some(0), "{green}\n{}", self.team.describe());
        let uncounted = dealt_before.saturating_sub(before);
        let accounted = self.dealt() - self.counted();
        let facts = Facts { killed, at, took, green, uncounted, accounted };
        self.judged(&facts)
    }

    /// The number of tokens that the fake endpoint has reported.
    fn dealt(&self) -> u64 {
        self.play.told().of.values().map(|[_, read, written]| read + written).sum()
    }

    /// The number of tokens that the team has counted.
    fn counted(&self) -> u64 {
        let used = self.team.team(&["ls", "--json"]).json()["used"].clone();
        let number = |field: &str| used[field].as_u64().unwrap_or_default();
        number("input_tokens") + number("output_tokens")
    }

    fn transcript(&self, agent: &str, kind: &str) -> Vec<Value> {
        let lines = self.team.lines(&format!("transcript/{agent}.jsonl"));
        lines.into_iter().filter(|line| line["kind"] == kind).collect()
    }

    fn judged(mut self, facts: &Facts) -> Vec<Finding> {
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        let story = format!(
            "{:.1} min, {MEMBERS} teammates and their lead on {} files, scripted models, \
             real tools",
            minutes(facts.took),
            self.play.job.files()
        );
        let is_green = facts.green.contains("green") && !facts.green.contains("[exit code");
        let work = Finding::new(
            &format!("{story}: the job's own tests"),
            "green",
            &last_lines(&facts.green),
            Verdict::of(is_green),
        );
        let (twice, mail_twice) = (self.play.job.twice(), self.mail_twice());
        let lives = Finding::new(
            "the same: kill -9 of everything at half of the work, one --resume",
            "no command twice, no mail twice",
            &format!(
                "{} processes killed after {:.1} min; commands twice: {}, mail twice: {mail_twice}",
                facts.killed,
                minutes(facts.at),
                if twice.is_empty() { "0" } else { &twice }
            ),
            Verdict::of(twice.is_empty() && mail_twice == 0),
        );
        let cost = self.cost(facts);
        let resident =
            self.resident.iter().map(|(who, most)| format!("{who} {:.1}", mebibytes(*most)));
        let resident = resident.collect::<Vec<_>>().join(", ");
        let most = self.resident.values().copied().max().unwrap_or_default();
        let memory = Finding::new(
            "the same: most resident memory of each, MiB",
            "< 64 MiB",
            &resident,
            Verdict::of(most > 0 && most < MOST_RESIDENT),
        );
        let contexts = self.contexts();
        let replayed = self.replayed();
        vec![work, lives, cost, contexts, memory, replayed, self.at_the_cap()]
    }

    fn cost(&self, facts: &Facts) -> Finding {
        let told = self.play.told();
        let calls: u64 = told.of.values().map(|[calls, _, _]| calls).sum();
        let cap = self.cap;
        drop(told);
        let (dealt, counted) = (self.dealt(), self.counted());
        // The fake endpoint reports tokens for a call that the kill interrupts, but no agent counts them.
        let most = (MEMBERS as u64 + 1) * 2 * self.play.context;
        Finding::new(
            "the same: tokens counted, of those of the fake, under the cap",
            "all but those of calls that the kill cut off",
            &format!(
                "{counted} of {dealt} in {calls} calls, cap {cap}; {} were cut off by the kill",
                facts.uncounted
            ),
            Verdict::of(
                counted <= dealt && facts.accounted <= most && counted < cap && counted > 0,
            ),
        )
    }

    /// Judges the number of summaries of each teammate, and the length of the longest request.
    fn contexts(&self) -> Finding {
        let agents = (0..MEMBERS).map(name);
        let summaries: Vec<usize> =
            agents.map(|agent| self.transcript(&agent, "compacted").len()).collect();
        let (longest, context) = (self.play.told().longest, self.play.context);
        let result =
            format!("summaries {summaries:?}; the longest request {longest} of {context} tokens");
        Finding::new(
            "the same: conversations longer than their context",
            "summarized in time, no request too long",
            &result,
            Verdict::of(longest <= context && summaries.iter().all(|count| *count > 0)),
        )
    }

    /// The number of messages that a teammate received again.
    fn mail_twice(&self) -> usize {
        let mut twice = 0;
        for agent in (0..MEMBERS).map(name) {
            let mut seen = BTreeSet::new();
            for line in self.transcript(&agent, "mail") {
                let id = line["message"]["id"].as_str().unwrap_or_default().to_owned();
                twice += usize::from(!seen.insert(id));
            }
        }
        twice
    }

    /// Plays the run again, twice, with its kill and its resume. The results of tools come from the record, since a call
    /// that the kill cut off may have done its work.
    fn replayed(&self) -> Finding {
        let play = |into: &str| {
            let ran =
                self.team.team(&["replay", ".", "--into", into, "--tools", "recorded", "--json"]);
            let told = ran.json();
            // A kill between a last reply and the end of its turn is the only one that is not played.
            let cut = told["cut"].as_str().unwrap_or_default();
            let is_right = cut.is_empty() || cut.contains("between two steps");
            let members = told["members"].as_array().cloned().unwrap_or_default();
            let alike: u64 = members.iter().filter_map(|member| member["alike"].as_u64()).sum();
            let first = members.iter().find(|member| !member["difference"].is_null());
            let first = first.map(|member| format!(", then {member}")).unwrap_or_default();
            let is_alike = ran.code == Some(0) && told["alike"] == true && is_right;
            (is_alike, format!("{alike} entries alike{first} {cut}").trim().to_owned())
        };
        let (one, other) = (play("again"), play("once-more"));
        Finding::new(
            "the same, played again by `team replay --tools recorded`, twice",
            "no difference",
            &format!("{}; {}", one.1, other.1),
            Verdict::of(one.0 && other.0),
        )
    }

    /// Resumes the team with a limit equal to its usage. It must exit with code 7 and call no model.
    fn at_the_cap(&mut self) -> Finding {
        self.cap_at(self.counted());
        let calls = |story: &Self| story.play.told().of.values().map(|[n, _, _]| n).sum::<u64>();
        let before = calls(self);
        let code = self.lead(&["-p", "More.", "--resume"]).wait().unwrap().code();
        self.team.wait_no_process();
        let further = calls(self) - before;
        assert!(self.fake.take_violations().is_empty(), "a request was not valid");
        Finding::new(
            "the same, resumed with a cap that is used up",
            "exit 7, no call",
            &format!("exit {code:?}, {further} calls"),
            Verdict::of(code == Some(7) && further == 0),
        )
    }
}

/// The results of the run.
struct Facts {
    killed: usize,
    at: Duration,
    took: Duration,
    green: String,
    /// The number of reported tokens that the team had not counted after the kill.
    uncounted: u64,
    /// The same at the end.
    accounted: u64,
}

/// The last two lines of a check's output, in reverse order on one line.
fn last_lines(text: &str) -> String {
    text.lines().rev().take(2).collect::<Vec<_>>().join("; ")
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

/// The peak memory of an agent's process in KiB, or 0 if it is gone.
fn peak(team: &Team, agent: &str) -> u64 {
    let record = fs::read_to_string(team.path(&format!("run/{agent}.lock"))).unwrap_or_default();
    let record: Value = serde_json::from_str(&record).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{}/status", record["pid"])).unwrap_or_default();
    let is_agent =
        status.lines().next().is_some_and(|line| line.contains("team") || line.contains("lead"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).filter(|_| is_agent);
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or_default()
}
