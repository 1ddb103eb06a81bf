//! Tests of containment: no process that a command starts outlives the command, a fork bomb is killed, and a
//! command has its own environment and no input, and its endless output needs little memory. All of this holds without
//! walls and behind each kind of walls, and each test shows that they stood.

use super::contained_agent::{
    CommandWalls, Containment, Fixture, SHOW_EVIDENCE, bash, block_on, containments, control_group,
    escape, run, signal_supervisor, stop, wait_until,
};
use super::{Bash, OutputStore, command_setup};
use crate::os::processes::{self, Process};
use crate::os::skips::skipped;
use crate::os::{Signal, command, process_tree};
use crate::tools::call::ToolError;
use crate::wire::limits::COMMAND_PROCESSES;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// The lock of the machine. Tests that need the machine for themselves take it for writing, the others for
/// reading.
static MACHINE: RwLock<()> = RwLock::new(());

/// Ways to leave the command's process group or session; `STAY` stands for the program `stay`.
const ESCAPES: &[&str] = &[
    "STAY &",
    "STAY >/dev/null 2>&1 </dev/null & disown",
    "nohup STAY &",
    "setsid STAY &",
    "( ( STAY & ) & )",
    "setsid sh -c '(STAY &)' </dev/null >/dev/null 2>&1 &",
    "STAY <&- >&- 2>&- &",
    "trap '' TERM HUP; STAY &",
    // daemon(3): a new session, twice forked, no descriptors, another folder.
    "(setsid sh -c 'cd /; (STAY &)' <&- >&- 2>&- &)",
    "(exec -a '[kworker/0:1]' STAY) &",
    "STAY & until grep -qs sleep /proc/$!/comm; do sleep 0.01; done; kill -STOP $!",
];

/// Ways to respawn faster than a scan of the process table.
const RESPAWNING: &[&str] = &["sh ./respawn ''", "setsid sh ./respawn ''"];

/// A way to respawn in a new process group each time.
const FASTEST: &[&str] = &["env -i setsid sh ./respawn 'setsid --fork'"];

/// Ways that also remove the run id from the environment.
const UNMARKED: &[&str] = &[
    "env -i PATH=\"$PATH\" setsid STAY &",
    "env -u TEAM_RUN setsid STAY &",
    "TEAM_RUN=another setsid STAY &",
    "(unset TEAM_RUN; setsid bash -c 'cd /; (exec -a cron STAY &)' <&- >&- 2>&- &)",
];

/// The number of checks that run at once. They mostly wait, but some of their processes fork without a pause: too many
/// of them keep a supervisor from ending its command within its time limit.
const AT_ONCE: usize = 8;

/// Checks each way with each containment that has one of the `means`, several at once. No process may be left
/// afterwards, and the walls must have stood.
fn each_of(ways: &[&[&str]], means: &[bool], check: impl Fn(&Fixture, &str) + Sync) {
    let _shared = MACHINE.read();
    let ways: Vec<&str> = ways.iter().copied().flatten().copied().collect();
    for containment in containments(means) {
        for ways in ways.chunks(AT_ONCE) {
            std::thread::scope(|threads| {
                for way in ways {
                    let check = &check;
                    threads.spawn(move || {
                        let fixture = Fixture::with(containment);
                        check(&fixture, way);
                        fixture.assert_walled();
                        assert_eq!(fixture.survivors(), 0, "{way} with {containment:?}");
                    });
                }
            });
        }
    }
}

/// With a control group, and with the run id alone.
const BOTH: &[bool] = &[true, false];

fn each_way(check: impl Fn(&Fixture, &str) + Sync) {
    each_of(&[ESCAPES, UNMARKED, RESPAWNING], BOTH, check);
}

#[test]
fn nothing_outlives_the_shell() {
    each_way(|fixture, way| {
        let began = Instant::now();
        assert_eq!(run(fixture, &escape(fixture, way, "echo done"), 60), "done\n", "{way}");
        assert!(began.elapsed() < Duration::from_secs(60), "{way} took {:?}", began.elapsed());
    });
}

#[test]
fn nothing_outlives_the_timeout() {
    each_way(|fixture, way| {
        let said = run(fixture, &escape(fixture, way, "sleep 300"), 2);
        assert_eq!(said, "[timed out after 2 s; everything it started was ended]", "{way}");
    });
}

/// Has a command signal its supervisor after it has escaped. Behind walls it cannot do that, so this process does it.
/// Returns the tool's answer, `None` if the time limit of the command, in seconds, came before.
fn says_without_supervisor(
    fixture: &Fixture,
    way: &str,
    signal: Signal,
    timeout: u64,
) -> Option<String> {
    if fixture.containment.walls.are_up() {
        let agent = fixture.try_agent_with_escaped(way, timeout)?;
        signal_supervisor(i32::try_from(agent.id()).unwrap(), signal);
        return Some(fixture.said_by(agent));
    }
    let then = format!("kill -{} $PPID; sleep 300", signal as i32);
    Some(fixture.agent_says(&escape(fixture, way, &then), timeout))
}

