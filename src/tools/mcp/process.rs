//! The process of a server: started under the command supervisor, with the agent's proxy if its walls have one.

use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup, ProgramPipes, RunningCommand};
use crate::os::identity::ProcessIdentity;
use crate::os::spawn::erased;
use crate::store::asynchronous::offload;
use crate::tools::command::host_proxy::HostProxy;
use crate::tools::command::shell::through_proxy;
use crate::wire::shell_word::quoted;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time that a server has to exit after the end of its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The time for which the end of its standard error is awaited.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum size of the file with what a server prints on standard error, in bytes.
const MAX_PRINTED: usize = 1024 * 1024;

/// The maximum number of characters of the last line that are kept.
const LINE_CHARS: usize = 300;

/// The process of a server. Dropping it ends the process and everything below it.
pub(super) struct ServerProcess {
    running: RunningCommand,
    /// Its proxy, dropped with it.
    _proxy: JoinSet<()>,
    /// The reader of its standard error, dropped with it.
    errors: JoinSet<()>,
    last_line: Rc<RefCell<String>>,
}

/// The ends of its standard output and input.
pub(super) struct ServerPipes {
    pub(super) output: Receiver,
    pub(super) input: Sender,
}

impl ServerProcess {
    /// Starts a program with further variables in a folder. `printed` gets what it prints on standard error.
    pub(super) fn start(
        (program, args): (&str, &[String]),
        variables: &BTreeMap<String, String>,
        folder: &Path,
        setup: &CommandSetup,
        printed: Option<File>,
    ) -> io::Result<(Self, ServerPipes)> {
        let hosts = setup.walls.as_ref().and_then(|walls| walls.proxied_hosts());
        let proxy = hosts.map(|hosts| HostProxy::new(hosts.to_vec()));
        let mut setup = if proxy.is_some() { through_proxy(setup) } else { setup.clone() };
        setup.env.retain(|(name, _)| !variables.contains_key(name));
        setup.env.extend(variables.iter().map(|(name, value)| (name.clone(), value.clone())));
        let words = [program].into_iter().chain(args.iter().map(String::as_str)).map(quoted);
        let line = format!("exec {}", words.collect::<Vec<_>>().join(" "));
        let (mut running, pipes) = command::start_with_pipes(line.as_ref(), folder, &setup)?;
        let ProgramPipes { input, output, errors } = pipes;
        let (mut served, mut reader) = (JoinSet::new(), JoinSet::new());
        if let (Some(proxy), Some(door)) = (proxy, running.take_proxy()) {
            served.spawn_local(erased(async move { proxy.serve(door).await }));
        }
        let last_line = Rc::new(RefCell::new(String::new()));
        let errors = Receiver::from_owned_fd(OwnedFd::from(errors))?;
        reader.spawn_local(erased(read_errors(errors, Rc::clone(&last_line), printed)));
        let output = Receiver::from_owned_fd(OwnedFd::from(output))?;
        let input = Sender::from_owned_fd(OwnedFd::from(input))?;
        let process = Self { running, _proxy: served, errors: reader, last_line };
        Ok((process, ServerPipes { output, input }))
    }

    /// Returns the identity of its supervisor.
    pub(super) fn identity(&self) -> Option<ProcessIdentity> {
        ProcessIdentity::of(self.running.supervisor().pid())
    }

    /// Returns the last line that it has printed on standard error.
    pub(super) fn last_line(&self) -> String {
        self.last_line.borrow().clone()
    }

    /// Returns the last line of a process that has ended. Its output may end before its standard error is read.
    pub(super) async fn last_words(&mut self) -> String {
        // A child of the process may keep standard error open.
        let _read = timeout(LAST_WORDS_TIMEOUT, self.errors.join_next()).await;
        self.last_line()
    }

    /// Waits until the process has exited, after the end of its input; ends it if it does not.
    pub(super) async fn end(self) {
        if let Ok(exit) = ReadableFd::to_read(self.running.supervisor()) {
            let _exited = timeout(EXIT_TIMEOUT, exit.wait()).await;
        }
        let running = self.running;
        if let Err(why) = offload(move || running.end()).await {
            tracing::warn!(%why, "an MCP server could not be ended");
        }
    }
}

/// Reads standard error to its end: keeps the last line, and writes everything to a file until that is full.
async fn read_errors(
    mut errors: Receiver,
    last_line: Rc<RefCell<String>>,
    mut printed: Option<File>,
) {
    let (mut buffer, mut line, mut room) = (vec![0; 8192], Vec::new(), MAX_PRINTED);
    loop {
        let count = match errors.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            Ok(_) | Err(_) => return,
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let left = (LINE_CHARS * 4).saturating_sub(line.len()).min(piece.len());
            line.extend_from_slice(piece.get(..left).unwrap_or_default());
            let text = String::from_utf8_lossy(&line);
            let text: String = text.trim().chars().take(LINE_CHARS).collect();
            if !text.is_empty() {
                *last_line.borrow_mut() = text;
            }
            if piece.ends_with(b"\n") {
                line.clear();
            }
        }
        let kept = bytes.get(..count.min(room)).unwrap_or_default().to_vec();
        room -= kept.len();
        if let Some(mut file) = printed.take().filter(|_| !kept.is_empty()) {
            printed = offload(move || file.write_all(&kept).ok().map(|()| file)).await;
        }
    }
}
