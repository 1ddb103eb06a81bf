//! What an interactive lead shows of its teammates as their roster entries change.

use crate::store::{TeamDir, roster};
use crate::ui::console::Console;
use crate::wire::activity::Activity;
use crate::wire::roster::{Member, Status};
use std::collections::BTreeMap;

/// The roster as it was last shown: status and activity by name.
#[derive(Default)]
pub(super) struct TeamChanges {
    shown: BTreeMap<String, (Status, Option<Activity>)>,
}

impl TeamChanges {
    pub(super) fn show(&mut self, team: &TeamDir, console: &mut Console) {
        let Ok(roster) = roster::read(team) else { return };
        let names_changed = roster.members.len() != self.shown.len();
        for member in &roster.members {
            let now = (member.status, member.activity.clone());
            let before = self.shown.insert(member.name.clone(), now.clone());
            if before.as_ref() != Some(&now)
                && let Some(text) = change(member, before.map(|(status, _)| status))
            {
                console.member(member, &text);
            }
        }
        if names_changed {
            console.set_members(&roster.members);
        }
    }
}

/// Describes a change that deserves a line. The steps between two model calls do not.
fn change(member: &Member, before: Option<Status>) -> Option<String> {
    let is_same_status = before == Some(member.status);
    let cause = member.last_exit.as_ref().map_or("unknown", |exit| exit.cause.word());
    match (&member.activity, member.status) {
        (Some(activity), Status::Working) if *activity != Activity::Model => {
            Some(format!("working: {activity}"))
        }
        _ if is_same_status && !member.status.is_over() => None,
        (Some(activity), Status::Starting) => Some(format!("{activity} ({cause})")),
        (_, status) if status.is_over() => Some(format!("{} ({cause})", status.word())),
        (_, status) => Some(status.word().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_and_a_new_status_get_a_line_and_a_model_call_does_not() {
        let tool = || Some(Activity::Tool("grep".into()));
        for (status, activity, before, line) in [
            (Status::Working, tool(), Some(Status::Working), Some("working: grep")),
            (Status::Working, Some(Activity::Model), Some(Status::Working), None),
            (Status::Working, Some(Activity::Model), Some(Status::Idle), Some("working")),
            (Status::Idle, None, None, Some("idle")),
            (Status::Failed, None, Some(Status::Failed), Some("failed (unknown)")),
        ] {
            let member = Member { status, activity, ..Member::default() };
            assert_eq!(change(&member, before).as_deref(), line, "{member:?} {before:?}");
        }
    }
}
