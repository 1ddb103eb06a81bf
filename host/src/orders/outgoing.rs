//! The orders of this host to others.

use super::bundles::fetch;
use super::{CarriedOrder, IsNamed, KeysToSend, OrderState, POLL};
use crate::carrier::Carrier;
use crate::name_claims::PlaceOutcome;
use crate::offload::offload;
use crate::presence::PresenceEvent;
use agent_team::store::relay::{open_orders, put_answer, read_order, remove_order};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_order::{
    HostOrder, MAX_BUNDLE_BYTES, Order, OrderAnswer, OrderId, OrderSide,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

/// The pause before the answer of a host that works on an order is asked for again.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The pause before an order is given again to a host that did not answer.
const GIVE_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The orders of this host to others.
#[derive(Clone)]
pub(crate) struct OrdersOut {
    pub(crate) carrier: Carrier,
    pub(crate) dir: TeamDir,
    pub(crate) presence: UnboundedSender<PresenceEvent>,
    pub(crate) is_named: IsNamed,
    pub(crate) keys: KeysToSend,
    /// The orders that are carried now.
    pub(crate) open: Arc<Mutex<BTreeSet<OrderId>>>,
}

impl OrdersOut {
    /// Carries orders as long as the relay runs. `wake` is notified when there may be new ones.
    pub(crate) async fn run(self, wake: Arc<Notify>) {
        while !self.is_named.get() {
            tokio::time::sleep(ASK_EVERY).await;
        }
        loop {
            let dir = self.dir.clone();
            match offload(move || open_orders(&dir, OrderSide::Out)).await {
                Ok(found) => found.into_iter().for_each(|id| self.begin(id)),
                Err(why) => tracing::warn!(%why, "the orders to other hosts cannot be read"),
            }
            // Without file events, the period decides.
            drop(tokio::time::timeout(POLL, wake.notified()).await);
        }
    }

    fn begin(&self, id: OrderId) {
        if !self.lock_open().insert(id.clone()) {
            return;
        }
        let task = self.clone();
        tokio::spawn(async move {
            if let Err(why) = task.carry(&id).await {
                tracing::warn!(%id, %why, "an order to another host is not carried");
            }
            task.lock_open().remove(&id);
        });
    }

    fn lock_open(&self) -> MutexGuard<'_, BTreeSet<OrderId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an order until it is answered, withdrawn, or too old.
    async fn carry(&self, id: &OrderId) -> Result<(), StoreError> {
        let mut given: Option<HostOrder> = None;
        loop {
            let (dir, order_id) = (self.dir.clone(), id.clone());
            let order = offload(move || read_order(&dir, OrderSide::Out, &order_id)).await?;
            let Some(order) = order.filter(|order| SystemClock.now() < order.until) else {
                let (dir, id) = (self.dir.clone(), id.clone());
                offload(move || remove_order(&dir, OrderSide::Out, &id)).await?;
                if let Some(given) = &given {
                    self.take_back(given);
                }
                return Ok(());
            };
            if given.is_none() {
                match self.place(&order).await {
                    PlaceOutcome::Placed => {}
                    PlaceOutcome::Refused(why) => {
                        return self.answered(id, &order, OrderAnswer::Refused { why }).await;
                    }
                    PlaceOutcome::Later(why) => {
                        tracing::info!(%id, why, "an order is not given yet");
                        tokio::time::sleep(GIVE_AGAIN_AFTER).await;
                        continue;
                    }
                }
            }
            let mut content = order.order.clone();
            let keys = match self.keys.put_into(&mut content, &self.dir, &order.host).await {
                Ok(keys) => keys,
                Err(why) => {
                    self.take_back(&order);
                    return self.answered(id, &order, OrderAnswer::Refused { why }).await;
                }
            };
            let carried = CarriedOrder { v: RELAY_PROTOCOL, id: id.clone(), order: content, keys };
            let pause = match self.ask(&order.host, carried).await {
                Some(OrderState { answer: Some(answer) }) => {
                    let Some(answer) = self.with_bundle(id, &order, answer).await else {
                        // It was withdrawn meanwhile, which the next look sees.
                        continue;
                    };
                    if matches!(answer, OrderAnswer::Refused { .. }) {
                        self.take_back(&order);
                    }
                    return self.answered(id, &order, answer).await;
                }
                Some(OrderState { answer: None }) => ASK_EVERY,
                None => GIVE_AGAIN_AFTER,
            };
            given = Some(order);
            tokio::time::sleep(pause).await;
        }
    }

    /// Gets the bundle of an answer. Returns the answer, or one that says why the bundle cannot be had; `None` if nobody waits for
    /// it any more.
    async fn with_bundle(
        &self,
        id: &OrderId,
        order: &HostOrder,
        answer: OrderAnswer,
    ) -> Option<OrderAnswer> {
        let Some(bytes) = answer.bundle_bytes() else { return Some(answer) };
        if bytes > MAX_BUNDLE_BYTES {
            return Some(OrderAnswer::Refused {
                why: format!("its bundle of {bytes} bytes is too large"),
            });
        }
        let is_wanted = || is_awaited(&self.dir, id);
        let end = (&order.host, OrderSide::Out, id);
        match fetch(&self.carrier, &self.dir, end, bytes, is_wanted).await {
            Ok(true) => Some(answer),
            Ok(false) => None,
            Err(why) => {
                Some(OrderAnswer::Refused { why: format!("its bundle cannot be kept: {why}") })
            }
        }
    }

    /// Places the name of an agent on the host where it is to start.
    async fn place(&self, order: &HostOrder) -> PlaceOutcome {
        let Some(name) = spawned(order) else { return PlaceOutcome::Placed };
        let (outcome, placed) = oneshot::channel();
        let host = order.host.clone();
        drop(self.presence.send(PresenceEvent::Place { name, host, outcome }));
        placed.await.unwrap_or_else(|_| PlaceOutcome::Later("the relay ends".into()))
    }

    /// Takes the name of an agent back that has not started, or whose start nobody waits for any more.
    fn take_back(&self, order: &HostOrder) {
        if let Some(name) = spawned(order) {
            let from = order.host.clone();
            drop(self.presence.send(PresenceEvent::TakeBack { name, from }));
        }
    }

    async fn ask(&self, host: &HostName, order: CarriedOrder) -> Option<OrderState> {
        let body = serde_json::to_vec(&order).ok()?;
        match self.carrier.request_order(host.as_str(), body.into()).await {
            Ok(state) => serde_json::from_slice(&state).ok(),
            Err(why) => {
                tracing::info!(id = %order.id, %host, %why, "an order is not answered yet");
                None
            }
        }
    }

    async fn answered(
        &self,
        id: &OrderId,
        order: &HostOrder,
        answer: OrderAnswer,
    ) -> Result<(), StoreError> {
        let (dir, id) = (self.dir.clone(), id.clone());
        let put = move || {
            put_answer(&dir, OrderSide::Out, &id, &answer)?;
            let is_awaited = read_order(&dir, OrderSide::Out, &id)?.is_some();
            if !is_awaited {
                remove_order(&dir, OrderSide::Out, &id)?;
            }
            Ok::<_, StoreError>(is_awaited)
        };
        if !offload(put).await? {
            // It was withdrawn meanwhile.
            self.take_back(order);
        }
        Ok(())
    }
}

/// Whether somebody waits for the answer of an order.
fn is_awaited(dir: &TeamDir, id: &OrderId) -> bool {
    let order = read_order(dir, OrderSide::Out, id);
    order.is_ok_and(|order| order.is_some_and(|order| SystemClock.now() < order.until))
}

/// Returns the name of the agent that an order starts.
fn spawned(order: &HostOrder) -> Option<AgentName> {
    match &order.order {
        Order::Spawn(spawn) => AgentName::member(&spawn.name).ok(),
        Order::Stop(_)
        | Order::Prepare(_)
        | Order::Collect(_)
        | Order::Drop(_)
        | Order::Task(_) => None,
    }
}
