//! Timers of members: applies the rules of `protocol::timers` to the files of `store::timers`, and sends the reminders.
//!
//! The process of a member sends the reminders of its own timers, as mail from `system` to itself. The id of a reminder
//! derives from its timer, and its text is stored with it before, so that one that is sent again after a kill is delivered once.

use crate::bus::{Bus, BusError, Outgoing};
use crate::os::failpoint::hit;
use crate::os::{local_time, time_text};
use crate::protocol::timers::{
    self as rules, LONGEST_TIME, MOST_TIMERS, NewTimer, SHORTEST_PERIOD, SetOutcome, TEXT_BYTES,
    TimerRecord, TimerRefusal, reminder_id,
};
use crate::store::timers::{AllTimers, TimersRead, change, read, read_all};
use crate::store::{Fsync, StoreError, TeamDir};
use crate::wire::timer::{Timer, period_in_words};
use crate::wire::{AgentName, WallTime};
use std::time::Duration;

/// The maximum number of characters of a wrong time that an error repeats.
const WRONG_CHARS: usize = 64;

/// The reason for which a timer was not set or not cancelled, or a reminder not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimerError {
    #[error("{}", refusal(.0))]
    Refused(TimerRefusal),
    #[error("{0:?} is no time: {1}")]
    NoTime(String, &'static str),
    #[error("there is no timer {0:?}")]
    Unknown(String),
    #[error("the reminder was not sent: {0}")]
    NotSent(#[from] BusError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TimerError {
    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(why) => Some(why),
            Self::NotSent(why) => why.store_error(),
            Self::Refused(_) | Self::NoTime(..) | Self::Unknown(_) => None,
        }
    }

    /// Whether the command was wrong, so that it fails whenever it is repeated.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, Self::NoTime(..))
            || matches!(self, Self::Refused(why) if *why != TimerRefusal::TooMany)
    }

    /// Returns advice for people and models.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(TimerRefusal::NoText) => "say what the reminder is about".into(),
            Self::Refused(TimerRefusal::LongText(_)) => {
                "write the text to a file, and name the file in the reminder".into()
            }
            Self::Refused(TimerRefusal::TooMany) => "cancel one of them first".into(),
            Self::Refused(TimerRefusal::ShortPeriod) => "give a longer period, such as 5m".into(),
            Self::Refused(TimerRefusal::Past(_) | TimerRefusal::Far) | Self::NoTime(..) => {
                "give a time to come: 30m, 2h, 14:30, 2031-01-31 09:00".into()
            }
            Self::Unknown(_) => "list the timers to see their ids".into(),
            Self::NotSent(why) => why.hint(),
            Self::Store(why) => why.hint().into(),
        }
    }
}

fn refusal(why: &TimerRefusal) -> String {
    match why {
        TimerRefusal::NoText => "the reminder has no text".into(),
        TimerRefusal::LongText(bytes) => {
            format!("the text has {bytes} bytes, {TEXT_BYTES} are allowed")
        }
        TimerRefusal::TooMany => format!("{MOST_TIMERS} timers are open, and no more are allowed"),
        TimerRefusal::ShortPeriod => {
            format!("a timer repeats at most every {}", period_in_words(SHORTEST_PERIOD.as_secs()))
        }
        TimerRefusal::Past(due) => format!("{} has passed", local_time(*due)),
        TimerRefusal::Far => {
            format!("it is more than {} days away", LONGEST_TIME.as_secs() / 86_400)
        }
    }
}

/// The time of a timer as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum When {
    In(Duration),
    At(WallTime),
    Every(Duration),
}

impl When {
    /// Reads a duration, such as `30m`.
    pub(crate) fn after(text: &str) -> Result<Self, TimerError> {
        Ok(Self::In(duration(text)?))
    }

    /// Reads a period, such as `1h`.
    pub(crate) fn every(text: &str) -> Result<Self, TimerError> {
        Ok(Self::Every(duration(text)?))
    }

    /// Reads a time, such as `14:30`.
    pub(crate) fn at(text: &str, now: WallTime) -> Result<Self, TimerError> {
        let time = time_text::coming_time(text.trim(), now);
        let expected = "write 14:30, 2031-01-31 09:00 or 2031-01-31T09:00:00Z";
        time.map(Self::At).ok_or_else(|| no_time(text, expected))
    }

