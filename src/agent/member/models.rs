//! The models of a member: the person changes them, and another one goes on while one is overloaded or gone.

use super::Member;
use crate::agent::conversation::{TurnEffect, UsableModel, WorkResult};
use crate::agent::event::{Ending, MachineEvent};
use crate::agent::model_chain::{ModelChange, ModelVerdict};
use crate::agent::progress::Progress;
use crate::wire::activity::Activity;
use crate::wire::chat::Usage;
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;

impl Member {
    /// Takes the models that the person wants, or returns to the member's own model when its rest is over.
    pub(super) async fn choose_model(&mut self) -> Result<(), Ending> {
        if let Some(models) = self.models.next.take() {
            let own = models.own.clone();
            self.models.chain.replace(models);
            return self.use_model(own).await;
        }
        let now = self.context.clock.monotonic();
        if let Some(ModelChange { model, why }) = self.models.chain.return_to_first(now) {
            tracing::info!(why, "the model of this agent");
            (self.context.show)(&Progress::Note(why));
            self.use_model(model).await?;
        }
        Ok(())
    }

    /// Handles the result of a piece of work: a call that another model can make is repeated with that one. Returns the
    /// event for the machine, if there is one.
    pub(super) async fn after_work(
        &mut self,
        result: WorkResult,
    ) -> Result<Option<MachineEvent>, Ending> {
        let now = self.context.clock.monotonic();
        match self.models.chain.judge(result, now) {
            ModelVerdict::Stands { result, is_back } => {
                if is_back {
                    let label = self.models.chain.label();
                    (self.context.show)(&Progress::Note(format!("{label} answers again")));
                }
                Ok(Some(MachineEvent::Work(result)))
            }
            ModelVerdict::Repeat { change, usage } => {
                if usage != Usage::default() {
                    self.budget.count_call(usage, &mut self.host.reporter);
                }
                self.go_on_with(change).await
            }
            ModelVerdict::Failed { result, why, next } => {
                if let Some(model) = next {
                    self.use_model(model).await?;
                }
                self.conversation.model_error = Some(why);
                Ok(Some(MachineEvent::Work(result)))
            }
        }
    }

    /// Goes on with another model: tells the person, and repeats the call. Returns the stop if a budget is used up.
    async fn go_on_with(
        &mut self,
        ModelChange { model, why }: ModelChange,
    ) -> Result<Option<MachineEvent>, Ending> {
        tracing::warn!(why, "another model goes on");
        self.host.reporter.count_switch();
        (self.context.show)(&Progress::Warning(why.clone()));
        if !self.context.me.name.is_lead() {
            // The lead sees it as it sees other delays, without a turn of its model.
            self.publish(Status::Working, Some(Activity::Retrying(why))).await;
        }
        self.use_model(model).await?;
        let effect =
            if self.models.is_compacting { TurnEffect::Compact } else { TurnEffect::CallModel };
        if effect == TurnEffect::CallModel
            && let Some(stop) = self.check_budget().await?
        {
            return Ok(Some(stop));
        }
        let performed = self.conversation.perform(effect, &mut self.host).await;
        performed.map(|()| None).map_err(|why| self.host.ending(why))
    }

    /// Uses a model from now on, and records this.
    async fn use_model(&mut self, model: UsableModel) -> Result<(), Ending> {
        let label = model.provider.label();
        self.host.reporter.set_price(model.facts.price);
        self.conversation.use_model(model);
        self.record(Entry::Model { model: label }).await
    }
}
