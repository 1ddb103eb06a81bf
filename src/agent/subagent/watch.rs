//! The subagents of a member as its event loop knows them, and the status that the caller has with them.

use super::subagents::Subagents;
use crate::wire::activity::Activity;
use crate::wire::permission::Decision;
use crate::wire::roster::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tokio::sync::oneshot;

/// A question of a subagent that waits for its answer.
pub(in crate::agent) struct AskedBySubagent {
    pub(in crate::agent) number: u64,
    pub(in crate::agent) activity: Activity,
    pub(in crate::agent) reply: oneshot::Sender<Decision>,
}

/// The subagents of a member, as its event loop knows them.
pub(in crate::agent) struct SubagentWatch {
    pub(in crate::agent) all: Option<Rc<Subagents>>,
    pub(in crate::agent) doing: BTreeMap<u64, Activity>,
    pub(in crate::agent) asking: BTreeMap<String, AskedBySubagent>,
    /// The status that the member itself has, and its activity.
    pub(in crate::agent) own: (Status, Option<Activity>),
    /// The ids of the interrupt requests by which subagents were ended.
    pub(in crate::agent) interrupts: BTreeSet<String>,
}

impl SubagentWatch {
    pub(in crate::agent) fn new(all: Option<Rc<Subagents>>) -> Self {
        let (doing, asking, interrupts) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { all, doing, asking, own: (Status::Starting, None), interrupts }
    }

    /// Whether subagents work in the background.
    pub(in crate::agent) fn has_background(&self) -> bool {
        self.all.as_ref().is_some_and(|all| all.has_background())
    }

    /// Returns the status to publish for a member that itself has this one. A member is not idle while a subagent works
    /// for it, and waits while one asks.
    pub(in crate::agent) fn shown(
        &mut self,
        status: Status,
        activity: Option<Activity>,
    ) -> (Status, Option<Activity>) {
        self.own = (status, activity.clone());
        let waits_for_them = match (status, &activity) {
            (Status::Idle, _) => self.has_background(),
            (Status::Working, Some(Activity::Tool(_))) => {
                !(self.doing.is_empty() && self.asking.is_empty())
            }
            _ => false,
        };
        if !waits_for_them {
            return (status, activity);
        }
        let mut doing: BTreeMap<u64, &Activity> =
            self.doing.iter().map(|(number, doing)| (*number, doing)).collect();
        doing.extend(self.asking.values().map(|asked| (asked.number, &asked.activity)));
        let words = doing.iter().map(|(number, doing)| format!("{number} {doing}"));
        let words: Vec<String> = words.collect();
        let status = if self.asking.is_empty() { Status::Working } else { Status::Waiting };
        (status, Some(Activity::Subagent(words.join(", "))))
    }
}
