//! The lifecycle of a team member: one table of (status, event) -> status.
//!
//! Every change of a status on the roster goes through [`apply`]; `tests/it/tidy.rs` checks that no
//! other code assigns one. ARCHITECTURE.md draws the same table, and a test compares both.
//!
//! Reports are written late and several may be merged into one. So every report but `starting` is legal from
//! every live status.

use crate::wire::roster::Status;
use std::fmt;

/// A state of the table: a status on the roster, or `None` for a name that is not on it.
type State = Option<Status>;

/// An event in the lifecycle of a member, as observed by a writer of the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecycleEvent {
    /// A process is about to be started under the name, or has just taken it.
    Spawned,
    /// A lead that resumes a team will start the member.
    Resumed,
    /// A spawned process never became ready and was killed.
    SpawnFailed,
    Reported(Status),
    StopAsked,
    /// A lead continues although it was asked to stop: only a signal stops a lead.
    StopOverridden,
    StopConfirmed,
    /// A stop came before the process was started.
    StartCancelled,
    /// The process has ended without a stop by this lead, and is not restarted.
    Exited,
    /// The process hung, was killed, and is not restarted.
    KilledAsHung,
    RestartPlanned,
    /// The life lock was found held while a lost roster was rebuilt.
    FoundAlive,
    /// The life lock was found free although the roster shows no end.
    FoundDead,
    Removed,
}

impl fmt::Display for LifecycleEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Spawned => "spawned",
            Self::Resumed => "resumed",
            Self::SpawnFailed => "spawn failed",
            Self::Reported(status) => return write!(out, "reports {}", status.word()),
            Self::StopAsked => "stop asked",
            Self::StopOverridden => "stop overridden",
            Self::StopConfirmed => "stop confirmed",
            Self::StartCancelled => "start cancelled",
            Self::Exited => "exited",
            Self::KilledAsHung => "killed as hung",
            Self::RestartPlanned => "restart planned",
            Self::FoundAlive => "found alive",
            Self::FoundDead => "found dead",
            Self::Removed => "removed",
        })
    }
}

/// The state after an event; `None` if the table refuses the pair.
type Cell = Option<State>;

/// The columns of [`TABLE`].
const STATES: [State; 8] = {
    let [a, b, c, d, e, f, g] = Status::ALL;
    [None, Some(a), Some(b), Some(c), Some(d), Some(e), Some(f), Some(g)]
};

