//! Hosts as network namespaces on one bridge, which can be parted both ways and one way.
//!
//! The namespaces have no names: file descriptors of the test process hold them, so that the kernel removes them with
//! everything inside when the process ends, also if it is killed. Nothing is created in the namespace of the machine.

use super::process::wait_until;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::fstat;
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The name of the host for the server.
pub(crate) const HUB: &str = "hub";

/// A classic BPF program for `tc`: ARP passes, since each direction needs its answers; all other frames are dropped.
/// It loads the ether type (offset 12), and returns `TC_ACT_OK` (0) for ARP (2054), else `TC_ACT_SHOT` (2).
const DROP_ALL_BUT_ARP: &str = "4,40 0 0 12,21 0 1 2054,6 0 0 0,6 0 0 2";

/// A network namespace. Clones share it.
#[derive(Debug, Clone)]
struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Creates a namespace. Returns the reason if this process may not.
    fn create() -> Result<Self, String> {
        // A namespace belongs to a thread, and this thread ends at once.
        let create = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net").unwrap().into())
        };
        let created = std::thread::scope(|threads| threads.spawn(create).join().unwrap());
        let fd: OwnedFd = created.map_err(|why: Errno| {
            let refused = matches!(why, Errno::EPERM | Errno::ENOSYS | Errno::EINVAL);
            assert!(refused, "a network namespace cannot be created: {why}");
            format!("this user may not create network namespaces ({why})")
        })?;
        Ok(Self(Arc::new(fd)))
    }

    /// Prepares a command whose process runs in the namespace.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        let enter = move || Ok(setns(&*namespace.0, CloneFlags::CLONE_NEWNET)?);
        #[expect(
            unsafe_code,
            reason = "a forked process enters the namespace, and this one does not"
        )]
        // SAFETY: setns is async-signal-safe, and the closure allocates nothing.
        unsafe {
            command.pre_exec(enter);
        }
        command
    }

    /// Runs a function on a thread in the namespace. Sockets that it creates stay there.
    fn enter<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let run = || {
            setns(&*self.0, CloneFlags::CLONE_NEWNET).unwrap();
            function()
        };
        std::thread::scope(|threads| threads.spawn(run).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the path under which other processes of this user find the namespace.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Returns the processes in the namespace, except this one.
    fn processes(&self) -> Vec<Pid> {
        let own = fstat(&*self.0).unwrap();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.filter(|pid: &i32| {
            // The path of a process that ended cannot be read.
            let namespace = fs::metadata(format!("/proc/{pid}/ns/net"));
            namespace.is_ok_and(|it| (it.dev(), it.ino()) == (own.st_dev, own.st_ino))
        })
        .map(Pid::from_raw)
        .filter(|pid| *pid != Pid::this())
        .collect()
    }

    /// Kills the processes in the namespace, until a scan finds none. Panics if one survives, unless the test failed.
    fn kill_all(&self) {
        let found_none = wait_until(Duration::from_secs(30), || {
            let processes = self.processes();
            for pid in &processes {
                // It may have ended since the scan.
                let _ended = kill(*pid, Signal::SIGKILL);
            }
            processes.is_empty()
        });
        let is_fine = found_none || std::thread::panicking();
        assert!(is_fine, "these processes survive SIGKILL: {:?}", self.processes());
    }

    /// Runs lines of a batch of `ip` or `tc` in the namespace. Returns the error output if one of them fails.
    fn batch(&self, tool: &Path, lines: &[String]) -> Result<(), String> {
        let mut command = self.command(tool);
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let input = lines.join("\n") + "\n";
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(error)
    }
}

/// A host: a namespace with one interface.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Namespace,
}

impl Host {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Prepares a command whose process runs on this host. `process::spawn_tied` starts it so that it ends with the test.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs a function on a thread of this host. Sockets that it creates stay on the host.
    pub(crate) fn enter<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        self.namespace.enter(function)
    }

    /// Returns the processes on this host, also those that its processes started.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        self.namespace.processes()
    }

    /// Kills all processes of this host, as a power cut does.
    pub(crate) fn kill_all(&self) {
        self.namespace.kill_all();
    }
}

/// A direction of the frames of a host, for cuts of one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From the host into the network.
    Out,
    /// From the network to the host.
    In,
}

impl Direction {
    /// Returns the hook of the bridge's port that sees this direction.
    fn hook(self) -> &'static str {
        match self {
            Self::Out => "ingress",
            Self::In => "egress",
        }
    }
}

/// A network of hosts. The drop kills the processes that are left on them.
#[derive(Debug)]
pub(crate) struct Network {
    hosts: Vec<Host>,
    bridge: Namespace,
    ip: PathBuf,
    /// `tc`, or the reason why the directions cannot be cut separately.
    tc: Result<PathBuf, String>,
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            host.kill_all();
        }
    }
}

