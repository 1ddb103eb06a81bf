//! Whether a run or its team has used up what it was given. The counts are read from the roster.

use super::ending::EndReason;
use super::request::RunLimits;
use crate::agent::budget::{Once, Warnings};
use crate::agent::progress::Progress;
use crate::protocol::budget::{BudgetVerdict, LimitOwner, judge, limits};
use crate::store::{TeamDir, roster};
use crate::wire::budget::Budget;
use crate::wire::roster::UsageCount;
use std::time::Instant;

/// The budgets of a run and of its team.
pub(super) struct BudgetWatch {
    team_dir: TeamDir,
    run: Account,
    team: Account,
    /// What all agents had used before this run.
    used_before: UsageCount,
    began: Instant,
    turns: u64,
}

/// A budget, and the warning that little of it is left.
struct Account {
    owner: LimitOwner,
    budget: Budget,
    warning: Once,
}

impl Account {
    /// Returns the end of the run when the budget is used up. Turns count only when one too many begins.
    fn spent(&self, used: &UsageCount) -> Option<EndReason> {
        let budget = Budget { turns: None, ..self.budget };
        end_of(judge(self.owner, &budget, used))
    }

    /// Returns the warning once.
    fn warning(&self, used: &UsageCount) -> Option<String> {
        match judge(self.owner, &self.budget, used) {
            BudgetVerdict::Nearly(limit) if self.warning.take() => {
                Some(format!("{limit} are used; at the end of it the team is stopped"))
            }
            BudgetVerdict::Fine | BudgetVerdict::Nearly(_) | BudgetVerdict::Spent(_) => None,
        }
    }
}

fn end_of(verdict: BudgetVerdict) -> Option<EndReason> {
    match verdict {
        BudgetVerdict::Spent(limit) => Some(EndReason::Budget(limit)),
        BudgetVerdict::Fine | BudgetVerdict::Nearly(_) => None,
    }
}

impl BudgetWatch {
    /// Starts to count. The warnings are shared with the lead's agent, so that each is given once.
    pub(super) fn new(
        team_dir: TeamDir,
        run_limits: RunLimits,
        team_budget: Budget,
        used_before: UsageCount,
        warnings: Warnings,
    ) -> Self {
        let RunLimits { max_tokens: tokens, max_turns: turns, .. } = run_limits;
        let run = Budget { tokens, turns, ..Budget::default() };
        let (of_run, of_team) = (warnings.run, warnings.standing);
        Self {
            team_dir,
            run: Account { owner: LimitOwner::Run, budget: run, warning: of_run },
            team: Account { owner: LimitOwner::Team, budget: team_budget, warning: of_team },
            used_before,
            began: Instant::now(),
            turns: 0,
        }
    }

    /// Counts the turns of the lead. Returns the end of the run when a turn too many begins, or when a
    /// budget is used up at the end of a turn.
    pub(super) fn count(&mut self, progress: &Progress) -> Option<EndReason> {
        if let Progress::TurnEnded { .. } = progress {
            self.turns = self.turns.saturating_add(1);
            return self.spent();
        }
        let begins = matches!(progress, Progress::TurnStarted { .. });
        if begins { self.turn_begins() } else { None }
    }

    /// Turns of the lead so far.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    fn turn_begins(&self) -> Option<EndReason> {
        let turns = Budget { turns: self.run.budget.turns, ..Budget::default() };
        let used = UsageCount { turns: self.turns, ..UsageCount::default() };
        end_of(judge(LimitOwner::Run, &turns, &used))
    }

    /// Returns the end of the run when a budget is used up.
    pub(super) fn spent(&self) -> Option<EndReason> {
        if !self.has_limits() {
            return None;
        }
        self.run.spent(&self.used()).or_else(|| self.team.spent(&self.used_by_team()))
    }

    /// Returns a warning once when little of a budget is left.
    pub(super) fn warning(&self) -> Option<String> {
        if !self.has_limits() {
            return None;
        }
        let (run, team) = (self.used(), self.used_by_team());
        self.run.warning(&run).or_else(|| self.team.warning(&team))
    }

    fn has_limits(&self) -> bool {
        [&self.run, &self.team].iter().any(|account| account.budget != Budget::default())
    }

    /// Describes each budget on a line.
    pub(super) fn lines(&self) -> Vec<String> {
        let run = limits(LimitOwner::Run, &self.run.budget, &self.used());
        let team = limits(LimitOwner::Team, &self.team.budget, &self.used_by_team());
        run.chain(team).map(|limit| format!("{limit} are used")).collect()
    }

    /// What all agents together have used in this run; the turns are the lead's.
    pub(super) fn used(&self) -> UsageCount {
        let seconds = self.began.elapsed().as_secs();
        UsageCount { turns: self.turns, seconds, ..self.total().since(&self.used_before) }
    }

    /// What the team has used since its lead's conversation began.
    fn used_by_team(&self) -> UsageCount {
        let seconds = self.used_before.seconds.saturating_add(self.began.elapsed().as_secs());
        UsageCount { seconds, ..self.total() }
    }

    /// An unreadable roster counts as unchanged: every agent also keeps to its budgets by itself.
    fn total(&self) -> UsageCount {
        roster::read(&self.team_dir).map_or(self.used_before, |roster| roster.used())
    }
}
