//! The teammates of the last team that a resumed lead starts again, and the last state of each.

use crate::agent::conversation::Memory;
use crate::store::{TeamDir, past};
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, Member, Roster, StartedBy};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, message::Outcome};
use std::collections::BTreeSet;

/// Selects the teammates that come back, at most `max_teammates`, with a text for the user and the lead's model. Of a
/// conversation that is not the last one, only its own teammates (`of`) come back.
pub(super) fn returning(
    team: &TeamDir,
    roster: &Roster,
    max_teammates: usize,
    of: Option<&BTreeSet<String>>,
) -> (Vec<AgentName>, String) {
    let (names, stopped) = split(roster, max_teammates, of);
    let text = words(&names, &stopped, |name| {
        last_state(&read_lines(team, name)) + &stricter_mode(roster, name)
    });
    (names, text)
}

/// Returns the number of teammates that come back with the last conversation.
pub(super) fn count(roster: &Roster, max_teammates: usize) -> usize {
    split(roster, max_teammates, None).0.len()
}

/// Names the mode of a teammate that is stricter than that of its lead.
fn stricter_mode(roster: &Roster, name: &AgentName) -> String {
    let parse = |word: &str| PermissionMode::parse(word).unwrap_or_default();
    let lead = roster.lead.as_ref().map(|lead| parse(&lead.mode)).unwrap_or_default();
    let mode = roster.member(name.as_str()).map(|member| parse(&member.mode));
    let mode = mode.filter(|mode| *mode < lead);
    mode.map(|mode| format!("; it stays in mode {mode}")).unwrap_or_default()
}

fn read_lines(team: &TeamDir, name: &AgentName) -> Vec<Line> {
    past::last_turn(team, name).unwrap_or_default()
}

/// Splits the teammates that a lead started into those that come back and those that do not.
fn split<'a>(
    roster: &'a Roster,
    max_teammates: usize,
    of: Option<&BTreeSet<String>>,
) -> (Vec<AgentName>, Vec<&'a str>) {
    let (back, stopped): (Vec<&Member>, Vec<&Member>) = roster
        .members
        .iter()
        .map(|member| &**member)
        // One of another host goes on there, or is spawned there again.
        .filter(|member| member.started_by == StartedBy::Lead && member.host.is_none())
        .filter(|member| of.is_none_or(|names| names.contains(&member.name)))
        .partition(|member| {
            // A teammate that was not stopped by name still belongs to the team.
            let cause = member.last_exit.as_ref().map(|exit| exit.cause);
            member.status.is_over() && cause != Some(ExitCause::Stopped)
        });
    let names = back.iter().filter_map(|member| AgentName::member(&member.name).ok());
    let stopped = stopped.iter().map(|member| member.name.as_str()).collect();
    (names.take(max_teammates).collect(), stopped)
}

fn words(
    returning: &[AgentName],
    stopped: &[&str],
    state: impl Fn(&AgentName) -> String,
) -> String {
    if returning.is_empty() && stopped.is_empty() {
        return "There are no teammates to resume.".into();
    }
    let back: Vec<String> =
        returning.iter().map(|name| format!("{name} ({})", state(name))).collect();
    let back = match back.join(", ") {
        none if none.is_empty() => "No teammates are resumed".to_owned(),
        back => format!("Resumed: {back}"),
    };
    match stopped.join(", ") {
        none if none.is_empty() => format!("{back}."),
        stopped => format!("{back}; not resumed, because they were stopped: {stopped}."),
    }
}

/// Describes the state of a teammate at the end of its last process.
fn last_state(lines: &[Line]) -> String {
    let mut memory = Memory::default();
    for line in lines {
        memory.push(&line.entry);
    }
    memory.reopen_turn();
    if memory.in_turn && memory.was_interrupted {
        return "it has mail to answer".into();
    }
    if memory.in_turn {
        let running = memory.open_calls.iter().find(|call| call.started);
        let during = running.map(|call| format!(", during {}", call.call.name)).unwrap_or_default();
        return format!("in the middle of a turn{during}");
    }
    let last = lines.iter().rev().find_map(|line| {
        let Entry::TurnEnd { outcome, .. } = &line.entry else { return None };
        Some(*outcome)
    });
    match last {
        Some(Outcome::Interrupted) => "its last turn was interrupted".into(),
        Some(Outcome::Failed) => "its last turn failed".into(),
        Some(Outcome::Done) | None => "it was idle".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WallTime;
    use crate::wire::roster::{LastExit, Status};

    #[test]
    fn teammates_of_the_lead_come_back_unless_they_were_stopped_or_still_run() {
        let mut roster = Roster::default();
        for (name, status, cause, by) in [
            ("ended", Status::Shutdown, Some(ExitCause::TeamStopped), StartedBy::Lead),
            ("crashed", Status::Failed, Some(ExitCause::Crash), StartedBy::Lead),
            ("stopped", Status::Shutdown, Some(ExitCause::Stopped), StartedBy::Lead),
            ("running", Status::Idle, None, StartedBy::Lead),
            ("by-hand", Status::Shutdown, Some(ExitCause::TeamStopped), StartedBy::Hand),
        ] {
            let at = WallTime::default();
            let last_exit = cause.map(|cause| LastExit { cause, code: None, signal: None, at });
            let name = name.into();
            let member = Member { name, status, last_exit, started_by: by, ..Member::default() };
            roster.members.push(member.into());
        }
        let (names, stopped) = split(&roster, 9, None);
        let names: Vec<&str> = names.iter().map(AgentName::as_str).collect();
        assert_eq!((names, stopped), (vec!["ended", "crashed"], vec!["stopped", "running"]));
        let own = BTreeSet::from(["crashed".to_owned()]);
        let (names, stopped) = split(&roster, 9, Some(&own));
        assert_eq!((names.len(), stopped), (1, Vec::new()), "of another conversation");
        assert_eq!(split(&roster, 1, None).0.len(), 1, "no more than the settings allow");
    }

    #[test]
    fn each_decision_has_a_text() {
        let idle = |_: &AgentName| "it was idle".to_owned();
        let stopped = "No teammates are resumed; not resumed, because they were stopped: bob.";
        assert_eq!(words(&[], &["bob"], idle), stopped);
        assert_eq!(words(&[], &[], idle), "There are no teammates to resume.");
    }
}
