//! Orders between hosts: those of this host are carried until they are answered, those of others are put down for the
//! supervisor of this host, which is started for them.
//!
//! An order is asked for again and again, so neither side remembers more than the files: a repeated one is put down once, and
//! its answer stands beside it.

use crate::carrier::{Carrier, Reply};
use crate::inbound::offload;
use crate::presence::PresenceEvent;
use agent_team::relay::HostSupervisorProcess;
use agent_team::store::relay::{
    open_orders, put_answer, put_order, read_answer, read_order, remove_order,
};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use agent_team::wire::host_order::{HostOrder, Order, OrderAnswer, OrderId, OrderSide};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

/// The pause before the answer of a host that works on an order is asked for again.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The pause before an order is given again to a host that did not answer.
const GIVE_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The period in which orders are looked for without file events.
const POLL: Duration = Duration::from_secs(2);

/// An order on its way.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedOrder {
    v: u32,
    id: OrderId,
    order: Order,
}

/// The state of an order on the host that carries it out.
#[derive(Debug, Serialize, Deserialize)]
struct OrderState {
    /// Its answer; `None` while it is carried out.
    answer: Option<OrderAnswer>,
}

/// The orders of this host to others.
#[derive(Clone)]
pub(crate) struct OrdersOut {
    carrier: Carrier,
    dir: TeamDir,
    presence: UnboundedSender<PresenceEvent>,
    /// The orders that are carried now.
    open: Arc<Mutex<BTreeSet<OrderId>>>,
}

impl OrdersOut {
    pub(crate) fn new(
        carrier: Carrier,
        dir: TeamDir,
        presence: UnboundedSender<PresenceEvent>,
    ) -> Self {
        Self { carrier, dir, presence, open: Arc::default() }
    }

    /// Carries orders as long as the relay runs. `wake` is notified when there may be new ones.
    pub(crate) async fn run(self, wake: Arc<Notify>) {
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

    fn lock_open(&self) -> std::sync::MutexGuard<'_, BTreeSet<OrderId>> {
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
                self.withdrawn(given);
                return Ok(());
            };
            if given.is_none()
                && let Err(why) = self.place(&order).await
            {
                return self.answered(id, OrderAnswer::Refused { why }).await;
            }
            let pause = match self.ask(id, &order).await {
                Some(OrderState { answer: Some(answer) }) => {
                    return self.answered(id, answer).await;
                }
                Some(OrderState { answer: None }) => ASK_EVERY,
                None => GIVE_AGAIN_AFTER,
            };
            given = Some(order);
            tokio::time::sleep(pause).await;
        }
    }

    /// Places the name of an agent on the host where it is to start.
    async fn place(&self, order: &HostOrder) -> Result<(), String> {
        let Some(name) = spawned(order) else { return Ok(()) };
        let (outcome, placed) = oneshot::channel();
        let host = order.host.clone();
        drop(self.presence.send(PresenceEvent::Place { name, host, outcome }));
        placed.await.unwrap_or_else(|_| Err("the relay ends".into()))
    }

    /// Takes the name of an agent back whose start nobody waits for any more.
    fn withdrawn(&self, given: Option<HostOrder>) {
        if let Some(order) = given
            && let Some(name) = spawned(&order)
        {
            drop(self.presence.send(PresenceEvent::TakeBack { name, from: order.host }));
        }
    }

    async fn ask(&self, id: &OrderId, order: &HostOrder) -> Option<OrderState> {
        let carried =
            CarriedOrder { v: RELAY_PROTOCOL, id: id.clone(), order: order.order.clone() };
        let body = serde_json::to_vec(&carried).ok()?;
        match self.carrier.request_order(order.host.as_str(), body.into()).await {
            Ok(state) => serde_json::from_slice(&state).ok(),
            Err(why) => {
                tracing::info!(%id, host = %order.host, %why, "an order is not answered yet");
                None
            }
        }
    }

    async fn answered(&self, id: &OrderId, answer: OrderAnswer) -> Result<(), StoreError> {
        let (dir, id) = (self.dir.clone(), id.clone());
        offload(move || {
            // One that was withdrawn meanwhile leaves no answer behind.
            if read_order(&dir, OrderSide::Out, &id)?.is_some() {
                put_answer(&dir, OrderSide::Out, &id, &answer)?;
            }
            Ok(())
        })
        .await
    }
}

/// Returns the name of the agent that an order starts.
fn spawned(order: &HostOrder) -> Option<AgentName> {
    match &order.order {
        Order::Spawn(spawn) => AgentName::member(&spawn.name).ok(),
        Order::Stop(_) => None,
    }
}

/// The orders of other hosts to this one.
pub(crate) struct OrdersIn {
    dir: TeamDir,
    /// Whether a supervisor that this relay has started runs.
    is_supervised: Arc<Mutex<bool>>,
}

impl OrdersIn {
    pub(crate) fn new(dir: TeamDir) -> Self {
        Self { dir, is_supervised: Arc::default() }
    }

    /// Takes an order of a host, or says how far it has come.
    pub(crate) fn asked(&self, from: HostName, body: &[u8], reply: Reply) {
        let Ok(CarriedOrder { id, order, v: RELAY_PROTOCOL }) = serde_json::from_slice(body) else {
            tracing::warn!(%from, "what came is no order");
            return;
        };
        let (dir, is_supervised) = (self.dir.clone(), Arc::clone(&self.is_supervised));
        tokio::spawn(async move {
            let state = match put_down(&dir, from, id, order, &is_supervised).await {
                Ok(answer) => OrderState { answer },
                Err(why) => OrderState { answer: Some(OrderAnswer::Refused { why }) },
            };
            if let Ok(body) = serde_json::to_vec(&state) {
                drop(reply.answer(body.into()).await);
            }
        });
    }
}

/// Puts an order down, unless it is there, and sees to it that a supervisor runs. Returns its answer if there is one.
async fn put_down(
    dir: &TeamDir,
    from: HostName,
    id: OrderId,
    order: Order,
    is_supervised: &Arc<Mutex<bool>>,
) -> Result<Option<OrderAnswer>, String> {
    let team = dir.clone();
    let look = move || {
        let answer = read_answer(&team, OrderSide::In, &id)?;
        if answer.is_none() && read_order(&team, OrderSide::In, &id)?.is_none() {
            let order = HostOrder { host: from, until: SystemClock.now(), order };
            put_order(&team, OrderSide::In, &id, &order)?;
        }
        Ok::<_, StoreError>(answer)
    };
    let answer = offload(look).await.map_err(|why| why.to_string())?;
    if answer.is_none() {
        supervise(dir, is_supervised).map_err(|why| why.to_string())?;
    }
    Ok(answer)
}

/// Starts the supervisor of this host, unless one runs.
fn supervise(
    dir: &TeamDir,
    is_supervised: &Arc<Mutex<bool>>,
) -> Result<(), agent_team::relay::RelayError> {
    let mut runs = is_supervised.lock().unwrap_or_else(PoisonError::into_inner);
    if *runs {
        return Ok(());
    }
    let Some(started) = HostSupervisorProcess::start(dir)? else { return Ok(()) };
    *runs = true;
    let is_supervised = Arc::clone(is_supervised);
    tokio::spawn(async move {
        let exit = started.ended().await.unwrap_or_else(|why| why.to_string());
        tracing::info!(exit, "the supervisor of this host has ended");
        *is_supervised.lock().unwrap_or_else(PoisonError::into_inner) = false;
    });
    Ok(())
}
