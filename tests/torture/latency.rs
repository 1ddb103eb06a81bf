//! R7: the latency of a send with and without a sync, and of draining the inbox. R8: the time from a send to an
//! idle teammate until its model is called.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::child_process::{line, open, policy, team};
use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{agent_of, connect};
use crate::support::harness::{PATIENCE, Team};
use agent_team::store::{Fsync, TeamDir, inbox};
use agent_team::wire::AgentName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// A quantile of durations. The rank is in thousandths.
fn permille(took: &mut [Duration], rank: usize) -> Duration {
    took.sort();
    took[(took.len() * rank / 1_000).min(took.len() - 1)]
}

fn timed(times: u64, mut act: impl FnMut(u64)) -> Vec<Duration> {
    let each = |n| {
        let begun = Instant::now();
        act(n);
        begun.elapsed()
    };
    (0..times).map(each).collect()
}

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let (folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    inbox::ensure(&dir, &alice).unwrap();
    let (times, synced) = (run.of(1_000, 10_000, 10_000), run.of(50, 500, 5_000));
    let send = |n: u64, fsync| {
        inbox::append(&dir, &alice, line("bob", n, 200).as_bytes(), &policy(fsync)).unwrap();
    };
    let mut quick = timed(times, |n| send(n, Fsync::Never));
    let mut raw = File::create(folder.path().join("raw")).unwrap();
    let text = line("bob", 0, 200);
    // The two alternate, so that both see the disk in the same condition.
    let (mut safe, mut reference) = (Vec::new(), Vec::new());
    for n in times..times + synced {
        safe.extend(timed(1, |_| send(n, Fsync::Always)));
        reference.extend(timed(1, |_| {
            raw.write_all(text.as_bytes()).unwrap();
            raw.sync_data().unwrap();
        }));
    }
    let mut owner = open(&dir, "alice");
    let begun = Instant::now();
    let taken = owner.drain().unwrap().mail.len();
    let drained = begun.elapsed();
    assert_eq!(u64::try_from(taken).unwrap(), times + synced);
    let all = |took: &mut [Duration]| {
        [500, 990, 999].map(|rank| format!("{:.1}", micros(permille(took, rank)))).join(" / ")
    };
    let (p50, disk) = (permille(&mut safe, 500), permille(&mut reference, 500));
    let over = micros(p50) / micros(disk);
    vec![
        Finding::new(
            "send, `fsync = never`, us p50 / p99 / p99.9",
            "p50 < 20",
            &all(&mut quick),
            Verdict::of_speed(micros(permille(&mut quick, 500)) < 20.0),
        ),
        Finding::new(
            "send, `fsync = always`, us p50 / p99 / p99.9",
            "p50 < append + fdatasync + 10 %",
            &format!("{} ({over:.2} of the disk's {:.1})", all(&mut safe), micros(disk)),
            // A disk this fast is a memory file system.
            if disk < Duration::from_micros(20) {
                Verdict::Unjudged
            } else {
                Verdict::of_speed(over < 1.1)
            },
        ),
        Finding::new(
            &format!("draining {taken} messages"),
            "reported",
            &format!("{:.0} ms", drained.as_secs_f64() * 1e3),
            Verdict::Unjudged,
        ),
    ]
}

/// The mechanism by which teammates notice mail.
#[derive(Clone, Copy, PartialEq)]
enum Wake {
    Events,
    Poll,
}

