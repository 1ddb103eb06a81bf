//! Workspaces over hosts: a teammate on another host works in a clone of the files of the lead's workspace, and what it saves
//! comes back into the repository of the user.

use crate::lead::Lead;
use crate::machines::{Machine, Machines};
use crate::rig::process::spawn_tied;
use agent_team::wire::AgentName;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lead's files are changed without a question.
const ACCEPT_EDITS: &[&str] = &["--mode", "accept_edits"];

/// Runs git in a folder of a host, which must succeed; returns what it prints.
fn git(folder: &Path, line: &str) -> String {
    let output = try_git(folder, line);
    output.unwrap_or_else(|why| panic!("git {line} in {}: {why}", folder.display()))
}

fn try_git(folder: &Path, line: &str) -> Result<String, String> {
    let settings = ["-c", "user.name=Ann", "-c", "user.email=ann@localhost"];
    let mut command = Command::new("git");
    command.args(settings).args(line.split(' ')).current_dir(folder);
    let output = command.env("HOME", folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn put(folder: &Path, name: &str, content: &[u8]) {
    File::create(folder.join(name)).unwrap().write_all(content).unwrap();
}

/// Makes a repository of the workspace of a host, with one commit.
fn make_repository(machine: &Machine) {
    let folder = machine.folder();
    git(folder, "init --quiet --initial-branch main");
    put(folder, ".gitignore", b".team\nstate\n*.out\n*.err\n.config\n.cache\n");
    put(folder, "notes.txt", b"one\ntwo\nthree\n");
    git(folder, "add --all");
    git(folder, "commit --quiet -m first");
}

/// Returns bytes that cannot be compressed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    next.flatten().take(bytes).collect()
}

/// Returns the folder for clones on a host.
fn clones(machine: &Machine) -> PathBuf {
    let teams = fs::read_dir(machine.folder().join("state/team/work"));
    let team = teams.ok().and_then(|teams| teams.flatten().next());
    team.unwrap_or_else(|| panic!("no folder for clones:\n{}", machine.describe())).path()
}

fn saved_file(machine: &Machine, member: &str, file: &str) -> Option<String> {
    try_git(machine.folder(), &format!("show refs/team/{member}/wip:{file}")).ok()
}

fn is_idle(machine: &Machine, member: &str) -> bool {
    machine.member(member).is_some_and(|it| it["status"] == "idle" && it["alive"] == true)
}

fn log_of(machine: &Machine, name: &str) -> String {
    let path = machine.dir.log(&AgentName::mailbox(name).unwrap());
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the sizes of the bundles that the lead of a host has sent, in bytes.
fn bundles(machine: &Machine) -> Vec<u64> {
    let log = log_of(machine, "lead");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let sent = lines.filter(|it| it.to_string().contains("commits go to another host"));
    sent.filter_map(|it| it["bytes"].as_u64()).collect()
}

/// Waits until a lead can order a teammate on the other hosts.
fn wait_ready(machines: &Machines, others: &[&str]) {
    for name in others {
        let other = machines.get(name);
        machines.eventually("the lead is known", || other.is_alive("lead") == Some(true));
    }
}

fn spawn(machines: &Machines, lead: &mut Lead, order: &str, member: &str) {
    lead.say(order);
    machines.eventually(&format!("{member} is idle"), || is_idle(machines.get("ann"), member));
}

#[test]
fn a_teammate_on_another_host_works_in_a_clone_and_its_work_comes_back() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    make_repository(ann);
    put(ann.folder(), "draft.txt", b"not committed\n");
    let mut lead = Lead::start(ann, ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    machines.eventually("the lead knows it", || {
        ann.transcript("lead").contains("its clone has the files of the workspace")
    });
    lead.say("Ask carol to write \"42\" to result.txt.");
    machines.eventually("her saved work is in the repository of the user", || {
        saved_file(ann, "carol", "result.txt").as_deref() == Some("42")
    });
    assert_eq!(saved_file(ann, "carol", "draft.txt").as_deref(), Some("not committed"));
    assert!(!gpu.folder().join("result.txt").exists(), "she works in her clone alone");
    assert_eq!(fs::read(clones(gpu).join("carol/notes.txt")).unwrap(), b"one\ntwo\nthree\n");
    let listed = ann.team_ok(&["work"]);
    assert!(
        listed.contains("carol  saved  1 file changed") && listed.contains("on gpu1"),
        "{listed}"
    );
    // It is offered, and taken by the lead.
    lead.say("Ask carol to offer your work.");
    machines.eventually("the lead has the offer", || ann.has_mail("lead", "carol offers work"));
    assert!(ann.team_ok(&["work", "diff", "carol"]).contains("+42"));
    let taken = ann.team_ok(&["work", "take", "carol"]);
    assert!(taken.contains("Taken into the workspace"), "{taken}");
    assert_eq!(fs::read(ann.folder().join("result.txt")).unwrap(), b"42");
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
    // The clone stays until it is dropped; its work stays after that.
    assert!(clones(gpu).join("carol").exists());
    let refused = gpu.team(&["work", "take", "carol"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("are on ann"), "{refused:?}");
    let dropped = ann.team_ok(&["work", "drop", "carol"]);
    assert!(dropped.contains("The clone of carol is removed"), "{dropped}");
    assert!(!clones(gpu).join("carol").exists());
    assert!(!ann.team_ok(&["work"]).contains("carol"));
    assert_eq!(saved_file(ann, "carol", "result.txt").as_deref(), Some("42"));
    for machine in [ann, gpu] {
        let left = fs::read_dir(machine.folder().join(".team/run/.state/relay/orders/out"));
        let left: Vec<_> = left.unwrap().flatten().map(|it| it.file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn only_commits_that_a_host_lacks_are_sent_and_a_transfer_goes_on_after_kills_of_relays() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let first = noise(24 * 1024 * 1024);
    make_repository(machines.get("ann"));
    put(machines.get("ann").folder(), "first.bin", &first);
    git(machines.get("ann").folder(), "add --all");
    git(machines.get("ann").folder(), "commit --quiet -m second");
    let mut lead = Lead::start(machines.get("ann"), ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1"]);
    lead.say("Spawn carol (trainer) on gpu1.");
    let orders = machines.get("gpu1").folder().join(".team/run/.state/relay/orders/in");
    let arrived = || {
        let parts = fs::read_dir(&orders).into_iter().flatten().flatten();
        let parts = parts.filter(|it| it.path().extension().is_some_and(|it| it == "part"));
        parts.filter_map(|it| it.metadata().ok()).map(|it| it.len()).max().unwrap_or_default()
    };
    machines.eventually("a part of the bundle has come", || arrived() > 0);
    machines.get_mut("gpu1").kill_relay();
    let before = arrived();
    machines.get_mut("gpu1").start_relay();
    machines.eventually("more of it comes", || {
        arrived() > before || is_idle(machines.get("ann"), "carol")
    });
    machines.get_mut("ann").kill_relay();
    machines.get_mut("ann").start_relay();
    machines.eventually("carol is idle", || is_idle(machines.get("ann"), "carol"));
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    assert!(fs::read(clones(gpu).join("carol/first.bin")).unwrap() == first);
    // The next one needs what is new alone.
    put(ann.folder(), "second.txt", b"new\n");
    spawn(&machines, &mut lead, "Spawn dave (tester) on gpu1.", "dave");
    assert_eq!(fs::read(clones(gpu).join("dave/second.txt")).unwrap(), b"new\n");
    let sent = bundles(ann);
    assert!(sent.len() == 2 && sent[0] > 24_000_000 && sent[1] < 10_000, "{sent:?}");
    let left = fs::read_dir(&orders).unwrap().flatten().map(|it| it.path());
    let left: Vec<_> = left.filter(|it| it.extension().is_some_and(|it| it != "json")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}

#[test]
fn a_host_fetches_from_the_server_of_the_project_what_it_can() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let ann = machines.get("ann");
    make_repository(ann);
    // A server of git on the host of the lead, which the other one reaches.
    let server = tempfile::tempdir().unwrap();
    git(ann.folder(), &format!("clone --quiet --bare . {}/shop.git", server.path().display()));
    let mut daemon = ann.command_of(Path::new("git"));
    let base = format!("--base-path={}", server.path().display());
    daemon.args(["daemon", "--export-all", "--reuseaddr", "--port=9418", &base]);
    let mut daemon = spawn_tied(daemon).unwrap();
    git(ann.folder(), &format!("remote add origin git://{}/shop.git", ann.address()));
    let mut lead = Lead::start(ann, ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    assert_eq!(bundles(ann).len(), 0, "all of it was on the server");
    assert!(clones(machines.get("gpu1")).join("carol/notes.txt").exists());
    // Files that are not committed come as a bundle.
    put(ann.folder(), "draft.txt", b"not committed\n");
    spawn(&machines, &mut lead, "Spawn dave (trainer) on gpu1.", "dave");
    assert!(bundles(ann).len() == 1 && bundles(ann)[0] < 10_000, "{:?}", bundles(ann));
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn work_that_conflicts_is_not_taken_and_its_teammate_gets_the_files_to_merge() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    make_repository(ann);
    let mut lead = Lead::start(ann, ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    lead.say("Ask carol to write \"hers\" to plan.txt.");
    machines.eventually("her work is here", || saved_file(ann, "carol", "plan.txt").is_some());
    put(ann.folder(), "plan.txt", b"mine\n");
    git(ann.folder(), "add --all");
    git(ann.folder(), "commit --quiet -m mine");
    let taken = ann.team(&["work", "take", "carol"]);
    assert_eq!(taken.status.code(), Some(1), "{taken:?}");
    let said = String::from_utf8_lossy(&taken.stderr);
    assert!(said.contains("plan.txt") && said.contains("carol was told"), "{said}");
    assert_eq!(fs::read(ann.folder().join("plan.txt")).unwrap(), b"mine\n");
    machines.eventually("she is told", || gpu.has_mail("carol", "these files conflict"));
    // As `git fetch origin` in her clone has it.
    let clone = clones(gpu).join("carol");
    git(&clone, "fetch --quiet origin");
    assert_eq!(git(&clone, "show origin/lead:plan.txt"), "mine");
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}

#[test]
fn the_work_of_a_host_that_is_lost_goes_on_on_another_one() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1", "gpu2"]) else { return };
    make_repository(machines.get("ann"));
    let mut lead = Lead::start(machines.get("ann"), ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1", "gpu2"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    lead.say("Ask carol to write \"42\" to result.txt.");
    machines.eventually("her work is here", || {
        saved_file(machines.get("ann"), "carol", "result.txt").is_some()
    });
    machines.get_mut("gpu1").kill_all();
    let ann = machines.get("ann");
    machines.eventually("gpu1 is away", || ann.member("carol").unwrap()["away"] == true);
    // The person is told that it may not be the last work.
    let diff = ann.team(&["work", "diff", "carol"]);
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+42"), "{diff:?}");
    assert!(String::from_utf8_lossy(&diff.stderr).contains("gpu1 has been away"), "{diff:?}");
    let said = ann.team_ok(&["host", "give-up", "gpu1"]);
    assert!(said.contains("carol: no message waits; its last commit here is "), "{said}");
    lead.say("Spawn carol (trainer) on gpu2.");
    machines.eventually("carol is idle on gpu2", || {
        is_idle(ann, "carol") && ann.member("carol").unwrap()["host"] == "gpu2"
    });
    let gpu2 = machines.get("gpu2");
    assert_eq!(fs::read(clones(gpu2).join("carol/result.txt")).unwrap(), b"42");
    lead.say("Ask carol to write \"43\" to second.txt.");
    machines.eventually("the rest comes from there", || {
        saved_file(ann, "carol", "second.txt").as_deref() == Some("43")
    });
    assert_eq!(saved_file(ann, "carol", "result.txt").as_deref(), Some("42"));
    assert!(ann.team_ok(&["work"]).contains("2 files changed"), "both count from the same base");
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}

#[test]
fn a_name_with_a_clone_on_one_host_is_not_started_on_another_one() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1", "gpu2"]) else { return };
    let (ann, gpu1) = (machines.get("ann"), machines.get("gpu1"));
    make_repository(ann);
    let mut lead = Lead::start(ann, ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1", "gpu2"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    ann.team_ok(&["stop", "carol"]);
    lead.say("Spawn carol (trainer) on gpu2.");
    let told = |text: &str| {
        machines.eventually(text, || ann.transcript("lead").contains(text));
    };
    told("carol has a clone with its work on gpu1; start it there (host gpu1)");
    // A clone that this lead has forgotten is not taken for a new one.
    let noted = ann.folder().join("state/team/work");
    let noted = fs::read_dir(noted).unwrap().flatten().next().unwrap().path();
    fs::remove_file(noted.join("carol.json")).unwrap();
    put(ann.folder(), "new.txt", b"new\n");
    lead.say("Spawn carol (trainer) on gpu1.");
    told("carol has an older clone there");
    assert!(!noted.join("carol.json").exists());
    gpu1.team_ok(&["work", "drop", "carol"]);
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol is idle", || is_idle(ann, "carol"));
    assert!(
        clones(gpu1).join("carol/new.txt").exists(),
        "{}\n{}",
        ann.transcript("lead"),
        gpu1.describe()
    );
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}

#[test]
fn work_that_is_saved_while_a_host_is_away_comes_once_it_is_back() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    make_repository(ann);
    let mut lead = Lead::start(ann, ACCEPT_EDITS);
    wait_ready(&machines, &["gpu1"]);
    spawn(&machines, &mut lead, "Spawn carol (trainer) on gpu1.", "carol");
    // She works with mail of her own host meanwhile.
    machines.network.cut("gpu1");
    machines.eventually("gpu1 is away", || ann.member("carol").unwrap()["away"] == true);
    gpu.team_ok(&["send", "carol", "Write \"42\" to result.txt."]);
    machines.eventually("she has saved it", || {
        try_git(&clones(gpu).join(".project"), "show refs/team/carol/wip:result.txt").is_ok()
    });
    assert_eq!(saved_file(ann, "carol", "result.txt"), None);
    machines.network.heal("gpu1");
    machines.eventually("it has come", || saved_file(ann, "carol", "result.txt").is_some());
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}
