//! The requests of a subagent to its caller, which alone has the rules, the budget and the ways to people.

use crate::agent::conversation::CallVerdict;
use crate::protocol::budget::BudgetLimit;
use crate::protocol::permission::Policy;
use crate::tools::{Call, Registry};
use crate::wire::activity::Activity;
use crate::wire::chat::Usage;
use crate::wire::money::Price;
use crate::wire::permission::{Decision, Question};
use crate::wire::subagent::SubagentStart;
use std::rc::Rc;
use tokio::sync::oneshot;

/// A subagent whose calls are judged.
pub(crate) struct Asker {
    /// `CALLER:NUMBER`.
    pub(crate) id: String,
    pub(crate) tools: Rc<Registry>,
    /// The limits of its role, which hold besides the rules of its caller.
    pub(crate) limits: Policy,
}

pub(crate) enum SubagentRequest {
    /// Records the start durably in the caller's transcript.
    Begin { start: SubagentStart, reply: oneshot::Sender<()> },
    /// Decides about a call.
    Judge { asker: Rc<Asker>, call: Call, reply: oneshot::Sender<CallVerdict> },
    /// Asks a question; answered by its decision.
    Ask { number: u64, question: Box<Question>, reply: oneshot::Sender<Decision> },
    /// Counts a model call at this price.
    Count(Usage, Option<Price>),
    /// Counts that another model goes on for a subagent, and publishes the reason.
    CountSwitch(u64, String),
    /// Asks for the limit that forbids another model call, if one does.
    CheckBudget(oneshot::Sender<Option<BudgetLimit>>),
    /// Publishes what a subagent does.
    Doing(u64, Activity),
    /// A subagent has ended, or was cancelled.
    Ended(u64),
}
