//! Attacks of commands, without walls and behind them. The program tests/attacks/attacks.py makes each attempt from a command of
//! a real agent, against a victim that the test starts; tests/attacks/expected.toml has the outcomes.

use super::attack_table::{Column, Outcome, Row, SandboxNetwork, table};
use super::lacking::{WRITABLE, can_wall, landlock_version, team_without_namespaces};
use super::teams::walled_team;
use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::harness::{SYSTEM_PATH, Team, has_python, in_parallel};
use crate::support::machines::refuse_calls;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, spawn, tool_results,
};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the folder of the program that makes the attempts, and of the victim.
fn attacks_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks")
}

/// Copies the program that makes the attempts into the workspace: behind walls its own folder may be hidden.
fn copy_attacks(workspace: &Path) {
    let folder = workspace.join("attacks");
    fs::create_dir(&folder).unwrap();
    let files = fs::read_dir(attacks_folder()).unwrap().map(|entry| entry.unwrap().path());
    let is_program =
        |file: &PathBuf| file.extension().is_some_and(|end| end == "py" || end == "sh");
    for file in files.filter(is_program) {
        fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
}

/// Returns the folder outside of temporary ones that `scripts/check-unprivileged` makes for its user.
fn public_folder() -> Option<PathBuf> {
    std::env::vars_os()
        .find(|(name, _)| name == "TEAM_PUBLIC_FOLDER")
        .map(|(_, folder)| folder.into())
}

/// A process outside of the team with secrets, and the files and programs of its user.
struct Victim {
    process: Child,
    /// The folder in which commands make their attempts.
    workspace: PathBuf,
    /// Its files: removed after the process has ended.
    _folder: tempfile::TempDir,
}

impl Victim {
    /// Starts a victim, and moves the home of the team's user into its folder.
    fn start(team: &Team, walls: Walls) -> Self {
        let workspace = walls.workspace(team);
        let mut folder = tempfile::Builder::new();
        // Behind walls `/tmp` is private. Elsewhere each file is hidden or protected by itself, but the path of a socket
        // must be short.
        let tests = [public_folder(), Some(env!("CARGO_TARGET_TMPDIR").into())];
        let mut tests = tests.into_iter().flatten().filter(|tests| tests.as_os_str().len() < 48);
        let own = tests.find_map(|tests| folder.prefix("victim-").tempdir_in(tests).ok());
        let folder = own.unwrap_or_else(|| folder.prefix("team-victim-").tempdir().unwrap());
        let real = folder.path().canonicalize().unwrap();
        let home = real.join("home");
        fs::create_dir(&home).unwrap();
        let path = format!("{}/bin:{SYSTEM_PATH}", home.display());
        write(&real.join("each-shell"), "exit 99\n");
        for (name, value) in [
            ("HOME", home.display().to_string()),
            ("PATH", path),
            ("BASH_ENV", real.join("each-shell").display().to_string()),
        ] {
            team.variable(name, &value);
        }
        let mut command = Command::new("python3");
        copy_attacks(&workspace);
        command.arg("-B").arg(attacks_folder().join("victim.py")).arg(&real);
        // Without the slash at its end, and without a link to the workspace.
        let team_folder: PathBuf = team.path("").components().collect();
        let team_folder = team.workspace().join(team_folder.file_name().unwrap());
        command.arg(&workspace).arg(team_folder).arg(team.programs().join("team"));
        command.arg("--password=canary-argument").process_group(0);
        command.env_clear().env("PATH", SYSTEM_PATH).env("HOME", &home).env("LANG", "C.UTF-8");
        command.env("SERVICE_API_KEY", "canary-environment");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "the victim has not started");
        team.variable("LD_PRELOAD", &real.join("preload.so").display().to_string());
        Self { process, workspace, _folder: folder }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        drop(self.process.wait());
    }
}

/// Whether the commands of a team have walls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walls {
    None,
    /// The level `workspace`, on a machine with namespaces.
    Workspace,
    /// Landlock and seccomp on a machine that refuses namespaces, with the team folder outside of the writable folder.
    /// The number is the highest version of Landlock.
    Landlock(i32),
    /// The default level, on a machine that refuses namespaces: the team folder is in the workspace.
    NoNamespaces,
    /// The default level, on a machine that refuses Landlock.
    NoLandlock,
    /// The level `workspace` with at most this version of Landlock, on a machine with namespaces.
    Capped(i32),
    /// The level `workspace` with this network, on a machine with namespaces.
    Network(SandboxNetwork),
    /// The default level with this network, on a machine that refuses namespaces.
    NetworkWithoutNamespaces(SandboxNetwork),
}

