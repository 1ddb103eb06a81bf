//! The question of this host that is on its way to the authority, while the host goes on.

use super::question::{MOST_NAMES, Placed, StepFailure, ask, wanted};
use crate::carrier::Carrier;
use crate::retry_pause::RetryPause;
use agent_team::relay::NameStep;
use agent_team::wire::AgentName;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The first pause after a question without an answer.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The question.
pub(super) struct Asking {
    running: Option<JoinHandle<NamesAnswered>>,
    /// The last name that was asked for.
    last: Option<AgentName>,
    pause: RetryPause,
}

/// The answers to a question.
#[derive(Default)]
pub(crate) struct NamesAnswered {
    pub(super) steps: Vec<NameStep>,
    pub(super) taken: Vec<Result<Placed, StepFailure>>,
    /// Whether there were more names than one question may have.
    pub(super) is_more: bool,
}

impl Asking {
    pub(super) fn new() -> Self {
        Self { running: None, last: None, pause: RetryPause::new(PAUSE, LONGEST_PAUSE) }
    }

    /// Asks for what these steps change, unless a question is on its way, or was not answered just now.
    pub(super) fn ask(&mut self, mut steps: Vec<NameStep>, carrier: &Carrier) {
        if steps.is_empty() || self.running.is_some() || self.pause.lasts() {
            return;
        }
        let is_more = steps.len() > MOST_NAMES;
        if is_more {
            // Those that are refused again and again must not keep others out.
            let asked = steps.iter().position(|step| name_of(step) > self.last.as_ref());
            steps.rotate_left(asked.unwrap_or_default());
            steps.truncate(MOST_NAMES);
        }
        self.last = steps.last().and_then(name_of).cloned();
        let carrier = carrier.clone();
        self.running = Some(tokio::spawn(async move {
            let taken = ask(steps.iter().filter_map(wanted).collect(), &carrier).await;
            NamesAnswered { steps, taken, is_more }
        }));
    }

    /// Waits for the answers to the question that is on its way.
    pub(super) async fn answers(&mut self) -> NamesAnswered {
        match &mut self.running {
            Some(running) => running.await.unwrap_or_default(),
            None => std::future::pending().await,
        }
    }

    /// Notes that the authority is there: it is asked without a pause.
    pub(super) fn resume(&mut self) {
        self.pause.end();
    }

    /// Notes that the question is over.
    pub(super) fn ended(&mut self, is_answered: bool) {
        self.running = None;
        if is_answered {
            self.resume();
        } else {
            self.pause.begin();
        }
    }
}

/// Returns the name of a step that changes its place.
pub(super) fn name_of(step: &NameStep) -> Option<&AgentName> {
    match step {
        NameStep::Create(name, _) | NameStep::Replace(name, ..) => Some(name),
        NameStep::End(_) => None,
    }
}
