//! The budgets of a member, checked before each model call. A spent budget stops the member.
//!
//! A lead has no budget of its own; the team's applies. The warning that a budget is nearly used up is given once:
//! by the lead before a model call, or by the lead's program, which watches all members.

use super::identity::MemberContext;
use super::status::StatusReporter;
use crate::protocol::budget::{BudgetLimit, BudgetVerdict, LimitOwner, judge};
use crate::store::{TeamDir, usage};
use crate::wire::AgentName;
use crate::wire::budget::{Budget, Budgets, RunBudget};
use crate::wire::chat::Usage;
use crate::wire::message::Outcome;
use crate::wire::money::Price;
use crate::wire::roster::UsageCount;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Debug)]
pub(crate) struct AgentBudget {
    own: Budget,
    team: Budget,
    run: Option<RunBudget>,
    /// The warnings, shared with the lead's program, which gives them as well.
    pub(crate) warnings: Warnings,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    /// The warning about a teammate's own budget or, for the lead, about the team's.
    pub(crate) standing: OneTimeFlag,
    pub(crate) run: OneTimeFlag,
}

/// A warning that is given once. All clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct OneTimeFlag(Rc<Cell<bool>>);

impl OneTimeFlag {
    /// Marks the warning as given. Returns whether it was still to be given.
    pub(crate) fn take(&self) -> bool {
        !self.0.replace(true)
    }
}

impl AgentBudget {
    pub(crate) fn of(budgets: Budgets, run: Option<RunBudget>, name: &AgentName) -> Self {
        let own = if name.is_lead() { Budget::default() } else { budgets.member };
        Self { own, team: budgets.team, run, warnings: Warnings::default() }
    }

    /// Whether this agent shares a budget with others, so that the usage of all of them counts.
    fn is_shared(&self) -> bool {
        self.team != Budget::default() || self.run.is_some()
    }

    /// Decides whether an agent that has used `used` may call its model. A warning is returned once.
    fn may_ask(&self, dir: &TeamDir, name: &AgentName, used: &UsageCount) -> BudgetVerdict {
        let own = judge(LimitOwner::Member, &self.own, used);
        let all = self.is_shared().then(|| together(dir, name, used));
        let team = all.map_or(BudgetVerdict::Fine, |all| judge(LimitOwner::Team, &self.team, &all));
        let of_run = |(all, run): (UsageCount, RunBudget)| {
            judge(LimitOwner::Run, &run.budget(), &run.part_of(&all))
        };
        let run = all.zip(self.run).map_or(BudgetVerdict::Fine, of_run);
        let is_spent = |verdict: &BudgetVerdict| matches!(verdict, BudgetVerdict::Spent(_));
        if let Some(spent) = [own, team, run].into_iter().find(is_spent) {
            return spent;
        }
        // Only the lead warns about the shared budgets.
        let standing = if name.is_lead() { team } else { own };
        let is_new = |verdict: &BudgetVerdict, warning: &OneTimeFlag| {
            matches!(verdict, BudgetVerdict::Nearly(_)) && warning.take()
        };
        if is_new(&standing, &self.warnings.standing) {
            standing
        } else if name.is_lead() && is_new(&run, &self.warnings.run) {
            run
        } else {
            BudgetVerdict::Fine
        }
    }
}

pub(super) struct BudgetMonitor {
    pub(super) budget: AgentBudget,
    pub(super) context: Rc<MemberContext>,
    pub(super) before_turn: UsageCount,
}

impl BudgetMonitor {
    /// Decides whether the model may be called now.
    pub(super) fn check(&self, status: &StatusReporter) -> BudgetVerdict {
        let MemberContext { bus, me, .. } = &*self.context;
        self.budget.may_ask(bus.dir(), &me.name, &status.used())
    }

    /// Returns the text of the warning that a budget is nearly used up.
    pub(super) fn warning(&self, limit: &BudgetLimit) -> String {
        let me = &self.context.me.name;
        let stopped = if me.is_lead() { "the team" } else { me.as_str() };
        format!("{limit} are used; at the limit {stopped} is stopped")
    }

    pub(super) fn count_call(&self, usage: Usage, status: &mut StatusReporter) {
        let (input, output) = (usage.input_tokens, usage.output_tokens);
        let (cache_read, cache_write) =
            (usage.cache_read_input_tokens, usage.cache_creation_input_tokens);
        tracing::info!(input, output, cache_read, cache_write, "model call");
        status.count(usage);
        self.share(status);
    }

