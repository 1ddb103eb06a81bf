//! The authority's answers to the hosts that ask for the places of names.

use super::question::{NameAnswer, NameAnswers, StepFailure, WantedName};
use super::waiting::WaitingQuestion;
use super::{AT_ONCE, NameClaims};
use crate::carrier::Carrier;
use agent_team::relay::{NameStep, RosterMirror};
use agent_team::wire::AgentName;
use agent_team::wire::carried::HostName;

/// A name that a host may have, with the step for it, if one is needed; else the reason for which it is refused.
type Judgement = Result<(AgentName, Option<NameStep>), String>;

impl NameClaims {
    /// Answers some of the hosts that wait; returns whether a name was placed. What is placed is on disk before.
    pub(crate) async fn answer_some(&mut self, carrier: &Carrier, mirror: &RosterMirror) -> bool {
        let questions = self.waiting.take_some();
        let wanted: Vec<_> = questions.iter().flat_map(WaitingQuestion::wanted).collect();
        let mut outcomes = Vec::with_capacity(wanted.len());
        let mut silence: Option<String> = None;
        for some in wanted.chunks(AT_ONCE) {
            let judged = some.iter().map(|(by, wanted)| self.judge(by, wanted, mirror));
            let judged: Vec<_> = judged.collect();
            let steps = judged.iter().map(|judged| judged.as_ref().ok()?.1.clone());
            let taken = match &silence {
                None => self.take_all(steps, carrier).await,
                // Nor would these be answered.
                Some(why) => steps.map(|step| unanswered(step.as_ref(), why)).collect(),
            };
            let no_answer = taken.iter().find_map(|taken| match taken {
                Err(StepFailure::Unanswered(why)) => Some(why.clone()),
                Ok(()) | Err(StepFailure::OtherWasFaster | StepFailure::Refused(_)) => None,
            });
            silence = silence.or(no_answer);
            outcomes.extend(judged.into_iter().zip(taken));
        }
        self.record().await;
        let is_placed = |(judged, taken): &(Judgement, Result<(), StepFailure>)| {
            taken.is_ok() && judged.as_ref().is_ok_and(|(_, step)| step.is_some())
        };
        let has_placed = outcomes.iter().any(is_placed);
        let mut outcomes = outcomes.into_iter();
        for WaitingQuestion { names, reply, .. } in questions {
            let answers = outcomes.by_ref().take(names.len());
            let answers = answers.map(|(judged, taken)| self.answer(judged, taken)).collect();
            if let Ok(answers) = serde_json::to_vec(&NameAnswers { answers }) {
                drop(reply.answer(answers.into()).await);
            }
        }
        has_placed
    }

    fn judge(&self, by: &HostName, wanted: &WantedName, mirror: &RosterMirror) -> Judgement {
        let WantedName { name, placement } = wanted;
        if !self.is_authority() {
            return Err("this host is not the authority".to_owned());
        }
        let name = AgentName::mailbox(name).map_err(|why| why.to_string())?;
        let step = self.places.claim((&name, placement.clone()), by, mirror)?;
        Ok((name, step))
    }

    fn answer(&self, judged: Judgement, taken: Result<(), StepFailure>) -> NameAnswer {
        match judged {
            Err(why) => NameAnswer::Refused { why },
            Ok((name, _)) => match (taken, self.places.place_of(&name)) {
                (Ok(()), Some((placement, revision))) => NameAnswer::Placed { placement, revision },
                (Ok(()), None) => NameAnswer::Later { why: "it is not stored".into() },
                (Err(why), _) => NameAnswer::Later { why: why.to_string() },
            },
        }
    }
}

/// Returns the outcome of a step for which there is no answer; one that is not needed has succeeded.
fn unanswered(step: Option<&NameStep>, why: &str) -> Result<(), StepFailure> {
    step.map_or(Ok(()), |_| Err(StepFailure::Unanswered(why.to_owned())))
}
