//! Walls around a command: mount namespaces, capabilities, Landlock rules and a filter of system calls.
//!
//! The supervisor of the command prepares them and stays outside; the command's process enters them between
//! fork and exec. A wall that cannot be put up is an error that names it: no command runs without its walls.

mod by_number;
mod capabilities;
mod connect_filter;
mod devices;
mod landlock;
mod mount_calls;
mod named_error;
mod namespaces;
pub(crate) mod outbox;
mod own_loopback;
mod policy;
pub(in crate::os) mod proxy_door;
mod seccomp;
pub(in crate::os) mod temp_folder;
mod trees;

pub(in crate::os) use connect_filter::ConnectFilter;
pub(crate) use landlock::VERSION_WITH_SIGNALS;
pub(crate) use policy::WallPolicy;
pub(crate) use proxy_door::{PROXY_ADDRESS, receive_listener};

use crate::wire::host::HostPattern;
use crate::wire::sandbox::SandboxNetwork;
use connect_filter::ConnectFilterSetup;
use landlock::LandlockRules;
use named_error::named;
use namespaces::MountPlan;
use outbox::Outbox;
use seccomp::Filter;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use temp_folder::TempFolder;

/// The words in front of the wall that could not be put up.
pub(crate) const MISSING_WALLS: &str = "its walls are missing: ";

/// The walls around the commands of one agent, and the folder for their temporary files.
#[derive(Debug)]
pub(crate) struct Walls {
    policy: WallPolicy,
    temp: Option<TempFolder>,
}

impl Walls {
    /// Creates the folder for temporary files of the agent with this `run_id`, which commands may change.
    pub(crate) fn new(mut policy: WallPolicy, run_id: &str) -> io::Result<Self> {
        let temp = TempFolder::make(run_id)?;
        policy.writable.push(temp.path().to_owned());
        Ok(Self { policy, temp: Some(temp) })
    }

    /// Returns the walls for a command that needs no temporary files: nothing is created, and nothing can be left.
    pub(crate) fn without_temp_folder(policy: WallPolicy) -> Self {
        Self { policy, temp: None }
    }

    /// Says what a command may not do, for the agent that runs it.
    pub(crate) fn in_words(&self) -> String {
        let writable: Vec<String> =
            self.policy.writable.iter().map(|path| path.display().to_string()).collect();
        let network = match self.policy.network {
            SandboxNetwork::Open => "",
            SandboxNetwork::Hosts => ", and only named hosts are reached, through a proxy",
            SandboxNetwork::Own => ", and the network is a loopback of the command's own",
            SandboxNetwork::Off => ", and there is no network",
        };
        let writable = writable.join(", ");
        let is_partial = self.policy.allows_holes || self.policy.lacks_landlock;
        let hidden = if is_partial { "keys" } else { "keys, the team folder and other processes" };
        format!(
            "commands run behind walls: they can change files only below {writable}; {hidden} are \
             out of reach{network}. A package manager can keep its cache below $TMPDIR \
             (CARGO_HOME, npm_config_cache)"
        )
    }

    pub(crate) fn temp_folder(&self) -> Option<&Path> {
        self.temp.as_ref().map(TempFolder::path)
    }

    /// Returns an outbox for the mail of one command; `None` without a folder for temporary files.
    pub(crate) fn new_outbox(&self) -> Option<Outbox> {
        self.temp.as_ref().map(|temp| Outbox::new(temp.path()))
    }

    /// Whether commands reach every address.
    pub(crate) fn has_open_network(&self) -> bool {
        self.policy.network == SandboxNetwork::Open
    }

    /// Returns the hosts that commands reach without a question; `None` if they have no proxy.
    pub(crate) fn proxied_hosts(&self) -> Option<&[HostPattern]> {
        let has_proxy = self.policy.network == SandboxNetwork::Hosts;
        has_proxy.then_some(&self.policy.hosts)
    }

    /// Returns the files and folders that exist and that commands cannot read.
    pub(crate) fn hidden_paths(&self) -> Vec<PathBuf> {
        self.policy.hidden_paths()
    }

    /// Whether a command can have read-only mounts of its own.
    pub(crate) fn has_namespaces(&self) -> bool {
        self.policy.has_namespaces
    }

    /// Returns the file with the policy for one command, which may only read these further paths.
    pub(in crate::os) fn policy_file(&self, read_only: &[PathBuf]) -> io::Result<File> {
        let mut policy = self.policy.clone();
        policy.protected.extend_from_slice(read_only);
        policy.to_file()
    }
}

/// The walls of one command, prepared before its process is started.
#[derive(Debug)]
pub(in crate::os) struct Wall {
    mounts: Option<MountPlan>,
    rules: Option<LandlockRules>,
    filter: Filter,
    /// The agent's end for the socket on which its proxy listens, where the command's process makes that socket.
    agent: Option<OwnedFd>,
    connect_filter: Option<ConnectFilterSetup>,
    report: PipeWriter,
}

