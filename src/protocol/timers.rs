//! The rules of timers: which ones may be set, which are due, and what is left of one that has sent its reminder.
//!
//! *Invariant:* a repeating timer sends one reminder for all repetitions that were missed. The reminder of a timer is a
//! function of the timer alone, and stored with it before it is sent, so that one that is sent twice is delivered once.

use crate::wire::message::Message;
use crate::wire::timer::{Timer, TimerList};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use std::time::Duration;

/// The maximum number of open timers of a member.
pub(crate) const MOST_TIMERS: usize = 32;

/// The maximum length of a reminder's text, in bytes: longer ones belong into a file.
pub(crate) const TEXT_BYTES: usize = 2000;

/// The shortest period of a repeating timer: each reminder costs a turn of a model.
pub(crate) const SHORTEST_PERIOD: Duration = Duration::from_secs(60);

/// The longest time to a reminder.
pub(crate) const LONGEST_TIME: Duration = Duration::from_secs(10 * 366 * 86_400);

/// The number of calls that are remembered after their timers have ended.
const MOST_OVER: usize = 32;

pub(crate) type TimerRecord = WithUnknownFields<Timer>;
pub(crate) type TimerListRecord = WithUnknownFields<TimerList>;

/// A timer that is to be set.
#[derive(Debug, Clone)]
pub(crate) struct NewTimer {
    /// The name of the agent that sets it, or `user`.
    pub(crate) by: AgentName,
    pub(crate) text: String,
    pub(crate) due: WallTime,
    /// The period of a repeating timer.
    pub(crate) every: Option<Duration>,
    /// The tool call that sets it.
    pub(crate) origin: Option<String>,
}

/// The reason for which a timer is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimerRefusal {
    NoText,
    /// The text has this number of bytes.
    LongText(usize),
    TooMany,
    ShortPeriod,
    Past(WallTime),
    Far,
}

/// The result of setting a timer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SetOutcome {
    /// The timer is in the list; it may have been set by the same call before.
    Open(Box<TimerRecord>),
    /// The same call has set a timer before, which has ended.
    Over,
}

/// Adds a timer of `owner` to its list. A call that has set one before adds none.
pub(crate) fn set(
    list: &mut TimerList,
    owner: &AgentName,
    new: NewTimer,
    now: WallTime,
) -> Result<SetOutcome, TimerRefusal> {
    if let Some(origin) = &new.origin {
        let same = list.timers.iter().find(|timer| timer.origin.as_ref() == Some(origin));
        if let Some(timer) = same {
            return Ok(SetOutcome::Open(Box::new(timer.clone())));
        }
        if list.over.contains(origin) {
            return Ok(SetOutcome::Over);
        }
    }
    check(list, &new, now)?;
    list.last = list.last.saturating_add(1);
    let timer = Timer {
        id: format!("{owner}-{}", list.last),
        text: new.text,
        by: new.by.to_string(),
        due: new.due,
        every_s: new.every.map(|every| every.as_secs()),
        created_at: now,
        origin: new.origin,
        reminder: None,
    };
    let timer = TimerRecord::from(timer);
    list.timers.push(timer.clone());
    Ok(SetOutcome::Open(Box::new(timer)))
}

fn check(list: &TimerList, new: &NewTimer, now: WallTime) -> Result<(), TimerRefusal> {
    if new.text.trim().is_empty() {
        return Err(TimerRefusal::NoText);
    }
    if new.text.len() > TEXT_BYTES {
        return Err(TimerRefusal::LongText(new.text.len()));
    }
    if new.every.is_some_and(|every| every < SHORTEST_PERIOD) {
        return Err(TimerRefusal::ShortPeriod);
    }
    if new.due <= now {
        return Err(TimerRefusal::Past(new.due));
    }
    // A time that is no number is not within the limit, either.
    let is_near = new.due <= now + LONGEST_TIME;
    if !is_near || new.every.is_some_and(|every| every > LONGEST_TIME) {
        return Err(TimerRefusal::Far);
    }
    if list.timers.len() >= MOST_TIMERS {
        return Err(TimerRefusal::TooMany);
    }
    Ok(())
}

/// Removes a timer. Returns `false` if there is none with this id, and the same call has removed none before.
pub(crate) fn cancel(list: &mut TimerList, id: &str, call: Option<&str>) -> bool {
    let Some(at) = list.timers.iter().position(|timer| timer.id == id) else {
        return call.is_some_and(|call| list.over.iter().any(|known| known == call));
    };
    let timer = list.timers.remove(at);
    remember(list, timer.origin.as_deref());
    remember(list, call);
    true
}

