//! Many idle processes, each with a socket: teammates as a lead starts them, or programs with only a
//! single-threaded runtime.

use crate::bench_team::BenchTeam;
use crate::child_process::{Job, command};
use agent_team::cli::{Greeting, greet};
use agent_team::store::{Fsync, inbox, roster};
use agent_team::wire::AgentName;
use agent_team::wire::permission::PermissionMode;
use agent_team::wire::roster::{Member, Status};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Child processes that are ready.
pub(crate) struct Scripts {
    children: Vec<(Child, UnixStream)>,
    /// The time from the first start until the last process was ready.
    pub(crate) took: Duration,
}

impl Scripts {
    /// Starts teammates of the real program on the rehearsal model. The work of a lead for each is included:
    /// roster entry, process, handshake, and the inbox and syncs before the spawn is reported. Starts overlap, as
    /// with a lead that does not wait for one teammate before it starts the next.
    pub(crate) fn of_teammates(team: &BenchTeam, count: usize) -> Self {
        let start = Instant::now();
        let mut members = std::thread::scope(|scope| {
            Self::start(count, |number| {
                let name = AgentName::member(&format!("member-{number}")).unwrap();
                enter(team, &name);
                let inbox = name.clone();
                scope.spawn(move || keep(team, &inbox));
                teammate(team, &name)
            })
        });
        members.took = start.elapsed();
        members
    }

    /// Starts the reference processes.
    pub(crate) fn of_runtimes(count: usize) -> Self {
        Self::start(count, |_| {
            let (ours, theirs) = pair();
            (command(&Job::Idle).stdin(theirs).spawn().unwrap(), ours)
        })
    }

    fn start(count: usize, one: impl FnMut(usize) -> (Child, UnixStream)) -> Self {
        let start = Instant::now();
        let children: Vec<_> = (0..count).map(one).collect();
        for (_, socket) in &children {
            let mut answer = String::new();
            BufReader::new(socket).read_line(&mut answer).unwrap();
            assert!(answer.contains("ready"), "{answer:?}");
        }
        Self { children, took: start.elapsed() }
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.children.iter().map(|(child, _)| child.id())
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _gone = child.kill();
        }
        for (child, _) in &mut self.children {
            let _reaped = child.wait();
        }
    }
}

fn pair() -> (UnixStream, OwnedFd) {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).unwrap();
    (ours.into(), theirs)
}

fn incarnation(name: &AgentName) -> String {
    format!("life-of-{name}")
}

/// Writes the roster entry of a starting member.
fn enter(team: &BenchTeam, name: &AgentName) {
    roster::update(&team.dir, Fsync::Never, |roster| {
        let member = Member {
            name: name.to_string(),
            incarnation: incarnation(name),
            status: Status::Starting,
            ..Member::default()
        };
        roster.members.push(member.into());
    })
    .unwrap();
}

/// Does the syncs that a lead does while the process starts.
fn keep(team: &BenchTeam, name: &AgentName) {
    inbox::ensure(&team.dir, name).unwrap();
    roster::sync(&team.dir, Fsync::Always).unwrap();
}

fn teammate(team: &BenchTeam, name: &AgentName) -> (Child, UnixStream) {
    let (ours, theirs) = pair();
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_teammate")));
    command.args([name.as_str(), "--role", "tester", "--model", "rehearsal", "--mode", "bypass"]);
    command
        .arg("--dir")
        .arg(team.dir.root())
        .arg("--control-fd")
        .arg(theirs.as_raw_fd().to_string());
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(team.folder.path());
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    drop(theirs);
    let greeting = Greeting {
        incarnation: incarnation(name),
        role: "tester".into(),
        model: "rehearsal".into(),
        mode: PermissionMode::Bypass,
        control_key: None,
    };
    greet(&ours, &team.dir, greeting).unwrap();
    (child, ours)
}
