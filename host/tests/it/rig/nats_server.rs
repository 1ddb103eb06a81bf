//! A NATS server that is killed, stopped, rolled back and emptied on command.

use super::files::{copy_folder, temporary_folder, write_private};
use super::namespaces::Host;
use super::process::{pid_of, signal, spawn_tied, stop, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The port in a namespace.
const PORT: u16 = 4222;

/// The port at which servers of a cluster reach each other.
const ROUTE_PORT: u16 = 6222;

/// The time limit for a start. It is far above normal times (0.1 s), so that only a hang fails on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The options of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    /// The size of the largest stream, in bytes.
    pub(crate) max_stream_bytes: Option<u64>,
    /// The size of all streams together, in the words of its configuration.
    pub(crate) max_store: Option<&'static str>,
    /// The length of the longest message, likewise. 4 MB without one.
    pub(crate) max_payload: Option<&'static str>,
    /// More lines of the configuration, such as users and their permissions. Not together with `max_stream_bytes`, which
    /// needs an account of its own.
    pub(crate) more_config: String,
}

/// A server with its store. The drop kills it; the kernel does if the test process is killed.
#[derive(Debug)]
pub(crate) struct NatsServer {
    program: PathBuf,
    /// The host, or none for the loopback interface of the machine.
    host: Option<Host>,
    address: SocketAddr,
    folder: tempfile::TempDir,
    /// `None` after `kill`.
    process: Option<Child>,
    is_paused: bool,
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl NatsServer {
    /// Starts a server on a host, at its address and port 4222.
    pub(crate) fn on(host: &Host, program: &Path, options: &ServerOptions) -> Self {
        let address = SocketAddr::from((host.address(), PORT));
        Self::start_at(Some(host.clone()), address, program, options)
    }

    /// Starts a cluster with a server on each of these hosts, at its address and port 4222.
    pub(crate) fn cluster(hosts: &[&Host], program: &Path) -> Vec<Self> {
        let route = |host: &&Host| format!("\"nats://{}:{ROUTE_PORT}\"", host.address());
        let routes: Vec<_> = hosts.iter().map(route).collect();
        let start = |host: &&Host| {
            let more_config = format!(
                "cluster {{\n  name: rig\n  listen: \"{}:{ROUTE_PORT}\"\n  routes: [{}]\n}}\n",
                host.address(),
                routes.join(", ")
            );
            Self::on(host, program, &ServerOptions { more_config, ..ServerOptions::default() })
        };
        hosts.iter().map(start).collect()
    }

    /// Starts a server on the loopback interface, at an address that no other test has.
    pub(crate) fn on_loopback(program: &Path, options: &ServerOptions) -> Self {
        Self::at_loopback(Self::address_on_loopback(), program, options)
    }

    /// Starts a server at such an address.
    pub(crate) fn at_loopback(
        address: SocketAddrV4,
        program: &Path,
        options: &ServerOptions,
    ) -> Self {
        Self::start_at(None, address.into(), program, options)
    }

    /// Returns an address on the loopback interface that no other test has.
    pub(crate) fn address_on_loopback() -> SocketAddrV4 {
        static SERVERS: AtomicU16 = AtomicU16::new(0);
        let port = PORT + SERVERS.fetch_add(1, Ordering::Relaxed);
        // All of 127.0.0.0/8 is local. A process id has 22 bits.
        let address = Ipv4Addr::from_bits(0x7F40_0000 | (std::process::id() & 0x3F_FFFF));
        SocketAddrV4::new(address, port)
    }

    fn start_at(
        host: Option<Host>,
        address: SocketAddr,
        program: &Path,
        options: &ServerOptions,
    ) -> Self {
        let folder = temporary_folder();
        let program = program.to_path_buf();
        let mut server = Self { program, host, address, folder, process: None, is_paused: false };
        let text = server.config(options);
        write_private(&server.path("server.conf"), text);
        server.start();
        server
    }

    fn config(&self, options: &ServerOptions) -> String {
        let mut text = format!(
            "server_name: \"{}\"\nlisten: \"{}\"\nmax_payload: {}\nping_interval: \"2s\"\nping_max: 2\n\
             jetstream {{\n  store_dir: \"{}\"\n  sync_interval: always\n  {}\n}}\n",
            self.name(),
            self.address,
            options.max_payload.unwrap_or("4MB"),
            self.path("store").display(),
            options.max_store.map_or_else(String::new, |most| format!("max_file_store: {most}")),
        );
        if let Some(bytes) = options.max_stream_bytes {
            write!(
                text,
                "accounts {{\n  T {{\n    jetstream {{ store_max_stream_bytes: {bytes} }}\n    \
                 users: [{{ user: t, password: t }}]\n  }}\n}}\nno_auth_user: t\n"
            )
            .unwrap();
        }
        text + &options.more_config
    }

    /// Returns the name by which the server is known to be this one.
    fn name(&self) -> String {
        self.folder.path().file_name().unwrap().to_string_lossy().into_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.path("server.conf")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Returns the process id, or none after `kill`.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| pid_of(process).as_raw())
    }

