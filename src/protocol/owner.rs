//! Ownership that ends with a process: whether the owner of a task or of a lease still runs.

/// The state of the process that has the name of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerLiveness {
    /// No process has the name.
    Ended,
    /// A process has the name; its incarnation is unknown.
    Unknown,
    /// The process with this incarnation has the name.
    Running(String),
}

impl OwnerLiveness {
    /// Whether the process that acquired something as this incarnation has ended. Without an incarnation, what was
    /// acquired is bound to the name alone.
    pub(crate) fn has_ended(&self, incarnation: Option<&str>) -> bool {
        match self {
            Self::Ended => true,
            Self::Unknown => false,
            Self::Running(now) => incarnation.is_some_and(|known| known != now),
        }
    }
}
