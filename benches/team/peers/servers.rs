//! The servers of the peers: found on this machine, and started for one measurement each.

use crate::peers::nats::create_stream;
use crate::peers::peer::Peer;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that names `nats-server`, as for the tests of several machines.
const NATS_VARIABLE: &str = "TEAM_NATS_SERVER";

/// The time limit of a start.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A running server, killed on drop.
pub(crate) struct Server {
    child: Child,
    /// The folder of its socket. The path of a socket is short, hence it is not beside the data.
    _socket: Option<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Server {
    /// Returns the resident memory in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

/// Returns the version of python3's `SQLite`, or `None` without it.
pub(crate) fn find_sqlite() -> Option<String> {
    let print =
        "import sqlite3, platform; print(sqlite3.sqlite_version, platform.python_version())";
    let output = output(Path::new("python3"), &["-c", print])?;
    let (sqlite, python) = output.split_once(' ')?;
    Some(format!("{sqlite} in Python {python}"))
}

/// Returns the version of `redis-server`, or `None` without it.
pub(crate) fn find_redis() -> Option<String> {
    let output = output(Path::new("redis-server"), &["--version"])?;
    Some(output.split_once("v=")?.1.split_whitespace().next()?.into())
}

/// Returns `nats-server` and its version: the named one, that in PATH, or the one that the tests have installed.
pub(crate) fn find_nats() -> Option<(PathBuf, String)> {
    let named = std::env::vars_os().find(|(name, _)| name == NATS_VARIABLE);
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let installed = installed.join("nats-server/venv/bin/nats-server");
    let programs = match named {
        Some((_, program)) => vec![program.into()],
        None => vec!["nats-server".into(), installed],
    };
    programs.into_iter().find_map(|program: PathBuf| {
        let version = output(&program, &["-v"])?.strip_prefix("nats-server: v")?.to_owned();
        Some((program, version))
    })
}

fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let is_whole = output.status.success();
    is_whole.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Starts a Redis server with an append-only file below `folder`.
pub(crate) fn redis(folder: &Path, is_synced: bool) -> (Server, Peer) {
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("redis");
    let mut command = tied(Path::new("redis-server"));
    command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync"]);
    command.arg(if is_synced { "always" } else { "no" });
    command.arg("--dir").arg(folder).arg("--unixsocket").arg(&socket);
    let server = start(command, Some(sockets));
    eventually(|| UnixStream::connect(&socket).ok());
    (server, Peer::Redis { socket })
}

/// Starts a NATS server with a file store below `folder`.
pub(crate) fn nats(program: &Path, folder: &Path, is_synced: bool) -> (Server, Peer) {
    let path = |name| folder.join(name).display().to_string();
    let sync = if is_synced { "sync_interval: always" } else { "" };
    let [store, ports] = [path("nats"), path("ports")];
    let config = format!(
        "host: 127.0.0.1\nport: -1\nports_file_dir: {ports:?}\njetstream {{ store_dir: {store:?}\n{sync} }}\n"
    );
    fs::create_dir(&ports).unwrap();
    let config_path = folder.join("nats.conf");
    File::create(&config_path).unwrap().write_all(config.as_bytes()).unwrap();
    let mut command = tied(program);
    command.arg("-c").arg(config_path);
    let server = start(command, None);
    // The server chooses a free port and writes its address to a file.
    let port = eventually(|| {
        let file = fs::read_dir(&ports).unwrap().next()?.unwrap().path();
        let addresses: Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
        addresses["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
    });
    create_stream(port);
    (server, Peer::Nats { port })
}

/// Returns the command of a server that the kernel kills if this process is killed, as far as `setpriv` is there.
fn tied(program: &Path) -> Command {
    if output(Path::new("setpriv"), &["--version"]).is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn start(mut command: Command, socket: Option<TempDir>) -> Server {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Server { child: command.spawn().unwrap(), _socket: socket }
}

/// Waits until a look succeeds.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < READY_WITHIN, "the server does not start");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
