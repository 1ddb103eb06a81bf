//! Checks whether a run or its team has used up its budget. The counts are read from the roster.

use super::ending::EndReason;
use crate::agent::budget::{OneTimeFlag, Warnings};
use crate::agent::progress::Progress;
use crate::protocol::budget::{BudgetLimit, BudgetVerdict, LimitOwner, judge, limits};
use crate::store::{TeamDir, roster};
use crate::wire::{budget::Budget, roster::UsageCount};
use std::time::Instant;

pub(super) struct BudgetWatch {
    team: TeamDir,
    /// Each budget with its owner and its warning, which is given once, by this watch or by the lead's agent.
    budgets: [(LimitOwner, Budget, OneTimeFlag); 2],
    used_before: UsageCount,
    began: Instant,
    pub(super) turns: u64,
    /// Whether a turn beyond the limit has begun. It is interrupted, and neither counts nor has a result.
    pub(super) is_cut_off: bool,
}

impl BudgetWatch {
    /// Watches the budgets of a run and of the team, from now on.
    pub(super) fn new(
        team: TeamDir,
        (run, of_team): (Budget, Budget),
        warnings: Warnings,
        used_before: UsageCount,
    ) -> Self {
        Self {
            team,
            budgets: [
                (LimitOwner::Run, run, warnings.run),
                (LimitOwner::Team, of_team, warnings.standing),
            ],
            used_before,
            began: Instant::now(),
            turns: 0,
            is_cut_off: false,
        }
    }

    /// Counts the lead's turns. Returns the end of the run if a turn beyond the limit begins, or if a budget is used
    /// up at the end of a turn.
    pub(super) fn count(&mut self, progress: &Progress) -> Option<EndReason> {
        if self.is_cut_off {
            return None;
        }
        if let Progress::TurnEnded { .. } = progress {
            self.turns = self.turns.saturating_add(1);
            return self.spent();
        }
        let Progress::TurnStarted { .. } = progress else { return None };
        let used = UsageCount { turns: self.turns, ..UsageCount::default() };
        let [(owner, run, _), _] = &self.budgets;
        let end = end_of(*owner, &Budget { turns: run.turns, ..Budget::default() }, &used);
        self.is_cut_off = end.is_some();
        end
    }

    /// Returns the end of the run if a budget is used up. [`Self::count`] applies the limit on turns.
    pub(super) fn spent(&self) -> Option<EndReason> {
        self.limited().find_map(|(owner, budget, _)| {
            end_of(*owner, &Budget { turns: None, ..*budget }, &self.used_by(*owner))
        })
    }

    /// Like [`Self::spent`], and applies the limits on turns, too: for a lead whose model another program runs.
    pub(super) fn used_up(&self) -> Option<BudgetLimit> {
        self.limited().find_map(|(owner, budget, _)| {
            let verdict = judge(*owner, budget, &self.used_by(*owner));
            let BudgetVerdict::Spent(limit) = verdict else { return None };
            Some(limit)
        })
    }

    /// Returns a warning if little of a budget is left, once for each budget.
    pub(super) fn warning(&self) -> Option<String> {
        self.limited().find_map(|(owner, budget, warning)| {
            let verdict = judge(*owner, budget, &self.used_by(*owner));
            let BudgetVerdict::Nearly(limit) = verdict else { return None };
            let text = || format!("{limit} are used; at the limit the team is stopped");
            warning.take().then(text)
        })
    }

    /// Returns the budgets with a limit. Without a limit the roster is not read.
    fn limited(&self) -> impl Iterator<Item = &(LimitOwner, Budget, OneTimeFlag)> {
        self.budgets.iter().filter(|(_, budget, _)| *budget != Budget::default())
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let of = |(owner, budget, _): &(_, _, _)| limits(*owner, budget, &self.used_by(*owner));
        self.budgets.iter().flat_map(of).map(|limit| format!("{limit} are used")).collect()
    }

    /// Returns the usage of all agents in this run; the turns are the lead's.
    pub(super) fn used(&self) -> UsageCount {
        self.used_by(LimitOwner::Run)
    }

    /// Returns the usage of a budget's owner; the team's usage counts from the start of its lead's conversation. An
    /// unreadable roster counts as unchanged since the start: every agent also checks its budgets itself.
    fn used_by(&self, owner: LimitOwner) -> UsageCount {
        let total = roster::read(&self.team).map_or(self.used_before, |roster| roster.used());
        let seconds = self.began.elapsed().as_secs();
        if owner == LimitOwner::Run {
            return UsageCount { turns: self.turns, seconds, ..total.since(&self.used_before) };
        }
        UsageCount { seconds: self.used_before.seconds.saturating_add(seconds), ..total }
    }
}

fn end_of(owner: LimitOwner, budget: &Budget, used: &UsageCount) -> Option<EndReason> {
    let BudgetVerdict::Spent(limit) = judge(owner, budget, used) else { return None };
    Some(EndReason::Budget(limit))
}
