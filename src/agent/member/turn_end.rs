//! The end of a member's turn: it is counted, recorded for undo, saved and reported.

use super::{Ending, Member};
use crate::agent::saving::save;
use crate::os::failpoint::hit;
use crate::store::asynchronous::offload;
use crate::wire::message::Outcome;
use crate::wire::transcript::TurnReport;
use std::sync::Arc;

impl Member {
    /// Syncs the recorded end of a turn, counts the turn, and sends its report.
    pub(super) async fn end_turn(
        &mut self,
        outcome: Outcome,
        rounds: u32,
        report: Option<TurnReport>,
    ) -> Result<(), Ending> {
        self.conversation.journal.sync().await.map_err(|why| self.host.ending(why))?;
        hit("turn.ended");
        self.save_work().await;
        self.budget.count_turn(outcome, rounds, &mut self.host.reporter);
        if let Some(report) = report {
            self.host.send_report(outcome, report).await;
            hit("turn.reported");
        }
        Ok(())
    }

    /// Ends the turn in the journal of the agent's changes. A failure costs only what it would have recorded.
    pub(super) async fn end_turn_for_undo(&self, is_cut_off: bool) {
        let recorder = Arc::clone(self.conversation.tools.recorder());
        if let Err(why) = offload(move || recorder.end_turn(is_cut_off)).await {
            tracing::warn!(%why, "the end of a turn was not recorded for undo");
        }
    }

    /// Saves the work in the clone before the turn is reported. The lead is told once that this fails.
    async fn save_work(&mut self) {
        match save(self.work.clone()).await {
            None => {}
            Some(Ok(saved)) => {
                self.is_unsaved_told = false;
                tracing::info!(snapshot = saved.snapshot, "the work is saved");
            }
            Some(Err(why)) => {
                tracing::warn!(%why, "the work is not saved");
                if !std::mem::replace(&mut self.is_unsaved_told, true) {
                    let me = &self.context.me.name;
                    self.host.tell_lead(format!("{me}: {why}")).await;
                }
            }
        }
    }
}
