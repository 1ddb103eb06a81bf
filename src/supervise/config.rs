//! What a supervisor is configured with.

use crate::bus::Bus;
use crate::os::Clock;
use crate::os::program::TeammateProgram;
use crate::settings::Rules;
use crate::settings::model::Credentials;
use crate::tasks::Tasks;
use crate::tools::hooks::Hooks;
use crate::wire::money::Price;
use crate::wire::permission::Permissions;
use crate::wire::restart::RestartPolicy;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The team that a supervisor serves, and the settings of its teammates.
pub(crate) struct SupervisorConfig {
    /// Mail of the team.
    pub(crate) bus: Arc<Bus>,
    /// Task list of the team.
    pub(crate) tasks: Arc<Tasks>,
    /// Clock.
    pub(crate) clock: Rc<dyn Clock>,
    /// Program that teammates run.
    pub(crate) program: TeammateProgram,
    /// Teammates that may live at once. One run may spawn four times as many.
    pub(crate) max_teammates: usize,
    /// Rules that teammates take over.
    pub(crate) rules: Rules,
    /// Hooks of the lead and of its teammates.
    pub(crate) hooks: Hooks,
    /// Prices of models, by `provider/name`.
    pub(crate) prices: BTreeMap<String, Price>,
    /// Restarts of teammates.
    pub(crate) restart: RestartConfig,
    /// Time without a sign of life after which a teammate counts as hung; `None` for never.
    pub(crate) hung_after: Option<Duration>,
    /// Model of a teammate for which neither the spawn nor the role names one.
    pub(crate) model: String,
    /// Permissions of the lead, from which those of its teammates are derived.
    pub(crate) permissions: RefCell<Permissions>,
    /// Credentials for models.
    pub(crate) credentials: Credentials,
    /// Environment of teammates: an allow list.
    pub(crate) environment: Vec<(String, String)>,
    /// Run id that the lead's own commands carry in their environment.
    pub(crate) run_id: String,
    /// Generates incarnations.
    pub(crate) incarnation: Box<dyn Fn() -> String>,
}

/// How ended teammates are restarted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartConfig {
    /// Ends after which a teammate is restarted.
    pub(crate) policy: RestartPolicy,
    /// First pause.
    pub(crate) first_pause: Duration,
    /// Seed of the jitter.
    pub(crate) seed: u64,
}
