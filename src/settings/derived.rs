//! The meaning of settings together: permissions, sandbox, models, budgets and intervals of agents.

use super::environment::Environment;
use super::model::ProviderCredentials;
use super::models::KnownModels;
use super::sandbox::AskInside;
use super::table::{Rules, Settings};
use crate::wire::budget::{Budget, Budgets};
use crate::wire::chat::Thinking;
use crate::wire::limits;
use crate::wire::permission::{Permissions, RuleLists};
use crate::wire::price_list::PriceList;
use crate::wire::role::MODEL_ALIASES;
use crate::wire::sandbox::{Sandbox, SandboxQuestions};
use std::collections::BTreeMap;
use std::time::Duration;

/// The shortest and the longest time between two heartbeats of a busy agent.
const HEARTBEAT_INTERVALS: [Duration; 2] = [Duration::from_millis(100), limits::HEARTBEAT_PERIOD];

/// The number of heartbeats in the time after which an agent counts as hung.
const HEARTBEATS_UNTIL_HUNG: u32 = 12;

impl Settings {
    /// Returns the permissions with which an agent process starts.
    pub(crate) fn permissions(&self) -> Permissions {
        Permissions {
            mode: self.permissions_mode.value,
            rules: RuleLists {
                allow: self.permissions_allow.value.clone(),
                ask: self.permissions_ask.value.clone(),
                deny: self.permissions_deny.value.clone(),
            },
            timeout: self.permissions_timeout.value,
            plan_approval: self.permissions_plan_approval.value,
            granted: Vec::new(),
        }
    }

    /// Returns the sandbox that is asked for, without a look at the machine.
    pub(crate) fn sandbox(&self) -> Sandbox {
        Sandbox {
            level: self.sandbox_level.value,
            network: self.sandbox_network.value,
            hosts: self.sandbox_hosts.value.0.clone(),
            write: self.sandbox_write.value.all(),
            hide: self.sandbox_hide.value.all(),
            questions: match self.sandbox_ask_inside.value {
                AskInside(true) => SandboxQuestions::ByMode,
                AskInside(false) => SandboxQuestions::Outside,
            },
            ..Sandbox::default()
        }
    }

    /// Whether a person has chosen the level of the sandbox; otherwise it is the default.
    pub(crate) fn is_sandbox_level_chosen(&self) -> bool {
        !self.sandbox_level.is_default()
    }

    /// Whether a person has named paths that commands may change or not read.
    pub(crate) fn are_sandbox_paths_chosen(&self) -> bool {
        !self.sandbox_write.is_default() || !self.sandbox_hide.is_default()
    }

    /// Returns the models that the aliases in role files mean.
    pub(crate) fn model_aliases(&self) -> BTreeMap<&'static str, String> {
        let [sonnet, opus, haiku] = MODEL_ALIASES;
        let Self { model_aliases_sonnet, model_aliases_opus, model_aliases_haiku, .. } = self;
        let rows = [
            (sonnet, model_aliases_sonnet),
            (opus, model_aliases_opus),
            (haiku, model_aliases_haiku),
        ];
        rows.into_iter().filter_map(|(word, model)| Some((word, model.value.clone()?))).collect()
    }

    /// Returns the prices of models with the credentials of this environment.
    pub(crate) fn prices_in(&self, environment: &Environment) -> PriceList {
        KnownModels::of(self, &ProviderCredentials::of(self, environment)).prices()
    }
}

impl Rules {
    /// Returns the thinking that requests ask for.
    pub(crate) fn thinking(&self) -> Thinking {
        Thinking { effort: self.effort, budget_tokens: self.thinking_tokens }
    }

    /// Returns the idle time after which an agent of another vendor is ended; `None` for never.
    pub(crate) fn agent_sleeps_after(&self) -> Option<Duration> {
        let time = Duration::from_secs(self.agents_sleep_after);
        (!time.is_zero()).then_some(time)
    }

    /// Returns the time without a sign after which an agent of another vendor is started again; `None` for never.
    pub(crate) fn agent_hung_after(&self) -> Option<Duration> {
        let time = Duration::from_secs(self.agents_hung_after);
        (!time.is_zero()).then_some(time)
    }

    pub(crate) fn budgets(&self) -> Budgets {
        Budgets {
            team: Budget {
                tokens: self.budget_team_tokens,
                money: self.budget_team_money,
                turns: self.budget_team_turns,
                minutes: self.budget_team_minutes,
            },
            member: Budget {
                tokens: self.budget_member_tokens,
                money: self.budget_member_money,
                turns: self.budget_member_turns,
                minutes: self.budget_member_minutes,
            },
        }
    }

    /// Returns the time between two heartbeats of a busy agent: short enough that a few may be missed.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        let [shortest, longest] = HEARTBEAT_INTERVALS;
        let interval = Duration::from_secs(self.hung_after) / HEARTBEATS_UNTIL_HUNG;
        if self.hung_after == 0 { longest } else { interval.clamp(shortest, longest) }
    }
}
