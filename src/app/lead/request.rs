//! What `team lead` is asked for.

use crate::settings::Flags;
use crate::ui::headless_output::Format;
use std::time::Duration;

/// What `team lead` is asked for on its command line.
pub(crate) struct LeadRequest {
    pub(crate) prompt: Option<String>,
    /// The output of a headless run; `None` for an interactive session.
    pub(crate) output: Option<Format>,
    pub(crate) flags: Flags,
    pub(crate) limits: RunLimits,
    /// Continue with the last team.
    pub(crate) resume: bool,
    /// Stop the lead that runs in this folder first.
    pub(crate) takeover: bool,
}

/// The limits at which a run is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_turns: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
}