pub(crate) fn of_wakes(run: Run) -> Vec<Finding> {
    let times = run.of(5, 50, 200);
    let sizes: &[(usize, u64)] =
        run.of(&[(1, 10), (4, 10)], &[(1, 10), (16, 10)], &[(1, 10), (16, 10), (100, 50)]);
    let mut findings = Vec::new();
    for (many, limit) in sizes {
        let mut took = wakes(*many, times, Wake::Events);
        let [p50, p99] = [500, 990].map(|rank| permille(&mut took, rank).as_secs_f64() * 1e3);
        #[expect(clippy::cast_precision_loss, reason = "a few milliseconds")]
        let verdict = Verdict::of_speed(p99 < *limit as f64);
        let measure = format!("send -> the model of one of {many} idle teammates is asked, p99");
        let result = format!("{p99:.1} ms (p50 {p50:.1} ms)");
        findings.push(Finding::new(&measure, &format!("< {limit} ms"), &result, verdict));
    }
    let measure = "a plain `echo >>` where there are no file events: the poll finds it, longest";
    if can_do_without_events() {
        let longest = wakes(1, times.min(20), Wake::Poll).into_iter().max().unwrap();
        let result = format!("{:.2} s", longest.as_secs_f64());
        let verdict = Verdict::of_speed(longest < Duration::from_millis(1_100));
        findings.push(Finding::new(measure, "< 1.1 s", &result, verdict));
    } else {
        findings.push(Finding::skipped(measure, "< 1.1 s", "no user namespaces here"));
    }
    findings
}

/// The command prefix of a shell in a user namespace, where the limit of inotify instances can be set to 0.
const NO_EVENTS: [&str; 5] = ["unshare", "--user", "--map-root-user", "sh", "-c"];

fn can_do_without_events() -> bool {
    let mut trial = Command::new(NO_EVENTS[0]);
    trial.args(&NO_EVENTS[1..]).arg("echo 0 > /proc/sys/user/max_inotify_instances");
    trial.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Sends to idle teammates in turn. Returns the times from each send until the endpoint is called.
fn wakes(many: usize, times: u64, wake: Wake) -> Vec<Duration> {
    let (asked, heard) = mpsc::channel();
    let fake = Fake::start(move |view: &RequestView| {
        let _nobody_waits = asked.send((Instant::now(), agent_of(view), view.last_text()));
        Reply::text("Heard.")
    });
    let team = Team::new();
    connect(&team, &fake);
    let names: Vec<String> = (0..many).map(|n| format!("t{n}")).collect();
    let mut members = Scripts(names.iter().map(|name| begin(&team, name, wake)).collect());
    for name in &names {
        team.wait_status(name, "idle");
    }
    let dir = TeamDir::open(&team.path("")).unwrap();
    let mut took = Vec::new();
    for n in 0..times {
        let name = &names[usize::try_from(n).unwrap() % many];
        let word = format!("wake-{n}-");
        let text = format!("{{\"from\":\"user\",\"id\":\"user:{n}\",\"content\":\"{word}\"}}\n");
        let to = AgentName::member(name).unwrap();
        team.eventually("it rests", || team.status(name) == "idle");
        let begun = Instant::now();
        match wake {
            Wake::Events => {
                inbox::append(&dir, &to, text.as_bytes(), &policy(Fsync::Always)).unwrap();
            }
            Wake::Poll => crate::support::child_process::append(&dir.inbox(&to), &text),
        }
        took.push(loop {
            let (at, whose, said) = heard.recv_timeout(PATIENCE).unwrap();
            if whose == *name && said.contains(&word) {
                break at - begun;
            }
        });
    }
    members.end();
    team.wait_no_process();
    took
}

fn begin(team: &Team, name: &str, wake: Wake) -> Child {
    let args = ["teammate", name, "--model", "anthropic/fake", "--mode", "bypass"];
    let inner = team.command("team", &args);
    let mut command = match wake {
        Wake::Events => inner,
        Wake::Poll => {
            let mut around = Command::new(NO_EVENTS[0]);
            around.args(&NO_EVENTS[1..]);
            around.arg("echo 0 > /proc/sys/user/max_inotify_instances; exec \"$0\" \"$@\"");
            around.arg(inner.get_program()).args(inner.get_args());
            around.env_clear().current_dir(team.workspace());
            around.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
            around
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Manually started teammates.
struct Scripts(Vec<Child>);

impl Scripts {
    fn end(&mut self) {
        for child in &self.0 {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
            kill(pid, Signal::SIGTERM).unwrap();
        }
        for child in &mut self.0 {
            child.wait().unwrap();
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
