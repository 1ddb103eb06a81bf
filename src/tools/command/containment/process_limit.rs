//! Tests of the process limit: a fork bomb is killed and the machine stays usable.

use super::*;
use crate::wire::limits::COMMAND_PROCESSES;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;

/// The number of processes that the kernel permits, in case the limit under test fails.
const KERNEL_LIMIT: usize = 3 * COMMAND_PROCESSES;

const TOO_MANY: &str = "[more than 512 processes at once: all were ended]\n[ended by signal 9]";

/// The tool's answer in an agent process under a kernel limit of processes. The kernel exempts root from
/// it, so root becomes an otherwise unused user.
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
        chown(fixture.path(), Some(user), Some(user)).unwrap();
        limited.uid(user).gid(user);
    }
    fixture.said_by(limited.stdout(Stdio::null()))
}

/// In one process group, and in new sessions.
#[test]
fn a_fork_bomb_is_ended() {
    let _exclusive = MACHINE.write();
    for bomb in [":(){ :|:& };:", "b() { b & setsid bash -c \"$(declare -f b); b\" & }; b"] {
        for containment in BOTH {
            let fixture = Fixture::with(*containment);
            let began = Instant::now();
            let said = says_within_limit(&fixture, &format!("{bomb}; sleep 300.{}", fixture.token));
            let took = began.elapsed();
            assert!(said.contains(TOO_MANY), "{bomb} with {containment:?}: {said}");
            assert!(took < Duration::from_secs(30), "{bomb} with {containment:?} took {took:?}");
            assert_eq!(fixture.survivors(), 0, "{bomb} with {containment:?}");
        }
    }
}

#[test]
fn only_more_processes_than_the_limit_are_killed() {
    let _exclusive = MACHINE.write();
    for (count, end) in [(COMMAND_PROCESSES - 100, "done\n"), (COMMAND_PROCESSES + 100, TOO_MANY)] {
        let fixture = Fixture::new();
        let sleep = format!("sleep 300.{}", fixture.token);
        let command = format!("for i in $(seq {count}); do {sleep} & done; sleep 4; echo done");
        let said = run(&fixture, &command, 60);
        assert!(said.ends_with(end), "{count}: {said}");
    }
}
