//! Exit codes, and the failure a person is shown: what happened, why, and what to do now.

use std::fmt;

/// The documented exit codes (SPEC 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// Something failed.
    Failure = 1,
    /// The command was not understood.
    Usage = 2,
    /// Headless: the lead's last turn ended in an error, or a task failed.
    TurnFailed = 3,
    /// No model is configured, or its credentials were refused.
    NoModel = 4,
    /// Name in use, lead already running, or a lock could not be had in time.
    InUse = 5,
    /// The model endpoint is unavailable after retries, or the account's spend cap is reached.
    ModelUnavailable = 6,
    /// A budget was reached.
    Budget = 7,
    /// `--timeout` passed.
    Timeout = 124,
    /// Ended by Ctrl-C.
    Interrupted = 130,
    /// Ended by SIGTERM or SIGHUP.
    Terminated = 143,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure as a person reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code it ends the command with.
    pub exit: Exit,
    /// What did not work.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do now.
    pub hint: String,
}

impl Failure {
    /// A failure of the three parts.
    pub fn new(
        exit: Exit,
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { exit, what: what.into(), why: why.into(), hint: hint.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", self.what)?;
        if !self.why.is_empty() {
            write!(out, "\n  why: {}", self.why)?;
        }
        if !self.hint.is_empty() {
            write!(out, "\n  now: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
