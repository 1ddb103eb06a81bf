//! The team as its files show it: its state, its changes, and the path of one message.
//!
//! *Invariants:* a view changes nothing below `.team/`, calls no model and starts no process. It returns
//! data; `ui` and `web` lay it out and make untrusted text harmless.

pub(crate) mod change;
mod feed;
mod members;
mod opened;
pub(crate) mod requests;
mod snapshot;
pub(crate) mod trace;

pub(crate) use change::{Change, MessageProgress, Stage};
pub(crate) use feed::Feed;
pub(crate) use members::{MemberView, SubagentView, members};
#[cfg(test)]
pub(crate) use opened::OpenedMessage;
pub(crate) use snapshot::{Observer, Snapshot};

use std::time::Duration;

/// The number of times that the duration of a look fits into the pause after it, while no file has changed: looks at the
/// largest team take less than 2 % of a core.
const PAUSE_OF_LOOKS: u32 = 120;

/// The longest pause between two looks at a team of which no file has changed. The end of a process changes none.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Returns the pause before the next look if no file changes, at least `shortest`, after a look that took this long.
pub(crate) fn pause_after(look: Duration, shortest: Duration) -> Duration {
    (look * PAUSE_OF_LOOKS).clamp(shortest, LONGEST_PAUSE.max(shortest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_look_is_followed_by_a_longer_pause() {
        let of_ms = Duration::from_millis;
        for (look, pause) in [(0, 250), (1, 250), (10, 1_200), (1_000, 5_000)] {
            assert_eq!(pause_after(of_ms(look), of_ms(250)), of_ms(pause), "{look}");
        }
    }
}

#[cfg(test)]
mod testing {
    use crate::store::TeamDir;
    use serde_json::Value;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    pub(super) fn team_folder() -> (tempfile::TempDir, TeamDir) {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, team)
    }

    pub(super) fn append(path: &Path, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Adds a line to a conversation or an inbox.
    pub(super) fn record(path: &Path, line: &Value) {
        append(path, &format!("{line}\n"));
    }
}