    /// Returns what the server logged in all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    /// Kills the server. Does nothing if it does not run.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        self.is_paused = false;
    }

    /// Returns the folder of what it stores.
    pub(crate) fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Kills the server if it runs, and starts it with its store.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Kills the server if it runs, and starts it with its store and other options.
    pub(crate) fn reconfigure(&mut self, options: &ServerOptions) {
        self.kill();
        write_private(&self.path("server.conf"), self.config(options));
        self.start();
    }

    /// Kills the server if it runs, and starts it with an empty store.
    pub(crate) fn forget_everything(&mut self) {
        self.kill();
        self.remove("store");
        self.start();
    }

    /// Copies the store, for `roll_back`. The server stands still meanwhile, so that the copy is of one moment.
    pub(crate) fn snapshot(&mut self) {
        let pauses = self.process.is_some() && !self.is_paused;
        if pauses {
            self.pause();
        }
        self.remove("snapshot");
        if self.path("store").exists() {
            copy_folder(&self.path("store"), &self.path("snapshot"));
        }
        if pauses {
            self.resume();
        }
    }

    /// Kills the server if it runs, and starts it with the store of the last snapshot, as after a power cut that took
    /// what was not synced. Each snapshot can be restored many times.
    pub(crate) fn roll_back(&mut self) {
        self.kill();
        self.remove("store");
        assert!(self.path("snapshot").exists(), "no snapshot was made");
        copy_folder(&self.path("snapshot"), &self.path("store"));
        self.start();
    }

    /// Stops the server (SIGSTOP) until `resume`, and waits until it stands still.
    pub(crate) fn pause(&mut self) {
        let process = self.process.as_ref().expect("the server runs");
        assert!(stop(process, READY_WITHIN), "the server does not stop");
        self.is_paused = true;
    }

    /// Lets a stopped server go on.
    pub(crate) fn resume(&mut self) {
        signal(self.process.as_ref().expect("the server runs"), Signal::SIGCONT);
        self.is_paused = false;
    }

    fn remove(&self, folder: &str) {
        let path = self.path(folder);
        if path.exists() {
            fs::remove_dir_all(path).unwrap();
        }
    }

    fn start(&mut self) {
        let log =
            OpenOptions::new().append(true).create(true).open(self.path("server.log")).unwrap();
        let mut command = match &self.host {
            Some(host) => host.command(&self.program),
            None => Command::new(&self.program),
        };
        command.arg("-c").arg(self.path("server.conf")).env("HOME", self.folder.path());
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(spawn_tied(command).unwrap());
        let is_ready = wait_until(READY_WITHIN, || {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended ({ended:?}):\n{}", self.log());
            self.greets()
        });
        assert!(is_ready, "the server does not answer:\n{}", self.log());
    }

    /// Whether the server accepts a connection and introduces itself.
    fn greets(&self) -> bool {
        let (address, time) = (self.address, Duration::from_secs(1));
        let connect = || TcpStream::connect_timeout(&address, time);
        let Ok(stream) = self.host.as_ref().map_or_else(connect, |host| host.enter(connect)) else {
            return false;
        };
        stream.set_read_timeout(Some(time)).unwrap();
        let mut line = String::new();
        // A server that is about to accept connections resets this one.
        let _incomplete = BufReader::new(stream).read_line(&mut line);
        let info = line.strip_prefix("INFO ").and_then(|it| serde_json::from_str::<Value>(it).ok());
        info.is_some_and(|info| info["server_name"] == self.name() && info["jetstream"] == true)
    }
}
