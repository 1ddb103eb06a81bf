//! The rows of the panes that are lists: what each stands for, its key, and its words for the search.

use super::layout::Pane;
use crate::view::change::PendingQuestion;
use crate::view::{MemberView, MessageProgress, Snapshot, SubagentView};
use crate::wire::WithUnknownFields;
use crate::wire::task::{Task, TaskId};

/// The key by which a row stays selected: the agent that it belongs to, if any, and an id.
pub(super) type ItemKey = (String, String);

#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    Member(&'a MemberView),
    /// A subagent, below its caller.
    Subagent(&'a SubagentView),
    Message(&'a MessageProgress),
    Task(&'a WithUnknownFields<Task>, &'a [TaskId]),
    Question(&'a PendingQuestion),
}

impl Item<'_> {
    pub(super) fn key(&self) -> ItemKey {
        match self {
            Self::Member(member) => (member.name.clone(), String::new()),
            Self::Subagent(subagent) => (subagent.id.clone(), String::new()),
            Self::Message(message) => (message.to.clone(), message.id.clone()),
            Self::Task(task, _) => (String::new(), task.id.to_string()),
            Self::Question(asked) => (asked.from.clone(), asked.question.request_id.clone()),
        }
    }

    pub(super) fn is(&self, (owner, id): &ItemKey) -> bool {
        match self {
            Self::Member(member) => member.name == *owner,
            Self::Subagent(subagent) => subagent.id == *owner,
            Self::Message(message) => message.to == *owner && message.id == *id,
            Self::Task(task, _) => task.id.to_string() == *id,
            Self::Question(asked) => asked.from == *owner && asked.question.request_id == *id,
        }
    }

    /// Returns the words in which the search looks.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Member(member) => {
                let activity = member.activity.as_deref().unwrap_or_default();
                let words =
                    [&member.name, member.status.word(), &member.role, activity, &member.model];
                words.join(" ")
            }
            Self::Subagent(subagent) => format!("{} {}", subagent.id, subagent.doing),
            Self::Message(message) => {
                format!("{} → {} [{}]: {}", message.from, message.to, message.kind, message.content)
            }
            Self::Task(task, _) => {
                let owner = task.owner.as_deref().unwrap_or("-");
                format!("{} {} {owner} {}", task.id, task.status.word(), task.subject)
            }
            Self::Question(asked) => {
                let question = &asked.question;
                format!("{} {} {}", asked.from, question.tool, question.description)
            }
        }
    }
}

/// Returns the rows of a pane that is a list; the conversation has none. Protocol messages are left out unless
/// `shows_protocol`.
pub(super) fn items(pane: Pane, snapshot: &Snapshot, shows_protocol: bool) -> Vec<Item<'_>> {
    match pane {
        Pane::Members => {
            let mut rows = Vec::new();
            for member in &snapshot.members {
                rows.push(Item::Member(member));
                rows.extend(member.subagents.iter().map(Item::Subagent));
            }
            rows
        }
        Pane::Messages => {
            let shown = snapshot.messages.iter().filter(|it| shows_protocol || !it.is_protocol);
            shown.map(Item::Message).collect()
        }
        Pane::Conversation => Vec::new(),
        Pane::Tasks => snapshot.tasks.iter().map(|(task, after)| Item::Task(task, after)).collect(),
        Pane::Questions => snapshot.requests.iter().map(Item::Question).collect(),
    }
}

/// Returns the questions of living agents: those of others are asked again when they run.
pub(super) fn waiting(snapshot: &Snapshot) -> impl Iterator<Item = &PendingQuestion> {
    let is_alive =
        |asked: &&PendingQuestion| snapshot.member(&asked.from).is_some_and(|member| member.alive);
    snapshot.requests.iter().filter(is_alive)
}
