//! Commands that are too many: the machine lives, the tool ends, nobody is left.

use super::*;
use crate::os::process_limit::LIMIT;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;

/// How many processes a bomb of these tests can become should nobody stop it.
const AT_MOST: usize = 3 * LIMIT;

const TOO_MANY: &str = "[more than 512 processes at once: all were ended]\n[ended by signal 9]";

/// What an agent says whose user may have only so many processes. SafeRoot, whom the kernel does not hold to
/// that, becomes a user that nobody else is.
fn says_within_limit(scene: &Scene, command: &str) -> String {
    let agent = scene.agent_command(command, 60);
    let mut limited = Command::new("bash");
    let am_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let running = if am_root { 0 } else { pids().count() };
    let limit = format!("ulimit -u {}; exec \"$0\" \"$@\"", AT_MOST + running);
    limited.args(["-c", &limit]).arg(agent.get_program()).args(agent.get_args());
    limited.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if am_root {
        let user = 60_000 + std::process::id() % 5000;
        chown(scene.path(), Some(user), Some(user)).unwrap();
        limited.uid(user).gid(user);
    }
    let end = limited.stdout(Stdio::null()).spawn().unwrap().wait().unwrap();
    assert!(end.success(), "{end}");
    fs::read_to_string(scene.path().join("said")).unwrap()
}

/// The classic, in one process group and with sessions of their own.
#[test]
fn a_fork_bomb_is_ended() {
    let _alone = ROOM.write();
    for bomb in [":(){ :|:& };:", "b() { b & setsid bash -c \"$(declare -f b); b\" & }; b"] {
        for nets in [Nets::Group, Nets::Mark] {
            let scene = Scene::within(nets);
            let began = Instant::now();
            let said = says_within_limit(&scene, &format!("{bomb}; sleep 300.{}", scene.token));
            let took = began.elapsed();
            assert!(said.contains(TOO_MANY), "{bomb} within {nets:?}: {said}");
            assert!(took < Duration::from_secs(30), "{bomb} within {nets:?} took {took:?}");
            assert_eq!(scene.survivors(), 0, "{bomb} within {nets:?}");
        }
    }
}

#[test]
fn many_processes_are_no_bomb_until_they_are_too_many() {
    let _alone = ROOM.write();
    for (count, end) in [(LIMIT - 100, "done\n"), (LIMIT + 100, TOO_MANY)] {
        let scene = Scene::new();
        let token = &scene.token;
        let command =
            format!("for i in $(seq {count}); do sleep 300.{token} & done; sleep 4; echo done");
        let said = run(&scene, &command, 60);
        assert!(said.ends_with(end), "{count}: {said}");
    }
}