    /// Reads what a person types: `30m`, `14:30`, `every 1h`.
    pub(crate) fn typed(text: &str, now: WallTime) -> Result<Self, TimerError> {
        if let Some(period) = text.trim().strip_prefix("every ") {
            return Self::every(period);
        }
        if let Ok(after) = Self::after(text) {
            return Ok(after);
        }
        let expected = "write 30m, 2h, 1d, 14:30, 2031-01-31 09:00 or every 1h";
        Self::at(text, now).map_err(|_| no_time(text, expected))
    }

    /// Returns the time at which a timer that is set now is due, and its period.
    fn due(self, now: WallTime) -> (WallTime, Option<Duration>) {
        match self {
            Self::In(after) => (now + after, None),
            Self::At(time) => (time, None),
            Self::Every(period) => (now + period, Some(Duration::from_secs(period.as_secs()))),
        }
    }
}

fn duration(text: &str) -> Result<Duration, TimerError> {
    let expected = "write a number with s, m, h or d, such as 30m";
    time_text::duration_with_unit(text.trim()).ok_or_else(|| no_time(text, expected))
}

fn no_time(text: &str, expected: &'static str) -> TimerError {
    TimerError::NoTime(text.chars().take(WRONG_CHARS).collect(), expected)
}

/// A timer that somebody asks for.
#[derive(Debug, Clone)]
pub(crate) struct TimerOrder {
    pub(crate) owner: AgentName,
    /// The agent that sets it, or `user`.
    pub(crate) by: AgentName,
    pub(crate) when: When,
    pub(crate) text: String,
    /// The tool call that sets it.
    pub(crate) origin: Option<String>,
}

/// Sets a timer. A call that is repeated after a crash sets none.
pub(crate) fn set(
    dir: &TeamDir,
    order: TimerOrder,
    fsync: Fsync,
    now: WallTime,
) -> Result<SetOutcome, TimerError> {
    let TimerOrder { owner, by, when, text, origin } = order;
    let (due, every) = when.due(now);
    let new = NewTimer { by, text, due, every, origin };
    let set = change(dir, &owner, fsync, |list| rules::set(list, &owner, new, now))?;
    set.map_err(TimerError::Refused)
}

/// Cancels a timer of `owner`, whose reminder is then never sent. `call` is the tool call that cancels it.
pub(crate) fn cancel(
    dir: &TeamDir,
    owner: &AgentName,
    id: &str,
    call: Option<&str>,
    fsync: Fsync,
) -> Result<(), TimerError> {
    let is_cancelled = change(dir, owner, fsync, |list| rules::cancel(list, id, call))?;
    let unknown = || TimerError::Unknown(id.chars().take(WRONG_CHARS).collect());
    if is_cancelled { Ok(()) } else { Err(unknown()) }
}

/// Returns the open timers of a member, the earliest first.
pub(crate) fn of_member(dir: &TeamDir, owner: &AgentName) -> Result<Vec<TimerRecord>, StoreError> {
    let TimersRead::List(list) = read(dir, owner)? else { return Ok(Vec::new()) };
    let mut timers = list.timers.clone();
    sort(&mut timers);
    Ok(timers)
}

/// Returns the open timers of all members, the earliest of each first.
pub(crate) fn of_all(dir: &TeamDir) -> Result<AllTimers, StoreError> {
    let mut all = read_all(dir)?;
    for member in &mut all.members {
        sort(&mut member.timers);
    }
    all.members.retain(|member| !member.timers.is_empty());
    Ok(all)
}

fn sort(timers: &mut [TimerRecord]) {
    timers.sort_by(|one, other| one.due.as_secs().total_cmp(&other.due.as_secs()));
}

/// Sends the reminders of the timers that are due, and removes or advances these timers. Returns the time at which the
/// next timer is due. The lock is held meanwhile, so that a timer that was cancelled sends nothing.
pub(crate) fn send_due(
    bus: &Bus,
    me: &AgentName,
    now: WallTime,
) -> Result<Option<WallTime>, TimerError> {
    let dir = bus.dir();
    let next = match read(dir, me)? {
        TimersRead::None => return Ok(None),
        TimersRead::List(list) => rules::first_due(&list),
        // A change moves the file aside.
        TimersRead::Damaged(_) => Some(now),
    };
    if next.is_none_or(|due| due > now) {
        return Ok(next);
    }
    change(dir, me, bus.fsync(), |list| rules::prepare(list, now, reminder))?;
    let sent = change(dir, me, bus.fsync(), |list| {
        // A timer that was set since is prepared by the next attempt.
        for timer in rules::due(list, now).into_iter().filter(|timer| timer.reminder.is_some()) {
            hit("timer.due");
            send(bus, me, &timer)?;
            hit("timer.sent");
            rules::settle(list, &timer, now);
        }
        Ok(rules::first_due(list))
    })?;
    hit("timer.settled");
    sent
}