/// The parts of the walls of one command.
#[derive(Debug)]
pub(in crate::os) struct PreparedWalls {
    pub(in crate::os) wall: Wall,
    pub(in crate::os) report: WallReport,
    /// The part that stays with the supervisor, where there is one.
    pub(in crate::os) connect_filter: Option<ConnectFilter>,
}

/// The text about a wall that could not be entered, written by the command's process.
#[derive(Debug)]
pub(in crate::os) struct WallReport(PipeReader);

impl Wall {
    /// Opens the files that the rules name and compiles the filter. `agent` is the way to the agent's proxy. The error
    /// names the wall.
    pub(in crate::os) fn prepare(
        policy: &WallPolicy,
        agent: Option<&OwnedFd>,
    ) -> io::Result<PreparedWalls> {
        let (reader, report) = io::pipe()?;
        let (hidden, holes) = policy.split_hidden();
        let all_hidden = || [hidden.as_slice(), &holes].concat();
        let mounts = policy.has_namespaces.then(|| MountPlan::of(policy, &all_hidden()));
        let mounts = mounts.transpose().map_err(|why| named("namespaces", &why))?;
        if mounts.is_none() && policy.network == SandboxNetwork::Own {
            let why = "network: only namespaces give a command a loopback of its own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if let (None, Some(hole)) = (&mounts, holes.first())
            && !policy.allows_holes
        {
            let why = format!("Landlock: {} is in a writable folder", hole.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let abi = landlock_version(policy.landlock_cap);
        // Without Landlock only mounts protect files; with them no filter is needed for truncation.
        let abi = if policy.lacks_landlock { landlock::LATEST } else { abi? };
        let rules = (!policy.lacks_landlock).then(|| LandlockRules::prepare(policy, &hidden, abi));
        let rules = rules.transpose().map_err(|why| named("Landlock", &why))?;
        let filter = Filter::compile(policy, abi).map_err(|why| named("seccomp", &why))?;
        let agent = agent.filter(|_| policy.network == SandboxNetwork::Hosts);
        let (agent, connect) = match (agent, &mounts) {
            (Some(agent), None) => (None, Some(ConnectFilter::prepare(agent))),
            (agent, _) => (agent.map(OwnedFd::try_clone), None),
        };
        let connect = connect.transpose().map_err(|why| named("network", &why))?;
        let (connect_filter, setup) = connect.unzip();
        let agent = agent.transpose()?;
        let wall = Self { mounts, rules, filter, agent, connect_filter: setup, report };
        Ok(PreparedWalls { wall, report: WallReport(reader), connect_filter })
    }

    /// Enters the walls. Runs between fork and exec, in the child of a process with a single thread, so it may
    /// allocate. An error is also written to the report, since std passes on its number only.
    pub(in crate::os) fn enter(&self) -> io::Result<()> {
        self.enter_each().inspect_err(|why| {
            (&self.report).write_all(why.to_string().as_bytes()).unwrap_or_default();
        })
    }

    fn enter_each(&self) -> io::Result<()> {
        if let Some(mounts) = &self.mounts {
            mounts.enter().map_err(|why| named("namespaces", &why))?;
        }
        if let Some(agent) = &self.agent {
            let listener = proxy_door::listen_for_commands();
            let sent = listener.and_then(|listener| proxy_door::send(agent, &listener));
            sent.map_err(|why| named("network", &why))?;
        }
        capabilities::drop_all_but_few().map_err(|why| named("capabilities", &why))?;
        let private = self.mounts.iter().flat_map(MountPlan::private);
        let enforced = self.rules.as_ref().map_or(Ok(()), |rules| rules.enforce(private));
        enforced.map_err(|why| named("Landlock", &why))?;
        self.filter.install().map_err(|why| named("seccomp", &why))?;
        let connect_filter = self.connect_filter.as_ref();
        let installed = connect_filter.map_or(Ok(()), ConnectFilterSetup::install);
        installed.map_err(|why| named("network", &why))
    }
}

impl WallReport {
    /// Returns the error of a start that failed. The walls must have been dropped.
    pub(in crate::os) fn explain(mut self, why: io::Error) -> io::Error {
        let mut text = String::new();
        match self.0.read_to_string(&mut text) {
            Ok(bytes) if bytes > 0 => io::Error::other(format!("{MISSING_WALLS}{text}")),
            Ok(_) | Err(_) => why,
        }
    }
}

/// Returns the version of Landlock, at most `cap`. The error names the wall.
pub(crate) fn landlock_version(cap: Option<i32>) -> io::Result<i32> {
    landlock::version(cap).map_err(|why| named("Landlock", &why))
}
