//! What a member may still use: checked before each model call, the only place where a budget ends work.
//!
//! A lead has no budget of its own but the team's. The warning that little is left is given once, by the
//! lead before it calls its model or by its program, which watches all members.

use super::member_status::MemberStatus;
use crate::protocol::budget::{BudgetLimit, BudgetVerdict, LimitOwner, judge};
use crate::store::{TeamDir, usage};
use crate::wire::AgentName;
use crate::wire::budget::{Budget, Budgets, RunBudget};
use crate::wire::chat::Usage;
use crate::wire::message::Outcome;
use crate::wire::roster::UsageCount;
use std::cell::Cell;
use std::rc::Rc;

/// A member's budgets.
#[derive(Debug)]
pub(crate) struct AgentBudget {
    own: Budget,
    team: Budget,
    run: Option<RunBudget>,
    role: Role,
    warnings: Warnings,
}

/// Whether an agent gives the warnings of the shared budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Lead,
    Teammate,
}

/// The warnings that little is left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    /// For a teammate that of its own budget, for the lead that of the team's.
    pub(crate) standing: Once,
    /// That of the budget of this run.
    pub(crate) run: Once,
}

/// A warning that is given once, by one of those that share this value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Once(Rc<Cell<bool>>);

impl Once {
    /// Whether the warning is still to be given; from now on it is not.
    pub(crate) fn take(&self) -> bool {
        !self.0.replace(true)
    }
}

impl AgentBudget {
    /// Selects the budgets that concern this agent.
    pub(crate) fn of(budgets: Budgets, run: Option<RunBudget>, name: &AgentName) -> Self {
        let (role, own) = if name.is_lead() {
            (Role::Lead, Budget::default())
        } else {
            (Role::Teammate, budgets.member)
        };
        Self { own, team: budgets.team, run, role, warnings: Warnings::default() }
    }

    /// Shares the warnings with another part of the program that gives them.
    pub(crate) fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Whether this agent's usage counts in the budget of others, and theirs in its own.
    pub(super) fn is_shared(&self) -> bool {
        self.team != Budget::default() || self.run.is_some()
    }

    /// Whether an agent that has used so much may call its model. A warning is given once.
    pub(super) fn may_ask(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        used: &UsageCount,
    ) -> BudgetVerdict {
        let own = judge(LimitOwner::Member, &self.own, used);
        let all = self.is_shared().then(|| together(dir, name, used));
        let team = all.map_or(BudgetVerdict::Fine, |all| judge(LimitOwner::Team, &self.team, &all));
        let of_run = |(all, run): (UsageCount, RunBudget)| {
            judge(LimitOwner::Run, &run.budget(), &run.part_of(&all))
        };
        let run = all.zip(self.run).map_or(BudgetVerdict::Fine, of_run);
        let all = [own, team, run].into_iter();
        if let Some(spent) = all.clone().find(|verdict| matches!(verdict, BudgetVerdict::Spent(_)))
        {
            return spent;
        }
        let Warnings { standing, run: of_run } = &self.warnings;
        let told = match self.role {
            Role::Teammate => vec![(own, standing)],
            Role::Lead => vec![(team, standing), (run, of_run)],
        };
        let is_new = |(verdict, warning): &(BudgetVerdict, &Once)| {
            matches!(verdict, BudgetVerdict::Nearly(_)) && warning.take()
        };
        told.into_iter().find(is_new).map_or(BudgetVerdict::Fine, |(verdict, _)| verdict)
    }
}

/// A member's budget at work.
pub(super) struct BudgetKeeper {
    budget: AgentBudget,
    dir: TeamDir,
    me: AgentName,
    /// What had been used when the last turn ended.
    before_turn: UsageCount,
}

impl BudgetKeeper {
    /// Puts a budget to work; `used` is what the member has used until now.
    pub(super) fn new(budget: AgentBudget, dir: TeamDir, me: AgentName, used: UsageCount) -> Self {
        Self { budget, dir, me, before_turn: used }
    }