fn send(bus: &Bus, me: &AgentName, timer: &Timer) -> Result<(), TimerError> {
    let text = timer.reminder.as_deref().unwrap_or_default();
    let outgoing = Outgoing { id: Some(reminder_id(timer)), ..Outgoing::text(bus.cut(text)) };
    // The file may be of anybody, such as the maker of the folder.
    bus.send_unsealed(&AgentName::system(), me, outgoing)?;
    tracing::info!(id = timer.id, "a reminder was sent");
    Ok(())
}

/// Returns the text of a reminder, with the time in the zone of this process.
fn reminder(timer: &Timer) -> String {
    let Timer { id, by, text, .. } = timer;
    let by = if by.is_empty() { String::new() } else { format!(", set by {by}") };
    format!("Reminder ({id}, {}{by}): {text}", when_in_words(timer))
}

/// Returns the time of a timer, with its period.
pub(crate) fn when_in_words(timer: &Timer) -> String {
    let every = timer.every_s.map(|every_s| format!(", every {}", period_in_words(every_s)));
    format!("{}{}", local_time(timer.due), every.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::MailLimits;
    use crate::os::SystemClock;
    use crate::store::{test_team, unread};
    use std::sync::Arc;

    fn order(when: When) -> TimerOrder {
        let (owner, by) = (AgentName::lead(), AgentName::user());
        TimerOrder { owner, by, when, text: "look".into(), origin: None }
    }

    #[test]
    fn what_a_person_types_is_a_time() {
        let now = WallTime::from_secs(1_763_690_000.0);
        let seconds = Duration::from_secs;
        for (text, when) in [
            ("30m", When::In(seconds(1800))),
            (" 1.5h", When::In(seconds(5400))),
            ("every 1d", When::Every(seconds(86_400))),
            ("2025-11-21T01:53:20Z", When::At(now)),
        ] {
            assert_eq!(When::typed(text, now).unwrap(), when, "{text}");
        }
        for text in ["", "30", "soon", "every", "every 14:30", "every 0m", "-5m", "25:00"] {
            let why = When::typed(text, now).unwrap_err();
            assert!(why.is_misuse() && why.to_string().contains("write "), "{text}: {why}");
        }
    }

    #[test]
    fn a_due_timer_sends_one_reminder_and_a_cancelled_one_none() {
        let (_folder, dir) = test_team();
        let bus = Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock));
        let (lead, now) = (AgentName::lead(), WallTime::from_secs(1_763_690_000.0));
        let at = |seconds| now + Duration::from_secs(seconds);
        let set = |seconds| {
            let order = order(When::At(at(seconds)));
            match set(&dir, order, Fsync::Never, now).unwrap() {
                SetOutcome::Open(timer) => timer.id.clone(),
                SetOutcome::Over => panic!("over"),
            }
        };
        assert_eq!(send_due(&bus, &lead, now).unwrap(), None);
        let (first, second) = (set(10), set(20));
        set(30);
        assert_eq!(send_due(&bus, &lead, at(5)).unwrap(), Some(at(10)));
        cancel(&dir, &lead, &second, None, Fsync::Never).unwrap();
        assert!(matches!(
            cancel(&dir, &lead, &second, None, Fsync::Never),
            Err(TimerError::Unknown(_))
        ));
        assert!(unread::waiting(&dir, &lead).unwrap().is_empty());
        assert_eq!(send_due(&bus, &lead, at(25)).unwrap(), Some(at(30)));
        assert_eq!(send_due(&bus, &lead, at(25)).unwrap(), Some(at(30)));
        let mail = unread::waiting(&dir, &lead).unwrap();
        assert_eq!(mail.len(), 1);
        let content = mail[0].object.as_ref().unwrap()["content"].as_str().unwrap();
        assert!(content.starts_with("Reminder (lead-1, 2025-11-21 "), "{content}");
        assert!(content.ends_with(", set by user): look"), "{content}");
        assert_eq!((first.as_str(), of_member(&dir, &lead).unwrap().len()), ("lead-1", 1));
    }
}
