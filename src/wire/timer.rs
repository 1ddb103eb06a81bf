//! `timers/NAME.json`: the timers of a member. Each sends the member a reminder when it is due.
//!
//! Data only: `protocol::timers` decides which timers may be set, and what follows when one is due.

use super::{FORMAT_VERSION, WallTime, WithUnknownFields};
use serde::{Deserialize, Serialize};

/// The timers of one member. The file needs only `timers`; its name is the member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimerList {
    /// The format version of the file; a newer one may be read, not written.
    #[serde(default = "this_version")]
    pub version: u32,
    /// The number of the last timer that was set.
    #[serde(default)]
    pub last: u64,
    /// The open timers, in the order in which they were set.
    pub timers: Vec<WithUnknownFields<Timer>>,
    /// The calls that have set or cancelled timers that ended, newest last: such a call, repeated after a crash, does
    /// nothing.
    #[serde(default)]
    pub over: Vec<String>,
}

impl Default for TimerList {
    fn default() -> Self {
        Self { version: FORMAT_VERSION, last: 0, timers: Vec::new(), over: Vec::new() }
    }
}

/// A timer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timer {
    /// The id, by which it is cancelled.
    pub id: String,
    /// The text of the reminder.
    pub text: String,
    /// The name of the agent that set it, or `user`.
    #[serde(default)]
    pub by: String,
    /// The time at which the reminder is sent.
    pub due: WallTime,
    /// The period of a repeating timer, in seconds.
    pub every_s: Option<u64>,
    /// The time at which it was set.
    #[serde(default)]
    pub created_at: WallTime,
    /// The tool call that set it.
    pub origin: Option<String>,
    /// The text of the reminder as it is sent. It is stored before the first attempt: its time is in words, and another
    /// attempt may be made in another time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<String>,
}

fn this_version() -> u32 {
    FORMAT_VERSION
}

/// Returns a period in the largest unit that fits.
pub fn period_in_words(every_s: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit =
        units.into_iter().find(|(seconds, _)| every_s > 0 && every_s.is_multiple_of(*seconds));
    let (seconds, word) = unit.unwrap_or((1, "s"));
    format!("{}{word}", every_s / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_by_hand_needs_little_and_keeps_unknown_fields() {
        let text = r#"{"timers":[{"id":"a","text":"x","due":5,"color":"red"}],"new":1}"#;
        let list: WithUnknownFields<TimerList> = serde_json::from_str(text).unwrap();
        let timer = &list.timers[0];
        assert_eq!((timer.due, timer.every_s, list.last), (5.0.into(), None, 0));
        let again = serde_json::to_string(&list).unwrap();
        assert!(again.contains(r#""color":"red""#) && again.contains(r#""new":1"#), "{again}");
        assert!(serde_json::from_str::<WithUnknownFields<TimerList>>("{}").is_err());
    }

    #[test]
    fn a_period_is_shown_in_the_largest_unit_that_fits() {
        let words = [60, 90, 3600, 5400, 172_800, 0].map(period_in_words);
        assert_eq!(words, ["1m", "90s", "1h", "90m", "2d", "0s"]);
    }
}
