//! The state of what this host tells the others of itself.

use crate::retry_pause::RetryPause;
use agent_team::wire::carried::ValueVersion;
use std::collections::BTreeSet;
use std::time::Duration;

/// The least and the most time after which news are told again that the server has not answered.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(1);
const TELL_AGAIN_WITHIN: Duration = Duration::from_secs(16);

/// The state.
#[derive(Debug)]
pub(super) struct Told {
    /// The names of the own members that the other hosts know.
    pub(super) names: Option<BTreeSet<String>>,
    pub(super) host: ToldHost,
    /// The version of the description that the carrier has given since its values are read.
    pub(super) in_reading: Option<ValueVersion>,
    /// The pause after news that the server has not answered.
    pub(super) pause: RetryPause,
    /// Whether something may have changed during that pause.
    pub(super) is_put_off: bool,
}

impl Told {
    /// Creates that of a host that has told nothing yet.
    pub(super) fn new() -> Self {
        Self {
            names: None,
            host: ToldHost::default(),
            in_reading: None,
            pause: RetryPause::new(TELL_AGAIN_AFTER, TELL_AGAIN_WITHIN),
            is_put_off: false,
        }
    }
}

/// The description of this host that it has told last.
#[derive(Debug, Default)]
pub(super) struct ToldHost {
    pub(super) version: Option<ValueVersion>,
    /// Its revision at the carrier; 0 if that is not known.
    pub(super) revision: u64,
    /// The one of which the carrier has not said in time that it has it, with the names of the members.
    pub(super) unanswered: Option<(ValueVersion, BTreeSet<String>)>,
}
