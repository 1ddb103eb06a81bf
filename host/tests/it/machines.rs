//! A team on several hosts: network namespaces, each with its team folder and its relay, and one server.

use crate::rig::files::{temporary_folder, write_private};
use crate::rig::namespaces::{Host, Network};
use crate::rig::nats_install::find_or_skip;
use crate::rig::nats_server::{NatsServer, ServerOptions};
use crate::rig::process::{signal, spawn_tied, stop, wait_until};
use crate::skips::skipped;
use agent_team::bus::{Bus, MailLimits};
use agent_team::store::relay::known_hosts;
use agent_team::store::{Fsync, LifeLock, LifeRecord, SystemClock, TeamDir, roster};
use agent_team::wire::AgentName;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The longest wait for anything that must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The id of the team.
pub(crate) const TEAM: &str = "demo";

/// Returns a program of the workspace: cargo puts all of them into one folder.
pub(crate) fn program(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_team-host"));
    let program = own.parent().unwrap().join(name);
    assert!(program.exists(), "{} is not built: run cargo build --workspace", program.display());
    program
}

/// Returns a variable of the environment of the tests.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::vars().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// One host of the team.
pub(crate) struct Machine {
    pub(crate) name: String,
    host: Host,
    folder: TempDir,
    pub(crate) dir: TeamDir,
    relay: Option<Child>,
    /// The number of kills of its relay. A kill in the midst of an append leaves a torn line.
    pub(crate) relay_kills: usize,
    /// The addresses of the servers.
    urls: Vec<String>,
    /// A library that is loaded into its programs.
    pub(crate) preloaded: Option<PathBuf>,
    /// The environment of its relay.
    pub(crate) relay_environment: Vec<(String, String)>,
    /// Another program than `team-host`, with its arguments.
    pub(crate) relay_program: Option<(PathBuf, Vec<String>)>,
    /// A change of the command of its relay before each start.
    pub(crate) prepare_relay: Option<fn(&mut Command)>,
}

/// A team on several hosts.
pub(crate) struct Machines {
    pub(crate) all: Vec<Machine>,
    pub(crate) server: NatsServer,
    /// The other servers of a cluster.
    pub(crate) further_servers: Vec<NatsServer>,
    pub(crate) network: Network,
}

/// The hosts of the servers of a cluster.
pub(crate) const SERVERS: [&str; 3] = ["n1", "n2", "n3"];

impl Machines {
    /// Creates hosts of these names and starts their relays; `None` where this is not possible, which is noted as a skip.
    pub(crate) fn or_skip(names: &[&str]) -> Option<Self> {
        Self::in_folders_or_skip(names, temporary_folder)
    }

    /// Creates the same in folders that are prepared for them.
    pub(crate) fn in_folders_or_skip(
        names: &[&str],
        folder: impl FnMut() -> TempDir,
    ) -> Option<Self> {
        let program = find_or_skip(skipped)?;
        let network = Network::or_skip(names, skipped)?;
        let server = NatsServer::on(network.hub(), &program, &ServerOptions::default());
        Some(Self::at(names, network, vec![server], folder))
    }

    /// Creates the same, with a cluster of three servers, each on a host of its own: `SERVERS`.
    pub(crate) fn at_cluster_or_skip(names: &[&str]) -> Option<Self> {
        let program = find_or_skip(skipped)?;
        let network = Network::or_skip(&[names, &SERVERS].concat(), skipped)?;
        let servers = NatsServer::cluster(&SERVERS.map(|name| network.host(name)), &program);
        Some(Self::at(names, network, servers, temporary_folder))
    }

    fn at(
        names: &[&str],
        network: Network,
        servers: Vec<NatsServer>,
        mut folder: impl FnMut() -> TempDir,
    ) -> Self {
        let urls: Vec<_> = servers.iter().map(NatsServer::url).collect();
        let machine =
            |name: &&str| Machine::new(network.host(name).clone(), urls.clone(), folder());
        let mut all: Vec<_> = names.iter().map(machine).collect();
        start_relays(&mut all);
        let mut servers = servers.into_iter();
        let (server, further_servers) = (servers.next().unwrap(), servers.collect());
        Self { all, server, further_servers, network }
    }

