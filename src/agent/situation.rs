//! The situation of a member as its program knows it. It is added to a summary of the conversation.

use super::conversation::cut;
use crate::leases;
use crate::store::roster;
use crate::tasks::Tasks;
use crate::wire::task::{Board, Task};
use crate::wire::{AgentName, WithUnknownFields};
use std::fmt::Write as _;

/// The maximum number of open tasks that are listed, and of bytes of each task's subject.
const TASKS_NAMED: usize = 20;
const SUBJECT_BYTES: usize = 200;

/// The maximum number of leased paths that are listed.
const PATHS_NAMED: usize = 20;

/// Describes the agent, the other members of the team, what it has leased, and the open tasks.
pub(super) fn situation(tasks: &Tasks, name: &AgentName) -> String {
    let mut text = format!("You are {name}");
    let roster = roster::read(tasks.dir()).unwrap_or_default();
    if let Some(me) = roster.member(name.as_str()) {
        let _infallible = write!(text, ", role: {}", me.role);
    }
    text.push_str(". The team now: lead");
    for member in roster.members.iter().filter(|member| member.name != name.as_str()) {
        let status = member.status.word();
        let _infallible = write!(text, ", {} ({}, {status})", member.name, member.role);
    }
    text.push('.');
    let leased = leases::of_agent(tasks.dir(), name).unwrap_or_default();
    if !leased.is_empty() {
        let named: Vec<&str> = leased.iter().take(PATHS_NAMED).map(String::as_str).collect();
        let more = if leased.len() > PATHS_NAMED { " and more" } else { "" };
        let _infallible = write!(text, " You have leased {}{more}.", named.join(", "));
    }
    // The model can still call list_tasks if the list cannot be read now.
    let board = tasks.snapshot().map(|seen| seen.board).unwrap_or_default();
    text.push_str(&open_tasks(&board, name));
    text
}

/// Lists the tasks that have not ended, the agent's own first.
fn open_tasks(board: &Board, name: &AgentName) -> String {
    let mut open: Vec<&WithUnknownFields<Task>> =
        board.values().filter(|task| !task.status.is_over()).collect();
    if open.is_empty() {
        return String::new();
    }
    let is_own = |task: &Task| task.owner.as_deref() == Some(name.as_str());
    open.sort_by_key(|task| (!is_own(task), task.id));
    let mut text = String::from(" Open tasks:");
    for task in open.iter().take(TASKS_NAMED) {
        let owner = match &task.owner {
            _ if is_own(task) => "yours".to_owned(),
            Some(owner) => format!("of {owner}"),
            None => "no owner".to_owned(),
        };
        let subject = cut(&task.subject, SUBJECT_BYTES);
        let status = task.status.word();
        let _infallible = write!(text, "\n{}: {subject} ({status}, {owner})", task.id);
    }
    if let Some(more) = open.len().checked_sub(TASKS_NAMED).filter(|more| *more > 0) {
        let _infallible = write!(text, "\nand {more} more: see list_tasks");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Bus, MailLimits};
    use crate::store::{LifeLock, LifeRecord, SharedClock, SystemClock, test_team};
    use crate::wire::task::{TaskId, TaskStatus};
    use std::sync::Arc;

    #[test]
    fn own_leases_are_named() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let _life = LifeLock::take(&dir, &alice, LifeRecord::of_this_process()).unwrap();
        let paths = ["docs", "src"].map(str::to_owned).into();
        leases::claim(&dir, &alice, leases::new_id(), paths, "rework".into()).unwrap();
        let clock: SharedClock = Arc::new(SystemClock);
        let bus = Arc::new(Bus::new(dir, MailLimits::default(), Arc::clone(&clock)));
        let tasks = Tasks::new(bus, clock, |_, _| true);
        let told = "You are alice. The team now: lead. You have leased docs, src.";
        assert_eq!(situation(&tasks, &alice), told);
    }

    #[test]
    fn open_tasks_are_listed_with_the_own_ones_first() {
        let alice = AgentName::member("alice").unwrap();
        let mut board = Board::new();
        let mut add = |id: &str, owner: Option<&str>, status| {
            let id = TaskId::parse(id).unwrap();
            let subject = format!("do {id}");
            let owner = owner.map(str::to_owned);
            let task = Task { id, subject, status, owner, ..Task::default() };
            board.insert(id, task.into());
        };
        add("1", None, TaskStatus::Pending);
        add("2", Some("bob"), TaskStatus::Completed);
        add("3", Some("bob"), TaskStatus::InProgress);
        add("4", Some("alice"), TaskStatus::InProgress);
        let told = " Open tasks:\n4: do 4 (in_progress, yours)\n1: do 1 (pending, no owner)\n3: do 3 (in_progress, of bob)";
        assert_eq!(open_tasks(&board, &alice), told);
        for id in 5..40 {
            let id = TaskId::parse(&id.to_string()).unwrap();
            let subject = "long ".repeat(100);
            board.insert(id, Task { id, subject, ..Task::default() }.into());
        }
        let told = open_tasks(&board, &alice);
        assert!(told.ends_with("\nand 18 more: see list_tasks") && told.len() < 6_000, "{told}");
        assert_eq!(open_tasks(&Board::new(), &alice), "");
    }
}