impl Walls {
    fn column(self) -> Column {
        match self {
            Self::Workspace => Column::Namespaces,
            Self::Landlock(version) => Column::Early(version),
            Self::NoNamespaces => Column::NoNamespaces,
            Self::NoLandlock => Column::NoLandlock,
            Self::Capped(version) => Column::Capped(version),
            Self::Network(network) => Column::Network(network),
            // There the command may not listen either.
            Self::NetworkWithoutNamespaces(_) => Column::Network(SandboxNetwork::Off),
            Self::None if nix::unistd::geteuid().is_root() => Column::Root,
            Self::None => Column::User,
        }
    }

    /// Creates a team. Returns `None` if this machine lacks a wall.
    fn team(self) -> Option<Team> {
        match self {
            Self::None => Some(Team::without_walls()),
            Self::Workspace => walled_team("workspace"),
            Self::Landlock(version) => team_without_namespaces(version),
            Self::NoNamespaces => team_without("namespaces", "team folder"),
            Self::NoLandlock => team_without("landlock", "signals"),
            Self::Capped(version) => {
                let team = walled_team("workspace")?;
                team.variable("TEAM_LANDLOCK_ABI", &version.to_string());
                Some(team)
            }
            Self::Network(network) => {
                let team = walled_team("workspace")?;
                team.variable("TEAM_SANDBOX_NETWORK", network.word());
                can_wall(&team).then_some(team)
            }
            Self::NetworkWithoutNamespaces(network) => {
                let team = team_without("namespaces", "team folder")?;
                team.variable("TEAM_SANDBOX_NETWORK", network.word());
                can_wall(&team).then_some(team)
            }
        }
    }

    /// Whether commands make their attempts in a folder beside the team folder, and not around it.
    const fn is_beside_team_folder(self) -> bool {
        matches!(self, Self::Landlock(_))
    }

    /// Returns the folder in which commands make their attempts.
    fn workspace(self, team: &Team) -> PathBuf {
        if self.is_beside_team_folder() {
            team.workspace().join(WRITABLE)
        } else {
            team.workspace().to_owned()
        }
    }

    /// Returns a command in this folder.
    fn in_workspace(self, command: &str) -> String {
        if self.is_beside_team_folder() {
            format!("cd {WRITABLE} && {command}")
        } else {
            command.to_owned()
        }
    }

    /// Returns the command that makes attempts: `--topic TOPIC`, or names.
    fn attempts(self, which: &str) -> String {
        self.in_workspace(&format!("python3 -B attacks/attacks.py world.json {which}"))
    }
}

/// Creates a team of the default level, on a machine that refuses some calls: it runs without this wall. Returns `None` if
/// more is missing.
fn team_without(calls: &str, wall: &str) -> Option<Team> {
    let mut team = Team::new();
    refuse_calls(&mut team, calls);
    let said = headless(&team, &script(&team, &[]), "begin");
    let warning = said.err.lines().find(|line| line.starts_with("WARNING: not all walls"));
    team.team(&["clean", "--purge", "--yes"]);
    if !warning.is_some_and(|text| text.contains(wall)) {
        skipped(&format!("the default level without {calls}: {}", said.err.trim()));
        return None;
    }
    Some(team)
}

fn is_installed(name: &str) -> bool {
    SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join(name).exists())
}

/// Returns the number in a file of /proc, if there is one.
fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether this process has a capability, by its number in the kernel.
fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() >> number & 1 == 1
}

/// Whether a condition of the table is met here, if the test can know it.
fn is_met(need: &str) -> Option<bool> {
    if let Some(name) = need.strip_prefix("the program ") {
        return Some(is_installed(name));
    }
    match need {
        "no Yama" => Some(number("/proc/sys/kernel/yama/ptrace_scope").unwrap_or(0) == 0),
        "CAP_SETUID" => Some(has_capability(7)),
        "CAP_DAC_READ_SEARCH" => Some(has_capability(2)),
        "CAP_NET_RAW" => Some(has_capability(13)),
        "CAP_SYS_CHROOT" => Some(has_capability(18)),
        "CAP_SYS_PTRACE" => Some(has_capability(19)),
        "CAP_SYS_ADMIN" => Some(has_capability(21)),
        "CAP_MKNOD" => Some(has_capability(27)),
        "io_uring" => Some(number("/proc/sys/kernel/io_uring_disabled")? == 0),
        "user namespaces" => {
            let mut trial = Command::new("unshare");
            trial.args([
                "--user",
                "--map-root-user",
                "--mount",
                "mount",
                "-t",
                "tmpfs",
                "x",
                "/tmp",
            ]);
            let ran = trial.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
            Some(ran.success())
        }
        // No file tells of it: `skip` and refusals are allowed.
        "Landlock"
        | "a disk"
        | "keyrings"
        | "POSIX queues"
        | "a setuid program"
        | "control groups"
        | "an inotify instance" => None,
        other => panic!("unknown condition: {other}"),
    }
}

