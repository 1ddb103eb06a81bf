//! The answers of the lead's program to slash commands: views of the team, read from its files.

use super::slash_command::View;
use crate::app::inbox_view;
use crate::app::roster_view;
use crate::app::task_view;
use crate::store::tasks::Problem;
use crate::store::{TeamDir, roster, tail::Tail};
use crate::tasks::Tasks;
use crate::ui;
use crate::ui::view::View as Layout;
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::UsageCount;
use serde_json::{Map, Value};

/// Lines that `/log` shows.
const LOG_LINES: usize = 20;

/// Renders a view, `width` columns wide.
pub(super) fn render(view: &View, tasks: &Tasks, layout: &Layout, width: usize) -> String {
    let team = tasks.dir();
    let shown = match view {
        View::Team => roster_view::table(team, layout.palette, width),
        View::Inbox => {
            let lead = AgentName::lead();
            inbox_view::read(team, &lead).map(|items| inbox_view::render(&lead, items, layout))
        }
        View::Tasks => return task_list(tasks, layout),
        View::Log(name) => return log_tail(team, name, layout),
        View::Mode => {
            let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
            let mode = lead.and_then(|lead| PermissionMode::parse(&lead.mode)).unwrap_or_default();
            return format!("mode {mode}: {}", mode.meaning());
        }
        View::Cost => return cost(team),
        View::Help => return ui::help::help(layout.palette),
    };
    shown.unwrap_or_else(|failure| failure.to_string())
}

fn task_list(tasks: &Tasks, layout: &Layout) -> String {
    let seen = match tasks.look() {
        Ok(seen) => seen,
        Err(why) => return format!("the task list cannot be read: {why}; {}", why.hint()),
    };
    let problem = |problem: &Problem| format!("{} is no task: {}\n", problem.file, problem.why);
    let problems: String = seen.problems.iter().map(problem).collect();
    task_view::table(&seen, layout.palette) + &problems
}

fn log_tail(team: &TeamDir, name: &AgentName, layout: &Layout) -> String {
    let lines = match Tail::new(team.log(name)).read_new() {
        Ok(lines) if lines.is_empty() => return format!("{name} has no log"),
        Ok(lines) => lines,
        Err(why) => return why.to_string(),
    };
    let first = lines.len().saturating_sub(LOG_LINES);
    let shown = lines.iter().skip(first).filter_map(|line| {
        let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
        Some(ui::log::line(name.as_str(), &object, layout))
    });
    shown.collect()
}

fn cost(team: &TeamDir) -> String {
    let Ok(roster) = roster::read(team) else { return "the roster cannot be read".into() };
    let lead = roster.lead.iter().map(|lead| ("lead", lead.usage));
    let members = roster.members.iter().map(|member| (member.name.as_str(), member.usage));
    let lines = lead.chain(members).map(|(name, usage)| format!("{name}: {}", words(&usage)));
    let together = format!("together, in this conversation: {}", words(&roster.used()));
    lines.chain([together]).collect::<Vec<_>>().join("\n")
}

fn words(usage: &UsageCount) -> String {
    let UsageCount { turns, input_tokens, output_tokens, .. } = usage;
    let cached = usage.cached_share().map(|share| format!(" ({share} % from the cache)"));
    let cost = usage.cost.map(|cost| format!(", cost {cost}"));
    let (cached, cost) = (cached.unwrap_or_default(), cost.unwrap_or_default());
    format!("{turns} turns, {input_tokens} tokens in{cached}, {output_tokens} out{cost}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Bus, Limits};
    use crate::os::SystemClock;
    use crate::tools::can_complete_tasks;
    use crate::ui::style::Palette;
    use std::io::Write;
    use std::sync::Arc;

    #[test]
    fn a_log_is_shown_without_blank_lines() {
        let folder = tempfile::tempdir().unwrap();
        let team = TeamDir::create(&folder.path().join(".team")).unwrap();
        let mut log = team.open_log(&AgentName::lead()).unwrap();
        writeln!(log, r#"{{"level":"INFO","message":"one"}}"#).unwrap();
        writeln!(log, r#"{{"level":"INFO","message":"two"}}"#).unwrap();
        let layout = Layout::new(Palette::plain(), None);
        let bus = Bus::new(team, Limits::default(), Arc::new(SystemClock));
        let tasks = Tasks::new(Arc::new(bus), Arc::new(SystemClock), can_complete_tasks);
        let text = render(&View::Log(AgentName::lead()), &tasks, &layout, 80);
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }
}
