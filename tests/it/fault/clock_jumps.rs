//! Jumps of the wall clock while a lead, teammates and commands run: no member is restarted, nothing expires,
//! and the order of mail is kept.
//!
//! The clock of the machine is shared, so it is not changed. The team runs in its own mount namespace, in which a
//! preloaded C library adds the number of seconds in a file to the wall clock. Monotonic clocks are not changed,
//! as in a real jump.

use crate::support::child_process::write;
use crate::support::harness::{Team, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, last_exit, says, script, spawn, tool_results, wait_file,
};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DAY: f64 = 86_400.0;

/// The source of the preloaded library: wrappers of the C library's clock functions.
const SHIM: &str = r"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) {
    char text[32] = {0};
    int file = syscall(SYS_openat, AT_FDCWD, SHIFT, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    (void)zone;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}
time_t time(time_t *place) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
";

/// A shifted wall clock for one team.
struct Shifted {
    folder: tempfile::TempDir,
}

impl Shifted {
    /// Builds and tries the library. Returns `None`, with a notice, if this machine does not support it.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        for inside in ["etc", "work"] {
            fs::create_dir(folder.path().join(inside)).unwrap();
        }
        let shifted = Self { folder };
        shifted.jump(0.0);
        write(&shifted.path("shim.c"), SHIM);
        let library = shifted.path("shim.so");
        write(&shifted.path("etc/ld.so.preload"), format!("{}\n", library.display()));
        let mut compiler = Command::new("cc");
        compiler.arg(format!("-DSHIFT=\"{}\"", shifted.path("shift").display()));
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(shifted.path("shim.c"));
        let is_made = |command: &mut Command| {
            command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
        };
        shifted.jump(DAY);
        let look = format!("{} && test $(date +%s) -gt $(($1 + 80000))", shifted.entrance());
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &look, "-", &real_time().to_string()]);
        let can = is_made(&mut compiler) && is_made(&mut unshare);
        shifted.jump(0.0);
        if !can {
            skipped("no C compiler, or no mount namespace: no clock is moved");
        }
        can.then_some(shifted)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside)
    }

    /// The shell command that enables the library in a new mount namespace.
    fn entrance(&self) -> String {
        let [etc, work] = ["etc", "work"].map(|inside| self.path(inside).display().to_string());
        format!("mount -t overlay overlay -o lowerdir=/etc,upperdir={etc},workdir={work} /etc")
    }

    /// Sets the clock to the real time plus this many seconds.
    fn jump(&self, seconds: f64) {
        write(&self.path("next"), format!("{seconds:.0}"));
        fs::rename(self.path("next"), self.path("shift")).unwrap();
    }
}

fn real_time() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// The times of the lines of a transcript, in seconds relative to the real time.
fn times(team: &Team, name: &str) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "days are meant")]
    let now = real_time() as f64;
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    lines.iter().map(|line| line["at"].as_f64().unwrap() - now).collect()
}

/// The clock jumps ten years ahead, then back to ten days ago. Meanwhile one member runs a command, one waits for
/// its model and one is idle.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_team_continues_after_a_clock_jump() {
    let Some(clock) = Shifted::new() else { return };
    // Behind walls a command would not see the file with the shift.
    let team = Team::without_walls();
    team.variable("TEAM_HUNG_AFTER", "30");
    let waits = "touch alice.here; until [ -e go ]; do sleep 0.05; done; date +%s > alice.date";
    let lines = [
        calls("lead", &["alice", "bob", "carol"].map(spawn)),
        says("lead", "spawned"),
        calls("alice", &[bash(waits)]),
        says("alice", "alice is through"),
        json!({ "agent": "bob", "text": "bob has thought", "delay_ms": 8_000 }),
        says("carol", "ready"),
    ];
    let model = script(&team, &lines);
    let line = format!(
        "exec unshare --mount sh -c '{} && exec {} lead --model {model}'",
        clock.entrance(),
        program("team").display()
    );
    let mut lead = Terminal::start(team.shell(&line));
    lead.expect("/quit ends the team");
    lead.type_line("begin");
    wait_file(&team, "alice.here");
    team.wait_status("carol", "idle");
    team.wait_status("bob", "working");
    let before = ["lead", "alice", "bob", "carol"].map(|name| team.pid_of(name));
    let mail = |text: &str| {
        team.team(&["send", "carol", text]).expect(0);
        team.eventually(text, || team.has_mail("carol", "user", text));
        team.wait_status("carol", "idle");
    };
    mail("first: before");
    clock.jump(3_650.0 * DAY);
    mail("second: ten years ahead");
    team.eventually("bob's answer is in", || team.has_mail("lead", "bob", "bob has thought"));
    clock.jump(-10.0 * DAY);
    mail("third: ten days ago");
    write(&team.workspace().join("go"), "");
    team.eventually("alice reports", || team.has_mail("lead", "alice", "alice is through"));
    team.team(&["ls"]).expect(0);
    assert_eq!(["lead", "alice", "bob", "carol"].map(|name| team.pid_of(name)), before);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());

    for name in ["alice", "bob", "carol"] {
        let member = team.member(name);
        assert_eq!((&member["restarts"], &member["status"]), (&json!(0), &json!("shutdown")));
        assert_eq!(last_exit(&team, name).0, "team_stopped", "{}", team.describe());
    }
    let (_, text, failed) = tool_results(&team, "alice").remove(0);
    assert!(!failed, "alice's command was let be: {text}");
    let order: Vec<String> = team.mail_of("carol").iter().map(content_of).collect();
    let heard: Vec<&str> =
        order.iter().filter_map(|text| text.split_once(": ")).map(|it| it.0).collect();
    assert_eq!(heard, ["first", "second", "third"], "{order:?}");
    // The jumps were visible to agents and to commands.
    let (lead_times, carol) = (times(&team, "lead"), times(&team, "carol"));
    for times in [lead_times, carol] {
        assert!(times.iter().any(|at| *at > 3_600.0 * DAY), "{times:?}");
        assert!(times.iter().any(|at| *at < -9.0 * DAY), "{times:?}");
    }
    let date = fs::read_to_string(team.workspace().join("alice.date")).unwrap();
    assert!(date.trim().parse::<u64>().unwrap() < real_time() - 800_000, "{date}");
    assert_left_in_order(&team);
}

fn content_of(mail: &serde_json::Value) -> String {
    mail["content"].as_str().unwrap_or_default().to_owned()
}
