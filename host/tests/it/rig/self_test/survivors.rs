//! Nothing of the rig survives a killed test process.

use crate::rig::files::temporary_folder;
use crate::rig::namespaces::Network;
use crate::rig::nats_install::find_or_skip;
use crate::rig::nats_server::{NatsServer, ServerOptions};
use crate::rig::process::{spawn_tied, wait_until};
use crate::skips::skipped;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const VARIABLE: &str = "TEAM_TEST_RIG_SURVIVORS";
const SOON: Duration = Duration::from_secs(10);

/// The process that is killed: it starts everything, reports the process ids, and waits.
#[test]
fn entry() {
    if !std::env::vars_os().any(|(key, _)| key == VARIABLE) {
        return;
    }
    let program = find_or_skip(skipped).unwrap();
    let network = Network::new(&["a"]).unwrap();
    let on_hub = NatsServer::on(network.hub(), &program, &ServerOptions::default());
    let mut stopped = NatsServer::on_loopback(&program, &ServerOptions::default());
    stopped.pause();
    let mut sleep = network.host("a").command("sleep");
    sleep.arg("1000");
    let mut sleep = spawn_tied(sleep).unwrap();
    let pids = [on_hub.pid().unwrap(), stopped.pid().unwrap(), i32::try_from(sleep.id()).unwrap()];
    let words = pids.map(|pid| pid.to_string()).join(" ");
    writeln!(std::io::stdout(), "\n>{words}").unwrap();
    // It is killed during this wait.
    sleep.wait().unwrap();
}

#[test]
fn nothing_survives_the_death_of_the_test_process() {
    let Some(_program) = find_or_skip(skipped) else { return };
    let Some(_network) = Network::or_skip(&[], skipped) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = std::thread::current().name().unwrap().rsplit_once("::").unwrap().0.to_owned();
    command.args([&format!("{name}::entry"), "--exact", "--nocapture"]).env(VARIABLE, "1");
    let mut child = spawn_tied({
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        command
    })
    .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with('>')).unwrap();
    let processes: Vec<_> = line
        .trim_start_matches('>')
        .split(' ')
        .map(|pid| PathBuf::from("/proc").join(pid))
        .collect();
    assert!(processes.len() == 3 && processes.iter().all(|process| process.exists()), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    let are_gone = wait_until(SOON, || processes.iter().all(|process| has_ended(process)));
    assert!(are_gone, "{processes:?}");
    // The next temporary folder removes those of the killed process.
    let folder = temporary_folder();
    let killed = format!("team-rig-{}-", child.id());
    let mut all = fs::read_dir(folder.path().parent().unwrap()).unwrap().flatten();
    assert!(!all.any(|it| it.file_name().to_string_lossy().starts_with(&killed)));
}

/// Whether a process has ended. Process 1, which inherits it, may be slow to wait for it.
fn has_ended(process: &Path) -> bool {
    let Ok(status) = fs::read_to_string(process.join("stat")) else { return true };
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}
