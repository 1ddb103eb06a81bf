//! Stops a member of another host: its host performs the whole shutdown ladder, by an order. A ladder goes on there if the
//! connection is lost meanwhile.

use super::host_orders::{OrderFailure, TRANSPORT_WITHIN, give};
use super::members::MemberId;
use super::stop::{KILLED_WITHIN, StopOutcome, StopPlan};
use crate::bus::new_id;
use crate::os::deadline::deadline;
use crate::protocol::ladder::{LadderDeadlines, Rung, Urgency};
use crate::store::relay::order_id;
use crate::wire::carried::HostName;
use crate::wire::host_order::{Order, OrderAnswer, StopRung, StopThere};
use crate::wire::roster::Status;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::timeout;

/// The time that a member has which is asked by mail, because its host cannot be given orders.
const ASKED_BY_MAIL: Duration = crate::wire::limits::STOP_ASK;

/// The time in which the request stands in its inbox.
const SENT_WITHIN: Duration = Duration::from_secs(2);

impl StopPlan {
    /// Stops a member of another host. If its host cannot be given the order, the member is asked by mail, which waits for it.
    pub(super) async fn stop_on_host(&self, host: HostName, id: MemberId) -> StopOutcome {
        let mut urgency = self.urgency.clone();
        let first = *urgency.borrow_and_update();
        let mut orders = FuturesUnordered::new();
        orders.push(self.order_stop(&host, &id, first));
        let answered = loop {
            tokio::select! {
                Some(answered) = orders.next() => break answered,
                // The ladder under way there skips to this rung.
                Ok(()) = urgency.changed() => {
                    let now = *urgency.borrow_and_update();
                    orders.push(self.order_stop(&host, &id, now));
                }
            }
        };
        drop(orders);
        let MemberId { name, .. } = &id;
        let outcome = match answered {
            Ok(OrderAnswer::Stopped { rung, refusal }) => StopOutcome {
                name: name.clone(),
                rung: rung.map(rung_of),
                refusal,
                host: Some(host.to_string()),
                unreached: None,
            },
            Ok(answer) => self.unreached(&host, &id, &answer.refusal()).await,
            Err(why) => self.unreached(&host, &id, &why.to_string()).await,
        };
        tracing::info!(%name, %host, outcome = outcome.words(), "member of another host stopped");
        outcome
    }

    async fn order_stop(
        &self,
        host: &HostName,
        id: &MemberId,
        urgency: Urgency,
    ) -> Result<OrderAnswer, OrderFailure> {
        let LadderDeadlines { ask, terminate, kill } =
            LadderDeadlines::for_member(Status::Working, urgency);
        let order = Order::Stop(StopThere {
            name: id.name.to_string(),
            incarnation: id.incarnation.clone(),
            by: self.by.to_string(),
            reason: self.reason.clone(),
            cause: self.cause,
            first: word_of(urgency),
        });
        let within = ask + terminate + kill + KILLED_WITHIN + TRANSPORT_WITHIN;
        let order = (order_id(&new_id(&self.by)), order);
        give(self.bus.dir(), host, order, (&*self.clock, within)).await
    }

    /// Asks a member whose host cannot be given the order.
    async fn unreached(&self, host: &HostName, id: &MemberId, why: &str) -> StopOutcome {
        let asked = self.ask(id, ASKED_BY_MAIL, new_id(&self.by));
        let asked = match timeout(deadline(SENT_WITHIN), asked).await {
            Ok(Ok(Ok(()))) => "it is asked to end once its mail reaches it".to_owned(),
            Ok(Ok(Err(why))) => format!("it could not be asked by mail: {why}"),
            Ok(Err(_)) | Err(_) => "it is not known whether it is asked by mail".to_owned(),
        };
        StopOutcome {
            name: id.name.clone(),
            rung: Some(Rung::GiveUp),
            refusal: None,
            host: Some(host.to_string()),
            unreached: Some(format!("{why}; {asked}")),
        }
    }
}

fn word_of(urgency: Urgency) -> StopRung {
    match urgency {
        Urgency::Polite => StopRung::Ask,
        Urgency::Now => StopRung::Terminate,
        Urgency::AtOnce => StopRung::Kill,
    }
}

fn rung_of(rung: StopRung) -> Rung {
    match rung {
        StopRung::Ask => Rung::Ask,
        StopRung::Terminate => Rung::Terminate,
        StopRung::Kill => Rung::Kill,
        StopRung::GiveUp => Rung::GiveUp,
    }
}

/// Returns the urgency of an ordered stop.
pub(crate) fn urgency_of(first: StopRung) -> Urgency {
    match first {
        StopRung::Ask => Urgency::Polite,
        StopRung::Terminate => Urgency::Now,
        StopRung::Kill | StopRung::GiveUp => Urgency::AtOnce,
    }
}

impl StopOutcome {
    /// Returns the outcome as the answer to an order.
    pub(crate) fn into_answer(self) -> OrderAnswer {
        let rung = self.rung.map(|rung| match rung {
            Rung::Ask => StopRung::Ask,
            Rung::Terminate => StopRung::Terminate,
            Rung::Kill => StopRung::Kill,
            Rung::GiveUp => StopRung::GiveUp,
        });
        OrderAnswer::Stopped { rung, refusal: self.refusal }
    }
}
