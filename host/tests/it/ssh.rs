//! A second host in one command, over a real `ssh`: set-up, mail through the tunnel, kills, and the wrong things.

use crate::machines::{DEADLINE, program};
use crate::rig::files::temporary_folder;
use crate::rig::namespaces::Network;
use crate::rig::nats_install::find_or_skip;
use crate::rig::process::{signal, spawn_tied, wait_until};
use crate::rig::ssh_server::SshServer;
use crate::skips::skipped;
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Two hosts: ann, with a project, and gpu1, which only ssh reaches.
struct Pair {
    ssh: SshServer,
    network: Network,
    folder: TempDir,
    nats_server: PathBuf,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Pair {
    /// Creates the hosts; `None` where this is not possible, which is noted as a skip. gpu1 has the programs.
    fn or_skip() -> Option<Self> {
        let pair = Self::bare_or_skip()?;
        let bin = pair.ssh.home().join(".local/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["team", "team-host"] {
            symlink(program(name), bin.join(name)).unwrap();
        }
        Some(pair)
    }

    fn bare_or_skip() -> Option<Self> {
        let nats_server = find_or_skip(skipped)?;
        let network = Network::or_skip(&["ann", "gpu1"], skipped)?;
        let folder = temporary_folder();
        let of_server = folder.path().join("gpu1");
        let ssh = SshServer::or_skip(network.host("gpu1").clone(), &of_server, skipped)?;
        fs::create_dir(folder.path().join("shop")).unwrap();
        Some(Self { ssh, network, folder, nats_server })
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    fn on_ann(&self, program: &Path) -> Command {
        let mut command = self.network.host("ann").command(program);
        command.current_dir(self.project()).env("HOME", self.folder.path());
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command.env("TEAM_SSH", self.ssh.ssh()).env("TEAM_NATS_SERVER", &self.nats_server);
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN");
        command
    }

    fn team(&self, args: &[&str]) -> Output {
        self.on_ann(&program("team")).args(args).output().unwrap()
    }

    fn team_ok(&self, args: &[&str]) -> String {
        let output = self.team(args);
        assert!(output.status.success(), "team {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Returns what a command that must fail says.
    fn refusal(&self, args: &[&str]) -> String {
        let output = self.team(args);
        assert!(!output.status.success(), "team {args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Adds gpu1 as the second host of team `demo`.
    fn add(&self) -> String {
        self.team_ok(&["host", "add", "gpu1", "--here", "ann", "--team", "demo"])
    }

    fn start_lead(&self) -> Child {
        let mut lead = self.on_ann(&program("team"));
        lead.args(["lead", "--model", "rehearsal"]).stdin(Stdio::piped());
        lead.stdout(Stdio::null()).stderr(Stdio::null());
        spawn_tied(lead).unwrap()
    }

    /// Starts a member in the folder of the team on gpu1, as a person would there.
    fn start_carol(&self) -> Child {
        let folder = self.ssh.home().join(".team-hosts/demo");
        let mut command = self.network.host("gpu1").command(program("team"));
        command.args(["teammate", "carol", "--model", "rehearsal"]).current_dir(folder);
        command.env("HOME", self.ssh.home()).env("XDG_STATE_HOME", self.ssh.home().join("state"));
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN").stdin(Stdio::null());
        let said = File::create(self.folder.path().join("carol.out")).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        spawn_tied(command).unwrap()
    }

    fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        if wait_until(DEADLINE, is_so) {
            return;
        }
        let tail = |team: &Path, file: &str| {
            let read = fs::read_to_string(team.join(".team").join(file)).unwrap_or_default();
            let lines: Vec<_> = read.lines().rev().take(12).collect();
            format!("{file}:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        let (here, there) = (self.project(), self.ssh.home().join(".team-hosts/demo"));
        let relay = "run/.state/relay/log.jsonl";
        let supervisor = "run/.state/relay/supervisor.jsonl";
        let known = [
            tail(&here, relay),
            tail(&here, "transcript/lead.jsonl"),
            tail(&there, relay),
            tail(&there, supervisor),
        ];
        panic!("not within {DEADLINE:?}: {what}\n{}", known.join("\n"));
    }

    fn is_heard(&self) -> bool {
        self.team_ok(&["host", "ls"]).lines().any(|line| line.starts_with("gpu1  up"))
    }

    fn knows_carol(&self) -> bool {
        self.team_ok(&["ls"]).lines().any(|line| line.starts_with("carol") && line.contains("idle"))
    }

    fn carol_has(&self, mail: &str) -> bool {
        let transcript = self.ssh.home().join(".team-hosts/demo/.team/transcript/carol.jsonl");
        fs::read_to_string(transcript).unwrap_or_default().contains(mail)
    }

    /// Whether no program of several hosts runs on any of them.
    fn is_quiet(&self) -> bool {
        let name = |pid: &nix::unistd::Pid| fs::read_to_string(format!("/proc/{pid}/comm"));
        let names = ["ann", "gpu1"].iter().flat_map(|host| self.network.host(host).processes());
        let names: Vec<_> = names.filter_map(|pid| name(&pid).ok()).collect();
        !names.iter().any(|it| ["team-host", "nats-server", "ssh"].contains(&it.trim()))
    }
}

#[test]
fn a_teammate_that_a_lead_starts_over_ssh_outlives_the_connection_and_ends_with_the_host() {
    let Some(mut pair) = Pair::or_skip() else { return };
    let label = ["--label", "gpu"];
    let add = ["host", "add", "gpu1", "--here", "ann", "--team", "demo"];
    pair.team_ok(&[&add[..], &label].concat());
    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    pair.eventually("its label is known", || pair.team_ok(&["host", "ls"]).contains(" gpu "));
    lead.stdin.as_mut().unwrap().write_all(b"Spawn carol (trainer) on gpu.\n").unwrap();
    pair.eventually("carol is on the roster", || pair.knows_carol());
    let runs = |pair: &Pair, name: &str| {
        let processes = pair.network.host("gpu1").processes();
        let is_it = |pid: &nix::unistd::Pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name)
        };
        processes.into_iter().find(is_it)
    };
    let carol = runs(&pair, "teammate").unwrap();

    pair.ssh.kill();
    pair.eventually("the relay there has ended", || runs(&pair, "team-host").is_none());
    pair.team_ok(&["send", "carol", "without ssh"]);
    pair.ssh.start();
    pair.eventually("mail that waited for ssh arrives", || pair.carol_has("without ssh"));
    assert_eq!(runs(&pair, "teammate"), Some(carol), "she has gone on");

    pair.eventually("gpu1 is heard again", || pair.is_heard());
    let said = pair.team_ok(&["host", "rm", "gpu1"]);
    assert!(said.contains("carol ended"), "{said}");
    pair.eventually("nothing of the team runs on gpu1", || {
        ["teammate", "team-supervise", "team-host"].iter().all(|name| runs(&pair, name).is_none())
    });
    lead.kill().unwrap();
    lead.wait().unwrap();
    pair.eventually("nothing runs after the lead", || pair.is_quiet());
}

#[test]
fn a_host_is_added_in_one_command_and_mail_goes_through_kills_of_ssh_server_and_relay() {
    let Some(mut pair) = Pair::or_skip() else { return };
    let said = pair.add();
    assert!(said.contains("gpu1 is a host of team demo; this one is ann"), "{said}");
    assert!(said.contains("/team teammate NAME'") && said.contains("team lead"), "{said}");
    assert!(pair.is_quiet(), "nothing runs without a lead");

    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    // Once more, while it is up: nothing is made anew.
    pair.add();
    let mut carol = pair.start_carol();
    pair.eventually("carol is on the roster", || pair.knows_carol());
    pair.team_ok(&["send", "carol", "the first"]);
    pair.eventually("the first mail arrives", || pair.carol_has("the first"));

    pair.ssh.kill();
    pair.team_ok(&["send", "carol", "without ssh"]);
    pair.ssh.start();
    pair.eventually("mail that waited for ssh arrives", || pair.carol_has("without ssh"));

    let processes = pair.network.host("ann").processes();
    let named = |name: &str| {
        let is_named = |pid: &&nix::unistd::Pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name)
        };
        *processes.iter().find(is_named).unwrap()
    };
    nix::sys::signal::kill(named("nats-server"), Signal::SIGKILL).unwrap();
    pair.team_ok(&["send", "carol", "without a server"]);
    pair.eventually("mail that waited for the server", || pair.carol_has("without a server"));
    nix::sys::signal::kill(named("team-host"), Signal::SIGKILL).unwrap();
    pair.team_ok(&["send", "carol", "without a relay"]);
    pair.eventually("mail that waited for the relay arrives", || pair.carol_has("without a relay"));

    // The lead's end is that of all of it; the member on the other host stays.
    drop(lead.stdin.take());
    assert!(lead.wait().unwrap().success());
    assert!(pair.is_quiet(), "the lead leaves nothing behind");
    let shown = pair.team_ok(&["ls"]);
    assert!(shown.contains("No relay runs on this host"), "{shown}");
    let waits = pair.team(&["send", "carol", "for later"]);
    assert!(text(&waits.stderr).contains("once `team lead`"), "{}", text(&waits.stderr));
    let found = text(&pair.team(&["doctor"]).stdout);
    assert!(!found.contains("carol is listed") && !found.contains("other users"), "{found}");

    // A lead that is killed leaves nothing either.
    let mut lead = pair.start_lead();
    pair.eventually("mail for later arrives", || pair.carol_has("for later"));
    lead.kill().unwrap();
    lead.wait().unwrap();
    pair.eventually("nothing is left behind", || pair.is_quiet());
    signal(&carol, Signal::SIGTERM);
    carol.wait().unwrap();
}

#[test]
fn a_host_without_the_programs_gets_copies() {
    let Some(pair) = Pair::bare_or_skip() else { return };
    let own = pair.folder.path().join("own");
    fs::create_dir(&own).unwrap();
    for name in ["team", "team-host"] {
        // The programs of the tests are large with what they hold for a debugger.
        let strip = Command::new("strip").arg("-o").arg(own.join(name)).arg(program(name)).status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(program(name), own.join(name)).unwrap();
        }
    }
    let mut add = pair.on_ann(&own.join("team"));
    let added =
        add.args(["host", "add", "gpu1", "--team", "demo", "--folder", "it's here"]).output();
    let added = added.unwrap();
    let said = text(&added.stdout);
    assert!(added.status.success(), "{said}{}", text(&added.stderr));
    assert!(said.contains("programs copied"), "{said}");
    let home = pair.ssh.home();
    assert!(home.join("it's here/.team/run/.state/relay/host.json").exists());
    for name in ["team", "team-host"] {
        assert!(Command::new(home.join(".local/bin").join(name)).arg("--version").output().is_ok());
    }
    // They are found the second time.
    let again = pair.team_ok(&["host", "add", "gpu1", "--folder", "it's here"]);
    assert!(again.contains("team-host 0.1.0 is there"), "{again}");
    assert!(pair.is_quiet());
}

#[test]
fn a_host_that_cannot_be_added_is_not_added_and_the_reason_is_said() {
    let Some(mut pair) = Pair::or_skip() else { return };
    for (destination, why) in
        [("nowhere", "nowhere cannot be reached over ssh: "), ("a b", "is not a host for ssh")]
    {
        let said = pair.refusal(&["host", "add", destination]);
        assert!(said.contains(why), "{said}");
    }
    assert!(!pair.project().join(".team").exists(), "a refusal changes nothing");
    let said = pair.refusal(&["host", "add", "gpu1", "--here", "gpu1"]);
    assert!(said.contains("this host is named gpu1, too"), "{said}");
    let said = pair.refusal(&["host", "rm", "gpu1"]);
    assert!(said.contains("no host of this name was added"), "{said}");
    pair.add();
    let said = pair.refusal(&["host", "add", "gpu1", "--folder", "elsewhere"]);
    assert!(said.contains("a host is named gpu1 already"), "{said}");
    let said = pair.refusal(&["host", "add", "gpu1", "--here", "bob"]);
    assert!(said.contains("this host is named ann"), "{said}");
    let said = pair.refusal(&["host", "add", "gpu1", "--name", "gpu2"]);
    assert!(said.contains("its folder is that of host gpu1"), "{said}");
    assert!(!pair.team_ok(&["host", "ls"]).contains("gpu2"));

    pair.ssh.kill();
    let said = pair.refusal(&["host", "add", "gpu1"]);
    assert!(said.contains("cannot be reached over ssh") && said.contains("refused"), "{said}");
    let mut lead = pair.start_lead();
    pair.eventually("the reason is shown", || {
        let shown = pair.team_ok(&["host", "ls"]);
        shown.contains("no connection over ssh: ") && shown.contains("refused")
    });
    pair.ssh.start();
    pair.eventually("gpu1 is heard by itself", || pair.is_heard());
    let removed = pair.team_ok(&["host", "rm", "gpu1"]);
    assert!(removed.contains("the connection to gpu1 ends"), "{removed}");
    pair.eventually("the relay on gpu1 ends", || {
        pair.team_ok(&["host", "ls"]).contains("away for")
    });
    drop(lead.stdin.take());
    lead.wait().unwrap();
    assert!(pair.is_quiet());
}
