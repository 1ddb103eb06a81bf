//! A lead with the rehearsal model on one of the hosts.

use crate::machines::{Machine, program};
use crate::rig::process::spawn_tied;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A lead without a terminal, which reads its prompts from a pipe and ends with it.
pub(crate) struct Lead(Child);

impl Lead {
    pub(crate) fn start(machine: &Machine, args: &[&str]) -> Self {
        Self::run(machine, machine.command("team"), args)
    }

    /// Starts a lead at a terminal, where a person may be asked. End it with `/quit`.
    pub(crate) fn at_terminal(machine: &Machine) -> Self {
        let mut command = machine.command_of(Path::new("python3"));
        let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
        command.args(["-c", spawn]).arg(program("team")).env("TERM", "xterm");
        Self::run(machine, command, &[])
    }

    /// Starts a lead by a command, whose input is a pipe.
    pub(crate) fn run(machine: &Machine, mut command: Command, args: &[&str]) -> Self {
        command.args(["lead", "--model", "rehearsal"]).args(args).stdin(Stdio::piped());
        let log = File::create(machine.folder().join("lead.out")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self(spawn_tied(command).unwrap())
    }

    /// Gives it a prompt.
    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(format!("{text}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Returns its process.
    pub(crate) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Ends the input, by which the lead ends; returns its exit code.
    pub(crate) fn quit(mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        self.0.wait().unwrap().code()
    }
}

/// Returns what the lead of a host has printed.
pub(crate) fn said(machine: &Machine) -> String {
    fs::read_to_string(machine.folder().join("lead.out")).unwrap_or_default()
}
