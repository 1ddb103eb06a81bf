//! A pager that shows the output of this process: it reads a pipe and has the terminal until the person leaves it.

use crate::os::child::{isolate, spawn};
use crate::os::pidfd::Pidfd;
use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::unregister;
use std::io::{self, PipeWriter, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Debug)]
pub(crate) struct Pager {
    input: Option<PipeWriter>,
    process: Pidfd,
    interrupts: SigId,
}

impl Pager {
    /// Starts the program with its standard input from this process. Ctrl-C is the pager's from now on.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let (output, input) = io::pipe()?;
        command.stdin(output);
        isolate(&mut command, Vec::new(), || Ok(()));
        let interrupts = signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
        match spawn(&mut command) {
            Ok(process) => Ok(Self { input: Some(input), process, interrupts }),
            Err(why) => {
                unregister(interrupts);
                Err(why)
            }
        }
    }

    /// Writes text; `false` if the person has left the pager.
    pub(crate) fn write(&mut self, text: &str) -> bool {
        self.input.as_mut().is_some_and(|input| input.write_all(text.as_bytes()).is_ok())
    }
}

impl Drop for Pager {
    /// Ends the text, and waits until the person leaves the pager.
    fn drop(&mut self) {
        drop(self.input.take());
        // A pager that cannot be waited for has nothing more to tell.
        self.process.wait().map(drop).unwrap_or_default();
        unregister(self.interrupts);
    }
}
