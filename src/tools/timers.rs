//! The tool for timers, by which a model is reminded of something later.

use super::call::{Call, ToolError};
use super::registry::{TALKS, Tool, ToolParts, parameters};
use crate::os::{Clock, SystemClock};
use crate::protocol::timers::{SetOutcome, TimerRecord};
use crate::store::asynchronous::offload;
use crate::timers::{self, TimerError, TimerOrder, When, when_in_words};
use crate::wire::WallTime;
use crate::wire::tool::ParameterType::Text;
use crate::wire::tool::{AfterCrash, Served, ToolSpec};
use std::sync::Arc;

/// The number of characters of a text that the list shows.
const LISTED_CHARS: usize = 80;

parameters!(Remind {
    r#in: Option<String> = optional(Text, ""),
    at: Option<String> = optional(Text, ""),
    every: Option<String> = optional(Text, ""),
    text: Option<String> = optional(Text, ""),
    cancel: Option<String> = optional(Text, ""),
});

impl Tool for Remind {
    const SPEC: ToolSpec = ToolSpec {
        name: "remind",
        description: "Mails you text in 30m, at 14:30 or every 1h.",
        after_crash: AfterCrash::Repeat,
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let team = &parts.team;
        let (bus, me) = (Arc::clone(&team.bus), team.me.clone());
        let now = SystemClock.now();
        let text = self.text.clone().unwrap_or_default();
        let (when, cancelled) = self.order(now)?;
        let this_call = team.message_id(call);
        let work = move || {
            let (dir, fsync) = (bus.dir(), bus.fsync());
            let mut done = String::new();
            if let Some(id) = cancelled {
                timers::cancel(dir, &me, &id, Some(&this_call), fsync)?;
                done = format!("Cancelled {id}.\n");
            }
            if let Some(when) = when {
                let (owner, by, origin) = (me.clone(), me.clone(), Some(this_call));
                let order = TimerOrder { owner, by, when, text, origin };
                done = match timers::set(dir, order, fsync, now)? {
                    SetOutcome::Open(timer) => {
                        format!("Set {}: {}.\n", timer.id, when_in_words(&timer))
                    }
                    SetOutcome::Over => "The timer of this call has ended.\n".into(),
                };
            }
            Ok::<_, TimerError>(done + &list(&timers::of_member(dir, &me)?))
        };
        Ok(offload(work).await?)
    }
}

impl Remind {
    /// Returns the time of the timer to set, and the id of the one to cancel; neither lists the timers.
    fn order(self, now: WallTime) -> Result<(Option<When>, Option<String>), ToolError> {
        let one = "give one of in, at, every (with text) or cancel (an id); none lists your timers";
        match (self.r#in, self.at, self.every, self.cancel) {
            (None, None, None, None) if self.text.is_some() => Err(ToolError::reply(one)),
            (None, None, None, cancel) => Ok((None, cancel)),
            (Some(after), None, None, None) => Ok((Some(When::after(&after)?), None)),
            (None, Some(at), None, None) => Ok((Some(When::at(&at, now)?), None)),
            (None, None, Some(every), None) => Ok((Some(When::every(&every)?), None)),
            _ => Err(ToolError::reply(one)),
        }
    }
}

/// Lists the open timers for a model.
fn list(open: &[TimerRecord]) -> String {
    if open.is_empty() {
        return "No timer is open.".into();
    }
    let line = |timer: &TimerRecord| {
        let text: String = timer.text.chars().take(LISTED_CHARS).collect();
        format!("\n- {}: {}: {}", timer.id, when_in_words(timer), text.replace('\n', " "))
    };
    format!("Open:{}", open.iter().map(line).collect::<String>())
}
