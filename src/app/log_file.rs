//! The structured log of a process, in which no known secret appears.

use crate::error::Failure;
use crate::llm::Redactor;
use crate::store::TeamDir;
use crate::wire::AgentName;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// Starts the log of this process; panics are logged too.
pub(super) fn start_log(
    team: &TeamDir,
    name: &AgentName,
    secrets: &Redactor,
) -> Result<(), Failure> {
    let writer =
        LogWriter { file: Arc::new(team.open_log(name)?), redactor: Arc::new(secrets.clone()) };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    // A process has one log: the call fails only if there is one already.
    let _first_wins = tracing::subscriber::set_global_default(subscriber);
    let name = name.to_string();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(name, %panic, "panicked");
    }));
    Ok(())
}

#[derive(Clone)]
struct LogWriter {
    file: Arc<File>,
    redactor: Arc<Redactor>,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        (&*self.file).write_all(self.redactor.redact(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
