//! The models of an agent: the first one, and those that take its place while it is overloaded or gone. Pure: the time is an
//! argument.
//!
//! A call tries each model at most once, from the current one on and around. After a failure the first model rests for a
//! while, which doubles with each further failure up to an hour; the next call after that tries it again.

use super::conversation::{UsableModel, WorkResult};
use crate::llm::ModelError;
use crate::wire::chat::Usage;
use crate::wire::limits::LONGEST_FALLBACK_PAUSE;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A change of the model, with its reason as a text for the user.
#[derive(Debug)]
pub(crate) struct ModelChange {
    pub(crate) model: UsableModel,
    pub(crate) why: String,
}

/// The models of an agent: its own, and those that go on if it fails, in their order.
#[derive(Debug, Clone)]
pub(crate) struct AgentModels {
    pub(crate) own: UsableModel,
    pub(crate) fallbacks: Vec<UsableModel>,
}

/// The models in their order, and the state of the one in use.
#[derive(Debug)]
pub(crate) struct ModelChain {
    models: Vec<UsableModel>,
    current: usize,
    /// The failures of the models that the call under way has tried.
    failures: Vec<String>,
    /// The rest of the first model, from its failure until it has answered again.
    rest: Option<Rest>,
    first_pause: Duration,
}

/// The consequence of a result for the models of an agent.
pub(super) enum ModelVerdict {
    /// The result stands. `is_back` says whether the first model has answered after a failure.
    Stands { result: WorkResult, is_back: bool },
    /// Another model repeats the call. The failed one has used these tokens.
    Repeat { change: ModelChange, usage: Usage },
    /// No model can make the call. The next one begins with `next`, unless that is the model in use.
    Failed { result: WorkResult, why: ModelError, next: Option<UsableModel> },
}

/// The models of a member, and what it needs to repeat a call with another one.
pub(super) struct MemberModels {
    pub(super) chain: ModelChain,
    /// The models that the person wants from the next model call on.
    pub(super) next: Rc<Cell<Option<AgentModels>>>,
    /// Whether the model was last asked for a summary, because a request was refused as too long.
    pub(super) is_compacting: bool,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    pause: Duration,
}

impl ModelChain {
    /// Creates a chain that begins with its first model, which rests for `first_pause` after its first failure.
    pub(crate) fn new(AgentModels { own, fallbacks }: AgentModels, first_pause: Duration) -> Self {
        let models = [own].into_iter().chain(fallbacks).collect();
        Self { models, current: 0, failures: Vec::new(), rest: None, first_pause }
    }

    /// Takes other models from the next call on.
    pub(crate) fn replace(&mut self, models: AgentModels) {
        *self = Self::new(models, self.first_pause);
    }

    /// Returns to the first model before a call, if its rest is over.
    pub(crate) fn return_to_first(&mut self, now: Instant) -> Option<ModelChange> {
        self.failures.clear();
        if self.current == 0 || self.rest.is_some_and(|rest| now < rest.until) {
            return None;
        }
        self.current = 0;
        let model = self.models.first()?.clone();
        let why = format!("{} is tried again", model.provider.label());
        Some(ModelChange { model, why })
    }

    /// Notes that the current model has failed. Returns the next one that this call has not tried, or the error of the call,
    /// which names all that were tried.
    pub(crate) fn failed(
        &mut self,
        why: ModelError,
        now: Instant,
    ) -> Result<ModelChange, ModelError> {
        let Some(failed) = self.models.get(self.current) else { return Err(why) };
        let label = failed.provider.label();
        if !why.is_of_the_model() || self.models.len() == 1 {
            return Err(self.ended(why));
        }
        if self.current == 0 {
            let longer = |rest: Rest| rest.pause.saturating_mul(2).min(LONGEST_FALLBACK_PAUSE);
            let pause = self.rest.map_or(self.first_pause, longer);
            self.rest = Some(Rest { until: now + pause, pause });
        }
        let next = (self.current + 1) % self.models.len();
        if self.failures.len() + 1 == self.models.len() {
            // All are down: the next call begins with the first one.
            let error = self.ended(why);
            self.current = 0;
            return Err(error);
        }
        self.failures.push(format!("{label}: {why}"));
        self.current = next;
        let Some(model) = self.models.get(next).cloned() else { return Err(why) };
        let text = format!("{label} fails, {} goes on: {why}", model.provider.label());
        Ok(ModelChange { model, why: text })
    }

    /// Judges the result of a piece of work.
    pub(super) fn judge(&mut self, result: WorkResult, now: Instant) -> ModelVerdict {
        let (why, usage) = match &result {
            WorkResult::Replied(Ok(_)) | WorkResult::Compacted(Ok(_)) => {
                return ModelVerdict::Stands { result, is_back: self.answered() };
            }
            WorkResult::Replied(Err(why)) => (why.clone(), Usage::default()),
            WorkResult::Compacted(Err(failed)) if !failed.can_go_on => {
                (failed.why.clone(), failed.usage)
            }
            WorkResult::Compacted(Err(_)) | WorkResult::ToolsEnded(_) => {
                return ModelVerdict::Stands { result, is_back: false };
            }
        };
        let used = self.label();
        match self.failed(why, now) {
            Ok(change) => ModelVerdict::Repeat { change, usage },
            Err(why) => {
                let next = self.models.get(self.current).filter(|_| self.label() != used).cloned();
                ModelVerdict::Failed { result: with_error(result, why.clone()), why, next }
            }
        }
    }

