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
    /// Shows what has changed since the last call.
    pub(super) fn show(&mut self, team: &TeamDir, console: &mut Console) {
        let Ok(roster) = roster::read(team) else { return };
        let names_changed = roster.members.len() != self.shown.len();
        for member in &roster.members {
            let now = (member.status, member.activity.clone());
            let before = self.shown.insert(member.name.clone(), now.clone());
            if before.as_ref() != Some(&now)
                && let Some(text) = change(member, before.as_ref().map(|(status, _)| *status))
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
        let member = |status, activity| Member { status, activity, ..Member::default() };
        let tool = member(Status::Working, Some(Activity::Tool("grep".into())));
        assert_eq!(change(&tool, Some(Status::Working)).unwrap(), "working: grep");
        let model = member(Status::Working, Some(Activity::Model));
        assert_eq!(change(&model, Some(Status::Working)), None);
        assert_eq!(change(&model, Some(Status::Idle)).unwrap(), "working");
        assert_eq!(change(&member(Status::Idle, None), None).unwrap(), "idle");
        let ended = member(Status::Failed, None);
        assert_eq!(change(&ended, Some(Status::Failed)).unwrap(), "failed (unknown)");
    }
}