/// If the supervisor is killed by SIGKILL, the agent adopts the orphans and finds them even without their run id.
#[test]
fn nothing_outlives_a_killed_supervisor() {
    each_of(&[ESCAPES, UNMARKED, RESPAWNING], BOTH, |fixture, way| {
        let said = says_without_supervisor(fixture, way, Signal::SIGKILL, 60).unwrap();
        assert!(said.starts_with("[ended by signal 9]"), "{way}: {said}");
    });
}

#[test]
fn the_agent_takes_over_from_a_stopped_supervisor() {
    each_of(&[&["setsid STAY &"], UNMARKED], BOTH, |fixture, way| {
        // The command must have escaped within its time limit.
        let tried = [1, 8, 64].into_iter().find_map(|timeout| {
            let said = says_without_supervisor(fixture, way, Signal::SIGSTOP, timeout)?;
            Some((timeout, said))
        });
        let (timeout, said) = tried.unwrap();
        assert!(said.starts_with(&format!("[timed out after {timeout} s")), "{said}");
    });
}

#[test]
fn a_supervisor_ignores_signals_of_its_command() {
    for containment in containments(&[true]) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        let command = "for signal in TERM INT HUP QUIT USR1 PIPE ALRM; do kill -$signal $PPID; done 2>refusals; \
             echo on";
        let command = command.replace("refusals", &fixture.file("refusals").display().to_string());
        assert_eq!(run(&fixture, &command, 60), "on\n");
        let refusals = fs::read_to_string(fixture.file("refusals")).unwrap();
        let expected = if containment.walls.are_up() { 7 } else { 0 };
        assert_eq!(refusals.lines().count(), expected, "{containment:?}: {refusals}");
    }
}

#[test]
fn nothing_outlives_an_interrupted_call() {
    each_way(|fixture, way| {
        block_on(async {
            let command = escape(fixture, way, "sleep 300");
            let walls = fixture.containment.walls;
            let call = bash(fixture.path(), &fixture.run_id, walls, &command, 60);
            let up = async {
                while !fixture.file("up").exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                said = call => panic!("{way} ended: {said:?}"),
                () = up => {}
            }
        });
        // This also waits for the commands of concurrent checks.
        assert!(command::settle(Duration::from_secs(60)));
    });
}