/// Returns the timers that are due, the earliest first.
pub(crate) fn due(list: &TimerList, now: WallTime) -> Vec<TimerRecord> {
    let mut due: Vec<_> = list.timers.iter().filter(|timer| timer.due <= now).cloned().collect();
    due.sort_by(|one, other| one.due.as_secs().total_cmp(&other.due.as_secs()));
    due
}

/// Stores the reminder of each timer that is due, unless it has one: an earlier attempt may have sent it.
pub(crate) fn prepare(list: &mut TimerList, now: WallTime, words: impl Fn(&Timer) -> String) {
    for timer in list.timers.iter_mut().filter(|timer| timer.due <= now) {
        if timer.reminder.as_deref().is_none_or(str::is_empty) {
            timer.reminder = Some(words(timer));
        }
    }
}

/// Returns the time at which the next timer is due.
pub(crate) fn first_due(list: &TimerList) -> Option<WallTime> {
    let due = list.timers.iter().map(|timer| timer.due);
    due.min_by(|one, other| one.as_secs().total_cmp(&other.as_secs()))
}

/// Removes a timer that has sent its reminder, or advances a repeating one beyond `now`.
pub(crate) fn settle(list: &mut TimerList, sent: &Timer, now: WallTime) {
    let Some(at) = list.timers.iter().position(|it| it.id == sent.id && it.due == sent.due) else {
        return;
    };
    match sent.every_s {
        Some(every_s) => {
            if let Some(timer) = list.timers.get_mut(at) {
                timer.due = next_due(sent.due, Duration::from_secs(every_s), now);
                timer.reminder = None;
            }
        }
        None => {
            let timer = list.timers.remove(at);
            remember(list, timer.origin.as_deref());
        }
    }
}

/// Returns the first repetition after `now`: those that were missed are over.
fn next_due(due: WallTime, every: Duration, now: WallTime) -> WallTime {
    let every = every.max(SHORTEST_PERIOD);
    let missed = (now.since(due).as_secs_f64() / every.as_secs_f64()).floor();
    let next = WallTime::from_secs(due.as_secs() + (missed + 1.0) * every.as_secs_f64());
    if next > now { next } else { now + every }
}

/// Remembers the call that has set or cancelled an ended timer.
fn remember(list: &mut TimerList, call: Option<&str>) {
    list.over.extend(call.map(ToOwned::to_owned));
    let surplus = list.over.len().saturating_sub(MOST_OVER);
    list.over.drain(..surplus);
}

/// Returns the id of the reminder of a timer. A reminder that is sent again has the same one.
pub(crate) fn reminder_id(timer: &Timer) -> String {
    format!("{REMINDER_ID}{}:{}", timer.id, timer.due)
}

/// The beginning of the id of a reminder.
const REMINDER_ID: &str = "timer:";