    /// Whether the model may be called now.
    pub(super) fn check(&self, status: &MemberStatus) -> BudgetVerdict {
        self.budget.may_ask(&self.dir, &self.me, &status.used())
    }

    /// The warning that little of a budget is left.
    pub(super) fn warning(&self, limit: &BudgetLimit) -> String {
        let stopped = if self.me.is_lead() { "the team" } else { self.me.as_str() };
        format!("{limit} are used; at the end of it {stopped} is stopped")
    }

    /// Counts a model call.
    pub(super) fn count_call(&self, usage: Usage, status: &mut MemberStatus) {
        log_call(&usage);
        status.count(usage);
        self.share(status);
    }

    /// Counts a turn.
    pub(super) fn count_turn(&mut self, outcome: Outcome, rounds: u32, status: &mut MemberStatus) {
        status.count_turn();
        self.share(status);
        let used = status.used();
        let turn = used.since(&std::mem::replace(&mut self.before_turn, used));
        let (input, output) = (turn.input_tokens, turn.output_tokens);
        let (cached, cost) = (turn.cache_read_tokens, turn.cost.map(f64::from));
        tracing::info!(?outcome, rounds, input, output, cached, cost, "turn ended");
    }

    /// Writes the member's usage where those who share the budget read it.
    fn share(&self, status: &MemberStatus) {
        if self.budget.is_shared() {
            status.share_usage();
        }
    }
}

/// Logs the tokens of one call.
fn log_call(usage: &Usage) {
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let (cache_read, cache_write) =
        (usage.cache_read_input_tokens, usage.cache_creation_input_tokens);
    tracing::info!(input, output, cache_read, cache_write, "model call");
}

/// What the team has used: of the others as far as they have shared it, of this agent until now.
fn together(dir: &TeamDir, name: &AgentName, used: &UsageCount) -> UsageCount {
    // A roster that cannot be read stops no agent: the next writer repairs it.
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
        let ask = |used| match budget.may_ask(&dir, &alice, &tokens(used)) {
            BudgetVerdict::Fine => "fine".into(),
            BudgetVerdict::Nearly(limit) => format!("nearly {limit}"),
            BudgetVerdict::Spent(limit) => format!("spent {limit}"),
        };
        assert_eq!(ask(399), "fine");
        assert_eq!(ask(400), "spent 1000 of 1000 tokens of the budget of the team");
        assert_eq!(ask(500), "spent 500 of 500 tokens of the budget of this teammate");
        let alone = AgentBudget::of(Budgets { team: Budget::default(), ..budgets }, None, &alice);
        assert!(matches!(alone.may_ask(&dir, &alice, &tokens(400)), BudgetVerdict::Nearly(_)));
        assert_eq!(alone.may_ask(&dir, &alice, &tokens(401)), BudgetVerdict::Fine, "it was said");
        let lead = AgentName::lead();
        let budget = AgentBudget::of(budgets, None, &lead);
        assert!(matches!(budget.may_ask(&dir, &lead, &tokens(900)), BudgetVerdict::Nearly(_)));
        assert_eq!(budget.may_ask(&dir, &lead, &tokens(901)), BudgetVerdict::Fine);
        assert!(!budget.warnings().standing.take(), "it was said");
        assert!(matches!(budget.may_ask(&dir, &lead, &tokens(999)), BudgetVerdict::Spent(_)));

        // The budget of a run counts from its start.
        let run = RunBudget { tokens: 100, before: 901 };
        let budget = AgentBudget::of(Budgets::default(), Some(run), &lead);
        for (used, verdict) in
            [(979, "fine"), (980, "nearly 80 of 100"), (981, "fine"), (1000, "spent 100 of 100")]
        {
            let said = match budget.may_ask(&dir, &lead, &tokens(used)) {
                BudgetVerdict::Fine => "fine".into(),
                BudgetVerdict::Nearly(limit) => format!("nearly {limit}"),
                BudgetVerdict::Spent(limit) => format!("spent {limit}"),
            };
            assert!(said.starts_with(verdict), "{used}: {said}");
        }
    }
}
