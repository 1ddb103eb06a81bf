//! Failures, for people.

use std::error::Error;
use std::fmt;

/// A failure, for people.
#[derive(Debug)]
pub(crate) struct HostFailure {
    /// The operation that failed.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
    /// The advice for the next step.
    pub(crate) hint: String,
}

impl HostFailure {
    /// Creates a failure with the reason that an error gives.
    pub(crate) fn of(what: impl Into<String>, why: &dyn Error, hint: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.to_string(), hint: hint.into() }
    }

    /// Creates a failure of the arguments.
    pub(crate) fn usage(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), why: why.into(), hint: hint.into() }
    }

    /// Returns the text for a person who has given the command, in the form of `team`.
    pub(crate) fn for_terminal(&self) -> String {
        format!("error: {}\n  why: {}\n  now: {}", self.what, self.why, self.hint)
    }
}

/// The form of a relay, whose first line other programs look for.
impl fmt::Display for HostFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "team-host: {}: {}\n  {}", self.what, self.why, self.hint)
    }
}
