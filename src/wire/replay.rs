//! The plan of a replay: the record that a team plays again, and how.

use super::WallTime;
use super::words::words;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

words! {
    /// The origin of the results of tools that do not belong to the team.
    pub enum ToolSource {
        /// The tools run.
        Real = "real",
        /// The record.
        Recorded = "recorded",
    }
}

words! {
    /// The speed of a replay.
    pub enum Pace {
        /// Nothing waits.
        Full = "full",
        /// Each reply takes as long as in the record.
        RealTime = "real_time",
    }
}

words! {
    /// The end of a play.
    pub enum PlayEnd {
        /// The lead ends, and stops its team, as in the record.
        Ended = "ended",
        /// The record goes on, and the members are cut off.
        Cut = "cut",
        /// All processes are killed, as in the record.
        Killed = "killed",
    }
}

/// A fault that a replay makes on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// The process of a member is killed at one of its model calls.
    Kill {
        /// The member.
        name: String,
        /// The number of the call, from 1.
        call: usize,
    },
    /// Each reply of a model comes later.
    SlowModel {
        /// The delay in milliseconds.
        ms: u64,
    },
}

/// The delay of `slow:model` without a time, in milliseconds.
const SLOW_MS: u64 = 1000;

/// The longest delay of a reply, in seconds.
const SLOWEST: f64 = 3600.0;

impl Fault {
    /// Parses `kill:NAME@N`, `slow:model` or `slow:model=SECONDS`. The error names the forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "{text:?} is no fault; a fault is kill:NAME@N, slow:model or slow:model=SECONDS"
            )
        };
        if let Some(rest) = text.strip_prefix("kill:") {
            let (name, call) = rest.split_once('@').ok_or_else(unknown)?;
            let call = call.parse().ok().filter(|call| *call > 0).ok_or_else(unknown)?;
            return Ok(Self::Kill { name: name.into(), call });
        }
        let rest = text.strip_prefix("slow:model").ok_or_else(unknown)?;
        let ms = match rest.strip_prefix('=') {
            None if rest.is_empty() => SLOW_MS,
            None => return Err(unknown()),
            Some(seconds) => {
                let seconds: f64 =
                    seconds.strip_suffix('s').unwrap_or(seconds).parse().map_err(|_| unknown())?;
                if !(0.0..=SLOWEST).contains(&seconds) {
                    return Err(unknown());
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is between 0 and an hour"
                )]
                let ms = (seconds * 1000.0) as u64;
                ms
            }
        };
        Ok(Self::SlowModel { ms })
    }
}

/// The plan of a replay, which every process of the new team reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayPlan {
    /// The team folder of the record.
    pub record: PathBuf,
    /// The origin of the results of tools.
    pub tools: ToolSource,
    /// The speed.
    pub pace: Pace,
    /// The time in the record at which the team ends; `None` if the record has no end.
    pub end: Option<WallTime>,
    /// The way in which the team ends.
    pub ending: PlayEnd,
    /// The time in the record at which the next lead resumes the team. What comes later is not part of this play.
    pub resumed_at: Option<WallTime>,
    /// The faults to make.
    pub faults: Vec<Fault>,
}

impl ReplayPlan {
    /// Whether an entry of this time is part of this play.
    pub fn has(&self, time: WallTime) -> bool {
        self.resumed_at.is_none_or(|resumed| time < resumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_and_others_are_refused() {
        let kill = Fault::Kill { name: "alice".into(), call: 3 };
        assert_eq!(Fault::parse("kill:alice@3").unwrap(), kill);
        assert_eq!(Fault::parse("slow:model").unwrap(), Fault::SlowModel { ms: 1000 });
        assert_eq!(Fault::parse("slow:model=0.5s").unwrap(), Fault::SlowModel { ms: 500 });
        assert_eq!(Fault::parse("slow:model=2").unwrap(), Fault::SlowModel { ms: 2000 });
        for bad in [
            "",
            "kill",
            "kill:alice",
            "kill:alice@0",
            "slow:models",
            "slow:model=x",
            "slow:model=-1",
            "eat:disk",
        ] {
            let refused = Fault::parse(bad).unwrap_err();
            assert!(refused.contains("kill:NAME@N"), "{refused}");
        }
    }
}