/// The table: one row per event, one cell per state of [`STATES`].
#[rustfmt::skip]
const TABLE: [(LifecycleEvent, [Cell; 8]); 20] = {
    use LifecycleEvent::{
        Exited, FoundAlive, FoundDead, KilledAsHung, Removed, Reported, RestartPlanned, Resumed, SpawnFailed,
        Spawned, StartCancelled, StopAsked, StopConfirmed, StopOverridden,
    };
    use Status::{Failed, Idle, Shutdown, Starting, Stopping, Waiting, Working};
    const ________: Cell = None;
    const ABSENT__: Cell = Some(None);
    const STARTING: Cell = Some(Some(Starting));
    const WORKING_: Cell = Some(Some(Working));
    const IDLE____: Cell = Some(Some(Idle));
    const WAITING_: Cell = Some(Some(Waiting));
    const STOPPING: Cell = Some(Some(Stopping));
    const SHUTDOWN: Cell = Some(Some(Shutdown));
    const FAILED__: Cell = Some(Some(Failed));
    [
        // from             absent    starting  working   idle      waiting   stopping  shutdown  failed
        (Spawned,            [STARTING, STARTING, ________, ________, ________, ________, STARTING, STARTING]),
        (Resumed,            [________, ________, ________, ________, ________, ________, STARTING, STARTING]),
        (SpawnFailed,        [________, FAILED__, FAILED__, FAILED__, FAILED__, FAILED__, ________, FAILED__]),
        (Reported(Starting), [________, STARTING, ________, ________, ________, STOPPING, ________, ________]),
        (Reported(Working),  [________, WORKING_, WORKING_, WORKING_, WORKING_, STOPPING, ________, ________]),
        (Reported(Idle),     [________, IDLE____, IDLE____, IDLE____, IDLE____, STOPPING, ________, ________]),
        (Reported(Waiting),  [________, WAITING_, WAITING_, WAITING_, WAITING_, STOPPING, ________, ________]),
        (Reported(Stopping), [________, STOPPING, STOPPING, STOPPING, STOPPING, STOPPING, ________, ________]),
        (Reported(Shutdown), [________, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN]),
        (Reported(Failed),   [________, FAILED__, FAILED__, FAILED__, FAILED__, FAILED__, FAILED__, FAILED__]),
        (StopAsked,          [________, STOPPING, STOPPING, STOPPING, STOPPING, STOPPING, ________, ________]),
        (StopOverridden,     [________, ________, ________, ________, ________, WORKING_, ________, ________]),
        (StopConfirmed,      [________, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN, SHUTDOWN]),
        (StartCancelled,     [________, SHUTDOWN, ________, ________, ________, ________, ________, ________]),
        (Exited,             [________, FAILED__, FAILED__, FAILED__, FAILED__, SHUTDOWN, SHUTDOWN, FAILED__]),
        (KilledAsHung,       [________, FAILED__, FAILED__, FAILED__, FAILED__, SHUTDOWN, FAILED__, FAILED__]),
        (RestartPlanned,     [________, STARTING, STARTING, STARTING, STARTING, STARTING, STARTING, STARTING]),
        (FoundAlive,         [IDLE____, ________, ________, ________, ________, ________, ________, ________]),
        (FoundDead,          [FAILED__, FAILED__, FAILED__, FAILED__, FAILED__, FAILED__, SHUTDOWN, FAILED__]),
        (Removed,            [________, ABSENT__, ABSENT__, ABSENT__, ABSENT__, ABSENT__, ________, ABSENT__]),
    ]
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the event \"{event}\" is illegal for a member that is {}", word(*.state))]
pub(crate) struct IllegalTransition {
    state: State,
    event: LifecycleEvent,
}

fn word(state: State) -> &'static str {
    state.map_or("not on the roster", Status::word)
}

/// Returns the state that follows `state` after `event`. Fails if the table refuses the pair.
pub(crate) fn next(state: State, event: LifecycleEvent) -> Result<State, IllegalTransition> {
    let row =
        TABLE.iter().filter(|(of, _)| *of == event).flat_map(|(_, row)| STATES.iter().zip(row));
    let cell = row.into_iter().find(|(from, _)| **from == state).and_then(|(_, cell)| *cell);
    cell.ok_or(IllegalTransition { state, event })
}

/// Applies an event; returns the previous status. Fails for a pair that the table refuses and for the removal of
/// an entry, and then leaves the status unchanged.
pub(crate) fn apply(
    status: &mut Status,
    event: LifecycleEvent,
) -> Result<Status, IllegalTransition> {
    let state = Some(*status);
    let after = next(state, event)?.ok_or(IllegalTransition { state, event })?;
    Ok(std::mem::replace(status, after))
}