    /// Returns the label of the model in use.
    pub(super) fn label(&self) -> String {
        self.models.get(self.current).map(|model| model.provider.label()).unwrap_or_default()
    }

    /// Notes that the current model has answered. Returns whether it is the first one, after a failure.
    pub(crate) fn answered(&mut self) -> bool {
        self.failures.clear();
        self.current == 0 && self.rest.take().is_some()
    }

    /// Returns the error of a call that ends, with the failures of the models before.
    fn ended(&mut self, why: ModelError) -> ModelError {
        let before = std::mem::take(&mut self.failures);
        let label = self.models.get(self.current).map(|model| model.provider.label());
        match label {
            Some(label) if !before.is_empty() => {
                why.map(|why| format!("{label}: {why}; before, {}", before.join("; ")))
            }
            Some(_) | None => why,
        }
    }
}

/// Returns the result of failed work with another error.
fn with_error(result: WorkResult, error: ModelError) -> WorkResult {
    match result {
        WorkResult::Replied(_) => WorkResult::Replied(Err(error)),
        WorkResult::Compacted(Err(failed)) => WorkResult::Compacted(Err(failed.with_reason(error))),
        other @ (WorkResult::Compacted(Ok(_)) | WorkResult::ToolsEnded(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{Provider, Sink, TurnFuture};
    use crate::wire::chat::Request;
    use crate::wire::model_facts::ModelFacts;

    struct Named(&'static str);

    impl Provider for Named {
        fn label(&self) -> String {
            self.0.into()
        }

        fn turn<'a>(&'a self, _request: &'a Request, _sink: Sink<'a>) -> TurnFuture<'a> {
            Box::pin(async { Err(ModelError::Script("it is never called".into())) })
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn chain(names: &[&'static str]) -> ModelChain {
        let model =
            |name| UsableModel { provider: Rc::new(Named(name)), facts: ModelFacts::default() };
        let (own, others) = names.split_first().unwrap();
        let fallbacks = others.iter().map(|name| model(name)).collect();
        ModelChain::new(AgentModels { own: model(own), fallbacks }, 10 * MINUTE)
    }

    fn busy(text: &str) -> ModelError {
        ModelError::Unavailable(text.into())
    }

    fn label(switch: &ModelChange) -> String {
        switch.model.provider.label()
    }

    #[test]
    fn the_next_model_goes_on_and_the_first_is_tried_again_after_its_rest() {
        let (mut chain, start) = (chain(&["p/a", "p/b"]), Instant::now());
        assert!(chain.return_to_first(start).is_none());
        let switch = chain.failed(busy("529"), start).unwrap();
        assert_eq!(label(&switch), "p/b");
        assert!(switch.why.contains("p/a fails, p/b goes on") && switch.why.contains("529"));
        assert!(!chain.answered());
        assert!(chain.return_to_first(start + 9 * MINUTE).is_none());
        assert_eq!(label(&chain.return_to_first(start + 10 * MINUTE).unwrap()), "p/a");
        // It fails again: the rest doubles, up to an hour.
        let mut now = start + 10 * MINUTE;
        for minutes in [20, 40, 60, 60] {
            assert_eq!(label(&chain.failed(busy("529"), now).unwrap()), "p/b");
            assert!(!chain.answered());
            assert!(chain.return_to_first(now + (minutes - 1) * MINUTE).is_none());
            now += minutes * MINUTE;
            assert_eq!(label(&chain.return_to_first(now).unwrap()), "p/a");
        }
        assert!(chain.answered(), "the first one is back");
        assert!(!chain.answered(), "this is told once");
        chain.failed(busy("529"), now).unwrap();
        assert!(chain.return_to_first(now + 10 * MINUTE).is_some(), "the rest is short again");
    }

    #[test]
    fn a_call_tries_each_model_once_and_its_error_names_all() {
        let (mut chain, now) = (chain(&["p/a", "p/b", "p/c"]), Instant::now());
        assert_eq!(label(&chain.failed(busy("one"), now).unwrap()), "p/b");
        assert!(!chain.answered());
        assert!(chain.return_to_first(now).is_none());
        // The next call begins with the second one, and goes around.
        assert_eq!(label(&chain.failed(busy("two"), now).unwrap()), "p/c");
        assert_eq!(label(&chain.failed(ModelError::NoModel("three".into()), now).unwrap()), "p/a");
        let error = chain.failed(busy("four"), now).unwrap_err();
        assert!(matches!(error, ModelError::Unavailable(_)));
        let text = error.to_string();
        for part in ["p/a: four", "p/b: ", "two", "p/c: ", "three"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(chain.return_to_first(now).is_none(), "the first one is next");
        assert_eq!(label(&chain.failed(busy("five"), now).unwrap()), "p/b");
    }

    #[test]
    fn an_error_that_is_not_of_the_model_ends_the_call() {
        let (mut two, now) = (chain(&["p/a", "p/b"]), Instant::now());
        for error in [
            ModelError::Credentials("401".into()),
            ModelError::ContextFull("long".into()),
            ModelError::Rejected("400".into()),
            ModelError::Script("s".into()),
        ] {
            assert_eq!(two.failed(error.clone(), now).unwrap_err(), error);
        }
        two.failed(ModelError::SpendCap("cap".into()), now).unwrap();
        let error = two.failed(ModelError::Credentials("401".into()), now).unwrap_err();
        assert!(matches!(&error, ModelError::Credentials(text) if text.contains("cap")), "{error}");
        let alone = chain(&["p/a"]).failed(busy("529"), now).unwrap_err();
        assert_eq!(alone, busy("529"));
    }
}
