//! The state of the team as the console shows it: who works at what and since when, and the status line.

use super::background_view::EndedCommands;
use super::running_calls::RunningCalls;
use crate::agent::progress::Progress;
use crate::os::{Clock, SystemClock};
use crate::store::{TeamDir, last_output, roster};
use crate::ui::console::{Console, MemberMark, StatusLine, WorkOutput, WorkingRow};
use crate::ui::roster::short;
use crate::wire::AgentName;
use crate::wire::activity::Activity;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{Member, Roster, Status};
use std::collections::BTreeMap;
use std::time::Instant;

/// The statuses and activities that were shown last, and the lead's own work.
#[derive(Default)]
pub(super) struct TeamView {
    members: BTreeMap<String, Shown>,
    calls: RunningCalls,
    commands: EndedCommands,
    /// The lead's work and the time of its start; `None` between two turns.
    lead: Option<(String, Instant)>,
    /// The work of the lead's subagents, by their ids.
    subagents: BTreeMap<String, (String, Instant)>,
    /// The person's own command and the time of its start.
    shell: Option<(String, Instant)>,
    /// The share of the context that the lead's last model call has used.
    context_percent: Option<u64>,
    working: Vec<WorkingRow>,
    status: StatusLine,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    status: Status,
    activity: Option<Activity>,
    /// The number of finished turns.
    turns: u64,
    /// The time at which this activity was first seen.
    since: Instant,
}

impl TeamView {
    /// Follows the lead's own work.
    pub(super) fn on_progress(&mut self, progress: &Progress) {
        let now = SystemClock.monotonic();
        match progress {
            Progress::TurnStarted { .. } | Progress::ToolEnded(_) => {
                self.lead = Some(("thinking".into(), now));
            }
            Progress::ToolStarted { name, summary, .. } => {
                self.lead = Some((format!("{name}  {summary}"), now));
            }
            Progress::TurnEnded { .. } | Progress::Idle => self.lead = None,
            Progress::Subagent { id, doing: Some(doing) } => {
                self.subagents.insert(id.clone(), (doing.clone(), now));
            }
            Progress::Subagent { id, doing: None } => {
                self.subagents.remove(id);
            }
            Progress::ContextUsed { tokens, limit } => {
                let percent = limit.filter(|limit| *limit > 0).map(|limit| tokens * 100 / limit);
                self.context_percent = percent;
            }
            Progress::Text(_)
            | Progress::Mail(_)
            | Progress::PromptsTaken(_)
            | Progress::PromptsDropped
            | Progress::Thought(_)
            | Progress::ToolOutput(_)
            | Progress::CallDraft(_)
            | Progress::Retry { .. }
            | Progress::Silent { .. }
            | Progress::Answers
            | Progress::MemberRetry { .. }
            | Progress::Asked(_)
            | Progress::Warning(_)
            | Progress::Note(_) => {}
        }
    }

    /// Sets the person's own command; `None` when it has ended.
    pub(super) fn set_shell(&mut self, command: Option<&str>) {
        self.shell = command.map(|command| (command.to_owned(), SystemClock.monotonic()));
    }

    /// Shows the changes since the last call: in the pane, and as lines where there is none. Returns the members that have
    /// ended a turn since then.
    pub(super) fn show(
        &mut self,
        team: &TeamDir,
        questions: usize,
        console: &Console,
    ) -> Vec<AgentName> {
        let Ok(roster) = roster::read(team) else { return Vec::new() };
        let mut ended = Vec::new();
        let names_changed = roster.members.len() != self.members.len();
        let now = SystemClock.monotonic();
        for member in &roster.members {
            for text in self.commands.look(team, &member.name) {
                console.print_member(&member.name, &member.color, &text);
            }
            let before = self.members.get(&member.name);
            let turns = member.usage.turns;
            if before.is_some_and(|before| before.turns < turns) {
                ended.extend(AgentName::member(&member.name));
            }
            let same = before.filter(|before| {
                (before.status, &before.activity) == (member.status, &member.activity)
            });
            if same.is_some_and(|before| before.turns == turns) {
                continue;
            }
            let since = same.map_or(now, |before| before.since);
            // A member of an earlier session that has ended is no news.
            let is_old = before.is_none() && member.status.is_over();
            let before = before.map(|before| before.status);
            if let Some(text) = change(member, before)
                && !is_old
                && (!console.has_pane() || is_news(member))
            {
                console.print_member(&member.name, &member.color, &text);
            }
            let (status, activity) = (member.status, member.activity.clone());
            self.members.insert(member.name.clone(), Shown { status, activity, turns, since });
        }
        if names_changed {
            console.set_members(&roster.members);
        }
        self.show_pane(team, &roster, questions, console);
        ended
    }

    fn show_pane(&mut self, team: &TeamDir, roster: &Roster, questions: usize, console: &Console) {
        let working = self.working_rows(team, roster);
        if working != self.working {
            self.working.clone_from(&working);
            console.set_working(working);
        }
        let context_percent = self.context_percent;
        let status = StatusLine { context_percent, ..status_line(roster, questions) };
        if status != self.status {
            self.status.clone_from(&status);
            console.set_status(status);
        }
    }