    /// Creates the same, with a server that the first host runs itself, and that the others reach over TLS.
    pub(crate) fn at_own_server_or_skip(names: &[&str]) -> Option<Self> {
        let nats_server = find_or_skip(skipped)?;
        let network = Network::or_skip(names, skipped)?;
        let address = format!("{}:4222", network.host(names[0]).address());
        // Nobody uses it.
        let server = NatsServer::on(network.hub(), &nats_server, &ServerOptions::default());
        let machine = |name: &&str| {
            let url = format!("nats://{address}");
            let mut machine =
                Machine::new(network.host(name).clone(), vec![url], temporary_folder());
            let mut args = vec!["run"];
            if *name == names[0] {
                args.extend(["--name", name, "--team", TEAM, "--listen", &address]);
            }
            let args = args.into_iter().map(str::to_owned).collect();
            machine.relay_program = Some((program("team-host"), args));
            let server = ("TEAM_NATS_SERVER".to_owned(), nats_server.display().to_string());
            machine.relay_environment.push(server);
            machine
        };
        let mut all: Vec<_> = names.iter().map(machine).collect();
        start_relays(&mut all);
        Some(Self { all, server, further_servers: Vec::new(), network })
    }

    pub(crate) fn get(&self, name: &str) -> &Machine {
        self.all.iter().find(|machine| machine.name == name).unwrap()
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> &mut Machine {
        self.all.iter_mut().find(|machine| machine.name == name).unwrap()
    }

    /// Waits until a condition holds; says what was awaited, and what the relays have logged, if it never does.
    pub(crate) fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        if wait_until(DEADLINE, is_so) {
            return;
        }
        let logs: Vec<_> = self.all.iter().map(Machine::describe).collect();
        panic!("not within {DEADLINE:?}: {what}\n{}", logs.join("\n"));
    }

    /// Waits until all hosts have a member on their rosters, alive or not.
    pub(crate) fn wait_known(&self, member: &str, alive: bool) {
        for machine in &self.all {
            self.eventually(&format!("{} knows {member}, alive: {alive}", machine.name), || {
                machine.is_alive(member) == Some(alive)
            });
        }
    }

    /// Waits until each host hears all others: a member may be known a moment before.
    pub(crate) fn wait_heard(&self) {
        for machine in &self.all {
            self.eventually(&format!("{} hears all others", machine.name), || {
                let known = known_hosts(&machine.dir).unwrap_or_default();
                let mut others = self.all.iter().filter(|other| other.name != machine.name);
                others.all(|other| {
                    known.iter().any(|it| it.is_heard && it.host.as_str() == other.name)
                })
            });
        }
    }
}

/// Starts the relay of the first host, which signs the others in, and theirs.
fn start_relays(all: &mut [Machine]) {
    let Some((first, others)) = all.split_first_mut() else { return };
    first.start_relay();
    for machine in others {
        machine.join(first);
        machine.start_relay();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_relay();
    }
}