/// Whether a message is a reminder.
pub(crate) fn is_reminder(message: &Message) -> bool {
    let is_of_program = message.from == AgentName::system().as_str();
    is_of_program && message.id.as_deref().is_some_and(|id| id.starts_with(REMINDER_ID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: f64 = 1_763_690_000.0;

    fn at(seconds: f64) -> WallTime {
        WallTime::from_secs(NOW + seconds)
    }

    fn new(due: f64) -> NewTimer {
        let by = AgentName::user();
        NewTimer { by, text: "look".into(), due: at(due), every: None, origin: None }
    }

    fn alice() -> AgentName {
        AgentName::member("alice").unwrap()
    }

    fn set_ok(list: &mut TimerList, new: NewTimer) -> TimerRecord {
        match set(list, &alice(), new, at(0.0)).unwrap() {
            SetOutcome::Open(timer) => *timer,
            SetOutcome::Over => panic!("over"),
        }
    }

    #[test]
    fn a_timer_sends_once_and_its_id_is_not_reused() {
        let mut list = TimerList::default();
        let first = set_ok(&mut list, new(10.0));
        assert_eq!((first.id.as_str(), first_due(&list)), ("alice-1", Some(at(10.0))));
        assert!(due(&list, at(9.9)).is_empty());
        let sent = due(&list, at(10.0));
        assert_eq!(sent, std::slice::from_ref(&first));
        settle(&mut list, &sent[0], at(10.0));
        assert_eq!((list.timers.len(), first_due(&list)), (0, None));
        settle(&mut list, &sent[0], at(11.0));
        assert_eq!(set_ok(&mut list, new(20.0)).id, "alice-2");
        assert_ne!(reminder_id(&first), reminder_id(&list.timers[0]));
    }

    #[test]
    fn missed_repetitions_send_one_reminder() {
        let mut list = TimerList::default();
        let every = Some(Duration::from_secs(3600));
        set_ok(&mut list, NewTimer { every, ..new(3600.0) });
        let asleep_until = at(3600.0 * 5.5);
        prepare(&mut list, asleep_until, |_| "words".into());
        prepare(&mut list, asleep_until, |_| "other words".into());
        let sent = due(&list, asleep_until);
        assert_eq!(sent[0].reminder.as_deref(), Some("words"));
        assert_eq!((sent.len(), sent[0].due), (1, at(3600.0)));
        settle(&mut list, &sent[0], asleep_until);
        assert_eq!(first_due(&list), Some(at(3600.0 * 6.0)));
        assert!(due(&list, asleep_until).is_empty());
        assert_eq!(list.timers[0].reminder, None, "the next one has another time");
        assert_ne!(reminder_id(&sent[0]), reminder_id(&list.timers[0]));
    }

    #[test]
    fn a_repeated_call_sets_one_timer_even_if_it_has_ended() {
        let mut list = TimerList::default();
        let of_call = |due| NewTimer { origin: Some("alice:call_1".into()), ..new(due) };
        let first = set_ok(&mut list, of_call(5.0));
        assert_eq!(set_ok(&mut list, of_call(9.0)), first);
        settle(&mut list, &first, at(5.0));
        assert_eq!(set(&mut list, &alice(), of_call(12.0), at(6.0)), Ok(SetOutcome::Over));
        assert!(list.timers.is_empty());
        let cancelled = set_ok(&mut list, NewTimer { origin: Some("c".into()), ..new(5.0) });
        for _ in 0..2 {
            assert!(cancel(&mut list, &cancelled.id, Some("alice:call_2")));
        }
        assert_eq!(list.over, ["alice:call_1", "c", "alice:call_2"]);
        assert!(!cancel(&mut list, &cancelled.id, None));
        assert!(!cancel(&mut list, "alice-9", Some("alice:call_3")));
    }

    #[test]
    fn a_timer_beyond_the_bounds_is_refused_and_changes_nothing() {
        let mut list = TimerList::default();
        let year = 366.0 * 86_400.0;
        let long = "x".repeat(TEXT_BYTES + 1);
        for (wrong, why) in [
            (NewTimer { text: " ".into(), ..new(5.0) }, TimerRefusal::NoText),
            (NewTimer { text: long, ..new(5.0) }, TimerRefusal::LongText(TEXT_BYTES + 1)),
            (
                NewTimer { every: Some(Duration::from_secs(59)), ..new(59.0) },
                TimerRefusal::ShortPeriod,
            ),
            (new(0.0), TimerRefusal::Past(at(0.0))),
            (new(-5.0), TimerRefusal::Past(at(-5.0))),
            (new(11.0 * year), TimerRefusal::Far),
            (new(f64::NAN), TimerRefusal::Far),
        ] {
            assert_eq!(set(&mut list, &alice(), wrong, at(0.0)), Err(why));
        }
        assert_eq!(list, TimerList::default());
        for n in 1..=u32::try_from(MOST_TIMERS).unwrap() {
            set_ok(&mut list, new(f64::from(n)));
        }
        let full = list.clone();
        assert_eq!(set(&mut list, &alice(), new(5.0), at(0.0)), Err(TimerRefusal::TooMany));
        assert_eq!(list, full);
    }

    proptest! {
        /// The next repetition lies ahead, by at most one period, whatever the machine has missed.
        #[test]
        fn the_next_repetition_lies_ahead(every in 0_u64..400_000_000, late in 0.0_f64..1e9) {
            let (due, every) = (at(0.0), Duration::from_secs(every));
            let now = at(late);
            let next = next_due(due, every, now);
            let period = every.max(SHORTEST_PERIOD);
            prop_assert!(next > now && next <= now + period + Duration::from_secs(1), "{next}");
        }
    }
}
