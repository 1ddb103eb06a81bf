//! Starts the supervisor of this host, which carries out the orders of other hosts. It is a process of its own, because its
//! teammates outlive a relay whose connection breaks.

use super::RelayError;
use crate::os::async_fd::ReadableFd;
use crate::os::child::spawn_in_own_session;
use crate::os::event_loop::check_blocking;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::unix_socket;
use crate::store::TeamDir;
use crate::store::relay::{is_supervised, open_host_supervisor_printed};
use crate::wire::model_keys::KeysOfOrder;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program that has the supervisor as one of its commands.
const PROGRAM: &str = "team";

/// The time in which the supervisor takes keys.
const HANDED_WITHIN: Duration = Duration::from_secs(5);

/// The most characters of what a failed supervisor has said, for the host that gave the order.
const MOST_SAID: usize = 600;

/// The supervisor of this host as a child of its relay.
#[derive(Debug)]
pub struct HostSupervisorProcess {
    process: Pidfd,
    exit: ReadableFd,
}

impl HostSupervisorProcess {
    /// Starts the supervisor unless one runs; `None` if one does. Call it in an event loop.
    ///
    /// # Errors
    /// The program is missing or cannot be started, or a file cannot be opened.
    pub fn start(dir: &TeamDir) -> Result<Option<Self>, RelayError> {
        if is_supervised(dir)? {
            return Ok(None);
        }
        let failed = |why: io::Error| RelayError::Supervisor(why);
        let mut command = Command::new(program().map_err(failed)?);
        command.arg("supervise").arg("--dir").arg(dir.root()).current_dir(dir.workspace());
        let printed = open_host_supervisor_printed(dir)?;
        command.stdout(Stdio::null()).stderr(printed);
        let process = spawn_in_own_session(command).map_err(failed)?;
        tracing::info!(pid = process.pid(), "the supervisor of this host is started");
        let exit = ReadableFd::to_read(&process).map_err(failed)?;
        Ok(Some(Self { process, exit }))
    }

    /// Waits until it has ended, and reaps it. Returns the reason for which it has failed, in its words; `None` if it has not.
    ///
    /// # Errors
    /// Its end cannot be waited for.
    pub async fn ended(self, dir: &TeamDir) -> io::Result<Option<String>> {
        self.exit.wait().await?;
        let exit = self.process.wait()?;
        if matches!(exit, ExitKind::Code(0)) {
            return Ok(None);
        }
        let printed = std::fs::read_to_string(dir.host_supervisor_printed()).unwrap_or_default();
        let said: Vec<_> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = said.join("; ").chars().take(MOST_SAID).collect::<String>();
        Ok(Some(if said.is_empty() { exit.to_string() } else { said }))
    }
}

/// Hands the keys of an order to the supervisor of this host, over its socket. It blocks for some seconds at most.
///
/// # Errors
/// No supervisor serves the socket, or it does not confirm.
pub fn hand_keys(dir: &TeamDir, keys: &KeysOfOrder) -> io::Result<()> {
    check_blocking("hand keys over");
    let mut socket = unix_socket::connect(&dir.host_supervisor_socket())?;
    socket.set_read_timeout(Some(HANDED_WITHIN))?;
    socket.set_write_timeout(Some(HANDED_WITHIN))?;
    socket.write_all(format!("{}\n", serde_json::to_string(keys)?).as_bytes())?;
    let mut confirmed = [0];
    socket.read_exact(&mut confirmed)
}

/// Returns the path of the program: beside this one, else in PATH.
fn program() -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    if beside.is_file() { Ok(beside) } else { Ok(Path::new(PROGRAM).to_owned()) }
}