    fn working_rows(&mut self, team: &TeamDir, roster: &Roster) -> Vec<WorkingRow> {
        let own = |name: &str, (what, since): &(String, Instant)| WorkingRow {
            name: name.to_owned(),
            color: String::new(),
            output: WorkOutput::OfSession,
            what: what.clone(),
            since: *since,
            tokens: 0,
        };
        let lead = self.lead.iter().map(|work| own("lead", work));
        let subagents = self.subagents.iter();
        let subagents = subagents.map(|(id, work)| own(id, work));
        let shell = self.shell.iter().map(|work| own("you", work));
        let is_at_work = |member: &Member| {
            matches!(member.status, Status::Working | Status::Starting | Status::Stopping)
        };
        let mut rows: Vec<WorkingRow> = shell.chain(lead).chain(subagents).collect();
        for member in &roster.members {
            let Some(shown) = self.members.get(&member.name) else { continue };
            let tool = match &member.activity {
                Some(Activity::Tool(tool)) if is_at_work(member) => tool,
                _ => "",
            };
            let now = SystemClock.monotonic();
            let call = if tool.is_empty() {
                self.calls.forget(&member.name);
                None
            } else {
                self.calls.look(team, &member.name, now)
            };
            if !is_at_work(member) {
                continue;
            }
            let what = match (&member.activity, member.status, call) {
                (_, _, Some(call)) => format!("{tool}  {}", call.subject),
                (Some(Activity::Model), _, _) | (None, Status::Working, _) => "thinking".into(),
                (Some(activity), _, _) => activity.to_string(),
                (None, status, _) => status.word().to_owned(),
            };
            rows.push(WorkingRow {
                name: member.name.clone(),
                color: member.color.clone(),
                what,
                output: WorkOutput::Line(
                    call.map(|_| last_output(team, member)).unwrap_or_default(),
                ),
                since: call.map_or(shown.since, |call| call.since),
                tokens: member.usage.tokens(),
            });
        }
        rows
    }

    /// Returns the names of the agents that are at work.
    pub(super) fn at_work(&self) -> Vec<&str> {
        let rows = self.working.iter().map(|row| row.name.as_str());
        rows.filter(|name| !self.subagents.contains_key(*name)).collect()
    }
}

/// Returns the newest line of output of the command that a member runs.
fn last_output(team: &TeamDir, member: &Member) -> String {
    let name = AgentName::member(&member.name);
    name.map(|name| last_output::read(team, &name)).unwrap_or_default()
}

fn status_line(roster: &Roster, questions: usize) -> StatusLine {
    let lead = roster.lead.as_ref();
    let mark = |member: &Member| MemberMark {
        name: member.name.clone(),
        color: member.color.clone(),
        status: member.status,
    };
    let members = roster.members.iter().filter(|member| !member.status.is_over());
    let used = roster.used();
    let tokens = match used.tokens() {
        0 => String::new(),
        tokens => format!("{} tokens", short(tokens)),
    };
    let cost = used.cost.map(|cost| format!(" · ~${cost}")).unwrap_or_default();
    StatusLine {
        mode: lead.map(|lead| PermissionMode::parse(&lead.mode).unwrap_or_default()),
        model: lead.map(|lead| lead.model.clone()).unwrap_or_default(),
        members: members.map(|member| mark(member)).collect(),
        questions,
        cost: tokens + &cost,
        context_percent: None,
    }
}

/// Whether a change is told above a pane, which shows the others.
fn is_news(member: &Member) -> bool {
    let is_retrying = matches!(member.activity, Some(Activity::Retrying(_)));
    member.status == Status::Failed || member.activity == Some(Activity::Restarting) || is_retrying
}

/// Describes a change of a member; `None` for one that is not shown, such as the start of a model call.
fn change(member: &Member, before: Option<Status>) -> Option<String> {
    let is_same_status = before == Some(member.status);
    let cause = member.last_exit.as_ref().map_or("unknown", |exit| exit.cause.word());
    match (&member.activity, member.status) {
        (Some(Activity::Retrying(why)), Status::Working) => Some(format!("{why}; trying again")),
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
        let retrying = || Some(Activity::Retrying("reset".into()));
        for (status, activity, before, line) in [
            (Status::Working, tool(), Some(Status::Working), Some("working: grep")),
            (Status::Working, Some(Activity::Model), Some(Status::Working), None),
            (Status::Working, Some(Activity::Model), Some(Status::Idle), Some("working")),
            (Status::Working, retrying(), Some(Status::Working), Some("reset; trying again")),
            (Status::Idle, None, None, Some("idle")),
            (Status::Failed, None, Some(Status::Failed), Some("failed (unknown)")),
        ] {
            let member = Member { status, activity, ..Member::default() };
            assert_eq!(change(&member, before).as_deref(), line, "{member:?} {before:?}");
        }
    }
}