impl Network {
    /// Creates the hub and the named hosts, with the addresses 198.18.0.1, .2, .3, …. Returns the reason if this machine
    /// or user cannot; the test is then skipped.
    pub(crate) fn new(names: &[&str]) -> Result<Self, String> {
        let ip = find_tool("ip").ok_or("`ip` (iproute2) is not installed")?;
        let bridge = Namespace::create()?;
        let mut hosts = Vec::new();
        for (name, last) in [HUB].iter().chain(names).zip(1..) {
            let address = Ipv4Addr::new(198, 18, 0, last);
            let namespace = Namespace::create()?;
            hosts.push(Host { name: (*name).to_owned(), address, namespace });
        }
        let mut lines = vec!["link add br0 type bridge".to_owned(), "link set br0 up".to_owned()];
        for (port, host) in hosts.iter().enumerate() {
            let namespace = host.namespace.path();
            lines.push(format!("link add p{port} type veth peer name eth0 netns {namespace}"));
            lines.push(format!("link set p{port} master br0 addrgenmode none up"));
        }
        if let Err(why) = bridge.batch(&ip, &lines) {
            let is_missing =
                ["Unknown device type", "not supported"].iter().any(|it| why.contains(it));
            assert!(is_missing, "the network cannot be created: {why}");
            return Err(format!("this kernel has no bridge or no veth ({})", why.trim()));
        }
        for host in &hosts {
            let address = format!("address add {}/24 dev eth0", host.address);
            let up = ["link set lo up", &address, "link set eth0 addrgenmode none up"];
            host.namespace.batch(&ip, &up.map(str::to_owned)).unwrap();
        }
        let mut lines: Vec<_> =
            (0..hosts.len()).map(|port| format!("qdisc add dev p{port} clsact")).collect();
        // Whether this kernel has the filter is tried before anything is sent.
        lines.extend([drop_filter("p0", Direction::In), pass_filter("p0", Direction::In)]);
        let tc = find_tool("tc").ok_or_else(|| "`tc` (iproute2) is not installed".to_owned());
        let tc = tc.and_then(|tc| bridge.batch(&tc, &lines).map(|()| tc));
        Ok(Self { hosts, bridge, ip, tc })
    }

    /// Creates a network, or tells `skip` the reason.
    pub(crate) fn or_skip(names: &[&str], skip: impl FnOnce(&str)) -> Option<Self> {
        Self::new(names).map_err(|why| skip(&why)).ok()
    }

    /// Returns the reason why this machine cannot cut one direction, if it cannot.
    pub(crate) fn one_way_missing(&self) -> Option<String> {
        self.tc.as_ref().err().map(|why| format!("no one-way cuts: {}", why.trim()))
    }

    /// Returns the host of this name.
    #[track_caller]
    pub(crate) fn host(&self, name: &str) -> &Host {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.unwrap_or_else(|| panic!("no host is called {name:?}"))
    }

    /// Returns the host for the server.
    pub(crate) fn hub(&self) -> &Host {
        self.host(HUB)
    }

    /// Returns all hosts, the hub first.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Unplugs a host: its interface has no carrier. `cut_in` and `cut_out` together are a cut that it cannot see.
    pub(crate) fn cut(&self, host: &str) {
        self.set_link(host, "down");
    }

    /// Drops silently what a host sends, except ARP.
    pub(crate) fn cut_out(&self, host: &str) {
        self.drop_frames(host, Direction::Out);
    }

    /// Drops silently what is sent to a host, except ARP.
    pub(crate) fn cut_in(&self, host: &str) {
        self.drop_frames(host, Direction::In);
    }

    /// Ends all cuts of a host. Does nothing if there is none.
    pub(crate) fn heal(&self, host: &str) {
        self.set_link(host, "up");
        for direction in [Direction::Out, Direction::In] {
            self.pass_frames(host, direction);
        }
    }

    fn port(&self, host: &str) -> String {
        let position = self.hosts.iter().position(|it| it.name == host);
        let position = position.unwrap_or_else(|| panic!("no host is called {host:?}"));
        format!("p{position}")
    }

    fn set_link(&self, host: &str, state: &str) {
        let line = format!("link set {} {state}", self.port(host));
        self.bridge.batch(&self.ip, &[line]).unwrap();
    }

    fn drop_frames(&self, host: &str, direction: Direction) {
        let tc = self.tc.as_ref().unwrap();
        self.bridge.batch(tc, &[drop_filter(&self.port(host), direction)]).unwrap();
    }

    fn pass_frames(&self, host: &str, direction: Direction) {
        let Ok(tc) = &self.tc else { return };
        // There may be no filter.
        let _nothing_was_cut = self.bridge.batch(tc, &[pass_filter(&self.port(host), direction)]);
    }
}

/// Returns the line for `tc` that drops the frames of a direction. `replace` with a handle makes repeated cuts the same.
fn drop_filter(port: &str, direction: Direction) -> String {
    let hook = direction.hook();
    format!(
        "filter replace dev {port} {hook} protocol all prio 1 handle 1 bpf da bytecode \"{DROP_ALL_BUT_ARP}\""
    )
}

/// Returns the line for `tc` that lets the frames of a direction pass again.
fn pass_filter(port: &str, direction: Direction) -> String {
    format!("filter del dev {port} {} prio 1", direction.hook())
}

/// Finds a tool of iproute2, which PATHs of ordinary users may lack.
fn find_tool(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().map(PathBuf::from);
    let path = std::env::vars_os().find(|(key, _)| key == "PATH").map(|(_, value)| value);
    let path: Vec<_> = path.iter().flat_map(std::env::split_paths).collect();
    path.into_iter().chain(folders).map(|folder| folder.join(name)).find(|tool| tool.is_file())
}
