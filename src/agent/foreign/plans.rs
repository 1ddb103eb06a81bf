//! The plans that an agent submits in a turn.

use crate::wire::permission::Decision;

/// The plans of a turn.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// The plan that waits for a decision.
    pub(super) open: Option<OpenPlan>,
    pub(super) rejected: u32,
}

#[derive(Debug)]
pub(super) struct OpenPlan {
    pub(super) request: String,
    /// The id of the call in the transcript. The agent has its answer already, that in the transcript is the decision.
    pub(super) call: String,
}

impl Plans {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn is_about(&self, decision: &Decision) -> bool {
        self.open.as_ref().is_some_and(|open| open.request == decision.request_id)
    }
}