/// Applies [`LifecycleEvent::Spawned`] for a caller that holds the life lock, or has seen that no process holds
/// it. An entry that still shows a live status is then that of a dead process.
pub(crate) fn apply_spawned(status: &mut Status) -> Result<(), IllegalTransition> {
    if !status.is_over() && *status != Status::Starting {
        apply(status, LifecycleEvent::FoundDead)?;
    }
    apply(status, LifecycleEvent::Spawned).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write;

    const ENDED: [State; 2] = [Some(Status::Shutdown), Some(Status::Failed)];

    fn is_live(state: State) -> bool {
        state.is_some_and(|status| !status.is_over())
    }

    fn events() -> impl Iterator<Item = LifecycleEvent> {
        TABLE.iter().map(|(event, _)| *event)
    }

    /// Returns every pair of the table with its result.
    fn pairs() -> impl Iterator<Item = (State, LifecycleEvent, Result<State, IllegalTransition>)> {
        events().flat_map(|event| STATES.map(|state| (state, event, next(state, event))))
    }

    #[test]
    fn every_event_has_one_row() {
        for event in events().chain(Status::ALL.map(LifecycleEvent::Reported)) {
            assert_eq!(events().filter(|other| *other == event).count(), 1, "{event}");
        }
    }

    #[test]
    fn apply_follows_the_table_and_a_refusal_names_the_pair() {
        for (state, event, result) in pairs() {
            if let Err(refusal) = result {
                let (text, state) = (refusal.to_string(), word(state));
                let wanted =
                    format!("the event \"{event}\" is illegal for a member that is {state}");
                assert_eq!(text, wanted);
            }
            let Some(before) = state else { continue };
            let (mut status, after) = (before, result.ok().flatten());
            assert_eq!(apply(&mut status, event).ok(), after.map(|_| before), "{before:?} {event}");
            assert_eq!(status, after.unwrap_or(before), "{before:?} {event}");
            status = before;
            apply_spawned(&mut status).unwrap();
            assert_eq!(status, Status::Starting, "a spawn over a dead process: {before:?}");
        }
    }

    /// A rule that every pair keeps is kept by any order of events.
    #[test]
    fn every_pair_keeps_the_rules() {
        use LifecycleEvent::{
            Exited, FoundDead, KilledAsHung, Reported, RestartPlanned, Resumed, Spawned, StopAsked,
            StopConfirmed,
        };
        let stopping = Some(Status::Stopping);
        for (state, event, result) in pairs() {
            let pair = format!("{state:?} {event}");
            if ENDED.contains(&state) {
                let is_start = [Spawned, Resumed, RestartPlanned].contains(&event);
                let started = result.ok().filter(|after| is_live(*after));
                let wanted = is_start.then_some(Some(Status::Starting));
                assert_eq!(started, wanted, "{pair}: only a start leads out of an ended state");
            }
            if state.is_some() && [Exited, FoundDead, KilledAsHung, StopConfirmed].contains(&event)
            {
                assert!(ENDED.contains(&result.unwrap()), "{pair}: the process is gone");
            }
            if let (true, Reported(status)) = (state == stopping, event) {
                let kept = if status.is_over() { status } else { Status::Stopping };
                assert_eq!(result, Ok(Some(kept)), "{pair}: no report revokes a stop");
            }
            let Ok(after) = result else { continue };
            let is_report = matches!(event, Reported(status) if !status.is_over());
            let is_asked = [StopAsked, Reported(Status::Stopping)].contains(&event);
            let stops = is_asked || state == stopping && is_report;
            assert_eq!(after == stopping, stops, "{pair}: a stop holds until it is settled");
            assert!(state.or(after).is_some(), "{pair}: an event without effect is refused");
        }
    }

    #[test]
    fn every_state_is_reachable_from_every_state() {
        for state in STATES {
            let mut found = BTreeSet::from([state]);
            // Each round takes one more step, and no path is longer than the number of states.
            for _ in STATES {
                let steps = pairs().filter(|(from, ..)| found.contains(from));
                let after: Vec<State> = steps.filter_map(|(_, _, result)| result.ok()).collect();
                found.extend(after);
            }
            assert_eq!(found, BTreeSet::from(STATES), "{state:?}");
        }
    }

    #[test]
    fn architecture_md_draws_this_table() {
        let mut text = format!("| event | {} |\n", STATES.map(word).join(" | "));
        writeln!(text, "|{}", "---|".repeat(STATES.len() + 1)).unwrap();
        for event in events() {
            let cell = |after: State| after.map_or("(removed)", Status::word);
            let cells = STATES.map(|state| next(state, event).map_or("-", cell)).join(" | ");
            writeln!(text, "| {event} | {cells} |").unwrap();
        }
        let is_drawn = include_str!("../../ARCHITECTURE.md").contains(&text);
        assert!(is_drawn, "replace the table in ARCHITECTURE.md by this one:\n{text}");
    }
}
