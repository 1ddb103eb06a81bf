//! The question of this host that is on its way to the authority, while the host goes on.

use super::question::{MOST_NAMES, Placed, StepFailure, ask, wanted};
use crate::carrier::Carrier;
use agent_team::relay::NameStep;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The pause after a question without an answer; it is doubled each time, up to the longest one. An authority that has many
/// hosts to answer is not helped by more questions.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The question.
pub(super) struct Asking {
    running: Option<JoinHandle<NamesAnswered>>,
    /// The time before which no other one is asked.
    not_before: Instant,
    pause: Duration,
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
        Self { running: None, not_before: Instant::now(), pause: PAUSE }
    }

    /// Asks for what these steps change, unless a question is on its way, or was not answered just now.
    pub(super) fn ask(&mut self, mut steps: Vec<NameStep>, carrier: &Carrier) {
        if steps.is_empty() || self.running.is_some() || Instant::now() < self.not_before {
            return;
        }
        let is_more = steps.len() > MOST_NAMES;
        steps.truncate(MOST_NAMES);
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
        (self.not_before, self.pause) = (Instant::now(), PAUSE);
    }

    /// Notes that the question is over.
    pub(super) fn ended(&mut self, is_answered: bool) {
        self.running = None;
        if is_answered {
            self.resume();
        } else {
            self.not_before = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }
}