/// Returns all that the victim has received, and all mail of the team, delivered or not.
fn received(team: &Team, victim: &Victim) -> String {
    let folders = ["inbox", "inbox/.claim", "transcript", "dead"].map(|folder| team.path(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.chain([victim.workspace.join("received")]);
    files.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Compares the lines of attacks.py with the table, and refusals with the victims, who must have got nothing.
/// `expected` has every attempt that must have been made.
fn check(team: &Team, victim: &Victim, walls: Walls, said: &str, expected: &[(String, Row)]) {
    let column = walls.column();
    let (mut wrong, received) = (Vec::new(), received(team, victim));
    // The report about the outbox stands below the lines.
    let lines = said.lines().filter(|line| !line.starts_with('['));
    let seen: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(' ')).collect();
    for (name, row) in expected {
        let text = seen.get(name.as_str()).copied().unwrap_or("nothing");
        let met = row.needs.as_deref().map_or(Some(true), is_met);
        let is_allowed =
            Outcome::parse(text).is_some_and(|outcome| row.allows(column, outcome, met));
        if !is_allowed {
            wrong.push(format!("{name}: {text}, not {:?} ({met:?})", row.outcomes(column)));
        }
        if !text.starts_with("out") && received.contains(&format!("{name}-token-")) {
            wrong.push(format!("{name}: {text}, but it has reached its victim"));
        }
        if let Some(why) = text.strip_prefix("skip ") {
            skipped(&format!("the attack {name}: {why}"));
        }
    }
    assert!(wrong.is_empty() && seen.len() == expected.len(), "{wrong:#?}\n{said}");
}

/// All topics but that of orders, which need members that wait for answers.
const TOPICS: [&str; 7] =
    ["team_folder", "home", "git", "processes", "privileges", "network", "services"];

/// The number of commands that bob runs while a folder is swapped.
const PROBES: usize = 12;

/// Names a folder in the workspace in `sandbox.write`: one that commands can replace.
fn let_write_swapped(team: &Team, workspace: &Path) {
    let swapped = workspace.join("swapped");
    let of_team = team.workspace().join("user-settings/team/settings.toml");
    if of_team.exists() {
        let known = fs::read_to_string(&of_team).unwrap();
        return write(&of_team, known.replace("write = [", &format!("write = [{swapped:?}, ")));
    }
    let config = team.workspace().join(".config");
    fs::create_dir_all(config.join("team")).unwrap();
    write(&config.join("team/settings.toml"), format!("[sandbox]\nwrite = [{swapped:?}]\n"));
    team.variable("XDG_CONFIG_HOME", &config.display().to_string());
}

/// Makes the attempts of topics from a command of alice, who is in a headless team with bob, and compares the outcomes
/// with the table.
fn make_attempts(walls: Walls, topics: &[&str]) {
    if !has_python(&format!("the attacks of {}", topics.join(", "))) {
        return;
    }
    if let Some(team) = walls.team() {
        make_attempts_in(&team, walls, topics);
    }
}

fn make_attempts_in(team: &Team, walls: Walls, topics: &[&str]) {
    let victim = Victim::start(team, walls);
    let is_swapped = topics.contains(&"privileges");
    let number_of_probes = if is_swapped { PROBES } else { 0 };
    let probe = |at| bash(&walls.in_workspace(&format!("sh attacks/swap_probe.sh {at} {PROBES}")));
    let probes: Vec<_> = (1..=number_of_probes).map(probe).collect();
    if is_swapped {
        let_write_swapped(team, &victim.workspace);
    }
    let mut table = table();
    let rows = topics.iter().flat_map(|topic| table.remove(*topic).unwrap());
    let is_tried = |row: &Row| row.outcomes(walls.column()) != [Outcome::Skip];
    let rows: Vec<_> = rows.filter(|(_, row)| is_tried(row)).collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let attempts = bash(&walls.attempts(&names.join(" ")));
    let mut replies = vec![calls("lead", &[spawn("bob")]), says("bob", "secret-of-bob")];
    let to_bob = ("send_message", json!({ "to": "bob", "content": "probe" }));
    let and_bob = if is_swapped { vec![spawn("alice"), to_bob] } else { vec![spawn("alice")] };
    replies.extend([calls("lead", &and_bob), says("lead", "spawned")]);
    if is_swapped {
        replies.extend([calls("bob", &probes), says("bob", "probed")]);
    }
    replies.extend([calls("alice", &[attempts]), says("alice", "tried")]);
    headless(team, &script(team, &replies), "begin").expect(0);
    let results = tool_results(team, "alice");
    check(team, &victim, walls, &results[0].1, &rows);
    drop(victim);
    assert_left_in_order(team);
}

#[test]
fn a_command_reaches_the_mail_and_the_state_of_the_team() {
    make_attempts(Walls::None, &["team_folder"]);
}

#[test]
fn a_walled_command_does_not_reach_the_mail_and_the_state_of_the_team() {
    make_attempts(Walls::Workspace, &["team_folder"]);
}

#[test]
fn a_command_reaches_the_files_of_its_user() {
    make_attempts(Walls::None, &["home"]);
}

#[test]
fn a_walled_command_does_not_reach_the_files_of_its_user() {
    make_attempts(Walls::Workspace, &["home"]);
}

#[test]
fn a_command_reaches_its_user_through_git() {
    make_attempts(Walls::None, &["git"]);
}

#[test]
fn a_walled_command_does_not_reach_its_user_through_git() {
    make_attempts(Walls::Workspace, &["git"]);
}

#[test]
fn a_command_reaches_other_processes() {
    make_attempts(Walls::None, &["processes"]);
}

#[test]
fn a_walled_command_does_not_reach_other_processes() {
    make_attempts(Walls::Workspace, &["processes"]);
}

#[test]
fn a_command_has_the_privileges_of_its_user() {
    make_attempts(Walls::None, &["privileges"]);
}

#[test]
fn a_walled_command_has_no_privileges_of_its_user() {
    make_attempts(Walls::Workspace, &["privileges"]);
}

#[test]
fn a_command_reaches_the_network_and_local_sockets() {
    make_attempts(Walls::None, &["network"]);
}

#[test]
fn a_walled_command_does_not_reach_the_network_and_local_sockets() {
    make_attempts(Walls::Workspace, &["network"]);
}

#[test]
fn a_command_reaches_programs_that_obey_a_socket() {
    make_attempts(Walls::None, &["services"]);
}

#[test]
fn a_walled_command_does_not_reach_programs_that_obey_a_socket() {
    make_attempts(Walls::Workspace, &["services"]);
}

/// Returns a call that spawns a member; its first prompt is `begin`.
fn spawn_all(names: &[&'static str]) -> Vec<(&'static str, serde_json::Value)> {
    names.iter().map(|name| spawn(name)).collect()
}

/// Tells the attacker what it could not read behind walls: with it, the forging itself is tried.
fn tell(team: &Team, victim: &Victim, question: &str) {
    let json = |inside: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(team.path(inside)).unwrap()).unwrap()
    };
    let names = ["alice", "bob", "carol", "dora", "lead"];
    let members = names.map(|name| (name.to_owned(), json(&format!("run/{name}.lock"))));
    let keys = ["bob", "lead"]
        .map(|name| (name.to_owned(), json(&format!("run/.state/{name}.key"))["key"].clone()));
    let mail = team.lines("transcript/bob.jsonl").into_iter().filter(|line| line["kind"] == "mail");
    let mut orders = mail.map(|line| line["message"].clone());
    let order = orders.find(|it| it["type"] == "mode_set_request" && it["mode"] == "bypass");
    let known = json!({
        "roster": team.roster(),
        "members": serde_json::Map::from_iter(members),
        "keys": serde_json::Map::from_iter(keys),
        "order": order.expect("an order of the lead"),
        "request": question,
    });
    write(&victim.workspace.join("known.json"), known.to_string());
}

/// The person has allowed one command in mode `default`. The command then tries to answer questions, to give orders and to
/// stop members in the names of the lead and of the person.
fn try_to_give_orders(walls: Walls) {
    if !has_python("the attacks on authority") {
        return;
    }
    let Some(team) = walls.team() else { return };
    let victim = Victim::start(&team, walls);
    team.variable("TEAM_MODE", "default");
    let asks: Vec<_> = (0..5).map(|n| bash(&format!("touch asked-{n}"))).collect();
    let command = format!(": an-earlier-word; {}", walls.attempts("--topic authority"));
    let model = script(
        &team,
        &[
            calls("lead", &spawn_all(&["alice", "bob", "carol", "dora"])),
            says("lead", "spawned"),
            says("alice", "ready"),
            says("bob", "ready"),
            says("carol", "ready"),
            says("dora", "ready"),
            calls("alice", &[bash(&command)]),
            calls("bob", &asks),
            says("bob", "over"),
        ],
    );
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", &model]));
    lead.expect("/quit ends the team");
    lead.type_line("begin");
    for name in ["alice", "bob", "carol", "dora"] {
        team.wait_status(name, "idle");
    }
    // A real order that makes bob's mode looser, for the attempts that send it again.
    for mode in ["bypass", "default"] {
        lead.type_line(&format!("/mode {mode}"));
        let follows = |name: &&str| team.member(name)["mode"] == mode;
        team.eventually("the modes follow", || {
            ["alice", "bob", "carol", "dora"].iter().all(follows)
        });
    }
    team.team(&["send", "bob", "begin"]).expect(0);
    let question = wait_asked(&team, "bob");
    tell(&team, &victim, &question);
    team.team(&["send", "alice", "begin"]).expect(0);
    let of_alice = wait_asked(&team, "alice");
    team.team(&["approve", &of_alice]).expect(0);
    team.eventually("the attempts are over", || !tool_results(&team, "alice").is_empty());
    let results = tool_results(&team, "alice");
    check(&team, &victim, walls, &results[0].1, &table()["authority"]);
    if walls != Walls::None {
        let by_alice = || team.has_mail("bob", "alice", "by-the-outbox");
        team.eventually("the mail in the outbox has come", by_alice);
        assert!(!team.has_mail("bob", "lead", "by-the-outbox"));
        assert_eq!(team.member("bob")["mode"], "default");
    }
    team.team(&["stop", "--all", "--now"]).expect(0);
    lead.wait();
    drop(victim);
    assert_left_in_order(&team);
}

#[test]
fn a_command_gives_orders_and_answers_only_where_the_table_says_so() {
    try_to_give_orders(Walls::None);
}

#[test]
fn a_walled_command_gives_no_orders_and_no_answers() {
    try_to_give_orders(Walls::Workspace);
}

/// A hook runs code that agents wrote, so it needs the same walls as a command.
fn make_attempts_from_a_hook(walls: Walls) {
    if !has_python("the attacks of a hook") {
        return;
    }
    let Some(team) = walls.team() else { return };
    let victim = Victim::start(&team, walls);
    let config = team.workspace().join("user-settings");
    fs::create_dir_all(config.join("team")).unwrap();
    team.variable("XDG_CONFIG_HOME", &config.display().to_string());
    let made = ["forge_mail_append", "read_ssh_key", "proc_environ", "tcp_loopback"];
    let hook = format!("{} > hook.out", walls.attempts(&made.join(" ")));
    let settings =
        format!("[[hooks]]\nevent = \"message_sent\"\ncommand = '''{hook}'''\ntimeout = 300\n");
    write(&config.join("team/settings.toml"), settings);
    let send = ("send_message", json!({ "to": "user", "content": "hello" }));
    let model = script(
        &team,
        &[
            calls("lead", &[spawn("bob")]),
            says("bob", "secret-of-bob"),
            calls("lead", &[send]),
            says("lead", "sent"),
        ],
    );
    headless(&team, &model, "begin").expect(0);
    let said = fs::read_to_string(team.workspace().join("hook.out")).unwrap();
    let rows = table().into_values().flatten();
    let rows: Vec<_> = rows.filter(|(name, _)| made.contains(&name.as_str())).collect();
    check(&team, &victim, walls, &said, &rows);
    drop(victim);
    assert_left_in_order(&team);
}

#[test]
fn a_hook_reaches_what_a_command_reaches() {
    make_attempts_from_a_hook(Walls::None);
}

#[test]
fn a_walled_hook_reaches_what_a_walled_command_reaches() {
    make_attempts_from_a_hook(Walls::Workspace);
}

/// Makes the attempts of a topic behind Landlock alone, in the version of this kernel.
fn make_attempts_behind_landlock(topic: &str) {
    if has_python(&format!("the attacks of {topic} behind Landlock alone")) {
        make_attempts(Walls::Landlock(landlock_version()), &[topic]);
    }
}

#[test]
fn behind_landlock_alone_a_command_reaches_the_names_of_the_team_folder_only() {
    make_attempts_behind_landlock("team_folder");
}

#[test]
fn behind_landlock_alone_a_command_reaches_modes_and_times_only() {
    make_attempts_behind_landlock("home");
}

#[test]
fn behind_landlock_alone_a_command_reaches_its_user_through_git() {
    make_attempts_behind_landlock("git");
}

#[test]
fn behind_landlock_alone_a_command_does_not_reach_other_processes() {
    make_attempts_behind_landlock("processes");
}

#[test]
fn behind_landlock_alone_a_command_has_no_privileges_of_its_user() {
    make_attempts_behind_landlock("privileges");
}

#[test]
fn behind_landlock_alone_a_command_does_not_reach_local_sockets() {
    make_attempts_behind_landlock("network");
}

#[test]
fn behind_landlock_alone_a_command_does_not_reach_programs_that_obey_a_socket() {
    make_attempts_behind_landlock("services");
}

#[test]
fn behind_landlock_alone_a_command_gives_no_orders_and_no_answers() {
    if has_python("the attacks on authority behind Landlock alone") {
        try_to_give_orders(Walls::Landlock(landlock_version()));
    }
}

#[test]
fn at_the_default_level_without_namespaces_the_team_folder_alone_is_open() {
    make_attempts(Walls::NoNamespaces, &TOPICS);
}

#[test]
fn at_the_default_level_without_landlock_namespaces_hold_alone() {
    make_attempts(Walls::NoLandlock, &TOPICS);
}

#[test]
fn at_the_default_level_without_namespaces_a_command_gives_orders_as_without_walls() {
    if has_python("the attacks on authority without namespaces") {
        try_to_give_orders(Walls::NoNamespaces);
    }
}

#[test]
fn at_the_default_level_without_landlock_a_command_gives_no_orders() {
    if has_python("the attacks on authority without Landlock") {
        try_to_give_orders(Walls::NoLandlock);
    }
}

#[test]
fn a_network_that_is_not_open_is_closed_to_each_way_of_sending() {
    if has_python("the attacks on the networks of commands") {
        in_parallel([SandboxNetwork::Hosts, SandboxNetwork::Own, SandboxNetwork::Off], |network| {
            make_attempts(Walls::Network(network), &["network"]);
        });
    }
}

#[test]
fn a_network_that_is_not_open_is_closed_without_namespaces() {
    if has_python("the attacks on the networks of commands without namespaces") {
        in_parallel([SandboxNetwork::Hosts, SandboxNetwork::Off], |network| {
            make_attempts(Walls::NetworkWithoutNamespaces(network), &["network"]);
        });
    }
}

/// The topics on which a team folder with another name could have an effect.
const TOPICS_OF_PATHS: [&str; 3] = ["team_folder", "home", "git"];

#[test]
fn walls_stand_around_a_team_folder_with_another_name() {
    if !has_python("the attacks on a team folder with another name") {
        return;
    }
    let Some(team) = Walls::Workspace.team() else { return };
    team.variable("TEAM_DIR", &team.workspace().join("of-team").display().to_string());
    make_attempts_in(&team, Walls::Workspace, &TOPICS_OF_PATHS);
}

/// The versions of Landlock to which the walls are capped.
const VERSIONS: std::ops::RangeInclusive<i32> = 1..=7;

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_command_behind_an_early_landlock_reaches_what_the_table_says() {
    if has_python("the attacks behind early versions of Landlock") {
        in_parallel(VERSIONS, |version| {
            make_attempts(Walls::Landlock(version), &TOPICS);
            try_to_give_orders(Walls::Landlock(version));
        });
    }
}

/// The version decides on the rights to files and on signals. No other topic has to do with them.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_command_behind_namespaces_and_an_early_landlock_reaches_what_the_table_says() {
    if has_python("the attacks behind namespaces and early versions of Landlock") {
        in_parallel(VERSIONS, |version| {
            make_attempts(Walls::Capped(version), &["team_folder", "home", "processes"]);
        });
    }
}
