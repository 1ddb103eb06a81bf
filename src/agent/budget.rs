//! What an agent may still use: asked before each model call, the only place where a budget ends work.
//!
//! A lead has no budget of its own but the team's. That little of it is left is said by whoever sees it
//! first: the lead before it asks its model, or its program, which sees everybody all the time.

use super::compact::{self, CompactionReason};
use super::event::{Ending, Event, StopCause};
use super::progress::Progress;
use super::{Running, note_error};
use crate::protocol::budget::{BudgetLimit, BudgetVerdict, LimitOwner, judge};
use crate::store::{TeamDir, usage};
use crate::wire::AgentName;
use crate::wire::budget::{Budget, Budgets, RunBudget};
use crate::wire::chat::Usage;
use crate::wire::roster::UsageCount;
use crate::wire::transcript::Entry;
use std::cell::Cell;
use std::rc::Rc;

/// An agent's budgets.
#[derive(Debug)]
pub(crate) struct AgentBudget {
    own: Budget,
    team: Budget,
    run: Option<RunBudget>,
    role: Role,
    warnings: Warnings,
}

/// Who tells of the budgets that all share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Lead,
    Teammate,
}

/// The warnings that little is left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    /// Of a teammate's own budget; of the team's, for the lead.
    pub(crate) standing: Once,
    /// Of this run's.
    pub(crate) run: Once,
}

/// Something that is said once, by one of those who share this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Once(Rc<Cell<bool>>);

impl Once {
    /// Whether it is still to be said; from now on it is not.
    pub(crate) fn take(&self) -> bool {
        !self.0.replace(true)
    }
}

impl AgentBudget {
    /// The part of the budgets that concerns this agent.
    pub(crate) fn of(budgets: Budgets, run: Option<RunBudget>, name: &AgentName) -> Self {
        let (role, own) = if name.is_lead() {
            (Role::Lead, Budget::default())
        } else {
            (Role::Teammate, budgets.member)
        };
        Self { own, team: budgets.team, run, role, warnings: Warnings::default() }
    }

    /// For somebody who gives the same warnings.
    pub(crate) fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Whether others go by what this agent has used, and this one by theirs.
    pub(super) fn is_shared(&self) -> bool {
        self.team != Budget::default() || self.run.is_some()
    }

    /// Whether the model may be asked, by somebody who has used so much. A warning is given once.
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

impl Running {
    /// Counts a call of the model.
    pub(super) fn count(&mut self, usage: Usage) {
        log_call(&usage);
        self.agent.reporter.count(usage);
        self.share_count();
    }

    /// Tells the others what was used, where that concerns them.
    pub(super) fn share_count(&self) {
        if self.agent.budget.is_shared() {
            note_error(self.agent.reporter.share());
        }
    }

    /// Asks the model, as far as the budget and its context have room for that.
    pub(super) async fn ask_model(&mut self) -> Result<(), Ending> {
        let (dir, name) = (self.agent.bus.dir().clone(), self.agent.me.name.clone());
        let used = self.agent.reporter.used();
        match self.agent.budget.may_ask(&dir, &name, &used) {
            BudgetVerdict::Fine => {}
            BudgetVerdict::Nearly(limit) => self.warn(limit).await?,
            BudgetVerdict::Spent(limit) => {
                tracing::warn!(%limit, "the budget is used up");
                let _gone = self.events.send(Event::Stop(StopCause::Budget(limit)));
                return Ok(());
            }
        }
        let is_due = compact::is_due(&self.memory.borrow(), self.agent.context_tokens);
        if is_due {
            self.make_room(CompactionReason::NearlyFull);
        } else {
            self.call_model();
        }
        Ok(())
    }

    /// Says that little of a budget is left: to the model, to whoever watches, and to the lead.
    async fn warn(&mut self, limit: BudgetLimit) -> Result<(), Ending> {
        tracing::warn!(%limit, "the budget is nearly used up");
        let name = self.agent.me.name.clone();
        let who = if name.is_lead() { "the team" } else { name.as_str() };
        let content = format!("{limit} are used; at the end of it {who} is stopped");
        (self.agent.show)(&Progress::Warning(content.clone()));
        if !name.is_lead() {
            self.tell_lead(format!("{name}: {content}")).await;
        }
        self.record(Entry::Note { content }).await
    }
}

/// What one call has used, for the log.
fn log_call(usage: &Usage) {
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let (cache_read, cache_write) =
        (usage.cache_read_input_tokens, usage.cache_creation_input_tokens);
    tracing::info!(input, output, cache_read, cache_write, "model call");
}

/// What the team has used, as everybody has said after the last call, but for this agent, who knows better.
fn together(dir: &TeamDir, name: &AgentName, used: &UsageCount) -> UsageCount {
    // A roster that cannot be read stops nobody: it is repaired by the next writer.
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
    fn the_own_budget_and_the_teams_both_count() {
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

        // A run begins to count where it began.
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
