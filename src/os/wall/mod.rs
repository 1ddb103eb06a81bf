//! Walls around a command: mount namespaces, capabilities, Landlock rules and a filter of system calls.
//!
//! The supervisor of the command prepares them and stays outside; the command's process enters them between
//! fork and exec. A wall that cannot be put up is an error that names it: no command runs without its walls.

mod capabilities;
mod landlock;
mod mount_calls;
mod named_error;
mod namespaces;
mod own_loopback;
pub(crate) mod outbox;
mod policy;
mod seccomp;
pub(in crate::os) mod temp_folder;

pub(crate) use policy::WallPolicy;

use crate::wire::sandbox::SandboxNetwork;
use landlock::{LandlockRules, VERSION_WITH_SIGNALS};
use named_error::named;
use namespaces::MountPlan;
use outbox::Outbox;
use seccomp::Filters;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use temp_folder::TempFolder;

/// The walls around the commands of one agent, and the folder for their temporary files.
#[derive(Debug)]
pub(crate) struct Walls {
    policy: WallPolicy,
    temp: TempFolder,
}

impl Walls {
    /// Creates the folder for temporary files of the agent with this `run_id`, which commands may change.
    pub(crate) fn new(mut policy: WallPolicy, run_id: &str) -> io::Result<Self> {
        let temp = TempFolder::make(run_id)?;
        policy.writable.push(temp.path().to_owned());
        Ok(Self { policy, temp })
    }

    /// Says what a command may not do, for the agent that runs it.
    pub(crate) fn in_words(&self) -> String {
        let writable: Vec<String> =
            self.policy.writable.iter().map(|path| path.display().to_string()).collect();
        let network = match self.policy.network {
            SandboxNetwork::Open => "",
            SandboxNetwork::Own => ", and the network is a loopback of the command's own",
            SandboxNetwork::Off => ", and there is no network",
        };
        let writable = writable.join(", ");
        format!(
            "walls stand around commands: they change files only below {writable}; keys, the team \
             folder and other processes are out of reach{network}"
        )
    }

    pub(crate) fn temp_folder(&self) -> &Path {
        self.temp.path()
    }

    /// Returns an outbox for the mail of one command.
    pub(crate) fn new_outbox(&self) -> Outbox {
        Outbox::new(self.temp.path())
    }

    pub(in crate::os) fn policy_file(&self) -> io::Result<File> {
        self.policy.to_file()
    }
}

/// The walls of one command, prepared before its process is started.
#[derive(Debug)]
pub(in crate::os) struct Wall {
    mounts: Option<MountPlan>,
    rules: LandlockRules,
    filters: Filters,
    report: PipeWriter,
}

/// The text about a wall that could not be entered, written by the command's process.
#[derive(Debug)]
pub(in crate::os) struct WallReport(PipeReader);

impl Wall {
    /// Opens the files that the rules name and compiles the filters. The error names the wall.
    pub(in crate::os) fn prepare(policy: &WallPolicy) -> io::Result<(Self, WallReport)> {
        let (reader, report) = io::pipe()?;
        let (hidden, holes) = policy.split_hidden();
        let all_hidden = || [hidden.as_slice(), &holes].concat();
        let mounts = policy.has_namespaces.then(|| MountPlan::of(policy, &all_hidden()));
        let mounts = mounts.transpose().map_err(|why| named("namespaces", &why))?;
        if mounts.is_none() && policy.network == SandboxNetwork::Own {
            let why = "network: only namespaces give a command a loopback of its own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if let (None, Some(hole)) = (&mounts, holes.first()) {
            let why = format!("Landlock: {} is in a writable folder", hole.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let abi = landlock::version(policy.landlock_cap).map_err(|why| named("Landlock", &why))?;
        let rules = LandlockRules::prepare(policy, &hidden, abi);
        let rules = rules.map_err(|why| named("Landlock", &why))?;
        let filters = Filters::compile(policy, abi).map_err(|why| named("seccomp", &why))?;
        Ok((Self { mounts, rules, filters, report }, WallReport(reader)))
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
        capabilities::drop_all_but_few().map_err(|why| named("capabilities", &why))?;
        let private = self.mounts.iter().flat_map(MountPlan::private);
        self.rules.enforce(private).map_err(|why| named("Landlock", &why))?;
        self.filters.install().map_err(|why| named("seccomp", &why))
    }
}

impl WallReport {
    /// Returns the error of a start that failed. The walls must have been dropped.
    pub(in crate::os) fn explain(mut self, why: io::Error) -> io::Error {
        let mut text = String::new();
        match self.0.read_to_string(&mut text) {
            Ok(bytes) if bytes > 0 => io::Error::other(format!("its walls are missing: {text}")),
            Ok(_) | Err(_) => why,
        }
    }
}

/// Returns the walls that this version of Landlock lacks, in words; none for a recent one.
pub(crate) fn missing_in_landlock(cap: Option<i32>) -> io::Result<Option<String>> {
    let abi = landlock::version(cap).map_err(|why| named("Landlock", &why))?;
    let text = format!("signals to other processes (Landlock {abi}; 6, Linux 6.12, is needed)");
    Ok((abi < VERSION_WITH_SIGNALS).then_some(text))
}
