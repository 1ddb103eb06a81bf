//! The relay of this host as a child of the lead: it is started where the team has members on other hosts and none runs
//! yet, and ends with the lead.

use crate::os::Signal;
use crate::os::child::spawn_until_input_ends;
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::spawn::spawn_blocking;
use crate::store::relay;
use crate::store::{StoreError, TeamDir};
use crate::wire::model_keys::{END_LINE, ModelKeys};
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time that the relay has for its end, with the connections that it keeps.
const END_WITHIN: Duration = Duration::from_secs(8);

/// The pause before a relay that has ended is started again; it doubles with each end.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A relay that ran so long was a good one.
const GOOD_AFTER: Duration = Duration::from_secs(60);

/// The bytes that a new pipe always has room for.
const ROOM_OF_PIPE: usize = 4096;

/// The program of the relay, and its environment.
#[derive(Debug, Clone)]
pub(crate) struct RelayProgram {
    /// `None` where it is not installed.
    pub(crate) path: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    /// The keys of models of the lead, of which other hosts get those that a person has named for them. The relay gets them
    /// through its input.
    pub(crate) keys: ModelKeys,
}

/// The process, and the pipe by which it notices its end.
type RunningRelay = (Pidfd, PipeWriter);

/// The relay that a lead has started.
#[derive(Debug, Default)]
pub(super) struct RelayProcess {
    running: Option<RunningRelay>,
    started: Option<Instant>,
    pause: Option<Duration>,
    not_before: Option<Instant>,
    is_missing: bool,
}

impl RelayProcess {
    /// Starts the relay if one is needed and none runs.
    pub(super) fn keep_up(
        &mut self,
        dir: &TeamDir,
        program: &RelayProgram,
    ) -> Result<(), StoreError> {
        self.note_end(dir);
        let now = Instant::now();
        if self.running.is_some() || self.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        let Some(identity) = relay::identity(dir)? else { return Ok(()) };
        if !identity.servers.are_known() || relay::is_served(dir)? {
            return Ok(());
        }
        let Some(path) = &program.path else {
            if !std::mem::replace(&mut self.is_missing, true) {
                tracing::warn!(
                    "mail for other hosts waits: team-host is not installed beside team"
                );
            }
            return Ok(());
        };
        let mut command = Command::new(path);
        command.args(["run", "--until-eof", "--dir"]).arg(dir.root());
        command.env_clear().envs(program.environment.iter().cloned());
        command.current_dir(dir.workspace());
        let printed = relay::open_printed(dir)?;
        command.stdout(Stdio::null()).stderr(printed);
        match spawn_until_input_ends(command) {
            Ok((process, input)) => {
                tracing::info!(pid = process.pid(), "the relay of this host is started");
                if let Err(why) = give_keys(&input, &program.keys) {
                    tracing::warn!(%why, "the relay gets no keys for other hosts");
                }
                let started = (process, input);
                (self.running, self.started) = (Some(started), Some(now));
            }
            Err(why) => {
                tracing::warn!(%why, "the relay of this host cannot be started");
                self.wait_longer();
            }
        }
        Ok(())
    }

    /// Reaps a relay that has ended by itself.
    fn note_end(&mut self, dir: &TeamDir) {
        let Some((process, _)) = &self.running else { return };
        if !process.ends_within(Duration::ZERO) {
            return;
        }
        let exit = exit_words(process.wait());
        let printed = fs::read_to_string(dir.relay_printed()).unwrap_or_default();
        let said = printed.lines().rfind(|line| line.starts_with("team-host: "));
        tracing::warn!(exit, said = said.unwrap_or_default(), "the relay of this host has ended");
        self.running = None;
        if self.started.is_some_and(|started| started.elapsed() > GOOD_AFTER) {
            self.pause = None;
        }
        self.wait_longer();
    }

    fn wait_longer(&mut self) {
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        (self.pause, self.not_before) = (Some(pause), Some(Instant::now() + pause));
    }
}

/// Writes the keys into the input of the relay, which has room for them.
fn give_keys(mut input: &PipeWriter, keys: &ModelKeys) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let line = format!("{}\n", serde_json::to_string(keys)?);
    // More might wait until the relay reads it.
    if line.len() > ROOM_OF_PIPE {
        return Err(io::Error::other("they are too long"));
    }
    input.write_all(line.as_bytes())
}

fn exit_words(exit: io::Result<ExitKind>) -> String {
    exit.map_or_else(|why| why.to_string(), |exit| exit.to_string())
}

impl RelayProcess {
    /// Ends a relay that [`Self::take`] has returned, with the connections that it keeps. It carries the last mail first.
    pub(super) async fn end((process, mut input): RunningRelay) {
        // The end of the input asks for the same: without the line, that of a lead which was killed.
        input.write_all(END_LINE.as_bytes()).unwrap_or_default();
        drop(input);
        let ended = spawn_blocking(move || {
            let has_ended = process.ends_within(END_WITHIN);
            if !has_ended {
                process.signal_group(Signal::SIGKILL).unwrap_or_default();
            }
            (has_ended, process.wait())
        });
        if let Ok((has_ended, exit)) = ended.await {
            let exit = exit_words(exit);
            tracing::info!(exit, has_ended, "the relay of this host ends with the lead");
        }
    }

    /// Returns the running relay, if there is one.
    pub(super) fn take(&mut self) -> Option<RunningRelay> {
        self.running.take()
    }
}