fn kill(mut agent: Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn nothing_outlives_a_killed_agent() {
    each_way(|fixture, way| {
        kill(fixture.agent_with_escaped(way));
        wait_until("no process is left", || fixture.survivors() == 0);
    });
}

/// The cleanup after a dead agent waits for the supervisor, which alone can find unmarked processes.
#[test]
fn cleanup_waits_for_the_supervisor() {
    each_of(&[ESCAPES, UNMARKED], &[false], |fixture, way| {
        kill(fixture.agent_with_escaped(way));
        wait_until("the run has ended", || {
            process_tree::end_run(&fixture.run_id, |_| true).is_empty()
        });
    });
}

/// Kills an agent and the supervisor of its command. Only run id and control group identify the command's
/// processes after that.
fn killed_with_its_supervisor(fixture: &Fixture, way: &str) {
    let agent = fixture.agent_with_escaped(way);
    let pid = i32::try_from(agent.id()).unwrap();
    stop(&Process::read(pid).unwrap());
    signal_supervisor(pid, Signal::SIGKILL);
    kill(agent);
    assert!(fixture.survivors() > 0, "{way} exited by itself: {:?}", fixture.containment);
    wait_until("the run has ended", || process_tree::end_run(&fixture.run_id, |_| true).is_empty());
    // A killed process loses its environment, by which it is found, before it is gone.
    wait_until("no process is left", || fixture.survivors() == 0);
}

/// The next start kills every process with the run id of a dead agent.
#[test]
fn marked_processes_do_not_outlive_agent_and_supervisor() {
    each_of(&[ESCAPES], &[false], killed_with_its_supervisor);
}

/// With control groups, the next start also kills unmarked and respawning processes. Without them, these
/// processes are the one known gap.
#[test]
fn with_control_groups_nothing_outlives_agent_and_supervisor() {
    if has_control_groups() {
        let ways = [ESCAPES, UNMARKED, RESPAWNING, FASTEST];
        each_of(&ways, &[true], killed_with_its_supervisor);
    }
}

fn has_control_groups() -> bool {
    let group = control_group();
    if let Err(other) = &group {
        skipped(&format!("no cgroup v2 that may be written: {other}"));
    }
    group.is_ok()
}

/// A control group is removed with its command, by the supervisor or by the agent.
#[test]
fn no_control_group_is_left() {
    if !has_control_groups() {
        return;
    }
    let groups = |fixture: &Fixture| {
        let mut find = Command::new("find");
        find.args(["/sys/fs/cgroup", "-name", &format!("team-{}.*", fixture.run_id)]);
        let found = find.output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    };
    for containment in containments(&[true]) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        run(&fixture, "setsid sleep 300 & true", 60);
        assert_eq!(groups(&fixture), "", "{containment:?}");
        says_without_supervisor(&fixture, "setsid STAY &", Signal::SIGKILL, 60).unwrap();
        assert_eq!(groups(&fixture), "", "{containment:?}");
    }
    // A group that a command created within its own is removed too.
    let nested = "cd /sys/fs/cgroup*/$(sed -n s/^0::.//p /proc/self/cgroup) 2>/dev/null ||
        cd /sys/fs/cgroup/unified/$(sed -n s/^0::.//p /proc/self/cgroup)
        mkdir -p inner/most && echo 0 > inner/most/cgroup.procs; setsid sleep 300 & pwd";
    let fixture = Fixture::new();
    let said = run(&fixture, nested, 60);
    assert!(said.contains(&fixture.run_id), "{said}");
    assert_eq!(groups(&fixture), "");
}

/// The number of processes that the kernel permits, in case the limit under test fails.
const KERNEL_LIMIT: usize = 3 * COMMAND_PROCESSES;

const TOO_MANY: &str = "[more than 512 processes at once: all were ended]\n[ended by signal 9]";

/// Returns the tool's answer in an agent process under a kernel limit of processes. The kernel exempts root from
/// the limit, so root switches to an otherwise unused user.
fn says_within_limit(fixture: &Fixture, command: &str) -> String {
    let agent = fixture.agent(command, 60);
    let mut limited = Command::new("bash");
    let am_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let running = if am_root { 0 } else { processes::all().len() };
    let limit = format!("ulimit -u {}; exec \"$0\" \"$@\"", KERNEL_LIMIT + running);
    limited.args(["-c", &limit]).arg(agent.get_program()).args(agent.get_args());
    limited.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if am_root {
        let user = 60_000 + std::process::id() % 5000;
        for path in [fixture.path().to_owned(), fixture.file("")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        limited.uid(user).gid(user);
    }
    fixture.said_by(limited.stdout(Stdio::null()).spawn().unwrap())
}

/// Whether the user to which root switches can run the programs under test: not below a private folder.
fn can_limit_processes() -> bool {
    let program = std::env::current_exe().unwrap();
    let is_open = |folder: &Path| fs::metadata(folder).unwrap().mode() & 0o001 != 0;
    fs::metadata("/proc/self").unwrap().uid() != 0 || program.ancestors().skip(1).all(is_open)
}

/// One bomb forks in one process group, the other in new sessions.
#[test]
fn a_fork_bomb_is_ended() {
    if !can_limit_processes() {
        return skipped(
            "a fork bomb: other users than root cannot enter the folder of the programs",
        );
    }
    let _exclusive = MACHINE.write();
    for bomb in [":(){ :|:& };:", "b() { b & setsid bash -c \"$(declare -f b); b\" & }; b"] {
        for containment in containments(BOTH) {
            let fixture = Fixture::with(containment);
            let began = Instant::now();
            let evidence = fixture.file("evidence");
            let command = format!(
                "{{ {SHOW_EVIDENCE}; }} >{}; {bomb}; sleep 300.{}",
                evidence.display(),
                fixture.token
            );
            let said = says_within_limit(&fixture, &command);
            let took = began.elapsed();
            assert!(said.contains(TOO_MANY), "{bomb} with {containment:?}: {said}");
            assert!(took < Duration::from_secs(60), "{bomb} with {containment:?} took {took:?}");
            fixture.assert_walled();
            assert_eq!(fixture.survivors(), 0, "{bomb} with {containment:?}");
        }
    }
}

#[test]
fn only_more_processes_than_the_limit_are_killed() {
    let _exclusive = MACHINE.write();
    let cases = [(COMMAND_PROCESSES - 100, 4, "done\n"), (COMMAND_PROCESSES + 100, 300, TOO_MANY)];
    let with = |containment| cases.map(|case| (containment, case));
    for (containment, (count, seconds, end)) in containments(&[true]).into_iter().flat_map(with) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        let sleep = format!("sleep 300.{}", fixture.token);
        let command =
            format!("for i in $(seq {count}); do {sleep} & done; sleep {seconds}; echo done");
        let said = run(&fixture, &command, 60);
        assert!(said.ends_with(end), "{count}: {said}");
    }
}

/// Returns the most memory that an agent process has had after its command, in KiB. The command has more output than a model
/// sees.
fn peak_after(fixture: &Fixture, command: &str) -> u64 {
    let said = fixture.agent_says(command, 600);
    assert!(said.contains("characters cut here") && !said.contains("timed out"), "{command}");
    let (_, peak) = said.rsplit_once("VmHWM:").unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The output is larger than a stored result, and four times the memory by which an agent with little output may be
/// exceeded.
#[test]
fn much_output_needs_little_memory() {
    let commands = [
        "yes | head -c 32M",
        "head -c 32M /dev/urandom",
        "head -c 32M /dev/zero | tr '\\0' '\\377'",
        "yes | head -c 16M >&2 & yes | head -c 16M; wait",
    ];
    // The agent collects the output of each command alike, so one command shows it behind walls.
    let walled = containments(&[true]).into_iter().find(|it| it.walls.are_up());
    let unwalled = (Containment::UNWALLED, &commands[..]);
    for (containment, commands) in
        walled.map(|it| (it, &commands[..1])).into_iter().chain([unwalled])
    {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        let little = peak_after(&fixture, "yes | head -c 1M");
        for command in commands {
            let peak = peak_after(&fixture, command);
            assert!(peak < little + 8 * 1024, "{command}: {peak} kB after {little} kB");
        }
    }
}

#[test]
fn there_is_no_input_and_no_terminal() {
    for containment in containments(&[true]) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        assert_eq!(run(&fixture, "cat; echo $?", 60), "0\n");
        let said = run(&fixture, "read -r line </dev/tty", 60);
        assert!(said.contains("/dev/tty") && said.contains("[exit code 1]"), "{said}");
    }
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let cases = [
        ("true", "(no output)"),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
        ("printf x; exit 3", "x\n[exit code 3]"),
        ("kill -9 $$", "[ended by signal 9]"),
        ("kill -TERM $$", "[ended by signal 15]"),
        ("exit 255", "[exit code 255]"),
        ("exec >&- 2>&-; sleep 0.1; exit 4", "[exit code 4]"),
        ("printf '\\377\\033[31mred'", "\u{fffd}\u{1b}[31mred"),
        ("-x", "bash: line 1: -x: command not found\n[exit code 127]"),
    ];
    for containment in containments(&[true]) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        for (command, expected) in cases {
            assert_eq!(run(&fixture, command, 60), expected, "{command} with {containment:?}");
        }
    }
}