impl Machine {
    fn new(host: Host, urls: Vec<String>, folder: TempDir) -> Self {
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let name = host.name().to_owned();
        Self {
            name,
            host,
            folder,
            dir,
            relay: None,
            relay_kills: 0,
            urls,
            preloaded: None,
            relay_environment: Vec::new(),
            relay_program: None,
            prepare_relay: None,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the address of the host in the network.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.host.address()
    }

    /// Returns a command that runs on this host, in the workspace of the team.
    pub(crate) fn command(&self, program_name: &str) -> Command {
        self.command_of(&program(program_name))
    }

    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = self.host.command(program);
        command.current_dir(self.folder()).env_remove("TEAM_DIR").env_remove("TEAM_RUN");
        // A home of its own: no settings of the developer.
        command.env("HOME", self.folder()).env("XDG_STATE_HOME", self.folder().join("state"));
        command.envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)));
        command
    }

    /// Runs `team` with arguments.
    pub(crate) fn team(&self, args: &[&str]) -> Output {
        self.command("team").args(args).output().unwrap()
    }

    /// Runs `team` with arguments, which must succeed; returns what it prints.
    pub(crate) fn team_ok(&self, args: &[&str]) -> String {
        let output = self.team(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "team {args:?}: {}: {}",
            output.status,
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Starts a member by hand, with the rehearsal model.
    pub(crate) fn start_member(&self, name: &str) -> Child {
        self.start_member_with(name, &[])
    }

    /// Starts a member by hand, with the rehearsal model and further arguments.
    pub(crate) fn start_member_with(&self, name: &str, args: &[&str]) -> Child {
        let mut command = self.command("team");
        command.args(["teammate", name, "--model", "rehearsal"]).args(args).stdin(Stdio::null());
        let log = File::create(self.folder().join(format!("{name}.out"))).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        spawn_tied(command).unwrap()
    }

    /// Starts the relay.
    pub(crate) fn start_relay(&mut self) {
        let mut command = match &self.relay_program {
            Some((program, args)) => {
                let mut command = self.command_of(program);
                command.args(args);
                command
            }
            None => {
                let mut command = self.command("team-host");
                command.args(["run", "--name", &self.name, "--team", TEAM]);
                command.args(self.server_args());
                command
            }
        };
        command.envs(self.relay_environment.iter().map(|(key, value)| (key, value)));
        let said = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder().join("relay.err"))
            .unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        if let Some(prepare) = self.prepare_relay {
            prepare(&mut command);
        }
        self.relay = Some(spawn_tied(command).unwrap());
    }

    /// Makes the host one of the team of another one, whose relay runs.
    pub(crate) fn join(&self, first: &Self) {
        let code = first.invitation(&self.name);
        let urls = self.urls.iter().map(String::as_str);
        let args: Vec<_> =
            ["host", "join"].into_iter().chain(urls).chain(["--code", &code]).collect();
        self.team_ok(&args);
    }

    /// Returns the code by which a host may join.
    pub(crate) fn invitation(&self, host: &str) -> String {
        // Its relay may just start.
        let mut invited = String::new();
        let is_invited = wait_until(DEADLINE, || {
            let output = self.team(&["host", "invite", host]);
            invited = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success()
        });
        assert!(is_invited, "{}", self.describe());
        let code = invited.split("--code ").nth(1).and_then(|rest| rest.split_whitespace().next());
        code.unwrap().to_owned()
    }

    /// Writes the limits of the host, `host.toml`. A relay reads them at its start.
    pub(crate) fn limit(&self, text: &str) {
        let folder = self.folder().join(".config/team");
        fs::create_dir_all(&folder).unwrap();
        write_private(&folder.join("host.toml"), text);
    }

    /// Returns the arguments by which a relay finds the servers.
    pub(crate) fn server_args(&self) -> Vec<String> {
        self.urls.iter().flat_map(|url| ["--nats".into(), url.clone()]).collect()
    }

    /// Has relays that start from now on use other servers.
    pub(crate) fn use_servers(&mut self, urls: Vec<String>) {
        self.urls = urls;
    }

    /// Kills the relay.
    pub(crate) fn kill_relay(&mut self) {
        if let Some(mut relay) = self.relay.take() {
            relay.kill().unwrap();
            relay.wait().unwrap();
            self.relay_kills += 1;
        }
    }

    /// Ends the relay with SIGTERM; returns its exit code.
    pub(crate) fn end_relay(&mut self) -> Option<i32> {
        let mut relay = self.relay.take().unwrap();
        signal(&relay, Signal::SIGTERM);
        relay.wait().unwrap().code()
    }

    /// Waits for the end of the relay; returns its exit code.
    pub(crate) fn wait_relay(&mut self) -> Option<i32> {
        self.relay.take().unwrap().wait().unwrap().code()
    }

    /// Stops the relay if it runs, and waits until it stands still.
    pub(crate) fn stop_relay(&self) {
        if let Some(relay) = &self.relay {
            assert!(stop(relay, DEADLINE), "the relay of {} does not stop", self.name);
        }
    }

    pub(crate) fn signal_relay(&self, what: Signal) {
        signal(self.relay.as_ref().unwrap(), what);
    }

    pub(crate) fn relay_pid(&self) -> u32 {
        self.relay.as_ref().unwrap().id()
    }

    /// Returns how often threads of the relay have waited for something so far.
    pub(crate) fn relay_wakes(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.relay_pid())).unwrap();
        let of = |task: std::io::Result<fs::DirEntry>| {
            let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let count =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        };
        tasks.filter_map(of).sum()
    }

    /// Kills every process of the host.
    pub(crate) fn kill_all(&mut self) {
        self.host.kill_all();
        self.kill_relay();
    }

    pub(crate) fn bus(&self) -> Bus {
        Bus::new(self.dir.clone(), MailLimits::default(), Arc::new(SystemClock))
    }

    /// Adds a member of this host to its roster, for a test that plays its process.
    pub(crate) fn add_member(&self, name: &str) {
        roster::update(&self.dir, Fsync::Never, |roster| {
            roster.enter(name, 1.0).status = agent_team::wire::roster::Status::Idle;
        })
        .unwrap();
    }

    /// Adds so many members, and makes this test their process until the drop.
    pub(crate) fn play_members(&self, number: usize) -> Vec<LifeLock> {
        let name = |at| AgentName::member(&format!("{}-m{at}", self.name)).unwrap();
        let take = |name| LifeLock::take(&self.dir, &name, LifeRecord::of_this_process()).unwrap();
        let lives: Vec<_> = (0..number).map(name).map(take).collect();
        roster::update(&self.dir, Fsync::Never, |roster| {
            for life in &lives {
                let entry = roster.enter(life.name().as_str(), 1.0);
                entry.status = agent_team::wire::roster::Status::Idle;
            }
        })
        .unwrap();
        lives
    }

    /// Returns the entry of a member, or of the lead, as `team ls` shows it.
    pub(crate) fn member(&self, name: &str) -> Option<Value> {
        let shown: Value = serde_json::from_str(&self.team_ok(&["ls", "--json"])).unwrap();
        if name == "lead" {
            return Some(shown["lead"].clone()).filter(|lead| !lead.is_null());
        }
        shown["members"].as_array().unwrap().iter().find(|member| member["name"] == name).cloned()
    }

    /// Returns the number of messages that wait for another host, as `team host ls` shows it.
    pub(crate) fn waiting_for(&self, host: &str) -> Option<u64> {
        let shown: Value = serde_json::from_str(&self.team_ok(&["host", "ls", "--json"])).unwrap();
        let hosts = shown["hosts"].as_array()?;
        hosts.iter().find(|known| known["host"] == host)?["waiting"].as_u64()
    }

    pub(crate) fn is_alive(&self, name: &str) -> Option<bool> {
        self.member(name)?["alive"].as_bool()
    }

    /// Returns the inbox of a name on this host.
    pub(crate) fn inbox(&self, name: &str) -> String {
        let path = self.dir.inbox(&AgentName::mailbox(name).unwrap());
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Returns the transcript of a member of this host.
    pub(crate) fn transcript(&self, name: &str) -> String {
        let path = self.dir.transcript(&AgentName::mailbox(name).unwrap());
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Returns the messages in the transcript of a member of this host.
    pub(crate) fn mail_of(&self, name: &str) -> Vec<Value> {
        let lines = self.transcript(name);
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["kind"] == "mail").map(|line| line["message"].clone()).collect()
    }

    pub(crate) fn has_mail(&self, owner: &str, text: &str) -> bool {
        let has = |mail: &Value| mail["content"].as_str().is_some_and(|it| it.contains(text));
        self.mail_of(owner).iter().any(has)
    }

    /// Returns what is known of the host, for a failure.
    pub(crate) fn describe(&self) -> String {
        let tail = |path: PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(15).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n  ")
        };
        let members = self.team_ok(&["ls"]);
        format!(
            "{}:\n  {}\n  {}\n  {}",
            self.name,
            tail(self.dir.relay_log()),
            tail(self.folder().join("relay.err")),
            members.lines().take(100).collect::<Vec<_>>().join("\n"),
        )
    }
}
