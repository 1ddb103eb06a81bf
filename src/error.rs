//! Exit codes, and failures in words for people: the operation, the reason and the remedy.

use std::fmt;

/// The documented exit codes (SPEC 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Ok = 0,
    /// Something failed.
    Failure = 1,
    /// The command line or a setting was not understood.
    Usage = 2,
    /// Headless: the lead's last turn ended in an error, or a task failed.
    TurnFailed = 3,
    /// No model is configured, or its credentials were refused.
    NoModel = 4,
    /// A name is in use, a lead is already running, or a lock was not obtained in time.
    InUse = 5,
    /// The model endpoint stayed unavailable through all retries, or the account's spend cap is reached.
    ModelUnavailable = 6,
    /// A budget was reached.
    Budget = 7,
    /// Headless: the run is over, and a task of it is open.
    TasksLeft = 8,
    /// Headless: the run is over, and a call in it was denied.
    CallDenied = 9,
    /// `--timeout` passed.
    Timeout = 124,
    /// The command was ended by Ctrl-C.
    Interrupted = 130,
    /// The command was ended by SIGTERM or SIGHUP.
    Terminated = 143,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code of the command.
    pub exit: Exit,
    /// The operation that failed.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The remedy: the next step for the person.
    pub hint: String,
}

impl Failure {
    /// Creates a failure from its parts.
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

/// Turns the error of a lower layer into a [`Failure`], with the error as its reason.
pub(crate) trait OrFail<T> {
    /// Turns the error into a failure with exit code 1.
    fn or_fail(self, what: impl Into<String>, hint: impl Into<String>) -> Result<T, Failure>;

    /// Turns the error into a failure with the given exit code.
    fn or_exit(
        self,
        exit: Exit,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: impl Into<String>, hint: impl Into<String>) -> Result<T, Failure> {
        self.or_exit(Exit::Failure, what, hint)
    }

    fn or_exit(
        self,
        exit: Exit,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, Failure> {
        self.map_err(|why| Failure::new(exit, what, why.to_string(), hint))
    }
}