#[test]
fn commands_start_with_a_clean_environment() {
    for containment in containments(&[true]) {
        let fixture = Fixture::with(containment);
        fixture.assert_walls_stand();
        assert_clean_environment(&fixture);
    }
}

fn assert_clean_environment(fixture: &Fixture) {
    let folder = fixture.path().canonicalize().unwrap();
    let temp = if fixture.containment.walls.are_up() { " TMPDIR" } else { "" };
    let names = format!("PATH PWD SHLVL TEAM_RUN TERM{temp} _ {}\n", folder.display());
    for (command, expected) in [
        ("env | cut -d= -f1 | sort | tr '\\n' ' '; pwd -P", &*names),
        (
            "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj",
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n500\n",
        ),
        ("ulimit -c; ls /proc/self/fd | tr '\\n' ' '", "0\n0 1 2 3 "),
    ] {
        assert_eq!(run(fixture, command, 60), expected, "{command}");
    }
}

#[test]
fn sh_replaces_a_missing_bash() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("/bin/sh", fixture.path().join("sh")).unwrap();
    let path = vec![("PATH".into(), fixture.path().display().to_string())];
    let setup = command_setup(path, uuid::Uuid::now_v7().to_string(), None);
    let bash = Bash {
        command: "echo $0".into(),
        timeout: None,
        background: None,
        outside: None,
        hosts: None,
    };
    let output_store = OutputStore::below(fixture.path());
    assert_eq!(block_on(bash.run_in(fixture.path(), &setup, &output_store)).unwrap(), "sh\n");
}

#[test]
fn an_invalid_call_says_what_to_do() {
    let fixture = Fixture::new();
    let (folder, missing) = (fixture.path(), fixture.path().join("gone"));
    let (long, walls) = (format!("true {}", "x".repeat(131_071)), CommandWalls::Unwalled);
    for (folder, command, timeout, says) in [
        (folder, " ", 60, "give the command"),
        (folder, "a\0b", 60, "NUL"),
        (folder, long.as_str(), 60, "write_file"),
        (folder, "true", 0, "from 1 to 3600"),
        (folder, "true", 120_000, "timeout is in seconds"),
        (missing.as_path(), "true", 60, "could not be run"),
    ] {
        let why = block_on(bash(folder, &fixture.run_id, walls, command, timeout)).unwrap_err();
        assert!(matches!(&why, ToolError::Reply(text) if text.contains(says)), "{why}");
    }
    let longest = format!("true {}", "x".repeat(131_066));
    assert_eq!(run(&fixture, &longest, 60), "(no output)");
}
