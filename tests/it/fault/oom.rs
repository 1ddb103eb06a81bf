//! A machine without free memory: the kernel kills commands first, then teammates, and the lead last. The other
//! processes continue.

use crate::support::cgroup::{Group, Limit};
use crate::support::harness::{Team, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, last_exit, says, script, signal, spawn, tool_results,
    wait_file,
};
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;
use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The memory limit in bytes, for a lead, a teammate, and the memory that the test consumes.
const LIMIT: &str = "268435456";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// A control group with a memory limit. `None` if this machine does not support it.
fn group() -> Option<Group> {
    let is_memory = nix::sys::statfs::statfs(MEMORY)
        .is_ok_and(|known| known.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    let limits: [Limit<'_>; 2] = [
        ("/sys/fs/cgroup/memory", &[("memory.limit_in_bytes", LIMIT), ("cgroup.procs", "")]),
        ("/sys/fs/cgroup", &[("memory.max", LIMIT), ("cgroup.procs", "")]),
    ];
    let group = Group::new("memory", if is_memory { &limits } else { &[] })?;
    // Swap has to be limited as well. Machines without swap lack this file.
    let _unneeded = group.set("memory.swap.max", "0");
    Some(group)
}

/// Consumes memory in small steps, as a file in a memory file system: a kill does not free it.
///
/// The kernel may account the memory of a small killed process too late and kill a second process immediately.
/// The second process is this consumer: its OOM score is between those of teammates and leads.
struct MemoryConsumer {
    process: Child,
    food: ChildStdin,
    _plate: tempfile::TempDir,
}

impl MemoryConsumer {
    fn of(group: &Group) -> Self {
        let plate = tempfile::tempdir_in(MEMORY).unwrap();
        let file = plate.path().join("file");
        let mut command = Command::new("sh");
        let offer = format!("echo {SCORE} > /proc/self/oom_score_adj");
        let eat = format!("exec cat > {}", file.display());
        command.args(["-c", &format!("{} && {offer} && {eat}", group.entrance())]);
        let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
        let food = process.stdin.take().unwrap();
        Self { process, food, _plate: plate }
    }

    /// Consumes memory until a condition holds. Each step is smaller than any process that the kernel is to kill.
    fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..LIMIT.parse::<usize>().unwrap() / BITE {
            if is_so() {
                return;
            }
            // The consumer itself may have been killed.
            drop(self.food.write_all(&[b'x'; BITE]));
        }
        panic!("never: {what}");
    }
}

const BITE: usize = 1 << 14;

/// The OOM score of the consumer. Commands have 500, teammates 300, leads 0. The kernel adds the used part of the limit
/// in thousandths, which for a lead of a debug build is near 200.
const SCORE: u32 = 250;

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Whether the process is alive and has no pending SIGKILL.
fn is_there(pid: i32) -> bool {
    const KILL: u64 = 1 << 8;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let is_ended =
        |set: &str| u64::from_str_radix(&value(set), 16).is_ok_and(|set| set & KILL != 0);
    !matches!(value("State:").chars().next(), None | Some('Z' | 'X'))
        && !is_ended("SigPnd:")
        && !is_ended("ShdPnd:")
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn commands_are_killed_before_teammates_and_the_lead_survives() {
    let Some(group) = group() else { return };
    let team = Team::new();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    let model = script(
        &team,
        &[
            calls("lead", &[spawn("bob")]),
            says("lead", "spawned"),
            calls(
                "bob",
                &[bash("x=$(yes | head -c 40000000); echo $$ > bob.here; sleep 1000; echo never")],
            ),
            says("bob", "bob goes on"),
        ],
    );
    let line =
        format!("{} && exec {} lead --model {model}", group.entrance(), program("team").display());
    let mut lead = Terminal::start(team.shell(&line));
    lead.expect("/quit ends the team");
    lead.type_line("begin");
    let here = wait_file(&team, "bob.here");
    team.eventually("the shell has said who it is", || {
        fs::read_to_string(&here).is_ok_and(|text| text.ends_with('\n'))
    });
    let shell = fs::read_to_string(&here).unwrap().trim().parse().unwrap();
    let (lead_pid, bob) = (team.pid_of("lead"), team.pid_of("bob"));
    let mut eater = MemoryConsumer::of(&group);
    eater.until("the command is ended", || !is_there(shell));
    assert!(is_there(bob) && is_there(lead_pid), "it went alone\n{}", team.describe());
    drop(eater);
    team.eventually("bob goes on", || team.has_mail("lead", "bob", "bob goes on"));
    team.wait_status("bob", "idle");
    let (_, said, failed) = tool_results(&team, "bob").remove(0);
    assert!(failed || said.contains("signal"), "he is told: {said}");
    assert!(!said.contains("never"), "{said}");
    assert_eq!(team.pid_of("bob"), bob);

    // A lead under SIGSTOP does not restart bob. If it did, bob could be killed again, and the lead could become
    // the only process left to kill.
    signal(lead_pid, Signal::SIGSTOP);
    let mut eater = MemoryConsumer::of(&group);
    eater.until("bob is ended", || !is_there(bob));
    assert!(is_there(lead_pid), "the lead outlives its teammates");
    drop(eater);
    signal(lead_pid, Signal::SIGCONT);
    team.eventually("bob is another process", || team.member("bob")["restarts"] == 1);
    team.wait_status("bob", "idle");
    assert_eq!(last_exit(&team, "bob"), ("crash".into(), None, Some(9)), "{}", team.describe());
    assert_eq!(team.pid_of("lead"), lead_pid);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}
