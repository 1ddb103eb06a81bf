//! Two hosts of one team, the second one added over a real `ssh`.

use crate::machines::{DEADLINE, program};
use crate::rig::files::temporary_folder;
use crate::rig::namespaces::Network;
use crate::rig::nats_install::find_or_skip;
use crate::rig::process::{spawn_tied, wait_until};
use crate::rig::ssh_server::SshServer;
use crate::skips::skipped;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Two hosts: ann, with a project, and gpu1, which only ssh reaches.
pub(crate) struct Pair {
    pub(crate) ssh: SshServer,
    pub(crate) network: Network,
    pub(crate) folder: TempDir,
    pub(crate) nats_server: PathBuf,
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Pair {
    /// Creates the hosts; `None` where this is not possible, which is noted as a skip. gpu1 has the programs.
    pub(crate) fn or_skip() -> Option<Self> {
        let pair = Self::bare_or_skip()?;
        let bin = pair.ssh.home().join(".local/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["team", "team-host"] {
            symlink(program(name), bin.join(name)).unwrap();
        }
        Some(pair)
    }

    pub(crate) fn bare_or_skip() -> Option<Self> {
        let nats_server = find_or_skip(skipped)?;
        let network = Network::or_skip(&["ann", "gpu1"], skipped)?;
        let folder = temporary_folder();
        let of_server = folder.path().join("gpu1");
        let ssh = SshServer::or_skip(network.host("gpu1").clone(), &of_server, skipped)?;
        fs::create_dir(folder.path().join("shop")).unwrap();
        Some(Self { ssh, network, folder, nats_server })
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    pub(crate) fn on_ann(&self, program: &Path) -> Command {
        let mut command = self.network.host("ann").command(program);
        command.current_dir(self.project()).env("HOME", self.folder.path());
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command.env("TEAM_SSH", self.ssh.ssh()).env("TEAM_NATS_SERVER", &self.nats_server);
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN");
        command
    }

    pub(crate) fn team(&self, args: &[&str]) -> Output {
        self.on_ann(&program("team")).args(args).output().unwrap()
    }

    pub(crate) fn team_ok(&self, args: &[&str]) -> String {
        let output = self.team(args);
        assert!(output.status.success(), "team {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Returns what a command that must fail says.
    pub(crate) fn refusal(&self, args: &[&str]) -> String {
        let output = self.team(args);
        assert!(!output.status.success(), "team {args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Adds gpu1 as the second host of team `demo`.
    pub(crate) fn add(&self) -> String {
        self.team_ok(&["host", "add", "gpu1", "--here", "ann", "--team", "demo"])
    }

    pub(crate) fn start_lead(&self) -> Child {
        let mut lead = self.on_ann(&program("team"));
        lead.args(["lead", "--model", "rehearsal"]).stdin(Stdio::piped());
        lead.stdout(Stdio::null()).stderr(Stdio::null());
        spawn_tied(lead).unwrap()
    }

    /// Starts a member in the folder of the team on gpu1, as a person would there.
    pub(crate) fn start_carol(&self) -> Child {
        let folder = self.ssh.home().join(".team-hosts/demo");
        let mut command = self.network.host("gpu1").command(program("team"));
        command.args(["teammate", "carol", "--model", "rehearsal"]).current_dir(folder);
        command.env("HOME", self.ssh.home()).env("XDG_STATE_HOME", self.ssh.home().join("state"));
        command.env_remove("TEAM_DIR").env_remove("TEAM_RUN").stdin(Stdio::null());
        let said = File::create(self.folder.path().join("carol.out")).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        spawn_tied(command).unwrap()
    }

    pub(crate) fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
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

    pub(crate) fn is_heard(&self) -> bool {
        self.team_ok(&["host", "ls"]).lines().any(|line| line.starts_with("gpu1  up"))
    }

    pub(crate) fn knows_carol(&self) -> bool {
        self.team_ok(&["ls"]).lines().any(|line| line.starts_with("carol") && line.contains("idle"))
    }

    pub(crate) fn carol_has(&self, mail: &str) -> bool {
        let transcript = self.ssh.home().join(".team-hosts/demo/.team/transcript/carol.jsonl");
        fs::read_to_string(transcript).unwrap_or_default().contains(mail)
    }

    /// Whether no program of several hosts runs on any of them.
    pub(crate) fn is_quiet(&self) -> bool {
        let name = |pid: &nix::unistd::Pid| fs::read_to_string(format!("/proc/{pid}/comm"));
        let names = ["ann", "gpu1"].iter().flat_map(|host| self.network.host(host).processes());
        let names: Vec<_> = names.filter_map(|pid| name(&pid).ok()).collect();
        !names.iter().any(|it| ["team-host", "nats-server", "ssh"].contains(&it.trim()))
    }
}