    /// Counts a model call of a subagent, whose model has this price.
    pub(super) fn count_call_at(
        &self,
        usage: Usage,
        price: Option<Price>,
        status: &mut StatusReporter,
    ) {
        let (input, output) = (usage.input_tokens, usage.output_tokens);
        tracing::info!(input, output, "model call of a subagent");
        status.count_at(usage, price);
        self.share(status);
    }

    pub(super) fn count_turn(
        &mut self,
        outcome: Outcome,
        rounds: u32,
        status: &mut StatusReporter,
    ) {
        status.count_turn();
        self.share(status);
        let used = status.used();
        let turn = used.since(&std::mem::replace(&mut self.before_turn, used));
        let (input, output) = (turn.input_tokens, turn.output_tokens);
        let (cached, cost) = (turn.cache_read_tokens, turn.cost.map(f64::from));
        tracing::info!(outcome = outcome.word(), rounds, input, output, cached, cost, "turn ended");
    }

    /// Writes the member's usage for the agents that share a budget with it, if there is a shared budget.
    fn share(&self, status: &StatusReporter) {
        if self.budget.is_shared() {
            status.share();
        }
    }
}

/// Returns the usage of the team: of this agent up to now, of the others as they last wrote it.
fn together(dir: &TeamDir, name: &AgentName, used: &UsageCount) -> UsageCount {
    // An unreadable roster does not stop an agent: the next writer repairs it.
    let mut roster = usage::roster_of_now(dir).unwrap_or_default();
    if name.is_lead() {
        if let Some(lead) = roster.lead.as_mut() {
            lead.usage = *used;
        }
    } else if let Some(member) = roster.member_mut(name.as_str()) {
        member.usage = *used;
    }
    roster.used()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Fsync, roster};
    use crate::wire::roster::Lead;

    fn tokens(input_tokens: u64) -> UsageCount {
        UsageCount { input_tokens, ..UsageCount::default() }
    }

    #[test]
    fn the_own_budget_and_that_of_the_team_both_count() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let alice = AgentName::member("alice").unwrap();
        roster::update(&dir, Fsync::Never, |roster| {
            roster.lead = Some(Lead { usage: tokens(600), ..Lead::default() }.into());
            roster.enter("alice", 1.0).usage = tokens(1);
        })
        .unwrap();
        let most = |tokens| Budget { tokens: Some(tokens), ..Budget::default() };
        let budgets = Budgets { team: most(1000), member: most(500) };
        let budget = AgentBudget::of(budgets, None, &alice);
        let ask = |budget: &AgentBudget, name: &AgentName, used| match budget.may_ask(
            &dir,
            name,
            &tokens(used),
        ) {
            BudgetVerdict::Fine => "fine".into(),
            BudgetVerdict::Nearly(limit) => format!("nearly {limit}"),
            BudgetVerdict::Spent(limit) => format!("spent {limit}"),
        };
        let lead = AgentName::lead();
        let alone = AgentBudget::of(Budgets { team: Budget::default(), ..budgets }, None, &alice);
        let of_lead = AgentBudget::of(budgets, None, &lead);
        // The budget of a run counts from its start.
        let run = RunBudget { tokens: 100, before: 901 };
        let of_run = AgentBudget::of(Budgets::default(), Some(run), &lead);
        for (budget, name, used, verdict) in [
            (&budget, &alice, 399, "fine"),
            (&budget, &alice, 400, "spent 1000 of 1000 tokens of the team's budget"),
            (&budget, &alice, 500, "spent 500 of 500 tokens of this teammate's budget"),
            (&alone, &alice, 400, "nearly "),
            (&alone, &alice, 401, "fine"),
            (&of_lead, &lead, 900, "nearly "),
            (&of_lead, &lead, 901, "fine"),
            (&of_lead, &lead, 999, "spent "),
            (&of_run, &lead, 979, "fine"),
            (&of_run, &lead, 980, "nearly 80 of 100"),
            (&of_run, &lead, 981, "fine"),
            (&of_run, &lead, 1000, "spent 100 of 100"),
        ] {
            let said = ask(budget, name, used);
            assert!(said.starts_with(verdict), "{name}, {used}: {said}");
        }
        assert!(!of_lead.warnings.standing.take(), "it was said");
    }
}
